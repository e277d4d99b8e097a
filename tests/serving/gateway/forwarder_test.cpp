// SPDX-License-Identifier: Apache-2.0
// Which servers a request is given to, when some are lost: the rule alone, then models that are not everywhere, with
// the forwarder in one process, over `local`. forwarder_sequences_test has the rest.
#include "serving/gateway/forwarder.hpp"

#include "gateway_rig.hpp"
#include "payload.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace accel::tests {
namespace {

namespace gateway = examples::gateway;

using gateway::offer;

constexpr std::array offers{offer::taken, offer::full, offer::away, offer::lost, offer::refused};

/// Three servers that do each of these things, and requests that were lost so often before.
TEST(offers_of_a_request, a_request_is_offered_to_each_server_until_one_takes_it) {
    for (std::size_t combination = 0; combination < std::size_t{4} * 5 * 5 * 5; ++combination) {
        const std::vector<offer> does{offers[combination / 4 % 5], offers[combination / 20 % 5],
                                      offers[combination / 100]};
        const auto before = static_cast<std::uint32_t>(combination % 4);
        std::uint32_t losses = before;
        std::vector<offer> asked;
        const gateway::offered out = gateway::offer_in_turn(does.size(), losses, [&](std::size_t i) {
            EXPECT_EQ(i, asked.size());
            return asked.emplace_back(does.at(i));
        });
        const auto count = [&](offer what) { return std::ranges::count(asked, what); };
        SCOPED_TRACE(combination);
        EXPECT_EQ(losses, before + count(offer::lost)) << "also those before a wait count";
        const bool ends = asked.back() == offer::taken || asked.back() == offer::refused;
        const bool lost = losses > does.size();  // each server, and one in the place of one
        EXPECT_EQ(count(offer::taken) + count(offer::refused), ends ? 1 : 0);
        EXPECT_EQ(asked.size() == does.size() || ends || lost, true);
        EXPECT_TRUE(!lost || asked.back() == offer::lost);
        const offer rest = count(offer::full) > 0 ? offer::full : offer::away;
        EXPECT_EQ(out.what, ends ? asked.back() : lost ? offer::lost : rest);
        EXPECT_EQ(out.passed_over, before + count(offer::away) + count(offer::lost) > 0);
    }
}

constexpr unsigned many_keys = 2'000;

class choice_of_a_server : public ::testing::Test {
  protected:
    /// The servers of `choice` in the order in which a request with this key is offered to them.
    static std::vector<const gateway::upstream*> order(gateway::server_choice& choice, std::uint64_t key) {
        std::vector<const gateway::upstream*> out;
        for (const std::size_t i : choice.order_for(key)) out.push_back(&choice.server(i));
        return out;
    }
    gateway::server_choice sticky(const std::vector<std::size_t>& which) {
        gateway::server_choice out(gateway::balance::sticky);
        for (const std::size_t i : which) out.add(servers_.at(i));
        return out;
    }

    std::deque<gateway::upstream> servers_ = [] {
        std::deque<gateway::upstream> out;
        for (int i = 0; i < 5; ++i)
            out.emplace_back("tcp://10.0.0." + std::to_string(i) + ":1", std::vector{std::string{}});
        return out;
    }();
};

TEST_F(choice_of_a_server, new_server_in_the_memory_of_an_old_one_is_asked) {
    std::optional<gateway::upstream> place;
    place.emplace("tcp://10.0.0.8:1", std::vector{std::string{}});
    const gateway::past_offers gave_back{1, place->serial(), status::not_found};
    gateway::server_choice choice(gateway::balance::round_robin);
    choice.add(*place);
    EXPECT_FALSE(choice.may_ask(0, gave_back, true));
    choice.remove(*place);
    place.emplace("tcp://10.0.0.9:1", std::vector{std::string{}});
    choice.add(*place);
    EXPECT_TRUE(choice.may_ask(0, gave_back, true));
}

TEST_F(choice_of_a_server, sticky_spreads_keys_alike) {
    auto five = sticky({0, 1, 2, 3, 4});
    std::map<const gateway::upstream*, unsigned> got;
    for (std::uint64_t key = 0; key < many_keys; ++key) ++got[order(five, key).front()];
    ASSERT_EQ(got.size(), 5U);
    for (const auto& [server, count] : got) EXPECT_NEAR(count, 400, 40) << server->uri();
}

TEST_F(choice_of_a_server, sticky_moves_only_the_keys_of_a_server_that_goes) {
    auto five = sticky({0, 1, 2, 3, 4});
    auto four = sticky({4, 3, 2, 1, 0});  // the order in which they come does not matter
    four.remove(servers_[2]);
    std::map<const gateway::upstream*, unsigned> got;
    for (std::uint64_t key = 0; key < many_keys; ++key) {
        auto wanted = order(five, key);
        if (wanted.front() == &servers_[2]) ++got[wanted.at(1)];
        std::erase(wanted, &servers_[2]);
        EXPECT_EQ(order(four, key), wanted) << key;
    }
    ASSERT_EQ(got.size(), 4U);
    for (const auto& [server, count] : got) EXPECT_NEAR(count, 100, 40) << server->uri();
}

TEST_F(choice_of_a_server, there_may_be_none) {
    for (const gateway::balance how :
         {gateway::balance::round_robin, gateway::balance::least_loaded, gateway::balance::sticky}) {
        gateway::server_choice choice(how);
        EXPECT_TRUE(order(choice, 7).empty());
        EXPECT_EQ(choice.without_server(status::ok), status::peer_lost);
        EXPECT_EQ(choice.without_server(status::not_found), status::peer_lost);
        choice.add(servers_[0]);
        choice.add(servers_[1]);
        choice.learn(servers_[0], false);
        choice.remove(servers_[0]);
        EXPECT_EQ(choice.lacking(), 0U);
        EXPECT_EQ(order(choice, 7), std::vector<const gateway::upstream*>{&servers_[1]});
        choice.remove(servers_[1]);
        EXPECT_TRUE(order(choice, 7).empty());
    }
}

/// A server behind the forwarder, and what reached it.
struct server_behind {
    std::unique_ptr<server> serves;
    std::atomic<int> asked{0};
};

class forwarding : public ::testing::Test {
  protected:
    forwarding() {
        server_options options;
        options.workers = 0;
        handler take = [this](exchange one) { passing_.take(way_, std::move(one)); };
        front_ = std::make_unique<server>(
            std::move(server::listen(ctx_, std::vector{any_uri("local")}, std::move(take), options)).value());
        client_.emplace(connect(ctx_, client_uri(front_->endpoints().at(0))));
    }

