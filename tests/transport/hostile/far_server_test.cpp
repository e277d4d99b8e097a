// SPDX-License-Identifier: Apache-2.0
// What a server that means ill can do to a client: the client's calls end with typed errors in time, and its
// memory stays bounded.
#include "hostile/far_server.hpp"

#include <array>
#include <cstring>
#include <fstream>
#include <functional>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace accel::hostile {
namespace {

using core::control_stream;
using core::tls_outcome;
using tests::eventually;

constexpr std::size_t resident_margin = std::size_t{32} << 20;

/// How long a client bears a flood. In sanitized builds, which look at each message and at no memory, a flood shows
/// nothing new after the time that a client needs to get there.
std::chrono::nanoseconds flood_time() {
    return sanitized() ? 1000ms : 500ms;
}

std::size_t own_resident_bytes() {
    std::ifstream file("/proc/self/statm");
    std::size_t all = 0, resident = 0;
    file >> all >> resident;
    return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

struct far_servers : ::testing::Test {
    /// Connects to a server that treats its clients so; checks that this ends in time, and takes little.
    status connect_to(std::function<void(far_end&)> treat, std::chrono::nanoseconds timeout = patience(600ms)) {
        const std::size_t before = own_resident_bytes();
        far_server server(std::move(treat));
        channel_options options;
        options.connect_timeout = timeout;
        options.slots = 2;
        options.request_bytes = options.response_bytes = 4096;
        const auto start = core::now();
        auto made = channel::connect(ctx, server.uri(), options);
        EXPECT_LT(core::now() - start, options.connect_timeout + patience(10s));
        EXPECT_FALSE(made.ok());
        if (made.ok()) return status::ok;
        EXPECT_FALSE(made.error().message.empty());
        if (time_factor() == 1) {
            EXPECT_LT(own_resident_bytes(), before + resident_margin);
        }
        return made.code();
    }
    /// The same with the client's hello, which `reply` answers.
    status answer_hello(std::function<void(far_end&, control_message)> reply,
                        std::chrono::nanoseconds timeout = patience(600ms)) {
        return connect_to(
            [reply = std::move(reply)](far_end& end) {
                if (!end.greeted()) return;
                const auto asked = end.await<core::hello>();
                if (asked) reply(end, *asked);
                end.stay();
            },
            timeout);
    }
    /// The same for a reply that does not end before the client's time; checks that it has begun.
    status flood_hello(std::function<void(far_end&, control_message)> reply) {
        std::atomic<bool> begun{false};
        const status outcome = answer_hello(
            [&begun, reply = std::move(reply)](far_end& end, const control_message& asked) {
                begun.store(true);
                reply(end, asked);
            },
            flood_time());
        EXPECT_TRUE(begun.load());
        return outcome;
    }
    /// Lets the client have its session, and treats the data connection so.
    status answer_data(std::function<void(far_end&)> treat, std::chrono::nanoseconds timeout = tests::until_hung()) {
        return connect_to(
            [treat = std::move(treat)](far_end& end) {
                if (!end.greeted()) return treat(end);
                const auto asked = end.await<core::hello>();
                if (asked) end.say(welcome_to(*asked));
                while (end.await<core::heartbeat>()) end.say(control_message{0, core::heartbeat{}});
            },
            timeout);
    }
    context ctx = *context::open({.log = log_level::off});
};

TEST_F(far_servers, servers_that_say_nothing_sensible_are_typed_errors) {
    struct row {
        const char* says;
        std::function<void(far_end&)> treat;
        status told;
    };
    const auto pours = [](std::vector<std::byte> bytes) {
        return [bytes = std::move(bytes)](far_end& end) { end.pour(bytes); };
    };
    const std::vector<row> all{
        {"nothing", [](far_end& end) { end.stay(); }, status::timed_out},
        {"nothing, and leaves", [](far_end&) {}, status::overloaded},
        {"HTTP", pours(bytes_of("HTTP/1.1 400 Bad Request\r\n\r\n")), status::protocol_error},
        {"zeroes", pours(std::vector<std::byte>(64, std::byte{0})), status::protocol_error},
        {"ones", pours(std::vector<std::byte>(64, std::byte{0xff})), status::protocol_error},
        {"valid frames of nothing known", pours(frame(std::vector<std::byte>(100, std::byte{1}))), status::timed_out},
        {"a frame that never ends",
         [](far_end& end) {
             const std::uint32_t length = 2000;
             end.say(bytes_of({reinterpret_cast<const char*>(&length), sizeof length}));
             end.stay();
         },
         status::timed_out},
    };
    for (const row& each : all) EXPECT_EQ(connect_to(each.treat), each.told) << each.says;
    EXPECT_EQ(answer_hello([](far_end&, const control_message&) {}), status::timed_out) << "no answer to a hello";
}

TEST_F(far_servers, grants_that_differ_from_the_request_are_refused) {
    const auto changed = [this](const std::function<void(core::welcome&)>& change) {
        return answer_hello([change](far_end& end, const control_message& asked) {
            control_message reply = welcome_to(asked);
            change(std::get<core::welcome>(reply.body));
            end.say(reply);
        });
    };
    EXPECT_EQ(changed([](core::welcome& w) { w.grant.granted.slots = 1; }), status::protocol_error);
    EXPECT_EQ(changed([](core::welcome& w) { w.grant.granted.request_bytes += 1; }), status::protocol_error);
    EXPECT_EQ(changed([](core::welcome& w) { w.grant.granted.response_bytes = 0; }), status::protocol_error);
    EXPECT_EQ(changed([](core::welcome& w) { w.grant.session_id = 0; }), status::protocol_error);
    EXPECT_EQ(answer_hello([](far_end& end, const control_message& asked) {
                  auto bytes = core::encode_control(welcome_to(asked));
                  bytes.pop_back();
                  end.say(frame(bytes));
              }),
              status::protocol_error);
    EXPECT_EQ(answer_hello([](far_end& end, const control_message& asked) {
                  end.say(control_message{asked.request, core::refused{status::overloaded, "full"}});
              }),
              status::overloaded);
    // An answer to a question of another kind, or to none.
    EXPECT_EQ(answer_hello([](far_end& end, const control_message& asked) {
                  end.say(control_message{asked.request + 1, core::offers{{"tcp"}}});
              }),
              status::timed_out);
}

TEST_F(far_servers, floods_from_a_server_end_at_the_deadline) {
    const std::vector<control_message> kinds{{0, core::heartbeat{}},
                                             {0, core::goodbye{1234, status::closed}},
                                             {77, core::offers{{"tcp"}}},
                                             {77, core::refused{status::closed, "no"}}};
    for (const control_message& each : kinds)
        EXPECT_EQ(flood_hello([&](far_end& end, const control_message&) { end.pour(frame(each)); }), status::timed_out);
    // Grants that nobody asked for, each of which the client gives back.
    EXPECT_EQ(flood_hello([](far_end& end, const control_message& asked) {
                  control_message extra = welcome_to(asked);
                  extra.request += 1000;
                  end.pour(frame(extra));
              }),
              status::timed_out);
    // The same, without reading what the client says to it.
    EXPECT_EQ(flood_hello([](far_end& end, const control_message& asked) {
                  control_message extra = welcome_to(asked);
                  extra.request += 1000;
                  while (end.go.load() && end.stream.send(extra)) std::this_thread::sleep_for(20us);
              }),
              status::timed_out);
    // Goodbye to all of the connection: the client asks again, until its time is up.
    EXPECT_NE(flood_hello([](far_end& end, const control_message&) {
                  end.pour(frame(control_message{0, core::goodbye{0, status::closed}}));
              }),
              status::ok);
}

TEST_F(far_servers, wrong_answers_to_data_connections_are_typed_errors) {
    EXPECT_EQ(answer_data([](far_end& end) { end.stay(); }, patience(600ms)), status::timed_out);
    EXPECT_EQ(answer_data([](far_end&) {}), status::peer_lost);
    EXPECT_EQ(answer_data([](far_end& end) { end.pour(std::vector<std::byte>(64, std::byte{0xff})); }),
              status::protocol_error);
    EXPECT_EQ(answer_data([](far_end& end) {
                  end.say(core::encode_data_answer(status::unauthorized, "no"));
                  end.stay();
              }),
              status::unauthorized);
    // A flooded port drops connections before it knows whose they are: another is tried.
    std::atomic<int> tries{0};
    const auto third = [&](far_end& end) {
        if (++tries < 3) return;
        end.say(core::encode_data_answer(status::unauthorized, "no"));
        end.stay();
    };
    EXPECT_EQ(answer_data(third), status::unauthorized);
    EXPECT_EQ(tries, 3);
    // The server took the first one, and its answer was lost.
    tries = 0;
    const auto taken = [&](far_end& end) {
        if (++tries < 2) return;
        end.say(core::encode_data_answer(core::no_session_waits, "no"));
        end.stay();
    };
    EXPECT_EQ(answer_data(taken), status::peer_lost);
    EXPECT_EQ(answer_data(taken), status::unauthorized) << "the first one is answered";
    // A sentence that is never finished.
    EXPECT_EQ(answer_data(
                  [](far_end& end) {
                      auto bytes = core::encode_data_answer(status::unauthorized, "a long story");
                      bytes.resize(8);
                      end.say(bytes);
                      end.stay();
                  },
                  patience(600ms)),
              status::timed_out);
}

/// Between a client and its server: passes bytes on, but lies about the server's clock.
class clock_liar {
  public:
    clock_liar(const target& to, std::function<void(core::clock_stamps&)> lie)
        : lie_(std::move(lie)), server_([this, to](far_end& end) { pass(end, to); }) {}
    [[nodiscard]] std::string uri() { return server_.uri(); }

  private:
    void pass(far_end& near, const target& to) const {
        control_stream far(connect_from(client_address, to));
        if (far.fd() < 0) return;
        bool control = false;
        for (bool first = true; near.go.load();) {
            std::array<pollfd, 2> items{{{near.stream.fd(), POLLIN, 0}, {far.fd(), POLLIN, 0}}};
            ::poll(items.data(), items.size(), 20);
            if (!copy(near.stream, far, items[0].revents, first, control)) return;
            if (items[1].revents == 0) continue;
            const auto read = far.fill();
            if (read == tls_outcome::closed || read == tls_outcome::failed) return;
            control ? pass_messages(far, near.stream) : pass_bytes(far, near.stream);
        }
    }
    static bool copy(control_stream& from, control_stream& to, short events, bool& first, bool& control) {
        if (events == 0) return true;
        const auto read = from.fill();
        if (read == tls_outcome::closed || read == tls_outcome::failed) return false;
        const auto bytes = from.received();
        if (std::exchange(first, false) && bytes.size() >= core::greeting_bytes)
            control = std::memcmp(bytes.data(), core::control_greeting.data(), core::greeting_bytes) == 0;
        pass_bytes(from, to);
        return true;
    }
    static void pass_bytes(control_stream& from, control_stream& to) {
        static_cast<void>(to.send_raw(from.received()));
        from.take(from.received().size());
    }
    void pass_messages(control_stream& from, control_stream& to) const {
        while (const auto bytes = from.next_message()) {
            auto message = core::decode_control(*bytes);
            if (!message) continue;
            if (auto* body = std::get_if<core::welcome>(&message->body)) {
                body->boot = {};
                lie_(body->clocks);
            }
            if (auto* body = std::get_if<core::heartbeat>(&message->body)) lie_(body->clocks);
            static_cast<void>(to.send(*message));
        }
    }
    std::function<void(core::clock_stamps&)> lie_;
    far_server server_;
};

TEST_F(far_servers, extreme_clocks_of_a_server_only_cost_time) {
    static constexpr std::chrono::nanoseconds end{(std::int64_t{1} << 62) - 1};
    victim server(fmt::format("tcp://{}:0?insecure=true", tests::own_loopback()), {}, -1);
    const std::vector<std::function<void(core::clock_stamps&)>> lies{
        [](core::clock_stamps& c) { c.received = c.sent = end; },
        [](core::clock_stamps& c) { c.received = c.sent = 0ns; },
        [](core::clock_stamps& c) {
            c = {1ns, 0ns, end}; },
        [](core::clock_stamps& c) {
            c = {end, end, end}; },
        [](core::clock_stamps& c) {
            c = {end, 0ns, 0ns}; },
    };
    for (const auto& lie : lies) {
        clock_liar between(server.where(), lie);
        channel_options options;
        options.connect_timeout = patience(5s);
        options.request_bytes = options.response_bytes = 4096;
        auto made = channel::connect(ctx, between.uri(), options);
        ASSERT_TRUE(made) << made.error().message;
        for (int i = 0; i < 20; ++i) {
            const std::array<std::byte, 32> bytes{};
            submit_options soon;
            soon.timeout = patience(300ms);
            const auto start = core::now();
            const auto called = made->call(bytes, soon);
            EXPECT_LT(core::now() - start, patience(10s));
            EXPECT_TRUE(called.ok() || called.code() == status::timed_out) << called.error().message;
            std::this_thread::sleep_for(10ms);
        }
    }
}

}  // namespace
}  // namespace accel::hostile
