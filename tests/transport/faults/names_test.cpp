// SPDX-License-Identifier: Apache-2.0
// Names of hosts that nobody resolves: whoever waits for one keeps its own deadline.
#include "conformance/rig.hpp"
#include "faults/few_threads.hpp"
#include "faults/silent_names.hpp"
#include "loopback.hpp"

#include <chrono>
#include <cstdlib>
#include <future>
#include <optional>
#include <string>
#include <utility>

#include <sys/wait.h>
#include <unistd.h>

namespace accel::faults {
namespace {

using namespace tests;

/// The most threads that look up names.
constexpr std::size_t most_lookups = 16;

class silent_names : public on_every_backend {
  protected:
    void SetUp() override {
        if (!GetParam().network || GetParam().scheme == "shm") GTEST_SKIP() << "its names are not hosts";
    }
    void TearDown() override {
        allow_all_threads();
        speak();
    }
    /// What `act` says, unless it waits for the name server.
    template <class Act>
    static auto without_waiting(Act&& act) -> std::optional<decltype(act())> {
        auto done = std::async(std::launch::async, std::forward<Act>(act));
        const bool in_time = done.wait_for(until_hung()) == std::future_status::ready;
        EXPECT_TRUE(in_time) << "it waits for a name server that does not answer";
        if (!in_time) speak();
        auto said = done.get();
        return in_time ? std::optional{std::move(said)} : std::nullopt;
    }
    /// The rig's URI by another host.
    static std::string by_name(const rig& r, const std::string& name) {
        const std::string& uri = r.uri();
        return uri.substr(0, uri.find("//") + 2) + name + uri.substr(uri.rfind(':'));
    }
    static channel_options brief(std::chrono::nanoseconds timeout = 50ms) {
        channel_options options = calm_client();
        options.connect_timeout = timeout;
        return options;
    }
};

TEST_P(silent_names, a_connect_to_a_silent_name_ends_at_its_deadline) {
    rig r(GetParam());
    answer_name("silent.test", name_answer::silence);
    const auto said = without_waiting([&] { return channel::connect(r.ctx(), by_name(r, "silent.test"), brief()); });
    ASSERT_TRUE(said);
    EXPECT_EQ(said->code(), status::timed_out);
    EXPECT_NE(said->error().message.find("silent.test"), std::string::npos) << said->error().message;
    EXPECT_TRUE(eventually(until_hung(), [] { return waiting_for_names() == 1; }));
}

TEST_P(silent_names, a_silent_name_leaves_time_for_the_next_host) {
    rig r(GetParam());
    answer_name("silent.test", name_answer::silence);
    answer_name("good.test", name_answer::loopback);
    const std::string good = by_name(r, "good.test");
    const std::string both = by_name(r, "silent.test") + "," + good.substr(good.find("//") + 2);
    const auto said = without_waiting([&] { return channel::connect(r.ctx(), both, brief(patience(10s))); });
    ASSERT_TRUE(said);
    EXPECT_EQ(said->code(), status::ok) << said->error().message;
}

TEST_P(silent_names, a_silent_name_does_not_delay_the_end_of_a_reconnecting_channel) {
    rig r(GetParam());
    answer_name("name.test", name_answer::loopback);
    channel_options options = brief(std::chrono::hours{1});
    options.reconnect = true;
    auto made = channel::connect(r.ctx(), by_name(r, "name.test"), options);
    ASSERT_TRUE(made) << made.error().message;
    std::optional<channel> client(std::move(made).value());
    ASSERT_TRUE(client->call({}).ok());
    answer_name("name.test", name_answer::silence);
    r.destroy_server();
    completion none;
    ASSERT_TRUE(eventually(until_hung(), [&] {
        (void)client->poll({&none, 1});
        return waiting_for_names() > 0;
    }));
    EXPECT_TRUE(without_waiting([&] {
        client.reset();
        return true;
    }));
}

TEST_P(silent_names, silent_names_take_few_threads) {
    context ctx = quiet_context();
    const std::string scheme = GetParam().scheme + "://";
    for (int i = 0; i < 8; ++i) {
        answer_name("same.test", name_answer::silence);
        const auto said = without_waiting([&] { return channel::connect(ctx, scheme + "same.test:1", brief(1ms)); });
        ASSERT_TRUE(said);
        EXPECT_EQ(said->code(), status::timed_out);
    }
    EXPECT_LE(most_waiting_for_names(), 1U) << "one name needs one thread";
    for (std::size_t i = 0; i < 2 * most_lookups; ++i) {
        const std::string name = "name" + std::to_string(i) + ".test";
        answer_name(name, name_answer::silence);
        const auto said = without_waiting([&] { return channel::connect(ctx, scheme + name + ":1", brief(1ms)); });
        ASSERT_TRUE(said);
        EXPECT_EQ(said->code(), status::timed_out);
    }
    EXPECT_TRUE(eventually(until_hung(), [] { return waiting_for_names() == most_lookups; }));
    EXPECT_EQ(most_waiting_for_names(), most_lookups);
    speak();
    rig r(GetParam());
    answer_name("good.test", name_answer::loopback);
    EXPECT_TRUE(channel::connect(r.ctx(), by_name(r, "good.test"), calm_client()).ok());
}

TEST_P(silent_names, connect_retry_resolves_a_name_again) {
    rig r(GetParam());
    answer_name("late.test", name_answer::loopback, 1);
    const auto once = channel::connect(r.ctx(), by_name(r, "late.test"), calm_client());
    ASSERT_FALSE(once);
    EXPECT_EQ(once.code(), status::peer_lost) << once.error().message;
    answer_name("late.test", name_answer::loopback, 2);
    channel_options options = calm_client();
    options.connect_retry = until_hung();
    const auto again = channel::connect(r.ctx(), by_name(r, "late.test"), options);
    EXPECT_TRUE(again.ok());
}

/// With all that it listens for.
TEST_P(silent_names, a_server_listens_at_each_address_of_its_name) {
    if (!GetParam().sockets || !has_ipv6()) GTEST_SKIP() << "it has no addresses of both families";
    answer_name("both.test", name_answer::both);
    const std::string scheme = GetParam().scheme;
    context ctx = quiet_context();
    auto served = server::listen(ctx, {scheme + "://both.test:0"}, echo, calm_server());
    ASSERT_TRUE(served) << served.error().message;
    const std::string at = served->endpoints().front();
    for (const char* host : {"both.test", "[::1]"}) {
        const std::string uri = scheme + "://" + host + at.substr(at.rfind(':'));
        auto client = channel::connect(ctx, uri, calm_client());
        ASSERT_TRUE(client) << uri << ": " << client.error().message;
        EXPECT_TRUE(client->call({}).ok()) << uri;
    }
}

TEST_P(silent_names, an_unknown_name_is_an_invalid_argument) {
    rig r(GetParam());
    const auto unknown = channel::connect(r.ctx(), by_name(r, "unknown.test"), calm_client());
    ASSERT_FALSE(unknown);
    EXPECT_EQ(unknown.code(), status::invalid_argument);
    EXPECT_NE(unknown.error().message.find("check the name"), std::string::npos) << unknown.error().message;
}

TEST_P(silent_names, a_lookup_without_a_thread_is_a_system_error) {
    rig r(GetParam());
    ASSERT_TRUE(r.try_connect().ok());
    answer_name("good.test", name_answer::loopback);
    allow_more_threads(0);
    const auto said = channel::connect(r.ctx(), by_name(r, "good.test"), calm_client());
    ASSERT_FALSE(said);
    EXPECT_EQ(said.code(), status::system_error);
    EXPECT_NE(said.error().message.find("ulimit -u"), std::string::npos) << said.error().message;
    allow_all_threads();
    EXPECT_TRUE(channel::connect(r.ctx(), by_name(r, "good.test"), calm_client()).ok());
}

TEST_P(silent_names, a_silent_name_does_not_delay_the_end_of_the_process) {
    const std::string uri = GetParam().scheme + "://silent.test:1";
    const pid_t child = ::fork();
    if (child == 0) {
        static std::optional<context> ctx(context::open({.log = log_level::off}).value());
        answer_name("silent.test", name_answer::silence);
        const auto said = channel::connect(*ctx, uri, brief());
        const bool waits = eventually(until_hung(), [] { return waiting_for_names() == 1; });
        std::exit(said.code() == status::timed_out && waits ? 7 : 1);
    }
    int ended = 0;
    const bool in_time = eventually(until_hung(), [&] { return ::waitpid(child, &ended, WNOHANG) == child; });
    if (!in_time) ::kill(child, SIGKILL);
    ASSERT_TRUE(in_time);
    EXPECT_TRUE(WIFEXITED(ended)) << "signal " << WTERMSIG(ended);
    EXPECT_EQ(WEXITSTATUS(ended), 7);
}

ACCEL_INSTANTIATE(silent_names, all_backends);

}  // namespace
}  // namespace accel::faults
