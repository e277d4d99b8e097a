#include "unit/zmq_pair.hpp"

namespace accel::zmq::testing {
namespace {

/// A peer by hand: a DEALER that shows any identity, or a ROUTER that a client is sent to.
class raw_socket {
  public:
    raw_socket(core::context_state& context, int type) {
        auto opened = core::zmq_socket::open(context.zmq(), type);
        EXPECT_TRUE(opened.ok());
        socket_ = std::move(*opened);
        socket_.set(ZMQ_RCVTIMEO, 10'000);
    }
    void connect(const core::link_description& told, const core::session_token& token) {
        client_identity identity;
        std::uint16_t port = 0;
        std::memcpy(&port, told.data() + 2, sizeof port);
        std::memcpy(&identity.index, told.data() + 4, sizeof identity.index);
        std::memcpy(identity.token, token.data(), token.size());
        zmq_setsockopt(socket_.get(), ZMQ_ROUTING_ID, &identity, sizeof identity);
        ASSERT_TRUE(socket_.connect("tcp://127.0.0.1:" + std::to_string(port)));
    }
    void send(std::span<const std::byte> bytes, bool more = false) {
        EXPECT_GE(zmq_send(socket_.get(), bytes.data(), bytes.size(), more ? ZMQ_SNDMORE : 0), 0);
    }
    void send(const slot_header& header, std::size_t payload = 0, bool more = false) {
        std::vector<std::byte> frame(sizeof header + payload);
        std::memcpy(frame.data(), &header, sizeof header);
        send(frame, more);
    }
    [[nodiscard]] core::zmq_socket& socket() { return socket_; }

  private:
    core::zmq_socket socket_;
};

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
        peer = std::make_unique<raw_socket>(*context, ZMQ_DEALER);
        peer->connect(server->describe(), token);
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

TEST_F(zmq_hostile_test, extensions_that_are_missing_end_the_link) {
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

TEST_F(zmq_hostile_test, more_than_the_slot_holds_ends_the_link) {
    peer->send(request_of(0, 4'097), 4'097);
    expect_lost(status::protocol_error);
}

TEST_F(zmq_hostile_test, a_length_that_is_not_true_ends_the_link) {
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
    EXPECT_TRUE(std::equal(before.begin(), before.end(), first.payload.begin()))
        << "the first stays readable";
}

TEST_F(zmq_hostile_test, a_response_sent_as_a_request_ends_the_link) {
    slot_header response = request_of(0, 0);
    response.kind = message_kind::response;
    peer->send(response);
    expect_lost(status::protocol_error);
}

TEST_F(zmq_hostile_test, identities_that_were_never_given_are_dropped_and_logged) {
    const core::testing::log_capture capture;
    auto guessed = token;
    guessed[15] ^= std::byte{1};
    raw_socket stranger{*context, ZMQ_DEALER};
    stranger.connect(server->describe(), guessed);
    stranger.send(request_of(0, 0));
    raw_socket nameless{*context, ZMQ_DEALER};
    std::uint16_t port = 0;
    std::memcpy(&port, server->describe().data() + 2, sizeof port);
    ASSERT_TRUE(nameless.socket().connect("tcp://127.0.0.1:" + std::to_string(port)));
    nameless.send(request_of(0, 0));
    EXPECT_TRUE(silent(*server_events));
    EXPECT_NE(capture.text().find("session token"), std::string::npos);
    peer->send(request_of(0, 0));
    EXPECT_EQ(next(*server_events).kind, event_kind::arrived);
}

TEST_F(zmq_hostile_test, a_token_that_is_in_use_does_not_attach_again) {
    peer->send(request_of(0, 0));
    EXPECT_EQ(next(*server_events).kind, event_kind::arrived);
    raw_socket replay{*context, ZMQ_DEALER};
    replay.connect(server->describe(), token);
    replay.send(request_of(1, 0));
    EXPECT_TRUE(silent(*server_events));
    peer->send(request_of(1, 0));
    EXPECT_EQ(next(*server_events).header.slot, 1U);
}

TEST_F(zmq_hostile_test, a_token_of_a_session_that_is_over_does_not_attach) {
    const core::testing::log_capture capture;
    const auto told = server->describe();
    peer->send(request_of(0, 0));
    EXPECT_EQ(next(*server_events).kind, event_kind::arrived);
    EXPECT_TRUE(eventually([&] { return server->close(); }));
    peer.reset();
    auto successor_token = token;
    successor_token[0] = std::byte{99};
    const auto successor = open_server_link({2, 64, 64}, successor_token, nullptr);
    successor->activate();
    EXPECT_EQ(successor->describe(), told) << "the index is used again, the token is not";
    // Until ZeroMQ has noticed that the first owner of the name left, it drops a second one by itself.
    EXPECT_TRUE(eventually([&] {
        raw_socket replay{*context, ZMQ_DEALER};
        replay.connect(told, token);
        replay.send(request_of(0, 0));
        EXPECT_TRUE(silent(*server_events));
        return capture.text().find("no longer") != std::string::npos;
    }));
}

TEST_F(zmq_hostile_test, a_client_that_left_cannot_be_answered) {
    peer->send(request_of(0, 0));
    EXPECT_EQ(next(*server_events).kind, event_kind::arrived);
    server->consumed(0);
    peer.reset();
    std::uint32_t generation = 1;
    EXPECT_TRUE(eventually(
        [&] { return send(*server, message_kind::response, 0, {}, ++generation) == status::peer_lost; }));
}

TEST_F(zmq_hostile_test, random_frames_end_links_but_not_the_server) {
    std::minstd_rand random{5};
    std::array<link_event, 16> events;
    for (std::uint8_t round = 0; round < 100; ++round) {
        core::session_token own{};
        own.fill(static_cast<std::byte>(round + 100));
        auto target = open_server_link({2, 4'096, 64}, own, this);
        target->activate();
        raw_socket sender{*context, ZMQ_DEALER};
        sender.connect(target->describe(), own);
        for (int i = 0; i < 5; ++i) {
            slot_header header = request_of(random() % 2, random() % 200);
            auto* bytes = reinterpret_cast<unsigned char*>(&header);
            if (random() % 2 == 0) bytes[random() % sizeof header] = static_cast<unsigned char>(random());
            sender.send(header, random() % 200, random() % 4 == 0 && i < 4);
        }
        const auto until = core::deadline_after(3ms);
        while (core::now() < until) {
            const std::size_t count = server_events->poll(events);
            for (std::size_t i = 0; i < count; ++i) {
                if (events[i].kind == event_kind::arrived) target->consumed(events[i].header.slot);
            }
        }
        EXPECT_TRUE(eventually([&] { return target->close(); }));
    }
    peer->send(request_of(0, 0));
    EXPECT_EQ(next(*server_events).kind, event_kind::arrived);
}

class zmq_hostile_server_test : public zmq_test {
  protected:
    void SetUp() override {
        client_security = *core::load_client_security(insecure());
        far = std::make_unique<raw_socket>(*context, ZMQ_ROUTER);
        ASSERT_TRUE(far->socket().bind("tcp://127.0.0.1:*"));
        core::poller_options options;
        options.security = client_security;
        events = std::move(*backend->open_poller(options));
        core::link_config config;
        config.geometry = {2, mebibytes, 4'096};
        config.send = make_slots(2, mebibytes);
        config.receive = make_slots(2, 4'096);
        client = std::move(*events->open_link(config));
        core::link_description told(8);
        const std::uint16_t port = far->socket().bound_port();
        told[0] = std::byte{1};
        std::memcpy(told.data() + 2, &port, sizeof port);
        auto attached = client->attach({0, {}, "127.0.0.1", told}, core::deadline_after(patience));
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
    std::unique_ptr<raw_socket> far;
    std::string who;
    std::unique_ptr<core::poller> events;
    std::unique_ptr<core::link> client;
};

TEST_F(zmq_hostile_server_test, more_than_the_slot_holds_ends_the_link) {
    ASSERT_EQ(send(*client, message_kind::request, 0, {}), status::ok);
    take_request();
    answer(response_of(0, 4'097), 4'097);
    const link_event event = next(*events);
    EXPECT_EQ(event.kind, event_kind::lost);
    EXPECT_EQ(event.reason, status::protocol_error);
    EXPECT_EQ(send(*client, message_kind::request, 1, {}), status::peer_lost);
}

TEST_F(zmq_hostile_server_test, much_more_than_the_slot_holds_is_not_even_received) {
    ASSERT_EQ(send(*client, message_kind::request, 0, {}), status::ok);
    take_request();
    answer(response_of(0, 100'000), 100'000);
    std::array<link_event, 16> some;
    EXPECT_TRUE(eventually([&] {
        return events->poll(some) > 0 ? some[0].kind == event_kind::lost
                                      : (static_cast<void>(events->arm()), false);
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
        for (int i = 0; i < 2'000; ++i) {
            if (events->poll(some) > 0) return some[0].kind == event_kind::lost;
        }
        return false;
    }));
}

TEST_F(zmq_hostile_server_test, an_answer_before_the_question_has_left_gives_nothing_back_too_early) {
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

TEST_F(zmq_hostile_server_test, closing_gives_lent_memory_back_though_the_server_takes_nothing) {
    auto opened = accel::context::open();
    auto held = opened->allocate(mebibytes);
    ASSERT_TRUE(held.ok());
    ASSERT_EQ(send_lent(*client, message_kind::request, 0, held->whole()), status::ok);
    EXPECT_TRUE(eventually([&] { return client->close(); }));
}

}  // namespace
}  // namespace accel::zmq::testing
