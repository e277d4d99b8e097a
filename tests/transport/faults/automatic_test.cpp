// SPDX-License-Identifier: Apache-2.0
// `auto://` where the best scheme that both ends offer does not connect.
#include "conformance/rig.hpp"
#include "faults/failing_calls.hpp"
#include "loopback.hpp"

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include <unistd.h>

namespace accel::faults {
namespace {

using namespace tests;

/// A server over `shm` and `tcp`. A client of this host takes `shm`.
struct automatic : ::testing::Test {
    explicit automatic(const server_options& options = calm_server()) : served(listen(ctx, options)) {}
    static server listen(context& ctx, const server_options& options) {
        const std::vector<std::string> both{"tcp://" + own_loopback() + ":0",
                                            "shm://automatic-" + std::to_string(::getpid())};
        return server::listen(ctx, both, echo, options).value();
    }
    context ctx = quiet_context();
    server served;
    const std::string uri = "auto" + served.endpoints().front().substr(std::string{"tcp"}.size());

    /// The client's end of `shm` cannot take the server's memory. No other call of its thread is like this one.
    static const failure& no_shared_memory() {
        return *std::ranges::find_if(
            all_failures(), [](const failure& each) { return each.call == "recvmsg" && each.number == ECONNRESET; });
    }
};

TEST_F(automatic, takes_the_next_scheme_and_says_why) {
    fail_call(no_shared_memory(), 0, whose::calling_threads);
    auto client = channel::connect(ctx, uri, calm_client());
    ASSERT_TRUE(stop_failing_calls());
    ASSERT_TRUE(client) << client.error().message;
    EXPECT_EQ(client->scheme(), "tcp");
    EXPECT_NE(client->why().find("not shm: "), std::string::npos) << client->why();
    EXPECT_TRUE(client->call({}).ok());
    EXPECT_TRUE(eventually(until_hung(), [&] { return served.statistics().sessions == 1; }));
}

struct automatic_for_one : automatic {
    automatic_for_one() : automatic(one_session()) {}
    static server_options one_session() {
        server_options options = calm_server();
        options.max_sessions = 1;
        return options;
    }
};

TEST_F(automatic_for_one, leaves_the_failed_scheme_before_it_takes_the_next) {
    fail_call(no_shared_memory(), 0, whose::calling_threads);
    auto client = channel::connect(ctx, uri, calm_client());
    ASSERT_TRUE(stop_failing_calls());
    ASSERT_TRUE(client) << client.error().message;
    EXPECT_EQ(client->scheme(), "tcp");
}

TEST_F(automatic, takes_the_best_scheme_the_next_time) {
    fail_call(no_shared_memory(), 0, whose::calling_threads);
    (void)channel::connect(ctx, uri, calm_client());
    ASSERT_TRUE(stop_failing_calls());
    auto client = channel::connect(ctx, uri, calm_client());
    ASSERT_TRUE(client) << client.error().message;
    EXPECT_EQ(client->scheme(), "shm");
    EXPECT_EQ(client->why().find("not shm: "), std::string::npos) << client->why();
}

TEST_F(automatic, does_not_try_others_where_the_server_refuses) {
    EXPECT_EQ(served.drain(until_hung()), status::ok);
    auto client = channel::connect(ctx, uri, calm_client());
    EXPECT_EQ(client.code(), status::overloaded);
    EXPECT_EQ(served.statistics().sessions_refused, 1U);
}

}  // namespace
}  // namespace accel::faults
