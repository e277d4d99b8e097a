// SPDX-License-Identifier: Apache-2.0
#include "model_rig.hpp"
#include "serving/model_server/batcher.hpp"

#include <mutex>
#include <optional>

namespace accel::tests {
namespace {

using std::chrono::steady_clock;

/// What a batch's handler has seen: the first byte of each request.
class batch_log {
  public:
    void add(std::vector<int> batch) {
        const std::lock_guard lock(mutex_);
        batches_.push_back(std::move(batch));
    }
    [[nodiscard]] std::vector<std::vector<int>> batches() const {
        const std::lock_guard lock(mutex_);
        return batches_;
    }

  private:
    mutable std::mutex mutex_;
    std::vector<std::vector<int>> batches_;
};

/// A server whose handler puts every request into a batcher. Tests do not count on time: a batch waits until it is
/// full, unless its test says otherwise.
class batches : public model_rig {
  protected:
    void collect(const batch_limits& limits) {
        collector.emplace(limits, [this](std::uint32_t, std::span<batch_member> batch) {
            std::vector<int> numbers;
            for (const batch_member& each : batch) numbers.push_back(std::to_integer<int>(each.request.request()[0]));
            log.add(numbers);
            if (slowness > 0ns) std::this_thread::sleep_for(slowness);
            while (halted) std::this_thread::sleep_for(1ms);
            for (batch_member& each : batch) {
                each.request.response()[0] = each.request.request()[0];
                (void)each.request.reply(1);
            }
        });
        server_options options;
        options.security.insecure = true;
        const std::string where = GetParam() == "tcp" ? "tcp://" + own_loopback() + ":0" : "local://batches";
        auto made = server::listen(
            ctx, {where}, [this](exchange one) { put(std::move(one)); }, options);
        ASSERT_TRUE(made) << made.error().message;
        running = std::make_unique<server>(std::move(*made));
    }
    void put(exchange one) {
        if (std::to_integer<int>(one.request()[0]) == held_back)
            held.emplace(std::move(one));
        else
            collector->put(std::move(one), {});
        ++arrived;
    }
    /// So many requests are in the batcher, were refused there, or are held back.
    [[nodiscard]] bool have_arrived(int count) {
        return eventually(patience(20s), [&] { return arrived == count; });
    }
    void TearDown() override {
        halted = false;
        held.reset();
        running.reset();
    }
    /// The deadline is far away, because a batch leaves before it.
    [[nodiscard]] static call_id send(channel& to, int number, nanoseconds timeout = 1h) {
        const std::byte one{static_cast<unsigned char>(number)};
        return begin_call(to, {}, {&one, 1}, {}, timeout);
    }
    void expect_answer(channel& from, int number) {
        const outcome seen = end_call(from);
        ASSERT_EQ(seen.code, status::ok) << seen.text;
        EXPECT_EQ(std::to_integer<int>(seen.content[0]), number);
    }

