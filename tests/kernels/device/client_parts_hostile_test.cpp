// SPDX-License-Identifier: Apache-2.0
// Servers that send parts as no correct server does, to a channel of a GPU (this thread is in the kernel's place). The
// channel ends, its calls with it, and nothing else happens.
#include "device/bare_server_rig.hpp"

#include <functional>
#include <memory>
#include <vector>

namespace accel::tests {
namespace {

constexpr core::link_geometry parts_shape = bare_server_rig::shape;
static_assert(parts_shape.slots == 2, "a call, and room for one part");

/// A channel with one call in parts, and its server.
class streamed_to : public bare_server_rig {
  public:
    explicit streamed_to(const service_setting& which) : bare_server_rig(which.engine, which.sharing) {}
    void start() {
        auto attached = attach();
        ASSERT_TRUE(attached.ok()) << attached.error().message;
        ASSERT_EQ(device::own(poller->channel(), mine), status::ok);
        ASSERT_EQ(device::begin(mine, call), status::ok);
    }
    void submit() {
        ASSERT_EQ(device::submit(mine, call, 8, {.parts = 1}), status::ok);
        lent = room_of(1 - call.slot);
        const core::slot_header request = server->answer(call.slot);
        EXPECT_EQ(request.flags, core::header_flag::parts);
    }
    /// Room, as the server sees it.
    [[nodiscard]] device::call_ref room_of(std::uint32_t slot, std::uint32_t other_than = 0) {
        core::slot_header seen;
        EXPECT_TRUE(eventually(patience(5s), [&] {
            seen = server->answer(slot);
            return (seen.flags & core::header_flag::more) != 0 && seen.generation != other_than &&
                   server->answer(call.slot).generation == call.generation;
        }));
        EXPECT_EQ(seen.parts_call, core::parts_call_of(call.slot, call.generation));
        EXPECT_EQ(seen.length, 0U);
        EXPECT_EQ(seen.response_room, parts_shape.response_bytes);
        device::call_ref out;
        out.slot = slot;
        out.generation = seen.generation;
        return out;
    }
    [[nodiscard]] bare_client::request part(std::uint64_t number) const {
        auto out = answer_to(lent);
        out.header.flags = core::header_flag::more;
        out.header.parts_before = number;
        out.header.length = 16;
        return out;
    }
    [[nodiscard]] bare_client::request last(std::uint64_t count) const {
        auto out = answer_to(call);
        out.header.parts_before = count;
        return out;
    }
    void post(const bare_client::request& answer) const {
        server->post(answer);
        EXPECT_EQ(server->outcome(), mlx5::syndrome::none);
    }
    [[nodiscard]] status next(device::arrival_ref& out) {
        for (;;) {
            const status found = device::wait(mine, call, out, 200'000);
            if (found != status::again) return found;
            std::this_thread::sleep_for(50us);
        }
    }
    void expect_part(std::uint64_t number) {
        post(part(number));
        device::arrival_ref out;
        EXPECT_EQ(next(out), status::ok);
        EXPECT_TRUE(out.more);
        EXPECT_EQ(out.response_bytes, 16U);
        EXPECT_EQ(device::release(mine, out), status::ok);
        lent = room_of(lent.slot, lent.generation);
    }
    void expect_lost() {
        device::arrival_ref out;
        EXPECT_EQ(next(out), status::peer_lost);
        EXPECT_FALSE(out.more);
        EXPECT_EQ(out.response_bytes, 0U);
        EXPECT_EQ(device::release(mine, out), status::ok);
        device::call_ref none;
        EXPECT_EQ(device::begin(mine, none), status::peer_lost);
        std::array<core::link_event, 16> events;
        ASSERT_EQ(poller->poll(events), 1U);
        EXPECT_EQ(events[0].reason, status::protocol_error);
    }

    device::owned_channel mine;  ///< also of a shared channel
    device::call_ref call;
    device::call_ref lent;  ///< the slot that the server has
};

class parts_hostile_server : public ::testing::TestWithParam<service_setting> {
  protected:
    void SetUp() override {
        if (!has(GetParam().engine)) GTEST_SKIP() << "this device has no queues to drive";
    }
    [[nodiscard]] static std::unique_ptr<streamed_to> start() {
        auto out = std::make_unique<streamed_to>(GetParam());
        out->start();
        if (!HasFatalFailure()) out->submit();
        return out;
    }
};

TEST_P(parts_hostile_server, wrong_headers_end_the_session) {
    using spoil = std::function<bare_client::request(const streamed_to&)>;
    const auto part_with = [](const std::function<void(core::slot_header&)>& change) -> spoil {
        return [change](const streamed_to& rig) {
            auto out = rig.part(1);
            change(out.header);
            return out;
        };
    };
    const std::vector<spoil> all{
        part_with([](auto& header) { header.code = status::application_error; }),
        part_with([](auto& header) { header.length = parts_shape.response_bytes + 1; }),
        part_with([](auto& header) { header.length = ~std::uint64_t{0}; }),
        part_with([](auto& header) { header.parts_before = 0; }),
        part_with([](auto& header) { header.parts_before = 1 + parts_shape.slots; }),
        part_with([](auto& header) { header.flags = core::header_flag::more | core::header_flag::parts; }),
        part_with([](auto& header) { header.flags = 0; }),
        part_with([](auto& header) { header.slot = 1 - header.slot; }),
        part_with([](auto& header) { header.kind = core::message_kind::request; }),
        part_with([](auto& header) { header.extension_bytes = 7; }),
        part_with([](auto& header) {
            header.flags = 0;
            header.code = status::cancelled;  // given back, with bytes
        }),
        [](const streamed_to& rig) { return rig.last(0); },
        [](const streamed_to& rig) { return rig.last(3); },
        [](const streamed_to& rig) {
            auto out = rig.last(1);
            out.header.flags = core::header_flag::more;
            return out;
        },
    };
    for (std::size_t i = 0; i < all.size(); ++i) {
        SCOPED_TRACE(i);
        auto rig = start();
        rig->expect_part(0);
        rig->post(all[i](*rig));
        rig->expect_lost();
    }
}

TEST_P(parts_hostile_server, a_part_that_never_comes_ends_with_the_deadline) {
    auto rig = std::make_unique<streamed_to>(GetParam());
    rig->start();
    ASSERT_EQ(device::submit(rig->mine, rig->call, 8, {.timeout_ns = 50'000'000, .parts = 1}), status::ok);
    rig->lent = rig->room_of(1 - rig->call.slot);
    rig->post(rig->last(1));
    device::arrival_ref out;
    EXPECT_EQ(rig->next(out), status::timed_out);
    EXPECT_EQ(device::release(rig->mine, out), status::ok);
    device::call_ref next;
    EXPECT_EQ(device::begin(rig->mine, next), status::ok) << "its answer was there";
}

TEST_P(parts_hostile_server, a_part_that_has_arrived_does_not_outlive_the_deadline) {
    auto rig = std::make_unique<streamed_to>(GetParam());
    rig->start();
    constexpr std::int64_t timeout_ns = 100'000'000;
    ASSERT_EQ(device::submit(rig->mine, rig->call, 8, {.timeout_ns = timeout_ns, .parts = 1}), status::ok);
    const auto submitted = std::chrono::steady_clock::now();
    rig->lent = rig->room_of(1 - rig->call.slot);
    rig->post(rig->part(0));
    std::this_thread::sleep_until(submitted + std::chrono::nanoseconds{timeout_ns});
    device::arrival_ref out;
    EXPECT_EQ(rig->next(out), status::timed_out);
    EXPECT_FALSE(out.more);
    EXPECT_EQ(device::release(rig->mine, out), status::ok);
}

INSTANTIATE_TEST_SUITE_P(by, parts_hostile_server,
                         ::testing::Values(service_setting{false, gpu_engine::direct},
                                           service_setting{false, gpu_engine::proxy},
                                           service_setting{false, gpu_engine::direct, owned},
                                           service_setting{false, gpu_engine::proxy, owned}),
                         [](const auto& row) { return name_of(row.param); });

}  // namespace
}  // namespace accel::tests
