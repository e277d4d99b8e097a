// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/shared_memory/guarded_mapping.hpp"

#include "serving/doors/oip/refusal.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace accel::examples::serving::shared_memory {

/// What the handler of the signal reads: atomics without a lock.
struct guarded_range {
    std::atomic<bool> taken{false};
    std::atomic<std::byte*> begin{nullptr};  ///< null: not in use
    std::atomic<std::size_t> bytes{0};
    std::atomic<bool> lost{false};
};

namespace {

std::array<guarded_range, guarded_mapping::max_mappings> ranges;
struct sigaction before_us;

static_assert(std::atomic<std::byte*>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

guarded_range* range_of(std::uintptr_t address) noexcept {
    for (guarded_range& each : ranges) {
        const auto begin = reinterpret_cast<std::uintptr_t>(each.begin.load(std::memory_order_acquire));
        if (begin != 0 && address >= begin && address - begin < each.bytes.load(std::memory_order_relaxed))
            return &each;
    }
    return nullptr;
}

/// Only system calls and atomics. Two threads may come at once: each puts zeros there. `mmap` itself is not called:
/// ThreadSanitizer replaces it, and takes the new pages for a write that races with the threads that read them.
bool replace(guarded_range& range) noexcept {
    range.lost.store(true, std::memory_order_release);
    void* at = range.begin.load(std::memory_order_relaxed);
    constexpr long fixed_zeros = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
    return syscall(SYS_mmap, at, range.bytes.load(std::memory_order_relaxed), PROT_READ | PROT_WRITE, fixed_zeros, -1,
                   0) != -1;
}

/// As if there were no handler of ours: with the default, the access faults again and ends the process.
void pass_on(int signal, siginfo_t* about, void* state) noexcept {
    if ((before_us.sa_flags & SA_SIGINFO) != 0)
        before_us.sa_sigaction(signal, about, state);
    else if (before_us.sa_handler != SIG_DFL && before_us.sa_handler != SIG_IGN)
        before_us.sa_handler(signal);
    else
        sigaction(SIGBUS, &before_us, nullptr);
}

void on_bus_error(int signal, siginfo_t* about, void* state) {
    const int kept = errno;
    guarded_range* range = range_of(reinterpret_cast<std::uintptr_t>(about->si_addr));
    if (range == nullptr || !replace(*range)) pass_on(signal, about, state);
    errno = kept;
}

bool install() noexcept {
    struct sigaction ours {};
    ours.sa_sigaction = &on_bus_error;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&ours.sa_mask);
    return sigaction(SIGBUS, &ours, &before_us) == 0;
}

guarded_range* take_range() noexcept {
    for (guarded_range& each : ranges)
        if (!each.taken.exchange(true)) return &each;
    return nullptr;
}

error no_mapping() {
    return oip::refusal(status::out_of_memory, "there is no room to map the region: unregister others");
}

}  // namespace

result<std::unique_ptr<guarded_mapping>> guarded_mapping::map(int file, std::uint64_t offset, std::size_t bytes) {
    static const bool installed = install();
    const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    const std::size_t skipped = offset % page;
    guarded_range* guard = installed ? take_range() : nullptr;
    if (guard == nullptr) return no_mapping();
    void* pages =
        mmap(nullptr, skipped + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, static_cast<off_t>(offset - skipped));
    if (pages == MAP_FAILED) {
        guard->taken.store(false);
        return no_mapping();
    }
    return std::make_unique<guarded_mapping>(static_cast<std::byte*>(pages), skipped + bytes, skipped, *guard);
}

guarded_mapping::guarded_mapping(std::byte* pages, std::size_t mapped, std::size_t skipped,
                                 guarded_range& guard) noexcept
    : pages_(pages), mapped_(mapped), skipped_(skipped), guard_(guard) {
    guard_.lost.store(false, std::memory_order_relaxed);
    guard_.bytes.store(mapped_, std::memory_order_relaxed);
    guard_.begin.store(pages_, std::memory_order_release);
}

guarded_mapping::~guarded_mapping() {
    guard_.begin.store(nullptr, std::memory_order_release);
    munmap(pages_, mapped_);
    guard_.taken.store(false, std::memory_order_release);
}

bool guarded_mapping::lost() const noexcept {
    return guard_.lost.load(std::memory_order_acquire);
}

}  // namespace accel::examples::serving::shared_memory
