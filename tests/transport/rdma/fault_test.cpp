// SPDX-License-Identifier: Apache-2.0
// The device misbehaves (softnic's fault rules). Whatever happens to one session: each of its calls ends
// exactly once, with a status that says why and within its bound; the session beside it notices nothing; and
// the next one is as good as new.
#include "conformance/rig.hpp"
#include "conformance/verbs_way.hpp"
#include "softnic/softnic.h"
#include "verbs/domain.hpp"
#include "verbs/queues.hpp"

#include <algorithm>
#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

namespace accel::tests {
namespace {

/// Numbers that softnic gives to the next queue pairs: one after another.
std::uint32_t last_queue_pair() {
    auto device = verbs::device::open({}, {}).value();
    auto domain = verbs::domain::create(device).value();
    auto completions = verbs::completion_queue::create(device, 16, nullptr).value();
    auto pair = verbs::queue_pair::create(device, domain->get(), completions->get(), nullptr, {4, 4, 0}, nullptr);
    return pair.value().number();
}

enum class whose { nobody, client, server };

struct device_fault {
    const char* name;
    const char* rule;  ///< of softnic, without the queue pair
    whose queue_pair;  ///< of the session under test
    bool survived;     ///< by retransmission
    friend std::ostream& operator<<(std::ostream& out, const device_fault& f) { return out << f.name; }
};

const device_fault all_faults[] = {
    {"a_packet_lost_on_its_way_out", "drop nth=2 count=1", whose::client, true},
    {"a_packet_lost_on_its_way_back", "drop nth=2 count=1", whose::server, true},
    {"packets_lost_at_random", "drop p=0.2 seed=5 count=20", whose::client, true},
    {"answers_lost_at_random", "drop p=0.2 seed=6 count=20", whose::server, true},
    {"packets_twice", "duplicate p=0.5 seed=1 count=20", whose::client, true},
    {"answers_twice", "duplicate p=0.5 seed=2 count=20", whose::server, true},
    {"packets_late", "delay us=3000 p=0.3 seed=1 count=5", whose::client, true},
    {"packets_out_of_order", "reorder p=0.3 seed=1 count=10", whose::client, true},
    {"receiver_not_ready", "nak:rnr count=4", whose::server, true},
    {"sequence_error", "nak:sequence count=2", whose::server, true},
    {"remote_access_error", "nak:access nth=3 count=1", whose::server, false},
    {"remote_access_error_of_an_answer", "nak:access nth=3 count=1", whose::client, false},
    {"remote_invalid_request", "nak:invalid nth=3 count=1", whose::server, false},
    {"remote_operation_error", "nak:operation nth=3 count=1", whose::server, false},
    {"local_protection_error", "local_protection nth=3 count=1", whose::client, false},
    {"local_protection_error_of_an_answer", "local_protection nth=3 count=1", whose::server, false},
    {"any_error_completion", "error:0x02 nth=3 count=1", whose::client, false},
    {"flushed_completion_out_of_nowhere", "error:0x05 nth=2 count=1", whose::client, false},
    {"retries_exceeded", "drop p=1", whose::client, false},
    {"retries_exceeded_by_the_server", "drop p=1", whose::server, false},
    {"queue_pair_fails_at_the_client", "qp_error nth=5 count=1", whose::client, false},
    {"queue_pair_fails_at_the_server", "qp_error nth=5 count=1", whose::server, false},
};

class faulty_device : public ::testing::Test {
  protected:
    faulty_device() {
        if (softnic_fault_add == nullptr) throw std::runtime_error("these tests need softnic");
        softnic_fault_clear();
    }
    ~faulty_device() override { softnic_fault_clear(); }

