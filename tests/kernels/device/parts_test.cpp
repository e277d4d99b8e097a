// SPDX-License-Identifier: Apache-2.0
// Kernels answer in parts: in order, within the room that the client gives, and with exactly one last completion.
// Threads of the host are in the kernels' place.
#include "device/calls.hpp"
#include "device/part_streams.hpp"
#include "device/service_rig.hpp"

#include <array>
#include <cstring>
#include <vector>

namespace accel::tests {
namespace {

struct part_case {
    const char* name;
    service_setting setting;
    service_sharing sharing;
    friend std::ostream& operator<<(std::ostream& out, const part_case& which) { return out << which.name; }
};

class device_parts : public ::testing::TestWithParam<part_case> {
  protected:
    void SetUp() override {
        if (!has(GetParam().setting.engine)) GTEST_SKIP() << "this device has no queues to drive";
        rig_.options.kernels.sharing = GetParam().sharing;
        rig_.options.max_sessions = 2;
        rig_.listen();
        serve();
    }
    void TearDown() override { streams_.gives_up = true; }
    /// One kernel: it finds room for its parts itself.
    void serve() {
        if (GetParam().sharing == service_sharing::exclusive) {
            rig_.serve_owned([this](device::owned_sessions& mine, const device::exchange_ref& exchange) {
                if (!silent_) streams_.answer(mine, rig_.service->ref(), exchange);
            });
        } else {
            rig_.serve([this](const device::service_ref& service, const device::exchange_ref& exchange) {
                if (!silent_) streams_.answer(service, service, exchange);
            });
        }
    }

    [[nodiscard]] static call_id submit(channel& through, const parts_wish& what, const submit_options& with) {
        call_view call;
        status sent = status::again;
        // Room of the call before comes back behind its answer.
        EXPECT_TRUE(eventually(patience(5s), [&] {
            std::array<completion, 1> none;
            EXPECT_EQ(through.poll(none), 0U);
            if (through.begin(call) != status::ok) return false;
            std::memcpy(call.request.data(), &what, sizeof what);
            sent = through.submit(call.id, sizeof what, with);
            if (sent == status::again) (void)through.release(call.id);
            return sent != status::again;
        }));
        EXPECT_EQ(sent, status::ok);
        return call.id;
    }
    [[nodiscard]] static completion next(channel& from) {
        std::array<completion, 1> one;
        EXPECT_EQ(from.wait(one, patience(10s)), 1U);
        return one[0];
    }
    static completion expect_part(channel& from, call_id call, const parts_wish& what, std::uint64_t number) {
        const completion c = next(from);
        EXPECT_EQ(c.status, status::ok) << to_string(c.status);
        EXPECT_TRUE(c.more) << number;
        EXPECT_EQ(c.call, call);
        EXPECT_EQ(c.response.size(), what.bytes + number % 50);
        EXPECT_TRUE(matches(c.response, what.seed + number)) << number;
        return c;
    }
    static void expect_last(channel& from, call_id call, status expected) {
        const completion c = next(from);
        EXPECT_FALSE(c.more);
        EXPECT_EQ(c.id, call);
        EXPECT_EQ(c.status, expected) << to_string(c.status);
        EXPECT_EQ(from.release(c.id), status::ok);
    }
    /// Takes a whole response, part by part.
    static void expect_all(channel& from, call_id call, const parts_wish& what) {
        for (std::uint64_t i = 0; i < what.parts; ++i)
            ASSERT_EQ(from.release(expect_part(from, call, what, i).id), status::ok);
        expect_last(from, call, status::ok);
    }
    static void expect_all_slots(channel& of) {
        std::vector<call_view> calls(service_rig::small().slots);
        std::size_t begun = 0;
        EXPECT_TRUE(eventually(patience(5s), [&] {
            std::array<completion, 1> none;
            EXPECT_EQ(of.poll(none), 0U);
            while (begun < calls.size() && of.begin(calls[begun]) == status::ok) ++begun;
            return begun == calls.size();
        })) << begun;
        for (std::size_t i = 0; i < begun; ++i) EXPECT_EQ(of.release(calls[i].id), status::ok);
    }

