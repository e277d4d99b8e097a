// SPDX-License-Identifier: Apache-2.0
// Links of shm below the core, and peers that write into shared memory what no correct peer writes.
#include "unit/shm_peers.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace accel::shm {
namespace {

using core::event_kind;
using core::link_event;
using core::link_role;
using core::message_kind;
using core::slot_header;
using testing::connect_data;
using testing::geometry;
using testing::make_config;
using testing::make_token;

struct hostile_client : testing::hostile_client {
    hostile_client() { EXPECT_TRUE(ready); }
    void announce(std::uint32_t slot) { writes.announce(slot); }
    void write_header(std::uint32_t slot, std::uint32_t named, std::uint64_t length) const {
        slot_header header;
        header.kind = message_kind::request;
        header.slot = named;
        header.generation = 1;
        header.length = length;
        writes.write_header(slot, header);
    }
};

/// Messages in random slots, of random lengths, over many rounds of both lanes. The client writes and reads the bytes
/// of the segments by itself.
class lanes_sequence {
  public:
    explicit lanes_sequence(unsigned seed)
        : random_(seed),
          responses_(static_cast<const std::byte*>(::mmap(nullptr, layout_.bytes, PROT_READ, MAP_SHARED,
                                                          client_.passed_to_it[responses_segment].get(), 0))) {}
    ~lanes_sequence() { ::munmap(const_cast<std::byte*>(responses_), layout_.bytes); }
    lanes_sequence(const lanes_sequence&) = delete;
    lanes_sequence& operator=(const lanes_sequence&) = delete;

    void step() {
        const std::uint32_t slot = below(geometry.slots);
        if (below(3) == 0) return poll();
        if (at_.at(slot) == where::client) return ask(slot);
        if (at_.at(slot) == where::server) answer(slot);
    }

  private:
    enum class where { client, on_its_way, server };
    [[nodiscard]] std::uint32_t below(std::size_t bound) { return static_cast<std::uint32_t>(random_() % bound); }
    [[nodiscard]] std::vector<std::byte> some_bytes(std::size_t most) {
        std::vector<std::byte> out(below(3) == 0 ? most : below(most + 1));
        for (std::byte& each : out) each = static_cast<std::byte>(random_());
        return out;
    }
    void ask(std::uint32_t slot) {
        asked_.push_back({slot, some_bytes(geometry.request_bytes)});
        const auto& bytes = asked_.back().second;
        client_.write_header(slot, slot, bytes.size());
        std::ranges::copy(bytes, client_.writes.header(slot) + core::header_bytes);
        client_.announce(slot);
        at_.at(slot) = where::on_its_way;
    }
    /// All that was announced comes, in its order.
    void poll() {
        const auto seen = client_.poll();
        ASSERT_EQ(seen.size(), asked_.size());
        for (const link_event& each : seen) {
            const auto [slot, bytes] = std::move(asked_.front());
            asked_.pop_front();
            ASSERT_EQ(each.kind, event_kind::arrived);
            EXPECT_EQ(each.header.slot, slot);
            EXPECT_EQ(each.payload.data(), client_.path->receive().payload(slot));
            EXPECT_TRUE(std::ranges::equal(each.payload, bytes));
            at_.at(slot) = where::server;
        }
    }
    void answer(std::uint32_t slot) {
        const auto bytes = some_bytes(geometry.response_bytes);
        core::slot_memory& from = client_.path->send();
        auto& header = *new (from.header(slot)) slot_header;
        header.slot = slot;
        header.length = bytes.size();
        std::ranges::copy(bytes, from.payload(slot));
        ASSERT_EQ(client_.path->deliver_plain(slot, {from.payload(slot), bytes.size()}), status::ok);
        const auto* const lane = reinterpret_cast<const lane_entry*>(responses_ + segment_layout::lane_at);
        const std::uint64_t entry = lane[answers_ % layout_.entries].load();
        EXPECT_EQ(entry, ++answers_ << 32 | slot);
        const std::byte* const there = responses_ + layout_.slots_at + slot * layout_.stride + core::extension_room;
        EXPECT_EQ(core::read_header(there).length, bytes.size());
        EXPECT_TRUE(std::ranges::equal(std::span{there + core::header_bytes, bytes.size()}, bytes));
        at_.at(slot) = where::client;
    }

