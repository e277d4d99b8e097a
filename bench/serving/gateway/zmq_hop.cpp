// SPDX-License-Identifier: Apache-2.0
#include "zmq_hop.hpp"

#include <fmt/format.h>
#include <zmq.h>

namespace accel::bench {
namespace {

/// A context, closed after its sockets.
class messaging {
  public:
    messaging() : context_(zmq_ctx_new()) {}
    messaging(const messaging&) = delete;
    messaging& operator=(const messaging&) = delete;
    ~messaging() {
        const int no_linger = 0;
        for (void* each : sockets_) {
            zmq_setsockopt(each, ZMQ_LINGER, &no_linger, sizeof no_linger);
            zmq_close(each);
        }
        zmq_ctx_term(context_);
    }
    [[nodiscard]] void* open(int type) {
        sockets_.push_back(zmq_socket(context_, type));
        return sockets_.back();
    }

  private:
    void* context_;
    std::vector<void*> sockets_;
};

/// Binds to a free port of 127.0.0.1 and says which; false where that fails.
[[nodiscard]] bool bind_and_announce(void* socket) {
    char endpoint[128] = {};
    std::size_t length = sizeof endpoint;
    if (zmq_bind(socket, "tcp://127.0.0.1:*") != 0 || zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, endpoint, &length) != 0)
        return false;
    announce(endpoint);
    return true;
}

class request_socket final : public echo {
  public:
    explicit request_socket(std::size_t size_bytes) : out_(size_bytes) { zmq_msg_init(&in_); }
    request_socket(const request_socket&) = delete;
    request_socket& operator=(const request_socket&) = delete;
    ~request_socket() override { zmq_msg_close(&in_); }

    [[nodiscard]] bool connect(const std::string& endpoint) {
        const int patience_ms = 10'000;
        zmq_setsockopt(socket_, ZMQ_RCVTIMEO, &patience_ms, sizeof patience_ms);
        return zmq_connect(socket_, endpoint.c_str()) == 0;
    }
    /// Sent without a copy where that is the faster way, as in accel_bench.
    bool round_trip() override {
        constexpr std::size_t copied_up_to = 1024;
        const auto send = out_.size() <= copied_up_to ? zmq_send : zmq_send_const;
        return send(socket_, out_.data(), out_.size(), 0) >= 0 &&
               zmq_msg_recv(&in_, socket_, 0) == static_cast<int>(out_.size());
    }

  private:
    messaging own_;
    void* socket_ = own_.open(ZMQ_REQ);
    std::vector<std::byte> out_;
    zmq_msg_t in_;
};

}  // namespace

result<std::unique_ptr<echo>> connect_request_socket(const std::string& endpoint, std::size_t size_bytes) {
    auto made = std::make_unique<request_socket>(size_bytes);
    if (!made->connect(endpoint))
        return error{status::system_error, zmq_errno(), fmt::format("zmq_connect: {}", zmq_strerror(zmq_errno()))};
    return std::unique_ptr<echo>{std::move(made)};
}

int serve_reply_socket() {
    messaging own;
    void* const socket = own.open(ZMQ_REP);
    if (!bind_and_announce(socket)) return 1;
    zmq_msg_t payload;
    zmq_msg_init(&payload);
    while (zmq_msg_recv(&payload, socket, 0) >= 0 && zmq_msg_send(&payload, socket, 0) >= 0) {
    }
    zmq_msg_close(&payload);
    return 1;
}

int serve_zmq_proxy(const std::string& backend) {
    messaging own;
    void* const clients = own.open(ZMQ_ROUTER);
    void* const server = own.open(ZMQ_DEALER);
    if (zmq_connect(server, backend.c_str()) != 0 || !bind_and_announce(clients)) return 1;
    (void)zmq_proxy(clients, server, nullptr);
    return 1;
}

}  // namespace accel::bench
