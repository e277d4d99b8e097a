#pragma once

#include "backends/tcp/socket.hpp"
#include "backends/tcp/wire.hpp"
#include "core/clock.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace accel::tcp {

/// A connection whose preamble is complete, unchecked.
struct claim {
    unique_fd socket;
    attach_preamble preamble;
};

/// A server's listening socket and the connections that have not shown a whole preamble yet: a bounded
/// number, each with a deadline. When all places are taken, the oldest gives way, so silent connections do
/// not keep others out.
class acceptor {
  public:
    static constexpr std::size_t places = 256;
    static constexpr std::chrono::seconds patience{3};

    /// Registers with `epoll`; its events carry `tag_of` values.
    [[nodiscard]] static result<acceptor> open(unique_fd listener, int epoll);

    /// An event's data belongs to the acceptor. (Data of links are aligned pointers.)
    [[nodiscard]] static bool is_tag(std::uint64_t data) noexcept { return (data & 1) != 0; }
    /// Handles one event of the epoll. Control path: may allocate.
    void on_event(std::uint64_t data, std::vector<claim>& out);
    /// Closes connections that were silent for too long.
    void expire() noexcept;
    [[nodiscard]] std::size_t half_open() const noexcept { return half_open_; }
    [[nodiscard]] std::uint16_t port() const noexcept { return local_port(listener_.get()); }

  private:
    struct place {
        unique_fd socket;
        std::size_t received = 0;
        core::nanoseconds since{};
        std::array<std::byte, sizeof(attach_preamble)> bytes;
    };

    acceptor(unique_fd listener, int epoll);
    void accept_some(std::vector<claim>& out);
    void shed_one() noexcept;
    [[nodiscard]] std::size_t take_place() noexcept;
    void read_preamble(std::size_t index, std::vector<claim>& out);
    void free_place(std::size_t index) noexcept;

    unique_fd listener_;
    unique_fd spare_;  ///< given up for a moment to shed a connection when descriptors run out
    int epoll_;
    std::vector<place> places_;
    std::size_t half_open_ = 0;
};

}  // namespace accel::tcp
