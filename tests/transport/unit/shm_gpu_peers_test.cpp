// SPDX-License-Identifier: Apache-2.0
// Sessions of shm with slots on a GPU, below the core, and peers that announce what no correct peer does.
#include "core/context_state.hpp"
#include "core/internals.hpp"
#include "gpu/fake_gpu.hpp"
#include "unit/shm_peers.hpp"

#include <accel_transport/accel_transport.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace accel::shm {
namespace {

using core::event_kind;
using core::link_event;
using core::message_kind;
using core::slot_header;
using testing::geometry;
using fakes = std::shared_ptr<tests::fake_accelerator>;

constexpr std::uint32_t call_generation = 9;

fakes open_fake() {
    auto made = std::make_shared<tests::fake_accelerator>();
    (void)made->device();
    return made;
}

slot_header header_of(message_kind kind, std::uint32_t slot, std::uint64_t length) {
    slot_header header;
    header.kind = kind;
    header.slot = slot;
    header.generation = call_generation;
    header.length = length;
    return header;
}

// A server's link.

struct shm_gpu_client : ::testing::Test {
    void announce(std::uint32_t slot, std::uint32_t flags, std::uint64_t length = 5) {
        client.writes.write_header(slot, header_of(message_kind::request, slot, length));
        client.writes.announce(slot | flags);
    }
    testing::hostile_client client{open_fake()};
};

TEST_F(shm_gpu_client, entries_tell_where_the_request_lies_and_the_response_goes) {
    ASSERT_TRUE(client.ready);
    ASSERT_TRUE(client.passed_to_it[gpu_requests].open());
    ASSERT_TRUE(client.passed_to_it[gpu_responses].open());
    announce(1, entry_flag::payload_on_gpu);
    announce(2, entry_flag::response_on_gpu);
    announce(3, 0);
    const auto seen = client.poll();
    ASSERT_EQ(seen.size(), 3U);
    EXPECT_EQ(seen[0].payload.data(), client.on_gpu[0]->payload(1));
    EXPECT_TRUE(seen[0].response_room.empty());
    EXPECT_EQ(seen[1].payload.data(), client.path->receive().payload(2));
    EXPECT_EQ(seen[1].response_room.data(), client.on_gpu[1]->payload(2));
    EXPECT_EQ(seen[1].response_room.size(), geometry.response_bytes);
    EXPECT_EQ(seen[2].payload.data(), client.path->receive().payload(3));
}

TEST(shm_gpu_client_refused, slots_out_of_range_and_lengths_beyond_the_slot_end_the_session) {
    struct row {
        std::uint32_t slot;
        std::uint64_t length;
        bool good;
    };
    for (const auto& [slot, length, good] :
         {row{geometry.slots - 1, geometry.request_bytes, true},
          row{geometry.slots - 1, geometry.request_bytes + 1, false}, row{geometry.slots, 5, false}}) {
        testing::hostile_client client{open_fake()};
        ASSERT_TRUE(client.ready);
        if (slot < geometry.slots) client.writes.write_header(slot, header_of(message_kind::request, slot, length));
        client.writes.announce(slot | entry_flag::payload_on_gpu);
        if (good) {
            EXPECT_EQ(client.poll().size(), 1U);
        } else {
            EXPECT_EQ(testing::only_loss(client), status::protocol_error) << slot << ", " << length;
        }
    }
}

TEST_F(shm_gpu_client, a_client_gets_only_the_memory_of_its_own_session) {
    auto& gpu = *client.on_gpu[0]->device();
    EXPECT_TRUE(gpu.map_shared(client.passed_to_it[gpu_requests].get(), client.on_gpu[0]->payload_bytes(),
                               core::shared_of::device)
                    .ok());
    EXPECT_FALSE(gpu.map_shared(client.passed_to_it[gpu_requests].get(),
                                client.on_gpu[0]->payload_bytes() + tests::fake_device::share_step,
                                core::shared_of::device));
}

TEST(shm_gpu_unasked, gpu_flags_end_a_session_without_slots_on_a_gpu) {
    for (const std::uint32_t flag : {entry_flag::payload_on_gpu, entry_flag::response_on_gpu}) {
        testing::hostile_client client;
        ASSERT_TRUE(client.ready);
        EXPECT_FALSE(client.passed_to_it[gpu_requests].open());
        client.writes.write_header(1, header_of(message_kind::request, 1, 5));
        client.writes.announce(1 | flag);
        EXPECT_EQ(testing::only_loss(client), status::protocol_error);
    }
}

// A client's link.

struct shm_gpu_server : ::testing::Test {
    shm_gpu_server() { core::internals::state_of(ctx)->replace_devices(gpus); }
    ~shm_gpu_server() override { gpus->device().held = false; }
    void SetUp() override {
        on_gpu = ctx.allocate(4096, memory_kind::cuda(0)).value();
        share(geometry.slots * core::slot_memory::device_stride(geometry.request_bytes),
              geometry.slots * core::slot_memory::device_stride(geometry.response_bytes));
    }
    void TearDown() override {
        for (std::byte* const each : shared) theirs->device().release(each);
    }
    void share(std::size_t requests, std::size_t responses) {
        for (const std::size_t each : {requests, responses}) {
            shared.push_back(theirs->device().allocate_shareable(each).value());
            passed.push_back(theirs->device().share(shared.back()).value());
            server.passes.push_back(passed.back().get());
        }
    }
    void connect() {
        const auto done = server.connect();
        ASSERT_TRUE(done) << done.error().message;
        EXPECT_TRUE(server.poll().empty());
    }
    [[nodiscard]] bool maps() { return server.path->reaches(*on_gpu.whole().region(), false); }
    void send(std::uint32_t slot, slice payload, slice into) { send(server, slot, payload, into); }
    static void send(testing::hostile_server& to, std::uint32_t slot, slice payload, slice into) {
        const slot_header header = header_of(message_kind::request, slot, payload.size());
        std::memcpy(to.config.send->header(slot), &header, sizeof header);
        core::outgoing message;
        message.slot = slot;
        message.payload = payload.bytes();
        message.region = payload.region();
        message.response_into = into;
        ASSERT_EQ(to.path->deliver(message), status::ok);
    }
    /// What the client has announced; null: nothing yet.
    [[nodiscard]] std::uint64_t entry(std::uint32_t at) const {
        return reinterpret_cast<const lane_entry*>(server.requests.base() + segment_layout::lane_at)[at].load();
    }
    /// The client's GPU has done all that it was given.
    void settle() {
        while (gpus->device().at_work > 0) std::this_thread::yield();
    }
    void answer(std::uint32_t slot, std::uint64_t length, std::uint32_t flags) { answer(server, slot, length, flags); }
    static void answer(testing::hostile_server& by, std::uint32_t slot, std::uint64_t length, std::uint32_t flags,
                       status code = status::ok) {
        slot_header header = header_of(message_kind::response, slot, length);
        header.code = code;
        by.writes.write_header(slot, header);
        by.writes.announce(slot | flags);
    }
    [[nodiscard]] slice part(std::size_t at, std::size_t length) const { return on_gpu.part(at, length).value(); }

