// SPDX-License-Identifier: Apache-2.0
// Services of recorded work, on a stand-in for a GPU: memory, iterations, batches and stops. What CUDA makes
// of a recording is tested in tests/kernels/gpu.
#include "conformance/child_process.hpp"
#include "conformance/payload.hpp"
#include "device/service_rig.hpp"
#include "gpu/fake_stream.hpp"

#include <accel_transport/device/detail/graph/steps.hpp>
#include <accel_transport/device/graph.hpp>
#include <accel_transport/gpu_graph.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <vector>

namespace accel::tests {
namespace {

constexpr std::size_t tensor = 1000;

/// Who serves a session, and where its queues are.
struct recorded_way {
    const char* name;
    gpu_engine engine = gpu_engine::direct;
    service_sharing sharing = service_sharing::shared;
    queue_location queues = queue_location::automatic;
};

class recorded_service : public ::testing::TestWithParam<recorded_way> {
  protected:
    void SetUp() override {
        if (!has(GetParam().engine)) GTEST_SKIP() << "this device has no queues to drive";
        rig_.options.kernels.sharing = GetParam().sharing;
        rig_.options.kernels.queues = GetParam().queues;
    }
    using step = std::function<void(const device::graph_iteration&)>;
    void listen() { rig_.listen(); }
    void start(const gpu_graph_options& options, const step& work) {
        auto made = gpu_graph::start(*rig_.service, options,
                                     [work](CUstream_st* stream, const device::graph_iteration& iteration) {
                                         fake_stream::of(stream).launch([work, iteration] { work(iteration); });
                                         return result<void>{};
                                     });
        ASSERT_TRUE(made.ok()) << made.error().message;
        graph_.emplace(std::move(*made));
    }
    [[nodiscard]] static gpu_graph_options tensors(std::uint32_t batch = 1, std::uint32_t instances = 1) {
        return {batch, tensor, tensor, instances};
    }
    static void copy_tensors(const device::graph_iteration& iteration) {
        std::memcpy(iteration.output, iteration.input, *iteration.count * tensor);
    }

    service_rig rig_{{true, GetParam().engine}};
    std::optional<gpu_graph> graph_;  ///< goes before the service does
};

result<std::size_t> echo_of(channel& client, std::size_t bytes, std::uint64_t seed) {
    std::vector<std::byte> request(bytes);
    fill(request, seed);
    auto answer = client.call(request);
    if (!answer) return answer.error();
    if (!matches(answer->response, seed)) return error{status::protocol_error, 0, "other bytes"};
    return answer->response.size();
}

/// What the first byte of a request says.
enum class recorded_wish : std::uint8_t { echo, fail, answer_too_long };

/// A client with random requests on their way, each with a length and a wish of its own.
class recorded_guest {
  public:
    recorded_guest(service_rig& rig, std::mt19937& random, bool in_place) : random_(random), in_place_(in_place) {
        auto wanted = service_rig::small();
        wanted.slots = static_cast<std::uint32_t>(1 + random_() % 16);
        if (random_() % 4 == 0) wanted.response_bytes = tensor - 1;
        response_bytes_ = wanted.response_bytes;
        result<channel> made = rig.try_connect(wanted);
        EXPECT_TRUE(eventually([&] {
            if (!made) made = rig.try_connect(wanted);
            return made.ok();
        })) << made.error().message;
        is_.emplace(std::move(*made));
    }
    /// In every slot that is free.
    void ask() {
        while (const auto call = is_->begin()) {
            constexpr std::array lengths{tensor,     tensor,         tensor,           tensor - 1,
                                         tensor + 1, std::size_t{1}, std::size_t{4096}};
            const std::size_t length = lengths[random_() % lengths.size()];
            std::vector<std::byte> request(length);
            fill(request, ++last_);
            request[0] = static_cast<std::byte>(random_() % 8 < 6 ? 0 : 1 + random_() % 2);
            std::copy(request.begin(), request.end(), call->request.begin());
            ASSERT_EQ(is_->submit(call->id, length, {.tag = last_}), status::ok);
            open_.emplace(last_, std::move(request));
        }
    }
    void take() {
        std::array<completion, 4> done;
        const std::size_t count = is_->wait(done, open_.empty() ? 0ns : until_hung());
        EXPECT_EQ(count == 0, open_.empty());
        for (std::size_t i = 0; i < count; ++i) {
            const auto found = open_.find(done[i].tag);
            ASSERT_NE(found, open_.end());
            const std::vector<std::byte>& sent = found->second;
            EXPECT_EQ(done[i].status, expected(sent)) << to_string(done[i].status) << " of " << sent.size();
            EXPECT_TRUE(done[i].status != status::ok || std::ranges::equal(done[i].response, sent));
            EXPECT_EQ(done[i].code, done[i].status == status::application_error ? 42U : 0U);
            done[i].release();
            open_.erase(found);
        }
    }
    [[nodiscard]] bool waits() const { return !open_.empty(); }
    [[nodiscard]] std::uint64_t asked() const { return last_; }

