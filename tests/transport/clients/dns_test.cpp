// SPDX-License-Identifier: Apache-2.0
// Servers behind one name (`dns+`): all of its addresses, and what happens when it has others.
#include "client_rig.hpp"
#include "names.hpp"

#include <atomic>
#include <mutex>
#include <random>
#include <stop_token>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

namespace accel::tests {
namespace {

/// Servers of this process at one port of several addresses. Each answers with its letter.
class named_servers : public client_rig {
  protected:
    static constexpr std::size_t most = 4;

    void SetUp() override {
        client_rig::SetUp();
        if (IsSkipped()) return;
        const std::string own = own_loopback();  // 127.a.b.c, b and c below 129
        const std::size_t last = own.rfind('.');
        const std::size_t before = own.rfind('.', last - 1);
        for (std::size_t i = 0; i < most; ++i) {
            const int b = std::stoi(own.substr(before + 1)) + (i % 2 == 0 ? 0 : 128);
            const int c = std::stoi(own.substr(last + 1)) + (i < 2 ? 0 : 127);
            addresses_.push_back(own.substr(0, before + 1) + std::to_string(b) + "." + std::to_string(c));
        }
        name_ = "servers-" + std::to_string(::getpid()) + ".test";
        ASSERT_TRUE(within(patience(30s), [this] { return take_port(); })) << "no port is free at all addresses";
    }
    void start(std::size_t i, handler service = {}) {
        if (!service) service = names_itself(letter(i));
        servers_[i].emplace(serve(at(i), std::move(service)));
    }
    void stop(std::size_t i) {
        servers_[i]->stop();
        servers_[i].reset();
    }
    void name(const std::vector<std::size_t>& which) const {
        std::vector<std::string> addresses;
        for (const std::size_t each : which) addresses.push_back(addresses_[each]);
        let_name_have(name_, addresses);
    }
    [[nodiscard]] std::string uri() const {
        return "dns+" + std::string{GetParam()} + "://" + name_ + ":" + std::to_string(port_);
    }
    [[nodiscard]] std::string at(std::size_t i) const {
        return std::string{GetParam()} + "://" + addresses_[i] + ":" + std::to_string(port_);
    }
    [[nodiscard]] static std::string letter(std::size_t i) { return std::string(1, static_cast<char>('a' + i)); }
    [[nodiscard]] channel_pool pool(const pool_options& limits = {.dns_refresh = 10ms},
                                    const channel_options& options = client_options()) {
        auto made = channel_pool::open(ctx, uri(), options, limits);
        EXPECT_TRUE(made) << made.error().message;
        return std::move(made).value();
    }
    template <class Client>
    [[nodiscard]] static std::string ask(Client& client) {
        auto answer = client.call({});
        return answer ? text_of(answer->response) : answer.error().message;
    }
    [[nodiscard]] std::uint32_t sessions(std::size_t i) { return servers_[i]->statistics().sessions; }

    std::array<std::optional<server>, most> servers_;
    std::vector<std::string> addresses_;
    std::string name_;
    int port_ = 0;

