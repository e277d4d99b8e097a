// SPDX-License-Identifier: Apache-2.0
// What a context counts is what was called, at both ends.
#include "rig.hpp"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace accel::tests {
namespace {

using label = std::pair<std::string_view, std::string_view>;

class counting : public on_every_backend {
  protected:
    void listen(const service_table& services, server_options options = calm_server()) {
        auto made = server::listen(context_, {GetParam().listen_uri()}, services, options);
        ASSERT_TRUE(made.ok()) << made.error().message;
        server_ = std::make_unique<server>(std::move(*made));
    }
    [[nodiscard]] checked_channel connect(channel_options options = calm_client()) {
        auto made = channel::connect(context_, server_->endpoints().at(0), options);
        if (!made) throw std::runtime_error(made.error().message);
        return checked_channel(std::move(*made));
    }
    /// One call; its status.
    static status call(checked_channel& client, std::size_t length, const submit_options& options = {}) {
        client.send_seed(length, 1, options);
        const completion c = client.next();
        EXPECT_EQ(client.release(c.id), status::ok);
        return c.status;
    }
    [[nodiscard]] double sum(std::string_view name, std::initializer_list<label> labels = {}) const {
        return context_.metrics().sum(name, labels);
    }
    /// The server counts a call when its answer has left, which its client may see before.
    [[nodiscard]] bool comes_to(std::string_view name, std::initializer_list<label> labels, double value) const {
        return eventually(patience(5s), [&] { return sum(name, labels) == value; });
    }
    /// The scheme that counts, of either end.
    [[nodiscard]] label scheme() const { return {"scheme", GetParam().scheme}; }

