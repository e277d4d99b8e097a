// SPDX-License-Identifier: Apache-2.0
// Requests that name their target: each comes to the handler of that name, and others get `not_found`.
#include "rig.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace accel::tests {
namespace {

class targets : public on_every_backend {
  protected:
    /// A server with these handlers, at the case's scheme.
    void listen(const service_table& services) {
        const std::string at = GetParam().listen_uri();
        auto made = server::listen(context_, {at}, services, calm_server());
        ASSERT_TRUE(made.ok()) << made.error().message;
        server_ = std::make_unique<server>(std::move(*made));
    }
    [[nodiscard]] checked_channel connect(channel_options options = calm_client()) {
        auto made = channel::connect(context_, server_->endpoints().at(0), options);
        if (!made) throw std::runtime_error(made.error().message);
        return checked_channel(std::move(*made));
    }
    /// Answers with this code. Can only be moved, as any handler may.
    [[nodiscard]] handler tell(std::uint32_t code) {
        return [this, own = std::make_unique<std::uint32_t>(code)](exchange one) {
            ++served_;
            (void)one.fail(status::application_error, *own);
        };
    }
    /// What one call for a target ends with.
    [[nodiscard]] static completion outcome(checked_channel& client, target named) {
        client.send_seed(100, 1, {.target = named});
        completion c = client.next();
        return c;
    }

