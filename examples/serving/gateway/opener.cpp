// SPDX-License-Identifier: Apache-2.0
#include "serving/gateway/opener.hpp"

#include "serving/models/loaded_models.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace accel::examples::gateway {
namespace {

constexpr std::chrono::milliseconds between_tries{250};
constexpr std::chrono::nanoseconds shortest_connect = std::chrono::seconds{2};

}  // namespace

opener::opener(context& ctx, const reach_settings& chosen, std::deque<upstream>& servers)
    : context_(ctx), chosen_(chosen), signal_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), untried_(servers.size()) {
    for (upstream& each : servers) left_.push_back(&each);
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

std::vector<opener::opened> opener::take() {
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

result<opener::opened> opener::open(upstream& server) const {
    channel_options options;
    options.slots = std::max(chosen_.slots, server.needs().slots);
    if (server.needs().request_bytes > 0) options.request_bytes = server.needs().request_bytes;
    if (server.needs().response_bytes > 0) options.response_bytes = server.needs().response_bytes;
    options.reconnect = true;
    options.backoff_max = std::chrono::milliseconds{500};
    options.peer_timeout = chosen_.hold;
    options.connect_timeout = std::max(shortest_connect, chosen_.patience / 2);
    opened out{&server, {}, false};
    for (std::uint32_t i = 0; i < chosen_.channels; ++i) {
        auto made = channel::connect(context_, server.uri(), options);
        if (!made) return made.error();
        if (made->max_request_bytes() < server.needs().request_bytes)
            return error{status::message_too_large, 0,
                         fmt::format("the server at {} accepts requests of up to {} bytes, but its models need {}",
                                     server.uri(), made->max_request_bytes(), server.needs().request_bytes)};
        out.channels.push_back(std::move(made).value());
    }
    for (const std::string& each : server.models())
        if (auto known = out.channels.front().resolve(each); !known) return known.error();
    const auto told = out.channels.front().resolve(serving::loaded_models_target);
    if (!told && told.code() != status::not_found) return told.error();
    out.tells_models = told.ok();
    return out;
}

void opener::run() {
    std::unique_lock lock(mutex_);
    while (!stopping_ && !left_.empty()) {
        upstream* const next = left_.front();
        left_.pop_front();
        lock.unlock();
        auto made = open(*next);
        lock.lock();
        if (untried_ > 0) --untried_;
        const bool reached = made.ok();
        if (reached) {
            done_.push_back(std::move(made).value());
            ++reached_;
            const std::uint64_t one = 1;
            [[maybe_unused]] const auto written = ::write(signal_, &one, sizeof one);
        } else {
            last_ = made.error();
            left_.push_back(next);
        }
        changed_.notify_all();
        if (!reached) changed_.wait_for(lock, between_tries, [this] { return stopping_; });
    }
}

}  // namespace accel::examples::gateway
