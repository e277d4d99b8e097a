// SPDX-License-Identifier: Apache-2.0
#include "serving/gateway/opener.hpp"

#include "serving/models/loaded_models.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace accel::examples::gateway {
namespace {

constexpr std::chrono::milliseconds between_tries{250};
constexpr std::chrono::nanoseconds shortest_connect = std::chrono::seconds{2};
constexpr std::chrono::seconds lookup_patience{5};
/// Between two lookups of a name while one of its servers is away, and at least.
constexpr std::chrono::nanoseconds soon = std::chrono::seconds{1};
constexpr std::chrono::nanoseconds at_once = std::chrono::milliseconds{50};

/// Without `connect_retry`: the opener tries again itself, and has other servers and names meanwhile.
std::string for_one_try(std::string_view uri) {
    const std::size_t question = std::min(uri.find('?'), uri.size());
    std::string out{uri.substr(0, question)};
    char mark = '?';
    for (std::string_view rest = uri.substr(question); !rest.empty();) {
        rest.remove_prefix(1);
        const std::string_view option = rest.substr(0, rest.find('&'));
        rest.remove_prefix(option.size());
        if (option.starts_with("connect_retry=")) continue;
        out += std::exchange(mark, '&');
        out += option;
    }
    return out;
}

}  // namespace

opener::opener(context& ctx, const reach_settings& chosen, std::list<upstream>& servers,
               const std::list<server_name>& names)
    : context_(ctx),
      chosen_(chosen),
      signal_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      untried_(servers.size() + names.size()) {
    for (upstream& each : servers) left_.push_back({&each, nullptr, each.uri()});
    for (const server_name& each : names) names_.push_back({.name = &each});
    thread_ = std::thread([this] { run(); });
}

opener::~opener() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
    ::close(signal_);
}

std::vector<opener::change> opener::take() {
    const std::lock_guard lock(mutex_);
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = ::read(signal_, &count, sizeof count);
    return std::exchange(done_, {});
}

result<void> opener::wait_for_servers(std::chrono::nanoseconds patience) {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, patience, [this] { return reached_ > 0 && untried_ == 0; })) return {};
    if (reached_ > 0) return {};
    if (last_.code != status::ok) return last_;
    return error{status::timed_out, 0, "no server has answered in time; see --patience"};
}

void opener::set_missed(bool any) {
    const std::lock_guard lock(mutex_);
    missed_ = any;
    for (known_name& each : names_) each.due = each.due || any;
    changed_.notify_all();
}

void opener::close(std::vector<channel> channels) {
    const std::lock_guard lock(mutex_);
    std::ranges::move(channels, std::back_inserter(closing_));
    changed_.notify_all();
}

result<opener::change> opener::open(const wanted& what) const {
    const server_name* const name = what.of != nullptr ? what.of->name : nullptr;
    const call_sizes& needs = name != nullptr ? name->needs : what.to->needs();
    channel_options options;
    options.slots = std::max(chosen_.slots, needs.slots);
    if (needs.request_bytes > 0) options.request_bytes = needs.request_bytes + needs.metadata_bytes;
    if (needs.response_bytes > 0) options.response_bytes = needs.response_bytes + needs.metadata_bytes;
    options.reconnect = true;
    options.backoff_max = std::chrono::milliseconds{500};
    options.peer_timeout = chosen_.hold;
    options.connect_timeout = std::max(shortest_connect, chosen_.patience / 2);
    change out{what.to, name, what.uri, {}, false};
    const std::string uri = name != nullptr ? for_one_try(what.uri) : what.uri;
    for (std::uint32_t i = 0; i < chosen_.channels; ++i) {
        auto made = channel::connect(context_, uri, options);
        if (!made) return made.error();
        if (made->max_request_bytes() < needs.request_bytes)
            return error{status::message_too_large, 0,
                         fmt::format("the server at {} accepts requests of up to {} bytes, but its models need {}",
                                     what.uri, made->max_request_bytes(), needs.request_bytes)};
        out.channels.push_back(std::move(made).value());
    }
    for (const std::string& each : name != nullptr ? name->models : what.to->models()) {
        if (each.empty()) continue;
        if (auto known = out.channels.front().resolve(each); !known) return known.error();
    }
    const auto told = out.channels.front().resolve(serving::loaded_models_target);
    if (!told && told.code() != status::not_found) return told.error();
    out.tells_models = told.ok();
    return out;
}

void opener::run() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
        if (auto ended = std::exchange(closing_, {}); !ended.empty()) {
            lock.unlock();
            ended.clear();
            lock.lock();
            continue;
        }
        const clock::time_point now = clock::now();
        const auto by_time = [this](const known_name& each) { return next_lookup(each); };
        const auto next = std::ranges::min_element(names_, {}, by_time);
        if (next != names_.end() && next_lookup(*next) <= now) {
            look_up(*next, lock);
        } else if (!left_.empty() && next_try_ <= now) {
            connect_next(lock);
        } else {
            clock::time_point until = now + std::chrono::hours{1};
            if (next != names_.end()) until = std::min(until, next_lookup(*next));
            if (!left_.empty()) until = std::min(until, next_try_);
            changed_.wait_until(lock, until);
        }
    }
}

opener::clock::time_point opener::next_lookup(const known_name& of) const {
    if (!of.tried) return of.looked_up;
    const bool often = missed_ || of.fails || !std::ranges::all_of(of.servers, &known_server::reached);
    std::chrono::nanoseconds pause = often ? std::min(chosen_.dns_refresh, soon) : chosen_.dns_refresh;
    if (of.due) pause = std::chrono::nanoseconds{0};
    return of.looked_up + std::max(pause, at_once);
}

/// A name that cannot be resolved now keeps its servers.
void opener::look_up(known_name& of, std::unique_lock<std::mutex>& lock) {
    of.looked_up = clock::now();
    of.due = false;
    lock.unlock();
    const auto found = resolve_servers(of.name->uri, lookup_patience);
    lock.lock();
    of.fails = !found;
    if (found)
        list(of, *found);
    else
        last_ = found.error();
    if (!std::exchange(of.tried, true)) --untried_;
    changed_.notify_all();
}

void opener::list(known_name& of, const std::vector<std::string>& found) {
    std::erase_if(of.servers, [&](const known_server& each) {
        if (std::ranges::find(found, each.uri) != found.end()) return false;
        if (each.reached) report({nullptr, of.name, each.uri, {}, false});
        std::erase_if(left_, [&](const wanted& one) { return one.of == &of && one.uri == each.uri; });
        return true;
    });
    for (const std::string& each : found) {
        if (std::ranges::find(of.servers, each, &known_server::uri) != of.servers.end()) continue;
        of.servers.push_back({each});
        left_.push_front({nullptr, &of, each});
        if (!of.tried) ++untried_;
        next_try_ = {};
    }
}

void opener::connect_next(std::unique_lock<std::mutex>& lock) {
    wanted next = std::move(left_.front());
    left_.pop_front();
    lock.unlock();
    auto made = open(next);
    lock.lock();
    if (untried_ > 0) --untried_;
    if (made) {
        ++reached_;
        report(std::move(made).value());
        if (next.of != nullptr) std::ranges::find(next.of->servers, next.uri, &known_server::uri)->reached = true;
    } else {
        last_ = made.error();
        left_.push_back(std::move(next));
        next_try_ = clock::now() + between_tries;
    }
    changed_.notify_all();
}

void opener::report(change what) {
    done_.push_back(std::move(what));
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(signal_, &one, sizeof one);
}

}  // namespace accel::examples::gateway