  private:
    [[nodiscard]] std::optional<server> try_at(const std::string& uri) {
        server_options options;
        options.security.insecure = true;
        auto made = server::listen(ctx, {uri}, echo_back, options);
        return made ? std::optional{std::move(*made)} : std::nullopt;
    }
    /// One that is free at all addresses.
    [[nodiscard]] bool take_port() {
        const auto first = try_at(std::string{GetParam()} + "://" + addresses_[0] + ":0");
        if (!first) return false;
        const std::string found = where(*first);
        port_ = std::stoi(found.substr(found.rfind(':') + 1));
        std::vector<std::optional<server>> others;
        for (std::size_t i = 1; i < most; ++i)
            if (!others.emplace_back(try_at(at(i)))) return false;
        return true;
    }
};

TEST_P(named_servers, channel_takes_the_first_address_that_answers) {
    start(1);
    name({0, 1});
    auto made = channel::connect(ctx, uri(), client_options());
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_EQ(ask(*made), "b");
    EXPECT_EQ(made->endpoint(), at(1));
}

TEST_P(named_servers, reconnecting_channel_resolves_the_name_again) {
    start(0);
    name({0});
    channel_options options = client_options();
    options.reconnect = true;
    auto made = channel::connect(ctx, uri(), options);
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_EQ(ask(*made), "a");
    start(1);
    name({1});
    stop(0);
    EXPECT_TRUE(eventually([&] { return ask(*made) == "b"; }));
}

TEST_P(named_servers, each_resolved_server_can_be_connected_to) {
    for (std::size_t i = 0; i < 3; ++i) start(i);
    name({2, 0});
    const auto found = resolve_servers(uri(), until_hung());
    ASSERT_TRUE(found) << found.error().message;
    std::string said;
    for (const std::string& each : *found) {
        auto made = channel::connect(ctx, each, client_options());
        ASSERT_TRUE(made) << each << ": " << made.error().message;
        said += ask(*made);
    }
    EXPECT_EQ(said, "ca");
}

TEST_P(named_servers, unknown_name_is_an_error_until_it_is_known) {
    channel_pool some = pool();
    name({});
    EXPECT_EQ(some.call({}).code(), status::invalid_argument);
    EXPECT_EQ(some.statistics().hosts, 0U);
    start(0);
    name({0});
    EXPECT_EQ(ask(some), "a");
    EXPECT_TRUE(eventually([&] { return some.statistics().hosts == 1; }));
}

TEST_P(named_servers, connect_retry_of_a_pool_resolves_the_name_again) {
    channel_options options = client_options();
    options.connect_retry = until_hung();
    channel_pool some = pool({.dns_refresh = 1h}, options);
    name({});
    std::string said;
    std::thread user([&] { said = ask(some); });
    EXPECT_TRUE(eventually([&] { return lookups_of(name_) > 4; }));
    start(0);
    name({0});
    user.join();
    EXPECT_EQ(said, "a");
}

TEST_P(named_servers, threads_have_a_channel_to_each_server_that_the_name_has) {
    for (std::size_t i = 0; i < 3; ++i) start(i);
    name({0, 1});
    channel_pool some = pool();
    std::atomic<bool> stop_all{false};
    std::atomic<int> failed{0};
    std::vector<std::thread> users;
    for (int i = 0; i < 4; ++i) {
        users.emplace_back([&] {
            while (!stop_all) failed += some.call({}).ok() ? 0 : 1;
        });
    }
    EXPECT_TRUE(eventually([&] { return sessions(0) == 4 && sessions(1) == 4; }));
    name({0, 1, 2});
    EXPECT_TRUE(eventually([&] { return sessions(2) == 4; }));
    EXPECT_EQ(some.statistics().moved, 0U);
    name({0, 2});
    EXPECT_TRUE(eventually([&] { return sessions(1) == 0; }));
    EXPECT_EQ(some.statistics().moved, 4U);
    stop_all = true;
    for (std::thread& each : users) each.join();
    EXPECT_EQ(failed, 0);
    EXPECT_EQ(some.statistics().lost, 0U);
}

TEST_P(named_servers, calls_to_a_server_that_the_name_has_no_more_end_there) {
    shelf kept;
    start(0, kept.keeper());
    start(1);
    name({0});
    channel_options options = client_options();
    options.call_timeout = patience(60s);
    channel_pool some = pool({.dns_refresh = 10ms}, options);
    std::string said;
    std::thread user([&] {
        const auto answer = some.call(bytes_of("late"));
        said = answer ? text_of(answer->response) : answer.error().message;
    });
    ASSERT_TRUE(eventually([&] { return kept.size() == 1; }));
    name({1});
    EXPECT_TRUE(eventually([&] { return some.statistics().moved == 1; }));
    EXPECT_EQ(some.close(1ms), status::timed_out) << "it waits for calls on channels that have moved";
    kept.answer_all();
    user.join();
}

TEST_P(named_servers, call_to_a_moved_channel_is_answered) {
    shelf kept;
    start(0, kept.keeper());
    start(1);
    name({0});
    channel_options options = client_options();
    options.call_timeout = patience(60s);
    channel_pool some = pool({.dns_refresh = 10ms}, options);
    std::string said;
    std::thread user([&] {
        const auto answer = some.call(bytes_of("late"));
        said = answer ? text_of(answer->response) : answer.error().message;
    });
    EXPECT_TRUE(eventually([&] { return kept.size() == 1; }));
    name({1});
    EXPECT_TRUE(eventually([&] { return some.statistics().moved == 1; }));
    kept.answer_all();
    user.join();
    EXPECT_EQ(said, "late");
    EXPECT_TRUE(eventually([&] { return sessions(0) == 0; })) << "the old channel is closed after its last call";
    EXPECT_EQ(ask(some), "b");
}

TEST_P(named_servers, failures_on_a_moved_channel_do_not_count_against_the_new_host) {
    constexpr std::size_t eject_after = 3;
    shelf kept;
    const auto fail = [](exchange one) { (void)one.fail(status::peer_lost, 0, "its own server is away"); };
    start(0, kept.keeper());
    start(1, fail);
    start(2);
    name({0});
    channel_options options = client_options();
    options.slots = 8;
    options.call_timeout = until_hung();
    channel_pool some =
        pool({.max_channels = 1, .host_pause = 1h, .dns_refresh = 10ms, .eject_after = eject_after}, options);
    std::vector<std::thread> users;
    for (std::size_t i = 0; i < eject_after + 1; ++i) users.emplace_back([&] { (void)some.call({}); });
    EXPECT_TRUE(eventually([&] { return kept.size() == users.size(); }));
    name({1});
    EXPECT_TRUE(eventually([&] { return some.statistics().moved == 1; }));
    name({1, 2});
    EXPECT_TRUE(eventually([&] { return some.statistics().hosts == 2 && some.statistics().hosts_out == 0; }));
    kept.answer_all(fail);
    for (std::thread& each : users) each.join();
    EXPECT_EQ(some.statistics().ejected, 0U) << "they failed at the old host";
    for (std::size_t lost = 0; lost < eject_after;) {
        EXPECT_EQ(some.statistics().ejected, 0U) << "after " << lost << " at the new one";
        lost += some.call({}).code() == status::peer_lost ? 1U : 0U;
    }
    EXPECT_EQ(some.statistics().ejected, 1U);
    EXPECT_TRUE(eventually([&] { return ask(some) == "c"; }));
}

TEST_P(named_servers, pool_keeps_its_servers_while_the_name_is_unknown) {
    start(0);
    start(1);
    name({0, 1});
    channel_pool some = pool();
    ASSERT_EQ(ask(some).size(), 1U);
    ASSERT_NE(ask(some), ask(some));
    name({});
    const std::size_t before = lookups_of(name_);
    EXPECT_TRUE(eventually([&] { return lookups_of(name_) > before + 2; }));
    EXPECT_NE(ask(some), ask(some));
    EXPECT_EQ(some.statistics().hosts, 2U);
    EXPECT_EQ(some.statistics().moved, 0U);
}

TEST_P(named_servers, new_threads_use_the_servers_from_before_until_a_new_one_answers) {
    start(0);
    name({0});
    channel_pool some = pool();
    ASSERT_EQ(ask(some), "a");
    name({1});
    const std::size_t before = lookups_of(name_);
    EXPECT_TRUE(eventually([&] { return lookups_of(name_) > before + 2; })) << "the pool knows of it";
    std::thread([&] { EXPECT_EQ(ask(some), "a"); }).join();
    EXPECT_EQ(ask(some), "a");
    start(1);
    EXPECT_TRUE(eventually([&] { return ask(some) == "b"; }));
}

/// So many threads do not each wait for as long as a connect may take.
TEST_P(named_servers, threads_that_wait_for_a_connect_take_its_failure) {
    constexpr std::size_t threads = 4;
    name({});
    EXPECT_TRUE(eventually([&] {
        channel_pool some = pool({.dns_refresh = 1h});
        const std::size_t before = lookups_of(name_);
        hold_lookups_of(name_, true);
        std::vector<std::thread> users;
        for (std::size_t i = 0; i < threads; ++i)
            users.emplace_back([&] { EXPECT_EQ(some.call({}).code(), status::invalid_argument); });
        EXPECT_TRUE(eventually([&] { return lookups_of(name_) > before; }));
        std::this_thread::sleep_for(20ms);  // for others to wait: if there are none, there is another round
        hold_lookups_of(name_, false);
        for (std::thread& each : users) each.join();
        return lookups_of(name_) - before < 2 * threads;
    }));
}

TEST_P(named_servers, pool_uses_the_names_that_can_be_resolved) {
    const std::string other = "others-" + std::to_string(::getpid()) + ".test";
    start(0);
    start(1);
    name({0});
    let_name_have(other, {});
    auto some = channel_pool::open(ctx, uri() + "," + other + uri().substr(uri().rfind(':')), client_options(),
                                   {.dns_refresh = 10ms})
                    .value();
    EXPECT_EQ(ask(some), "a");
    EXPECT_EQ(some.statistics().hosts, 1U);
    let_name_have(other, {addresses_[1]});
    EXPECT_TRUE(eventually([&] { return some.statistics().hosts == 2; }));
}

/// The lookup that the keeper has begun before the name changed does not count.
TEST_P(named_servers, pool_looks_up_again_before_a_call_fails) {
    start(0);
    name({0});
    channel_pool some = pool({.host_pause = 1h, .dns_refresh = 10ms});
    ASSERT_EQ(ask(some), "a");
    hold_lookups_of(name_, true);
    const std::size_t before = lookups_of(name_);
    ASSERT_TRUE(eventually([&] { return lookups_of(name_) > before; }));
    start(1);
    name({1});
    stop(0);
    std::string said;
    std::thread user([&] { said = ask(some); });
    EXPECT_TRUE(eventually([&] { return some.statistics().hosts_out == 1; }));
    std::this_thread::sleep_for(50ms);  // for the thread to wait for the lookup: the test holds anyway
    hold_lookups_of(name_, false);
    user.join();
    EXPECT_EQ(said, "b");
}

TEST_P(named_servers, pool_resolves_the_name_at_once_when_all_servers_have_gone) {
    start(0);
    name({0});
    channel_pool some = pool({.dns_refresh = 1h});
    ASSERT_EQ(ask(some), "a");
    start(1);
    name({1});
    stop(0);
    EXPECT_EQ(ask(some), "b");
}

TEST_P(named_servers, closing_pool_does_not_wait_for_a_server_that_makes_no_offers) {
    if (GetParam() != "tcp") GTEST_SKIP() << "auto asks servers of all transports alike";
    start(0);
    name({0});
    channel_options options = client_options();
    options.connect_timeout = 4 * until_hung();
    const std::string any = "dns+auto" + uri().substr(uri().find("://"));
    auto some = channel_pool::open(ctx, any, options, {.dns_refresh = 10ms}).value();
    EXPECT_EQ(ask(some), "a");
    const int silent = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_port = htons(static_cast<std::uint16_t>(port_));
    ASSERT_EQ(::inet_pton(AF_INET, addresses_[1].c_str(), &place.sin_addr), 1);
    ASSERT_EQ(::bind(silent, reinterpret_cast<const sockaddr*>(&place), sizeof place), 0);
    ASSERT_EQ(::listen(silent, 1), 0);
    name({1});
    pollfd knock{silent, POLLIN, 0};
    ASSERT_TRUE(eventually([&] { return ::poll(&knock, 1, 0) == 1; }));
    std::atomic<bool> closed{false};
    std::thread closer([&] {
        EXPECT_EQ(some.close(1ms), status::ok);
        closed = true;
    });
    EXPECT_TRUE(eventually([&] { return closed.load(); }));
    ::close(silent);
    closer.join();
}

/// What a rolling update of a service does, and worse.
TEST_P(named_servers, no_call_fails_while_the_name_changes_under_load) {
    start(0);
    name({0});
    channel_pool some = pool();
    std::atomic<bool> stop_all{false};
    std::atomic<int> failed{0};
    std::array<std::atomic<std::uint64_t>, 4> answered{};
    std::mutex mutex;
    std::string why;
    std::vector<std::thread> users;
    for (std::atomic<std::uint64_t>& each : answered) {
        users.emplace_back([&] {
            while (!stop_all) {
                const auto answer = some.call({});
                if (answer && answer->response.size() == 1) {
                    ++each;
                    continue;
                }
                ++failed;
                const std::lock_guard lock(mutex);
                why = answer ? "wrong bytes" : answer.error().message;
            }
        });
    }
    const auto all_go_on = [&] {
        std::array<std::uint64_t, answered.size()> before{};
        std::ranges::transform(answered, before.begin(), [](const auto& each) { return each.load(); });
        return eventually(until_hung(), [&] {
            return std::ranges::equal(answered, before, [](const auto& now, auto was) { return now >= was + 20; });
        });
    };
    std::minstd_rand random(7);
    unsigned have = 1;
    for (int round = 0; round < 12 && failed == 0; ++round) {
        const unsigned want = 1 + static_cast<unsigned>(random()) % ((1U << most) - 1);
        std::vector<std::size_t> named;
        for (std::size_t i = 0; i < most; ++i) {
            if ((want >> i & 1) == 0) continue;
            named.push_back(i);
            if ((have >> i & 1) == 0) start(i);
        }
        const bool stops_first = random() % 2 == 0 && (want & have) != 0;  // before the name says so
        const auto stop_others = [&] {
            for (std::size_t i = 0; i < most; ++i)
                if ((have & ~want) >> i & 1) stop(i);
        };
        if (stops_first) stop_others();
        name(named);
        const auto has_changed = [&] {
            return some.statistics().hosts == named.size() &&
                   std::ranges::all_of(named, [&](std::size_t i) { return sessions(i) > 0; });
        };
        if (random() % 2 == 0) {
            EXPECT_TRUE(eventually(has_changed)) << "round " << round;
        }
        if (!stops_first) stop_others();
        have = want;
        EXPECT_TRUE(all_go_on()) << "round " << round;
        for (const std::size_t i : named) {
            EXPECT_TRUE(eventually([&] { return sessions(i) > 0; })) << "server " << i << " in round " << round;
        }
    }
    stop_all = true;
    for (std::thread& each : users) each.join();
    EXPECT_EQ(failed, 0) << why;
}

INSTANTIATE_TEST_SUITE_P(over, named_servers, ::testing::Values("tcp", "zmq", "rdma", "gpu"),
                         [](const auto& row) { return row.param; });

TEST(dns_uris, are_resolved_to_a_uri_for_each_address) {
    using texts = std::vector<std::string>;
    const std::string name = "resolved-" + std::to_string(::getpid()) + ".test";
    const std::string unknown = "un" + name;
    let_name_have(name, {"127.1.2.3", "::1", "127.1.2.3"});
    let_name_have(unknown, {});
    const auto of = [](const std::string& uri) { return resolve_servers(uri, until_hung()); };
    EXPECT_EQ(of("dns+tcp://" + name + ":5").value(),
              (texts{"tcp://127.1.2.3:5?server_name=" + name, "tcp://[::1]:5?server_name=" + name}));
    EXPECT_EQ(of("dns+auto://" + name + ":5?slots=2").value(),
              (texts{"auto://127.1.2.3:5?slots=2&server_name=" + name, "auto://[::1]:5?slots=2&server_name=" + name}));
    EXPECT_EQ(of("dns+tcp://" + name + ":5?server_name=a").value(),
              (texts{"tcp://127.1.2.3:5?server_name=a", "tcp://[::1]:5?server_name=a"}));
    EXPECT_EQ(of("tcp://a:1,b:2?slots=2").value(), (texts{"tcp://a:1?slots=2", "tcp://b:2?slots=2"}));
    EXPECT_EQ(of("local://a").value(), texts{"local://a"});
    EXPECT_EQ(of("dns+tcp://[fe80::1%lo]:5").value(), texts{"tcp://[fe80::1%lo]:5?server_name=fe80::1%25lo"});
    EXPECT_EQ(of("dns+tcp://" + unknown + ":5").code(), status::invalid_argument);
    EXPECT_EQ(of("dns+local://a").code(), status::invalid_argument);
    EXPECT_EQ(of("dns+tcp://" + name).code(), status::invalid_argument);
}

TEST(dns_uris, of_many_addresses_the_same_are_used_in_whatever_order_they_come) {
    const std::string name = "many-" + std::to_string(::getpid()) + ".test";
    std::vector<std::string> addresses;
    for (int i = 0; i < 100; ++i) addresses.push_back("127.9.9." + std::to_string(i));
    const auto found = [&] {
        let_name_have(name, addresses);
        return resolve_servers("dns+tcp://" + name + ":5", until_hung()).value();
    };
    const std::vector<std::string> before = found();
    EXPECT_EQ(before.size(), 64U);
    std::rotate(addresses.begin(), addresses.begin() + 37, addresses.end());
    EXPECT_EQ(found(), before);
}

TEST(dns_uris, are_for_clients_of_schemes_with_hosts) {
    auto ctx = context::open({.log = log_level::off}).value();
    const auto pool = [&](std::string_view uri) { return channel_pool::open(ctx, uri, {}).code(); };
    EXPECT_EQ(pool("dns+tcp://a:1?insecure=true"), status::ok);
    EXPECT_EQ(pool("dns+auto://a:1,b:1?insecure=true"), status::ok);
    for (const char* bad : {"dns+local://a", "dns+shm://a", "dns+tcp://a:0", "dns+tcp://*:1", "dns+dns+tcp://a:1",
                            "dns+", "dns+://a:1", "dns://a:1"})
        EXPECT_NE(pool(bad), status::ok) << bad;
    const auto served = server::listen(ctx, {"dns+tcp://127.0.0.1:0?insecure=true"}, echo_back);
    ASSERT_FALSE(served);
    EXPECT_EQ(served.code(), status::invalid_argument);
    EXPECT_NE(served.error().message.find("dns+ is for channels"), std::string::npos) << served.error().message;
}

TEST(dns_uris, lookup_ends_when_it_is_stopped) {
    const std::string name = "stopped-" + std::to_string(::getpid()) + ".test";
    let_name_have(name, {"127.1.2.3"});
    hold_lookups_of(name, true);
    std::stop_source stop;
    std::atomic<bool> ended{false};
    std::thread user([&] {
        EXPECT_EQ(resolve_servers("dns+tcp://" + name + ":5", 4 * until_hung(), stop.get_token()).code(),
                  status::closed);
        ended = true;
    });
    EXPECT_TRUE(eventually([&] { return lookups_of(name) > 0; }));
    EXPECT_FALSE(ended);
    stop.request_stop();
    EXPECT_TRUE(eventually([&] { return ended.load(); }));
    hold_lookups_of(name, false);
    user.join();
}

}  // namespace
}  // namespace accel::tests
