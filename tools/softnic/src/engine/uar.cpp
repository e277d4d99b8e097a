// SPDX-License-Identifier: Apache-2.0
#include "engine/uar.hpp"

#include <cerrno>
#include <system_error>
#include <utility>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace accel::softnic {

uar_page::uar_page(int command_file, std::uint32_t number) : number_(number) {
    const auto end = static_cast<off_t>((std::uint64_t{number} + 1) * bytes);
    struct stat status {};
    if (::fstat(command_file, &status) != 0 || (status.st_size < end && ::ftruncate(command_file, end) != 0))
        throw std::system_error(errno, std::generic_category(), "doorbell page");
    void* mapping =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, command_file, end - static_cast<off_t>(bytes));
    if (mapping == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "doorbell page");
    registers_ = static_cast<std::byte*>(mapping);
}

uar_page::uar_page(uar_page&& other) noexcept
    : number_(other.number_), registers_(std::exchange(other.registers_, nullptr)) {}

uar_page::~uar_page() {
    if (registers_ != nullptr) ::munmap(registers_, bytes);
}

bool uar_page::take(std::uint32_t offset) {
    auto* where = reinterpret_cast<std::uint64_t*>(registers_ + offset);
    if (__atomic_load_n(where, __ATOMIC_RELAXED) == 0) return false;
    return __atomic_exchange_n(where, 0, __ATOMIC_ACQ_REL) != 0;
}

bool uar_page::rang() const {
    const auto peek = [this](std::uint32_t offset) {
        return __atomic_load_n(reinterpret_cast<const std::uint64_t*>(registers_ + offset), __ATOMIC_RELAXED);
    };
    std::uint64_t any = peek(arm_offset);
    for (const std::uint32_t offset : send_offsets) any |= peek(offset);
    return any != 0;
}

bool uar_page::take_send_doorbell() {
    bool rang = false;
    for (const std::uint32_t offset : send_offsets) rang |= take(offset);
    return rang;
}

bool uar_page::take_arm_doorbell() {
    return take(arm_offset);
}

}  // namespace accel::softnic
