// SPDX-License-Identifier: Apache-2.0
// Clients that do with their queue pair what no correct client does, at a GPU-resident service (a
// thread is in the kernel's place). Their session ends; nothing else does.
#include "device/bare_service.hpp"

#include <functional>
#include <memory>
#include <string>

namespace accel::tests {
namespace {

/// Who drives the queues, and who serves a session.
struct hostile_setting {
    gpu_engine engine = gpu_engine::direct;
    service_sharing sharing = service_sharing::shared;
};
std::string name_of(const hostile_setting& which) {
    if (which.sharing == service_sharing::exclusive) return "exclusive";
    return which.engine == gpu_engine::proxy ? "proxy" : "direct";
}
constexpr hostile_setting direct{gpu_engine::direct, service_sharing::shared};
constexpr hostile_setting proxied{gpu_engine::proxy, service_sharing::shared};
constexpr hostile_setting exclusive{gpu_engine::direct, service_sharing::exclusive};

class device_hostile : public bare_service, public ::testing::WithParamInterface<hostile_setting> {
  protected:
    [[nodiscard]] gpu_engine engine() const override { return GetParam().engine; }
    [[nodiscard]] service_sharing sharing() const override { return GetParam().sharing; }
};
/// Where immediate data announces requests.
class announced_device_hostile : public device_hostile {};

TEST_P(announced_device_hostile, a_slot_beyond_the_last_ends_the_session) {
    expect_only_its_own_session_ends([](bare_client& client) {
        auto request = client.correct(0);
        request.immediate = shape.slots;
        client.post(request);
    });
}

TEST_P(device_hostile, a_header_of_another_slot_ends_the_session) {
    expect_only_its_own_session_ends([](bare_client& client) {
        auto request = client.correct(0);
        request.header.slot = 1;
        client.post(request);
    });
}

TEST_P(device_hostile, another_version_ends_the_session) {
    expect_only_its_own_session_ends([](bare_client& client) {
        auto request = client.correct(0);
        request.header.version = 9;
        client.post(request);
    });
}

TEST_P(device_hostile, a_request_longer_than_agreed_ends_the_session) {
    expect_only_its_own_session_ends([](bare_client& client) {
        auto request = client.correct(0);
        request.header.length = shape.request_bytes + 1;
        client.post(request);
    });
}

TEST_P(device_hostile, more_room_for_the_response_than_agreed_ends_the_session) {
    expect_only_its_own_session_ends([](bare_client& client) {
        auto request = client.correct(0);
        request.header.response_room = static_cast<std::uint32_t>(shape.response_bytes) + 1;
        client.post(request);
    });
}

TEST_P(announced_device_hostile, an_announcement_without_a_header_ends_the_session) {
    expect_only_its_own_session_ends([](bare_client& client) {
        auto request = client.correct(0);
        request.length = 0;
        client.post(request);
    });
}

TEST_P(announced_device_hostile, a_repeated_generation_ends_the_session) {
    expect_only_its_own_session_ends([](bare_client& client) {
        expect_served(client, 5);
        auto request = client.correct(1);
        request.header.generation = 5;
        client.post(request);
    });
}

TEST_P(device_hostile, malformed_extensions_end_the_session) {
    expect_only_its_own_session_ends([](bare_client& client) {
        auto request = client.correct(0);
        request.extensions = sizeof request.placed;
        request.header.extension_bytes = sizeof request.placed;
        request.placed.head.length = 1000;
        client.post(request);
    });
}

TEST_P(device_hostile, a_response_target_shorter_than_its_room_ends_the_session) {
    expect_only_its_own_session_ends([](bare_client& client) {
        auto request = client.correct(0);
        request.extensions = sizeof request.placed;
        request.header.extension_bytes = sizeof request.placed;
        request.placed.value.address = 4096;
        request.placed.value.length = request.header.response_room - 1;
        client.post(request);
    });
}

TEST_P(device_hostile, a_client_that_leaves_before_its_answer_harms_no_other_session) {
    bare_client friendly(shape);
    connect(friendly, good_);
    auto leaves = std::make_unique<bare_client>(shape);
    int owner = 0;
    connect(*leaves, bad_, &owner);
    held_ = true;
    auto request = leaves->correct(1);
    request.header.deadline_ns = INT64_MAX;
    leaves->post(request);
    EXPECT_EQ(leaves->outcome(), mlx5::syndrome::none);
    leaves.reset();
    held_ = false;
    expect_loss(status::peer_lost, &owner);
    expect_served(friendly, 1);
    end(bad_);
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

TEST_P(device_hostile, both_flags_of_parts_end_the_session) {
    expect_only_its_own_session_ends([](bare_client& client) {
        auto request = in_parts(client, 1);
        request.header.flags |= core::header_flag::more;
        client.post(request);
    });
}

TEST_P(device_hostile, malformed_room_ends_the_session) {
    const std::function<void(core::slot_header&)> spoilt[] = {
        [](core::slot_header& header) { header.length = 1; },
        [](core::slot_header& header) { header.extension_bytes = 8; },
        [](core::slot_header& header) { header.flags |= core::header_flag::fragmented; },
        [](core::slot_header& header) { header.code = static_cast<status>(999); },
        [](core::slot_header& header) { header.slot = 1; },
        [](core::slot_header& header) { header.response_room = static_cast<std::uint32_t>(shape.response_bytes) + 1; },
        [](core::slot_header& header) { header.parts_call = core::parts_call_of(0, 1); },            // for itself
        [](core::slot_header& header) { header.parts_call = core::parts_call_of(shape.slots, 1); },  // not there
        [](core::slot_header& header) { header.parts_call = core::parts_call_of(~0U, 1); },
        [](core::slot_header& header) { header.parts_call = core::parts_call_of(1, 0); },
    };
    for (const auto& spoil : spoilt) {
        expect_only_its_own_session_ends([&](bare_client& client) {
            auto room = room_for(client, 1, 1);
            spoil(room.header);
            client.post(room);
        });
    }
}

TEST_P(device_hostile, room_of_another_generation_ends_the_session) {
    expect_only_its_own_session_ends([](bare_client& client) {
        post_now(client, room_for(client, 1, 5));
        std::this_thread::sleep_for(5ms);  // the kernel keeps it
        client.post(in_parts(client, 6));
    });
}

TEST_P(device_hostile, room_of_a_call_with_wrong_extensions_holds_no_place) {
    expect_only_its_own_session_ends([](bare_client& client) {
        post_now(client, room_for(client, 1, 1));
        std::this_thread::sleep_for(5ms);  // the kernel keeps it
        auto request = in_parts(client, 1);
        request.extensions = sizeof request.placed;
        request.header.extension_bytes = sizeof request.placed;
        request.placed.head.length = 1000;
        client.post(request);
    });
}

TEST_P(device_hostile, a_call_in_parts_without_a_generation_ends_the_session) {
    expect_only_its_own_session_ends([](bare_client& client) {
        expect_served(client, 5);
        client.post(in_parts(client, 0));
    });
}

INSTANTIATE_TEST_SUITE_P(by, device_hostile, ::testing::Values(direct, proxied, exclusive),
                         [](const auto& by) { return name_of(by.param); });
INSTANTIATE_TEST_SUITE_P(by, announced_device_hostile, ::testing::Values(direct, proxied),
                         [](const auto& by) { return name_of(by.param); });

}  // namespace
}  // namespace accel::tests
