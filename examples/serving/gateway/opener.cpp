// SPDX-License-Identifier: Apache-2.0
#include "serving/gateway/opener.hpp"

#include "serving/models/loaded_models.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
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
constexpr std::chrono::nanoseconds usual_connect = std::chrono::seconds{2};
constexpr std::chrono::nanoseconds shortest_connect = std::chrono::milliseconds{100};
/// Between two lookups of a name while one of its servers is away, and at least.
constexpr std::chrono::nanoseconds soon = std::chrono::seconds{1};
constexpr std::chrono::nanoseconds at_once = std::chrono::milliseconds{50};

/// As URIs encode keys and values.
std::string decoded(std::string_view text) {
    std::string out;
    while (!text.empty()) {
        unsigned value = 0;
        const bool is_code = text.size() > 2 && text.front() == '%' &&
                             std::from_chars(text.data() + 1, text.data() + 3, value, 16).ptr == text.data() + 3;
        out += is_code ? static_cast<char>(value) : text.front();
        text.remove_prefix(is_code ? 3 : 1);
    }
    return out;
}

/// A valid `connect_retry`.
bool is_retry(std::string_view option) {
    const std::size_t equals = std::min(option.find('='), option.size() - 1);
    return decoded(option.substr(0, equals)) == "connect_retry" &&
           parse_duration(decoded(option.substr(equals + 1))).ok();
}

/// Without `connect_retry`: the opener tries again itself, and has other servers meanwhile.
std::string for_one_try(std::string_view uri) {
    const std::size_t question = std::min(uri.find('?'), uri.size());
    std::string out{uri.substr(0, question)};
    char mark = '?';
    for (std::string_view rest = uri.substr(question); !rest.empty();) {
        rest.remove_prefix(1);
        const std::string_view option = rest.substr(0, rest.find('&'));
        rest.remove_prefix(option.size());
        if (!option.empty() && is_retry(option)) continue;
        out += std::exchange(mark, '&');
        out += option;
    }
    return out;
}

/// A URI for each host of its list.
std::vector<std::string> hosts_of(const std::string& uri) {
    const std::size_t slashes = uri.find("://");
    const std::size_t begin = slashes == std::string::npos ? uri.size() : slashes + 3;
    const std::size_t end = std::min(uri.find('?', begin), uri.size());
    std::vector<std::string> out;
    for (std::size_t at = begin; at <= end;) {
        const std::size_t comma = std::min(uri.find(',', at), end);
        out.push_back(uri.substr(0, begin) + uri.substr(at, comma - at) + uri.substr(end));
        at = comma + 1;
    }
    return out;
}

}  // namespace

opener::opener(context& ctx, const reach_settings& chosen, std::list<upstream>& servers,
               const std::list<server_name>& names)
    : context_(ctx), chosen_(chosen), signal_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    for (upstream& each : servers) left_.push_back({&each, nullptr, each.uri()});
    for (const server_name& each : names)
        for (std::string& host : hosts_of(each.uri)) names_.push_back({.name = &each, .uri = std::move(host)});
    connecting_ = std::thread([this] { run(); });
    for (known_name& each : names_) resolving_.emplace_back([this, &each] { follow(each); });
}