    context context_ = quiet_context();
    std::unique_ptr<server> server_;
    std::atomic<int> served_{0};
};

/// No handler sees another's request, whichever targets a server has.
TEST_P(targets, requests_reach_the_handler_of_their_target_or_none) {
    constexpr std::array<std::string_view, 4> names{"resnet", "bert", "a/b.c:d", ""};
    for (std::uint32_t served = 1; served < 1U << names.size(); ++served) {
        SCOPED_TRACE(served);
        const auto serves = [served](std::size_t which) { return (served >> which & 1U) != 0; };
        service_table services;
        for (std::size_t i = 0; i < names.size(); ++i) {
            if (!serves(i)) continue;
            const auto code = static_cast<std::uint32_t>(10 + i);
            if (names.at(i).empty())
                services.unnamed = tell(code);
            else
                services.named.push_back({std::string(names.at(i)), tell(code)});
        }
        served_ = 0;
        listen(services);
        auto client = connect();
        int refused = 0;
        std::uint64_t not_found = 0;  // of the names that this server lacks
        for (std::size_t i = 0; i < 2 * names.size(); ++i) {
            const std::string_view name = names.at(i % names.size());
            const completion c = outcome(client, name.empty() ? target{} : target_of(name));
            const bool found = serves(i % names.size());
            refused += found ? 0 : 1;
            not_found += found || name.empty() ? 0U : 1U;
            EXPECT_EQ(c.status, found ? status::application_error : status::not_found) << name;
            EXPECT_EQ(c.code, found ? 10 + i % names.size() : unseen_code) << name;
        }
        EXPECT_EQ(served_.load(), static_cast<int>(2 * names.size()) - refused);
        EXPECT_TRUE(eventually([&] { return server_->statistics().not_found == not_found; }));
        EXPECT_TRUE(client.all_slots_free());
    }
}

/// Channels in all states, and names of all kinds.
TEST_P(targets, resolving_has_typed_failures) {
    listen({{{std::string(max_target_bytes, 'n'), echo}}});
    auto client = connect();
    const auto found = client->resolve(std::string(max_target_bytes, 'n'));
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(*result<target>(found), target_of(std::string(max_target_bytes, 'n'))) << "a kernel can compute the same";
    const auto unknown = client->resolve("resnet50");
    ASSERT_EQ(unknown.code(), status::not_found);
    EXPECT_NE(unknown.error().message.find("resnet50"), std::string::npos) << unknown.error().message;
    for (const std::string& wrong : {std::string{}, std::string("a b"), std::string("a\n"), std::string("\xc3\xa9"),
                                     std::string("a\0b", 3), std::string(max_target_bytes + 1, 'n')})
        EXPECT_EQ(client->resolve(wrong).code(), status::invalid_argument) << wrong;
    client->close();
    EXPECT_EQ(client->resolve("a").code(), status::closed);
}

TEST_P(targets, wrong_tables_are_refused) {
    const auto refusal = [&](const service_table& services) {
        auto made = server::listen(context_, {GetParam().listen_uri()}, services, calm_server());
        EXPECT_FALSE(made.ok());
        return made.code();
    };
    EXPECT_EQ(refusal({}), status::invalid_argument);
    EXPECT_EQ(refusal({{{"a", {}}}}), status::invalid_argument);
    EXPECT_EQ(refusal({{{"a", echo}, {"a", echo}}}), status::invalid_argument);
    EXPECT_EQ(refusal({{{"", echo}}}), status::invalid_argument);
    EXPECT_EQ(refusal({{{"two words", echo}}}), status::invalid_argument);
    service_table many;
    for (std::size_t i = 0; i <= max_targets; ++i) many.named.push_back({"m" + std::to_string(i), echo});
    EXPECT_EQ(refusal(many), status::invalid_argument);
}

/// What a server that changes does, against a plain map. It began with one handler.
TEST_P(targets, random_changes_and_calls_agree_with_a_map) {
    listen({{}, tell(1)});
    auto client = connect();
    std::minstd_rand random(7);
    std::map<std::string, std::uint32_t> expected;
    std::uint32_t next = 100;
    const auto keys = [&] {
        std::vector<std::string> out;
        for (const auto& [name, code] : expected) out.push_back(name);
        return out;
    };
    for (int step = 0; step < 400; ++step) {
        SCOPED_TRACE(step);
        const std::string name = "model" + std::to_string(random() % 6);
        const auto known = expected.find(name);
        switch (random() % 6) {
            case 0: {
                // The answer says whether the request knows its target.
                const std::uint32_t code = ++next;
                const auto added = server_->add_target(name, [code, name](exchange one) {
                    (void)one.fail(status::application_error, one.target() == name ? code : 0);
                });
                EXPECT_EQ(added.code(), known == expected.end() ? status::ok : status::invalid_argument);
                expected.emplace(name, code);
                break;
            }
            case 1:
                EXPECT_EQ(server_->remove_target(name).code(),
                          known == expected.end() ? status::not_found : status::ok);
                expected.erase(name);
                break;
            case 2: {
                const auto resolved = client->resolve(name);
                EXPECT_EQ(resolved.code(), known == expected.end() ? status::not_found : status::ok);
                EXPECT_EQ(client->targets().value(), keys());
                break;
            }
            case 3:
                EXPECT_EQ(outcome(client, {}).code, 1U) << "the handler without a name goes on";
                break;
            default: {
                const completion c = outcome(client, target_of(name));
                EXPECT_EQ(c.status, known == expected.end() ? status::not_found : status::application_error);
                EXPECT_EQ(c.code, known == expected.end() ? unseen_code : known->second);
            }
        }
        if (::testing::Test::HasFailure()) FAIL();
    }
    EXPECT_TRUE(client.all_slots_free());
}

/// … and are still their target's, also when the name is served by another handler.
TEST_P(targets, requests_of_a_removed_target_are_answered) {
    held_exchanges held;
    std::weak_ptr<int> alive;
    listen({{}, tell(1)});
    {
        const auto owned = std::make_shared<int>(1);
        alive = owned;
        const handler keep = held.keeper();
        ASSERT_TRUE(server_->add_target("model", [owned, keep](exchange one) { keep(std::move(one)); }));
    }
    auto client = connect();
    client.send_seed(100, 1, {.target = target_of("model")});
    ASSERT_TRUE(held.wait_for(1));
    ASSERT_TRUE(server_->remove_target("model"));
    EXPECT_EQ(outcome(client, target_of("model")).status, status::not_found);
    ASSERT_TRUE(server_->add_target("model", tell(2)));
    EXPECT_EQ(outcome(client, target_of("model")).code, 2U);
    EXPECT_FALSE(alive.expired());
    exchange first = held.take();
    EXPECT_EQ(first.target(), "model");
    (void)first.fail(status::application_error, 3);
    EXPECT_EQ(client.next().code, 3U);
    EXPECT_TRUE(eventually([&] { return alive.expired(); })) << "the last request of the old handler has its answer";
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(targets, a_handler_may_change_the_targets) {
    const auto served = std::make_shared<std::atomic<int>>(0);
    listen({{}, tell(1)});
    ASSERT_TRUE(server_->add_target("once", [this, served](exchange one) {
        (void)server_->remove_target("once");
        (void)server_->add_target("next", tell(2));
        (void)one.fail(status::application_error, static_cast<std::uint32_t>(10 + ++*served));
    }));
    auto client = connect();
    EXPECT_EQ(outcome(client, target_of("once")).code, 11U);
    EXPECT_EQ(outcome(client, target_of("once")).status, status::not_found);
    EXPECT_EQ(outcome(client, target_of("next")).code, 2U);
    EXPECT_EQ(served->load(), 1);
}

/// Each call ends as before a change or as after it.
TEST_P(targets, changes_and_calls_of_many_threads_do_not_disturb_each_other) {
    listen({{{"always", tell(1)}}});
    std::atomic<bool> done{false};
    std::thread changes([&] {
        for (int i = 0; i < 200; ++i) {
            ASSERT_TRUE(server_->add_target("sometimes", tell(2)));
            ASSERT_TRUE(server_->remove_target("sometimes"));
        }
        done = true;
    });
    auto client = connect();
    while (!done) {
        EXPECT_EQ(outcome(client, target_of("always")).code, 1U);
        const completion c = outcome(client, target_of("sometimes"));
        EXPECT_TRUE(c.status == status::not_found || c.code == 2U) << to_string(c.status) << ' ' << c.code;
        if (::testing::Test::HasFailure()) break;
    }
    changes.join();
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(targets, an_unknown_one_is_refused_with_the_names_that_are_there) {
    listen({{{"bert", echo}, {"resnet18", echo}, {"resnet50", echo}}});
    auto client = connect();
    EXPECT_EQ(client->targets().value(), (std::vector<std::string>{"bert", "resnet18", "resnet50"}));
    const auto misspelt = client->resolve("resnet5O");
    ASSERT_EQ(misspelt.code(), status::not_found);
    EXPECT_EQ(misspelt.error().message, "this server has no target 'resnet5O'; it has resnet50, resnet18 and bert");
    const auto expect_answer = [&](std::string_view name, std::string_view text) {
        const auto called = client->call({}, {.target = target_of(name)});
        ASSERT_EQ(called.code(), status::not_found);
        const std::string& said = called.error().message;
        EXPECT_EQ(said, handlers_on_gpu() ? "not_found"
                                          : "not_found: this server has no such target; it has " + std::string(text));
    };
    expect_answer("resnet5O", "bert, resnet18 and resnet50");
    ASSERT_TRUE(server_->remove_target("bert"));
    expect_answer("bert", "resnet18 and resnet50");
    EXPECT_NE(server_->remove_target("bert").error().message.find("it has resnet"), std::string::npos);
}

/// A server's own word comes before a target's, and its drain before both.
TEST_P(targets, health_is_what_the_owner_says_until_the_server_drains) {
    held_exchanges held;
    listen({{{"bert", tell(1)}}, held.keeper()});
    auto client = connect();
    const auto health = [&](std::string_view name) { return client->health(name).value(); };
    EXPECT_EQ(health(""), health_state::serving);
    EXPECT_EQ(health("bert"), health_state::serving);
    EXPECT_EQ(health("resnet"), health_state::unknown);
    for (const health_state said : {health_state::not_serving, health_state::unknown, health_state::serving}) {
        ASSERT_TRUE(server_->set_health("bert", said));
        EXPECT_EQ(health("bert"), said);
        EXPECT_EQ(health(""), health_state::serving) << "others may serve";
        EXPECT_EQ(outcome(client, target_of("bert")).code, 1U) << "requests are served as before";
    }
    ASSERT_TRUE(server_->set_health("", health_state::not_serving));
    EXPECT_EQ(health("bert"), health_state::not_serving);
    EXPECT_EQ(health("resnet"), health_state::unknown);
    ASSERT_TRUE(server_->set_health("", health_state::serving));
    ASSERT_TRUE(server_->set_health("bert", health_state::not_serving));
    ASSERT_TRUE(server_->remove_target("bert"));
    EXPECT_EQ(health("bert"), health_state::unknown);
    EXPECT_EQ(server_->set_health("bert", health_state::serving).code(), status::not_found);
    ASSERT_TRUE(server_->add_target("bert", tell(1)));
    EXPECT_EQ(health("bert"), health_state::serving) << "it is a new target";
    EXPECT_EQ(client->health("a b").code(), status::invalid_argument);
    // While a call is open, a draining server still answers.
    client.send_seed(100, 1);
    ASSERT_TRUE(held.wait_for(1));
    EXPECT_EQ(server_->drain(0ns), status::timed_out);
    EXPECT_EQ(health(""), health_state::not_serving);
    EXPECT_EQ(health("bert"), health_state::not_serving);
    (void)held.take().reply(0);
    EXPECT_EQ(client.finish(status::ok), 1U);
    client->close();
    EXPECT_EQ(client->health().code(), status::closed);
}

/// More names than one message holds.
TEST_P(targets, all_names_are_listed) {
    service_table services;
    std::vector<std::string> names;
    for (std::size_t i = 0; i < max_targets; ++i)
        names.push_back(std::string(max_target_bytes - 4, 'm') + std::to_string(1000 + i));
    for (const std::string& each : names) services.named.push_back({each, echo});
    std::ranges::shuffle(services.named, std::minstd_rand(3));
    listen(services);
    auto client = connect();
    const auto listed = client->targets();
    ASSERT_TRUE(listed.ok()) << listed.error().message;
    EXPECT_EQ(*listed, names);
    EXPECT_EQ(server_->add_target("one-more", echo).code(), status::invalid_argument);
    EXPECT_LT(client->resolve("unlike").error().message.size(), 500U);
    for (const std::string& each : names) EXPECT_TRUE(server_->remove_target(each));
    EXPECT_EQ(client->targets().value(), std::vector<std::string>{});
    EXPECT_EQ(server_->add_target("a b", echo).code(), status::invalid_argument);
    EXPECT_EQ(server_->add_target("nobody", {}).code(), status::invalid_argument);
    client->close();
    EXPECT_EQ(client->targets().code(), status::closed);
    server_->stop();
    EXPECT_EQ(server_->add_target("late", echo).code(), status::closed);
}

/// A request for another model must never come to this one, also by a number that was resolved elsewhere.
TEST_P(targets, numbers_hold_over_servers_and_never_name_another_target) {
    listen({{{"first", tell(1)}, {"second", tell(2)}}});
    target first;
    {
        auto client = connect();
        first = client->resolve("first").value();
        EXPECT_EQ(outcome(client, first).code, 1U);
    }
    server_.reset();
    listen({{{"second", tell(2)}, {"third", tell(3)}}});
    auto client = connect();
    EXPECT_EQ(outcome(client, first).status, status::not_found);
    EXPECT_EQ(outcome(client, client->resolve("second").value()).code, 2U);
}

ACCEL_INSTANTIATE(targets, all_backends);

}  // namespace
}  // namespace accel::tests
