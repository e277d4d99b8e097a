// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/access/tokens.hpp"
#include "serving/doors/http/door_metrics.hpp"
#include "serving/doors/http/served_model.hpp"
#include "serving/doors/http/settings.hpp"
#include "serving/doors/shared_memory/region_table.hpp"

#include <accel_transport/status.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>

namespace accel::examples::serving::doors {

class connection;

using model_table = std::map<std::string, served_model, std::less<>>;

struct door_counts {
    std::uint64_t connections = 0;
    std::uint64_t requests = 0;   ///< answered, also with an error
    std::uint64_t errors = 0;     ///< answered with an HTTP status other than 200
    std::uint64_t cancelled = 0;  ///< calls whose client left first
};

/// Who may come in, and how.
struct door_access {
    std::shared_ptr<boost::asio::ssl::context> tls;  ///< null: clients speak without it
    access::token_list tokens;
    /// Of clients of this host; null: they may register none.
    std::shared_ptr<shared_memory::region_table> regions;
};

/// Takes connections and holds them until they end. Belongs to the loop's thread. `models` has to outlive it.
class http_door {
  public:
    /// Listens at an address of this machine; port 0: any free one. `invalid_argument`, `system_error`.
    [[nodiscard]] static result<std::unique_ptr<http_door>> open(boost::asio::io_context& loop, std::string_view host,
                                                                 std::string_view port, model_table& models,
                                                                 const door_settings& settings, door_access access);
    http_door(boost::asio::io_context& loop, boost::asio::ip::tcp::acceptor acceptor, model_table& models,
              const door_settings& settings, door_access access);
    http_door(const http_door&) = delete;
    http_door& operator=(const http_door&) = delete;
    ~http_door();

    /// "http://127.0.0.1:8000", with the real port; https with TLS.
    [[nodiscard]] std::string endpoint() const;
    /// True: reached from this machine alone.
    [[nodiscard]] bool is_loopback() const;
    void start();
    /// Takes no more connections, and stops the loop once those open have their answers, or after `drain_timeout`.
    void stop();

    // For connections.
    [[nodiscard]] const door_settings& settings() const { return settings_; }
    [[nodiscard]] boost::asio::ssl::context* tls() { return access_.tls.get(); }
    [[nodiscard]] const access::token_list& tokens() const { return access_.tokens; }
    [[nodiscard]] const std::shared_ptr<shared_memory::region_table>& regions() const { return access_.regions; }
    [[nodiscard]] model_table& models() { return models_; }
    [[nodiscard]] bool stopping() const { return stopping_; }
    [[nodiscard]] door_counts& counts() { return counts_; }
    [[nodiscard]] door_metrics& metrics() { return metrics_; }
    /// Memory for the JSON of one request. False: there is none now.
    [[nodiscard]] bool take_json(std::size_t bytes);
    void give_json(std::size_t bytes) { json_bytes_ -= bytes; }
    void remove(const std::shared_ptr<connection>& gone);

  private:
    void accept();
    void on_accept(boost::asio::ip::tcp::socket from);
    void tick();
    void expire();

    boost::asio::io_context& loop_;
    boost::asio::ip::tcp::acceptor acceptor_;
    boost::asio::steady_timer timer_;
    model_table& models_;
    door_settings settings_;
    door_access access_;
    std::unordered_set<std::shared_ptr<connection>> connections_;
    door_counts counts_{};
    door_metrics metrics_;
    std::size_t json_bytes_ = 0;
    bool accepting_ = false;
    bool stopping_ = false;
    std::chrono::steady_clock::time_point stop_at_{};
};

}  // namespace accel::examples::serving::doors
