// SPDX-License-Identifier: Apache-2.0
// The doors in front of servers that share a name (`dns+`).
#include "doors/backend_rig.hpp"
#include "held_exchanges.hpp"
#include "named_servers.hpp"

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include <gtest/gtest.h>

namespace accel::tests {
namespace {

namespace door_side = examples::serving::doors;
namespace gateway = examples::gateway;

class door_names : public ::testing::Test {
  protected:
    void start(std::size_t i, const handler& service) { behind_.start(i, service_table{{{"m", service}}, {}}); }
    void open(std::chrono::nanoseconds refresh = 20ms) {
        all_.emplace(loop_, gateway::reach_settings{.channels = 1, .slots = 8, .dns_refresh = refresh}, 1'000U);
        const gateway::server_name& name = all_->add_name({behind_.uri(), {"m"}, {}});
        model_ = &all_->add({}, target_of("m"), std::array{&name});
        const auto opened = all_->open(ctx_);
        ASSERT_TRUE(opened) << opened.error().message;
    }
    template <typename Done>
    bool run_until(Done done) {
        return eventually([&] {
            loop_.restart();
            loop_.run_for(5ms);
            return done();
        });
    }
    [[nodiscard]] std::shared_ptr<door_side::waiting_caller> ask() {
        auto who = std::make_shared<door_side::waiting_caller>();
        model_->ask_slot(who, {});
        return who;
    }

    context ctx_ = context::open({.log = log_level::off}).value();
    named_servers behind_{ctx_};
    boost::asio::io_context loop_{1};
    std::optional<door_side::backends> all_;
    door_side::backend* model_ = nullptr;
};

TEST_F(door_names, a_model_has_the_servers_of_its_name) {
    for (std::size_t i = 0; i < 3; ++i) start(i, answer_changed);
    behind_.name({0, 1});
    open();
    EXPECT_EQ(model_->servers(), 2U);
    behind_.name({2, 1, 0});
    EXPECT_TRUE(run_until([&] { return model_->servers() == 3; }));
    EXPECT_EQ(model_->connected_servers(), 3U);
    behind_.name({2});
    EXPECT_TRUE(run_until([&] { return all_->servers() == 1; })) << "channels that have no calls are closed";
    EXPECT_EQ(model_->servers(), 1U);
    EXPECT_TRUE(eventually([&] { return behind_.sessions(0) == 0 && behind_.sessions(1) == 0; }));
    EXPECT_GT(behind_.sessions(2), 0U);
}

TEST_F(door_names, removed_server_finishes_its_calls) {
    held_exchanges held;
    start(0, held.keeper());
    start(1, answer_changed);
    behind_.name({0});
    open();
    const auto first = ask();
    ASSERT_EQ(first->held.size(), 1U);
    const std::string at_first = first->held[0].on->server().uri();
    ASSERT_EQ(
        first->held[0].on->submit(first->held[0].id, 10, {.timeout = patience(60s), .target = target_of("m")}, first),
        status::ok);
    ASSERT_TRUE(run_until([&] { return held.size() == 1; }));
    behind_.name({1});
    ASSERT_TRUE(
        run_until([&] { return model_->servers() == 1 && model_->connected_servers() == 1 && all_->servers() == 2; }));
    std::shared_ptr<door_side::waiting_caller> second;
    ASSERT_TRUE(run_until([&] {
        second = ask();
        if (!second->held.empty()) second->held[0].on->release(second->held[0].id);
        return !second->held.empty() && second->held[0].on->server().uri() != at_first;
    }));
    loop_.restart();
    loop_.run_for(2 * door_side::backends::between_questions);
    EXPECT_EQ(first->answers, 0);
    answer_changed(held.take());
    EXPECT_TRUE(run_until([&] { return first->answers == 1; }));
    EXPECT_TRUE(run_until([&] { return all_->servers() == 1; }));
}

TEST_F(door_names, a_lost_server_makes_the_doors_look_for_others) {
    for (std::size_t i = 0; i < 2; ++i) start(i, answer_changed);
    behind_.name({0});
    open(1h);
    behind_.name({1});
    behind_.stop(0);
    EXPECT_TRUE(run_until([&] { return model_->ready() && all_->servers() == 1; }));
    const auto who = ask();
    ASSERT_EQ(who->held.size(), 1U);
    EXPECT_EQ(behind_.sessions(1), 1U);
}

}  // namespace
}  // namespace accel::tests
