// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace accel::softnic {

/// What became of a write that does not wait, and where it is later.
enum class write_start : std::uint8_t { begun, later, refused };
enum class write_state : std::uint8_t { under_way, in_memory, lost };
/// How such a write may be done, and softnic.h's numbers for it.
enum class write_order : std::uint8_t {
    any,        ///< among others of these: nobody looks before the message's last piece
    behind,     ///< all writes before it
    due_behind  ///< likewise, and it may wait for room
};

/// Moves bytes between the device and one kind of memory: host here, GPU memory by a plugin. Addresses are
/// those of the memory's own world. Calls are serialised. Each returns false when the memory cannot be
/// reached, and the work request completes with a protection error.
class dma_engine {
  public:
    virtual ~dma_engine() = default;

    [[nodiscard]] virtual bool read(void* to, std::uint64_t from, std::size_t size_bytes) = 0;
    /// The same for a part of message number `message`, which goes on with `following` more bytes: they may
    /// be fetched ahead, and kept for this message only. No number is used twice.
    [[nodiscard]] virtual bool read_part(void* to, std::uint64_t from, std::size_t size_bytes, std::uint64_t,
                                         std::uint64_t) {
        return read(to, from, size_bytes);
    }
    /// Ascending address order. Visible before any later write of any engine; if the engine defers, behind
    /// flush() only, and until then in the order of its own writes.
    [[nodiscard]] virtual bool write(std::uint64_t to, const void* from, std::size_t size_bytes) = 0;
    [[nodiscard]] virtual bool defers() const { return false; }
    /// Waits until nothing reads or writes memory any more. False: a write since the last flush() was lost.
    [[nodiscard]] virtual bool flush() { return true; }

    // Writes that nothing waits for (transport/ahead.hpp). An engine that defers may refuse them.
    /// `later`: so much is under way that a message's last piece would wait for it, and it is not due. `mark` names
    /// what was written so far.
    [[nodiscard]] virtual write_start write_early(std::uint64_t to, const void* from, std::size_t size_bytes,
                                                  write_order, std::uint64_t& mark) {
        mark = 0;
        return !defers() && write(to, from, size_bytes) ? write_start::begun : write_start::refused;
    }
    /// A message's last piece: behind what `after` names, and in front of other early writes. Begins at
    /// state_of() of a last piece. Engines that defer only.
    [[nodiscard]] virtual bool write_last(std::uint64_t, const void*, std::size_t, std::uint64_t, std::uint64_t&) {
        return false;
    }
    static constexpr std::uint64_t everything = ~std::uint64_t{0};  ///< an `after`: all writes so far
    [[nodiscard]] virtual write_state state_of(std::uint64_t) { return write_state::in_memory; }
    /// Are early and last writes of both done in the order of the calls?
    [[nodiscard]] virtual bool keeps_order_with(const dma_engine& other) const { return this == &other; }

    [[nodiscard]] virtual bool fetch_add(std::uint64_t at, std::uint64_t add, std::uint64_t& previous) = 0;
    [[nodiscard]] virtual bool compare_swap(std::uint64_t at, std::uint64_t expected, std::uint64_t desired,
                                            std::uint64_t& previous) = 0;
    /// Where the host finds these bytes, if it can load them (guarded) without help; saves a copy. Null
    /// otherwise.
    [[nodiscard]] virtual const std::byte* host_view(std::uint64_t, std::size_t) { return nullptr; }
};

/// A dma-buf, or a part of one, as the program registers it.
struct dmabuf_range {
    int descriptor = -1;
    std::uint64_t offset = 0;
    std::uint64_t size_bytes = 0;
    std::uint64_t iova = 0;  ///< of the byte at `offset`; by convention its virtual address
};

/// What a plugin says to a registration: this engine, or an errno value (the memory is its own, but cannot be
/// registered), or neither (the memory is somebody else's).
struct dma_claim {
    std::shared_ptr<dma_engine> engine;
    int problem = 0;

    [[nodiscard]] bool made() const { return engine != nullptr || problem != 0; }
};

/// Finds the engine for memory that the host cannot load from. Asked at registration, newest first.
class dma_plugin {
  public:
    virtual ~dma_plugin() = default;

    /// For [address, address + size_bytes).
    [[nodiscard]] virtual dma_claim claim_range(std::uint64_t address, std::uint64_t size_bytes) = 0;
    /// For a dma-buf. The engine's addresses are offsets into the buffer.
    [[nodiscard]] virtual dma_claim claim_dmabuf(const dmabuf_range& range) = 0;
};

/// Host memory, through guarded access.
[[nodiscard]] std::shared_ptr<dma_engine> host_dma();

/// Memory behind a descriptor that mmap accepts (a dma-buf of the host, a memfd, udmabuf). Addresses are
/// offsets into [0, offset + size_bytes). Null if it cannot be mapped. The mapping lives as long as the
/// engine.
[[nodiscard]] std::shared_ptr<dma_engine> map_dmabuf(int descriptor, std::uint64_t offset, std::uint64_t size_bytes,
                                                     bool writable);

/// The plugins of a process, and the order in which they are asked.
class dma_registry {
  public:
    void add(std::shared_ptr<dma_plugin> plugin) { plugins_.insert(plugins_.begin(), std::move(plugin)); }

    /// Host memory, unless a plugin says otherwise.
    [[nodiscard]] dma_claim for_range(std::uint64_t address, std::uint64_t size_bytes) const;
    /// EOPNOTSUPP if no plugin knows it and it cannot be mapped.
    [[nodiscard]] dma_claim for_dmabuf(const dmabuf_range& range, bool writable) const;

  private:
    std::vector<std::shared_ptr<dma_plugin>> plugins_;
};

}  // namespace accel::softnic
