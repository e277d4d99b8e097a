// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace accel::softnic {

/// One page of a command file, mapped. The program maps the same page, at the offset that the driver's ABI says.
class command_page {
  public:
    /// Maps page `number`, growing the file. Throws std::system_error.
    command_page(int command_file, std::uint32_t number);
    ~command_page();
    command_page(command_page&& other) noexcept;
    command_page& operator=(command_page&&) = delete;

    [[nodiscard]] std::byte* data() const { return data_; }

    static constexpr std::size_t bytes = 4096;

  private:
    std::byte* data_ = nullptr;
};

}  // namespace accel::softnic
