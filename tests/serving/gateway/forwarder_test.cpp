// SPDX-License-Identifier: Apache-2.0
// Which servers a request is given to, when some are lost: the rule alone, then the forwarder in one process, over
// `local`.
#include "serving/gateway/forwarder.hpp"

#include "gateway_rig.hpp"
#include "held_exchanges.hpp"
#include "payload.hpp"

#include <array>
#include <atomic>
#include <deque>
#include <memory>

#include <gtest/gtest.h>

namespace accel::tests {
namespace {

namespace gateway = examples::gateway;

using gateway::offer;

/// What servers do with a request, in the order in which they are asked.
struct servers_that {
    std::vector<offer> answers;
    std::size_t asked = 0;
    std::uint32_t losses = 0;  ///< of the request

    [[nodiscard]] offer take_in_turn(bool* passed_over = nullptr) {
        const gateway::offered out = gateway::offer_in_turn(answers.size(), losses, [this](std::size_t i) {
            ++asked;
            return answers[i];
        });
        if (passed_over != nullptr) *passed_over = out.passed_over;
        return out.what;
    }
};

TEST(offers_of_a_request, a_lost_request_is_offered_to_one_other_server) {
    servers_that are{{offer::lost, offer::taken, offer::taken}};
    bool passed_over = false;
    EXPECT_EQ(are.take_in_turn(&passed_over), offer::taken);
    EXPECT_EQ(are.asked, 2U);
    EXPECT_TRUE(passed_over);
}

TEST(offers_of_a_request, a_lost_request_is_offered_to_each_server_and_one_replacement) {
    servers_that are{{offer::lost, offer::lost, offer::taken}};
    EXPECT_EQ(are.take_in_turn(), offer::taken);
    servers_that all{{offer::lost, offer::lost}};
    EXPECT_EQ(all.take_in_turn(), offer::away);
    EXPECT_EQ(all.take_in_turn(), offer::lost);
    EXPECT_EQ(all.asked, 3U) << "two servers, and one in the place of the first";
}

TEST(offers_of_a_request, losses_before_a_wait_count) {
    servers_that are{{offer::lost, offer::full}};
    EXPECT_EQ(are.take_in_turn(), offer::full);
    are.answers = {offer::lost, offer::lost};
    EXPECT_EQ(are.take_in_turn(), offer::lost);
    EXPECT_EQ(are.asked, 4U);
}

TEST(offers_of_a_request, any_number_of_absent_servers_are_passed_over) {
    servers_that are{{offer::away, offer::away, offer::away, offer::away, offer::taken}};
    EXPECT_EQ(are.take_in_turn(), offer::taken);
    servers_that none{{offer::away, offer::away, offer::away}};
    EXPECT_EQ(none.take_in_turn(), offer::away);
    servers_that busy{{offer::away, offer::full, offer::away}};
    EXPECT_EQ(busy.take_in_turn(), offer::full);
}

TEST(offers_of_a_request, a_refusal_ends_the_offers) {
    servers_that are{{offer::full, offer::refused, offer::taken}};
    EXPECT_EQ(are.take_in_turn(), offer::refused);
    EXPECT_EQ(are.asked, 2U);
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
        call_view call;
        ASSERT_EQ(client_->begin(call), status::ok);
        fill(call.request.first(100), seed);
        ASSERT_EQ(client_->submit(call.id, 100, {.timeout = patience(60s), .tag = seed}), status::ok);
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
        (void)client_->release(seen.id);
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

TEST_F(forwarding, any_number_of_absent_servers_are_passed_over) {
    for (int i = 0; i < 3; ++i) (void)add_server();
    server_behind& fourth = add_server();
    for (std::size_t i = 0; i < 3; ++i) behind_[i].serves.reset();
    ASSERT_TRUE(eventually(patience(20s), [&] {
        poll_servers();
        return !servers_[0].connected() && !servers_[1].connected() && !servers_[2].connected();
    }));
    send(1);
    EXPECT_EQ(answer(), status::ok);
    EXPECT_EQ(fourth.asked, 1);
    EXPECT_EQ(counted().retried, 1U);
}

/// A handler that passes `closed` on, and one whose model was unloaded.
class forwarding_of_unseen : public forwarding, public ::testing::WithParamInterface<status> {
  protected:
    [[nodiscard]] static handler refuses() {
        return [why = GetParam()](exchange one) { (void)one.fail(why, unseen_code, "not here"); };
    }
};

TEST_P(forwarding_of_unseen, offers_the_same_bytes_to_the_next_server) {
    server_behind& first = add_server(refuses());
    server_behind& second = add_server();
    send(1);
    EXPECT_EQ(answer(), status::ok);
    EXPECT_EQ(first.asked, 1);
    EXPECT_EQ(second.asked, 1);
    EXPECT_EQ(counted().retried, 1U);
}

TEST_P(forwarding_of_unseen, ends_where_no_other_server_takes_the_request) {
    for (int i = 0; i < 3; ++i) (void)add_server(refuses());
    send(1);
    EXPECT_EQ(answer(), GetParam());
    for (const server_behind& each : behind_) EXPECT_LE(each.asked, 2);
    EXPECT_EQ(passing_.open(), 0U);
}

/// No queue: a request that was accepted is not refused because it comes back.
TEST_P(forwarding_of_unseen, waits_for_a_slot_of_the_other_server) {
    held_exchanges held;
    add_server(held.keeper());
    server_behind& second = add_server();
    send(1);
    ASSERT_TRUE(held.wait_for(1));
    channel& busy = servers_[1].lines().front().path;
    std::vector<call_view> taken(busy.slots());
    for (call_view& each : taken) ASSERT_EQ(busy.begin(each), status::ok);
    (void)held.take().fail(GetParam(), unseen_code, "not here");
    ASSERT_TRUE(eventually(patience(20s), [&] {
        poll_servers();
        return counted().queued == 1;
    }));
    for (const call_view& each : taken) EXPECT_EQ(busy.release(each.id), status::ok);
    passing_.look_after(ways_);
    EXPECT_EQ(answer(), status::ok);
    EXPECT_EQ(second.asked, 1);
}

INSTANTIATE_TEST_SUITE_P(answers, forwarding_of_unseen, ::testing::Values(status::closed, status::not_found),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST_F(forwarding, says_not_found_only_if_no_server_has_the_model) {
    server_behind& first = add_server([](exchange one) { (void)one.fail(status::not_found, unseen_code, "not here"); });
    server_behind& second = add_server();
    send(1);
    EXPECT_EQ(answer(), status::ok);
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

TEST_F(forwarding, a_failure_of_a_handler_is_passed_on) {
    static constexpr std::array said{status::not_found, status::closed};
    server_behind& first = add_server([next = 0U](exchange one) mutable {
        (void)one.fail(said.at(next / 2), next % 2 * 7, "of the handler");
        ++next;
    });
    server_behind& second = add_server();
    for (int i = 0; i < 4; ++i) {
        send(1);  // round robin: to the first
        EXPECT_EQ(answer(), said.at(static_cast<std::size_t>(i) / 2));
        EXPECT_EQ(first.asked, i + 1);
        send(2);
        EXPECT_EQ(answer(), status::ok);
        EXPECT_EQ(second.asked, i + 1);
    }
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

TEST_F(forwarding, a_request_that_its_server_received_is_not_repeated) {
    held_exchanges held;
    server_behind& first = add_server(held.keeper());
    server_behind& second = add_server();
    send(1);
    ASSERT_TRUE(held.wait_for(1));
    first.serves.reset();
    EXPECT_EQ(answer(), status::peer_lost);
    held.clear();
    EXPECT_EQ(first.asked, 1);
    EXPECT_EQ(second.asked, 0);
    EXPECT_EQ(counted().retried, 0U);
}

}  // namespace
}  // namespace accel::tests
