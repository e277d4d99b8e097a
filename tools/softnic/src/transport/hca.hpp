// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "dma/engine.hpp"
#include "fabric/fabric.hpp"
#include "fault/injector.hpp"
#include "link/model.hpp"
#include "model/device.hpp"
#include "model/settings.hpp"
#include "trace/trace.hpp"

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <vector>

namespace accel::softnic {

/// What has happened so far; for tests, `SOFTNIC_STATS` and the C API.
struct counters {
    std::uint64_t doorbells = 0;
    std::uint64_t doorbell_looks = 0;  ///< at records of queues, because a doorbell rang
    std::uint64_t wqes = 0;
    std::uint64_t cqes = 0;
    std::uint64_t packets_sent = 0;
    std::uint64_t packets_received = 0;
    std::uint64_t packets_dropped = 0;  ///< by a fault, or to a queue pair that does not exist
    std::uint64_t early_packets = 0;    ///< over a modelled link, whose payload was written while they waited
    std::uint64_t retransmissions = 0;
    std::uint64_t timeouts = 0;
    std::uint64_t naks_sent = 0;
    std::uint64_t late_wqes = 0;       ///< strict mode's catch
    std::uint64_t timed_messages = 0;  ///< that came over a modelled link
    std::uint64_t late_messages = 0;   ///< and of those, later than the link says
    std::uint64_t lateness_ns = 0;     ///< of all of them, added up
};

/// A packet that a fault keeps back.
struct held_packet {
    std::uint64_t release_at = 0;
    bool until_next = false;  ///< reordered: goes right behind the next packet to the same node
    int to_node = 0;
    std::unique_ptr<packet> contents;
};

/// Who hears of events about a whole device: an asynchronous event descriptor of the program, or its subscribers.
struct event_listener {
    int device = 0;
    std::shared_ptr<event_pipe> pipe;
    std::shared_ptr<event_subscribers> subscribers;
};

/// Everything one process's adapters consist of, but for threads, doorbells and the way commands come in. Not
/// thread-safe: who drives it holds one lock.
struct hca {
    static constexpr std::uint64_t never = ~std::uint64_t{0};

    hca(settings chosen, std::unique_ptr<fabric> joined);

    settings config;
    std::unique_ptr<fabric> net;
    std::deque<device> devices;
    fault_injector faults;
    trace log;
    counters count;
    dma_registry dma;
    link_model link;
    std::uint64_t now = 0;  ///< nanoseconds; set by who drives it
    /// The clock of modelled links, the same for all processes of the fabric; null where `now` is.
    std::uint64_t (*wire_clock)() = nullptr;
    std::uint64_t wire_now = 0;          ///< of that clock
    std::uint64_t next_due = never;      ///< when the next packet of a modelled link is due, on that clock
    std::uint64_t arrived_ns = 0;        ///< when the packet that is being delivered was due
    std::uint64_t own_ring_full_at = 0;  ///< when a packet to this node itself last found no room
    std::mt19937_64 random;              ///< strict mode's dice
    std::vector<held_packet> held;
    std::uint64_t port_up_at = never;  ///< when the next port that a fault took down comes up again
    std::vector<event_listener> listeners;
    std::vector<std::shared_ptr<dma_engine>> deferring;  ///< engines with writes that may still be on their way
    struct early_writes {
        std::shared_ptr<dma_engine> engine;
        std::uint64_t mark = 0;
    };
    std::vector<early_writes> early;     ///< those of them with early writes on their way
    bool defers = false;                 ///< there is an engine that does
    const placement* placed = nullptr;   ///< of the packet that is being delivered, if it has one
    std::uint64_t messages = 0;          ///< numbers of those that may be read ahead
    std::vector<queue_pair*> scheduled;  ///< queue pairs that have or may soon have work

    [[nodiscard]] int node() const { return net->node(); }
    /// Puts a queue pair on the list, if it is not there.
    void schedule(queue_pair& qp);
    void unschedule(const queue_pair& qp);

    /// Whom a packet is for, if that exists and its port is up; else null.
    [[nodiscard]] queue_pair* find_receiver(const packet_header& in);
    /// The port that a path leads to, or nullopt when no port has that LID or GID.
    [[nodiscard]] std::optional<port_address> find_lid(std::uint16_t lid) const;
    [[nodiscard]] std::optional<port_address> find_gid(const gid_bytes& gid) const;

    /// The first fault of these kinds that fires for this queue pair (and packet, if there is one), or null.
    template <class... Actions>
    const fault_rule* fault(const queue_pair& qp, packet_kind kind, Actions... actions) {
        if (faults.empty()) return nullptr;
        const fault_action list[]{actions...};
        return faults.decide({node(), qp.number, 0, kind}, list);
    }

    template <class... Args>
    void say(const queue_pair& qp, std::string_view what, fmt::format_string<Args...> format, Args&&... args) {
        if (log.on()) log.line(now, node(), qp.number, what, format, std::forward<Args>(args)...);
    }
};

/// As whom a queue pair uses keys.
[[nodiscard]] inline region_table::user user_of(const queue_pair& qp) {
    return {qp.options.pd, qp.number};
}

}  // namespace accel::softnic
