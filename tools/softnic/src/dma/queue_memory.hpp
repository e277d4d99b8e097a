// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "dma/engine.hpp"
#include "dma/guarded.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace accel::softnic {

/// Where a queue or a doorbell record of the program is: memory of the host, or memory that only an engine reaches.
/// Every access can fail, as those of guarded do.
class queue_memory {
  public:
    /// Of the host. Not explicit: most queues are there, and drivers name them by address.
    queue_memory(std::uint64_t address = 0) : address_(address) {}  // NOLINT(google-explicit-constructor)
    /// An address of `engine`, which may be that of the host.
    queue_memory(std::uint64_t address, std::shared_ptr<dma_engine> engine)
        : address_(address), engine_(engine == host_dma() ? nullptr : std::move(engine)) {}

    [[nodiscard]] bool read(std::uint64_t offset, void* to, std::size_t size_bytes) const {
        if (engine_ != nullptr) return engine_->read(to, address_ + offset, size_bytes);
        return guarded::copy(to, guarded::pointer(address_ + offset), size_bytes);
    }
    /// In memory when it returns, in ascending order: who polls the last bytes sees all of them.
    [[nodiscard]] bool write(std::uint64_t offset, const void* from, std::size_t size_bytes) const {
        if (engine_ != nullptr) return engine_->write(address_ + offset, from, size_bytes) && engine_->flush();
        return guarded::copy(guarded::pointer(address_ + offset), from, size_bytes);
    }
    [[nodiscard]] bool load32(std::uint64_t offset, std::uint32_t& value) const {
        if (engine_ != nullptr) return engine_->read(&value, address_ + offset, sizeof value);
        return guarded::load32(guarded::pointer(address_ + offset), value);
    }

  private:
    std::uint64_t address_ = 0;
    std::shared_ptr<dma_engine> engine_;  ///< null: the host's
};

}  // namespace accel::softnic
