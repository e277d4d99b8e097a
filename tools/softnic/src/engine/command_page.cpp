// SPDX-License-Identifier: Apache-2.0
#include "engine/command_page.hpp"

#include "fabric/shared_file.hpp"

#include <cerrno>
#include <system_error>
#include <utility>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace accel::softnic {

command_page::command_page(int command_file, std::uint32_t number) {
    const std::size_t end = (std::size_t{number} + 1) * bytes;
    struct stat status {};
    if (::fstat(command_file, &status) != 0 ||
        (static_cast<std::size_t>(status.st_size) < end && !set_length(command_file, end)))
        throw std::system_error(errno, std::generic_category(), "page of the command file");
    void* mapping =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, command_file, static_cast<off_t>(end - bytes));
    if (mapping == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "page of the command file");
    data_ = static_cast<std::byte*>(mapping);
}

command_page::command_page(command_page&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}

command_page::~command_page() {
    if (data_ != nullptr) ::munmap(data_, bytes);
}

}  // namespace accel::softnic
