// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "rig.hpp"

#include <array>
#include <cmath>
#include <functional>

#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>

/// Devices that share a fabric as processes do, over a modelled link on virtual time.
namespace accel::softnic::testing {

inline constexpr double gigabits = 25;  // bits a nanosecond
inline constexpr double delay_ns = 1'000;
inline constexpr double each_packet = 8 + 14 + 20 + 8 + 12 + 4 + 4 + 12;
inline constexpr double mtu = 1024;
inline constexpr double one_ack = (each_packet + 4) * 8 / gigabits + delay_ns;

inline settings linked(bool strict = false, const char* faults = "") {
    settings chosen;
    chosen.link = parse_link("25Gb/s,1us");
    chosen.strict = strict;
    chosen.faults = faults;
    return chosen;
}

/// Bytes in packets of an MTU, with an extended header in the first one.
inline double transfer_ns(double bytes, double extended) {
    const double packets = std::max(1.0, std::ceil(bytes / mtu));
    return (bytes + packets * each_packet + extended) * 8 / gigabits;
}

/// A device with a queue pair and memory.
struct host {
    explicit host(const settings& chosen, const rig* first = nullptr)
        : on(chosen, first == nullptr ? fabric::create_private() : fabric::join_peer(*first->adapter.state.net)) {}

    static constexpr std::size_t bytes = 2'000'000;
    rig on;
    test_cq cq{on.adapter, 256};
    test_qp qp{on.adapter, cq, cq, 1};
    std::vector<std::uint8_t> memory = std::vector<std::uint8_t>(bytes);
    std::uint32_t key = on.add_region(memory);
    seen_completion seen;

    work operation(std::uint8_t opcode, std::uint32_t length, const host& to) {
        work what;
        what.opcode = opcode;
        if (length != 0) what.pieces = {piece(memory.data(), length, key)};
        what.remote = reinterpret_cast<std::uint64_t>(to.memory.data());
        what.rkey = to.key;
        return what;
    }
};

struct world {
    std::vector<host*> hosts;
    std::uint64_t now = 1;

    /// One round each, then the clock goes to the next event.
    void step() {
        std::uint64_t next = now + 1'000;
        for (host* each : hosts) {
            each->on.adapter.progress(now);
            const std::uint64_t due = each->on.adapter.state.next_due;
            if (due > now) next = std::min(next, due);
        }
        now = next;
    }
    /// The time when it became true, or 0.
    std::uint64_t when(const std::function<bool()>& true_now, std::uint64_t longest_ns = 1'000'000'000) {
        for (const std::uint64_t end = now + longest_ns; now < end;) {
            const std::uint64_t before = now;
            step();
            if (true_now()) return before;
        }
        return 0;
    }
    std::uint64_t when_completed(host& of) {
        return when([&] { return of.cq.poll(of.seen); });
    }
};

inline void pair_up(host& one, host& other) {
    const link_options how{.mtu = 3};
    connect(one.on.adapter, *one.qp.qp, other.qp.qp->number, how);
    connect(other.on.adapter, *other.qp.qp, one.qp.qp->number, how);
}

/// Not earlier, and at most 2 % later.
inline void expect_time(std::uint64_t seen, std::uint64_t from, double formula) {
    ASSERT_NE(seen, 0u) << "never";
    EXPECT_GE(static_cast<double>(seen - from), formula - 1);
    EXPECT_LE(static_cast<double>(seen - from), formula * 1.02 + 2);
}

struct linked_hosts {
    explicit linked_hosts(const settings& chosen = linked()) : one(chosen), two(chosen, &one.on) {
        for (std::size_t at = 0; at < one.memory.size(); ++at)
            one.memory[at] = static_cast<std::uint8_t>(1 + at % 251);  // never 0, and not the same in each packet
        pair_up(one, two);
        time.hosts = {&one, &two};
        time.step();
    }
    std::uint64_t post(host& by, const work& what) {
        for (host* each : time.hosts) each->on.adapter.progress(time.now);
        by.qp.post(what);
        by.qp.ring();
        return time.now;
    }
    void expect_completion(host& of, std::uint64_t from, double formula) {
        expect_time(time.when_completed(of), from, formula);
        EXPECT_EQ(of.seen.kind, MLX5_CQE_REQ);
    }

    host one;
    host two;
    world time;
};

}  // namespace accel::softnic::testing
