// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <stdexcept>
#include <string>
#include <vector>

#include <ucp/api/ucp.h>

namespace accel::softnic::testing {

/// Bytes that differ from place to place and from seed to seed.
std::vector<std::uint8_t> pattern(std::size_t size, unsigned seed);

/// One of two UCX endpoints that can write into each other's window. Throws when something fails, or takes
/// too long.
class ucx_peer {
  public:
    /// `socket` leads to the other side, which does the same; it is used for addresses and barriers only.
    ucx_peer(int rank, int socket);
    ~ucx_peer();
    ucx_peer(const ucx_peer&) = delete;
    ucx_peer& operator=(const ucx_peer&) = delete;

    [[nodiscard]] int rank() const { return rank_; }
    void barrier();
    void expect(const std::vector<std::uint8_t>& seen, const std::vector<std::uint8_t>& wanted, const char* what) const;

    void send_tagged(std::uint64_t tag, const std::vector<std::uint8_t>& bytes);
    std::vector<std::uint8_t> receive_tagged(std::uint64_t tag, std::size_t size);
    void send_active_message(const std::vector<std::uint8_t>& bytes);
    std::vector<std::uint8_t> receive_active_message();

    /// Returns once the bytes are in the other side's window.
    void put(const std::vector<std::uint8_t>& bytes, std::size_t offset);
    std::vector<std::uint8_t> get(std::size_t offset, std::size_t size);
    std::uint64_t fetch(ucp_atomic_op_t operation, std::uint64_t value, std::uint64_t expected, std::size_t offset);
    void add(std::uint64_t value, std::size_t offset);
    void flush();

    void fill_window(const std::vector<std::uint8_t>& bytes);
    [[nodiscard]] std::vector<std::uint8_t> window(std::size_t offset, std::size_t size) const;

  private:
    void open();
    void exchange_addresses();
    void exchange_windows();
    std::vector<std::uint8_t> swap_blobs(const void* bytes, std::size_t size);
    void send_all(const void* bytes, std::size_t size);
    void receive_all(void* bytes, std::size_t size);
    void wait(void* request, const char* what);
    ucs_status_t on_active_message(void* data, std::size_t size, std::uint64_t attributes);

    int rank_;
    int socket_;
    ucp_context_h context_ = nullptr;
    ucp_worker_h worker_ = nullptr;
    ucp_ep_h endpoint_ = nullptr;
    ucp_mem_h memory_ = nullptr;
    ucp_rkey_h key_ = nullptr;
    std::vector<std::uint8_t> window_;
    std::uint64_t remote_ = 0;
    struct message {
        std::vector<std::uint8_t> bytes;
        void* request = nullptr;  ///< of a receive that still goes on
    };
    std::deque<message> messages_;
};

}  // namespace accel::softnic::testing
