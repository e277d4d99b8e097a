// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/configuration/settings.hpp"
#include "serving/doors/counting/door_metrics.hpp"
#include "serving/doors/grpc/door/open_calls.hpp"

#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <grpcpp/server_builder.h>

namespace accel::examples::serving::doors {

/// Takes the connections of a gRPC server, and bounds them, which gRPC itself does not. Where there is no room, the
/// connection without a call that was silent for the longest time ends for a newcomer. Belongs to the loop's thread.
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
    /// Forgets connections that have ended.
    void sweep();
    /// Calls are to be told to it.
    [[nodiscard]] open_calls& calls() { return calls_; }
    [[nodiscard]] const boost::asio::ip::tcp::acceptor& acceptor() const { return acceptor_; }

  private:
    /// A connection that was handed over. gRPC does not say when it ends; its descriptor is another file's then.
    struct given {
        int fd;
        std::uint64_t inode;
        boost::asio::ip::address client;  ///< of `client_of`
        std::uint16_t port;
        bool ending = false;  ///< for a newcomer
    };
    class held_socket;

    [[nodiscard]] bool is_full() const { return given_.size() - ending_ >= most_; }
    void accept();
    void accept_later();
    void await_newcomer();
    /// Of all or of one client. False: there is none.
    [[nodiscard]] bool end_longest_idle(const boost::asio::ip::address* client);
    void hand_over(boost::asio::ip::tcp::socket from);

    boost::asio::ip::tcp::acceptor acceptor_;
    boost::asio::steady_timer timer_;
    const std::size_t most_;
    const std::size_t most_of_one_;
    door_metrics& counting_;
    std::unique_ptr<::grpc::experimental::ExternalConnectionAcceptor> to_;
    std::vector<given> given_;
    std::size_t ending_ = 0;  ///< of these
    open_calls calls_;
};

}  // namespace accel::examples::serving::doors