    fakes gpus = open_fake();
    fakes theirs = open_fake();
    context ctx = *context::open({.log = log_level::off});
    region on_gpu;
    std::vector<std::byte*> shared;
    std::vector<core::unique_fd> passed;
    testing::hostile_server server{gpus};
};

TEST_F(shm_gpu_server, a_request_is_announced_when_its_payload_is_there) {
    connect();
    ASSERT_TRUE(maps());
    std::memset(part(0, 100).bytes().data(), 5, 100);
    gpus->device().held = true;
    send(2, part(0, 100), {});
    EXPECT_TRUE(server.poll().empty());
    EXPECT_EQ(entry(0), 0U);
    gpus->device().held = false;
    settle();
    EXPECT_TRUE(server.poll().empty());
    EXPECT_EQ(entry(0), std::uint64_t{1} << 32 | entry_flag::payload_on_gpu | 2);
    const std::byte* const there = shared[0] + 2 * core::slot_memory::device_stride(geometry.request_bytes);
    EXPECT_EQ(there[0], std::byte{5});
    EXPECT_EQ(there[99], std::byte{5});
}

TEST_F(shm_gpu_server, ranges_go_by_the_gpu_only_if_one_is_there) {
    connect();
    region on_host = ctx.allocate(page_bytes).value();
    std::memset(on_host.whole().bytes().data(), 5, page_bytes);
    const auto range_of = [](const region& memory) {
        return core::lent_range{memory.whole().bytes().data(), 100, memory.whole().region()};
    };
    for (const auto& [slot, second, place] :
         {std::tuple{0U, &on_host, 0U}, {1U, &on_gpu, entry_flag::payload_on_gpu}}) {
        const std::array ranges{range_of(on_host), range_of(*second)};
        core::outgoing message;
        message.slot = slot;
        message.ranges = ranges;
        message.range_bytes = 200;
        const slot_header header = header_of(message_kind::request, slot, 200);
        std::memcpy(server.config.send->header(slot), &header, sizeof header);
        ASSERT_EQ(server.path->deliver(message), status::ok);
        settle();
        EXPECT_TRUE(server.poll().empty());
        EXPECT_EQ(entry(slot), std::uint64_t{slot + 1} << 32 | place | slot);
    }
}

TEST_F(shm_gpu_server, a_response_is_reported_when_it_has_been_copied) {
    connect();
    send(1, part(0, 10), part(1000, 50));
    settle();
    (void)server.poll();
    EXPECT_EQ(entry(0), std::uint64_t{1} << 32 | entry_flag::all | 1);
    std::memset(shared[1] + core::slot_memory::device_stride(geometry.response_bytes), 6, 50);
    answer(1, 50, entry_flag::payload_on_gpu);
    EXPECT_TRUE(server.poll().empty());
    settle();
    const auto seen = server.poll();
    ASSERT_EQ(seen.size(), 1U);
    EXPECT_EQ(seen[0].payload.data(), part(1000, 50).bytes().data());
    EXPECT_EQ(seen[0].payload.size(), 50U);
    EXPECT_EQ(seen[0].payload[49], std::byte{6});
}

TEST_F(shm_gpu_server, memory_that_is_too_small_or_not_on_a_gpu_is_not_used) {
    const auto expect_host = [&](int requests, int responses) {
        testing::hostile_server other{gpus};
        other.passes.push_back(requests);
        other.passes.push_back(responses);
        ASSERT_TRUE(other.connect());
        EXPECT_FALSE(other.path->reaches(*on_gpu.whole().region(), false));
    };
    const core::unique_fd small = testing::sealed_memory(page_bytes, 0);
    expect_host(passed[0].get(), small.get());
    expect_host(small.get(), passed[1].get());
    expect_host(server.page.fd(), server.page.fd());
    EXPECT_EQ(gpus->device().allocated(), on_gpu.size()) << "nothing stays mapped";
}

TEST_F(shm_gpu_server, slots_on_another_gpu_are_used_if_the_clients_gpu_reaches_them) {
    auto& second = theirs->device(1);
    const std::array slots{
        second.allocate_shareable(geometry.slots * core::slot_memory::device_stride(geometry.request_bytes)).value(),
        second.allocate_shareable(geometry.slots * core::slot_memory::device_stride(geometry.response_bytes)).value()};
    const std::array fds{second.share(slots[0]).value(), second.share(slots[1]).value()};
    for (const bool reached : {true, false}) {
        gpus->device().reaches_peers = reached;
        testing::hostile_server other{gpus};
        for (const core::unique_fd& each : fds) other.passes.push_back(each.get());
        ASSERT_TRUE(other.connect());
        EXPECT_EQ(other.path->reaches(*on_gpu.whole().region(), false), reached);
        if (!reached) continue;
        std::memset(part(0, 100).bytes().data(), 5, 100);
        send(other, 2, part(0, 100), {});
        settle();
        EXPECT_TRUE(other.poll().empty());
        const std::byte* const there = slots[0] + 2 * core::slot_memory::device_stride(geometry.request_bytes);
        EXPECT_EQ(there[0], std::byte{5});
        EXPECT_EQ(there[99], std::byte{5});
    }
    for (std::byte* const each : slots) second.release(each);
}

TEST_F(shm_gpu_server, a_server_that_passes_only_one_segment_is_refused) {
    server.passes.pop_back();
    EXPECT_EQ(server.connect().code(), status::protocol_error);
}

TEST_F(shm_gpu_server, gpu_segments_that_were_not_asked_for_are_ignored) {
    testing::hostile_server other;
    other.passes.push_back(passed[0].get());
    other.passes.push_back(passed[1].get());
    ASSERT_TRUE(other.connect());
    EXPECT_FALSE(other.path->reaches(*on_gpu.whole().region(), false));
    other.writes.announce(1 | entry_flag::payload_on_gpu);
    EXPECT_EQ(testing::only_loss(other), status::protocol_error);
}

/// To a request for at most 50 bytes on the GPU, or in its slot on the host.
TEST_F(shm_gpu_server, responses_in_the_wrong_memory_or_too_long_end_the_session) {
    constexpr std::uint32_t gpu = entry_flag::payload_on_gpu;
    struct row {
        const char* what;
        bool wants_gpu;
        std::uint64_t length;
        std::uint32_t flags;
        status code;
        bool good;
    };
    const row all[] = {
        {"as long as its target", true, 50, gpu, status::ok, true},
        {"longer than its target", true, 51, gpu, status::ok, false},
        {"on the host in place of the GPU", true, 50, 0, status::ok, false},
        {"the text of a failure on the host", true, 5, 0, status::application_error, true},
        {"the text of a failure on the GPU", true, 5, gpu, status::application_error, false},
        {"on the host as asked for", false, 50, 0, status::ok, true},
        {"on the GPU unasked", false, 10, gpu, status::ok, false},
    };
    for (const row& each : all) {
        SCOPED_TRACE(each.what);
        testing::hostile_server peer{gpus};
        for (const core::unique_fd& memory : passed) peer.passes.push_back(memory.get());
        ASSERT_TRUE(peer.connect());
        send(peer, 1, part(0, 10), each.wants_gpu ? part(1000, 50) : slice{});
        settle();
        (void)peer.poll();
        answer(peer, 1, each.length, each.flags, each.code);
        if (!each.good) {
            EXPECT_EQ(testing::only_loss(peer), status::protocol_error);
            EXPECT_EQ(gpus->device().at_work, 0);
            continue;
        }
        auto seen = peer.poll();
        settle();
        if (seen.empty()) seen = peer.poll();
        ASSERT_EQ(seen.size(), 1U);
        EXPECT_EQ(seen[0].kind, event_kind::arrived);
        EXPECT_EQ(seen[0].payload.size(), each.length);
    }
}

TEST_F(shm_gpu_server, an_answer_to_an_unsent_request_ends_the_session) {
    connect();
    gpus->device().held = true;
    send(1, part(0, 10), {});
    answer(1, 5, 0);
    EXPECT_EQ(testing::only_loss(server), status::protocol_error);
    EXPECT_FALSE(server.path->close()) << "the GPU still reads the payload";
    gpus->device().held = false;
    settle();
    EXPECT_TRUE(server.path->close());
}

TEST_F(shm_gpu_server, released_memory_is_reported_before_the_loss) {
    connect();
    gpus->device().held = true;
    send(1, part(0, 10), {});
    EXPECT_FALSE(server.path->retract(1)) << "the GPU still reads the payload";
    server.socket.reset();
    gpus->device().held = false;
    settle();
    std::vector<link_event> seen;
    for (int looks = 0; looks < 3; ++looks)
        for (const link_event& each : server.poll(true)) seen.push_back(each);
    ASSERT_EQ(seen.size(), 2U);
    EXPECT_EQ(seen[0].kind, event_kind::buffer_released);
    EXPECT_EQ(seen[1].kind, event_kind::lost);
}

TEST_F(shm_gpu_server, a_second_answer_during_the_copy_of_the_first_ends_the_session) {
    connect();
    send(1, part(0, 10), part(1000, 50));
    settle();
    (void)server.poll();
    gpus->device().held = true;
    answer(1, 50, entry_flag::payload_on_gpu);
    answer(1, 50, entry_flag::payload_on_gpu);
    EXPECT_TRUE(server.poll().empty());
    gpus->device().held = false;
    settle();
    const auto seen = server.poll();
    ASSERT_FALSE(seen.empty());
    EXPECT_EQ(seen.back().reason, status::protocol_error);
}

}  // namespace
}  // namespace accel::shm