  private:
    [[nodiscard]] status expected(const std::vector<std::byte>& sent) const {
        if (!in_place_ && sent.size() != tensor) return status::invalid_argument;
        if (!in_place_ && response_bytes_ < tensor) return status::message_too_large;
        const auto wish = static_cast<recorded_wish>(sent[0]);
        if (wish == recorded_wish::fail) return status::application_error;
        return wish == recorded_wish::echo && sent.size() <= response_bytes_ ? status::ok : status::message_too_large;
    }
    std::mt19937& random_;
    const bool in_place_;
    std::size_t response_bytes_ = 0;
    std::optional<channel> is_;
    std::uint64_t last_ = 0;
    std::map<std::uint64_t, std::vector<std::byte>> open_;
};

/// Recorded kernels that do as requests say.
void work_as_wished(const device::graph_iteration& iteration) {
    for (std::uint32_t i = 0; i < *iteration.count; ++i) {
        const device::exchange_ref& exchange = iteration.exchanges[i];
        const bool in_place = iteration.input == nullptr;
        const std::byte* const from = in_place ? exchange.request : iteration.input + i * tensor;
        if (!in_place) std::memcpy(iteration.output + i * tensor, from, tensor);
        if (in_place) {
            std::memcpy(exchange.response, from, std::min(exchange.request_bytes, exchange.response_room));
            iteration.answers[i].length = exchange.request_bytes;
        }
        if (static_cast<recorded_wish>(*from) == recorded_wish::answer_too_long) iteration.answers[i].length = 1U << 30;
        if (static_cast<recorded_wish>(*from) != recorded_wish::fail) continue;
        iteration.answers[i].reason = status::application_error;
        iteration.answers[i].code = 42;
    }
}

TEST_P(recorded_service, requests_are_answered_as_a_model_says) {
    constexpr std::uint32_t sessions = 3;
    struct shape_of_graph {
        std::uint32_t batch;
        std::uint32_t instances;  ///< the last: more than there are sessions
    };
    constexpr std::array<shape_of_graph, 4> shapes{{{1, 1}, {16, 1}, {4, 2}, {8, 5}}};
    for (unsigned seed = 0; seed < 2 * shapes.size() && !HasFailure(); ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        std::mt19937 random(seed);
        const auto [at_once, instances] = shapes[seed % shapes.size()];
        const bool in_place = seed >= shapes.size();
        rig_.options.max_sessions = sessions;
        listen();
        const std::size_t bytes = in_place ? 0 : tensor;
        start({at_once, bytes, bytes, instances}, work_as_wished);
        std::uint64_t asked = 0;
        std::vector<std::unique_ptr<recorded_guest>> guests;
        for (int step = 0; step < effort(60) && !HasFailure(); ++step) {
            if (guests.size() < sessions) guests.push_back(std::make_unique<recorded_guest>(rig_, random, in_place));
            for (auto& each : guests) each->ask();
            guests[random() % guests.size()]->take();
            if (random() % 8 != 0) continue;
            while (guests[0]->waits() && !HasFatalFailure()) guests[0]->take();
            asked += guests[0]->asked();
            guests.erase(guests.begin());
        }
        for (auto& each : guests) {
            while (each->waits() && !HasFatalFailure()) each->take();
            asked += each->asked();
        }
        EXPECT_EQ(graph_->stop(until_hung()), status::ok);
        EXPECT_EQ(graph_->statistics().running, 0U);
        graph_.reset();
        EXPECT_EQ(rig_.service->statistics().replies, asked);
        guests.clear();
        rig_.stop();
    }
}

TEST_P(recorded_service, a_forked_child_can_neither_use_nor_disturb_a_graph) {
    listen();
    start(tensors(), copy_tensors);
    channel client = rig_.connect();
    EXPECT_TRUE(echo_of(client, tensor, 1).ok());
    child_process child([&] {
        CHILD_EXPECT(graph_->statistics().nodes == 0);
        CHILD_EXPECT(graph_->stop(1h) == status::invalid_state);
        const auto another = gpu_graph::start(*rig_.service, tensors(), [](auto...) { return result<void>{}; });
        CHILD_EXPECT(another.code() == status::invalid_state);
        graph_.reset();
        rig_.service.reset();
    });
    EXPECT_TRUE(eventually(patience(20s), [&] { return child.ended(); })) << "the child hangs";
    EXPECT_TRUE(echo_of(client, tensor, 2).ok());
    EXPECT_EQ(graph_->statistics().running, 1U);
    EXPECT_EQ(graph_->stop(until_hung()), status::ok);
}

/// Recorded kernels send no parts: each call has one response, and its room comes back behind that.
TEST_P(recorded_service, calls_in_parts_get_one_response_and_their_room) {
    listen();
    start(tensors(2), copy_tensors);
    auto wanted = service_rig::small();
    wanted.slots = 3;  // as many as one call and its room take
    channel client = rig_.connect(wanted);
    for (std::uint64_t i = 0; i < 20; ++i) {
        call_id id;
        ASSERT_TRUE(eventually(patience(5s), [&] {
            std::array<completion, 1> none;
            EXPECT_EQ(client.poll(none), 0U);
            const auto call = client.begin();
            if (!call) return false;
            id = call->id;
            fill(call->request.first(tensor), i);
            const status sent = client.submit(id, tensor, {.parts = 2});
            if (sent != status::ok) (void)client.release(id);
            return sent == status::ok;
        })) << i;
        std::array<completion, 1> done;
        ASSERT_EQ(client.wait(done, until_hung()), 1U);
        EXPECT_EQ(done[0].id, id);
        EXPECT_EQ(done[0].status, status::ok) << to_string(done[0].status);
        EXPECT_FALSE(done[0].more);
        EXPECT_TRUE(matches(done[0].response, i));
    }
    EXPECT_EQ(graph_->stop(until_hung()), status::ok);
    EXPECT_EQ(graph_->statistics().requests, 20U) << "room is no request";
}

/// Only the recorded work takes long; each stage's time lies within the iteration's.
TEST_P(recorded_service, statistics_tell_the_time_of_each_stage) {
    listen();
    start(tensors(), [](const device::graph_iteration& iteration) {
        if (*iteration.count > 0) std::this_thread::sleep_for(5ms);
        copy_tensors(iteration);
    });
    channel client = rig_.connect();
    for (std::uint64_t i = 0; i < 10; ++i) ASSERT_TRUE(echo_of(client, tensor, i).ok());
    ASSERT_EQ(graph_->stop(until_hung()), status::ok);
    const auto seen = graph_->statistics();
    EXPECT_EQ(seen.iterations, 10U);
    EXPECT_GE(seen.stages.work, 5ms);
    EXPECT_GE(seen.min, 5ms);
    EXPECT_GE(seen.p50, 5ms);
    EXPECT_GE(seen.p99, seen.p50);
    const auto& part = seen.stages;
    const auto sum = part.waiting + part.copy_in + part.work + part.copy_out + part.answer;
    EXPECT_LE(sum, seen.mean);
    EXPECT_GE(sum + 5ns, seen.mean);  // each is rounded down
}

TEST_P(recorded_service, instances_share_the_requests) {
    listen();
    std::array<std::atomic<int>, 3> served{};
    start(tensors(1, 3), [&served](const device::graph_iteration& iteration) {
        served[iteration.instance] += static_cast<int>(*iteration.count);
        std::this_thread::sleep_for(1ms);
        copy_tensors(iteration);
    });
    std::atomic<int> right{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
        threads.emplace_back([&, t] {
            channel client = rig_.connect();
            for (int i = 0; i < 100; ++i)
                if (echo_of(client, tensor, static_cast<std::uint64_t>(t * 1000 + i)).ok()) ++right;
        });
    }
    for (std::thread& each : threads) each.join();
    EXPECT_EQ(right.load(), 300);
    for (const auto& each : served) EXPECT_GT(each.load(), 0);
    EXPECT_EQ(graph_->statistics().running, 3U);
    EXPECT_EQ(graph_->stop(until_hung()), status::ok);
    EXPECT_EQ(graph_->statistics().running, 0U);
}

TEST_P(recorded_service, stops_under_load) {
    listen();
    start(tensors(4), copy_tensors);
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t) {
        threads.emplace_back([&] {
            channel client = rig_.connect();
            while (echo_of(client, tensor, 1).ok()) continue;
        });
    }
    EXPECT_TRUE(eventually(patience(5s), [&] { return rig_.service->statistics().replies > 100; }));
    EXPECT_EQ(graph_->stop(until_hung()), status::ok);
    rig_.stop();
    for (std::thread& each : threads) each.join();
    const auto seen = rig_.service->statistics();
    EXPECT_EQ(seen.requests, seen.replies + seen.dropped);
}

TEST_P(recorded_service, a_stop_disconnects_clients_and_answers_requests_in_flight) {
    listen();
    std::atomic<bool> taken{false};
    std::atomic<bool> answers{false};
    start(tensors(), [&](const device::graph_iteration& iteration) {
        taken = *iteration.count > 0;
        while (taken && !answers) std::this_thread::sleep_for(100us);
        copy_tensors(iteration);
    });
    channel client = rig_.connect();
    const auto call = client.begin();
    ASSERT_EQ(call.code(), status::ok);
    ASSERT_EQ(client.submit(call->id, tensor), status::ok);
    ASSERT_TRUE(eventually(patience(5s), [&] { return taken.load(); }));
    EXPECT_EQ(graph_->stop(0ns), status::timed_out);
    EXPECT_TRUE(eventually(patience(5s), [&] { return client.poll({}) == 0 && !client.connected(); }));
    answers = true;
    std::array<completion, 1> done;
    ASSERT_EQ(client.wait(done, patience(5s)), 1U);
    EXPECT_EQ(done[0].status, status::ok);
    EXPECT_EQ(graph_->stop(until_hung()), status::ok);
}

TEST_P(recorded_service, wrong_shapes_are_refused) {
    listen();
    const auto nothing = [](CUstream_st*, const device::graph_iteration&) { return result<void>{}; };
    for (const gpu_graph_options& wrong :
         {gpu_graph_options{0, 0, 0, 1}, gpu_graph_options{1 << 20, 0, 0, 1}, gpu_graph_options{1, 0, 0, 0},
          gpu_graph_options{1, std::size_t{1} << 40, 0, 1}}) {
        auto made = gpu_graph::start(*rig_.service, wrong, nothing);
        ASSERT_FALSE(made.ok());
        EXPECT_EQ(made.error().code, status::invalid_argument);
    }
    const auto refuses = [](CUstream_st*, const device::graph_iteration&) {
        return result<void>{error{status::application_error, 0, "no such model"}};
    };
    auto made = gpu_graph::start(*rig_.service, {}, refuses);
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().message, "no such model");

