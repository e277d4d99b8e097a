// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/counting/door_metrics.hpp"

#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <grpcpp/server_builder.h>

namespace accel::examples::serving::doors {

/// Takes the connections of a gRPC server, at most `most` at once, which gRPC itself does not bound. Belongs to the
/// loop's thread.
class grpc_listener {
  public:
    grpc_listener(boost::asio::io_context& loop, boost::asio::ip::tcp::acceptor at, std::size_t most,
                  door_metrics& counting);
    grpc_listener(const grpc_listener&) = delete;
    grpc_listener& operator=(const grpc_listener&) = delete;
    ~grpc_listener() = default;

    /// Hands connections to `to` from here on. `system_error`.
    [[nodiscard]] result<void> start(std::unique_ptr<::grpc::experimental::ExternalConnectionAcceptor> to);
    void stop();
    /// Forgets connections that have ended.
    void sweep();
    [[nodiscard]] const boost::asio::ip::tcp::acceptor& acceptor() const { return acceptor_; }

  private:
    /// A connection that was handed over. gRPC does not say when it ends; its descriptor is another file's then.
    struct given {
        int fd;
        std::uint64_t inode;
    };

    void accept();
    void hand_over(boost::asio::ip::tcp::socket from);

    boost::asio::ip::tcp::acceptor acceptor_;
    boost::asio::steady_timer timer_;
    const std::size_t most_;
    door_metrics& counting_;
    std::unique_ptr<::grpc::experimental::ExternalConnectionAcceptor> to_;
    std::vector<given> given_;
};

}  // namespace accel::examples::serving::doors
