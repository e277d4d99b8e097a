// SPDX-License-Identifier: Apache-2.0
// Too few descriptors, too little memory, nobody who reads the log.
#include "hostile/attacks.hpp"

#include <array>
#include <csignal>
#include <sstream>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace accel::hostile {
namespace {

using tests::eventually;

struct resources : arena {
    /// Greets with and without TLS, and holds on to what it is given.
    [[nodiscard]] attack hoard(std::size_t count) const {
        auto greeting = bytes_of(core::control_greeting);
        return keep_open(stranger_address, count, std::move(greeting));
    }
    /// The data connection of a session.
    [[nodiscard]] unique_fd attach(const core::session_grant& to) const {
        core::data_preamble shown;
        shown.session_id = to.session_id;
        shown.token = to.token;
        unique_fd made = connect_from(stranger_address, server_->where());
        push(made.get(), std::as_bytes(std::span(&shown, 1)));
        return made;
    }
};

TEST_P(resources, strangers_do_not_use_up_256_descriptors) {
    open({}, {"nofile=256"});
    endure(hoard(300), {.threads = 1, .lasts = 1s});
    EXPECT_TRUE(log_.tells(keyed() ? "it has no keys" : "too many control connections")) << log_.text().substr(0, 2000);
}

/// One client opens as many sessions as it may, and strangers take the descriptors that are left.
TEST_P(resources, descriptors_used_up_by_sessions_and_strangers_come_back) {
    // UBSan looks at types through a pipe, and takes sound objects for broken ones where it gets none.
    if (sanitized()) GTEST_SKIP() << "sanitizers open files of their own";
    open({}, {"nofile=64"});
    const auto keys = client_keys();
    std::vector<wire> controls;
    std::vector<unique_fd> data;
    for (int i = 0; i < 80; ++i) {
        auto one = wire::open(stranger_address, server_->where(), keys);
        if (!one || !one->send(core::control_greeting)) break;
        const auto grant = one->open_session(wish());
        if (!grant) break;
        data.push_back(attach(*grant));
        controls.push_back(std::move(*one));
    }
    fmt::print("{} sessions\n", controls.size());
    EXPECT_GT(controls.size(), 8U);
    std::vector<unique_fd> more;
    for (int i = 0; i < 80; ++i) more.push_back(connect_from("127.66.0.3", server_->where()));
    std::this_thread::sleep_for(200ms);
    ASSERT_TRUE(server_->alive()) << log_.text();
    more.clear();
    data.clear();
    controls.clear();
    EXPECT_TRUE(eventually(
        patience(5s), [&] { return server_->counts().sessions == clients_.size(); }, 20ms));
    expect_unharmed();
}

/// A client is a key, or an address where there are none: here the others have another address. What its sessions had
/// is its own again once they end.
TEST_P(resources, one_client_leaves_some_of_256_descriptors_for_others) {
    if (keyed()) GTEST_SKIP() << "all clients of this arena have one key";
    if (sanitized()) GTEST_SKIP() << "sanitizers open files of their own";
    open({}, {"nofile=256"});
    context ctx = *context::open({.log = log_level::off});
    std::size_t before = 0;
    for (int round = 0; round < 3; ++round) {
        std::vector<wire> controls;
        std::vector<unique_fd> data;
        for (int i = 0; i < 8; ++i) {
            auto one = wire::open(stranger_address, server_->where(), client_keys());
            ASSERT_TRUE(one && one->send(core::control_greeting));
            for (int j = 0; j < 40; ++j)
                if (const auto grant = one->open_session(wish())) data.push_back(attach(*grant));
            controls.push_back(std::move(*one));
        }
        EXPECT_LT(data.size(), 8U * 40U);
        EXPECT_GT(data.size(), 64U);
        EXPECT_TRUE(round == 0 || data.size() == before) << data.size() << " sessions, before " << before;
        before = data.size();
        std::vector<channel> others;
        for (int i = 0; i < 8; ++i) {
            channel_options options = client_options();
            options.connect_timeout = patience(20s);
            auto made = channel::connect(ctx, server_->uri(), options);
            ASSERT_TRUE(made) << made.error().message;
            others.push_back(std::move(*made));
        }
        others.clear();
        data.clear();
        controls.clear();
        ASSERT_TRUE(eventually(
            patience(5s), [&] { return server_->counts().sessions == clients_.size(); }, 20ms));
    }
    expect_unharmed();
}

TEST_P(resources, a_server_with_5_to_16_descriptors_fails_or_ends_cleanly) {
    if (sanitized()) GTEST_SKIP() << "sanitizers open files of their own";
    const security_options security = keyed() ? folder_.server() : core::testing::insecure();
    const std::string keys =
        keyed() ? fmt::format("key_file={}&authorized_keys={}", security.key_file, security.authorized_keys)
                : "insecure=true";
    for (const int descriptors : {5, 6, 7, 8, 9, 10, 12, 14, 16}) {
        const std::string uri = fmt::format("tcp://{}:0?{}", tests::own_loopback(), keys);
        const std::vector<std::string> limits{fmt::format("nofile={}", descriptors)};
        try {
            victim starved(uri, limits, log_.fd());
            for (int i = 0; i < 20; ++i) connect_from(stranger_address, starved.where()).reset();
            const auto took = starved.terminate();
            ASSERT_TRUE(took) << descriptors;
            EXPECT_LT(*took, patience(2s));
        } catch (const std::runtime_error&) {
            EXPECT_TRUE(log_.tells("open files")) << descriptors << ": " << log_.text();
        }
    }
}

TEST_P(resources, floods_do_not_use_up_memory) {
    if (time_factor() > 1) GTEST_SKIP() << "sanitizers need the address space";
    open("&max_sessions=4096&max_client_sessions=4096", {"memory_mb=1024"});
    const auto keys = client_keys();
    // Sessions of every size, largest first, until nothing is left to map.
    const auto greedy = [keys](const target& at, const std::atomic<bool>& go) {
        while (go.load()) {
            auto one = wire::open(stranger_address, at, keys);
            if (!one || !one->send(core::control_greeting)) continue;
            for (std::uint64_t size = 64U << 20; size >= 1024 && go.load(); size /= 2) {
                while (go.load() && one->open_session(wish(1, size))) {
                }
            }
            while (go.load() && one->discard()) {
                one->send(control_message{0, core::heartbeat{}});
                std::this_thread::sleep_for(5ms);
            }
        }
    };
    const siege sessions(greedy, server_->where(), 1);
    std::this_thread::sleep_for(700ms);
    {
        const siege strangers(keep_open("127.66.0.2", 1200, {core::tls_first_byte}), server_->where(), 1);
        const siege greeters(keep_open("127.66.0.3", 600, bytes_of(core::control_greeting)), server_->where(), 1);
        std::this_thread::sleep_for(1s);
    }
    EXPECT_TRUE(server_->alive()) << log_.text();
}

TEST_P(resources, an_unread_log_blocks_nothing) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    const unique_fd unread(ends[0]), full(ends[1]);
    ::fcntl(full.get(), F_SETPIPE_SZ, 4096);
    ASSERT_EQ(::dup3(full.get(), log_.fd(), O_CLOEXEC), log_.fd());
    open();
    endure(send_and_leave(stranger_address, {bytes_of("GET / HTTP/1.1\r\n\r\n")}), {.threads = 1, .lasts = 500ms});
    clients_.clear();
    const auto took = server_->terminate();
    ASSERT_TRUE(took);
    EXPECT_LT(*took, patience(2s));
}

