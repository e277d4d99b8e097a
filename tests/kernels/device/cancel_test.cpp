// SPDX-License-Identifier: Apache-2.0
// Kernels hear that nobody waits for an answer: cancelled calls, deadlines, clients that leave. Threads of the host are
// in the kernels' place.
#include "device/service_rig.hpp"

#include <array>
#include <atomic>
#include <optional>

namespace accel::tests {
namespace {

struct cancel_case {
    const char* name;
    service_setting setting;
    service_sharing sharing;
    friend std::ostream& operator<<(std::ostream& out, const cancel_case& which) { return out << which.name; }
};

/// Requests of one byte are worked on until nobody waits for them; others are echoed.
class device_cancel : public ::testing::TestWithParam<cancel_case> {
  protected:
    static constexpr std::size_t endless = 1;

    void SetUp() override {
        if (!has(GetParam().setting.engine)) GTEST_SKIP() << "this device has no queues to drive";
        rig_.options.kernels.sharing = GetParam().sharing;
        rig_.options.max_sessions = 1;  // so that the next client gets the same place
        rig_.listen();
        if (GetParam().sharing == service_sharing::exclusive) {
            rig_.serve_owned([this](device::owned_sessions& mine, const device::exchange_ref& exchange) {
                (void)device::reply(mine, exchange, work_on(exchange));
            });
        } else {
            rig_.serve([this](const device::service_ref& service, const device::exchange_ref& exchange) {
                (void)device::reply(service, exchange, work_on(exchange));
            });
        }
    }
    void TearDown() override { gives_up_ = true; }

    [[nodiscard]] static channel_options options(nanoseconds timeout) {
        channel_options out = service_rig::small();
        out.call_timeout = timeout;
        return out;
    }
    static call_id submit(channel& through, std::size_t bytes, nanoseconds timeout = {}) {
        call_view call;
        EXPECT_EQ(through.begin(call), status::ok);
        EXPECT_EQ(through.submit(call.id, bytes, {.timeout = timeout}), status::ok);
        return call.id;
    }
    [[nodiscard]] static status next(channel& from) {
        std::array<completion, 1> one;
        EXPECT_EQ(from.wait(one, until_hung()), 1U);
        (void)from.release(one[0].id);
        return one[0].status;
    }
    [[nodiscard]] bool at_work() const {
        return eventually(patience(5s), [this] { return begun_ > heard_; });
    }
    [[nodiscard]] bool heard(int count = 1) const {
        return eventually(patience(1s), [&] { return heard_ == count; });
    }

    std::atomic<int> begun_{0};
    std::atomic<int> heard_{0};
    std::atomic<bool> gives_up_{false};
    service_rig rig_{GetParam().setting};

  private:
    std::uint64_t work_on(const device::exchange_ref& exchange) {
        if (exchange.request_bytes != endless) return std::min(exchange.request_bytes, exchange.response_room);
        ++begun_;
        bool told = false;
        while (!told && !gives_up_) {
            told = device::cancelled(rig_.service->ref(), exchange);
            std::this_thread::sleep_for(100us);
        }
        if (told) ++heard_;
        return 0;
    }
};

TEST_P(device_cancel, a_cancel_stops_the_work_and_frees_the_slot) {
    channel client = rig_.connect(options(patience(60s)));
    const call_id call = submit(client, endless);
    ASSERT_TRUE(at_work());
    std::this_thread::sleep_for(20ms);
    EXPECT_EQ(heard_, 0) << "nobody has cancelled it";
    EXPECT_EQ(client.cancel(call), status::ok);
    EXPECT_EQ(next(client), status::cancelled);
    EXPECT_TRUE(heard());
    for (int i = 0; i < 20; ++i) {
        (void)submit(client, 100);
        EXPECT_EQ(next(client), status::ok) << i;
    }
}

TEST_P(device_cancel, a_cancel_spares_the_next_call_in_its_slot) {
    channel_options one_slot = options(patience(60s));
    one_slot.slots = 1;
    channel client = rig_.connect(one_slot);
    EXPECT_EQ(client.cancel(submit(client, endless)), status::ok);
    EXPECT_EQ(next(client), status::cancelled);
    ASSERT_TRUE(heard());
    std::optional<call_view> call;
    ASSERT_TRUE(eventually(patience(5s), [&] {
        call_view made;
        std::array<completion, 1> none;
        (void)client.poll(none);
        if (client.begin(made) == status::ok) call = made;
        return call.has_value();
    }));
    ASSERT_EQ(client.submit(call->id, endless), status::ok);
    ASSERT_TRUE(at_work());
    std::this_thread::sleep_for(20ms);
    EXPECT_EQ(heard_, 1);
}

TEST_P(device_cancel, a_client_that_leaves_stops_its_work_and_frees_its_place) {
    {
        channel client = rig_.connect(options(patience(60s)));
        (void)submit(client, endless);
        ASSERT_TRUE(at_work());
    }
    EXPECT_TRUE(heard());
    EXPECT_TRUE(eventually(patience(5s), [&] { return rig_.service->statistics().sessions == 0; }));
    result<channel> next_one = rig_.try_connect(options(patience(60s)));
    ASSERT_TRUE(eventually(patience(5s), [&] {
        if (!next_one) next_one = rig_.try_connect(options(patience(60s)));
        return next_one.ok();
    }));
    (void)submit(*next_one, endless);
    ASSERT_TRUE(at_work());
    std::this_thread::sleep_for(20ms);
    EXPECT_EQ(heard_, 1) << "the word was of the client before";
}

TEST_P(device_cancel, a_passed_deadline_stops_the_work) {
    channel client = rig_.connect(options(patience(60s)));
    (void)submit(client, 100);
    EXPECT_EQ(next(client), status::ok);
    std::this_thread::sleep_for(patience(50ms));  // until the kernels have heard the host's clock
    with_enough_time(200ms, [&](nanoseconds timeout) {
        const int before = begun_;
        const auto start = std::chrono::steady_clock::now();
        (void)submit(client, endless, timeout);
        const status ended = next(client);
        // The kernel's answer may be there when the client looks at its clock.
        EXPECT_TRUE(ended == status::timed_out || ended == status::ok) << to_string(ended);
        EXPECT_GT(std::chrono::steady_clock::now() - start, timeout * 3 / 4);
        return begun_ > before;
    });
    EXPECT_TRUE(heard(begun_));
}

INSTANTIATE_TEST_SUITE_P(
    by, device_cancel,
    ::testing::Values(cancel_case{"direct", {false, gpu_engine::direct}, service_sharing::shared},
                      cancel_case{"fake_proxy", {true, gpu_engine::proxy}, service_sharing::shared},
                      cancel_case{"exclusive", {true, gpu_engine::direct}, service_sharing::exclusive}),
    [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace accel::tests
