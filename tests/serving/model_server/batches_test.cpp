// SPDX-License-Identifier: Apache-2.0
#include "model_rig.hpp"
#include "serving/model_server/batcher.hpp"

#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <utility>

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
    void clear() {
        const std::lock_guard lock(mutex_);
        batches_.clear();
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
            for (const int number = ++begun; permits < number;) std::this_thread::sleep_for(1ms);
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
        if (std::to_integer<int>(one.request()[0]) == ping)
            (void)one.fail(status::invalid_argument, 0, "a ping");
        else
            collector->put(std::move(one), {});
        ++arrived;
    }
    /// So many requests are in the batcher, were refused there, or are pings.
    [[nodiscard]] bool have_arrived(int count) {
        return eventually(patience(20s), [&] { return arrived == count; });
    }
    void end() {
        permits = any_number;
        running.reset();
        collector.reset();
        log.clear();
        begun = arrived = 0;
    }
    void TearDown() override { end(); }
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

    static constexpr int ping = 255;  ///< a request with this number does not get into the batcher
    static constexpr int any_number = 1 << 30;

    batch_log log;
    nanoseconds slowness{};
    std::atomic<int> begun{0};             ///< batches
    std::atomic<int> permits{any_number};  ///< batches that may be answered
    std::atomic<int> arrived{0};
    std::optional<batcher> collector;
};

constexpr std::size_t members = 3;  ///< of a batch
constexpr std::size_t room = 6;     ///< to wait

/// A request that a client has sent.
struct sent_request {
    std::size_t client = 0;
    call_id id;
    bool cancelled = false;
};

/// Requests of unequal clients in random order. A batch leaves when it is full and the one before was let go, with the
/// oldest of those that wait and without those that were cancelled.
class batch_sequences : public batches {
  protected:
    void run(unsigned seed) {
        random_.seed(seed);
        permits = next_ = sent_ = 0;
        wanted_ = {};
        collect({members, 1h, room, 1});
        for (int i = 0; i < 3; ++i) clients_.push_back(connect());
        for (int i = 0; i < 80 && !HasFailure(); ++i) step();
        if (!HasFailure()) finish();
        clients_.clear();
        all_.clear();
        batches_.clear();
        end();
    }

  private:
    void step() {
        switch (random_() % 8) {
            case 0:
            case 1:
                return cancel();
            case 2:
            case 3:
                return let_go();
            default:
                return send_one(std::min(random_() % 3, random_() % 3));
        }
    }
    void send_one(std::size_t client) {
        const int number = next_++;
        all_[number] = {client, send(clients_[client], number)};
        ASSERT_TRUE(have_arrived(++sent_));
        if (waiting_.size() < room) {
            waiting_.push_back(number);
            return expect_batch();
        }
        ++wanted_.refused;
        const outcome seen = end_call(clients_[client]);
        EXPECT_EQ(seen.code, status::overloaded);
        EXPECT_EQ(seen.text, "too many requests wait for this model: try again later");
    }
    void cancel() {
        if (waiting_.empty() || GetParam() == "tcp") return;  // where a cancel may come late
        sent_request& one = all_[waiting_[random_() % waiting_.size()]];
        if (std::exchange(one.cancelled, true)) return;
        channel& by = clients_[one.client];
        EXPECT_EQ(by.cancel(one.id), status::ok);
        EXPECT_EQ(end_call(by).code, status::cancelled);
        // A request that comes back at once has not overtaken it.
        (void)send(by, ping);
        EXPECT_EQ(end_call(by).code, status::invalid_argument);
        ++sent_;
    }
    /// The batch under way is answered, and the next one leaves, if it can.
    void let_go(std::size_t least = members) {
        if (under_way_.empty()) return;
        ++permits;
        for (const int number : std::exchange(under_way_, {})) expect_answer(clients_[all_[number].client], number);
        expect_batch(least);
    }
    void expect_batch(std::size_t least = members) {
        while (under_way_.empty() && waiting_.size() >= least) {
            const auto end = waiting_.begin() + static_cast<std::ptrdiff_t>(std::min(members, waiting_.size()));
            std::copy_if(waiting_.begin(), end, std::back_inserter(under_way_),
                         [this](int number) { return !all_[number].cancelled; });
            wanted_.given_up += static_cast<std::uint64_t>(end - waiting_.begin()) - under_way_.size();
            waiting_.erase(waiting_.begin(), end);
            if (!under_way_.empty()) batches_.push_back(under_way_);
        }
        EXPECT_TRUE(eventually([this] { return log.batches() == batches_; }))
            << ::testing::PrintToString(log.batches()) << " instead of " << ::testing::PrintToString(batches_);
        // A batch counts once it is answered.
        EXPECT_TRUE(
            eventually([this] { return !under_way_.empty() || collector->statistics().given_up == wanted_.given_up; }));
    }
    /// What waits leaves at the end without waiting for more, and nothing comes in any more.
    void finish() {
        while (!under_way_.empty()) let_go();
        std::thread stops([this] { collector->stop(); });
        expect_batch(1);
        let_go(1);
        stops.join();
        (void)send(clients_[0], 1);
        EXPECT_EQ(end_call(clients_[0]).code, status::overloaded);
        const batch_statistics seen = collector->statistics();
        EXPECT_EQ(seen.batches, batches_.size());
        EXPECT_EQ(seen.refused, wanted_.refused + 1);
        EXPECT_EQ(seen.given_up, wanted_.given_up);
    }