opener::~opener() {
    {
        const std::lock_guard lock(mutex_);
        stop_.request_stop();
    }
    changed_.notify_all();
    connecting_.join();
    for (std::thread& each : resolving_) each.join();
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
    if (changed_.wait_for(lock, patience, [this] { return reached_ > 0 && all_tried(); })) return {};
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

/// Room for metadata is asked for besides. A server that grants too little is reached without.
result<channel> opener::connect(const std::string& uri, const call_sizes& needs, std::chrono::nanoseconds timeout,
                                bool& takes_metadata) const {
    channel_options options;
    options.slots = std::max(chosen_.slots, needs.slots);
    options.reconnect = true;
    options.backoff_max = std::chrono::milliseconds{500};
    options.peer_timeout = chosen_.hold;
    options.connect_timeout = timeout;
    const std::size_t besides = takes_metadata ? needs.metadata_bytes : 0;
    if (needs.request_bytes > 0) options.request_bytes = needs.request_bytes + besides;
    if (needs.response_bytes > 0) options.response_bytes = needs.response_bytes + besides;
    auto made = channel::connect(context_, uri, options);
    if (made.code() != status::message_too_large || besides == 0) return made;
    takes_metadata = false;
    return connect(uri, needs, timeout, takes_metadata);
}

result<opener::change> opener::open(const wanted& what) const {
    const server_name* const name = what.of != nullptr ? what.of->name : nullptr;
    const call_sizes& needs = name != nullptr ? name->needs : what.to->needs();
    change out{what.to, name, what.uri, {}, false};
    const std::string uri = for_one_try(what.uri);
    bool takes_metadata = true;
    for (std::uint32_t i = 0; i < chosen_.channels; ++i) {
        if (stop_.stop_requested()) return error{status::closed, 0, "the gateway ends"};
        auto made = connect(uri, needs, what.timeout, takes_metadata);
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
    while (!stop_.stop_requested()) {
        if (auto ended = std::exchange(closing_, {}); !ended.empty()) {
            lock.unlock();
            ended.clear();
            lock.lock();
        } else if (const auto next = next_wanted(); next != left_.end()) {
            connect(next, lock);
        } else {
            changed_.wait_until(lock, left_.empty() ? clock::now() + std::chrono::hours{1} : next_try_);
        }
    }
}

void opener::follow(known_name& of) {
    std::unique_lock lock(mutex_);
    while (!stop_.stop_requested()) {
        const clock::time_point at = next_lookup(of);
        if (at <= clock::now())
            look_up(of, lock);
        else
            changed_.wait_until(lock, at);
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
    of.due = false;
    lock.unlock();
    const auto found = resolve_servers(of.uri, chosen_.lookup, stop_.get_token());
    lock.lock();
    of.looked_up = clock::now();
    of.fails = !found;
    if (found)
        list(of, *found);
    else
        last_ = found.error();
    of.tried = true;
    changed_.notify_all();
}

void opener::list(known_name& of, const std::vector<std::string>& found) {
    std::erase_if(of.servers, [&](const known_server& each) {
        if (std::ranges::find(found, each.uri) != found.end()) return false;
        const auto is_it = [&](const wanted& one) { return one.of == &of && one.uri == each.uri; };
        if (each.reached) of.old.push_back(each.uri);
        if (now_ && is_it(*now_)) now_->dropped = true;
        std::erase_if(left_, is_it);
        return true;
    });
    for (const std::string& each : found) {
        if (std::ranges::find(of.servers, each, &known_server::uri) != of.servers.end()) continue;
        const bool stayed = std::erase(of.old, each) > 0;
        of.servers.push_back({each, stayed, stayed});
        if (!stayed) left_.insert(std::ranges::find(left_, true, &wanted::tried), {nullptr, &of, each});
    }
    let_go(of, 0);
}

/// Old servers, `most` of them unless all others were tried: a single new one would get the calls of all.
void opener::let_go(known_name& of, std::size_t most) {
    if (std::ranges::all_of(of.servers, &known_server::tried)) most = of.old.size();
    const auto end = of.old.begin() + static_cast<std::ptrdiff_t>(std::min(most, of.old.size()));
    for (auto each = of.old.begin(); each != end; ++each) report({nullptr, of.name, *each, {}, false});
    of.old.erase(of.old.begin(), end);
}

/// First those that were not tried yet. Once one was reached, every other turn is for the others: a name that always
/// has new servers does not keep them away.
std::deque<opener::wanted>::iterator opener::next_wanted() {
    const auto again = std::ranges::find(left_, true, &wanted::tried);
    const bool is_due = again != left_.end() && next_try_ <= clock::now();
    const bool is_new = again != left_.begin();
    again_ = is_due && (!is_new || (reached_ > 0 && !again_));
    return again_ ? again : is_new ? left_.begin() : left_.end();
}

/// At the start each is tried while there is patience. Later, silent servers shall not hold up others.
std::chrono::nanoseconds opener::time_to_connect() const {
    if (reached_ > 0) return usual_connect;
    const auto others = std::ranges::count(left_, false, &wanted::tried);
    const std::chrono::nanoseconds share = (begun_ + chosen_.patience - clock::now()) / (others + 2);
    return std::max(share, others == 0 ? usual_connect : shortest_connect);
}

void opener::connect(const std::deque<wanted>::iterator& which, std::unique_lock<std::mutex>& lock) {
    now_ = std::move(*which);
    left_.erase(which);
    now_->timeout = time_to_connect();
    lock.unlock();
    auto made = open(*now_);
    lock.lock();
    wanted next = *std::exchange(now_, std::nullopt);
    next.tried = true;
    changed_.notify_all();
    if (next.dropped) {
        if (made) std::ranges::move(made->channels, std::back_inserter(closing_));
        return;
    }
    const bool reached = made.ok();
    if (reached) {
        ++reached_;
        report(std::move(made).value());
    } else {
        last_ = made.error();
        next_try_ = clock::now() + between_tries;
    }
    if (next.of != nullptr) {
        known_server& server = *std::ranges::find(next.of->servers, next.uri, &known_server::uri);
        server.tried = true;
        server.reached = reached;
        let_go(*next.of, reached ? 1 : 0);
    }
    if (!reached) left_.push_back(std::move(next));
}

bool opener::all_tried() const {
    return std::ranges::all_of(names_, &known_name::tried) && (!now_ || now_->tried) &&
           std::ranges::all_of(left_, &wanted::tried);
}

void opener::report(change what) {
    done_.push_back(std::move(what));
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(signal_, &one, sizeof one);
}

}  // namespace accel::examples::gateway