    /// One more server. Its handler counts, and then does this.
    server_behind& add_server(handler then = answer_changed) {
        server_behind& added = behind_.emplace_back();
        handler service = [&added, does = std::move(then)](exchange one) {
            ++added.asked;
            does(std::move(one));
        };
        server_options options;
        options.drain_timeout = 1ms;
        added.serves = std::make_unique<server>(
            std::move(server::listen(ctx_, std::vector{any_uri("local")}, std::move(service), options)).value());
        const std::string at = client_uri(added.serves->endpoints().at(0));
        gateway::upstream& to = servers_.emplace_back(at, std::vector<std::string>{});
        to.add(connect(ctx_, at));
        way_.add(to);
        return added;
    }
    void send(std::uint64_t seed) {
        const auto call = client_->begin();
        ASSERT_EQ(call.code(), status::ok);
        fill(call->request.first(100), seed);
        ASSERT_EQ(client_->submit(call->id, 100, {.timeout = patience(60s), .tag = seed}), status::ok);
        while (front_->poll() == 0) std::this_thread::sleep_for(100us);
    }
    /// Takes what servers have sent until the client has its answer.
    status answer() {
        completion seen;
        const bool came = eventually(patience(20s), [&] {
            poll_servers();
            (void)front_->poll();
            return client_->poll({&seen, 1}) == 1;
        });
        if (!came) return status::timed_out;
        EXPECT_TRUE(seen.status != status::ok || is_changed(seen.response, seen.tag, 100));
        const status out = seen.status;
        return out;
    }
    void poll_servers() {
        for (gateway::upstream& to : servers_) {
            for (gateway::line& each : to.lines()) {
                completion done;
                while (each.path.poll({&done, 1}) == 1) passing_.finish(each, done);
            }
        }
    }
    [[nodiscard]] const gateway::counts& counted() const { return passing_.counted(); }

    context ctx_ = std::move(context::open({.log = log_level::off})).value();
    std::deque<server_behind> behind_;
    std::deque<gateway::upstream> servers_;
    gateway::reach_settings chosen_;  // round robin: the first request is meant for the first server
    std::vector<gateway::route> ways_{gateway::route{"", chosen_}};
    gateway::route& way_ = ways_.front();
    gateway::forwarder passing_{8, 0};
    std::unique_ptr<server> front_;
    std::optional<channel> client_;
};

/// A handler that passes `closed` on, and one whose model was unloaded.
class forwarding_of_unseen : public forwarding, public ::testing::WithParamInterface<status> {
  protected:
    [[nodiscard]] static handler refuses() {
        return [why = GetParam()](exchange one) { (void)one.fail(why, unseen_code, "not here"); };
    }
};

TEST_P(forwarding_of_unseen, ends_where_no_other_server_takes_the_request) {
    for (int i = 0; i < 3; ++i) (void)add_server(refuses());
    send(1);
    EXPECT_EQ(answer(), GetParam());
    for (const server_behind& each : behind_) EXPECT_LE(each.asked, 2);
    EXPECT_EQ(passing_.open(), 0U);
}

INSTANTIATE_TEST_SUITE_P(answers, forwarding_of_unseen, ::testing::Values(status::closed, status::not_found),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST_F(forwarding, says_not_found_only_if_no_server_has_the_model) {
    server_behind& first = add_server([](exchange one) { (void)one.fail(status::not_found, unseen_code, "not here"); });
    server_behind& second = add_server();
    send(1);
    EXPECT_EQ(answer(), status::ok);
    EXPECT_EQ(counted().retried, 1U);
    second.serves.reset();
    ASSERT_TRUE(eventually(patience(20s), [&] {
        poll_servers();
        return !servers_[1].connected();
    }));
    send(2);
    EXPECT_EQ(answer(), status::peer_lost) << "it restarts, and has the model";
    EXPECT_EQ(first.asked, 2);
    EXPECT_EQ(second.asked, 1);
}

TEST_F(forwarding, a_server_without_the_model_is_asked_again_later) {
    server_behind& first =
        add_server([](exchange one) { (void)one.fail(status::not_found, unseen_code, "not loaded"); });
    server_behind& second = add_server();
    const auto began = std::chrono::steady_clock::now();
    for (std::uint64_t i = 0; i < 20; ++i) {
        send(i);
        EXPECT_EQ(answer(), status::ok);
    }
    const auto took = std::chrono::steady_clock::now() - began;
    EXPECT_GE(first.asked, 1);
    EXPECT_LE(first.asked, 1 + took / gateway::route::between_questions);
    EXPECT_EQ(second.asked, 20);
}

}  // namespace
}  // namespace accel::tests
