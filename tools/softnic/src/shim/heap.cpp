// SPDX-License-Identifier: Apache-2.0
// A heap of the library's own. The device is driven from inside the program's calls, also from locks that a
// hook of UCX takes while malloc is at work: whoever asked malloc for memory there would wait for himself. It
// also keeps the device out of what the program counts. exports.map keeps these operators inside the library.
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

constexpr std::size_t smallest_shift = 6;
constexpr std::size_t largest_shift = 17;
constexpr std::size_t chunk_bytes = 1 << 20;
constexpr std::size_t natural_alignment = 16;

/// Lies in front of what the caller gets.
struct header {
    std::byte* block;
    std::uint64_t bytes;  ///< of the block: a power of two, unless it has a mapping of its own
};
static_assert(sizeof(header) == natural_alignment);

struct free_block {
    free_block* next;
};

struct heap {
    std::atomic_flag taken;
    std::atomic<pthread_t> forking{};  ///< the thread that holds it over a fork
    std::array<free_block*, largest_shift + 1> free{};
    std::byte* unused = nullptr;
    std::size_t unused_bytes = 0;
};
constinit heap mine;

/// Not pthread_spin_lock, which this library replaces.
class heap_guard {
  public:
    heap_guard() : locked_(lock()) {}
    ~heap_guard() {
        if (locked_) unlock();
    }
    heap_guard(const heap_guard&) = delete;
    heap_guard& operator=(const heap_guard&) = delete;

    static void before_fork() {
        (void)lock();
        mine.forking.store(::pthread_self(), std::memory_order_relaxed);
    }
    static void after_fork() {
        mine.forking.store({}, std::memory_order_relaxed);
        unlock();
    }

  private:
    /// False: this thread is between two handlers of its fork, and has the heap already. Whoever called this library
    /// before its constructor ran has handlers that run sooner.
    [[nodiscard]] static bool lock() {
        while (mine.taken.test_and_set(std::memory_order_acquire)) {
            if (mine.forking.load(std::memory_order_relaxed) == ::pthread_self()) return false;
            ::sched_yield();
        }
        return true;
    }
    static void unlock() { mine.taken.clear(std::memory_order_release); }

    bool locked_;
};

/// As a system call: mmap() itself may be patched by the program's libraries.
std::byte* map(std::size_t bytes) {
    const long at = ::syscall(SYS_mmap, nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == -1) throw std::bad_alloc();
    return reinterpret_cast<std::byte*>(at);
}

std::byte* take_block(std::size_t bytes) {
    const auto shift = static_cast<std::size_t>(std::countr_zero(bytes));
    const heap_guard guard;
    if (free_block* found = mine.free[shift]) {
        mine.free[shift] = found->next;
        return reinterpret_cast<std::byte*>(found);
    }
    if (mine.unused_bytes < bytes) {
        mine.unused = map(chunk_bytes);
        mine.unused_bytes = chunk_bytes;
    }
    std::byte* block = mine.unused;
    mine.unused += bytes;
    mine.unused_bytes -= bytes;
    return block;
}

void* allocate(std::size_t size, std::size_t alignment) {
    const std::size_t spare = sizeof(header) + (alignment > natural_alignment ? alignment : 0);
    if (size > PTRDIFF_MAX - spare) throw std::bad_alloc();
    std::size_t bytes = size + spare;
    const bool alone = bytes > (std::size_t{1} << largest_shift);
    if (!alone) bytes = std::bit_ceil(bytes < (1u << smallest_shift) ? std::size_t{1} << smallest_shift : bytes);
    std::byte* block = alone ? map(bytes) : take_block(bytes);
    auto at = reinterpret_cast<std::uintptr_t>(block) + sizeof(header);
    if (alignment > natural_alignment) at = (at + alignment - 1) & ~(alignment - 1);
    reinterpret_cast<header*>(at)[-1] = {block, bytes};
    return reinterpret_cast<void*>(at);
}

void release(void* at) {
    if (at == nullptr) return;
    const header head = static_cast<header*>(at)[-1];
    if (head.bytes > (std::size_t{1} << largest_shift)) {
        ::syscall(SYS_munmap, head.block, head.bytes);
        return;
    }
    const auto shift = static_cast<std::size_t>(std::countr_zero(head.bytes));
    auto* block = reinterpret_cast<free_block*>(head.block);
    const heap_guard guard;
    block->next = mine.free[shift];
    mine.free[shift] = block;
}

/// A fork while another thread allocates must not leave the child without a heap.
[[gnu::constructor]] void keep_over_fork() {
    ::pthread_atfork(heap_guard::before_fork, heap_guard::after_fork, heap_guard::after_fork);
}

}  // namespace

void* operator new(std::size_t size) {
    return allocate(size, natural_alignment);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
    return allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* at) noexcept {
    release(at);
}
void operator delete(void* at, std::size_t) noexcept {
    release(at);
}
void operator delete(void* at, std::align_val_t) noexcept {
    release(at);
}
void operator delete(void* at, std::size_t, std::align_val_t) noexcept {
    release(at);
}
