// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

/// A TCP proxy that does to a byte stream what networks and broken peers do, at a byte of one's choice.
namespace accel::tests {

enum class fault_kind : std::uint8_t {
    none,
    cut,       ///< both connections are reset (RST)
    end,       ///< both connections are closed in order (FIN)
    truncate,  ///< this direction ends in order, the other goes on
    stall,     ///< this direction stops for ever, nothing is closed
    delay,     ///< this direction pauses once, for `pause`
    corrupt,   ///< the byte is changed by `mask`; the connection goes on
};

enum class flow : std::uint8_t { to_server, to_client };

/// What happens, once on each connection, when `offset` bytes of `direction` have passed.
struct fault {
    fault_kind kind = fault_kind::none;
    flow direction = flow::to_server;
    std::uint64_t offset = 0;
    std::size_t route = 0;  ///< the index of the port it is for
    /// Which connection to that port since the fault was set; all of them if there is no such number.
    std::size_t connection = ~std::size_t{0};
    std::chrono::milliseconds pause{50};
    std::uint8_t mask = 0xff;
};

struct proxy_connection;

/// Listens on `listen_host` on each of `ports` and connects on to the same port of `target_host`. One thread
/// of its own.
class fault_proxy {
  public:
    /// Throws std::runtime_error if a port cannot be listened on.
    fault_proxy(const std::string& listen_host, const std::string& target_host, std::vector<std::uint16_t> ports);
    ~fault_proxy();
    fault_proxy(const fault_proxy&) = delete;
    fault_proxy& operator=(const fault_proxy&) = delete;

    /// Counts for connections that are accepted from now on.
    void set(const fault& next);
    /// Resets every connection there is.
    void cut_all() {
        cut_all_ = true;
        wake();
    }
    /// How often a fault struck.
    [[nodiscard]] std::uint64_t struck() const noexcept { return struck_; }
    [[nodiscard]] std::uint64_t accepted() const noexcept { return accepted_; }

  private:
    void run();
    void wake() const noexcept;
    void accept_on(std::size_t route);

    std::string target_host_;
    std::vector<std::uint16_t> ports_;
    std::vector<int> listeners_;
    std::vector<std::unique_ptr<proxy_connection>> connections_;
    int wake_fd_;
    std::mutex mutex_;
    fault next_;
    std::vector<std::size_t> accepted_since_;  ///< by route, since `next_` was set
    std::atomic<bool> stop_{false};
    std::atomic<bool> cut_all_{false};
    std::atomic<std::uint64_t> struck_{0};
    std::atomic<std::uint64_t> accepted_{0};
    std::thread thread_;
};

/// A port that nobody uses on any of `hosts` right now.
[[nodiscard]] std::uint16_t free_port(const std::vector<std::string>& hosts);

}  // namespace accel::tests
