// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "staging/accelerator.hpp"
#include "verbs/device.hpp"
#include "verbs/handles.hpp"

#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace accel::verbs {

/// The use of a registered range. A range that the peer may write is registered apart from one that is
/// only sent from: the peer is told no key that does more than it has to.
enum class access : std::uint8_t {
    send,         ///< the device reads it
    peer_writes,  ///< the peer writes it
};

struct memory_keys {
    std::uint32_t local = 0;
    std::uint32_t remote = 0;
};

/// The protection domain of one session: a peer's keys reach what was registered here and nothing else.
/// Holds the registrations of lent memory: one for each range and use, made on first use, merged where ranges
/// overlap or touch. Thread-safe.
class domain {
  public:
    [[nodiscard]] static result<std::shared_ptr<domain>> create(std::shared_ptr<device> on);
    domain(std::shared_ptr<device> on, domain_handle handle) noexcept;

    [[nodiscard]] ibv_pd* get() const noexcept { return handle_.get(); }
    /// A registration of its own, that no other range is merged with. `gpu`: whose memory it is; null: the
    /// host's. A GPU's is registered as a dma-buf, else as peer memory; the error names what both lack.
    [[nodiscard]] result<region_handle> register_memory(std::span<std::byte> range, access use,
                                                        core::accelerator_device* gpu = nullptr);

    /// Keys that reach all of `range`, until `forget(user)`.
    [[nodiscard]] result<memory_keys> acquire(std::uint64_t user, std::span<std::byte> range, access use,
                                              core::accelerator_device* gpu = nullptr);
    /// The user's memory may be unmapped after this: a range that held any of it serves nobody new, and goes
    /// when its last user does.
    void forget(std::uint64_t user, std::span<std::byte> range) noexcept;
    /// How many registrations of lent memory there are.
    [[nodiscard]] std::size_t registrations() const;

  private:
    struct entry {
        std::uintptr_t begin = 0;
        std::uintptr_t end = 0;
        access use = access::send;
        bool retired = false;
        core::accelerator_device* gpu = nullptr;
        region_handle handle;
        std::vector<std::uint64_t> users;
    };
    [[nodiscard]] entry* find(std::uintptr_t begin, std::uintptr_t end, access use) noexcept;
    [[nodiscard]] result<entry> make_entry(std::uintptr_t begin, std::uintptr_t end, access use,
                                           core::accelerator_device* gpu);
    [[nodiscard]] region_handle register_dma_buf(std::span<std::byte> range, access use,
                                                 const core::dma_buf& from) noexcept;
    [[nodiscard]] result<region_handle> register_gpu(std::span<std::byte> range, access use,
                                                     core::accelerator_device& gpu);

    std::shared_ptr<device> device_;
    domain_handle handle_;
    mutable std::mutex mutex_;
    std::vector<entry> entries_;
};

}  // namespace accel::verbs