    context context_ = quiet_context(true);
    std::unique_ptr<server> server_;
};

constexpr label at_client{"role", "client"};
constexpr label at_server{"role", "server"};
constexpr label ok{"status", "ok"};

TEST_P(counting, calls_bytes_and_stages_are_those_that_were_called) {
    listen({{}, echo});
    auto client = connect();
    double bytes = 0;
    for (const std::size_t length : {0U, 1U, 64U, 1000U, 60'000U}) {
        for (int i = 0; i < 4; ++i) ASSERT_EQ(call(client, length), status::ok);
        bytes += 4.0 * static_cast<double>(length);
    }
    for (const label& role : {at_client, at_server}) {
        EXPECT_TRUE(comes_to("accel_calls_total", {role, scheme(), ok}, 20)) << role.second;
        EXPECT_EQ(sum("accel_calls_total", {role}), 20) << "of no other status or scheme";
        EXPECT_TRUE(comes_to("accel_request_bytes_total", {role}, bytes)) << role.second;
        EXPECT_TRUE(comes_to("accel_response_bytes_total", {role}, bytes)) << role.second;
    }
    for (const char* stage : {"total", "request", "response"})
        EXPECT_EQ(sum("accel_stage_seconds", {at_client, {"stage", stage}}), 20) << stage;
    for (const char* stage : {"queue", "server"})
        EXPECT_TRUE(comes_to("accel_stage_seconds", {at_server, {"stage", stage}}, 20)) << stage;
    EXPECT_EQ(sum("accel_stage_seconds", {at_server, {"stage", "preprocessing"}}), 0) << "nobody has recorded it";
    EXPECT_EQ(sum("accel_calls_in_flight"), 0);
    EXPECT_EQ(sum("accel_channels"), 1);
    EXPECT_EQ(sum("accel_sessions"), 1);
    EXPECT_EQ(sum("accel_servers"), 1);
}

TEST_P(counting, gauges_of_calls_in_flight_return_to_zero) {
    held_exchanges held;
    listen({{}, held.keeper()});
    auto client = connect();
    for (int i = 0; i < 5; ++i) client.send_seed(10, 1);
    ASSERT_TRUE(held.wait_for(5));
    EXPECT_EQ(sum("accel_calls_in_flight", {scheme()}), 5);
    EXPECT_EQ(sum("accel_exchanges_open"), 5);
    for (int i = 0; i < 5; ++i) (void)held.take().reply(0);
    EXPECT_EQ(client.finish(status::ok), 5U);
    EXPECT_EQ(sum("accel_calls_in_flight"), 0);
    EXPECT_TRUE(comes_to("accel_exchanges_open", {}, 0));
}

TEST_P(counting, failures_are_counted_by_their_status) {
    listen({{}, [](exchange one) { (void)one.fail(status::application_error, 3, "no"); }});
    auto client = connect();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(call(client, 10), status::application_error);
    EXPECT_EQ(call(client, 10, {.target = target_of("nobody")}), status::not_found);
    for (const label& role : {at_client, at_server}) {
        EXPECT_TRUE(comes_to("accel_calls_total", {role, {"status", "application_error"}}, 3)) << role.second;
        EXPECT_TRUE(comes_to("accel_calls_total", {role, {"status", "not_found"}}, 1)) << role.second;
        EXPECT_EQ(sum("accel_calls_total", {role, ok}), 0) << role.second;
        EXPECT_TRUE(comes_to("accel_request_bytes_total", {role}, 40)) << role.second;
    }
    EXPECT_EQ(sum("accel_calls_total", {at_server, {"target", "(unknown)"}, {"status", "not_found"}}), 1);
    EXPECT_EQ(sum("accel_stage_seconds"), 0) << "stages are of calls that ended well";
}

TEST_P(counting, calls_that_end_early_are_counted_once) {
    held_exchanges held;
    listen({{}, held.keeper()});
    auto client = connect();
    const call_id cancelled = client.send_seed(10, 1);
    EXPECT_EQ(client.cancel(cancelled), status::ok);
    completion c = client.next();
    EXPECT_EQ(client.release(c.id), status::ok);
    client.send_seed(10, 1, {.timeout = patience(20ms)});
    c = client.next();
    EXPECT_EQ(client.release(c.id), status::ok);
    EXPECT_EQ(sum("accel_calls_total", {at_client, {"status", "cancelled"}}), 1);
    EXPECT_EQ(sum("accel_calls_total", {at_client, {"status", "timed_out"}}), 1);
    EXPECT_EQ(sum("accel_calls_total", {at_client}), 2);
    EXPECT_EQ(sum("accel_calls_in_flight"), 0);
    held.clear();
}

TEST_P(counting, answers_to_lost_clients_are_counted) {
    held_exchanges held;
    listen({{}, held.keeper()});
    {
        auto client = connect();
        client.send_seed(10, 1);
        ASSERT_TRUE(held.wait_for(1));
        client.forget();
    }
    ASSERT_TRUE(comes_to("accel_sessions", {}, 0));
    (void)held.take().reply(std::size_t{0});
    EXPECT_TRUE(comes_to("accel_calls_total", {at_server, {"status", "peer_lost"}}, 1));
    EXPECT_TRUE(comes_to("accel_exchanges_open", {}, 0));
    EXPECT_EQ(sum("accel_calls_total", {at_server}), 1);
}

TEST_P(counting, refused_submissions_are_not_counted) {
    listen({{}, echo});
    auto client = connect();
    call_view call;
    ASSERT_EQ(client.begin(call), status::ok);
    const tensor beyond{{}, 1, 0, {1000}};
    EXPECT_EQ(client.submit(call.id, 10, {.tensors = {&beyond, 1}}), status::invalid_argument);
    EXPECT_EQ(client.submit(call.id, 1 << 20), status::message_too_large);
    EXPECT_EQ(sum("accel_calls_in_flight"), 0);
    EXPECT_EQ(client->statistics().submitted, 0U);
    EXPECT_EQ(client.release(call.id), status::ok);
}

TEST_P(counting, each_target_has_its_series) {
    listen({{{"resnet", echo}, {"bert", echo}, {"quotes\"and\\more", echo}}, echo});
    auto client = connect();
    for (const char* name : {"resnet", "bert", "quotes\"and\\more"}) ASSERT_TRUE(client->resolve(name).ok());
    for (int round = 0; round < 3; ++round) {
        EXPECT_EQ(call(client, 100, {.target = target_of("resnet")}), status::ok);
        EXPECT_EQ(call(client, 10, {.target = target_of("bert")}), status::ok);
        EXPECT_EQ(call(client, 1), status::ok);
    }
    EXPECT_EQ(call(client, 5, {.target = target_of("quotes\"and\\more")}), status::ok);
    for (const label& role : {at_client, at_server}) {
        EXPECT_TRUE(comes_to("accel_request_bytes_total", {role, {"target", "resnet"}}, 300)) << role.second;
        EXPECT_TRUE(comes_to("accel_request_bytes_total", {role, {"target", "bert"}}, 30)) << role.second;
        EXPECT_TRUE(comes_to("accel_request_bytes_total", {role, {"target", ""}}, 3)) << role.second;
        EXPECT_TRUE(comes_to("accel_calls_total", {role, {"target", "quotes\"and\\more"}}, 1)) << role.second;
    }
    const std::string text = prometheus_text(context_.metrics());
    EXPECT_NE(text.find("target=\"quotes\\\"and\\\\more\""), std::string::npos) << text;
}

TEST_P(counting, more_targets_than_a_channel_counts_apart_share_a_series) {
    service_table services;
    for (int i = 0; i < 20; ++i) services.named.push_back({"m" + std::to_string(i), echo});
    listen(services);
    auto client = connect();
    for (int round = 0; round < 2; ++round)
        for (const service_table::entry& each : services.named)
            EXPECT_EQ(call(client, 10, {.target = target_of(each.name)}), status::ok);
    EXPECT_EQ(sum("accel_calls_total", {at_client}), 40);
    EXPECT_EQ(sum("accel_calls_total", {at_client, {"target", "(other)"}}), 24);
    EXPECT_EQ(sum("accel_calls_total", {at_client, {"target", "m0"}}), 2);
    EXPECT_TRUE(comes_to("accel_calls_total", {at_server, {"target", "m19"}}, 2));
}

TEST_P(counting, stages_that_handlers_record_are_counted) {
    if (handlers_on_gpu()) GTEST_SKIP() << "its stream records them as well";
    // Of the handler: it may outlive this function, for all that a sanitizer knows.
    const auto served = std::make_shared<std::atomic<int>>(0);
    listen({{}, [served](exchange one) {
                one.record(stage::copy, 1ms);
                if (++*served % 2 == 0) one.record(stage::inference, 3ms);
                echo(std::move(one));
            }});
    auto client = connect();
    for (int i = 0; i < 4; ++i) EXPECT_EQ(call(client, 10), status::ok);
    EXPECT_TRUE(comes_to("accel_stage_seconds", {at_server, {"stage", "copy"}}, 4));
    EXPECT_TRUE(comes_to("accel_stage_seconds", {at_server, {"stage", "inference"}}, 2));
    EXPECT_TRUE(comes_to("accel_stage_seconds", {at_server, {"stage", "server"}}, 4));
    EXPECT_EQ(sum("accel_stage_seconds", {at_server, {"stage", "preprocessing"}}), 0);
    for (const metric_family& family : context_.metrics().families) {
        for (const metric& each : family.series) {
            if (family.name != "accel_stage_seconds" || each.labels.back().second != "inference") continue;
            EXPECT_NEAR(each.value, 0.006, 1e-9) << "the sum, in seconds";
            for (const metric::bucket& bucket : each.buckets)
                EXPECT_EQ(bucket.count, bucket.upper > 0.003 ? 2U : 0U) << bucket.upper;
        }
    }
}

/// Also one that is refused before anybody has looked who serves it.
TEST_P(counting, refused_calls_are_counted_at_their_target) {
    held_exchanges held;
    server_options one_at_a_time = calm_server();
    one_at_a_time.max_exchanges = 1;
    listen({{{"resnet", held.keeper()}}, held.keeper()}, one_at_a_time);
    auto client = connect();
    client.send_seed(10, 1);
    ASSERT_TRUE(held.wait_for(1));
    EXPECT_EQ(call(client, 10, {.target = target_of("resnet")}), status::overloaded);
    for (const label& role : {at_client, at_server})
        EXPECT_TRUE(comes_to("accel_calls_total", {role, {"target", "resnet"}, {"status", "overloaded"}}, 1))
            << role.second;
    EXPECT_EQ(sum("accel_calls_total", {{"target", ""}, {"status", "overloaded"}}), 0);
    (void)held.take().reply(std::size_t{0});
    EXPECT_EQ(client.finish(status::ok), 1U);
}

/// A call counts once, however many parts its response has. A slot that had a part counts the next call as its own.
TEST_P(counting, parts_are_counted_apart_from_calls) {
    const auto three_parts = [](exchange one) {
        for (int i = 0; i < 3; ++i) {
            EXPECT_FALSE(one.part().empty());
            EXPECT_EQ(one.send(100), status::ok);
        }
        (void)one.reply(std::size_t{7});
    };
    listen({{{"tokens", three_parts}, {"echo", echo}}, echo});
    auto client = connect();
    for (int round = 0; round < 4; ++round) {
        call_view call;
        ASSERT_EQ(client.begin(call), status::ok);
        ASSERT_EQ(client.submit(call.id, 10, {.target = target_of("tokens"), .parts = 3}), status::ok);
        EXPECT_EQ(client.finish(status::ok), 4U);
        for (int i = 0; i < 8; ++i) EXPECT_EQ(this->call(client, 1, {.target = target_of("echo")}), status::ok);
    }
    for (const label& role : {at_client, at_server}) {
        const label tokens{"target", "tokens"};
        EXPECT_TRUE(comes_to("accel_calls_total", {role, tokens, ok}, 4)) << role.second;
        EXPECT_TRUE(comes_to("accel_response_parts_total", {role, tokens}, 12)) << role.second;
        EXPECT_EQ(sum("accel_response_parts_total", {role}), 12) << role.second;
        EXPECT_TRUE(comes_to("accel_response_bytes_total", {role, tokens}, 4 * 307)) << role.second;
        EXPECT_TRUE(comes_to("accel_request_bytes_total", {role, tokens}, 40)) << role.second;
        EXPECT_TRUE(comes_to("accel_calls_total", {role, {"target", "echo"}, ok}, 32)) << role.second;
    }
    EXPECT_EQ(sum("accel_stage_seconds", {at_client, {"stage", "total"}}), 36);
    EXPECT_EQ(sum("accel_calls_in_flight"), 0);
    EXPECT_TRUE(comes_to("accel_exchanges_open", {}, 0));
}

/// Counters never fall: what has ended stays in the sums, gauges do not.
TEST_P(counting, counters_keep_the_calls_of_ended_channels_and_servers) {
    for (int round = 1; round <= 3; ++round) {
        listen({{}, echo});
        {
            auto client = connect();
            for (int i = 0; i < 5; ++i) EXPECT_EQ(call(client, 10), status::ok);
        }
        EXPECT_EQ(sum("accel_channels"), 0);
        server_.reset();
        EXPECT_EQ(sum("accel_calls_total", {at_client, ok}), 5 * round);
        EXPECT_EQ(sum("accel_calls_total", {at_server, ok}), 5 * round);
        EXPECT_EQ(sum("accel_stage_seconds", {at_server, {"stage", "server"}}), 5 * round);
        EXPECT_EQ(sum("accel_sessions_opened_total"), round);
        EXPECT_EQ(sum("accel_sessions"), 0);
        EXPECT_EQ(sum("accel_servers"), 0);
        EXPECT_EQ(sum("accel_slot_memory_bytes"), 0);
    }
}

TEST_P(counting, snapshots_while_calls_run_never_fall) {
    server_options two = calm_server();
    two.workers = 2;
    listen({{}, echo}, two);
    std::atomic<bool> over{false};
    std::thread reader([&] {
        double calls = 0;
        while (!over.load()) {
            const metrics_snapshot seen = context_.metrics();
            const double now = seen.sum("accel_calls_total");
            EXPECT_GE(now, calls);
            EXPECT_LE(seen.sum("accel_calls_in_flight"), 32);
            calls = now;
        }
    });
    std::vector<std::thread> callers;
    for (int t = 0; t < 2; ++t)
        callers.emplace_back([this] {
            for (int connection = 0; connection < 3; ++connection) {
                auto client = connect();
                for (int i = 0; i < 100; ++i) EXPECT_EQ(call(client, 100), status::ok);
            }
        });
    for (std::thread& each : callers) each.join();
    over = true;
    reader.join();
    EXPECT_EQ(sum("accel_calls_total", {at_client, ok}), 600);
    EXPECT_TRUE(comes_to("accel_calls_total", {at_server, ok}, 600));
}

TEST_P(counting, blocking_calls_count_too) {
    listen({{}, echo});
    auto client = connect();
    std::vector<std::byte> request(100);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(client->call(request).ok());
    EXPECT_EQ(sum("accel_calls_total", {at_client, ok}), 3);
    EXPECT_EQ(sum("accel_request_bytes_total", {at_client}), 300);
    EXPECT_EQ(sum("accel_calls_in_flight"), 0);
}

TEST_P(counting, bytes_of_ranges_are_copied_where_the_transport_does_not_take_them) {
    constexpr std::size_t each = 1'000;
    listen({{}, echo});
    auto client = connect();
    const region memory = context_.allocate(8 * each).value();
    std::vector<slice> into;
    for (std::size_t i = 0; i < 4; ++i) into.push_back(memory.part(2 * i * each, each).value());
    client.send_seed(3 * each, 5, {.response_ranges = into});
    const completion c = client.next();
    EXPECT_EQ(c.response.size(), 3 * each);
    EXPECT_EQ(client.release(c.id), status::ok);
    const bool copies = GetParam().scheme != "tcp";
    EXPECT_EQ(sum("accel_copied_range_bytes_total"), copies ? 3.0 * each : 0.0);
}

TEST_P(counting, a_context_without_metrics_counts_nothing) {
    rig r(GetParam());
    auto client = r.connect();
    EXPECT_EQ(call(client, 10), status::ok);
    EXPECT_TRUE(r.ctx().metrics().families.empty());
    EXPECT_EQ(prometheus_text(r.ctx().metrics()), "");
}

ACCEL_INSTANTIATE(counting, all_backends);

}  // namespace
}  // namespace accel::tests
