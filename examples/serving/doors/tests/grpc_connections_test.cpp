// SPDX-License-Identifier: Apache-2.0
// Connections of the gRPC door: how many there are, which one ends for a newcomer, and signs of life.
#include "error_output.hpp"
#include "grpc_requests.hpp"
#include "sanitizers.hpp"
#include "serving/doors/clients/line.hpp"

#include <csignal>
#include <deque>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

namespace accel::examples::serving::doors::tests {
namespace {

TEST(grpc_connections, a_connection_without_calls_ends) {
    const door_rig door{{"--idle-timeout", "1s"}};
    grpc_client one{door.grpc()};
    ASSERT_EQ(one.infer("double", 9), ok);
    EXPECT_TRUE(one.closed(10s));
}

/// Sends bytes, and waits for others.
struct plain_talk {
    std::string out;
    std::string in{};

    [[nodiscard]] std::string_view unsent() const { return out; }
    void sent(std::size_t count) { out.erase(0, count); }
    [[nodiscard]] bool take(std::string_view arrived) {
        in += arrived;
        return true;
    }
};

TEST(grpc_connections, a_client_with_wrong_headers_causes_no_log_lines) {
    using std::string_literals::operator""s;
    const accel::tests::error_output said;
    const door_rig door;
    const std::string settings = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"s;
    const std::string headers = "\0\0\12\1\5\0\0\0\1\0\7:method\0"s;
    const std::string ping = "\0\0\10\6\0\0\0\0\0 a ping "s;
    plain_talk talk{settings + headers + ping};
    auto line = clients::line::connect(door.grpc());
    ASSERT_TRUE(line);
    EXPECT_TRUE(
        clients::go_on(*line, talk, std::chrono::minutes{1}, [&] { return talk.in.find(" a ping ") != talk.in.npos; }));
    EXPECT_EQ(said.text(), "");
}

/// Clients that say nothing, as many as a full door has and more.
std::vector<clients::line> silent_lines(const door_rig& door, std::size_t count) {
    std::vector<clients::line> out;
    for (std::size_t i = 0; i < count; ++i) {
        auto one = clients::line::connect(door.grpc());
        if (one) out.push_back(std::move(*one));
    }
    EXPECT_EQ(out.size(), count);
    return out;
}

TEST(grpc_connections, a_new_client_is_served_while_silent_connections_fill_the_door) {
    const door_rig door{{"--max-connections", "64", "--address-connections", "1000", "--handshake-timeout", "600s"}};
    const auto silent = silent_lines(door, 200);
    for (int i = 0; i < 10; ++i) {
        grpc_client one{door.grpc()};
        ASSERT_EQ(one.infer("double", 1), ok) << one.wire().sentence();
    }
}

TEST(grpc_connections, a_connection_with_a_call_is_not_closed_for_a_new_client) {
    const door_rig door{{"--max-connections", "8", "--address-connections", "1000", "--handshake-timeout", "600s",
                         "--idle-timeout", "600s", "--body-rate", "0", "--body-timeout", "600s"}};
    const auto busy = slow_client(door, infer);
    const auto stream = std::make_unique<grpc_client>(door.grpc());
    stream->wire().open(method("ModelStreamInfer"));
    ASSERT_TRUE(ask_in_stream(*stream));
    grpc_client idle{door.grpc()};
    ASSERT_EQ(idle.infer("double", 1), ok);
    const auto silent = silent_lines(door, 100);
    EXPECT_TRUE(idle.closed(60s)) << "one without a call ends";
    EXPECT_TRUE(ask_in_stream(*stream));
    busy->wire().send(framed(infer_request{}.message()).substr(begun_bytes), true);
    ASSERT_TRUE(busy->finish());
    EXPECT_EQ(busy->wire().code(), ok) << busy->wire().sentence();
}

TEST(grpc_connections, requests_sent_while_the_door_is_stopped_are_served) {
    const door_rig door{{"--max-connections", "16", "--address-connections", "1000", "--handshake-timeout", "600s"}};
    std::vector<std::unique_ptr<grpc_client>> clients;
    for (int i = 0; i < 8; ++i) {
        clients.push_back(std::make_unique<grpc_client>(door.grpc()));
        ASSERT_EQ(clients.back()->infer("double", 1), ok);
    }
    std::this_thread::sleep_for(2s);  // longer than a connection without a call is left alone
    ASSERT_EQ(::kill(door.id(), SIGSTOP), 0);
    for (const auto& each : clients) {
        each->wire().open(method("ServerLive"));  // the server has given the door up meanwhile
        each->wire().send(framed(""), true);
        EXPECT_TRUE(each->flush());
    }
    const auto silent = silent_lines(door, 100);
    std::this_thread::sleep_for(500ms);
    ASSERT_EQ(::kill(door.id(), SIGCONT), 0);
    for (const auto& each : clients) {
        EXPECT_TRUE(each->finish());
        EXPECT_EQ(each->wire().code(), ok) << each->wire().sentence();
    }
}

TEST(grpc_connections, an_address_gets_only_its_share_of_the_connections) {
    const door_rig door{
        {"--max-connections", "100", "--address-connections", "2", "--body-rate", "0", "--body-timeout", "600s"}};
    const auto first = slow_client(door, infer);
    const auto second = slow_client(door, infer);
    grpc_client third{door.grpc()};
    EXPECT_TRUE(third.closed(60s)) << "the others have calls";
    for (const auto& each : {first.get(), second.get()}) {
        each->wire().send(framed(infer_request{}.message()).substr(begun_bytes), true);
        ASSERT_TRUE(each->finish());
        EXPECT_EQ(each->wire().code(), ok) << each->wire().sentence();
    }
}

TEST(grpc_connections, the_longest_idle_connection_of_an_address_ends_at_its_limit) {
    const door_rig door{{"--max-connections", "100", "--address-connections", "4", "--handshake-timeout", "600s",
                         "--idle-timeout", "600s"}};
    grpc_client idle{door.grpc()};
    ASSERT_EQ(idle.infer("double", 1), ok);
    std::vector<clients::line> others;
    bool ended = false;
    for (int i = 0; i < 1000 && !ended; ++i) {
        auto one = clients::line::connect(door.grpc());
        if (one) others.push_back(std::move(*one));
        ended = idle.closed(50ms);
    }
    EXPECT_TRUE(ended);
}

/// Pings, and waits for the answer and `pause`. False: the connection ended.
bool ping_well(grpc_client& one, std::chrono::milliseconds pause) {
    const std::size_t before = one.wire().pings_answered();
    one.wire().ping();
    const auto until = std::chrono::steady_clock::now() + 20s;
    while (one.wire().pings_answered() == before && std::chrono::steady_clock::now() < until)
        if (!one.flush() || one.closed(20ms)) return false;
    return one.wire().pings_answered() > before && !one.closed(pause);
}

TEST(grpc_connections, pings_keep_a_silent_stream_alive) {
    const door_rig door{{"--ping-interval", "50ms"}};
    grpc_client one{door.grpc()};
    one.wire().open(method("ModelStreamInfer"));
    ASSERT_TRUE(ask_in_stream(one));
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(ping_well(one, 100ms)) << i;
    EXPECT_TRUE(ask_in_stream(one));
    grpc_client idle{door.grpc()};
    ASSERT_EQ(idle.infer("double", 1), ok);
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(ping_well(idle, 100ms)) << i;
    EXPECT_EQ(idle.infer("double", 1), ok) << "also without a call";
}

TEST(grpc_connections, pings_that_come_too_soon_end_the_connection) {
    const door_rig door{{"--ping-interval", "600s"}};
    grpc_client one{door.grpc()};
    ASSERT_EQ(one.infer("double", 1), ok);
    int answered = 0;
    while (answered < 10 && ping_well(one, 1ms)) ++answered;
    EXPECT_LE(answered, 4);
}

TEST(grpc_connections, a_silent_client_is_disconnected_with_its_stream) {
    const door_rig door{{"--keepalive-time", "1s", "--keepalive-timeout", "10s"}};
    grpc_client good{door.grpc()};
    grpc_client gone{door.grpc()};
    gone.wire().be_deaf();
    for (grpc_client* each : {&good, &gone}) {
        each->wire().open(method("ModelStreamInfer"));
        ASSERT_TRUE(ask_in_stream(*each));
    }
    bool ended = false;
    const auto until = std::chrono::steady_clock::now() + 60s;
    while ((!ended || good.wire().pings_taken() < 4) && std::chrono::steady_clock::now() < until) {
        ended = ended || gone.closed(1ms);
        ASSERT_TRUE(good.flush() && !good.closed(20ms));
    }
    EXPECT_TRUE(ended);
    EXPECT_GE(good.wire().pings_taken(), 4U) << "silent streams are asked again and again";
    EXPECT_TRUE(ask_in_stream(good));
}

/// Of a process in memory.
std::size_t resident_mib(pid_t process) {
    std::ifstream from{"/proc/" + std::to_string(process) + "/statm"};
    std::size_t all = 0;
    std::size_t resident = 0;
    from >> all >> resident;
    return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) >> 20;
}

/// A door that forgets them as fast as they come has no need to end it.
TEST(grpc_connections, a_flood_of_resets_ends_its_connection) {
    const door_rig door;
    const std::size_t before = resident_mib(door.id());
    grpc_client good{door.grpc()};
    ASSERT_EQ(good.infer("double", 1), ok);
    std::deque<grpc_client> quiet;  // more than the door asks gRPC about at once
    for (int n = 0; n < 100; ++n) ASSERT_EQ(quiet.emplace_back(door.grpc()).infer("double", 1), ok);
    grpc_client bad{door.grpc()};
    bool open = true;
    bool stays = true;
    const auto answer_pings = [&] { stays = stays && good.flush() && !good.closed(1ms); };
    for (int n = 1; open && n <= 100'000; ++n) {
        bad.wire().open(infer);
        bad.wire().reset();
        if (n % 1000 != 0) continue;
        open = bad.flush();
        answer_pings();
    }
    bad.wire().ping();
    const auto until = std::chrono::steady_clock::now() + 300s;
    while (open && bad.wire().pings_answered() == 0 && std::chrono::steady_clock::now() < until) {
        open = bad.flush() && !bad.closed(20ms);
        answer_pings();
    }
    // If it has read all of them, it has forgotten most. AddressSanitizer keeps what was freed.
    const bool is_small = accel::tests::address_sanitizer || resident_mib(door.id()) < before + 512;
    EXPECT_TRUE(!open || is_small) << resident_mib(door.id()) << " MiB";
    EXPECT_TRUE(stays) << "other clients stay";
    EXPECT_EQ(infer_when_free(good, "double", 300s), ok) << "and are served";
}

/// gRPC reads calls faster than it forgets those that were reset: for a while they take hundreds of MiB.
TEST(grpc_connections, reset_calls_release_their_memory) {
    if (accel::tests::address_sanitizer) GTEST_SKIP() << "it keeps what was freed";
    constexpr std::size_t enough = 96;
    const door_rig door;
    const std::size_t before = resident_mib(door.id());
    for (int i = 0; i < 200 && resident_mib(door.id()) < before + 2 * enough; ++i) {
        grpc_client one{door.grpc()};
        for (int n = 0; n < 20'000; ++n) {
            one.wire().open(infer);
            one.wire().reset();
            if (n % 1000 == 999 && !one.flush()) break;
        }
    }
    const auto until = std::chrono::steady_clock::now() + 120s;
    while (resident_mib(door.id()) > before + enough && std::chrono::steady_clock::now() < until)
        std::this_thread::sleep_for(100ms);
    EXPECT_LE(resident_mib(door.id()), before + enough);
    grpc_client other{door.grpc()};
    EXPECT_EQ(infer_when_free(other, "double"), ok) << other.wire().sentence();
}

}  // namespace
}  // namespace accel::examples::serving::doors::tests
