// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/control/control_server_core.hpp"
#include "fuzz_target.hpp"

#include <algorithm>

#include <sys/epoll.h>

namespace accel::core {

/// What has to hold inside a control server between two rounds.
struct control_server_view {
    using server = control_server::impl;

    static bool open_next(server& of) { return of.opener_.open_next(); }
    static bool owns(const server& of, std::uint64_t session) { return of.sessions_.contains(session); }
    static bool empty(const server& of) { return of.connections_.empty(); }
    /// Of TLS, with data, that were read on all connections.
    static std::uint64_t records(const server& of) {
        std::uint64_t sum = 0;
        for (const auto& [id, each] : of.connections_)
            if (each->stream.tls() != nullptr) sum += each->stream.tls()->traffic().received;
        return sum;
    }
    /// No session is between host and client.
    static bool idle(server& of) { return of.opener_.idle() && of.ended_.empty(); }

    static void check(const server& of) {
        std::size_t half_open = 0;
        std::size_t sessions = 0;
        std::unordered_map<std::string, server::client_share> clients;
        for (const auto& [id, each] : of.connections_) {
            if (each->half_open())
                ++half_open;
            else
                add(*each, clients[each->client.account()]);
            sessions += each->sessions.size();
            check_sessions(of, *each);
            check_wakes(of, *each);
        }
        tests::require(half_open == of.half_open_.size(), "connections that say nothing are counted");
        tests::require(clients == of.clients_, "what each client takes is counted");
        tests::require(sessions == of.sessions_.size(), "each session has one owner");
        tests::require(half_open <= of.limits_.max_half_open, "strangers are few");
        tests::require(of.connections_.size() - half_open <= of.limits_.max_connections, "and so are clients");
    }

  private:
    static void add(const server_connection& each, server::client_share& to) {
        ++to.connections;
        to.opening += each.opening;
        to.unsent += each.stream.unsent();
        tests::require(to.opening <= 256, "what a client asks for at once is bounded");
        tests::require(to.unsent <= 4U << 20, "and so is what it does not read");
    }
    static void check_sessions(const server& of, const server_connection& each) {
        const bool serving = each.stage == connection_stage::serving;
        tests::require(serving || each.sessions.empty(), "only clients have sessions");
        for (const std::uint64_t session : each.sessions) {
            const auto found = of.sessions_.find(session);
            tests::require(found != of.sessions_.end() && found->second == each.id, "its owner is known");
        }
    }
    /// Something will wake the server for it.
    static void check_wakes(const server& of, const server_connection& each) {
        constexpr nanoseconds grain = std::chrono::milliseconds{4};
        const auto timer_by = [&](nanoseconds at) {
            const nanoseconds late = std::max(at, now()) + grain;
            tests::require(of.next_timer_ <= late, "a timer comes when it has to");
        };
        const bool queued = of.queued_.holds(each.client.place(), each.id);
        const bool paused = each.paused_until != nanoseconds{0};
        if (paused) timer_by(each.paused_until);
        if (each.half_open()) timer_by(each.since + of.limits_.half_open_timeout);
        if (each.next_beat != never) timer_by(each.next_beat);
        tests::require(queued || paused || each.watched != 0, "what comes on a connection is heard");
        const bool writes = (each.watched & EPOLLOUT) != 0;
        tests::require(writes || !each.stream.wants_to_write(), "what waits is sent when there is room");
    }
};

}  // namespace accel::core