TEST_P(resources, sigterm_under_attack_ends_the_server_soon) {
    open();
    const siege attacked(shake_hands(stranger_address, client_keys(keyed() ? "stranger" : "client"), 32),
                         keyed() ? server_->where() : target{"127.0.0.1", 9}, keyed() ? 1 : 0);
    const siege floods(flood(stranger_address, client_keys(), frame(control_message{1, core::query{}})),
                       server_->where(), 1);
    std::this_thread::sleep_for(300ms);
    const auto took = server_->terminate();
    ASSERT_TRUE(took);
    EXPECT_LT(*took, patience(2s));
    clients_.clear();
}

INSTANTIATE_TEST_SUITE_P(hostile, resources, ::testing::Bool(), with_or_without_keys);

/// A client that runs out of descriptors hears so, whatever it needed one for.
struct starving_clients : ::testing::TestWithParam<std::string> {};

TEST_P(starving_clients, clients_without_descriptors_get_a_typed_error) {
    if (sanitized()) GTEST_SKIP() << "sanitizers open files of their own";
    victim server(listen_uri(GetParam()) + "?insecure=true", {}, -1);
    tests::peer_process starved(ACCEL_HOSTILE_PEER, {"starve", server.uri() + "?insecure=true"});
    int refused = 0, served = 0;
    for (;;) {
        std::istringstream line(starved.line(patience(20s)));
        std::string descriptors, outcome, rest;
        line >> descriptors >> outcome;
        std::getline(line, rest);
        if (descriptors == "done") {
            EXPECT_EQ(outcome, "ok") << rest;
            break;
        }
        const bool ok = outcome == "ok";
        const bool named = outcome == "system_error:" && rest.find("open files") != std::string::npos;
        EXPECT_TRUE(ok || named) << descriptors << " descriptors: " << outcome << rest;
        (ok ? served : refused) += 1;
    }
    fmt::print("{}: served with {} of 24 numbers of descriptors, refused with {}\n", GetParam(), served, refused);
    EXPECT_GT(refused, 3);
    EXPECT_EQ(starved.join(patience(10s)), 0);
}

INSTANTIATE_TEST_SUITE_P(hostile, starving_clients, ::testing::Values("tcp", "shm", "zmq", "rdma"),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace accel::hostile
