// SPDX-License-Identifier: Apache-2.0
// What connects a gateway to its servers: what waits for what, and which servers of a name leave when.
#include "serving/gateway/opener.hpp"

#include "gateway_rig.hpp"
#include "named_servers.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <list>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace accel::tests {
namespace {

namespace gateway = examples::gateway;

class gateway_opener : public ::testing::Test {
  protected:
    static inline const std::string silent = "silent-" + std::to_string(::getpid()) + ".test";

    ~gateway_opener() override { hold_lookups_of(silent, false); }
    void start(std::size_t i) { behind_.start(i, answer_changed); }
    void open() { opener_.emplace(ctx_, reach_, servers_, names_); }
    [[nodiscard]] std::string silent_uri() const {
        std::string out = behind_.uri();
        return out.replace(out.find(behind_.name()), behind_.name().size(), silent);
    }
    /// All changes until now.
    void take() {
        for (gateway::opener::change& each : opener_->take()) {
            (each.channels.empty() ? left_ : joined_).push_back(each.uri);
            std::ranges::move(each.channels, std::back_inserter(channels_));
        }
    }
    [[nodiscard]] bool joins(const std::string& uri) {
        return eventually([&] {
            take();
            return std::ranges::find(joined_, uri) != joined_.end();
        });
    }

