// SPDX-License-Identifier: Apache-2.0
// What a context counts is what was called, at both ends.
#include "rig.hpp"

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
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
        completion c = client.next();
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

/// What one end should have counted of a target.
struct expected_series {
    std::map<status, double> calls;
    double request_bytes = 0;
    double response_bytes = 0;
    double parts = 0;
    void add(status ended, std::size_t request, std::size_t response, int parts_before = 0) {
        calls[ended] += 1;
        request_bytes += static_cast<double>(request);
        response_bytes += static_cast<double>(response);
        parts += parts_before;
    }
};

/// Calls of every kind, one after another, by channels that come and go; and what both ends should count.
class counted_calls {
  public:
    using target_series = std::map<std::string_view, expected_series>;
    static constexpr std::array<std::string_view, 4> names{"", "resnet", "quotes\"and\\more", "fails"};

    explicit counted_calls(held_exchanges& held) : held_(held) {}
    [[nodiscard]] service_table services() const {
        const auto three_parts = [](exchange one) {
            for (int i = 0; i < 3; ++i) {
                EXPECT_FALSE(one.part().empty());
                EXPECT_EQ(one.send(100), status::ok);
            }
            (void)one.reply(std::size_t{7});
        };
        const auto fails = [](exchange one) { (void)one.fail(status::application_error, 3, "no"); };
        return {{{"resnet", echo},
                 {"quotes\"and\\more", echo},
                 {"fails", fails},
                 {"tokens", three_parts},
                 {"held", held_.keeper()}},
                echo};
    }
    void call(checked_channel& client, std::uint64_t random) {
        const std::size_t length = mix(random) % (random % 5 == 0 ? 60'000 : 300);
        switch (random % 7) {
            case 0:
                return stream(client, length);
            case 1:
                return hold(client, length, random / 7 % 2 == 0);
            case 2:
                return refuse(client);
            case 3:
                EXPECT_TRUE(client->call(std::vector<std::byte>(length)).ok());
                return add("", status::ok, length, length);
            case 4:
                return miss(client, length);
            default:
                const std::string_view name = names.at(random / 7 % names.size());
                const bool fails = name == "fails";
                const status ends = fails ? status::application_error : status::ok;
                finish(client, length, {.target = name.empty() ? target{} : target_of(name)}, ends);
                add(name, ends, length, fails ? 2 : length);
        }
    }
    target_series at_client, at_server;
    double not_found = 0;

  private:
    void add(std::string_view name, status ended, std::size_t request, std::size_t response, int parts = 0) {
        for (target_series* each : {&at_client, &at_server}) (*each)[name].add(ended, request, response, parts);
    }
    static void finish(checked_channel& client, std::size_t length, const submit_options& options, status ends) {
        client.send_seed(length, 1, options);
        EXPECT_EQ(client.finish(ends), 1U) << to_string(ends);
    }
    /// The answer's text names the targets that there are.
    void miss(checked_channel& client, std::size_t length) {
        client.send_seed(length, 1, {.target = target_of("nobody")});
        const completion missed = client.next();
        EXPECT_EQ(missed.status, status::not_found);
        ++not_found;
        at_server["(unknown)"].add(status::not_found, length, missed.response.size());
    }
    void stream(checked_channel& client, std::size_t length) {
        client.send_seed(length, 1, {.target = target_of("tokens"), .parts = 3});
        EXPECT_EQ(client.finish(status::ok), 4U);
        add("tokens", status::ok, length, 307, 3);
    }
    /// Ends early at the client, or does not; the server answers.
    void hold(checked_channel& client, std::size_t length, bool cancels) {
        const call_id id = client.send_seed(length, 1, {.target = target_of("held")});
        exchange one = held_.take();
        if (cancels) {
            EXPECT_EQ(client.cancel(id), status::ok);
        }
        (void)one.reply(std::size_t{5});
        const status ends = cancels ? status::cancelled : status::ok;
        EXPECT_EQ(client.finish(ends), 1U);
        at_client["held"].add(ends, length, cancels ? 0 : 5);
        at_server["held"].add(status::ok, length, 5);
    }
    static void refuse(checked_channel& client) {
        const auto call = client.begin();
        ASSERT_EQ(call.code(), status::ok);
        const tensor beyond{{}, 1, 0, {1000}};
        EXPECT_EQ(client.submit(call->id, 10, {.tensors = {&beyond, 1}}), status::invalid_argument);
        EXPECT_EQ(client.submit(call->id, 1 << 20), status::message_too_large);
        EXPECT_EQ(client.release(call->id), status::ok);
    }
    held_exchanges& held_;
};

TEST_P(counting, both_ends_count_what_was_called) {
    held_exchanges held;
    counted_calls calls(held);
    listen(calls.services());
    std::optional<checked_channel> client;
    for (std::uint64_t i = 0; i < 200; ++i) {
        if (i % 50 == 0) {
            if (client) {
                ASSERT_TRUE(client->all_slots_free()) << "answers are on their way";
            }
            client.reset();
            client.emplace(connect());
            for (const char* name : {"resnet", "quotes\"and\\more", "fails", "tokens", "held"})
                ASSERT_TRUE((*client)->resolve(name).ok());
        }
        calls.call(*client, mix(i));
    }
    ASSERT_TRUE(client->all_slots_free());
    for (const auto& [role, all] : {std::pair{at_client, &calls.at_client}, std::pair{at_server, &calls.at_server}}) {
        double ok_calls = 0;
        for (const auto& [name, wanted] : *all) {
            SCOPED_TRACE(::testing::Message() << role.second << " of '" << name << "'");
            const label of{"target", name};
            for (const auto& [ended, count] : wanted.calls)
                EXPECT_TRUE(comes_to("accel_calls_total", {role, scheme(), of, {"status", to_string(ended)}}, count))
                    << to_string(ended);
            ok_calls += wanted.calls.contains(status::ok) ? wanted.calls.at(status::ok) : 0;
            EXPECT_TRUE(comes_to("accel_request_bytes_total", {role, of}, wanted.request_bytes));
            EXPECT_TRUE(comes_to("accel_response_bytes_total", {role, of}, wanted.response_bytes));
            EXPECT_TRUE(comes_to("accel_response_parts_total", {role, of}, wanted.parts));
        }
        for (const char* stage : {"total", "request", "response", "queue", "server"}) {
            const bool at_this_end = (std::string_view(stage) == "queue" || std::string_view(stage) == "server") ==
                                     (role.second == at_server.second);
            EXPECT_TRUE(comes_to("accel_stage_seconds", {role, {"stage", stage}}, at_this_end ? ok_calls : 0)) << stage;
        }
    }
    EXPECT_EQ(sum("accel_calls_total", {at_client, {"status", "not_found"}}), calls.not_found);
    EXPECT_EQ(sum("accel_stage_seconds", {at_server, {"stage", "preprocessing"}}), 0) << "nobody has recorded it";
    const std::string text = prometheus_text(context_.metrics());
    EXPECT_NE(text.find("target=\"quotes\\\"and\\\\more\""), std::string::npos) << text;
}

/// Of calls that are open now, and of answers that have nobody to go to.
TEST_P(counting, gauges_return_to_zero_also_when_clients_are_lost) {
    held_exchanges held;
    listen({{}, held.keeper()});
    std::optional<checked_channel> client(connect());
    for (int i = 0; i < 5; ++i) client->send_seed(10, 1);
    ASSERT_TRUE(held.wait_for(5));
    EXPECT_EQ(sum("accel_calls_in_flight", {scheme()}), 5);
    EXPECT_EQ(sum("accel_exchanges_open"), 5);
    for (const char* gauge : {"accel_channels", "accel_sessions", "accel_servers"}) EXPECT_EQ(sum(gauge), 1) << gauge;
    for (int i = 0; i < 3; ++i) (void)held.take().reply(0);
    while (client->open_calls() > 2) (void)client->next();
    EXPECT_EQ(sum("accel_calls_in_flight"), 2);
    EXPECT_TRUE(comes_to("accel_exchanges_open", {}, 2));
    client->forget();
    client.reset();
    ASSERT_TRUE(comes_to("accel_sessions", {}, 0));
    for (int i = 0; i < 2; ++i) (void)held.take().reply(std::size_t{0});
    EXPECT_TRUE(comes_to("accel_calls_total", {at_server, {"status", "peer_lost"}}, 2));
    EXPECT_EQ(sum("accel_calls_total", {at_server}), 5);
    for (const char* gauge : {"accel_calls_in_flight", "accel_exchanges_open", "accel_channels"})
        EXPECT_TRUE(comes_to(gauge, {}, 0)) << gauge;
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

TEST_P(counting, parts_of_requests_count_as_bytes_of_their_requests) {
    if (std::string_view{GetParam().scheme} == "gpu") GTEST_SKIP() << "kernels refuse requests in parts";
    held_exchanges held;
    listen({.named = {{"upload", held.keeper()}}});
    auto client = connect();
    const auto to = client->resolve("upload");
    ASSERT_TRUE(to) << to.error().message;
    const call_id call = client.send_seed(100, 1, {.target = *to, .continues = true});
    exchange open = held.take();
    for (int i = 0; i < 3; ++i) {
        const auto part = client->begin_part(call);
        ASSERT_TRUE(part);
        EXPECT_EQ(client->submit_part(part->id, 10), status::ok);
        EXPECT_TRUE(open.receive(until_hung()));
    }
    EXPECT_EQ(open.reply(0), status::ok);
    EXPECT_EQ(client.finish(status::ok), 1U);
    const label target{"target", "upload"};
    EXPECT_TRUE(comes_to("accel_request_bytes_total", {at_client, target}, 130));
    EXPECT_TRUE(comes_to("accel_request_bytes_total", {at_server, target}, 130));
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

TEST_P(counting, bytes_of_ranges_are_copied_where_the_transport_does_not_take_them) {
    constexpr std::size_t each = 1'000;
    listen({{}, echo});
    auto client = connect();
    const region memory = context_.allocate(8 * each).value();
    std::vector<slice> into;
    for (std::size_t i = 0; i < 4; ++i) into.push_back(memory.part(2 * i * each, each).value());
    client.send_seed(3 * each, 5, {.response_ranges = into});
    completion c = client.next();
    EXPECT_EQ(c.response.size(), 3 * each);
    c.release();
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

TEST_P(counting, refused_submissions_are_not_counted) {
    listen({{}, echo});
    auto client = connect();
    const auto call = client.begin();
    ASSERT_EQ(call.code(), status::ok);
    const tensor beyond{{}, 1, 0, {1000}};
    EXPECT_EQ(client.submit(call->id, 10, {.tensors = {&beyond, 1}}), status::invalid_argument);
    EXPECT_EQ(client.submit(call->id, 1 << 20), status::message_too_large);
    EXPECT_EQ(sum("accel_calls_in_flight"), 0);
    EXPECT_EQ(client->statistics().submitted, 0U);
    EXPECT_EQ(client.release(call->id), status::ok);
}

ACCEL_INSTANTIATE(counting, all_backends);

}  // namespace
}  // namespace accel::tests
