// SPDX-License-Identifier: Apache-2.0
// Clients that do with their queue pair what no correct client does, at a service whose sessions have one owner
// each (a thread is in the kernel's place). Their session ends, or their own answers are wrong; nothing else is.
// What clients do to services of either kind is in hostile_test.cpp.
#include "device/bare_service.hpp"

#include <array>
#include <cstdint>

namespace accel::tests {
namespace {

class exclusive_hostile : public bare_service {
  protected:
    [[nodiscard]] gpu_engine engine() const override { return gpu_engine::direct; }
    [[nodiscard]] service_sharing sharing() const override { return service_sharing::exclusive; }
};

/// Its owner looks as often as it is told to.
class exclusive_look_by_look : public exclusive_hostile {
  protected:
    void serve_as_owner(const device::service_ref& service) override {
        device::owned_sessions mine;
        ASSERT_EQ(device::own(service, 0, 1, mine), status::ok);
        while (!ending_) {
            device::exchange_ref exchange;
            if (looks_ == 0) {
                std::this_thread::sleep_for(50us);
                continue;
            }
            if (device::wait(mine, exchange, 0) == status::ok)
                (void)device::reply(mine, exchange, exchange.response_room);
            --looks_;
        }
    }
    void look(std::int64_t times) {
        looks_ = times;
        EXPECT_TRUE(eventually(
            patience(10s), [this] { return looks_ == 0; }, 50us));
    }
    static constexpr std::int64_t without_end = INT64_MAX;
    std::atomic<std::int64_t> looks_{without_end};
};

TEST_F(exclusive_hostile, an_arrival_word_without_a_header_ends_the_session) {
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

// The adapter may write a header in any order.
TEST_F(exclusive_look_by_look, a_partly_written_header_is_read_again) {
    bare_client client(shape);
    connect(client, good_);
    expect_served(client, 1);
    look(1);
    auto part = client.correct(1);
    part.header.version = 2;  // becomes the last word
    part.header.kind = {};
    part.repeats_generation = false;
    part.length = 4;
    part.address += wire::arrival_word_offset;
    client.post(part);
    ASSERT_EQ(client.outcome(), mlx5::syndrome::none);
    look(device::detail::max_torn / 2);
    ask(client, 2);  // before it looks on: a busy machine could let it look too often at the part
    looks_ = without_end;
    expect_answered(client, 2);
    expect_served(client, 3);
    end(good_);
}

// No receive is ever posted at the server: the sender waits in its device, as long as its session lives.
TEST_F(exclusive_hostile, immediate_data_harms_no_other_session) {
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
TEST_F(exclusive_hostile, a_client_that_never_stops_delays_no_other_session) {
    expect_others_beside_one_that_never_stops();
}

// Whatever of it the owner sees, it reads once.
TEST_F(exclusive_hostile, changing_headers_harm_no_other_session) {
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

}  // namespace
}  // namespace accel::tests
