// SPDX-License-Identifier: Apache-2.0
#include "side.hpp"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <zmq.h>

namespace accel::bench {
namespace {

constexpr std::size_t key_text_bytes = 41;

struct key_pair {
    char open[key_text_bytes] = {};
    char secret[key_text_bytes] = {};
};

/// A context with one socket.
class zmq_socket {
  public:
    explicit zmq_socket(int type) : context_(zmq_ctx_new()), socket_(zmq_socket_of(context_, type)) {}
    zmq_socket(const zmq_socket&) = delete;
    zmq_socket& operator=(const zmq_socket&) = delete;
    ~zmq_socket() {
        const int no_linger = 0;
        zmq_setsockopt(socket_, ZMQ_LINGER, &no_linger, sizeof no_linger);
        zmq_close(socket_);
        zmq_ctx_term(context_);
    }
    [[nodiscard]] void* get() const noexcept { return socket_; }
    void set(int option, int value) noexcept { zmq_setsockopt(socket_, option, &value, sizeof value); }
    void set(int option, const char* key) noexcept { zmq_setsockopt(socket_, option, key, key_text_bytes); }

  private:
    static void* zmq_socket_of(void* context, int type) { return ::zmq_socket(context, type); }

    void* context_;
    void* socket_;
};

error zmq_failure(const char* what) {
    return {status::system_error, zmq_errno(), fmt::format("{}: {}", what, zmq_strerror(zmq_errno()))};
}

/// Small payloads go the way that copies them into the message, larger ones the way that does not: each is
/// the faster.
constexpr std::size_t copied_up_to = 1024;

class zmq_echo final : public echo {
  public:
    explicit zmq_echo(std::size_t size_bytes) : out_(size_bytes) { zmq_msg_init(&in_); }
    zmq_echo(const zmq_echo&) = delete;
    zmq_echo& operator=(const zmq_echo&) = delete;
    ~zmq_echo() override { zmq_msg_close(&in_); }

    [[nodiscard]] result<void> connect(const std::string& endpoint, const std::string& server_key) {
        if (!server_key.empty()) {
            key_pair own;
            if (zmq_curve_keypair(own.open, own.secret) != 0) return zmq_failure("zmq_curve_keypair");
            socket_.set(ZMQ_CURVE_SERVERKEY, server_key.c_str());
            socket_.set(ZMQ_CURVE_PUBLICKEY, own.open);
            socket_.set(ZMQ_CURVE_SECRETKEY, own.secret);
        }
        socket_.set(ZMQ_RCVTIMEO, 10'000);
        if (zmq_connect(socket_.get(), endpoint.c_str()) != 0) return zmq_failure("zmq_connect");
        return {};
    }

    bool round_trip() override {
        const int sent = out_.size() <= copied_up_to ? zmq_send(socket_.get(), out_.data(), out_.size(), 0)
                                                     : zmq_send_const(socket_.get(), out_.data(), out_.size(), 0);
        return sent >= 0 && zmq_msg_recv(&in_, socket_.get(), 0) == static_cast<int>(out_.size());
    }

  private:
    zmq_socket socket_{ZMQ_DEALER};
    std::vector<std::byte> out_;
    zmq_msg_t in_;
};

/// `endpoint` is "tcp://…", with " KEY" behind it for CURVE.
result<std::unique_ptr<echo>> connect_zmq(const std::string& endpoint, std::size_t size_bytes) {
    const std::size_t space = endpoint.find(' ');
    auto made = std::make_unique<zmq_echo>(size_bytes);
    const std::string key = space == std::string::npos ? std::string{} : endpoint.substr(space + 1);
    if (auto done = made->connect(endpoint.substr(0, space), key); !done) return done.error();
    return std::unique_ptr<echo>{std::move(made)};
}

}  // namespace

side bare_zmq(bool curve) {
    return {curve ? "bare ZeroMQ, CURVE" : "bare ZeroMQ", {"zmq", curve ? "curve" : "plain"}, connect_zmq};
}

int serve_bare_zmq(bool curve) {
    zmq_socket socket{ZMQ_ROUTER};
    key_pair own;
    if (curve) {
        if (zmq_curve_keypair(own.open, own.secret) != 0) return 1;
        socket.set(ZMQ_CURVE_SERVER, 1);
        socket.set(ZMQ_CURVE_SECRETKEY, own.secret);
    }
    char endpoint[128] = {};
    std::size_t length = sizeof endpoint;
    if (zmq_bind(socket.get(), "tcp://127.0.0.1:*") != 0 ||
        zmq_getsockopt(socket.get(), ZMQ_LAST_ENDPOINT, endpoint, &length) != 0)
        return 1;
    announce(curve ? fmt::format("{} {}", endpoint, own.open) : std::string{endpoint});
    zmq_msg_t peer, payload;
    zmq_msg_init(&peer);
    zmq_msg_init(&payload);
    while (zmq_msg_recv(&peer, socket.get(), 0) >= 0 && zmq_msg_recv(&payload, socket.get(), 0) >= 0)
        if (zmq_msg_send(&peer, socket.get(), ZMQ_SNDMORE) < 0 || zmq_msg_send(&payload, socket.get(), 0) < 0) break;
    zmq_msg_close(&peer);
    zmq_msg_close(&payload);
    return 0;
}

}  // namespace accel::bench
