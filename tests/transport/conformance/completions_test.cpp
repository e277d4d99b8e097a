// SPDX-License-Identifier: Apache-2.0
// Completions own the slots of their calls. (parts_test.cpp and random_test.cpp release them one by one.)
#include "rig.hpp"

#include <array>
#include <optional>
#include <utility>
#include <vector>

namespace accel::tests {
namespace {

class completions : public on_every_backend {
  protected:
    static constexpr std::size_t length = 100;

    [[nodiscard]] static checked_channel connect(rig& r, std::uint32_t slots) {
        channel_options options = calm_client();
        options.slots = slots;
        return r.connect(options);
    }
    /// The completion of a call with bytes that follow from `seed`.
    [[nodiscard]] static completion call(checked_channel& client, std::uint64_t seed) {
        client.send_seed(length, seed);
        return client.next();
    }
    [[nodiscard]] static bool is_full(checked_channel& client) {
        const auto begun = client.begin();
        if (begun) {
            EXPECT_EQ(client.release(begun->id), status::ok);
        }
        return begun.code() == status::again;
    }
};

TEST_P(completions, release_their_slot_when_they_end) {
    rig r(GetParam());
    auto client = connect(r, 1);
    {
        const completion dropped = call(client, 1);
        EXPECT_TRUE(is_full(client));
        EXPECT_TRUE(matches(dropped.response, 1));
    }
    completion kept = call(client, 2);
    kept.release();
    EXPECT_FALSE(is_full(client));
    kept = call(client, 3);
    kept.release();
    completion other = call(client, 4);
    kept.release();  // without effect on the slot's next call
    kept = std::move(other);
    EXPECT_TRUE(is_full(client)) << "it has moved";
    other = {};
    EXPECT_TRUE(is_full(client));
    EXPECT_TRUE(matches(kept.response, 4));
    EXPECT_EQ(other.tensors({}).code(), status::invalid_state);
    kept = {};
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(completions, poll_and_wait_release_what_is_left_in_their_room) {
    rig r(GetParam());
    constexpr std::uint32_t slots = 4;
    auto client = connect(r, slots);
    auto second = connect(r, slots);
    std::array<completion, slots> out;
    for (std::uint64_t round = 0; round < 6; ++round) {
        checked_channel& now = round % 3 == 2 ? second : client;
        for (std::uint64_t i = 0; i < slots; ++i) now.send_seed(length, i);
        EXPECT_TRUE(is_full(now));
        for (completion& each : out) each = now.next();
        EXPECT_TRUE(is_full(now));
        EXPECT_EQ(round % 2 == 0 ? now.poll(out) : now.wait(out, 1ms), 0U);
        EXPECT_TRUE(now.all_slots_free());
    }
}

TEST_P(completions, overwrite_those_of_another_channel) {
    rig r(GetParam());
    auto first = connect(r, 1);
    auto second = connect(r, 1);
    std::array<completion, 1> out;
    for (std::uint64_t round = 0; round < 6; ++round) {
        checked_channel& now = round % 2 == 0 ? first : second;
        checked_channel& before = round % 2 == 0 ? second : first;
        now.send_seed(length, round);
        ASSERT_EQ(now.wait(out, until_hung()), 1U);
        EXPECT_TRUE(matches(out[0].response, round));
        EXPECT_TRUE(is_full(now));
        EXPECT_FALSE(is_full(before));
    }
}

TEST_P(completions, that_are_detached_keep_their_slot_until_release) {
    rig r(GetParam());
    auto client = connect(r, 1);
    call_id kept;
    std::span<const std::byte> response;
    {
        completion done = call(client, 5);
        kept = done.detach();
        EXPECT_EQ(kept, done.id);
        response = done.response;
        done.release();  // without effect
    }
    EXPECT_TRUE(is_full(client));
    EXPECT_TRUE(matches(response, 5));
    EXPECT_EQ(client.release(kept), status::ok);
    EXPECT_EQ(client.release(kept), status::invalid_state);
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(completions, outlast_a_move_and_the_close_of_their_channel) {
    rig r(GetParam());
    auto client = connect(r, 3);
    std::vector<completion> kept;
    for (std::uint64_t i = 0; i < 3; ++i) kept.push_back(call(client, i));
    checked_channel moved = std::move(client);
    kept.pop_back();
    EXPECT_FALSE(is_full(moved));
    EXPECT_TRUE(matches(kept[0].response, 0));
    moved->close();
    EXPECT_TRUE(matches(kept[0].response, 0));
    EXPECT_TRUE(matches(kept[1].response, 1));
}

TEST_P(completions, outlast_their_channel_and_its_server) {
    completion late;
    completion replaced;
    {
        rig r(GetParam());
        auto client = connect(r, 3);
        late = call(client, 1);
        replaced = call(client, 2);
        client.raw() = std::move(connect(r, 1).raw());
        replaced = call(client, 3);
        EXPECT_TRUE(matches(late.response, 1)) << "of the channel before";
        EXPECT_TRUE(is_full(client));
    }
    EXPECT_TRUE(matches(late.response, 1));
    EXPECT_TRUE(matches(replaced.response, 3));
    completion room[] = {std::move(late)};
    rig r(GetParam());
    auto client = connect(r, 1);
    client.send_seed(length, 4);
    ASSERT_TRUE(eventually([&] { return client.poll(room) == 1; })) << "which releases what it finds there";
    EXPECT_TRUE(matches(room[0].response, 4));
}

TEST_P(completions, of_parts_let_the_server_send_more_when_they_end) {
    std::optional<exchange> open;
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto client = connect(r, 2);
    client.send_seed(length, 1, {.parts = 1});
    open = held.take();
    for (std::uint64_t i = 0; i < 5; ++i) {
        ASSERT_TRUE(eventually(patience(5s), [&] { return !open->part().empty(); }));
        fill(open->part().first(length), i);
        ASSERT_EQ(open->send(length), status::ok);
        EXPECT_TRUE(open->part().empty());
        const completion part = client.next();
        EXPECT_TRUE(part.more);
        EXPECT_TRUE(matches(part.response, i));
        EXPECT_TRUE(open->part().empty()) << "nobody has released it";
    }
    EXPECT_EQ(open->reply(0), status::ok);
    EXPECT_EQ(client.finish(status::ok), 1U);
    EXPECT_TRUE(client.all_slots_free());
}

ACCEL_INSTANTIATE(completions, all_backends);

}  // namespace
}  // namespace accel::tests
