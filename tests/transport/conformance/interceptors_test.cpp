// SPDX-License-Identifier: Apache-2.0
// Interceptors at both ends: each sees every call once before it goes and once when it has ended.
#include "rig.hpp"

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace accel::tests {
namespace {

/// Notes what it sees, as lines.
class noting_client final : public client_interceptor {
  public:
    explicit noting_client(std::string name, std::vector<std::string>& lines) : name_(std::move(name)), lines_(lines) {}
    status before(outgoing_call& call) noexcept override {
        ++begun;
        bytes = call.request_bytes;
        last = call.id;
        EXPECT_TRUE(open_.emplace(call.channel, call.id).second);
        if (changes) change(call.options);
        lines_.push_back("before " + name_);
        return refuses;
    }
    void after(const ended_call& ended) noexcept override {
        ++over;
        outcome = ended.outcome.status;
        tag = ended.outcome.tag;
        traced = ended.outcome.trace != nullptr;
        total = ended.outcome.timeline.total;
        response_bytes = ended.outcome.response.size();
        EXPECT_FALSE(ended.outcome.more);
        EXPECT_EQ(open_.erase({ended.channel, ended.outcome.call}), 1U);
        lines_.push_back("after " + name_);
    }

    static void change(submit_options& options) {
        options.timeout = 1h;
        options.trace_id = 77;
        options.tag = 99;
        options.parts = 2;
        options.continues = true;
        options.response_ranges = {};
    }

    bool changes = false;
    bool traced = false;
    status refuses = status::ok;
    int begun = 0;
    int over = 0;
    std::size_t bytes = 0;
    std::size_t response_bytes = 0;
    call_id last;
    status outcome = status::again;
    std::uint64_t tag = 0;
    nanoseconds total{};

  private:
    std::string name_;
    std::vector<std::string>& lines_;
    std::set<std::pair<std::uint64_t, call_id>> open_;
};

/// What a server's interceptor sees; of any worker.
class noting_server final : public server_interceptor {
  public:
    struct seen {
        call_id id;
        std::string target;
        accel::status status;
        std::uint32_t code;
        std::uint64_t trace_id;
        std::size_t request_bytes;
        std::size_t response_bytes;
        accel::timeline timeline;
    };
    result<void> before(const exchange& request) override {
        metadata_room room;
        const auto got = request.metadata(room);
        const bool let_in = !wants_token || (got && find_metadata(*got, "token") == "blue");
        const std::lock_guard held(guard_);
        ++begun_;
        EXPECT_TRUE(open_.emplace(request.session_id(), request.id()).second);
        if (earlier != nullptr) {
            EXPECT_EQ(earlier->begun(), begun_) << "it has seen the request before";
        }
        if (throws) throw std::runtime_error("an interceptor threw");
        if (!let_in) return error{status::unauthorized, 7, "no token"};
        return {};
    }
    void after(const served_call& call) noexcept override {
        const std::lock_guard held(guard_);
        EXPECT_EQ(open_.erase({call.session_id, call.id}), 1U);
        if (earlier != nullptr) {
            EXPECT_EQ(earlier->all().size(), over_.size()) << "it sees the end later";
        }
        over_.push_back({call.id, std::string{call.target}, call.status, call.code, call.trace_id, call.request_bytes,
                         call.response_bytes, call.timeline});
        EXPECT_NE(call.session_id, 0U);
        EXPECT_FALSE(call.scheme.empty());
    }
    /// Waits for `count` answers.
    [[nodiscard]] std::vector<seen> wait_for(std::size_t count) {
        EXPECT_TRUE(eventually(until_hung(), [&] { return all().size() >= count; }));
        EXPECT_EQ(begun(), count);
        return all();
    }
    [[nodiscard]] std::vector<seen> all() {
        const std::lock_guard held(guard_);
        return over_;
    }
    [[nodiscard]] std::size_t begun() {
        const std::lock_guard held(guard_);
        return begun_;
    }
    noting_server* earlier = nullptr;  ///< before this one in the list
    std::atomic<bool> wants_token{false};
    std::atomic<bool> throws{false};

  private:
    std::mutex guard_;
    std::size_t begun_ = 0;
    std::set<std::pair<std::uint64_t, call_id>> open_;
    std::vector<seen> over_;
};

/// Adds a token to what the call has.
struct token_interceptor final : client_interceptor {
    status before(outgoing_call& call) noexcept override { return call.add_metadata("token", value); }
    std::string value = "blue";
};

class intercepting : public on_every_backend {
  protected:
    [[nodiscard]] channel_options watched() {
        channel_options options = calm_client();
        options.interceptors = {outer_, inner_};
        return options;
    }
    [[nodiscard]] server_options watching() {
        server_options options = calm_server();
        options.interceptors = {served_};
        return options;
    }
    std::vector<std::string> lines_;
    std::shared_ptr<noting_client> outer_ = std::make_shared<noting_client>("outer", lines_);
    std::shared_ptr<noting_client> inner_ = std::make_shared<noting_client>("inner", lines_);
    std::shared_ptr<noting_server> served_ = std::make_shared<noting_server>();
};

TEST_P(intercepting, each_call_is_seen_before_and_after_it) {
    rig r(GetParam(), echo, watching());
    auto memory = r.ctx().allocate(8'192);
    ASSERT_TRUE(memory.ok());
    fill(memory->whole().bytes(), 1);
    auto client = r.connect(watched());
    const std::array ranges{memory->part(0, 1'000).value(), memory->part(4'000, 500).value()};
    for (int way = 0; way < 3; ++way) {
        const auto call = client.begin();
        ASSERT_EQ(call.code(), status::ok);
        fill(call->request.first(700), 1);
        const submit_options options{.tag = 5, .trace_id = 6};
        const status sent = way == 0   ? client.submit(call->id, 700, options)
                            : way == 1 ? client.submit(call->id, memory->part(0, 2'000).value(), options)
                                       : client.submit(call->id, ranges, options);
        ASSERT_EQ(sent, status::ok);
        const std::size_t length = way == 0 ? 700 : way == 1 ? 2'000 : 1'500;
        EXPECT_EQ(outer_->bytes, length);
        EXPECT_EQ(outer_->last, call->id);
        EXPECT_EQ(outer_->over, way);
        const completion c = client.next();
        ASSERT_EQ(c.status, status::ok);
        EXPECT_EQ(outer_->over, way + 1);
        EXPECT_EQ(outer_->outcome, status::ok);
        EXPECT_EQ(outer_->tag, 5U);
        EXPECT_EQ(outer_->total, c.timeline.total);
        EXPECT_EQ(outer_->response_bytes, length);
        EXPECT_EQ(lines_, (std::vector<std::string>{"before outer", "before inner", "after inner", "after outer"}));
        lines_.clear();
    }
    const auto seen = served_->wait_for(3);
    EXPECT_EQ(seen[0].request_bytes, 700U);
    EXPECT_EQ(seen[0].response_bytes, 700U);
    for (const auto& each : seen) {
        EXPECT_EQ(each.status, status::ok);
        EXPECT_EQ(each.trace_id, 6U);
        EXPECT_EQ(each.target, "");
        EXPECT_GE(each.timeline.server, each.timeline.queue);
        EXPECT_GT(each.timeline.server, 0ns);
    }
}

TEST_P(intercepting, token_of_an_interceptor_is_checked_by_one) {
    served_->wants_token = true;
    rig r(GetParam(), echo, watching());
    channel_options options = calm_client();
    const auto token = std::make_shared<token_interceptor>();
    options.interceptors = {token};
    auto client = r.connect(options);
    const std::array own{metadata_entry{"tenant", "t"}};
    EXPECT_TRUE(client->call({}, {.metadata = own}));
    EXPECT_TRUE(client->call({}));
    token->value = "green";
    const auto refused = client->call({}, {.metadata = own});
    ASSERT_EQ(refused.code(), status::unauthorized);
    EXPECT_EQ(refused.error().native, 7);
    EXPECT_NE(refused.error().message.find("no token"), std::string::npos) << refused.error().message;
    const auto seen = served_->wait_for(3);
    EXPECT_EQ(seen[0].status, status::ok);
    EXPECT_EQ(seen[2].status, status::unauthorized);
    EXPECT_EQ(seen[2].code, 7U);
    EXPECT_EQ(r.served().statistics().requests, 3U);
}

TEST_P(intercepting, added_metadata_is_limited_and_checked) {
    struct adding final : client_interceptor {
        status before(outgoing_call& call) noexcept override {
            status last = status::ok;
            for (int i = 0; i < count; ++i) last = call.add_metadata(key + std::to_string(i), value);
            return last;
        }
        int count = 1;
        std::string key = "k";
        std::string value = "v";
    };
    rig r(GetParam());
    channel_options options = calm_client();
    const auto added = std::make_shared<adding>();
    options.interceptors = {added};
    auto client = r.connect(options);
    EXPECT_TRUE(client->call({}));
    added->count = 33;
    EXPECT_EQ(client->call({}).code(), status::message_too_large);
    added->count = 2;
    added->value = std::string(2'100, 'v');
    EXPECT_EQ(client->call({}).code(), status::message_too_large);
    added->count = 1;
    added->value = "v";
    added->key = "Upper";
    EXPECT_EQ(client->call({}).code(), status::invalid_argument);
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(intercepting, refused_call_is_not_sent_and_can_be_tried_again) {
    rig r(GetParam());
    auto client = r.connect(watched());
    const auto call = client.begin();
    ASSERT_EQ(call.code(), status::ok);
    outer_->refuses = status::overloaded;
    EXPECT_EQ(client.submit(call->id, 10, {.tag = 3}), status::overloaded);
    EXPECT_NE(client->last_error().find("interceptor"), std::string_view::npos);
    EXPECT_EQ(lines_, (std::vector<std::string>{"before outer", "after outer"})) << "the inner one does not see it";
    EXPECT_EQ(outer_->outcome, status::overloaded);
    EXPECT_EQ(outer_->tag, 3U);
    EXPECT_EQ(client->statistics().submitted, 0U);
    outer_->refuses = status::ok;
    EXPECT_EQ(client.submit(call->id, 10), status::ok);
    EXPECT_EQ(client.finish(status::ok), 1U);
    EXPECT_EQ(outer_->over, 2);
    EXPECT_EQ(r.served().statistics().requests, 1U);
}

TEST_P(intercepting, refusal_is_not_taken_for_the_state_of_the_channel) {
    rig r(GetParam());
    const channel_options options = watched();
    auto client = r.connect(options);
    auto shared = shared_channel::connect(r.ctx(), r.uri(), options);
    ASSERT_TRUE(shared) << shared.error().message;
    auto pool = channel_pool::open(r.ctx(), r.uri(), options);
    ASSERT_TRUE(pool) << pool.error().message;
    EXPECT_TRUE(pool->call({}));
    for (const status said : {status::again, status::closed, status::peer_lost, status::device_lost}) {
        outer_->refuses = said;
        EXPECT_EQ(client->call({}).code(), status::overloaded);
        EXPECT_EQ(shared->call(std::span<const std::byte>{}).code(), status::overloaded);
        EXPECT_EQ(pool->call({}).code(), status::overloaded);
    }
    outer_->refuses = status::ok;
    EXPECT_TRUE(client->call({}));
    EXPECT_TRUE(shared->call(std::span<const std::byte>{}));
    EXPECT_TRUE(pool->call({}));
    EXPECT_EQ(pool->statistics().lost, 0U);
    EXPECT_EQ(pool->statistics().made, 1U);
}

TEST_P(intercepting, only_some_options_can_be_changed) {
    rig r(GetParam(), echo, watching());
    auto client = r.connect(watched());
    inner_->changes = true;
    const trace_context trace = *trace_context::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    auto answer = client->call({}, {.tag = 5, .trace_id = 6, .trace = trace});
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(answer->tag, 5U);
    EXPECT_EQ(answer->trace_id, 77U);
    EXPECT_EQ(served_->wait_for(1)[0].trace_id, 77U);
    EXPECT_TRUE(outer_->traced);
    answer->release();
    inner_->refuses = status::overloaded;
    EXPECT_EQ(client->call({}, {.trace = trace}).code(), status::overloaded);
    EXPECT_TRUE(outer_->traced) << "also of a call that was not sent";
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(intercepting, calls_that_wait_for_slots_are_not_seen_yet) {
    rig r(GetParam());
    channel_options options = watched();
    options.slots = 2;
    auto client = r.connect(options);
    const auto first = client.begin();
    const auto second = client.begin();
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_EQ(client.submit(first->id, 1, {.parts = 1}), status::again);
    EXPECT_EQ(outer_->begun, 0);
    EXPECT_EQ(client.release(second->id), status::ok);
    EXPECT_EQ(client.submit(first->id, 1, {.parts = 1}), status::ok);
    EXPECT_EQ(client.finish(status::ok), 1U);
    EXPECT_EQ(outer_->begun, 1);
    EXPECT_EQ(outer_->over, 1);
}

TEST_P(intercepting, calls_that_cannot_be_sent_have_ended) {
    rig r(GetParam());
    auto client = r.connect(watched());
    const auto call = client.begin();
    ASSERT_EQ(call.code(), status::ok);
    EXPECT_EQ(client.submit(call->id, 1, {.parts = client->slots()}), status::invalid_argument);
    EXPECT_EQ(inner_->outcome, status::invalid_argument);
    EXPECT_EQ(inner_->over, 1);
    EXPECT_EQ(client.submit(call->id, client->max_request_bytes() + 1), status::message_too_large);
    EXPECT_EQ(inner_->begun, 1) << "it is no call";
    EXPECT_EQ(client.release(call->id), status::ok);
}

TEST_P(intercepting, failed_cancelled_and_expired_calls_end_once) {
    held_exchanges held;
    rig r(GetParam(), held.keeper(), watching());
    auto client = r.connect(watched());
    (void)client.send_seed(10, 1);
    exchange failing = held.take();
    EXPECT_EQ(failing.fail(status::application_error, 9, "no"), status::ok);
    EXPECT_EQ(client.finish(status::application_error), 1U);
    EXPECT_EQ(outer_->outcome, status::application_error);
    const call_id cancelled = client.send_seed(10, 2);
    exchange open = held.take();
    EXPECT_EQ(client.cancel(cancelled), status::ok);
    EXPECT_EQ(client.finish(status::cancelled), 1U);
    EXPECT_EQ(outer_->outcome, status::cancelled);
    EXPECT_EQ(open.reply(0), status::ok);
    (void)client.send_seed(10, 3, {.timeout = 1ms});
    EXPECT_EQ(client.finish(status::timed_out), 1U);
    EXPECT_EQ(outer_->outcome, status::timed_out);
    EXPECT_EQ(outer_->over, 3);
    EXPECT_EQ(outer_->begun, 3);
    EXPECT_TRUE(eventually(until_hung(), [&] {
        held.clear();  // also one whose deadline has passed on its way to the handler
        return served_->all().size() == served_->begun();
    }));
    EXPECT_TRUE(client.all_slots_free());
    const auto seen = served_->all();
    ASSERT_GE(seen.size(), 2U);
    EXPECT_EQ(seen[0].status, status::application_error);
    EXPECT_EQ(seen[0].code, 9U);
    EXPECT_EQ(seen[1].status, status::ok) << "the answer that nobody waits for";
}

TEST_P(intercepting, response_in_parts_ends_once) {
    rig r(
        GetParam(),
        [](exchange one) {
            for (int i = 0; i < 3; ++i) {
                fill(one.part(until_hung()).first(100), 1);
                EXPECT_EQ(one.send(std::size_t{100}), status::ok);
            }
            (void)one.reply(0);
        },
        watching());
    auto client = r.connect(watched());
    (void)client.send_seed(10, 1, {.parts = 3});
    for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(client.next().more);
        EXPECT_EQ(outer_->over, 0);
    }
    EXPECT_FALSE(client.next().more);
    EXPECT_EQ(outer_->over, 1);
    EXPECT_EQ(served_->wait_for(1)[0].status, status::ok);
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(intercepting, calls_that_nobody_takes_end_with_their_channel) {
    held_exchanges held;
    rig r(GetParam(), held.keeper(), watching());
    {
        auto client = r.connect(watched());
        (void)client.send_seed(10, 1);
        (void)client.send_seed(10, 2);
        ASSERT_TRUE(held.wait_for(2));
        client.forget();
    }
    EXPECT_EQ(outer_->over, 2);
    EXPECT_EQ(outer_->outcome, status::closed);
    EXPECT_TRUE(eventually(until_hung(), [&] { return r.served().statistics().sessions == 0; }));
    for (int i = 0; i < 2; ++i) EXPECT_EQ(held.take().reply(0), status::peer_lost);
    for (const auto& each : served_->wait_for(2)) EXPECT_EQ(each.status, status::peer_lost);
}

TEST_P(intercepting, target_of_a_request_is_named_and_unknown_ones_are_not_seen) {
    context ctx = quiet_context();
    const handler tells = [](exchange one) { (void)one.reply(0); };
    auto served = server::listen(ctx, GetParam().listen_uri(), service_table{{{"first", tells}}}, watching());
    ASSERT_TRUE(served) << served.error().message;
    ASSERT_TRUE(served->add_target("second", tells));
    auto client = channel::connect(ctx, served->endpoints().at(0), calm_client());
    ASSERT_TRUE(client) << client.error().message;
    for (const char* name : {"first", "second"}) {
        const auto found = client->resolve(name);
        ASSERT_TRUE(found);
        EXPECT_TRUE(client->call({}, {.target = *found}));
    }
    EXPECT_EQ(client->call({}).code(), status::not_found);
    const auto seen = served_->wait_for(2);
    EXPECT_EQ(seen[0].target, "first");
    EXPECT_EQ(seen[1].target, "second");
}

TEST_P(intercepting, server_asks_in_order_and_tells_in_reverse_those_that_were_asked) {
    const auto later = std::make_shared<noting_server>();
    later->earlier = served_.get();
    server_options options = watching();
    options.interceptors.push_back(later);
    rig r(GetParam(), echo, options);
    auto client = r.connect();
    EXPECT_TRUE(client->call({}));
    EXPECT_TRUE(client->call({}));
    (void)served_->wait_for(2);
    served_->wants_token = true;
    EXPECT_EQ(client->call({}).code(), status::unauthorized);
    (void)served_->wait_for(3);
    EXPECT_EQ(later->begun(), 2U);
    EXPECT_EQ(later->all().size(), 2U);
}

TEST_P(intercepting, answers_after_the_end_of_the_server_are_seen) {
    held_exchanges held;
    server_options options = watching();
    options.drain_timeout = 10ms;
    auto ctx = quiet_context();
    auto served = server::listen(ctx, GetParam().listen_uri(), held.keeper(), options);
    ASSERT_TRUE(served) << served.error().message;
    auto client = channel::connect(ctx, served->endpoints().at(0), calm_client());
    ASSERT_TRUE(client) << client.error().message;
    const auto call = client->begin();
    ASSERT_TRUE(call.ok());
    ASSERT_EQ(client->submit(call->id, 1), status::ok);
    exchange open = held.take();
    served->stop();
    EXPECT_EQ(open.reply(0), status::peer_lost);
    EXPECT_EQ(served_->wait_for(1)[0].status, status::peer_lost);
}

TEST_P(intercepting, exception_of_an_interceptor_is_the_answer) {
    served_->throws = true;
    rig r(GetParam(), echo, watching());
    auto client = r.connect();
    const auto failed = client->call({});
    ASSERT_EQ(failed.code(), status::application_error);
    EXPECT_NE(failed.error().message.find("an interceptor threw"), std::string::npos) << failed.error().message;
    EXPECT_EQ(served_->wait_for(1)[0].status, status::application_error);
}

TEST_P(intercepting, calls_of_shared_channels_and_pools_are_seen) {
    struct counting final : client_interceptor {
        status before(outgoing_call&) noexcept override {
            ++begun;
            return status::ok;
        }
        void after(const ended_call&) noexcept override { ++over; }
        std::atomic<int> begun{0};
        std::atomic<int> over{0};
    };
    rig r(GetParam(), echo, watching());
    const auto seen = std::make_shared<counting>();
    channel_options options = calm_client();
    options.interceptors = {seen};
    {
        auto shared = shared_channel::connect(r.ctx(), r.uri(), options);
        ASSERT_TRUE(shared) << shared.error().message;
        auto pool = channel_pool::open(r.ctx(), r.uri(), options, {.max_channels = 2});
        ASSERT_TRUE(pool) << pool.error().message;
        std::vector<std::jthread> threads;
        for (int i = 0; i < 4; ++i)
            threads.emplace_back([&] {
                for (int calls = 0; calls < 25; ++calls) {
                    EXPECT_TRUE(shared->call(std::span<const std::byte>{}));
                    EXPECT_TRUE(pool->call({}));
                }
                (void)pool->leave();
            });
    }
    EXPECT_EQ(seen->begun, 200);
    EXPECT_EQ(seen->over, 200);
    (void)served_->wait_for(200);
}

ACCEL_INSTANTIATE(intercepting, all_backends);

}  // namespace
}  // namespace accel::tests
