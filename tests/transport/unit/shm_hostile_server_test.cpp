// SPDX-License-Identifier: Apache-2.0
// A client's link of shm, and a server that passes it what no correct server passes, or writes what none writes.
#include "core/tensor_description.hpp"
#include "unit/shm_peers.hpp"

#include <accel_transport/accel_transport.hpp>
#include <accel_transport/detail/wire/tensor_extension.hpp>

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>
#include <sys/socket.h>

namespace accel::shm {
namespace {

using core::event_kind;
using core::link_event;
using core::message_kind;
using core::slot_header;

constexpr std::uint32_t generation = 9;

struct shm_hostile_server : ::testing::Test {
    void connect() {
        const auto done = server.connect();
        ASSERT_TRUE(done) << done.error().message;
        ASSERT_TRUE(server.socket.open());
        EXPECT_TRUE(server.poll().empty());
    }
    static slot_header response(std::uint32_t slot, std::uint64_t length, std::uint16_t extensions = 0) {
        slot_header header;
        header.kind = message_kind::response;
        header.slot = slot;
        header.generation = generation;
        header.length = length;
        header.extension_bytes = extensions;
        return header;
    }
    void answer(std::uint32_t slot, const slot_header& header) {
        server.writes.write_header(slot, header);
        server.writes.announce(slot);
    }
    /// The client's call in a slot wants its response in so many of its own bytes.
    void expect_in(std::uint32_t slot, std::size_t bytes) {
        slot_header header;
        header.slot = slot;
        header.generation = generation;
        std::memcpy(server.config.send->header(slot), &header, sizeof header);
        core::outgoing message;
        message.slot = slot;
        message.response_into = *own.part(0, bytes);
        ASSERT_EQ(server.path->deliver(message), status::ok);
    }
    void expect_end(status why, bool notice = false) {
        std::vector<link_event> seen = server.poll(notice);
        if (seen.empty()) seen = server.poll();
        ASSERT_EQ(seen.size(), 1U);
        EXPECT_EQ(seen[0].kind, event_kind::lost);
        EXPECT_EQ(seen[0].reason, why);
        EXPECT_TRUE(server.poll().empty());
        EXPECT_EQ(server.path->deliver_plain(0, {}), status::peer_lost);
    }