    service_rig on_host({false, GetParam().engine});
    on_host.listen();
    auto elsewhere = gpu_graph::start(*on_host.service, {}, nothing);
    ASSERT_FALSE(elsewhere.ok());
    EXPECT_EQ(elsewhere.error().code, status::invalid_argument);
}

constexpr recorded_way of_any_engine[]{{"direct"}, {"proxy", gpu_engine::proxy}};
constexpr recorded_way owning[]{
    {"exclusive", gpu_engine::direct, service_sharing::exclusive, queue_location::host},
    {"exclusive_devx", gpu_engine::direct, service_sharing::exclusive, queue_location::gpu},
};
constexpr auto name_of_way = [](const auto& each) { return std::string{each.param.name}; };
INSTANTIATE_TEST_SUITE_P(engine, recorded_service, ::testing::ValuesIn(of_any_engine), name_of_way);
INSTANTIATE_TEST_SUITE_P(owner, recorded_service, ::testing::ValuesIn(owning), name_of_way);

using owning_recorded_service = recorded_service;

/// A request for whose answer the test waits later.
call_view asked(channel& client, std::uint64_t seed) {
    const auto call = client.begin();
    EXPECT_EQ(call.code(), status::ok);
    fill(call->request.first(tensor), seed);
    EXPECT_EQ(client.submit(call->id, tensor), status::ok);
    return *call;
}
bool is_answered(channel& client, std::uint64_t seed) {
    std::array<completion, 1> done;
    const bool right =
        client.wait(done, until_hung()) == 1 && done[0].status == status::ok && matches(done[0].response, seed);
    done[0].release();
    return right;
}

