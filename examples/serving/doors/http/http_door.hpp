// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/configuration/settings.hpp"
#include "serving/doors/counting/door_metrics.hpp"
#include "serving/doors/http/deadline_order.hpp"
#include "serving/doors/http/door_access.hpp"
#include "serving/doors/http/idle_order.hpp"
#include "serving/doors/servers/served_model.hpp"

#include <accel_transport/status.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

namespace accel::examples::serving::doors {

class connection;

struct door_counts {
    std::uint64_t connections = 0;
    std::uint64_t requests = 0;   ///< answered, also with an error
    std::uint64_t errors = 0;     ///< answered with an HTTP status other than 200
    std::uint64_t cancelled = 0;  ///< calls whose client left first
};

/// Takes connections and holds them until they end. Belongs to the loop's thread. `models` has to outlive it.
class http_door {
  public:
    /// `acceptor`: of `bind_at`.
    http_door(boost::asio::io_context& loop, boost::asio::ip::tcp::acceptor acceptor, model_table& models,
              const door_settings& settings, door_access access);
    http_door(const http_door&) = delete;
    http_door& operator=(const http_door&) = delete;
    ~http_door();

    /// "http://127.0.0.1:8000", with the real port; https with TLS.
    [[nodiscard]] std::string endpoint() const;
    /// Takes connections from here on. `system_error`.
    [[nodiscard]] result<void> start();
    /// Connections from here on get this certificate, and requests these tokens.
    void renew(door_access access);
    /// From now on it says that it is not ready. It is open as before.
    void leave() { leaving_ = true; }
    /// Takes no more connections, and calls `done` once those open have their answers, or after `drain_timeout`.
    void stop(std::function<void()> done);

    // For connections.
    [[nodiscard]] const door_settings& settings() const { return settings_; }
    [[nodiscard]] const std::shared_ptr<boost::asio::ssl::context>& tls() const { return access_.tls; }
    [[nodiscard]] const access::token_list& tokens() const { return access_.tokens; }
    [[nodiscard]] const std::shared_ptr<shared_memory::region_table>& regions() const { return access_.regions; }
    [[nodiscard]] model_table& models() { return models_; }
    [[nodiscard]] bool leaving() const { return leaving_; }
    [[nodiscard]] bool stopping() const { return stopping_; }
    [[nodiscard]] door_counts& counts() { return counts_; }
    [[nodiscard]] const door_counts& counts() const { return counts_; }
    [[nodiscard]] door_metrics& metrics() { return metrics_; }
    [[nodiscard]] const door_metrics& metrics() const { return metrics_; }
    /// Memory for the JSON of one request. False: there is none now.
    [[nodiscard]] bool take_json(std::size_t bytes) { return bytes == 0 || metrics_.memory->take(bytes); }
    void give_json(std::size_t bytes) {
        if (bytes > 0) metrics_.memory->give(bytes);
    }
    void remove(const std::shared_ptr<connection>& gone);
    /// Which of them wait for their client.
    [[nodiscard]] idle_order<connection>& order() { return order_; }
    /// When it looks at which of them.
    [[nodiscard]] deadline_order<connection>& deadlines() { return deadlines_; }

  private:
    void accept();
    void admit();
    void take(boost::asio::ip::tcp::socket from, const boost::asio::ip::address& client);
    /// Makes room for a newcomer: the connection that is idle for the longest time ends, of all or of one client.
    /// False: a request is under way on each of those that it looked at.
    [[nodiscard]] bool close_longest_idle(const boost::asio::ip::address* client);
    void tick();
    void expire();
    /// Of all connections; the loop may hold them longer than this door is there.
    void let_go();

    boost::asio::ip::tcp::acceptor acceptor_;
    boost::asio::steady_timer timer_;
    model_table& models_;
    door_settings settings_;
    door_access access_;
    std::unordered_set<std::shared_ptr<connection>> connections_;
    idle_order<connection> order_;
    deadline_order<connection> deadlines_;
    std::optional<boost::asio::ip::tcp::socket> newcomer_;  ///< waits for room
    door_counts counts_{};
    door_metrics metrics_;
    bool accepting_ = false;
    bool leaving_ = false;
    bool stopping_ = false;
    std::chrono::steady_clock::time_point stop_at_{};
    std::function<void()> stopped_;
};

}  // namespace accel::examples::serving::doors