    context ctx_ = context::open({.log = log_level::off}).value();
    named_servers behind_{ctx_};
    gateway::reach_settings reach_{
        .channels = 1, .slots = 4, .patience = 8 * until_hung(), .dns_refresh = 10ms, .lookup = 8 * until_hung()};
    std::list<gateway::upstream> servers_;
    std::list<gateway::server_name> names_;
    std::vector<channel> channels_;
    std::vector<std::string> joined_;
    std::vector<std::string> left_;
    std::optional<gateway::opener> opener_;
};

TEST_F(gateway_opener, connects_while_a_name_server_is_silent) {
    start(0);
    start(1);
    behind_.name({1});
    let_name_have(silent, {});
    hold_lookups_of(silent, true);
    servers_.emplace_back(behind_.at(0), std::vector<std::string>{""});
    names_ = {{silent_uri(), {""}}, {behind_.uri(), {""}}};
    open();
    EXPECT_TRUE(joins(behind_.named(1)));
    EXPECT_TRUE(joins(behind_.at(0)));
    EXPECT_TRUE(eventually([] { return lookups_of(silent) > 0; }));
    EXPECT_TRUE(opener_->wait_for_servers(1ms)) << "one is enough";
}

TEST_F(gateway_opener, ends_during_a_lookup) {
    let_name_have(silent, {});
    hold_lookups_of(silent, true);
    const std::size_t before = lookups_of(silent);
    names_ = {{silent_uri(), {""}}};
    open();
    ASSERT_TRUE(eventually([&] { return lookups_of(silent) > before; }));
    std::atomic<bool> ended{false};
    std::thread user([&] {
        opener_.reset();
        ended = true;
    });
    EXPECT_TRUE(eventually([&] { return ended.load(); }));
    hold_lookups_of(silent, false);
    user.join();
}

TEST_F(gateway_opener, static_server_with_connect_retry_delays_no_other) {
    start(0);
    for (const char* retry : {"&connect_retry=1h", "&connect%5Fretry=1%68"})
        servers_.emplace_back(behind_.at(1) + retry, std::vector<std::string>{""});
    servers_.emplace_back(behind_.at(0), std::vector<std::string>{""});
    open();
    EXPECT_TRUE(joins(behind_.at(0)));
}

TEST_F(gateway_opener, silent_servers_leave_time_for_the_others_of_their_name) {
    start(2);
    const auto one = behind_.silence(0), other = behind_.silence(1);
    behind_.name({0, 1, 2});
    names_ = {{behind_.uri(), {""}}};
    with_enough_time(4s, [this](nanoseconds time) {
        reach_.patience = time;
        open();
        return opener_->wait_for_servers(time).ok();
    });
    EXPECT_TRUE(joins(behind_.named(2)));
}

TEST_F(gateway_opener, connect_retry_that_is_not_valid_is_an_error) {
    servers_.emplace_back(behind_.at(0) + "&connect_retry=soon", std::vector<std::string>{""});
    open();
    EXPECT_TRUE(eventually([this] { return opener_->wait_for_servers(1ms).code() == status::invalid_argument; }));
}

TEST_F(gateway_opener, each_host_of_a_list_is_a_name_of_its_own) {
    start(0);
    behind_.name({0});
    let_name_have(silent, {});
    const std::string both = behind_.uri();
    names_ = {{both.substr(0, both.find('?')) + "," + silent_uri().substr(silent_uri().find("://") + 3), {""}}};
    open();
    EXPECT_TRUE(joins(behind_.named(0)));
    start(1);
    behind_.name({1});
    EXPECT_TRUE(joins(behind_.named(1)));
}

/// The last of the new servers does not answer.
TEST_F(gateway_opener, one_old_server_leaves_for_each_new_one_until_all_were_tried) {
    for (std::size_t i = 0; i < 3; ++i) start(i);
    behind_.name({0, 1});
    names_ = {{behind_.uri(), {""}}};
    open();
    ASSERT_TRUE(joins(behind_.named(0)) && joins(behind_.named(1)));
    auto silence = behind_.silence(3);
    behind_.name({2, 3});
    ASSERT_TRUE(joins(behind_.named(2)));
    ASSERT_TRUE(eventually([&] { return silence->is_asked(); }));
    take();
    EXPECT_EQ(left_.size(), 1U) << "for the new one";
    silence.reset();
    EXPECT_TRUE(eventually([this] {
        take();
        return left_.size() == 2;
    })) << "the new ones were tried";
}

TEST_F(gateway_opener, server_that_is_listed_again_before_it_has_left_stays) {
    for (std::size_t i = 0; i < 3; ++i) start(i);
    behind_.name({0, 1});
    names_ = {{behind_.uri(), {""}}};
    open();
    ASSERT_TRUE(joins(behind_.named(0)) && joins(behind_.named(1)));
    auto silence = behind_.silence(3);
    behind_.name({3});
    ASSERT_TRUE(eventually([&] { return silence->is_asked(); }));
    behind_.name({0, 1, 2});
    const std::size_t before = lookups_of(behind_.name());
    ASSERT_TRUE(eventually([&] { return lookups_of(behind_.name()) >= before + 2; })) << "one has ended";
    silence.reset();
    ASSERT_TRUE(joins(behind_.named(2)));
    take();
    EXPECT_TRUE(left_.empty());
    EXPECT_EQ(joined_.size(), 3U);
}

TEST_F(gateway_opener, server_that_refuses_room_for_metadata_is_reached_without) {
    server_options tight;
    tight.max_request_bytes = 4096;
    server_options narrow;
    narrow.max_response_bytes = 4096;
    server wide = listen(ctx_, any_uri("tcp"), answer_changed);
    std::vector<server> limited;
    for (const server_options& each : {tight, narrow})
        limited.push_back(
            server::listen(ctx_, std::vector{any_uri("tcp")}, service_table{{}, answer_changed}, each).value());
    const gateway::call_sizes needs{.request_bytes = 4096, .response_bytes = 4096, .metadata_bytes = 1000};
    for (const server* each : {&limited[0], &limited[1], &wide})
        servers_.emplace_back(client_uri(each->endpoints().at(0)), std::vector<std::string>{""}, needs);
    reach_.channels = 2;
    open();
    for (const gateway::upstream& each : servers_) ASSERT_TRUE(joins(each.uri())) << each.uri();
    ASSERT_EQ(channels_.size(), 6U);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(channels_[i].max_request_bytes(), 4096U) << i;
    for (std::size_t i = 4; i < 6; ++i) EXPECT_EQ(channels_[i].max_request_bytes(), 5096U) << i;
}

}  // namespace
}  // namespace accel::tests
