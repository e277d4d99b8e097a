// SPDX-License-Identifier: Apache-2.0
#include "core/client/connect_attempts.hpp"

#include "core/net/unix_socket.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include <fmt/format.h>

namespace accel::core {
namespace {

/// A server that is not there yet, or a name that does not resolve yet (`native` is getaddrinfo's).
bool may_pass(const error& failure) {
    switch (failure.code) {
        case status::peer_lost:
        case status::timed_out:
        case status::closed:
        case status::overloaded:
            return true;
        default:
            return failure.code == status::invalid_argument && failure.native != 0;
    }
}

}  // namespace

result<connect_attempts> connect_attempts::plan(std::string_view text, const channel_options& options,
                                                further_keys* more) {
    auto hosts = one_host_each(text);
    if (!hosts) return hosts.error();
    for (const std::string& each : *hosts)
        if (auto good = parse_client_uri(each); !good) return good.error();
    auto effective = apply_options(parse_client_uri(hosts->front()).value(), options, more);
    if (!effective) return effective.error();

    connect_attempts out;
    out.hosts_ = std::move(*hosts);
    out.options_ = std::move(*effective);
    out.retry_until_ = deadline_after(out.options_.connect_retry);
    out.pauses_ = {out.options_.backoff_min, out.options_.backoff_max};
    out.begin_round();
    return out;
}

void connect_attempts::begin_round() noexcept {
    host_ = 0;
    may_pass_ = false;
    failures_.clear();
    round_ends_ = deadline_after(options_.connect_timeout);
}

nanoseconds connect_attempts::time() const noexcept {
    return hosts_.size() == 1 ? options_.connect_timeout : share_of(round_ends_, hosts_.size() - host_);
}

/// A scheme that was found by `auto` is the one for later connections. Where that is `local` or `shm`, the other hosts
/// are not reached by it.
void connect_attempts::restore(connect_request& made) const {
    made.options.connect_timeout = options_.connect_timeout;
    made.first_host = host_;
    if (hosts_.size() == 1) return;
    for (const std::string& text : hosts_) {
        auto host = parse_uri(text);
        if (!host || (host->scheme != made.peer.scheme && within_host(made.peer.scheme))) continue;
        host->scheme = made.peer.scheme;
        made.hosts.push_back(std::move(*host));
    }
}

bool connect_attempts::another(const error& failure) {
    may_pass_ = may_pass_ || may_pass(failure);
    failures_.push_back(failure);
    if (++host_ < hosts_.size()) return true;
    const nanoseconds left = retry_until_ - now();
    if (!may_pass_ || left <= nanoseconds{0}) return false;
    std::this_thread::sleep_for(std::min(pauses_.take(), left));
    ++rounds_;
    begin_round();
    return true;
}

error connect_attempts::failure() const {
    error out = failures_.back();
    if (failures_.size() > 1) {
        out.message = fmt::format("cannot connect to any of {} hosts", failures_.size());
        const char* joint = ": ";
        for (const error& each : failures_)
            out.message += fmt::format("{}{}", std::exchange(joint, "; "), each.message);
    }
    if (rounds_ > 1) {
        const auto spent = std::chrono::duration<double>(now() - start_).count();
        out.message += fmt::format(" (tried {} times in {:.1f} s, within connect_retry)", rounds_, spent);
    }
    return out;
}

}  // namespace accel::core
