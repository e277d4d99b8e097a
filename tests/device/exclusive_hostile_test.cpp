// SPDX-License-Identifier: Apache-2.0
// Clients that do with their queue pair what no correct client does, at a service whose sessions have one owner
// each (a thread is in the kernel's place). Their session ends, or their own answers are wrong; nothing else is.
#include "device/bare_service.hpp"

#include <functional>
#include <memory>

namespace accel::tests {
namespace {

class exclusive_hostile : public bare_service {
  protected:
    [[nodiscard]] gpu_engine engine() const override { return gpu_engine::direct; }
    [[nodiscard]] service_sharing sharing() const override { return service_sharing::exclusive; }
    void connect(bare_client& client, std::unique_ptr<core::connection>& link, void* owner = nullptr,
                 std::uint32_t receives = 16) {
        link = accept(client.describe(), owner).value();
        client.connect(link->describe(), receives);
    }
    void expect_only_its_own_session_ends(const std::function<void(bare_client&)>& attack) {
        bare_client friendly(shape);
        connect(friendly, good_);
        bare_client evil(shape);
        int owner = 0;
        connect(evil, bad_, &owner);
        expect_served(friendly, 1);
        attack(evil);
        expect_loss(status::protocol_error, &owner);
        expect_served(friendly, 2);
        end(bad_);
        expect_place();
        expect_served(friendly, 3);
        end(good_);
    }
};

TEST_F(exclusive_hostile, header_of_another_slot) {
    expect_only_its_own_session_ends([](bare_client& client) {
        auto request = client.correct(0);
        request.header.slot = 1;
        client.post(request);
    });
}

TEST_F(exclusive_hostile, another_version) {
    expect_only_its_own_session_ends([](bare_client& client) {
        auto request = client.correct(0);
        request.header.version = 9;
        client.post(request);
    });
}

TEST_F(exclusive_hostile, request_longer_than_agreed) {
    expect_only_its_own_session_ends([](bare_client& client) {
        auto request = client.correct(0);
        request.header.length = shape.request_bytes + 1;
        client.post(request);
    });
}

TEST_F(exclusive_hostile, more_room_for_the_answer_than_agreed) {
    expect_only_its_own_session_ends([](bare_client& client) {
        auto request = client.correct(0);
        request.header.response_room = static_cast<std::uint32_t>(shape.response_bytes) + 1;
        client.post(request);
    });
}

TEST_F(exclusive_hostile, last_word_that_runs_ahead_of_the_generation) {
    expect_only_its_own_session_ends([](bare_client& client) {
        auto request = client.correct(0);
        request.repeats_generation = false;
        request.header.arrival_word = 2;
        client.post(request);
    });
}

TEST_F(exclusive_hostile, last_word_without_a_header) {
    expect_only_its_own_session_ends([](bare_client& client) {
        expect_served(client, 5);
        auto request = client.correct(1);
        request.header.version = 7;  // becomes the last word
        request.repeats_generation = false;
        request.length = 4;
        request.address += wire::arrival_word_offset;
        client.post(request);
    });
}

TEST_F(exclusive_hostile, extensions_that_are_none) {
    expect_only_its_own_session_ends([](bare_client& client) {
        auto request = client.correct(0);
        request.extensions = sizeof request.placed;
        request.header.extension_bytes = sizeof request.placed;
        request.placed.head.length = 1000;
        client.post(request);
    });
}

TEST_F(exclusive_hostile, response_target_shorter_than_the_answer) {
    expect_only_its_own_session_ends([](bare_client& client) {
        auto request = client.correct(0);
        request.extensions = sizeof request.placed;
        request.header.extension_bytes = sizeof request.placed;
        request.placed.value.address = 4096;
        request.placed.value.length = request.header.response_room - 1;
        client.post(request);
    });
}

// No receive is ever posted at the server: the sender waits in its device, as long as its session lives.
TEST_F(exclusive_hostile, immediate_data_harms_nobody_else) {
    bare_client friendly(shape);
    connect(friendly, good_);
    bare_client evil(shape);
    connect(evil, bad_);
    auto request = evil.correct(0);
    request.operation = mlx5::opcode::write_immediate;
    evil.post(request);
    for (std::uint32_t i = 1; i < 12; ++i) expect_served(friendly, i);
    end(bad_);
    expect_place();
    expect_served(friendly, 12);
    end(good_);
}

// It posts no receives, so its answers never leave; nobody waits for the room that they take.
TEST_F(exclusive_hostile, client_that_never_stops_and_takes_no_answer) {
    bare_client friendly(shape);
    connect(friendly, good_);
    bare_client evil(shape);
    connect(evil, bad_, nullptr, 0);
    for (std::uint32_t i = 1; i < 600; ++i) {
        auto request = evil.correct(i % shape.slots);
        request.header.generation = i;
        request.header.deadline_ns = INT64_MAX;
        evil.post(request);
        ASSERT_EQ(evil.outcome(), mlx5::syndrome::none);
        if (i % 60 == 0) expect_served(friendly, i / 60);
    }
    end(bad_);
    expect_place();
    expect_served(friendly, 100);
    end(good_);
}

// Whatever of it the owner sees, it reads once.
TEST_F(exclusive_hostile, headers_that_change_while_they_are_read) {
    bare_client friendly(shape);
    connect(friendly, good_);
    for (int round = 0; round < 10; ++round) {
        bare_client evil(shape);
        connect(evil, bad_);
        for (std::uint32_t i = 1; i < 40; ++i) {
            auto request = evil.correct(0);
            request.header.generation = i;
            request.header.length = i % 2 == 0 ? shape.request_bytes : 0;
            request.header.response_room = i % 3 == 0 ? 256 : 1;
            if (i % 7 == 0) request.header.extension_bytes = 32;
            evil.post(request);
            ASSERT_EQ(evil.outcome(), mlx5::syndrome::none);
        }
        expect_served(friendly, static_cast<std::uint32_t>(round) + 1);
        end(bad_);
        std::array<core::link_event, 16> events;
        (void)poller_->poll(events);
    }
    expect_place();
    end(good_);
}

TEST_F(exclusive_hostile, client_that_is_gone_when_its_answer_comes) {
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

TEST_F(exclusive_hostile, client_that_does_not_know_the_way_is_refused) {
    bare_client older(shape);
    core::link_description description = older.describe();
    description[6] = std::byte{0};
    for (int i = 0; i < 5; ++i) EXPECT_EQ(accept(description).error().code, status::unsupported);
    expect_place();
}

TEST_F(exclusive_hostile, places_are_used_again_and_again) {
    for (std::uint32_t i = 0; i < 50; ++i) {
        bare_client client(shape);
        connect(client, good_);
        for (std::uint32_t j = 1; j < 6; ++j) expect_served(client, j);
        end(good_);
    }
}

}  // namespace
}  // namespace accel::tests
