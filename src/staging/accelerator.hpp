// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"
#include "core/net/unique_fd.hpp"

#include <accel_transport/memory.hpp>
#include <accel_transport/options.hpp>
#include <accel_transport/status.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

/// The internal contract for device memory; src/cuda implements it, and tests have a stand-in. Functions that
/// are `noexcept` and return nothing are asynchronous: `device_stream::poll` reports their failure.
struct CUstream_st;

namespace accel::core {

/// Points of an exchange that its stream takes the time of.
enum class stream_mark : std::uint8_t { start, copied_in, preprocessing, inference, answered, finished };
inline constexpr std::size_t stream_mark_count = 6;

enum class stream_progress : std::uint8_t { running, done, failed };

/// One stream of a device. It works for one exchange at a time: `begin`, the exchange's work, `finish`, then
/// `poll` until it is done. Calls of one exchange come one after another, from any thread.
class device_stream {
  public:
    virtual ~device_stream() = default;
    /// The application's stream for its kernels (a `cudaStream_t`).
    [[nodiscard]] virtual CUstream_st* native() const noexcept = 0;

    /// Forgets all marks.
    virtual void begin() noexcept = 0;
    /// After `begin`: makes the device the calling thread's current one, and leaves it so.
    virtual void make_current() noexcept = 0;
    /// Copies at most `piece_bytes` within or between host and device memory. A device executes the copies of
    /// one direction in the order of all streams, so a long copy is given in pieces (`long_copy`).
    virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept = 0;
    static constexpr std::size_t piece_bytes = std::size_t{2} << 20;  ///< 40 µs at 50 GB/s
    /// The same, and counts the piece. Only while fewer than `max_pieces` are under way.
    virtual void copy_piece(std::byte* to, const std::byte* from, std::size_t bytes) noexcept = 0;
    static constexpr unsigned max_pieces = 4;
    /// Pieces that have not ended. None, once the device has failed.
    [[nodiscard]] virtual unsigned pieces_under_way() noexcept = 0;
    virtual void mark(stream_mark what) noexcept = 0;
    /// The last call of an exchange. A driver thread calls `done(argument)`, unless null, when the stream has
    /// come this far. If the device fails it may never be called.
    virtual void finish(void (*done)(void*), void* argument) noexcept = 0;
    /// After `finish`. `failed`: some work of the exchange was refused or failed, and none runs now.
    [[nodiscard]] virtual stream_progress poll() noexcept = 0;
    /// After `poll` said done; 0 where one of the two was not marked.
    [[nodiscard]] virtual nanoseconds between(stream_mark from, stream_mark to) noexcept = 0;
};

/// Memory that was exported as a dma-buf, for a device driver to register.
struct dma_buf {
    int fd = -1;               ///< the caller closes it
    std::uint64_t offset = 0;  ///< of the memory within it, bytes
};

/// Whose memory is mapped: the device's own, or that of others which it reaches without the host (NVLink, PCIe).
enum class shared_of : std::uint8_t { device, peers };

/// One device. Lives as long as its `accelerator`. Thread-safe.
class accelerator_device {
  public:
    virtual ~accelerator_device() = default;
    [[nodiscard]] virtual memory_kind kind() const noexcept = 0;
    /// For people: name and number.
    [[nodiscard]] virtual const std::string& name() const noexcept = 0;

    // Control path.
    /// Zeroed, at least 256-byte aligned. `out_of_memory` leaves everything else as it is.
    [[nodiscard]] virtual result<std::byte*> allocate(std::size_t bytes) = 0;
    virtual void release(std::byte* memory) noexcept = 0;
    /// The same for `share`. `unsupported`: this device has no memory that processes can share.
    [[nodiscard]] virtual result<std::byte*> allocate_shareable(std::size_t bytes) = 0;
    /// A descriptor by which other processes of this host map such an allocation, whole. `memory` is its begin.
    [[nodiscard]] virtual result<unique_fd> share(const std::byte* memory) = 0;
    /// Maps what another process has shared, until `release`, for this device's copies. Errors: it is no such memory,
    /// or has fewer bytes. It stays what it is after its owner has released it or has ended.
    [[nodiscard]] virtual result<std::byte*> map_shared(int fd, std::size_t bytes, shared_of whose) = 0;
    [[nodiscard]] virtual result<std::unique_ptr<device_stream>> open_stream(stream_priority priority) = 0;
    /// `range` as a dma-buf; `unsupported` with what is missing.
    [[nodiscard]] virtual result<dma_buf> export_memory(const std::byte* memory, std::size_t bytes) = 0;
    /// Bytes that `allocate` gave and `release` has not taken back.
    [[nodiscard]] virtual std::size_t allocated() const noexcept = 0;

    /// Looks for failures ten times a second from now on, so that `alive` hears of a kernel that faults while nobody
    /// waits for it. Again: nothing.
    [[nodiscard]] virtual result<void> watch() = 0;
    /// True: kernels that run see an RDMA device's writes in the order in which it makes them. False: only kernels that
    /// are launched after `make_inbound_visible`.
    [[nodiscard]] virtual bool orders_inbound() const noexcept = 0;

    /// A driver thread calls `done(argument)` when all work given to this stream of the application has ended.
    [[nodiscard]] virtual result<void> when_ended(CUstream_st* stream, void (*done)(void*), void* argument) = 0;

    // Data path.
    /// False after a failure that ends all work in this process (a kernel that faulted).
    [[nodiscard]] virtual bool alive() const noexcept = 0;
    /// Kernels launched from now on see what an RDMA device has written, as its completion reports.
    virtual void make_inbound_visible() noexcept = 0;
};

/// All devices of this machine. One for each context, alive as long as any memory of it; thread-safe; control path.
class accelerator {
  public:
    virtual ~accelerator() = default;
    /// Usable or not, and one sentence why.
    [[nodiscard]] virtual result<std::string> probe() = 0;
    /// `unsupported` names what is missing: the build, the driver, the device.
    [[nodiscard]] virtual result<accelerator_device*> open(memory_kind kind) = 0;
    /// Those that are open. Does not wake a driver that is not in use.
    [[nodiscard]] virtual std::vector<accelerator_device*> opened() = 0;
    /// Checks that all of this memory is of the declared kind. `invalid_argument` says what it is.
    [[nodiscard]] virtual result<void> check(const void* memory, std::size_t bytes, memory_kind said) = 0;
    /// Locks host memory into RAM for fast asynchronous copies, until `unpin`. It may be pinned already:
    /// false, and there is nothing to unpin.
    [[nodiscard]] virtual result<bool> pin(void* memory, std::size_t bytes) = 0;
    virtual void unpin(void* memory) noexcept = 0;
    /// The same for a page of an adapter's registers, for kernels to write to.
    [[nodiscard]] virtual result<bool> pin_registers(void* page, std::size_t bytes) = 0;
};

/// This build's accelerator: CUDA, or one without devices.
[[nodiscard]] std::shared_ptr<accelerator> make_accelerator();

}  // namespace accel::core
