// SPDX-License-Identifier: Apache-2.0
// Clients that do with their queue pair what no correct client does, at a GPU-resident service (a
// thread is in the kernel's place). Their session ends; nothing else does.
#include "device/bare_service.hpp"

#include <functional>
#include <memory>
#include <string>

namespace accel::tests {
namespace {

class device_hostile : public bare_service, public ::testing::WithParamInterface<service_setting> {
  protected:
    [[nodiscard]] gpu_engine engine() const override { return GetParam().engine; }
    [[nodiscard]] service_sharing sharing() const override { return GetParam().sharing; }
};

TEST_P(device_hostile, wrong_requests_end_their_session_alone) {
    expect_wrong_requests_to_end_their_session();
}

/// The good side of what is refused beyond it.
TEST_P(device_hostile, requests_at_the_limits_are_served) {
    bare_client client(shape);
    connect(client, good_);
    std::uint32_t generation = 0;
    for (const std::uint32_t slot : {0U, shape.slots - 1}) {
        for (const std::uint64_t length : {std::uint64_t{0}, shape.request_bytes}) {
            for (const std::uint32_t room : {0U, static_cast<std::uint32_t>(shape.response_bytes)}) {
                auto request = client.correct(slot);
                request.header.generation = ++generation;
                request.header.deadline_ns = INT64_MAX;
                request.header.length = length;
                request.header.response_room = room;
                client.post(request);
                EXPECT_EQ(client.outcome(), mlx5::syndrome::none);
                EXPECT_TRUE(eventually([&] { return client.answer(slot).generation == generation; }));
                EXPECT_EQ(client.answer(slot).code, status::ok);
                EXPECT_EQ(client.answer(slot).length, room);
            }
        }
    }
    end(good_);
}

/// Its queue pair is gone when its answer comes.
TEST_P(device_hostile, client_that_dies_before_its_answer_loses_its_session_only) {
    bare_client friendly(shape);
    connect(friendly, good_);
    int owner = 0;
    for (std::uint32_t round = 1; round <= 3; ++round) {
        held_ = true;
        {
            bare_client dying(shape);
            connect(dying, bad_, &owner);
            auto request = dying.correct(0);
            request.header.deadline_ns = INT64_MAX;
            dying.post(request);
            ASSERT_EQ(dying.outcome(), mlx5::syndrome::none);
            std::this_thread::sleep_for(20ms);  // the kernel holds it
        }
        held_ = false;
        expect_loss(status::peer_lost, &owner);
        expect_served(friendly, round);
        end(bad_);
        expect_place();
    }
    end(good_);
}

TEST_P(device_hostile, wrong_link_descriptions_take_no_place) {
    for (int i = 0; i < 10; ++i) {
        EXPECT_FALSE(accept(core::link_description(7)).ok());
        bare_client other({1, 256, 256});
        EXPECT_EQ(accept(other.describe()).error().code, status::protocol_error);
    }
    bare_client friendly(shape);
    connect(friendly, good_);
    expect_served(friendly, 1);
    end(good_);
}

TEST_P(device_hostile, places_are_used_again_and_again) {
    for (std::uint32_t i = 0; i < 50; ++i) {
        bare_client friendly(shape);
        connect(friendly, good_);
        for (std::uint32_t j = 7; j < 10; ++j) expect_served(friendly, j);
        end(good_);
    }
}

/// Room for a part, in slot 0, of the call in slot 1.
bare_client::request room_for(const bare_client& client, std::uint32_t generation, std::uint32_t call_generation) {
    auto out = client.correct(0);
    out.header.flags = core::header_flag::more;
    out.header.generation = generation;
    out.header.deadline_ns = INT64_MAX;
    out.header.parts_call = core::parts_call_of(1, call_generation);
    return out;
}
bare_client::request in_parts(const bare_client& client, std::uint32_t generation) {
    auto out = client.correct(1);
    out.header.flags = core::header_flag::parts;
    out.header.generation = generation;
    out.header.deadline_ns = INT64_MAX;
    return out;
}
/// Sends, one after another.
void post_now(bare_client& client, const bare_client::request& what) {
    client.post(what);
    EXPECT_EQ(client.outcome(), mlx5::syndrome::none);
}
/// The room comes back without a part.
void expect_back(const bare_client& client, std::uint32_t generation) {
    EXPECT_TRUE(eventually(patience(5s), [&] { return client.answer(0).generation == generation; })) << generation;
    EXPECT_EQ(client.answer(0).kind, core::message_kind::response);
    EXPECT_EQ(client.answer(0).code, status::cancelled);
    EXPECT_EQ(client.answer(0).flags, 0U);
    EXPECT_EQ(client.answer(0).length, 0U);
}

TEST_P(device_hostile, room_comes_back_when_its_call_has_ended) {
    bare_client client(shape);
    connect(client, good_);
    for (std::uint32_t i = 1; i < 5; ++i) {
        post_now(client, room_for(client, 2 * i, i));
        post_now(client, in_parts(client, i));
        EXPECT_TRUE(eventually(patience(5s), [&] { return client.answer(1).generation == i; })) << i;
        EXPECT_EQ(client.answer(1).code, status::ok);
        EXPECT_EQ(client.answer(1).parts_before, 0U);
        expect_back(client, 2 * i);
        post_now(client, room_for(client, 2 * i + 1, i));  // it has crossed with the answer
        expect_back(client, 2 * i + 1);
    }
    post_now(client, room_for(client, 100, 3));  // of a call long ago
    expect_back(client, 100);
    end(good_);
}

TEST_P(device_hostile, room_of_a_client_that_leaves_holds_no_place) {
    for (std::uint32_t i = 0; i < 5; ++i) {
        bare_client client(shape);
        connect(client, bad_);
        post_now(client, room_for(client, 1, 1));
        std::this_thread::sleep_for(5ms);  // the kernel keeps it
        end(bad_);
    }
    expect_place();
}

/// What a client does that no correct one does, beginning with the first request of its session.
struct wrong_sequence {
    const char* name;
    void (*act)(bare_client&);
    bool announced_only = false;
};
/// Room for a part of the call in slot 1, spoilt.
template <class Spoil>
void post_wrong_room(bare_client& client, const Spoil& spoil) {
    auto room = room_for(client, 1, 1);
    spoil(room.header);
    client.post(room);
}
/// A part of the request in slot 1, in slot 0, spoilt.
template <class Spoil>
void post_wrong_part(bare_client& client, const Spoil& spoil) {
    auto part = room_for(client, 1, 1);
    part.header.flags = core::header_flag::part | core::header_flag::continues;
    spoil(part.header);
    client.post(part);
}
constexpr auto room_bytes = static_cast<std::uint32_t>(shape.response_bytes);
const wrong_sequence wrong_sequences[] = {
    {"a repeated generation",
     [](bare_client& client) {
         for (int i = 0; i < 2; ++i) {
             auto request = client.correct(1);
             request.header.generation = 5;
             request.header.deadline_ns = INT64_MAX;
             client.post(request);
             EXPECT_EQ(client.outcome(), mlx5::syndrome::none);
             EXPECT_TRUE(i > 0 || eventually([&] { return client.answer(1).generation == 5; }));
         }
     },
     true},
    {"room with bytes", [](auto& client) { post_wrong_room(client, [](auto& room) { room.length = 1; }); }},
    {"room with extensions",
     [](auto& client) { post_wrong_room(client, [](auto& room) { room.extension_bytes = 8; }); }},
    {"room in fragments",
     [](auto& client) { post_wrong_room(client, [](auto& room) { room.flags |= core::header_flag::fragmented; }); }},
    {"room with an unknown status",
     [](auto& client) { post_wrong_room(client, [](auto& room) { room.code = static_cast<status>(999); }); }},
    {"room in another slot", [](auto& client) { post_wrong_room(client, [](auto& room) { room.slot = 1; }); }},
    {"larger room than agreed",
     [](auto& client) { post_wrong_room(client, [](auto& room) { room.response_room = room_bytes + 1; }); }},
    {"room for itself",
     [](auto& client) { post_wrong_room(client, [](auto& room) { room.parts_call = core::parts_call_of(0, 1); }); }},
    {"room for a slot beyond the last",
     [](auto& client) {
         post_wrong_room(client, [](auto& room) { room.parts_call = core::parts_call_of(shape.slots, 1); });
     }},
    {"room for a slot far beyond",
     [](auto& client) { post_wrong_room(client, [](auto& room) { room.parts_call = core::parts_call_of(~0U, 1); }); }},
    {"room for no generation",
     [](auto& client) { post_wrong_room(client, [](auto& room) { room.parts_call = core::parts_call_of(1, 0); }); }},
    {"room of another generation than its call",
     [](bare_client& client) {
         post_now(client, room_for(client, 1, 5));
         std::this_thread::sleep_for(5ms);  // the kernel keeps it
         client.post(in_parts(client, 6));
     }},
    {"a part with room",
     [](auto& client) { post_wrong_part(client, [](auto& part) { part.flags |= core::header_flag::more; }); }},
    {"a part whose response may come in parts",
     [](auto& client) { post_wrong_part(client, [](auto& part) { part.flags |= core::header_flag::parts; }); }},
    {"a part with extensions",
     [](auto& client) { post_wrong_part(client, [](auto& part) { part.extension_bytes = 8; }); }},
    {"a part in another slot", [](auto& client) { post_wrong_part(client, [](auto& part) { part.slot = 1; }); }},
    {"a longer part than agreed",
     [](auto& client) { post_wrong_part(client, [](auto& part) { part.length = shape.request_bytes + 1; }); }},
    // Whose place is good for the next session, though the kernel has room of it.
    {"a call in parts with wrong extensions",
     [](bare_client& client) {
         post_now(client, room_for(client, 1, 1));
         std::this_thread::sleep_for(5ms);  // the kernel keeps it
         auto request = in_parts(client, 1);
         request.extensions = request.header.extension_bytes = sizeof request.placed;
         request.placed.head.length = 1000;
         client.post(request);
     }},
    {"a call in parts without a generation",
     [](bare_client& client) {
         post_now(client, in_parts(client, 5));
         EXPECT_TRUE(eventually([&] { return client.answer(1).generation == 5; }));
         client.post(in_parts(client, 0));
     }},
};

TEST_P(device_hostile, wrong_sequences_end_their_session_alone) {
    for (const wrong_sequence& each : wrong_sequences) {
        if (each.announced_only && sharing() == owned) continue;
        SCOPED_TRACE(each.name);
        expect_only_its_own_session_ends(each.act);
    }
}

INSTANTIATE_TEST_SUITE_P(by, device_hostile,
                         ::testing::Values(service_setting{false, gpu_engine::direct},
                                           service_setting{false, gpu_engine::proxy},
                                           service_setting{false, gpu_engine::direct, owned},
                                           service_setting{false, gpu_engine::proxy, owned}),
                         [](const auto& by) { return name_of(by.param); });

}  // namespace
}  // namespace accel::tests