    batch_log log;
    nanoseconds slowness{};
    std::atomic<bool> halted{false};  ///< batches wait before they are answered
    std::atomic<int> arrived{0};
    int held_back = -1;            ///< the number of a request that the test puts into the batcher itself
    std::optional<exchange> held;  ///< once it has arrived
    std::optional<batcher> collector;
};

TEST_P(batches, full_batches_leave_in_order) {
    collect({4, 1h, 64, 1});
    auto to = connect();
    for (int i = 0; i < 8; ++i) (void)send(to, i);
    for (int i = 0; i < 8; ++i) expect_answer(to, i);
    const std::vector<std::vector<int>> wanted{{0, 1, 2, 3}, {4, 5, 6, 7}};
    EXPECT_EQ(log.batches(), wanted);
}

TEST_P(batches, a_batch_leaves_when_its_first_request_has_waited_max_wait) {
    collect({16, 20ms, 64, 1});
    auto to = connect();
    const auto start = steady_clock::now();
    (void)send(to, 1);
    (void)send(to, 2);
    expect_answer(to, 1);
    expect_answer(to, 2);
    EXPECT_GE(steady_clock::now() - start, 19ms);
    EXPECT_TRUE(eventually(patience(20s), [&] { return collector->statistics().requests == 2; }));
}

TEST_P(batches, a_batch_leaves_early_when_a_deadline_nears) {
    slowness = 20ms;
    collect({16, 1h, 64, 1});
    auto to = connect();
    // It learns how long a batch takes.
    (void)send(to, 1, 100ms);
    (void)end_call(to);
    // A busy machine may be too late for a deadline, but not for every one.
    bool together = false;
    for (nanoseconds timeout = 100ms; !together && timeout < 10s; timeout *= 3) {
        (void)send(to, 2, 4 * timeout);
        (void)send(to, 3, timeout);
        (void)end_call(to);
        (void)end_call(to);
        const auto seen = log.batches();
        together = !seen.empty() && seen.back() == std::vector<int>{2, 3};
    }
    EXPECT_TRUE(together);
}

TEST_P(batches, a_batch_leaves_out_cancelled_requests) {
    held_back = 2;
    collect({3, 1h, 64, 1});
    auto to = connect();
    (void)send(to, 1);
    const call_id second = send(to, 2);
    ASSERT_TRUE(have_arrived(2));
    ASSERT_EQ(to.cancel(second), status::ok);
    EXPECT_EQ(end_call(to).code, status::cancelled);
    ASSERT_TRUE(eventually(patience(20s), [&] { return held->cancelled(); }));
    collector->put(std::move(*held), {});
    (void)send(to, 3);
    expect_answer(to, 1);
    expect_answer(to, 3);
    EXPECT_EQ(log.batches().front(), (std::vector<int>{1, 3}));
    EXPECT_TRUE(eventually(patience(20s), [&] { return collector->statistics().given_up == 1; }));
}

TEST_P(batches, requests_are_refused_when_too_many_wait) {
    halted = true;
    collect({1, 0ns, 2, 1});
    auto to = connect();
    (void)send(to, 0);
    ASSERT_TRUE(eventually(patience(20s), [&] { return log.batches().size() == 1; })) << "it is under way";
    for (int i = 1; i < 8; ++i) (void)send(to, i);
    ASSERT_TRUE(have_arrived(8));
    halted = false;
    int answered = 0, refused = 0;
    for (int i = 0; i < 8; ++i) {
        const outcome seen = end_call(to);
        answered += seen.code == status::ok ? 1 : 0;
        if (seen.code != status::overloaded) continue;
        ++refused;
        EXPECT_EQ(seen.text, "too many requests wait for this model: try again later");
    }
    EXPECT_EQ(answered, 3) << "one under way, two that wait";
    EXPECT_EQ(refused, 5);
}

TEST_P(batches, a_stopped_batcher_answers_waiting_requests) {
    collect({16, 1h, 64, 1});
    auto to = connect();
    (void)send(to, 5);
    ASSERT_TRUE(have_arrived(1));
    collector->stop();
    expect_answer(to, 5);
    (void)send(to, 6);
    EXPECT_EQ(end_call(to).code, status::overloaded);
}

TEST(leaving_time, a_batch_leaves_at_the_sooner_of_patience_and_deadline) {
    const steady_clock::time_point now{1s};
    EXPECT_EQ(leaving_time(now, now + 1h, 2ms, 10ms), now + 2ms);
    EXPECT_EQ(leaving_time(now, now + 20ms, 1h, 8ms), now + 10ms);
    EXPECT_EQ(leaving_time(now, now + 20ms, 1h, 1ms), now + 18ms);
    EXPECT_EQ(leaving_time(now, now + 20ms, 1h, 0ms), now + 10ms);
    EXPECT_LT(leaving_time(now, now + 1ms, 1h, 8ms), now);
}

/// A model that fails as it is told to, or whose batches do.
class failing_model final : public model {
  public:
    explicit failing_model(status why) : why_(why) {}
    const model_shapes& shapes() const noexcept override { return *find_model("digits"); }
    memory_kind memory() const noexcept override { return memory_kind::host(); }
    std::size_t max_batch() const noexcept override { return 8; }
    result<void> preprocess(CUstream_st*, std::span<const std::byte>, std::span<std::byte>) override {
        return error{status::unsupported, 0, "it takes no images"};
    }
    /// One request whose first byte is 1 spoils its batch.
    result<void> infer(CUstream_st*, std::span<const model_job> batch) override {
        for (const model_job& each : batch)
            if (each.input[0] == std::byte{1}) return error{why_, 0, "the batch has a fault"};
        return {};
    }

