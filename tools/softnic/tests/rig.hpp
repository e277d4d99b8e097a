// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/nic.hpp"
#include "wqe/send_request.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

/// Drives the device model without libmlx5: writes WQEs and doorbell records as the driver would, reads CQEs,
/// and moves time itself. Everything is in this process and on this thread, so a test that fails once fails
/// always.
namespace accel::softnic::testing {

/// What a CQE says, decoded independently of wqe/completion.cpp.
struct seen_completion {
    std::uint8_t kind = 0xf;
    std::uint16_t index = 0;
    std::uint8_t opcode = 0;
    std::uint32_t qpn = 0;
    std::uint32_t user_index = 0;
    std::uint32_t bytes = 0;
    std::uint32_t immediate = 0;
    std::uint8_t syndrome = 0;
    std::uint8_t vendor = 0;
};

/// The program's side of a completion queue.
class test_cq {
  public:
    explicit test_cq(nic& on, std::uint32_t entries = 64, std::shared_ptr<event_pipe> channel = nullptr,
                     std::shared_ptr<event_pipe> asynchronous = nullptr);

    std::shared_ptr<completion_queue> queue;
    /// True and the next completion, if there is one.
    bool poll(seen_completion& out);
    /// `again`: no event has come since it was armed last.
    void arm(bool solicited_only, bool again = false);

  private:
    std::uint32_t entries_;
    std::vector<std::byte> buffer_;
    alignas(8) std::uint32_t record_[2]{};
    std::uint32_t consumed_ = 0;
    std::uint32_t arm_sequence_ = 0;
};

/// One work request, for test_qp::post().
struct work {
    std::uint8_t opcode = 0;
    std::vector<segment> pieces;
    std::vector<std::byte> inlined;  ///< goes in front of the pieces
    std::uint64_t remote = 0;
    std::uint32_t rkey = 0;
    std::uint64_t swap_or_add = 0;
    std::uint64_t compare = 0;
    std::uint64_t swap_mask = ~0ull;     ///< masked opcodes only
    std::uint64_t compare_mask = ~0ull;  ///< masked opcodes only
    std::uint64_t boundary = 0;          ///< masked opcodes only
    std::uint32_t operand_bytes = 8;     ///< masked opcodes only: 4 or 8
    std::uint32_t immediate = 0;         ///< host order
    bool signalled = true;
    bool solicited = false;
    bool fenced = false;
};

/// The program's side of a queue pair.
class test_qp {
  public:
    test_qp(nic& on, test_cq& send, test_cq& receive, std::uint32_t pd, qp_type type = qp_type::reliable_connection,
            std::shared_ptr<event_pipe> asynchronous = nullptr);
    ~test_qp();
    test_qp(const test_qp&) = delete;
    test_qp& operator=(const test_qp&) = delete;

    static constexpr std::uint32_t send_wqebbs = 64;
    static constexpr std::uint32_t receives = 32;
    static constexpr std::uint32_t receive_shift = 6;

    queue_pair* qp;
    /// Writes the WQE and the doorbell record. Returns the index it will complete with.
    std::uint16_t post(const work& what);
    /// Writes raw bytes as one WQE of as many blocks as they need; control segment included.
    std::uint16_t post_raw(std::span<const std::byte> bytes);
    void post_receive(std::span<const segment> pieces);
    /// Reads the doorbell record, as the register would make the device do.
    void ring();
    [[nodiscard]] std::byte* block(std::uint16_t index) { return send_.data() + 64 * (index % send_wqebbs); }
    void set_send_record(std::uint16_t produced);
    [[nodiscard]] std::uint16_t produced() const { return produced_; }
    /// As the driver after a change to RESET: everything that was posted is forgotten.
    void restart();
    /// Free blocks, if everything up to `completed` is done.
    [[nodiscard]] std::uint32_t room(std::uint16_t completed) const {
        return send_wqebbs - static_cast<std::uint16_t>(produced_ - completed);
    }

  private:
    nic& nic_;
    std::vector<std::byte> receive_ = std::vector<std::byte>(receives << receive_shift);
    std::vector<std::byte> send_ = std::vector<std::byte>(send_wqebbs * 64);
    alignas(8) std::uint32_t record_[2]{};
    std::uint16_t produced_ = 0;
    std::uint16_t receives_produced_ = 0;
};

/// A nic on a private fabric, with a clock.
class rig {
  public:
    explicit rig(settings chosen = {}) : adapter(std::move(chosen), fabric::create_private()) {}
    rig(settings chosen, std::unique_ptr<fabric> net) : adapter(std::move(chosen), std::move(net)) {}

    nic adapter;
    std::uint64_t now = 1;

    /// Goes on until nothing moves and no timer can; virtual time jumps in steps of 10 us. False: did not
    /// come to rest.
    bool settle(std::uint64_t longest_ns = 20'000'000'000);
    void step(std::uint64_t nanoseconds = 1'000) { adapter.progress(now += nanoseconds); }
    /// Rules of SOFTNIC_FAULTS.
    void add_fault(std::string_view rules);

    template <class T>
    std::uint32_t add_region(std::vector<T>& memory, std::uint32_t pd = 1, std::uint32_t access = 0xf) {
        return add_region(memory.data(), memory.size() * sizeof(T), pd, access);
    }
    std::uint32_t add_region(void* at, std::size_t size, std::uint32_t pd, std::uint32_t access);
};

/// rig::settle() for devices of several processes, with one clock.
bool settle(std::span<rig* const> all, std::uint64_t longest_ns = 20'000'000'000);

/// Takes a queue pair to RTS towards another. `change` may alter the attributes first.
struct link_options {
    std::uint8_t mtu = 1;  ///< 256 bytes: much segmentation
    std::uint8_t timeout = 10;
    std::uint8_t retry_count = 7;
    std::uint8_t rnr_retry = 7;
    std::uint8_t rnr_timer = 1;
    std::uint8_t reads = 4;
    std::uint32_t access = 0xf;
    std::uint32_t psn = 0xfffffa;
};
void connect(nic& on, queue_pair& one, std::uint32_t remote_qpn, const link_options& how = {});
void connect_pair(nic& on, test_qp& one, test_qp& other, const link_options& how = {});
/// UD: INIT, RTR, RTS.
void make_datagram_ready(nic& on, queue_pair& qp, std::uint32_t qkey);

inline segment piece(const void* at, std::uint32_t length, std::uint32_t key) {
    return {reinterpret_cast<std::uint64_t>(at), length, key, false};
}

}  // namespace accel::softnic::testing
