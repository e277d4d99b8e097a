// SPDX-License-Identifier: Apache-2.0
#include "backends/zmq/gatekeeper.hpp"
#include "backends/zmq/socket.hpp"
#include "core/net/socket.hpp"
#include "unit/zmq_pair.hpp"

#include <array>
#include <atomic>
#include <thread>

#include <poll.h>
#include <sys/socket.h>

namespace accel::zmq::testing {
namespace {

/// Far above what the kernel's buffers hold, far below what is offered.
constexpr std::size_t bound_bytes = 16 << 20;
constexpr std::size_t offered_bytes = 64 << 20;
constexpr std::uint32_t max_offered = 200'000;

/// Offers one message after another in slot 0 until the link has no room, and has none a moment later.
/// Returns how many bytes were taken.
template <class Send>
std::size_t fill(std::size_t message_bytes, Send send) {
    std::size_t taken = 0;
    for (std::uint32_t i = 1; i <= max_offered && taken < offered_bytes; ++i) {
        const bool sent = tests::within(300ms, [&] { return send(i) == status::ok; });
        if (!sent) return taken;
        taken += message_bytes + sizeof(slot_header);
    }
    return taken;
}

/// A socket by hand that reads little by itself.
struct reluctant_socket {
    explicit reluctant_socket(int type) : socket(std::move(*owned_socket::open(context.get(), type))) {
        EXPECT_TRUE(socket.set(ZMQ_RCVHWM, 1));
        EXPECT_TRUE(socket.set(ZMQ_RCVBUF, 64 << 10));
    }
    struct end_context {
        void operator()(void* made) const { zmq_ctx_term(made); }
    };
    std::unique_ptr<void, end_context> context{zmq_ctx_new()};
    owned_socket socket;
};

/// Stands between a client and a server, and reads 32 KiB of what the server sends each tenth of a second. So TCP gets
/// on, and sees nothing wrong. What the client does not take is dropped.
class trickle {
  public:
    explicit trickle(std::uint16_t to) : to_(to) {}
    trickle(const trickle&) = delete;
    trickle& operator=(const trickle&) = delete;
    ~trickle() {
        stop_ = true;
        thread_.join();
    }
    [[nodiscard]] std::uint16_t port() const { return core::local_port(listening_.get()); }

  private:
    void pass_on() const {
        if (core::wait_ready(listening_.get(), POLLIN, core::deadline_after(patience)) != 0) return;
        const core::unique_fd client{::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC)};
        auto server = core::connect_to("127.0.0.1", to_, core::deadline_after(patience));
        if (!server) return;
        constexpr int small = 64 << 10;
        (void)::setsockopt(server->get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
        for (; !stop_; std::this_thread::sleep_for(100ms)) {
            move(client.get(), server->get());
            move(server->get(), client.get());
        }
    }
    static void move(int from, int to) {
        std::array<std::byte, 32 << 10> some;
        const ssize_t got = ::recv(from, some.data(), some.size(), MSG_DONTWAIT);
        if (got > 0) (void)::send(to, some.data(), static_cast<std::size_t>(got), MSG_NOSIGNAL | MSG_DONTWAIT);
    }

    std::uint16_t to_;
    core::unique_fd listening_ = core::listen_on("127.0.0.1", 0).value();
    std::atomic<bool> stop_{false};
    std::thread thread_{[this] { pass_on(); }};
};

class zmq_bounded_test : public zmq_test {
  protected:
    /// A client that asks and reads nothing, or `slowly`.
    void connect_peer(std::size_t response_bytes, bool slowly = false) {
        server.reset();
        peer = std::make_unique<reluctant_socket>(ZMQ_DEALER);
        listen();
        token.fill(std::byte{5});
        server = open_server_link({1, 64, response_bytes}, token, this);
        server->activate();
        const auto told = parse_server(server->describe());
        const std::uint32_t index = told.value().index;
        const client_identity name = identity_of(index, token);
        EXPECT_TRUE(peer->socket.set(ZMQ_ROUTING_ID, std::as_bytes(std::span{&name, 1})));
        EXPECT_TRUE(peer->socket.set(ZMQ_PLAIN_USERNAME, std::as_bytes(std::span{&index, 1})));
        EXPECT_TRUE(peer->socket.set(ZMQ_PLAIN_PASSWORD, token));
        std::uint16_t port = told.value().port;
        if (slowly) {
            between = std::make_unique<trickle>(port);
            port = between->port();
        }
        ASSERT_TRUE(peer->socket.connect("tcp://127.0.0.1:" + std::to_string(port)));
        ask(1);
        ASSERT_EQ(next(*server_events).kind, event_kind::arrived);
    }
    void ask(std::uint32_t generation) {
        slot_header request;
        request.generation = generation;
        ASSERT_GE(zmq_send(peer->socket.get(), &request, sizeof request, ZMQ_DONTWAIT), 0);
    }
    void TearDown() override { server.reset(); }

    core::session_token token{};
    std::unique_ptr<trickle> between;
    std::unique_ptr<reluctant_socket> peer;
    std::unique_ptr<core::link> server;
};

TEST_F(zmq_bounded_test, unread_answers_do_not_pile_up) {
    for (const std::size_t length : {65'536U, 400U}) {
        connect_peer(length);
        const auto answer = random_bytes(length, 1);
        EXPECT_LT(fill(length, [&](std::uint32_t i) { return send(*server, message_kind::response, 0, answer, i); }),
                  bound_bytes)
            << length;
    }
}

TEST_F(zmq_bounded_test, a_client_that_takes_no_answer_is_lost_in_the_end) {
    constexpr std::size_t length = 24 << 20;
    connect_peer(length, true);
    const auto answer = random_bytes(length, 1);
    ASSERT_EQ(send(*server, message_kind::response, 0, answer), status::ok);
    EXPECT_TRUE(eventually(40s, [&] {
        return server->deliver({0, {server->send().payload(0), 0}, nullptr, {}}) == status::peer_lost;
    }));
}

TEST_F(zmq_bounded_test, unread_requests_do_not_pile_up) {
    constexpr std::size_t length = 16'384;
    reluctant_socket far{ZMQ_ROUTER};
    gatekeeper gate{far.context.get()};
    const std::string domain = "by hand";
    const std::uint32_t index = 0;
    ASSERT_FALSE(gate.expect(domain, false, {std::as_bytes(std::span{&index, 1}), token}).empty());
    EXPECT_TRUE(far.socket.set(ZMQ_PLAIN_SERVER, 1));
    EXPECT_TRUE(far.socket.set(ZMQ_ZAP_DOMAIN, std::as_bytes(std::span{domain})));
    ASSERT_TRUE(far.socket.bind("tcp://127.0.0.1:*"));
    auto both = open_client({1, length, 64});
    const auto told = encode(server_description{far.socket.bound_port(), 0, std::nullopt});
    ASSERT_TRUE(attach(both, told).ok());
    both.client->activate();
    const auto question = random_bytes(length, 1);
    // A server that answers what it has not read lets the client ask again in the same slot.
    EXPECT_LT(fill(length, [&](std::uint32_t i) { return send(*both.client, message_kind::request, 0, question, i); }),
              bound_bytes);
}

}  // namespace
}  // namespace accel::zmq::testing