  private:
    status why_;
};

class faulty_batches : public model_rig {
  protected:
    void serve_faulty(status why) {
        serving_options options;
        options.max_batch = 3;
        options.max_wait = 1h;
        faulty = std::move(served_model::create(ctx, std::make_unique<failing_model>(why), options)).value();
        server_options at_server;
        at_server.security.insecure = true;
        const std::string where = GetParam() == "tcp" ? "tcp://" + own_loopback() + ":0" : "local://faulty";
        auto made = server::listen(
            ctx, {where}, [this](exchange one) { faulty->serve(std::move(one)); }, at_server);
        ASSERT_TRUE(made) << made.error().message;
        running = std::make_unique<server>(std::move(*made));
    }
    void TearDown() override { running.reset(); }
    /// Three requests, the second one with a fault.
    [[nodiscard]] std::vector<outcome> ask_three() {
        auto to = connect();
        const auto described = inputs_of(*find_model("digits"));
        for (int i = 0; i < 3; ++i) {
            bytes payload(256);
            payload[0] = std::byte{i == 1};
            (void)begin_call(to, {}, payload, described, 1h);
        }
        std::vector<outcome> out;
        for (int i = 0; i < 3; ++i) out.push_back(end_call(to));
        return out;
    }
    std::unique_ptr<served_model> faulty;
};

TEST_P(faulty_batches, an_error_of_the_batch_answers_all_members) {
    serve_faulty(status::device_lost);
    for (const outcome& each : ask_three()) {
        EXPECT_EQ(each.code, status::device_lost);
        EXPECT_EQ(each.text, "the batch has a fault");
    }
}

TEST_P(faulty_batches, wrong_values_of_one_member_spare_the_others) {
    serve_faulty(status::invalid_argument);
    const auto seen = ask_three();
    EXPECT_EQ(seen[0].code, status::ok) << seen[0].text;
    EXPECT_EQ(seen[1].code, status::invalid_argument);
    EXPECT_EQ(seen[2].code, status::ok) << seen[2].text;
}

class batched_models : public model_rig {};

/// The batches wait until each of the clients has a request in them.
TEST_P(batched_models, each_member_of_a_batch_gets_its_own_answer) {
    constexpr std::uint32_t members = 4;
    constexpr std::uint32_t rounds = 10;
    serving_options options;
    options.max_batch = members;
    options.max_wait = 1h;
    serve({"mobilenet_v3"}, options);
    const model_shapes& shapes = *find_model("mobilenet_v3");
    std::atomic<int> wrong{0};
    std::vector<std::thread> clients;
    for (std::uint32_t client = 0; client < members; ++client) {
        clients.emplace_back([&, client] {
            auto to = connect();
            for (std::uint32_t i = 0; i < rounds; ++i) {
                const bytes payload = some_bytes(payload_bytes(shapes.inputs), client * 100 + i);
                bytes expected(payload_bytes(shapes.outputs));
                synthetic_answer(payload, expected);
                (void)begin_call(to, target_of("mobilenet_v3"), payload, inputs_of(shapes), 1h);
                if (end_call(to).content != expected) ++wrong;
            }
        });
    }
    for (std::thread& each : clients) each.join();
    EXPECT_EQ(wrong, 0);
    const auto seen = [this] { return registry->statistics()[0].seen.batches; };
    // A batch is counted once its members are answered.
    EXPECT_TRUE(eventually(patience(20s), [&] { return seen().requests == members * rounds; })) << seen().requests;
    EXPECT_EQ(seen().batches, rounds);
}

ACCEL_MODELS_OVER_LOCAL_AND_TCP(batches);
ACCEL_MODELS_OVER_LOCAL_AND_TCP(faulty_batches);
ACCEL_MODELS_OVER_LOCAL_AND_TCP(batched_models);

}  // namespace
}  // namespace accel::tests