TEST_P(owning_recorded_service, requests_that_wait_are_one_iteration) {
    listen();
    std::atomic<bool> held{false};
    std::atomic<int> begun{0};
    start(tensors(8), [&](const device::graph_iteration& iteration) {
        if (*iteration.count > 0) ++begun;
        while (*iteration.count > 0 && held) std::this_thread::sleep_for(100us);
        copy_tensors(iteration);
    });
    std::vector<channel> clients;
    for (std::uint64_t i = 0; i < 3; ++i) clients.push_back(rig_.connect());
    const auto take = [](channel& from) {
        std::array<completion, 1> done;
        ASSERT_EQ(from.wait(done, until_hung()), 1U);
        EXPECT_EQ(done[0].status, status::ok);
    };
    with_enough_time(50ms, [&](nanoseconds on_their_way) {
        const int before = begun;
        held = true;
        (void)asked(clients[0], 9);
        EXPECT_TRUE(eventually(until_hung(), [&] { return begun == before + 1; }));
        for (std::uint64_t i = 0; i < 6; ++i) (void)asked(clients[i % 3], i);
        std::this_thread::sleep_for(on_their_way);
        held = false;
        take(clients[0]);
        for (std::uint64_t i = 0; i < 6; ++i) take(clients[i % 3]);
        return begun == before + 2;
    });
    EXPECT_EQ(graph_->stop(until_hung()), status::ok);
    EXPECT_EQ(graph_->statistics().requests % 7, 0U);
}

