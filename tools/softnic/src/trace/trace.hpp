// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace accel::softnic {

/// One line for each packet, WQE, CQE and state change, to a file or to stderr. Costs one branch when it is
/// off. Line: `time_us node.device.qpn  what  details`.
class trace {
  public:
    trace() = default;
    ~trace();
    trace(const trace&) = delete;
    trace& operator=(const trace&) = delete;

    /// "-" is stderr; a directory gets one file a process. Returns false when the file cannot be opened.
    bool start(const std::string& path);
    void stop();
    [[nodiscard]] bool on() const { return out_ != nullptr; }

    template <class... Args>
    void line(std::uint64_t now_ns, int node, std::uint32_t qpn, std::string_view what,
              fmt::format_string<Args...> format, Args&&... args) {
        if (out_ != nullptr) write(now_ns, node, qpn, what, fmt::format(format, std::forward<Args>(args)...));
    }

  private:
    void write(std::uint64_t now_ns, int node, std::uint32_t qpn, std::string_view what, const std::string& details);

    std::array<char, 4096> buffer_{};  ///< so that writing a line takes no memory
    std::FILE* out_ = nullptr;
};

}  // namespace accel::softnic
