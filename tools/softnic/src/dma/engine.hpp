// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace accel::softnic {

/// Moves bytes between the device and one kind of memory: host here, GPU memory by a plugin. Addresses are
/// those of the memory's own world. Calls are serialised. Each returns false when the memory cannot be
/// reached, and the work request completes with a protection error.
class dma_engine {
  public:
    virtual ~dma_engine() = default;

    [[nodiscard]] virtual bool read(void* to, std::uint64_t from, std::size_t size_bytes) = 0;
    /// Ascending address order; visible before any later write of any engine.
    [[nodiscard]] virtual bool write(std::uint64_t to, const void* from, std::size_t size_bytes) = 0;
    [[nodiscard]] virtual bool fetch_add(std::uint64_t at, std::uint64_t add, std::uint64_t& previous) = 0;
    [[nodiscard]] virtual bool compare_swap(std::uint64_t at, std::uint64_t expected, std::uint64_t desired,
                                            std::uint64_t& previous) = 0;
    /// Where the host finds these bytes, if it can load them (guarded) without help; saves a copy. Null
    /// otherwise.
    [[nodiscard]] virtual const std::byte* host_view(std::uint64_t, std::size_t) { return nullptr; }
};

/// Finds the engine for memory that the host cannot load from. Asked at registration, newest first.
class dma_plugin {
  public:
    virtual ~dma_plugin() = default;

    /// The engine for [address, address + size_bytes), or null if this memory is somebody else's.
    [[nodiscard]] virtual std::shared_ptr<dma_engine> claim_range(std::uint64_t address,
                                                                  std::uint64_t size_bytes) = 0;
    /// The engine for a dma-buf, whose addresses are offsets into the buffer; or null.
    [[nodiscard]] virtual std::shared_ptr<dma_engine> claim_dmabuf(int descriptor) = 0;
};

/// Host memory, through guarded access.
[[nodiscard]] std::shared_ptr<dma_engine> host_dma();

/// Memory behind a descriptor that mmap accepts (a dma-buf of the host, a memfd, udmabuf). Addresses are
/// offsets into [0, offset + size_bytes). Null if it cannot be mapped. The mapping lives as long as the
/// engine.
[[nodiscard]] std::shared_ptr<dma_engine> map_dmabuf(int descriptor, std::uint64_t offset,
                                                     std::uint64_t size_bytes, bool writable);

/// The plugins of a process, and the order in which they are asked.
class dma_registry {
  public:
    void add(std::shared_ptr<dma_plugin> plugin) { plugins_.insert(plugins_.begin(), std::move(plugin)); }

    [[nodiscard]] std::shared_ptr<dma_engine> for_range(std::uint64_t address,
                                                        std::uint64_t size_bytes) const;
    [[nodiscard]] std::shared_ptr<dma_engine> for_dmabuf(int descriptor, std::uint64_t offset,
                                                         std::uint64_t size_bytes, bool writable) const;

  private:
    std::vector<std::shared_ptr<dma_plugin>> plugins_;
};

}  // namespace accel::softnic