    context ctx = *context::open({.log = log_level::off});
    region own = *ctx.allocate(4096);
    testing::hostile_server server;
};

TEST_F(shm_hostile_server, a_server_that_passes_unsuitable_memory_is_refused) {
    const auto refused = [](passed which, core::unique_fd what, status why) {
        testing::hostile_server other;
        other.passes[which] = what.get();
        EXPECT_EQ(other.connect().code(), why) << which;
        EXPECT_EQ(other.path->deliver_plain(0, {}), status::peer_lost);
    };
    const std::size_t bytes[] = {server.requests_layout.bytes, server.responses_layout.bytes, page_bytes};
    for (const passed which : {requests_segment, responses_segment, sleep_page}) {
        const std::size_t right = bytes[which];
        for (const int left_out : {F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SEAL})
            refused(which, testing::sealed_memory(right, testing::all_size_seals & ~left_out), status::protocol_error);
        refused(which, testing::sealed_memory(right, 0), status::protocol_error);
        for (const std::size_t wrong : {std::size_t{0}, right - page_bytes, right - 1, right + page_bytes})
            refused(which, testing::sealed_memory(wrong, testing::all_size_seals), status::protocol_error);
        refused(which, core::unique_fd(::open("/dev/zero", O_RDWR | O_CLOEXEC)), status::protocol_error);
        core::unique_fd ignored;
        refused(which, testing::connect_data(ignored), status::protocol_error);
    }
    // The client has to write its requests.
    refused(requests_segment,
            testing::sealed_memory(server.requests_layout.bytes, testing::all_size_seals | F_SEAL_WRITE),
            status::out_of_memory);
}

TEST_F(shm_hostile_server, a_server_that_passes_too_little_refuses_or_sends_garbage_is_refused) {
    using bytes = std::vector<std::byte>;
    const bytes welcome = core::encode_data_answer(status::ok, {});
    const bytes refusal = core::encode_data_answer(status::overloaded, "no");
    bytes too_long = refusal;
    too_long[2] = too_long[3] = std::byte{0xff};
    bytes no_status = refusal;
    no_status[0] = no_status[1] = std::byte{0xff};
    struct row {
        const char* what;
        bytes said;
        std::size_t passes;
        status why;
    };
    const row all[] = {
        {"all", welcome, 3, status::ok},
        {"two segments", welcome, 2, status::protocol_error},
        {"nothing", welcome, 0, status::protocol_error},
        {"a refusal", refusal, 3, status::overloaded},
        {"a text that is too long", too_long, 3, status::protocol_error},
        {"an unknown status", no_status, 3, status::protocol_error},
        {"half an answer", bytes(2), 3, status::peer_lost},
        {"its end", {}, 0, status::peer_lost},
    };
    for (const row& each : all) {
        testing::hostile_server other;
        other.answers = each.said;
        other.passes.resize(each.passes);
        EXPECT_EQ(other.connect().code(), each.why) << each.what;
    }
}

TEST_F(shm_hostile_server, announcements_of_no_correct_server_end_the_session) {
    constexpr auto count = testing::geometry.slots;
    constexpr auto longest = testing::geometry.response_bytes;
    struct row {
        std::uint32_t announced;
        slot_header header;
        bool good;
    };
    const row all[] = {
        {count - 1, response(count - 1, longest, core::extension_room), true},
        {count, response(count, 5), false},
        {0x8000'0000, response(0, 5), false},
        {~0U, response(0, 5), false},
        {1, response(2, 5), false},
        {1, response(1, longest + 1), false},
        {0, response(0, 5, core::extension_room + 8), false},
    };
    for (const row& each : all) {
        SCOPED_TRACE(each.announced);
        testing::hostile_server other;
        ASSERT_TRUE(other.connect());
        if (each.announced < count) other.writes.write_header(each.announced, each.header);
        other.writes.announce(each.announced);
        if (each.good) {
            const auto seen = other.poll();
            ASSERT_EQ(seen.size(), 1U);
            EXPECT_EQ(seen[0].kind, event_kind::arrived);
            EXPECT_EQ(seen[0].payload.data(), other.path->receive().payload(each.announced)) << "it is read in place";
            EXPECT_EQ(seen[0].payload.size(), each.header.length);
            continue;
        }
        EXPECT_EQ(testing::only_loss(other), status::protocol_error) << each.header.slot;
        EXPECT_EQ(other.path->deliver_plain(0, {}), status::peer_lost);
    }
}

/// The client reads the copy: what the server writes later changes nothing.
TEST_F(shm_hostile_server, extensions_are_copied_before_they_are_read) {
    connect();
    const tensor described{{}, 1, 0, {1}};
    const std::size_t bytes = wire::tensor_extension_bytes(&described, 1);
    wire::write_tensor_extension(server.writes.header(2) - bytes, &described, 1);
    answer(2, response(2, 64, static_cast<std::uint16_t>(bytes)));
    const auto seen = server.poll();
    ASSERT_EQ(seen.size(), 1U);
    std::memset(server.writes.header(2) - bytes, 0xff, bytes);
    std::array<tensor, 2> room;
    const auto read = core::read_description(server.config.receive->header(2), generation, seen[0].payload, true, room);
    ASSERT_EQ(read.code(), status::ok);
    EXPECT_EQ(read->size(), 1U);
}

TEST_F(shm_hostile_server, a_response_longer_than_its_target_ends_the_session) {
    connect();
    expect_in(1, 100);
    std::memset(own.data(), 7, own.size());
    answer(1, response(1, 101));
    expect_end(status::protocol_error);
    EXPECT_EQ(own.data()[0], std::byte{7}) << "nothing was written";
}

TEST_F(shm_hostile_server, a_response_is_placed_once_and_a_late_one_never) {
    connect();
    expect_in(1, 100);
    slot_header late = response(1, 50);
    late.generation = generation - 1;
    answer(1, late);
    auto seen = server.poll();
    ASSERT_EQ(seen.size(), 1U);
    EXPECT_EQ(seen[0].payload.data(), server.path->receive().payload(1)) << "a late one stays in its slot";
    answer(1, response(1, 50));
    seen = server.poll();
    ASSERT_EQ(seen.size(), 1U);
    EXPECT_EQ(seen[0].payload.data(), own.data());
    answer(1, response(1, 50));
    seen = server.poll();
    ASSERT_EQ(seen.size(), 1U);
    EXPECT_EQ(seen[0].payload.data(), server.path->receive().payload(1)) << "the room was for one";
}

TEST_F(shm_hostile_server, a_retracted_response_target_is_left_alone) {
    connect();
    expect_in(1, 100);
    EXPECT_TRUE(server.path->retract(1));
    std::memset(own.data(), 7, own.size());
    std::memset(server.writes.header(1) + core::header_bytes, 8, 50);
    answer(1, response(1, 50));
    EXPECT_EQ(server.poll().size(), 1U);
    EXPECT_EQ(own.data()[0], std::byte{7});
}

/// It writes on, also after its death: no more is taken then than a lane holds.
TEST_F(shm_hostile_server, endless_announcements_do_not_prolong_a_poll) {
    connect();
    server.writes.write_header(0, response(0, 1));
    for (int round = 0; round < 100; ++round) {
        for (int i = 0; i < 4; ++i) server.writes.announce(0);
        EXPECT_EQ(server.poll().size(), 4U);
    }
    auto& link = static_cast<shm_link&>(*server.path);
    server.writes.announce(0);
    server.socket.reset();
    link.hear();
    std::uint32_t arrived = 0;
    bool lost = false;
    for (int round = 0; round < 20 && !lost; ++round) {
        std::array<link_event, 1> one;
        ASSERT_EQ(link.take(one), 1U);
        lost = one[0].kind == event_kind::lost;
        if (!lost) ++arrived;
        server.writes.announce(0);
    }
    EXPECT_TRUE(lost);
    EXPECT_EQ(arrived, server.responses_layout.entries);
}

TEST_F(shm_hostile_server, a_server_that_closes_its_socket_is_lost_despite_its_goodbye) {
    connect();
    server.writes.head().closed.store(1);
    server.socket.reset();
    expect_end(status::peer_lost, true);
}

TEST_F(shm_hostile_server, a_server_that_always_sleeps_is_woken_once_per_sleep) {
    connect();
    server.sleep().store(1);
    EXPECT_EQ(server.path->deliver_plain(0, {}), status::ok);
    EXPECT_EQ(server.path->deliver_plain(1, {}), status::ok);
    std::array<std::byte, 8> bytes;
    EXPECT_EQ(::recv(server.socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT), 1);
    // It never reads, and its socket is full.
    for (std::uint32_t number = 3; number < 20'003; number += 2) {
        server.sleep().store(number);
        ASSERT_EQ(server.path->deliver_plain(2, {}), status::ok);
    }
}

TEST_F(shm_hostile_server, unexpected_bytes_and_descriptors_are_discarded) {
    connect();
    const int before = ::dup(0);
    ::close(before);
    const std::array<int, 3> three{0, 0, 0};
    const std::array<std::byte, 300> noise{};
    ASSERT_TRUE(send_descriptors(server.socket.get(), noise, three));
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(server.poll(true).empty());
    const int after = ::dup(0);
    ::close(after);
    EXPECT_EQ(after, before) << "a descriptor was taken in";
}

}  // namespace
}  // namespace accel::shm
