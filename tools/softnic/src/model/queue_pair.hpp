// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fabric/packet.hpp"
#include "model/bounded_queue.hpp"
#include "model/completion_queue.hpp"
#include "model/qp_attributes.hpp"
#include "model/receive_queue.hpp"
#include "wqe/send_request.hpp"

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace accel::softnic {

/// What the driver says when it creates a queue pair. Addresses are the program's.
struct queue_pair_options {
    qp_type type = qp_type::reliable_connection;
    std::uint32_t pd = 0;
    std::uint32_t user_index = 0;
    std::uint64_t user_handle = 0;
    queue_memory send_buffer;
    std::uint32_t send_wqebbs = 0;  ///< WQEBBs, power of two, or 0
    queue_memory doorbell_record;   ///< two big-endian words: receive, send
    receive_queue_options receives;
    bool signal_all = false;
    std::uint32_t uar_page = 0;
    std::uint64_t access_key = 0;  ///< of a dynamically connected target
    std::shared_ptr<completion_queue> send_cq;
    std::shared_ptr<completion_queue> receive_cq;
    std::shared_ptr<shared_receive_queue> shared_receives;  ///< may be null
    std::shared_ptr<event_pipe> asynchronous;
    std::shared_ptr<event_subscribers> subscribers;  ///< of a queue pair or target made by DevX
};

/// A send WQE on its way: fetched, not yet completed.
struct flight {
    send_request request;
    std::uint32_t first_psn = 0;
    std::uint32_t packets = 0;   ///< PSNs it takes; 0 for a NOP or DUMP
    std::uint64_t message = 0;   ///< a number no other message has
    std::uint32_t received = 0;  ///< response packets placed, for reads and atomics
    failure failed;              ///< known before its turn; reported when it is the oldest

    [[nodiscard]] bool answered() const { return !request.needs_response() || received == packets; }
};

/// The sending half of a queue pair.
struct requester_state {
    static constexpr std::uint32_t ring = 64;

    std::uint16_t consumed = 0;  ///< WQEBBs fetched
    std::uint16_t produced = 0;  ///< WQEBBs that a doorbell told us about
    std::vector<flight> flights = std::vector<flight>(ring);
    // Counters into the ring: oldest <= sending <= newest.
    std::uint32_t oldest = 0;
    std::uint32_t sending = 0;
    std::uint32_t newest = 0;
    std::uint32_t packet = 0;  ///< next packet of the flight at `sending`

    std::uint32_t next_psn = 0;
    std::uint32_t unacknowledged = 0;  ///< oldest PSN without an acknowledgement
    std::uint32_t sent_end = 0;        ///< behind the newest PSN ever sent: nothing from there on can be answered
    std::uint32_t rewound_to = psn_mask + 1;  ///< the gap we already went back for
    unsigned retries = 0;
    unsigned rnr_retries = 0;
    std::uint64_t retry_at = 0;     ///< 0: timer off
    std::uint64_t hold_until = 0;   ///< RNR wait
    std::uint64_t fetch_after = 0;  ///< strict mode: WQEs are fetched late
    // With a modelled link, whose clock these are of:
    std::uint64_t rang_ns = 0;   ///< newest doorbell: what it told of was ready then
    std::uint64_t ready_ns = 0;  ///< of the message that is being sent
    bool held = false;           ///< something else than the link kept the next packet back
    std::deque<std::pair<std::uint16_t, std::uint64_t>>
        seen;  ///< strict mode: index and hash of WQEs at their doorbell

    [[nodiscard]] flight& at(std::uint32_t counter) { return flights[counter % ring]; }
};

/// One response an RC responder owes, in PSN order.
struct reply {
    packet_kind kind = packet_kind::acknowledge;
    std::uint32_t psn = 0;
    nak_code nak = nak_code::sequence;
    std::uint64_t address = 0;  ///< read: what is left to send
    std::uint32_t rkey = 0;
    std::uint32_t length = 0;    ///< read: what is left; atomic: bytes of the operand
    std::uint64_t value = 0;     ///< atomic: what was there before
    std::uint64_t message = 0;   ///< read: a number no other message has
    std::uint64_t ready_ns = 0;  ///< modelled link: when the request had arrived
    bool first = true;           ///< read: nothing of it is sent yet
    bool again = false;          ///< the request was a repetition
};

/// Result of an atomic, kept to answer a retry without doing it twice.
struct atomic_memory {
    std::uint32_t psn = psn_mask + 1;
    std::uint64_t value = 0;
};

/// Data on its way to memory, held back by strict mode.
struct posted_write {
    std::uint32_t key = 0;
    std::uint64_t address = 0;
    std::vector<std::byte> bytes;
};

/// Modelled link: how much of a message is in memory before its packets are delivered.
struct message_ahead {
    bool begun = false;
    packet_kind kind = packet_kind::write;
    std::uint32_t psn = 0;      ///< of the next packet
    std::uint32_t left = 0;     ///< RDMA write: bytes that have not been written; 0: behind its end
    std::uint32_t key = 0;      ///< RDMA write
    std::uint64_t address = 0;  ///< RDMA write: where these bytes go
    std::uint64_t mark = 0;     ///< the engine's, of the newest piece
    std::shared_ptr<dma_engine> engine;
};

/// The answering half of a queue pair.
struct responder_state {
    static constexpr std::size_t max_replies = 64;
    static constexpr std::size_t atomic_depth = 16;

    std::uint32_t expected_psn = 0;
    bool nak_sent = false;
    bool in_message = false;
    packet_kind message = packet_kind::send;
    std::uint64_t write_address = 0;
    std::uint32_t write_key = 0;
    std::uint32_t write_left = 0;
    std::uint32_t message_bytes = 0;
    bool holds_receive = false;
    receive_request receive;
    bounded_queue<reply, max_replies> replies;
    std::array<atomic_memory, atomic_depth> atomics{};
    std::size_t next_atomic = 0;
    std::vector<posted_write> posted;
    std::uint64_t post_by = 0;            ///< strict mode: when the posted writes must be in memory
    std::shared_ptr<dma_engine> posting;  ///< strict mode: where some of them may be on their way
    std::uint64_t arrived_ns = 0;         ///< modelled link: when the newest request had
    std::uint64_t data_until = 0;         ///< modelled link: when the newest response with data will have arrived
    message_ahead ahead;
};

struct queue_pair;

/// A refusal that is repeated as long as its connection is used.
struct refusal {
    nak_code code = nak_code::remote_access;
    std::uint32_t psn = 0;
};

/// What dynamically connected queue pairs have beyond the others (transport/dynamic.hpp).
struct dynamic_state {
    std::uint64_t session = 0;     ///< initiator, connection: its number; 0 before the first
    std::uint32_t first_psn = 0;   ///< initiator: of the connection's first packet
    datagram_address destination;  ///< initiator: where its connection leads
    bool is_connection = false;    ///< one end of a connection, which belongs to a target
    std::optional<refusal> refused;
    std::uint32_t violations = 0;  ///< target: connections with a wrong access key
    bool tells_violation = false;  ///< target: the next one is an event
    /// Of a target: its ends of connections, by the initiators' devices and numbers.
    std::map<std::uint32_t, std::unique_ptr<queue_pair>> connections;
};

struct queue_pair {
    queue_pair(std::uint32_t qpn, int device_index, queue_pair_options chosen)
        : number(qpn), device(device_index), options(std::move(chosen)), receives(options.receives) {}

    std::uint32_t number;
    int device;
    queue_pair_options options;
    qp_state state = qp_state::reset;
    qp_attributes attributes;
    requester_state requester;
    responder_state responder;
    receive_ring receives;
    dynamic_state dynamic;
    unsigned events = 0;         ///< asynchronous events raised
    bool scheduled = false;      ///< on the device's list of queue pairs with work
    bool draining = false;       ///< SQD: owes an SQ_DRAINED event
    bool last_wqe_told = false;  ///< LAST_WQE_REACHED was raised

    [[nodiscard]] bool is_datagram() const { return options.type == qp_type::datagram; }
    [[nodiscard]] bool is_initiator() const { return options.type == qp_type::dynamic_initiator; }
    [[nodiscard]] bool is_target() const { return options.type == qp_type::dynamic_target; }
    [[nodiscard]] std::uint32_t mtu_bytes() const { return attributes.mtu_bytes(); }
    /// May the responder take packets? May the requester send?
    [[nodiscard]] bool receives_packets() const {
        return state == qp_state::ready_to_receive || state == qp_state::ready_to_send ||
               state == qp_state::send_drained;
    }
    [[nodiscard]] bool sends_packets() const {
        return state == qp_state::ready_to_send || state == qp_state::send_drained;
    }
    [[nodiscard]] take_status take_receive(receive_request& out) {
        return options.shared_receives ? options.shared_receives->take(out) : receives.take(out);
    }
};

}  // namespace accel::softnic
