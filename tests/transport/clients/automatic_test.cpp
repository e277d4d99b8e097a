// SPDX-License-Identifier: Apache-2.0
// `auto://`: a server that lists several schemes, and what a client of this process or this host takes.
#include "client_rig.hpp"

#include <optional>
#include <vector>

#include <unistd.h>

namespace accel::tests {
namespace {

struct automatic : ::testing::Test {
    context ctx = context::open({.log = log_level::off}).value();
    const std::string name = "auto-" + std::to_string(::getpid());

    [[nodiscard]] server serve(std::initializer_list<std::string_view> schemes) {
        server_options own;
        own.security.insecure = true;
        std::vector<std::string> uris{"tcp://" + own_loopback() + ":0"};
        for (const std::string_view each : schemes) uris.push_back(std::string{each} + "://" + name);
        auto made = server::listen(ctx, uris, echo_back, own);
        if (!made) throw std::runtime_error(made.error().message);
        return std::move(*made);
    }
    [[nodiscard]] result<channel> connect(const server& to, const std::string& others = {}) {
        channel_options own;
        own.security.insecure = true;
        own.connect_timeout = patience(5s);
        own.reconnect = !others.empty();
        const std::string place = to.endpoints().front();
        return channel::connect(ctx, "auto" + place.substr(place.find("://")) + others, own);
    }
    static void expect_answers(channel& client) {
        auto answer = client.call(bytes_of("ping"));
        ASSERT_TRUE(answer) << answer.error().message;
        EXPECT_EQ(text_of(answer->response), "ping");
    }
};

TEST_F(automatic, takes_the_nearest_of_the_listed_schemes) {
    struct row {
        std::initializer_list<std::string_view> listed;  ///< beside tcp
        const char* taken;
        const char* why;
    };
    const row all[] = {
        {{}, "tcp", "TCP sockets"},
        {{"shm"}, "shm", "memory shared by processes"},
        {{"shm", "local"}, "local", "same process"},
    };
    for (const row& each : all) {
        const server there = serve(each.listed);
        auto client = connect(there);
        ASSERT_TRUE(client) << client.error().message;
        EXPECT_EQ(client->scheme(), each.taken);
        EXPECT_NE(client->why().find(each.why), std::string::npos) << client->why();
        expect_answers(*client);
    }
}

TEST_F(automatic, reconnects_over_shm_without_asking_the_other_hosts) {
    std::optional<server> there(serve({"shm"}));
    auto client = connect(*there, ",127.0.0.1:1");
    ASSERT_TRUE(client) << client.error().message;
    ASSERT_EQ(client->scheme(), "shm");
    there.reset();
    EXPECT_TRUE(eventually(patience(10s), [&] { return client->poll({}) == 0 && !client->connected(); }));
    there.emplace(serve({"shm"}));
    EXPECT_TRUE(eventually(patience(30s), [&] { return client->poll({}) == 0 && client->connected(); }));
    EXPECT_EQ(client->scheme(), "shm");
    expect_answers(*client);
}

}  // namespace
}  // namespace accel::tests
