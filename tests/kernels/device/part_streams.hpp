// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "conformance/payload.hpp"

#include <accel_transport/accel_transport.hpp>
#include <accel_transport/device/service.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace accel::tests {

/// What a client asks for.
struct parts_wish {
    std::uint64_t parts = 0;
    std::uint64_t bytes = 0;  ///< of part i: so many, and i % 50
    std::uint64_t seed = 0;
    std::uint32_t fails = 0;         ///< 1: the response ends with a failure
    std::uint32_t stalls_after = 0;  ///< so many parts, then none until nobody waits; 0: never
    [[nodiscard]] std::uint64_t bytes_of(std::uint64_t number) const { return bytes + number % 50; }
};

/// Streams what is wished, and echoes requests that are no `parts_wish`: as a kernel, by a thread in its place, or as a
/// handler.
class part_streams {
  public:
    ~part_streams() { end(); }

    std::atomic<int> without_room{0};
    std::atomic<int> heard{0};  ///< that nobody waits any more
    std::atomic<bool> gives_up{false};
    std::atomic<bool> too_long_refused{false};

    void end() {
        gives_up = true;
        const std::lock_guard lock(mutex_);
        for (std::thread& each : threads_) each.join();
        threads_.clear();
    }
    /// `Service`: the service itself, or `owned_sessions` of `whole`.
    template <class Service>
    void answer(Service& service, const device::service_ref& whole, const device::exchange_ref& exchange) {
        if (!device::in_parts(exchange) || exchange.request_bytes != sizeof(parts_wish))
            return echo_whole(service, exchange);
        parts_wish what;
        std::memcpy(&what, exchange.request, sizeof what);
        for (std::uint64_t i = 0; i < what.parts; ++i) {
            if (stalls(what, i, [&] { return device::cancelled(whole, exchange); })) break;
            device::part_ref part;
            if (!await_room(service, whole, exchange, part)) break;
            const std::uint64_t length = what.bytes_of(i);
            fill({part.bytes, length}, what.seed + i);
            if (device::send(service, exchange, part.room + 1) == status::message_too_large) too_long_refused = true;
            if (device::send(service, exchange, length) != status::ok) break;
        }
        if (what.fails != 0)
            (void)device::fail(service, exchange, status::application_error, 42);
        else
            (void)device::reply(service, exchange, 0);
    }
    /// A thread answers: the one that calls handlers brings room.
    void handle(exchange request) {
        if (request.request().size() != sizeof(parts_wish)) {
            const std::size_t length = std::min(request.request().size(), request.response().size());
            std::memcpy(request.response().data(), request.request().data(), length);
            (void)request.reply(length);
            return;
        }
        const std::lock_guard lock(mutex_);
        threads_.emplace_back([this, kept = std::make_shared<exchange>(std::move(request))] { stream(*kept); });
    }

  private:
    /// Before part `number`; true behind a stall.
    template <class Cancelled>
    bool stalls(const parts_wish& what, std::uint64_t number, const Cancelled& cancelled) {
        if (what.stalls_after == 0 || number != what.stalls_after) return false;
        while (!gives_up) {
            if (cancelled()) {
                ++heard;
                break;
            }
            std::this_thread::sleep_for(std::chrono::microseconds{100});
        }
        return true;
    }
    template <class Service>
    bool await_room(Service& service, const device::service_ref& whole, const device::exchange_ref& exchange,
                    device::part_ref& part) {
        for (;;) {
            const status found = device::next_part(service, exchange, part);
            if (found != status::again) return found == status::ok;
            const status nothing = device::send(service, exchange, 0);
            EXPECT_TRUE(nothing == status::again || nothing == status::peer_lost) << to_string(nothing);
            ++without_room;
            if (device::cancelled(whole, exchange)) {
                ++heard;
                return false;
            }
            if (gives_up) return false;
            std::this_thread::sleep_for(std::chrono::microseconds{100});
        }
    }
    template <class Service>
    void echo_whole(Service& service, const device::exchange_ref& exchange) {
        device::part_ref part;
        if (!device::in_parts(exchange)) {
            EXPECT_EQ(device::next_part(service, exchange, part), status::unsupported);
            EXPECT_EQ(device::send(service, exchange, 0), status::unsupported);
        }
        const std::uint64_t length = std::min(exchange.request_bytes, exchange.response_room);
        std::memcpy(exchange.response, exchange.request, length);
        (void)device::reply(service, exchange, length);
    }
    void stream(exchange& request) {
        parts_wish what;
        std::memcpy(&what, request.request().data(), sizeof what);
        for (std::uint64_t i = 0; i < what.parts; ++i) {
            if (stalls(what, i, [&] { return request.cancelled(); })) break;
            if (!await_room(request)) break;
            fill(request.part().first(what.bytes_of(i)), what.seed + i);
            if (request.send(what.bytes_of(i)) != status::ok) break;
        }
        if (what.fails != 0)
            (void)request.fail(status::application_error, 42);
        else
            (void)request.reply(0);
    }
    bool await_room(exchange& request) {
        for (const std::stop_token nobody_waits = request.stop_token(); request.part().empty();) {
            ++without_room;
            if (nobody_waits.stop_requested()) {
                ++heard;
                return false;
            }
            if (gives_up) return false;
            std::this_thread::sleep_for(std::chrono::microseconds{100});
        }
        return true;
    }

    std::mutex mutex_;
    std::vector<std::thread> threads_;
};

}  // namespace accel::tests
