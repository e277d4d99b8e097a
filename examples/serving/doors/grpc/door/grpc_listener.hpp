// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/configuration/settings.hpp"
#include "serving/doors/counting/door_metrics.hpp"
#include "serving/doors/grpc/door/open_calls.hpp"
#include "serving/doors/http/idle_order.hpp"

#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <grpcpp/server_builder.h>

namespace accel::examples::serving::doors {

/// Accepts connections for a gRPC server, and limits how many there are, which gRPC itself does not. If there is no
/// room for a new one, the one that has been silent longest without a call is closed. Belongs to the loop's thread.
class grpc_listener {
  public:
    grpc_listener(boost::asio::io_context& loop, boost::asio::ip::tcp::acceptor at, const door_settings& limits,
                  door_metrics& counting);
    grpc_listener(const grpc_listener&) = delete;
    grpc_listener& operator=(const grpc_listener&) = delete;
    ~grpc_listener() = default;

    /// Hands connections to `to` from here on. `system_error`.
    [[nodiscard]] result<void> start(std::unique_ptr<::grpc::experimental::ExternalConnectionAcceptor> to);
    void stop();
    /// Looks at some of the connections, at all in turn: forgets those that have ended. To be called again and again.
    void tick();
    /// Ends this client's connection, and drops what gRPC has not read of it.
    void reset(const boost::asio::ip::tcp::endpoint& client);
    /// Calls are to be told to it.
    [[nodiscard]] open_calls& calls() { return calls_; }
    [[nodiscard]] const boost::asio::ip::tcp::acceptor& acceptor() const { return acceptor_; }

  private:
    /// A connection that was handed over. gRPC does not say when it ends; its descriptor is another file's then.
    struct given : idle_entry {
        using idle_entry::idle_entry;
        int fd = -1;
        std::uint64_t inode = 0;
        std::uint16_t port = 0;
        std::list<given>::iterator self{};
        std::uint64_t moved = 0;  ///< bytes that gRPC had read, and its client had taken, when it was looked at
        std::uint64_t since = 0;  ///< the tick at which that was seen first
        bool ending = false;      ///< for a newcomer
    };
    class held_socket;
    enum class room : std::uint8_t { there, later, never };

    [[nodiscard]] bool is_full() const { return given_.size() - ending_.size() >= most_; }
    void accept();
    void accept_later();
    void admit();
    [[nodiscard]] room make_room(const boost::asio::ip::address& client);
    /// False: gRPC has still to end others.
    [[nodiscard]] bool can_end_more();
    /// Of all or of one client. False: there is none among those that it looked at.
    [[nodiscard]] bool end_longest_idle(const boost::asio::ip::address* client);
    /// False: gRPC may have bytes of a request in its hands.
    [[nodiscard]] bool may_end(given& one) const;
    /// Nothing has moved since the last look.
    [[nodiscard]] bool is_silent(given& one) const;
    void hand_over(boost::asio::ip::tcp::socket from, const boost::asio::ip::tcp::endpoint& at);
    void sweep(std::size_t most);
    void forget(std::list<given>::iterator gone);

    boost::asio::ip::tcp::acceptor acceptor_;
    boost::asio::steady_timer timer_;
    const std::size_t most_;
    const std::size_t most_of_one_;
    door_metrics& counting_;
    std::unique_ptr<::grpc::experimental::ExternalConnectionAcceptor> to_;
    std::optional<boost::asio::ip::tcp::socket> newcomer_;  ///< waits for room
    std::list<given> given_;
    std::list<given>::iterator swept_ = given_.end();  ///< the next one to look at
    std::vector<std::list<given>::iterator> ending_;
    idle_order<given> order_;
    std::uint64_t ticks_ = 0;
    open_calls calls_;
};

}  // namespace accel::examples::serving::doors