    static channel_options client_options() {
        channel_options options = calm_client();
        options.call_timeout = patience(10s);
        options.verbs.ack_timeout = 67ms;
        options.verbs.ack_retries = 3;
        return options;
    }
    static server_options at_server() {
        server_options options = calm_server();
        options.verbs = client_options().verbs;
        return options;
    }
    static void arm(const std::string& rule) {
        char problem[256] = "";
        ASSERT_EQ(softnic_fault_add(rule.c_str(), problem, sizeof problem), 0) << problem;
    }
    static backend_case rdma() {
        const auto& all = all_backends();
        return *std::find_if(all.begin(), all.end(), [](const auto& row) { return row.scheme == scheme_on_device(); });
    }
};

class rdma_faults : public faulty_device, public ::testing::WithParamInterface<device_fault> {};

/// A client that calls all the time, in a thread of its own.
class bystander {
  public:
    explicit bystander(checked_channel client) : client_(std::move(client)), thread_([this] { run(); }) {}
    ~bystander() { stop(); }
    void stop() {
        stop_ = true;
        if (thread_.joinable()) thread_.join();
    }
    [[nodiscard]] unsigned calls() const { return calls_; }
    [[nodiscard]] unsigned failures() const { return failures_; }

  private:
    void run() {
        while (!stop_) {
            client_.send_seed(200, calls_);
            completion done = client_.next();
            if (done.status != status::ok || !matches(done.response, done.trace_id)) ++failures_;
            ++calls_;
            done.release();
            std::this_thread::sleep_for(100us);
        }
    }
    checked_channel client_;
    std::atomic<bool> stop_{false};
    std::atomic<unsigned> calls_{0};
    std::atomic<unsigned> failures_{0};
    std::thread thread_;
};

TEST_P(rdma_faults, a_device_fault_ends_each_call_once_and_spares_other_sessions) {
    const device_fault& fault = GetParam();
    rig r(rdma(), echo, at_server());
    bystander other(r.connect(client_options()));
    const std::uint32_t last = last_queue_pair();
    auto victim = r.connect(client_options());
    victim.send_seed(100, 1);
    ASSERT_EQ(victim.finish(status::ok), 1U);

    const std::uint64_t before = softnic_fault_count();
    const std::uint32_t number = last + (fault.queue_pair == whose::client ? 1 : 2);
    arm(fmt::format("{} qpn={:#x}", fault.rule, number));
    std::set<status> seen;
    unsigned ended = 0;
    for (unsigned round = 0; round < 40 && victim->connected(); ++round) {
        for (unsigned i = 0; i < 4; ++i) {
            const auto call = victim.begin();
            if (!call) break;
            const std::size_t length = i == 3 ? 30'000 : 64;
            fill(call->request.first(length), round * 4 + i);
            if (victim.submit(call->id, length, {.trace_id = round * 4 + i}) != status::ok) break;
        }
        while (victim.open_calls() > 0) {
            const completion done = victim.next();
            seen.insert(done.status);
            ++ended;
            const bool right = done.status != status::ok || matches(done.response, done.trace_id);
            EXPECT_TRUE(right) << "a wrong answer";
        }
    }
    EXPECT_GT(softnic_fault_count(), before) << "the rule never struck";
    EXPECT_EQ(victim->connected(), fault.survived);
    const unsigned calls = other.calls();
    EXPECT_TRUE(eventually(until_hung(), [&] { return other.calls() > calls + 20; })) << "the session beside it waits";
    if (fault.survived) {
        EXPECT_EQ(seen, std::set{status::ok});
        EXPECT_EQ(ended, 160U);
    } else {
        EXPECT_TRUE(seen.contains(status::peer_lost));
        seen.erase(status::ok);
        EXPECT_EQ(seen, std::set{status::peer_lost});
        EXPECT_TRUE(eventually(patience(2s), [&] { return r.served().statistics().sessions == 1; }))
            << "the server keeps a dead session";
    }
    softnic_fault_clear();
    other.stop();
    EXPECT_EQ(other.failures(), 0U);

    auto fresh = r.connect(client_options());
    for (unsigned i = 0; i < 8; ++i) fresh.send_seed(5'000, i);
    EXPECT_EQ(fresh.finish(status::ok), 8U);
}

INSTANTIATE_TEST_SUITE_P(all, rdma_faults, ::testing::ValuesIn(all_faults),
                         [](const auto& row) { return std::string(row.param.name); });

/// The device keeps the room of what it has sent until that is acknowledged, which may be after the answer
/// came.
TEST_F(faulty_device, calls_wait_for_room_in_the_send_queue) {
    rig r(rdma(), echo, at_server());
    const std::uint32_t last = last_queue_pair();
    channel_options few_slots = client_options();
    few_slots.slots = 4;  // a send queue of 16
    auto client = r.connect(few_slots);
    client.send_seed(100, 0);
    ASSERT_EQ(client.finish(status::ok), 1U);
    const std::uint64_t before = softnic_fault_count();
    arm(fmt::format("drop op=ack count=10 qpn={:#x}", last + 2));
    for (unsigned i = 0; i < 300; ++i) {
        const auto call = client.begin();
        ASSERT_EQ(call.code(), status::ok);
        fill(call->request.first(64), i);
        ASSERT_EQ(client.submit(call->id, 64, {.trace_id = i}), status::ok) << "call " << i;
        if (client.open_calls() < few_slots.slots) continue;
        const completion done = client.next();
        ASSERT_EQ(done.status, status::ok);
        EXPECT_TRUE(matches(done.response, done.trace_id));
    }
    EXPECT_EQ(client.finish(status::ok), 3U);
    EXPECT_EQ(softnic_fault_count(), before + 10);
}

/// A client whose send queue is full: what it has sent is not acknowledged any more, and its last calls wait.
struct full_client {
    static constexpr std::uint32_t slots = 4;           // a send queue of 16
    static constexpr std::size_t request_bytes = 4096;  // one work request for ranges, not a dozen
    checked_channel client;
    std::vector<call_id> waiting;

    explicit full_client(checked_channel made) : client(std::move(made)) {}
    /// Submits calls until the last ones, one a slot, have had no answer for a while.
    void fill_up() {
        while (true) {
            while (const auto call = client.begin()) {
                ASSERT_EQ(client.submit(call->id, 64), status::ok);
                waiting.push_back(call->id);
            }
            completion done;
            if (client.wait({&done, 1}, 20ms) == 0) break;
            ASSERT_EQ(done.status, status::ok);
            std::erase(waiting, done.id);
        }
        ASSERT_EQ(waiting.size(), slots);
    }
};

TEST_F(faulty_device, calls_that_wait_for_room_can_be_cancelled_and_expire) {
    channel_options options = client_options();
    options.slots = full_client::slots;
    options.request_bytes = full_client::request_bytes;
    options.verbs.ack_timeout = 268ms;
    options.verbs.ack_retries = 6;
    server_options at = at_server();
    at.verbs = options.verbs;
    rig r(rdma(), echo, at);
    const std::uint32_t last = last_queue_pair();
    full_client full(r.connect(options));
    arm(fmt::format("drop op=ack qpn={:#x}", last + 1));
    ASSERT_NO_FATAL_FAILURE(full.fill_up());

    ASSERT_EQ(full.client.cancel(full.waiting[0]), status::ok);
    completion cancelled = full.client.next();
    EXPECT_EQ(cancelled.id, full.waiting[0]);
    EXPECT_EQ(cancelled.status, status::cancelled);
    cancelled.release();
    const auto call = full.client.begin();
    ASSERT_EQ(call.code(), status::ok) << "nobody owes it an answer";
    ASSERT_EQ(full.client.submit(call->id, 64, {.timeout = 10ms}), status::ok);
    completion expired = full.client.next();
    EXPECT_EQ(expired.id, call->id);
    EXPECT_EQ(expired.status, status::timed_out);
    expired.release();

    softnic_fault_clear();
    EXPECT_EQ(full.client.finish(status::ok), 3U);
    EXPECT_TRUE(full.client.all_slots_free());
    EXPECT_EQ(full.client->statistics().stale, 0U);
}

TEST_F(faulty_device, ranges_sent_in_part_stay_lent_after_a_cancel) {
    channel_options options = client_options();
    constexpr std::size_t count = 1000;  // more than the send queue takes, of 16 work requests with 30 ranges
    constexpr std::size_t each = 512;
    options.slots = full_client::slots;
    options.request_bytes = count * each;
    options.verbs.ack_timeout = 268ms;
    options.verbs.ack_retries = 6;
    server_options at = at_server();
    at.max_request_bytes = std::max(at.max_request_bytes, options.request_bytes);
    at.verbs = options.verbs;
    rig r(rdma(), echo, at);
    const std::uint32_t last = last_queue_pair();
    checked_channel client = r.connect(options);
    region memory = r.ctx().allocate(2 * options.request_bytes).value();
    std::vector<slice> ranges;  // no two are neighbours
    for (std::size_t i = 0; i < count; ++i) ranges.push_back(memory.part(2 * i * each, each).value());
    arm(fmt::format("drop op=ack qpn={:#x}", last + 2));

    const auto call = client.begin();
    ASSERT_EQ(call.code(), status::ok);
    ASSERT_EQ(client.submit(call->id, std::span<const slice>(ranges)), status::ok);
    ASSERT_EQ(client.cancel(call->id), status::ok);
    completion done;
    EXPECT_EQ(client.wait({&done, 1}, 20ms), 0U) << "the device may still read them";
    softnic_fault_clear();
    done = client.next();
    EXPECT_EQ(done.id, call->id);
    EXPECT_EQ(done.status, status::cancelled);
    done.release();
    client.send_seed(100, 1);
    EXPECT_EQ(client.finish(status::ok), 1U);
    EXPECT_TRUE(client.all_slots_free());
}

TEST_F(faulty_device, calls_that_wait_for_room_end_with_their_session) {
    rig r(rdma(), echo, at_server());
    const std::uint32_t last = last_queue_pair();
    channel_options options = client_options();
    options.slots = full_client::slots;
    options.request_bytes = full_client::request_bytes;
    options.verbs.ack_timeout = 33ms;
    checked_channel client = r.connect(options);
    arm(fmt::format("drop op=ack qpn={:#x}", last + 1));
    // The queue fills up, calls wait for room, and the session ends: on a busy machine at any time.
    std::size_t lost = 0;
    const auto until = std::chrono::steady_clock::now() + until_hung();
    while (std::chrono::steady_clock::now() < until && (client->connected() || client.open_calls() > 0)) {
        while (const auto call = client.begin()) {
            if (client.submit(call->id, 64) == status::ok) continue;
            EXPECT_EQ(client.release(call->id), status::ok);
            break;
        }
        completion done;
        if (client.wait({&done, 1}, 20ms) == 0) continue;
        if (done.status != status::ok) {
            EXPECT_EQ(done.status, status::peer_lost);
            ++lost;
        }
    }
    EXPECT_FALSE(client->connected());
    EXPECT_EQ(client.open_calls(), 0U);
    EXPECT_GE(lost, 1U);
}

class rdma_device_faults : public rdma_faults {};

/// Nothing survives these but the library itself, and what is opened afterwards.
TEST_P(rdma_device_faults, a_fatal_device_fault_ends_its_sessions_and_the_server_serves_on) {
    const device_fault& fault = GetParam();
    rig r(rdma(), echo, at_server());
    auto first = r.connect(client_options());
    auto second = r.connect(client_options());
    const std::uint64_t before = softnic_fault_count();
    arm(fault.rule);
    for (unsigned round = 0; round < 100 && (first->connected() || second->connected()); ++round) {
        for (auto* each : {&first, &second}) {
            if (!(*each)->connected()) continue;
            for (unsigned i = 0; i < 4; ++i) {
                const auto call = each->begin();
                if (!call || each->submit(call->id, 64) != status::ok) break;
            }
        }
        for (auto* each : {&first, &second}) {
            while (each->open_calls() > 0) {
                const completion done = each->next();
                EXPECT_TRUE(done.status == status::ok || done.status == status::peer_lost) << to_string(done.status);
            }
        }
        if (softnic_fault_count() > before && fault.survived) break;
    }
    EXPECT_GT(softnic_fault_count(), before) << "the rule never struck";
    softnic_fault_clear();
    if (fault.survived) {
        EXPECT_TRUE(first->connected() && second->connected());
    }
    const bool usable = eventually(
        patience(3s),
        [&] {
            auto again = r.try_connect(client_options());
            if (!again) return false;
            checked_channel fresh(std::move(again).value());
            for (unsigned i = 0; i < 8; ++i) fresh.send_seed(100, i);
            return fresh.finish(status::ok) == 8;
        },
        20ms);
    EXPECT_TRUE(usable);
}

INSTANTIATE_TEST_SUITE_P(
    all, rdma_device_faults,
    ::testing::Values(device_fault{"completion_queue_overrun", "cq_overrun nth=20 count=1", whose::nobody, false},
                      device_fault{"port_down_for_a_moment", "port_down nth=20 count=1 us=10000", whose::nobody, true},
                      device_fault{"port_down", "port_down nth=20 count=1 us=300000", whose::nobody, false}),
    [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace accel::tests
