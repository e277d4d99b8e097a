#include "backends/local/pair.hpp"

#include "core/event_signal.hpp"

#include <bit>
#include <map>
#include <mutex>

#include <sys/eventfd.h>
#include <unistd.h>

namespace accel::local {

wakeup::wakeup() : fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
wakeup::~wakeup() {
    ::close(fd);
}

void wakeup::wake() noexcept {
    if (asleep.exchange(false, std::memory_order_seq_cst)) core::signal_event(fd);
}

// A slot has at most one message and one let-go on their way.
ring::ring(std::uint32_t slots) : entries_(std::bit_ceil(2 * slots)), mask_(std::bit_ceil(2 * slots) - 1) {}

namespace {

std::mutex offers_mutex;
std::map<std::uint64_t, std::weak_ptr<pair>>& offers() {
    static auto* all = new std::map<std::uint64_t, std::weak_ptr<pair>>;
    return *all;
}

}  // namespace

std::uint64_t offer_pair(const std::shared_ptr<pair>& made) {
    static std::uint64_t next = 0;
    const std::lock_guard lock(offers_mutex);
    std::erase_if(offers(), [](const auto& offer) { return offer.second.expired(); });
    offers()[++next] = made;
    return next;
}

std::shared_ptr<pair> take_pair(std::uint64_t key) {
    const std::lock_guard lock(offers_mutex);
    const auto found = offers().find(key);
    if (found == offers().end()) return nullptr;
    auto taken = found->second.lock();
    offers().erase(found);
    return taken;
}

}  // namespace accel::local
