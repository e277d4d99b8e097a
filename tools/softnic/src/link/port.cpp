// SPDX-License-Identifier: Apache-2.0
#include "link/port.hpp"

namespace accel::softnic {
namespace {

constexpr std::uint64_t bit_ns_per_byte = 8'000'000'000;

}  // namespace

void link_port::occupy(std::uint32_t bytes) {
    const std::uint64_t sum = bytes * bit_ns_per_byte + rest_;
    free_ns_ += sum / rate_;
    rest_ = sum % rate_;
}

std::uint64_t link_port::send(std::uint64_t ready_ns, std::uint32_t bytes) {
    if (ready_ns > free_ns_) {
        free_ns_ = ready_ns;
        rest_ = 0;
    }
    occupy(bytes);
    return busy_until();
}

std::uint64_t link_port::send_first(std::uint64_t ready_ns, std::uint32_t bytes) {
    static_cast<void>(send(ready_ns, bytes));
    return ready_ns + (bytes * bit_ns_per_byte + rate_ - 1) / rate_;
}

std::uint64_t link_port::receive(std::uint64_t at_ns, std::uint32_t bytes) {
    occupy(bytes);
    if (at_ns >= busy_until()) {
        free_ns_ = at_ns;
        rest_ = 0;
    }
    return busy_until();
}

}  // namespace accel::softnic