TEST_P(owning_recorded_service, each_instance_serves_its_own_sessions) {
    listen();
    std::atomic<bool> held{false};
    std::array<std::atomic<int>, 2> served{};
    start(tensors(1, 2), [&](const device::graph_iteration& iteration) {
        served[iteration.instance] += static_cast<int>(*iteration.count);
        while (iteration.instance == 0 && *iteration.count > 0 && held) std::this_thread::sleep_for(100us);
        copy_tensors(iteration);
    });
    channel first = rig_.connect();
    channel second = rig_.connect();
    EXPECT_TRUE(echo_of(first, tensor, 1).ok());
    EXPECT_TRUE(echo_of(second, tensor, 2).ok());
    ASSERT_EQ(served[0], 1);
    ASSERT_EQ(served[1], 1);
    held = true;
    (void)asked(first, 3);
    for (std::uint64_t i = 0; i < 20; ++i) EXPECT_TRUE(echo_of(second, tensor, i).ok()) << "it waits for the other";
    held = false;
    EXPECT_TRUE(is_answered(first, 3));
    EXPECT_EQ(served[0], 2);
}

TEST_P(owning_recorded_service, a_second_graph_is_refused_while_one_owns_the_sessions) {
    listen();
    const auto nothing = [](CUstream_st*, const device::graph_iteration&) { return result<void>{}; };
    const auto failing = [](CUstream_st*, const device::graph_iteration&) {
        return result<void>{error{status::application_error, 0, "no such model"}};
    };
    EXPECT_FALSE(gpu_graph::start(*rig_.service, {}, failing).ok());
    start(tensors(), copy_tensors);
    auto second = gpu_graph::start(*rig_.service, {}, nothing);
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().code, status::invalid_state);
    channel client = rig_.connect();
    EXPECT_TRUE(echo_of(client, tensor, 1).ok());
}

INSTANTIATE_TEST_SUITE_P(owner, owning_recorded_service, ::testing::ValuesIn(owning), name_of_way);

TEST(durations_of_iterations, durations_are_counted_to_a_64th) {
    std::uint32_t before = 0;
    for (std::uint64_t ns = 0; ns < 1'000'000'000'000; ns += 1 + ns / 50) {
        const std::uint32_t found = device::detail::duration_class_of(ns);
        const std::uint64_t said = device::detail::shortest_of_class(found);
        ASSERT_GE(found, before) << ns;
        ASSERT_LE(said, ns);
        ASSERT_LE(ns - said, ns / 64) << ns;
        ASSERT_LT(ns, device::detail::shortest_of_class(found + 1));
        before = found;
    }
    EXPECT_EQ(device::detail::duration_class_of(~std::uint64_t{0}), device::detail::duration_classes - 1);
}

}  // namespace
}  // namespace accel::tests
