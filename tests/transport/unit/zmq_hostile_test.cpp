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

/// A message by hand: a header, that much of the payload in its frame, and the lengths of more frames.
struct handmade {
    const char* name;
    void (*change)(slot_header&);
    std::size_t payload;
    std::vector<std::size_t> frames{};
    status why = status::protocol_error;
};

void send_by_hand(raw_socket& from, const handmade& what) {
    slot_header header = request_of(0, 100);
    what.change(header);
    from.send(header, what.payload, !what.frames.empty());
    for (std::size_t i = 0; i < what.frames.size(); ++i)
        from.send(random_bytes(what.frames[i], 1), i + 1 < what.frames.size());
}

TEST_F(zmq_hostile_test, a_correct_peer_sends_a_message_in_one_to_three_frames) {
    const std::vector<handmade> good{
        {"one frame", [](slot_header&) {}, 100},
        {"a payload of its own", [](slot_header&) {}, 0, {100}},
        {"unknown extensions", [](slot_header& h) { h.extension_bytes = 16; }, 100, {16}},
        {"both", [](slot_header& h) { h.extension_bytes = 192; }, 0, {100, 192}},
        {"the longest payload", [](slot_header& h) { h.length = 4'096; }, 4'096},
        {"the last slot", [](slot_header& h) { h.slot = 1; }, 100},
        {"nothing", [](slot_header& h) { h.length = 0; }, 0},
    };
    for (const handmade& each : good) {
        SCOPED_TRACE(each.name);
        send_by_hand(*peer, each);
        const link_event got = next(*server_events);
        ASSERT_EQ(got.kind, event_kind::arrived) << to_string(got.reason);
        EXPECT_EQ(got.payload.size(), got.header.length);
        if (!each.frames.empty() && each.payload == 0) expect_payload(got, random_bytes(100, 1));
        server->consumed(got.header.slot);
    }
}

TEST_F(zmq_hostile_test, a_message_that_no_correct_peer_sends_ends_its_link_and_no_other) {
    const std::vector<handmade> bad{
        {"another version", [](slot_header& h) { h.version = 2; }, 100, {}, status::version_mismatch},
        {"a response", [](slot_header& h) { h.kind = message_kind::response; }, 100},
        {"a part of a stream", [](slot_header& h) { h.flags = core::header_flag::fragmented; }, 100},
        {"a slot beyond the last", [](slot_header& h) { h.slot = 2; }, 100},
        {"a payload longer than its slot", [](slot_header& h) { h.length = 4'097; }, 4'097},
        {"a byte too few", [](slot_header&) {}, 99},
        {"a byte too many", [](slot_header&) {}, 101},
        {"a payload frame that is too short", [](slot_header&) {}, 0, {99}},
        {"a payload frame that is too long", [](slot_header&) {}, 0, {101}},
        {"no payload", [](slot_header&) {}, 0},
        {"a frame too many", [](slot_header&) {}, 100, {5}},
        {"a third frame", [](slot_header&) {}, 0, {100, 5}},
        {"no extensions", [](slot_header& h) { h.extension_bytes = 16; }, 100},
        {"extensions that are too short", [](slot_header& h) { h.extension_bytes = 16; }, 100, {8}},
        {"extensions that are too long", [](slot_header& h) { h.extension_bytes = 16; }, 100, {24}},
        {"a frame behind its extensions", [](slot_header& h) { h.extension_bytes = 16; }, 100, {16, 1}},
    };
    std::vector<std::unique_ptr<core::link>> lost;
    std::vector<std::unique_ptr<raw_socket>> offenders;
    for (const handmade& each : bad) {
        SCOPED_TRACE(each.name);
        core::session_token own{};
        own.fill(static_cast<std::byte>(100 + lost.size()));
        core::link& target = *lost.emplace_back(open_server_link({2, 4'096, 64}, own, &lost));
        target.activate();
        raw_socket& offender = *offenders.emplace_back(std::make_unique<raw_socket>(ZMQ_DEALER));
        ASSERT_EQ(offender.join(target.describe(), own), let_in);
        send_by_hand(offender, each);
        const link_event event = next(*server_events);
        ASSERT_EQ(event.kind, event_kind::lost);
        EXPECT_EQ(event.reason, each.why) << to_string(event.reason);
        EXPECT_EQ(event.owner, &lost);
        EXPECT_EQ(send(target, message_kind::response, 0, {}), status::peer_lost);
        peer->send(request_of(0, 0));
        EXPECT_EQ(next(*server_events).owner, this) << "another link is served";
        server->consumed(0);
    }
    for (const auto& each : offenders) each->send(request_of(0, 0));
    EXPECT_TRUE(silent(*server_events)) << "whatever else they send is dropped";
    peer->send(random_bytes(63, 1));
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

/// libzmq ends the process when a peer without a name is given one that another peer has claimed: 0, then a
/// count that a stranger can find out.
TEST_F(zmq_hostile_test, only_a_session_s_own_credential_gets_in_and_only_once) {
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
    for (std::uint32_t guess = 0; guess < 8; ++guess) {
        raw_socket claims{ZMQ_DEALER};
        std::array<std::byte, 5> name{};
        std::memcpy(name.data() + 1, &guess, sizeof guess);
        claims.show(name);
        claims.log_in(guess, {});
        EXPECT_EQ(claims.connect(told), refused);
    }
    raw_socket replay{ZMQ_DEALER};
    EXPECT_EQ(replay.join(told, token), refused) << "it is in use";
    peer->send(request_of(0, 0));
    EXPECT_EQ(next(*server_events).kind, event_kind::arrived);
    peer.reset();
    raw_socket again{ZMQ_DEALER};
    EXPECT_EQ(again.join(told, token), refused) << "it was in use";
}

TEST_F(zmq_hostile_test, a_credential_works_at_its_own_server_until_its_session_is_closed) {
    core::session_token own{};
    own.fill(std::byte{9});
    auto unused = open_server_link({1, 64, 64}, own, this);
    unused->activate();
    const auto told = unused->describe();
    auto misled = parse_server(told);
    auto first_events = std::move(server_events);
    listen();
    auto other = open_server_link({1, 64, 64}, token, this);
    misled->port = parse_server(other->describe())->port;
    raw_socket client{ZMQ_DEALER};
    EXPECT_EQ(client.join(encode(*misled), own), refused);
    other.reset();
    server_events = std::move(first_events);
    EXPECT_TRUE(eventually([&] { return unused->close(); }));
    raw_socket late{ZMQ_DEALER};
    EXPECT_EQ(late.join(told, own), refused);
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

TEST_F(zmq_hostile_keyed_test, a_key_attaches_once_and_to_one_session) {
    EXPECT_EQ(join(*key_pair::make()), refused) << "another key";
    raw_socket claims{ZMQ_DEALER};
    claims.log_in(0, token);
    claims.show(std::array{std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0}, std::byte{1}});
    EXPECT_NE(claims.connect(server->describe()), let_in) << "no key";
    raw_socket nameless{ZMQ_DEALER};
    EXPECT_NE(nameless.connect(server->describe()), let_in) << "nothing";
    core::link_config config;
    config.role = core::link_role::server;
    config.geometry = {1, 64, 64};
    config.receive = make_slots(1, 64);
    config.send = make_slots(1, 64);
    auto second = server_events->open_link(config);
    ASSERT_TRUE(second.ok());
    const auto described = encode(client_description{own.public_key()});
    EXPECT_EQ((*second)->attach({0, {}, {}, described}, core::never).code(), status::protocol_error) << "of another";
    EXPECT_EQ(join(own), let_in);
    peer->send(request_of(0, 10), 10);
    EXPECT_EQ(next(*server_events).kind, event_kind::arrived);
    EXPECT_EQ(join(own), refused) << "again";
    EXPECT_TRUE(eventually([&] { return server->close(); }));
    EXPECT_EQ(join(own), refused) << "its session is closed";
}

class zmq_hostile_server_test : public zmq_test {
  protected:
    void SetUp() override { start(); }
    void start() {
        client.reset();
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

TEST_F(zmq_hostile_server_test, a_response_that_no_correct_server_sends_ends_the_link) {
    const std::vector<handmade> bad{
        {"another version", [](slot_header& h) { h.version = 2; }, 100, {}, status::version_mismatch},
        {"a request", [](slot_header& h) { h.kind = message_kind::request; }, 100},
        {"a slot beyond the last", [](slot_header& h) { h.slot = 2; }, 100},
        {"a byte too few", [](slot_header&) {}, 99},
        {"a payload longer than its slot", [](slot_header& h) { h.length = 4'097; }, 4'097},
        {"a second response", nullptr, 100},
    };
    for (const handmade& each : bad) {
        SCOPED_TRACE(each.name);
        start();
        ASSERT_EQ(send(*client, message_kind::request, 0, {}), status::ok);
        take_request();
        slot_header header = response_of(0, 100);
        if (each.change == nullptr) {
            answer(header, 100);
            ASSERT_EQ(next(*events).kind, event_kind::arrived);
        } else {
            each.change(header);
        }
        answer(header, each.payload);
        const link_event event = next(*events);
        EXPECT_EQ(event.kind, event_kind::lost);
        EXPECT_EQ(event.reason, each.why) << to_string(event.reason);
        EXPECT_EQ(send(*client, message_kind::request, 1, {}), status::peer_lost);
    }
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

TEST_F(zmq_full_server_test, no_answer_is_shown_while_zeromq_holds_its_request_and_closing_does_not_wait) {
    ASSERT_FALSE(client->retract(0)) << "ZeroMQ cannot have sent all of it";
    answer(response_of(0, 8), 8);
    std::array<link_event, 16> some;
    EXPECT_FALSE(tests::within(200ms, [&] { return events->poll(some) > 0; }));
    EXPECT_FALSE(client->retract(0));
    EXPECT_TRUE(eventually([&] { return client->close(); }));
}

}  // namespace
}  // namespace accel::zmq::testing
