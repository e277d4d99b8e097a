// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fabric/inbox.hpp"
#include "fabric/segment.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace accel::softnic {

/// One process's place in the network that joins all processes of a machine. Lossless and in order between
/// two nodes; faults are added above it. Not thread-safe.
class fabric {
  public:
    /// Joins the fabric of that name (shared memory, per user), creating it if need be. Throws
    /// std::runtime_error with a sentence when it cannot: no room, another layout, another device list.
    [[nodiscard]] static std::unique_ptr<fabric> join(const std::string& name, std::uint64_t configuration);
    /// A fabric in an anonymous file, for one process. `peer` joins the same file as another node.
    [[nodiscard]] static std::unique_ptr<fabric> create_private();
    [[nodiscard]] static std::unique_ptr<fabric> join_peer(const fabric& peer);

    /// Of the shared memory of that fabric.
    [[nodiscard]] static std::string file_name(std::string_view name);

    ~fabric();
    fabric(const fabric&) = delete;
    fabric& operator=(const fabric&) = delete;

    [[nodiscard]] int node() const { return node_; }

    /// A number no other process has on that device, or nullopt when all are taken.
    [[nodiscard]] std::optional<std::uint32_t> claim_qpn(int device);
    void release_qpn(int device, std::uint32_t qpn);
    /// The node that has this queue pair, or -1.
    [[nodiscard]] int owner_of(int device, std::uint32_t qpn) const;

    /// Room for one packet to that node, or null while its ring has no more than `spare` free places. Valid until
    /// commit or the next reserve.
    [[nodiscard]] packet* reserve(int to, std::uint32_t spare = 0);
    void commit(int to);

    /// The oldest packet from anybody, or null; stays valid until release().
    [[nodiscard]] const packet* receive();
    void release();
    /// Did this node itself send what receive() found?
    [[nodiscard]] bool receiving_from_self() const { return receiving_from_ == node_; }

    /// With a modelled link, in place of receive() and release(): the packet that is due first, or nothing. Its
    /// contents are looked at by waiting_packet(), also after take_waiting(), which takes it out of the line, until
    /// release_waiting(). Before first use: deepen_loopback().
    [[nodiscard]] inbox::entry* earliest();
    [[nodiscard]] const packet& waiting_packet(const inbox::entry& which) const {
        return inbound_[which.sender]->slots[which.position % slots_to(which.sender)];
    }
    [[nodiscard]] inbox::entry take_waiting() { return inboxes_[static_cast<std::size_t>(receiving_from_)]->take(); }
    void release_waiting(const inbox::entry& which, bool at_edge);
    /// inbox::look_ahead() of all senders, first of that behind the last one to which visit() was called before.
    template <class Visit>
    void look_ahead(Visit visit) {
        const std::size_t from = looked_at_ + 1;
        for (std::size_t count = 0; count < max_nodes; ++count) {
            const std::size_t at = (from + count) % max_nodes;
            if (inboxes_[at] != nullptr && inboxes_[at]->look_ahead(visit)) looked_at_ = at;
        }
    }
    /// The ring to this node itself is as long as the others from now on. Only while it is empty.
    void deepen_loopback() { own_slots_ = ring_slots; }
    /// Places of this fabric that somebody has.
    [[nodiscard]] std::uint32_t count_nodes() const;
    /// Goes on by a step, for all processes of the fabric, and says what time it is then.
    std::uint64_t advance_virtual_time(std::uint64_t step_ns) {
        return header_->virtual_ns.fetch_add(step_ns) + step_ns;
    }
    /// What this process shows to `softnic stats`.
    [[nodiscard]] node_record& own_record() const { return record(node_); }

    /// Counts what other nodes have sent here.
    [[nodiscard]] std::uint32_t arrivals() const;
    /// Sleeps until arrivals() differs from `seen`, or the time is over. May return early. Safe from another
    /// thread.
    void wait_for_arrival(std::uint32_t seen, std::uint64_t nanoseconds);
    /// Ends a wait early.
    void wake();

    /// Gives back what processes that no longer live still hold. Cheap enough to call ten times a second.
    void reap_dead_nodes();
    /// Gives this node's place back. The destructor does it too; a forked child must not.
    void leave();
    /// For the end of a process: when nobody else stays in this fabric, its shared file goes.
    void remove_if_last();
    /// Removes the shared files of all fabrics of this user that nobody is in: their last processes were
    /// killed.
    static void remove_unused();
    /// For a child of fork(): forget everything without touching what the parent owns.
    void abandon();

  private:
    fabric(int file, int lock_file);
    void open_segment(std::uint64_t configuration);
    void take_place();
    [[nodiscard]] bool lock_place(int node);
    void unlock_place(int node);
    [[nodiscard]] bool is_dead(int node) const;
    void reap(int node);
    void clear_place(int node);
    [[nodiscard]] std::uint32_t slots_to(int other) const { return other == node_ ? own_slots_ : ring_slots; }
    [[nodiscard]] packet_ring* map_ring(int from, int to);
    [[nodiscard]] packet_ring* outbound(int to);
    [[nodiscard]] packet_ring* inbound(int from);
    [[nodiscard]] node_record& record(int node) const { return header_->nodes[static_cast<std::size_t>(node)]; }

    std::string name_;  ///< of the shared file, if it has one
    int file_ = -1;
    int lock_file_ = -1;  ///< an open file description of our own: the kernel drops its locks when we die
    int node_ = -1;
    segment_header* header_ = nullptr;
    std::array<packet_ring*, max_nodes> outbound_{};
    std::array<packet_ring*, max_nodes> inbound_{};
    std::array<std::unique_ptr<inbox>, max_nodes> inboxes_;
    std::uint32_t own_slots_ = loopback_slots;
    int receiving_from_ = -1;
    int next_sender_ = 0;
    std::size_t looked_at_ = 0;
};

}  // namespace accel::softnic
