// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace accel::examples::serving::doors::clients {

/// A client of HTTP/1.1, a request after the other, without a socket. Understands answers with a Content-Length.
class http_wire {
  public:
    /// Sends a whole request, and forgets the answer to the one before.
    void ask(std::string_view request);

    [[nodiscard]] std::string_view unsent() const noexcept { return std::string_view{out_}.substr(out_at_); }
    void sent(std::size_t count);
    /// False: this is no answer of HTTP.
    [[nodiscard]] bool take(std::string_view arrived);

    [[nodiscard]] bool ended() const noexcept { return ended_; }
    [[nodiscard]] int status() const noexcept { return status_; }
    [[nodiscard]] std::string_view body() const noexcept { return std::string_view{in_}.substr(body_at_); }
    /// The value of a field of the answer.
    [[nodiscard]] std::optional<std::string_view> field(std::string_view name) const;

  private:
    [[nodiscard]] bool read_head();

    std::string out_;
    std::size_t out_at_ = 0;
    std::string in_;
    std::size_t body_at_ = 0;  ///< in `in_`; 0: the head is not whole yet
    std::size_t length_ = 0;   ///< of the body
    int status_ = 0;
    bool ended_ = false;
};

/// A decimal number; 0 for other texts.
[[nodiscard]] std::size_t decimal(std::string_view text) noexcept;

}  // namespace accel::examples::serving::doors::clients