    std::mt19937 random_;
    hostile_client client_;
    segment_layout layout_{geometry.slots, geometry.response_bytes};
    const std::byte* responses_;
    std::array<where, geometry.slots> at_{};
    std::deque<std::pair<std::uint32_t, std::vector<std::byte>>> asked_;
    std::uint64_t answers_ = 0;
};

TEST(shm_link, messages_arrive_whole_and_in_their_order_over_many_rounds_of_the_lanes) {
    for (unsigned seed = 0; seed < 10; ++seed) {
        SCOPED_TRACE(seed);
        lanes_sequence random(seed);
        for (int i = 0; i < 500; ++i) {
            random.step();
            if (::testing::Test::HasFailure()) FAIL() << "step " << i;
        }
    }
}

TEST(shm_link, messages_of_no_correct_client_end_the_session) {
    struct row {
        std::uint32_t announced;
        std::uint32_t named;
        std::uint64_t length;
        bool good;
    };
    constexpr std::uint32_t count = geometry.slots;
    const row all[] = {
        {count - 1, count - 1, geometry.request_bytes, true},
        {count, count, 5, false},  // in the rest of the last page
        {0x8000'0000, 0, 5, false},
        {~0U, 0, 5, false},
        {1, 2, 5, false},
        {1, 1, geometry.request_bytes + 1, false},
        {1, 1, ~std::uint64_t{0}, false},
    };
    for (const row& each : all) {
        SCOPED_TRACE(each.announced);
        hostile_client client;
        if (each.announced <= count) client.write_header(each.announced, each.named, each.length);
        client.announce(each.announced);
        if (!each.good) {
            EXPECT_EQ(testing::only_loss(client), status::protocol_error) << each.named << ", " << each.length;
            continue;
        }
        const auto seen = client.poll();
        ASSERT_EQ(seen.size(), 1U);
        EXPECT_EQ(seen[0].payload.size(), each.length);
    }
}

TEST(shm_link, entries_out_of_order_are_not_taken) {
    hostile_client client;
    client.write_header(0, 0, 5);
    for (std::uint64_t wrong : {std::uint64_t{2} << 32, ~std::uint64_t{0}, std::uint64_t{0xffff}}) {
        std::memcpy(client.requests + segment_layout::lane_at, &wrong, sizeof wrong);
        EXPECT_TRUE(client.poll().empty()) << wrong;
    }
}

TEST(shm_link, a_closed_socket_is_a_loss_unless_the_client_said_goodbye) {
    for (const bool goodbye : {false, true}) {
        hostile_client client;
        if (goodbye) reinterpret_cast<segment_head*>(client.requests)->closed.store(1);
        client.socket.reset();
        ASSERT_TRUE(client.events->arm());
        client.events->disarm();
        EXPECT_EQ(testing::only_loss(client), goodbye ? status::closed : status::peer_lost);
    }
}

TEST(shm_link, a_client_can_write_only_its_requests) {
    hostile_client client;
    for (const passed which : {responses_segment, sleep_page}) {
        const int fd = client.passed_to_it[which].get();
        EXPECT_EQ(::mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
        EXPECT_EQ(::pwrite(fd, "x", 1, 0), -1);
    }
    for (const core::unique_fd& each : client.passed_to_it) EXPECT_NE(::ftruncate(each.get(), 0), 0);
}

TEST(shm_link, a_token_works_once_and_a_wrong_one_never) {
    hostile_client client;
    EXPECT_FALSE(client.connect(make_token(1))) << "a token was taken twice";
    auto made = client.events->open_link(make_config(link_role::server));
    ASSERT_TRUE(made);
    (*made)->activate();
    EXPECT_FALSE(client.connect(make_token(2)));
    EXPECT_TRUE(client.connect(make_token(1))) << "a wrong token has used up the right one";
}

TEST(shm_link, a_sleeping_end_is_woken_once) {
    hostile_client client;
    auto* const head = reinterpret_cast<segment_head*>(client.requests);
    head->sleep.store(1);
    EXPECT_EQ(client.path->deliver_plain(0, {}), status::ok);
    EXPECT_EQ(client.path->deliver_plain(1, {}), status::ok);
    std::array<std::byte, 8> bytes;
    EXPECT_EQ(::recv(client.socket.get(), bytes.data(), bytes.size(), 0), 1);
    head->sleep.store(3);
    EXPECT_EQ(client.path->deliver_plain(2, {}), status::ok);
    EXPECT_EQ(::recv(client.socket.get(), bytes.data(), bytes.size(), 0), 1);
}

TEST(shm_segment, only_sealed_memory_of_the_right_size_is_mapped) {
    const auto map = [](int fd, std::size_t bytes) {
        return segment::map(core::unique_fd(fd), bytes, peer_access::read).code();
    };
    const auto memory = [](int seals) { return testing::sealed_memory(page_bytes, seals).release(); };
    constexpr int all = testing::all_size_seals;
    EXPECT_EQ(map(memory(all), page_bytes), status::ok);
    EXPECT_EQ(map(memory(F_SEAL_SHRINK | F_SEAL_GROW), page_bytes), status::protocol_error);
    EXPECT_EQ(map(memory(F_SEAL_GROW | F_SEAL_SEAL), page_bytes), status::protocol_error);
    EXPECT_EQ(map(memory(all), 2 * page_bytes), status::protocol_error);
    EXPECT_EQ(map(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC), page_bytes), status::protocol_error);
    EXPECT_EQ(map(::open("/dev/zero", O_RDWR | O_CLOEXEC), page_bytes), status::protocol_error);
    EXPECT_EQ(map(-1, page_bytes), status::protocol_error);
}

TEST(shm_descriptors, surplus_descriptors_are_closed) {
    core::unique_fd there;
    const core::unique_fd here = connect_data(there);
    const std::array<int, 3> three{0, 0, 0};
    constexpr std::byte any{1};
    ASSERT_TRUE(send_descriptors(here.get(), {&any, 1}, three));
    const core::unique_fd before(::dup(0));
    std::array<core::unique_fd, 1> one;
    std::array<std::byte, 4> bytes;
    EXPECT_EQ(receive_descriptors(there.get(), bytes, one), 1);
    EXPECT_TRUE(one[0].open());
    const core::unique_fd after(::dup(0));
    EXPECT_EQ(after.get(), one[0].get() + 1) << "a descriptor is still open that nobody asked for";
}

TEST(unix_socket, another_user_is_recognised) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become somebody else";
    const std::string host = "@unit-" + std::to_string(::getpid());
    auto listening = core::listen_on(host, 0);
    ASSERT_TRUE(listening) << listening.error().message;
    const pid_t child = ::fork();
    if (child == 0) {
        const bool changed = ::setuid(65534) == 0;
        auto made = core::connect_to(host, 0, core::never);
        ::_exit(changed && made.ok() && !core::is_own_user(made->get()) ? 0 : 1);
    }
    EXPECT_EQ(core::wait_ready(listening->get(), POLLIN, core::deadline_after(std::chrono::seconds{20})), 0);
    const core::unique_fd accepted(::accept(listening->get(), nullptr, nullptr));
    EXPECT_FALSE(core::is_own_user(accepted.get()));
    int ended = 0;
    EXPECT_EQ(::waitpid(child, &ended, 0), child);
    EXPECT_EQ(ended, 0);
    auto own = core::connect_to(host, 0, core::never);
    ASSERT_TRUE(own) << own.error().message;
    EXPECT_TRUE(core::is_own_user(own->get()));
}

}  // namespace
}  // namespace accel::shm
