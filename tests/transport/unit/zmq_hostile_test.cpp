// SPDX-License-Identifier: Apache-2.0
#include "backends/zmq/gatekeeper.hpp"
#include "backends/zmq/monitor.hpp"
#include "backends/zmq/socket.hpp"
#include "unit/zmq_pair.hpp"

namespace accel::zmq::testing {
namespace {

/// A peer by hand, with a ZeroMQ context of its own: a DEALER that shows anything, or a ROUTER that a client
/// is sent to.
class raw_socket {
  public:
    explicit raw_socket(int type) : context_(zmq_ctx_new()) {
        auto opened = owned_socket::open(context_.get(), type);
        EXPECT_TRUE(opened.ok());
        socket_ = std::move(*opened);
        EXPECT_TRUE(socket_.set(ZMQ_RCVTIMEO, 10'000));
        EXPECT_TRUE(socket_.set(ZMQ_RECONNECT_IVL, -1));
    }
    [[nodiscard]] static std::string endpoint_of(const core::link_description& told) {
        return "tcp://127.0.0.1:" + std::to_string(parse_server(told)->port);
    }
    void show(std::span<const std::byte> identity) { EXPECT_TRUE(socket_.set(ZMQ_ROUTING_ID, identity)); }
    void show(const client_identity& identity) { show(std::as_bytes(std::span{&identity, 1})); }
    void log_in(std::uint32_t index, const core::session_token& token) {
        EXPECT_TRUE(socket_.set(ZMQ_PLAIN_USERNAME, std::as_bytes(std::span{&index, 1})));
        EXPECT_TRUE(socket_.set(ZMQ_PLAIN_PASSWORD, token));
    }
    void log_in(const curve_key& server, const key_pair& own) {
        EXPECT_TRUE(socket_.set(ZMQ_CURVE_SERVERKEY, server));
        EXPECT_TRUE(socket_.set(ZMQ_CURVE_PUBLICKEY, own.public_key()));
        EXPECT_TRUE(socket_.set(ZMQ_CURVE_SECRETKEY, own.secret_key()));
    }
    /// A ROUTER, before it is bound: lets this client in, by PLAIN.
    void expect(std::uint32_t index, const core::session_token& token) {
        const std::string domain = "by hand";
        gate_ = std::make_unique<gatekeeper>(context_.get());
        ASSERT_FALSE(gate_->expect(domain, false, {std::as_bytes(std::span{&index, 1}), token}).empty());
        EXPECT_TRUE(socket_.set(ZMQ_PLAIN_SERVER, 1));
        EXPECT_TRUE(socket_.set(ZMQ_ZAP_DOMAIN, std::as_bytes(std::span{domain})));
    }
    /// How the handshake ends.
    [[nodiscard]] int connect(const core::link_description& told) {
        auto monitor =
            socket_monitor::open(context_.get(), socket_, ZMQ_EVENT_HANDSHAKE_SUCCEEDED | handshake_failures);
        EXPECT_TRUE(monitor.ok());
        EXPECT_TRUE(socket_.connect(endpoint_of(told)));
        int outcome = 0;
        EXPECT_TRUE(eventually([&] {
            const auto event = monitor->next();
            outcome = event ? event->what : 0;
            return event.has_value();
        }));
        return outcome;
    }
    /// As a session's own client does it, without keys.
    [[nodiscard]] int join(const core::link_description& told, const core::session_token& token) {
        const auto server = parse_server(told);
        show(identity_of(server.value().index, token));
        log_in(server.value().index, token);
        return connect(told);
    }
    void send(std::span<const std::byte> bytes, bool more = false) {
        EXPECT_GE(zmq_send(socket_.get(), bytes.data(), bytes.size(), more ? ZMQ_SNDMORE : 0), 0);
    }
    void send(const slot_header& header, std::size_t payload = 0, bool more = false) {
        std::vector<std::byte> frame(sizeof header + payload);
        std::memcpy(frame.data(), &header, sizeof header);
        send(frame, more);
    }
    [[nodiscard]] owned_socket& socket() { return socket_; }

  private:
    struct end_context {
        void operator()(void* context) const { zmq_ctx_term(context); }
    };
    std::unique_ptr<void, end_context> context_;
    owned_socket socket_;
    std::unique_ptr<gatekeeper> gate_;
};

constexpr int let_in = ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
constexpr int refused = ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;

slot_header request_of(std::uint32_t slot, std::size_t length) {
    slot_header header;
    header.slot = slot;
    header.generation = 1;
    header.length = length;
    return header;
}

class zmq_hostile_test : public zmq_test {
  protected:
    void SetUp() override {
        listen();
        token.fill(std::byte{3});
        server = open_server_link({2, 4'096, 64}, token, this);
        server->activate();
        peer = std::make_unique<raw_socket>(ZMQ_DEALER);
        ASSERT_EQ(peer->join(server->describe(), token), let_in);
    }
    void TearDown() override { server.reset(); }

    void expect_lost(status why) {
        const link_event event = next(*server_events);
        EXPECT_EQ(event.kind, event_kind::lost);
        EXPECT_EQ(event.reason, why) << to_string(event.reason);
        EXPECT_EQ(event.owner, this);
        EXPECT_EQ(send_response(), status::peer_lost);
        // Whatever else it sends is dropped.
        peer->send(request_of(0, 0));
        EXPECT_TRUE(silent(*server_events));
    }
    [[nodiscard]] status send_response() { return send(*server, message_kind::response, 0, {}); }

    core::session_token token{};
    std::unique_ptr<core::link> server;
    std::unique_ptr<raw_socket> peer;
};

TEST_F(zmq_hostile_test, a_correct_peer_by_hand_is_served) {
    peer->send(request_of(1, 100), 100);
    EXPECT_EQ(next(*server_events).payload.size(), 100U);
    peer->send(request_of(0, 20), 0, true);
    peer->send(random_bytes(20, 1));
    expect_payload(next(*server_events), random_bytes(20, 1));
}

TEST_F(zmq_hostile_test, unknown_extensions_are_skipped) {
    slot_header extended = request_of(0, 10);
    extended.extension_bytes = 16;
    peer->send(extended, 10, true);
    peer->send(random_bytes(16, 1));
    EXPECT_EQ(next(*server_events).payload.size(), 10U);
    slot_header in_parts = request_of(1, 10);
    in_parts.extension_bytes = 8;
    peer->send(in_parts, 0, true);
    peer->send(random_bytes(10, 2), true);
    peer->send(random_bytes(8, 3));
    expect_payload(next(*server_events), random_bytes(10, 2));
}

TEST_F(zmq_hostile_test, missing_extensions_end_the_link) {
    slot_header extended = request_of(0, 10);
    extended.extension_bytes = 16;
    peer->send(extended, 10);
    expect_lost(status::protocol_error);
}

TEST_F(zmq_hostile_test, a_short_header_ends_the_link) {
    peer->send(random_bytes(63, 1));
    expect_lost(status::protocol_error);
}

TEST_F(zmq_hostile_test, another_version_ends_the_link) {
    slot_header other = request_of(0, 0);
    other.version = 2;
    peer->send(other);
    expect_lost(status::version_mismatch);
}

TEST_F(zmq_hostile_test, a_slot_that_does_not_exist_ends_the_link) {
    peer->send(request_of(2, 0));
    expect_lost(status::protocol_error);
}

TEST_F(zmq_hostile_test, a_payload_longer_than_its_slot_ends_the_link) {
    peer->send(request_of(0, 4'097), 4'097);
    expect_lost(status::protocol_error);
}

TEST_F(zmq_hostile_test, a_wrong_length_ends_the_link) {
    peer->send(request_of(0, 100), 99);
    expect_lost(status::protocol_error);
}

TEST_F(zmq_hostile_test, a_payload_frame_of_another_length_ends_the_link) {
    peer->send(request_of(0, 100), 0, true);
    peer->send(random_bytes(101, 1));
    expect_lost(status::protocol_error);
}

TEST_F(zmq_hostile_test, a_frame_too_many_ends_the_link) {
    peer->send(request_of(0, 100), 100, true);
    peer->send(random_bytes(5, 1));
    expect_lost(status::protocol_error);
}

TEST_F(zmq_hostile_test, a_second_message_in_a_slot_in_use_ends_the_link) {
    peer->send(request_of(0, 4'000), 4'000);
    const link_event first = next(*server_events);
    const std::vector<std::byte> before{first.payload.begin(), first.payload.end()};
    peer->send(request_of(0, 4), 4);
    expect_lost(status::protocol_error);
    EXPECT_TRUE(std::equal(before.begin(), before.end(), first.payload.begin())) << "the first stays readable";
}

TEST_F(zmq_hostile_test, a_response_sent_as_a_request_ends_the_link) {
    slot_header response = request_of(0, 0);
    response.kind = message_kind::response;
    peer->send(response);
    expect_lost(status::protocol_error);
}

TEST_F(zmq_hostile_test, names_that_no_session_has_are_dropped_and_logged) {
    const log_capture capture;
    core::session_token own{};
    own.fill(std::byte{7});
    auto second = open_server_link({1, 64, 64}, own, this);
    second->activate();
    raw_socket pretender{ZMQ_DEALER};
    const std::uint32_t index = parse_server(second->describe())->index;
    auto guessed = own;
    guessed[15] ^= std::byte{1};
    pretender.show(identity_of(index, guessed));
    pretender.log_in(index, own);
    ASSERT_EQ(pretender.connect(second->describe()), let_in);
    pretender.send(request_of(0, 0));
    EXPECT_TRUE(silent(*server_events));
    EXPECT_NE(capture.text().find("is closed, or not its own"), std::string::npos);
    peer->send(request_of(0, 0));
    EXPECT_EQ(next(*server_events).kind, event_kind::arrived);
}

TEST_F(zmq_hostile_test, strangers_do_not_get_in) {
    const log_capture capture;
    const auto told = server->describe();
    raw_socket nameless{ZMQ_DEALER};
    EXPECT_NE(nameless.connect(told), let_in) << "no mechanism";
    raw_socket keyed{ZMQ_DEALER};
    const auto keys = key_pair::make();
    keyed.log_in(key_pair::make()->public_key(), keys.value());
    EXPECT_NE(keyed.connect(told), let_in) << "another mechanism";
    raw_socket guesser{ZMQ_DEALER};
    auto guessed = token;
    guessed[15] ^= std::byte{1};
    EXPECT_EQ(guesser.join(told, guessed), refused);
    EXPECT_NE(capture.text().find("credentials"), std::string::npos);
    peer->send(request_of(0, 0));
    EXPECT_EQ(next(*server_events).kind, event_kind::arrived);
}

/// libzmq ends the process when a peer without a name is given one that another peer has claimed: 0, then a
/// count that a stranger can find out.
TEST_F(zmq_hostile_test, strangers_that_claim_names_do_not_become_peers) {
    for (std::uint32_t guess = 0; guess < 8; ++guess) {
        raw_socket claims{ZMQ_DEALER};
        std::array<std::byte, 5> name{};
        std::memcpy(name.data() + 1, &guess, sizeof guess);
        claims.show(name);
        claims.log_in(guess, {});
        EXPECT_EQ(claims.connect(server->describe()), refused);
    }
    peer->send(request_of(0, 0));
    EXPECT_EQ(next(*server_events).kind, event_kind::arrived);
}

TEST_F(zmq_hostile_test, a_credential_that_is_in_use_does_not_attach_again) {
    peer->send(request_of(0, 0));
    EXPECT_EQ(next(*server_events).kind, event_kind::arrived);
    raw_socket replay{ZMQ_DEALER};
    EXPECT_EQ(replay.join(server->describe(), token), refused);
    peer->send(request_of(1, 0));
    EXPECT_EQ(next(*server_events).header.slot, 1U);
}

TEST_F(zmq_hostile_test, a_credential_does_not_attach_after_its_first_client_left) {
    peer.reset();
    raw_socket replay{ZMQ_DEALER};
    EXPECT_EQ(replay.join(server->describe(), token), refused);
}

TEST_F(zmq_hostile_test, a_credential_of_a_closed_session_does_not_attach) {
    core::session_token own{};
    own.fill(std::byte{9});
    auto unused = open_server_link({1, 64, 64}, own, this);
    unused->activate();
    const auto told = unused->describe();
    EXPECT_TRUE(eventually([&] { return unused->close(); }));
    raw_socket late{ZMQ_DEALER};
    EXPECT_EQ(late.join(told, own), refused);
}

TEST_F(zmq_hostile_test, a_credential_works_only_at_its_own_server) {
    core::session_token own{};
    own.fill(std::byte{9});
    auto elsewhere = open_server_link({1, 64, 64}, own, this);
    elsewhere->activate();
    auto told = parse_server(elsewhere->describe());
    auto first_events = std::move(server_events);
    listen();
    auto other = open_server_link({1, 64, 64}, token, this);
    told->port = parse_server(other->describe())->port;
    raw_socket client{ZMQ_DEALER};
    EXPECT_EQ(client.join(encode(*told), own), refused);
    other.reset();
    server_events = std::move(first_events);
}

TEST_F(zmq_hostile_test, a_client_that_left_cannot_be_answered) {
    peer->send(request_of(0, 0));
    EXPECT_EQ(next(*server_events).kind, event_kind::arrived);
    server->consumed(0);
    peer.reset();
    std::uint32_t generation = 1;
    EXPECT_TRUE(
        eventually([&] { return send(*server, message_kind::response, 0, {}, ++generation) == status::peer_lost; }));
}

TEST_F(zmq_hostile_test, random_frames_end_links_but_not_the_server) {
    std::minstd_rand random{5};
    std::array<link_event, 16> events;
    for (std::uint8_t round = 0; round < 40; ++round) {
        core::session_token own{};
        own.fill(static_cast<std::byte>(round + 100));
        auto target = open_server_link({2, 4'096, 64}, own, this);
        target->activate();
        raw_socket sender{ZMQ_DEALER};
        ASSERT_EQ(sender.join(target->describe(), own), let_in);
        for (int i = 0; i < 5; ++i) {
            slot_header header = request_of(random() % 2, random() % 200);
            auto* bytes = reinterpret_cast<unsigned char*>(&header);
            if (random() % 2 == 0) bytes[random() % sizeof header] = static_cast<unsigned char>(random());
            sender.send(header, random() % 200, random() % 4 == 0 && i < 4);
        }
        const auto until = core::deadline_after(3ms);
        while (core::now() < until) {
            const std::size_t count = server_events->poll(events);
            for (std::size_t i = 0; i < count; ++i)
                if (events[i].kind == event_kind::arrived) target->consumed(events[i].header.slot);
        }
        EXPECT_TRUE(eventually([&] { return target->close(); }));
    }
    peer->send(request_of(0, 0));
    EXPECT_EQ(next(*server_events).kind, event_kind::arrived);
}

TEST_F(zmq_hostile_test, a_frame_longer_than_any_grant_is_not_received) {
    server.reset();
    peer.reset();
    server_events.reset();
    largest_request = 4'096;
    listen();
    server = open_server_link({2, 4'096, 64}, token, this);
    server->activate();
    peer = std::make_unique<raw_socket>(ZMQ_DEALER);
    ASSERT_EQ(peer->join(server->describe(), token), let_in);
    peer->send(request_of(0, 4'096), 4'096);
    ASSERT_EQ(next(*server_events).kind, event_kind::arrived);
    server->consumed(0);
    peer->send(request_of(1, 100'000), 100'000);
    EXPECT_TRUE(silent(*server_events)) << "it is not even received";
    EXPECT_TRUE(eventually([&] { return send_response() == status::peer_lost; })) << "its connection is closed";
}

class zmq_hostile_keyed_test : public zmq_test {
  protected:
    void SetUp() override {
        listen(false);
        own = std::move(*key_pair::make());
        server = open_server_link({1, 64, 64}, token, this, encode(client_description{own.public_key()}));
        server->activate();
    }
    void TearDown() override { server.reset(); }
    [[nodiscard]] int join(const key_pair& keys) {
        peer = std::make_unique<raw_socket>(ZMQ_DEALER);
        const auto told = parse_server(server->describe());
        peer->show(identity_of(told.value().index, token));
        peer->log_in(*told.value().key, keys);
        return peer->connect(server->describe());
    }

    core::session_token token{};
    key_pair own;
    std::unique_ptr<core::link> server;
    std::unique_ptr<raw_socket> peer;
};

TEST_F(zmq_hostile_keyed_test, a_key_attaches_once) {
    EXPECT_EQ(join(*key_pair::make()), refused) << "another key";
    EXPECT_EQ(join(own), let_in);
    peer->send(request_of(0, 10), 10);
    EXPECT_EQ(next(*server_events).kind, event_kind::arrived);
    EXPECT_EQ(join(own), refused) << "again";
}

TEST_F(zmq_hostile_keyed_test, a_key_of_a_closed_session_does_not_attach) {
    EXPECT_TRUE(eventually([&] { return server->close(); }));
    EXPECT_EQ(join(own), refused);
}

TEST_F(zmq_hostile_keyed_test, clients_without_keys_do_not_become_peers) {
    raw_socket claims{ZMQ_DEALER};
    claims.log_in(0, token);
    claims.show(std::array{std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0}, std::byte{1}});
    EXPECT_NE(claims.connect(server->describe()), let_in);
    raw_socket nameless{ZMQ_DEALER};
    EXPECT_NE(nameless.connect(server->describe()), let_in);
}

TEST_F(zmq_hostile_keyed_test, a_key_of_another_session_is_refused) {
    core::link_config config;
    config.role = core::link_role::server;
    config.geometry = {1, 64, 64};
    config.receive = make_slots(1, 64);
    config.send = make_slots(1, 64);
    auto second = server_events->open_link(config);
    ASSERT_TRUE(second.ok());
    const auto described = encode(client_description{own.public_key()});
    EXPECT_EQ((*second)->attach({0, {}, {}, described}, core::never).code(), status::protocol_error);
}

class zmq_hostile_server_test : public zmq_test {
  protected:
    void SetUp() override {
        far = std::make_unique<raw_socket>(ZMQ_ROUTER);
        EXPECT_TRUE(receive_limit == 0 || far->socket().set(ZMQ_RCVHWM, receive_limit));
        far->expect(0, {});
        ASSERT_TRUE(far->socket().bind("tcp://127.0.0.1:*"));
        auto made = open_client({2, mebibytes, 4'096});
        events = std::move(made.client_events);
        client = std::move(made.client);
        const auto told = encode(server_description{far->socket().bound_port(), 0, std::nullopt});
        auto attached = client->attach({0, {}, "127.0.0.1", told, 0, "127.0.0.1"}, core::deadline_after(patience));
        ASSERT_TRUE(attached.ok()) << attached.error().message;
        client->activate();
    }
    void TearDown() override { client.reset(); }

    /// Takes one request and remembers who sent it.
    void take_request() {
        who.resize(256);
        const int got = zmq_recv(far->socket().get(), who.data(), who.size(), 0);
        ASSERT_GT(got, 0);
        who.resize(static_cast<std::size_t>(got));
        for (bool more = true; more;) {
            message_part part;
            ASSERT_GE(zmq_msg_recv(part.raw(), far->socket().get(), 0), 0);
            more = part.more();
        }
    }
    void answer(const slot_header& header, std::size_t payload) {
        zmq_send(far->socket().get(), who.data(), who.size(), ZMQ_SNDMORE);
        far->send(header, payload);
    }
    [[nodiscard]] static slot_header response_of(std::uint32_t slot, std::size_t length) {
        slot_header header = request_of(slot, length);
        header.kind = message_kind::response;
        return header;
    }

    static constexpr std::size_t mebibytes = 32 << 20;
    int receive_limit = 0;  ///< messages; 0: ZeroMQ's own
    std::unique_ptr<raw_socket> far;
    std::string who;
    std::unique_ptr<core::poller> events;
    std::unique_ptr<core::link> client;
};

TEST_F(zmq_hostile_server_test, a_response_longer_than_its_slot_ends_the_link) {
    ASSERT_EQ(send(*client, message_kind::request, 0, {}), status::ok);
    take_request();
    answer(response_of(0, 4'097), 4'097);
    const link_event event = next(*events);
    EXPECT_EQ(event.kind, event_kind::lost);
    EXPECT_EQ(event.reason, status::protocol_error);
    EXPECT_EQ(send(*client, message_kind::request, 1, {}), status::peer_lost);
}

TEST_F(zmq_hostile_server_test, a_response_much_longer_than_its_slot_is_not_received) {
    ASSERT_EQ(send(*client, message_kind::request, 0, {}), status::ok);
    take_request();
    answer(response_of(0, 100'000), 100'000);
    std::array<link_event, 16> some;
    EXPECT_TRUE(eventually([&] {
        return events->poll(some) > 0 ? some[0].kind == event_kind::lost : (static_cast<void>(events->arm()), false);
    }));
    EXPECT_EQ(some[0].reason, status::peer_lost);
}

TEST_F(zmq_hostile_server_test, a_second_response_does_not_touch_the_first) {
    ASSERT_EQ(send(*client, message_kind::request, 0, {}), status::ok);
    take_request();
    answer(response_of(0, 100), 100);
    ASSERT_EQ(next(*events).kind, event_kind::arrived);
    answer(response_of(0, 50), 50);
    EXPECT_EQ(next(*events).reason, status::protocol_error);
}

TEST_F(zmq_hostile_server_test, a_server_that_goes_away_is_noticed_while_asleep) {
    ASSERT_EQ(send(*client, message_kind::request, 0, {}), status::ok);
    take_request();
    std::array<link_event, 16> some;
    ASSERT_TRUE(eventually([&] { return events->poll(some) == 0 && events->arm(); }));
    far.reset();
    bool lost = false;
    bool asleep = true;
    const auto deadline = core::deadline_after(patience);
    while (!lost && core::now() < deadline) {
        pollfd sleeps{events->event_fd(), POLLIN, 0};
        if (asleep) {
            ASSERT_EQ(::poll(&sleeps, 1, 10'000), 1) << "never woken";
        }
        events->disarm();
        const std::size_t count = events->poll(some);
        lost = count > 0 && some[0].kind == event_kind::lost;
        asleep = !lost && events->arm();
    }
    EXPECT_TRUE(lost);
}

TEST_F(zmq_hostile_server_test, a_server_that_goes_away_is_noticed_by_a_busy_poller) {
    far.reset();
    std::array<link_event, 16> some;
    EXPECT_TRUE(eventually([&] {
        for (int i = 0; i < 2'000; ++i)
            if (events->poll(some) > 0) return some[0].kind == event_kind::lost;
        return false;
    }));
}

TEST_F(zmq_hostile_server_test, an_early_answer_releases_no_memory_too_early) {
    // The first request tells the server who we are; the second is too long for the kernel's buffers.
    ASSERT_EQ(send(*client, message_kind::request, 1, {}), status::ok);
    take_request();
    auto opened = accel::context::open();
    auto held = opened->allocate(mebibytes);
    ASSERT_TRUE(held.ok());
    ASSERT_EQ(send_lent(*client, message_kind::request, 0, held->whole()), status::ok);
    if (client->retract(0)) GTEST_SKIP() << "the kernel took all of it at once";
    answer(response_of(0, 8), 8);
    // The server reads on in its own thread, so the request leaves in the end, and only then the answer is
    // shown.
    const link_event event = next(*events);
    EXPECT_EQ(event.kind, event_kind::arrived);
    EXPECT_TRUE(client->retract(0));
}

TEST_F(zmq_hostile_server_test, closing_releases_lent_memory_though_the_server_reads_nothing) {
    auto opened = accel::context::open();
    auto held = opened->allocate(mebibytes);
    ASSERT_TRUE(held.ok());
    ASSERT_EQ(send_lent(*client, message_kind::request, 0, held->whole()), status::ok);
    EXPECT_TRUE(eventually([&] { return client->close(); }));
}

/// Its pipe is full after one message; from then on ZeroMQ reads nothing from the socket.
class zmq_full_server_test : public zmq_hostile_server_test {
  protected:
    void SetUp() override {
        receive_limit = 1;
        zmq_hostile_server_test::SetUp();
        ASSERT_EQ(send(*client, message_kind::request, 1, {}), status::ok);
        take_request();
        for (std::uint32_t i = 2; i < 10; ++i)
            ASSERT_TRUE(eventually([&] { return send(*client, message_kind::request, 1, {}, i) == status::ok; }));
        auto opened = accel::context::open();
        auto allocated = opened->allocate(mebibytes);
        ASSERT_TRUE(allocated.ok());
        held = std::move(*allocated);
        ASSERT_EQ(send_lent(*client, message_kind::request, 0, held.whole()), status::ok);
    }
    region held;
};

TEST_F(zmq_full_server_test, no_answer_is_shown_while_zeromq_holds_its_request) {
    ASSERT_FALSE(client->retract(0)) << "ZeroMQ cannot have sent all of it";
    answer(response_of(0, 8), 8);
    std::array<link_event, 16> some;
    EXPECT_FALSE(tests::within(200ms, [&] { return events->poll(some) > 0; }));
    EXPECT_FALSE(client->retract(0));
}

TEST_F(zmq_full_server_test, a_full_server_does_not_keep_its_client_from_closing) {
    ASSERT_FALSE(client->retract(0));
    EXPECT_TRUE(eventually([&] { return client->close(); }));
}

}  // namespace
}  // namespace accel::zmq::testing
