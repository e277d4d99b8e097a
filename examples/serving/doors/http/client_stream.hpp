// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace accel::examples::serving::doors {

/// A client's socket, with TLS on it or without: an AsyncReadStream and AsyncWriteStream of Asio. One read and one
/// write at a time.
class client_stream {
  public:
    using socket_type = boost::asio::ip::tcp::socket;
    using executor_type = socket_type::executor_type;

    /// `tls`: null for none.
    client_stream(socket_type from, std::shared_ptr<boost::asio::ssl::context> tls)
        : socket_(std::move(from)), context_(std::move(tls)) {
        if (context_ == nullptr) return;
        tls_.emplace(socket_, *context_);
        encrypted_ = true;
    }

    client_stream(const client_stream&) = delete;
    client_stream& operator=(const client_stream&) = delete;
    ~client_stream() = default;

    [[nodiscard]] executor_type get_executor() { return socket_.get_executor(); }
    /// The bytes beneath.
    [[nodiscard]] socket_type& socket() { return socket_; }
    [[nodiscard]] bool encrypted() const { return encrypted_; }
    /// The kernel takes no more than this many bytes ahead of what it has sent; 0: as many as the system's setting
    /// says, which is megabytes. A failure leaves it as it was.
    void bound_unsent(int bytes) {
        static_cast<void>(::setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof bytes));
    }
    /// For an answer to a client that speaks no TLS.
    void go_plain() { encrypted_ = false; }

    template <typename Handler>
    void async_handshake(Handler&& done) {
        tls_->async_handshake(boost::asio::ssl::stream_base::server, std::forward<Handler>(done));
    }
    /// Says that nothing follows, and waits for the client to say so.
    template <typename Handler>
    void async_shutdown(Handler&& done) {
        tls_->async_shutdown(std::forward<Handler>(done));
    }
    template <typename Buffers, typename Handler>
    void async_read_some(const Buffers& to, Handler&& done) {
        if (encrypted_)
            tls_->async_read_some(to, std::forward<Handler>(done));
        else
            socket_.async_read_some(to, std::forward<Handler>(done));
    }
    template <typename Buffers, typename Handler>
    void async_write_some(const Buffers& from, Handler&& done) {
        if (encrypted_)
            tls_->async_write_some(from, std::forward<Handler>(done));
        else
            socket_.async_write_some(from, std::forward<Handler>(done));
    }

  private:
    socket_type socket_;
    std::shared_ptr<boost::asio::ssl::context> context_;
    std::optional<boost::asio::ssl::stream<socket_type&>> tls_;
    bool encrypted_ = false;
};

}  // namespace accel::examples::serving::doors