    std::atomic<bool> silent_{false};  ///< keeps requests to itself
    part_streams streams_;
    service_rig rig_{GetParam().setting};
};

TEST_P(device_parts, parts_arrive_in_order_before_the_last_completion) {
    channel client = rig_.connect();
    for (std::uint64_t round = 0; round < 20; ++round) {
        const parts_wish what{4, 100 * round, 1000 * round};
        const call_id call = submit(client, what, {.parts = 4});
        std::vector<completion> held;
        for (std::uint64_t i = 0; i < what.parts; ++i) held.push_back(expect_part(client, call, what, i));
        expect_last(client, call, status::ok);
        for (std::uint64_t i = 0; i < what.parts; ++i) {
            EXPECT_TRUE(matches(held[i].response, what.seed + i)) << "until its release, " << i;
            EXPECT_EQ(client.release(held[i].id), status::ok);
        }
    }
    expect_all_slots(client);
    EXPECT_TRUE(streams_.too_long_refused);
    EXPECT_EQ(client.statistics().stale, 0U);
    EXPECT_TRUE(eventually(patience(5s), [&] { return rig_.service->statistics().replies == 20; }))
        << rig_.service->statistics().replies << ": parts are no replies";
}

TEST_P(device_parts, a_long_response_needs_little_room) {
    channel client = rig_.connect();
    for (const std::uint32_t room : {1U, 3U}) {
        const parts_wish what{300, 10, 7};
        expect_all(client, submit(client, what, {.parts = room}), what);
    }
    expect_all_slots(client);
}

TEST_P(device_parts, parts_wait_for_room) {
    channel client = rig_.connect();
    const parts_wish what{3, 10, 7};
    const call_id call = submit(client, what, {.parts = 2});
    const completion first = expect_part(client, call, what, 0);
    const completion second = expect_part(client, call, what, 1);
    ASSERT_TRUE(eventually(patience(5s), [&] { return streams_.without_room > 3; }));
    std::array<completion, 1> none;
    EXPECT_EQ(client.poll(none), 0U);
    EXPECT_EQ(client.release(second.id), status::ok);
    const completion third = expect_part(client, call, what, 2);
    EXPECT_TRUE(matches(first.response, what.seed)) << "nobody has released it";
    expect_last(client, call, status::ok);
    EXPECT_EQ(client.release(first.id), status::ok);
    EXPECT_EQ(client.release(third.id), status::ok);
    expect_all_slots(client);
}

TEST_P(device_parts, unused_room_returns_to_the_client) {
    channel client = rig_.connect();
    for (std::uint64_t round = 0; round < 30; ++round) {
        const parts_wish what{round % 3, 10, round};
        const call_id call = submit(client, what, {.parts = 7});
        expect_all(client, call, what);
    }
    expect_all_slots(client);
    EXPECT_EQ(run_calls(client, 100, 3), 100U);
}

TEST_P(device_parts, requests_that_wait_keep_their_order) {
    if (GetParam().sharing == service_sharing::exclusive) GTEST_SKIP() << "an owner takes them in the order of slots";
    channel client = rig_.connect();
    const parts_wish what{40, 10, 7};
    const call_id call = submit(client, what, {.parts = 1});
    std::vector<call_id> waiting;
    for (std::uint64_t i = 0; i < 4; ++i) {
        call_view plain;
        ASSERT_EQ(client.begin(plain), status::ok);
        fill(plain.request.first(i + 1), i);
        ASSERT_EQ(client.submit(plain.id, i + 1), status::ok);
        waiting.push_back(plain.id);
    }
    expect_all(client, call, what);
    for (std::uint64_t i = 0; i < waiting.size(); ++i) {
        const completion c = next(client);
        EXPECT_EQ(c.status, status::ok);
        EXPECT_EQ(c.id, waiting[i]) << i;
        EXPECT_EQ(client.release(c.id), status::ok);
    }
    expect_all_slots(client);
}

TEST_P(device_parts, several_kernels_stream_to_several_clients) {
    if (GetParam().sharing == service_sharing::shared) serve();
    std::vector<std::thread> clients;
    for (std::uint64_t i = 0; i < 2; ++i) {
        clients.emplace_back([this, i] {
            channel client = rig_.connect();
            for (std::uint64_t round = 0; round < 20; ++round) {
                const parts_wish what{10, 30 * i, 1000 * i + round};
                expect_all(client, submit(client, what, {.parts = 3}), what);
                EXPECT_EQ(run_calls(client, 10, round), 10U);
            }
            expect_all_slots(client);
        });
    }
    for (std::thread& each : clients) each.join();
}

TEST_P(device_parts, a_failure_arrives_after_its_parts) {
    channel client = rig_.connect();
    parts_wish what{2, 77, 7};
    what.fails = 1;
    const call_id call = submit(client, what, {.parts = 3});
    for (std::uint64_t i = 0; i < what.parts; ++i)
        EXPECT_EQ(client.release(expect_part(client, call, what, i).id), status::ok);
    const completion c = next(client);
    EXPECT_FALSE(c.more);
    EXPECT_EQ(c.status, status::application_error);
    EXPECT_EQ(c.code, 42U);
    EXPECT_EQ(client.release(c.id), status::ok);
    expect_all_slots(client);
}

TEST_P(device_parts, a_cancel_ends_the_parts_and_reaches_the_kernel) {
    channel client = rig_.connect();
    for (int round = 1; round <= 3; ++round) {
        const parts_wish what{1000, 10, 7};
        const call_id call = submit(client, what, {.parts = 2});
        const completion first = expect_part(client, call, what, 0);
        const completion second = expect_part(client, call, what, 1);
        ASSERT_EQ(client.cancel(call), status::ok);
        expect_last(client, call, status::cancelled);
        EXPECT_TRUE(eventually(patience(5s), [&] { return streams_.heard == round; }));
        EXPECT_EQ(client.release(first.id), status::ok);
        EXPECT_EQ(client.release(second.id), status::ok);
        expect_all_slots(client);
    }
}

TEST_P(device_parts, a_late_part_ends_the_call) {
    channel client = rig_.connect();
    const parts_wish what{1, 10, 7};
    const call_id streamed = submit(client, what, {.parts = 1, .part_timeout = patience(60s)});
    expect_all(client, streamed, what);
    silent_ = true;
    const auto start = std::chrono::steady_clock::now();
    const call_id call = submit(client, what, {.timeout = patience(60s), .parts = 1, .part_timeout = patience(100ms)});
    expect_last(client, call, status::timed_out);
    EXPECT_LT(std::chrono::steady_clock::now() - start, until_hung());
}

TEST_P(device_parts, a_client_that_leaves_in_mid_stream_frees_its_place) {
    for (std::uint64_t round = 0; round < 3; ++round) {
        {
            channel client = rig_.connect();
            const parts_wish what{1000, 10, round};
            const call_id call = submit(client, what, {.parts = 3});
            EXPECT_EQ(client.release(expect_part(client, call, what, 0).id), status::ok);
        }
        EXPECT_TRUE(eventually(patience(10s), [this] { return rig_.service->statistics().sessions == 0; }));
    }
    result<channel> next_one = rig_.try_connect();
    ASSERT_TRUE(eventually(patience(5s), [&] {
        if (!next_one) next_one = rig_.try_connect();
        return next_one.ok();
    }));
    const parts_wish what{20, 10, 9};
    expect_all(*next_one, submit(*next_one, what, {.parts = 7}), what);
    expect_all_slots(*next_one);
}

INSTANTIATE_TEST_SUITE_P(
    by, device_parts,
    ::testing::Values(part_case{"direct", {false, gpu_engine::direct}, service_sharing::shared},
                      part_case{"proxy", {false, gpu_engine::proxy}, service_sharing::shared},
                      part_case{"fake_direct", {true, gpu_engine::direct}, service_sharing::shared},
                      part_case{"exclusive", {true, gpu_engine::direct}, service_sharing::exclusive},
                      part_case{"exclusive_proxy", {false, gpu_engine::proxy}, service_sharing::exclusive}),
    [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace accel::tests