    std::mt19937 random_;
    std::vector<channel> clients_;
    std::map<int, sent_request> all_;
    std::deque<int> waiting_;
    std::vector<int> under_way_;
    std::vector<std::vector<int>> batches_;
    batch_statistics wanted_;
    int next_ = 0;
    int sent_ = 0;
};

TEST_P(batch_sequences, full_batches_leave_in_order_without_cancelled_requests) {
    for (unsigned seed = 0; seed < 8 && !HasFailure(); ++seed) {
        SCOPED_TRACE(seed);
        run(seed);
    }
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

TEST_P(faulty_batches, wrong_values_of_one_member_spare_the_others_and_errors_of_the_batch_do_not) {
    for (const status why : {status::device_lost, status::message_too_large, status::invalid_argument}) {
        SCOPED_TRACE(to_string(why));
        serve_faulty(why);
        const auto seen = ask_three();
        for (std::size_t i = 0; i < seen.size(); ++i) {
            const bool spared = why == status::invalid_argument && i != 1;
            EXPECT_EQ(seen[i].code, spared ? status::ok : why);
            EXPECT_EQ(seen[i].text, spared ? "" : "the batch has a fault");
        }
        running.reset();
    }
}

TEST(served_model_options, a_model_has_no_larger_batches_than_it_takes) {
    context ctx = context::open({.log = log_level::off}).value();
    serving_options options;
    options.max_batch = 9;
    const auto refused = served_model::create(ctx, std::make_unique<failing_model>(status::ok), options);
    EXPECT_EQ(refused.code(), status::invalid_argument);
    EXPECT_EQ(refused.error().message, "'digits' takes batches of at most 8");
    options.max_batch = 8;
    EXPECT_TRUE(served_model::create(ctx, std::make_unique<failing_model>(status::ok), options));
}

class batched_models : public model_rig {};

/// The batches wait until each of the clients has a request in them.
TEST_P(batched_models, each_member_of_a_batch_gets_its_own_answer) {
    constexpr std::uint32_t callers = 4;
    constexpr std::uint32_t rounds = 10;
    serving_options options;
    options.max_batch = callers;
    options.max_wait = 1h;
    serve({"mobilenet_v3"}, options);
    const model_shapes& shapes = *find_model("mobilenet_v3");
    std::atomic<int> wrong{0};
    std::vector<std::thread> clients;
    for (std::uint32_t client = 0; client < callers; ++client) {
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
    // A batch is counted once its callers are answered.
    EXPECT_TRUE(eventually(patience(20s), [&] { return seen().requests == callers * rounds; })) << seen().requests;
    EXPECT_EQ(seen().batches, rounds);
    registry->forget_statistics();
    EXPECT_EQ(seen().batches + seen().requests + seen().refused + seen().given_up, 0U);
    ASSERT_TRUE(registry->unload("mobilenet_v3"));
    EXPECT_EQ(seen().batches + seen().requests, 0U) << "also once its model is gone";
}

ACCEL_MODELS_OVER_LOCAL_AND_TCP(batches);
ACCEL_MODELS_OVER_LOCAL_AND_TCP(batch_sequences);
ACCEL_MODELS_OVER_LOCAL_AND_TCP(faulty_batches);
ACCEL_MODELS_OVER_LOCAL_AND_TCP(batched_models);

}  // namespace
}  // namespace accel::tests
