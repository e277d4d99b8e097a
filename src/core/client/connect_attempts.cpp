// SPDX-License-Identifier: Apache-2.0
#include "core/client/connect_attempts.hpp"

#include "core/client/named_servers.hpp"
#include "core/net/unix_socket.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>
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

/// False: it was stopped.
bool sleep(const std::stop_token& stopped, nanoseconds time) {
    std::mutex mutex;
    std::condition_variable_any woken;
    std::unique_lock lock(mutex);
    (void)woken.wait_for(lock, stopped, time, [] { return false; });
    return !stopped.stop_requested();
}

}  // namespace

result<connect_attempts> connect_attempts::plan(std::vector<uri> hosts, const channel_options& options,
                                                further_keys* more, std::stop_token stopped) {
    auto effective = apply_options(hosts.front(), options, more);
    if (!effective) return effective.error();

    connect_attempts out;
    if (std::ranges::any_of(hosts, &uri::dns)) out.named_ = hosts;
    out.hosts_ = std::move(hosts);
    out.options_ = std::move(*effective);
    out.retry_until_ = deadline_after(out.options_.connect_retry);
    out.pauses_ = {out.options_.backoff_min, out.options_.backoff_max};
    out.stopped_ = std::move(stopped);
    out.begin_round();
    return out;
}

void connect_attempts::begin_round() {
    host_ = 0;
    may_pass_ = false;
    failures_.clear();
    round_ends_ = deadline_after(options_.connect_timeout);
    if (!named_.empty()) hosts_ = resolve_names(named_, round_ends_, stopped_);
}

nanoseconds connect_attempts::time() const noexcept {
    const bool whole = hosts_.size() == 1 && named_.empty();
    return whole ? options_.connect_timeout : share_of(round_ends_, hosts_.size() - host_);
}

/// A scheme that was found by `auto` is the one for later connections. Where that is `local` or `shm`, the other hosts
/// are not reached by it, and neither are those of `dns+`.
void connect_attempts::restore(connect_request& made) const {
    made.options.connect_timeout = options_.connect_timeout;
    made.first_host = host_;
    if (hosts_.size() == 1 && named_.empty()) return;
    const auto reached = [&](std::vector<uri> out) {
        if (within_host(made.peer.scheme))
            std::erase_if(out, [&](const uri& each) { return each.scheme != made.peer.scheme; });
        for (uri& each : out) each.scheme = made.peer.scheme;
        return out;
    };
    made.hosts = reached(hosts_);
    made.named = reached(named_);
}

bool connect_attempts::another(const error& failure) {
    may_pass_ = may_pass_ || may_pass(failure);
    failures_.push_back(failure);
    if (++host_ < hosts_.size()) return true;
    const nanoseconds left = retry_until_ - now();
    if (!may_pass_ || left <= nanoseconds{0} || !sleep(stopped_, std::min(pauses_.take(), left))) return false;
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
