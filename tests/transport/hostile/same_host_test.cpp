// SPDX-License-Identifier: Apache-2.0
// Attacks over shared memory, by processes of the server's own user: floods of connections and messages, clients that
// scribble over the memory they share, and descriptors that run out.
#include "hostile/attacks.hpp"
#include "unit/shm_peers.hpp"

#include <algorithm>
#include <random>

#include <fmt/format.h>

namespace accel::hostile {
namespace {

using shm::testing::geometry;
using shm::testing::scribbler;
using tests::eventually;

const std::string nowhere;  // Unix sockets have no address to come from

core::hello wish_for_memory() {
    core::hello out = wish();
    out.request.scheme = "shm";
    out.request.wanted = geometry;
    const shm::client_wish link;
    const auto described = std::as_bytes(std::span(&link, 1));
    out.request.description.assign(described.begin(), described.end());
    return out;
}

/// A session spoken by hand, with what its client may write to.
class memory_session {
  public:
    [[nodiscard]] static std::unique_ptr<memory_session> open(const target& at) {
        auto control = wire::open(nowhere, at, nullptr);
        if (!control || !control->send(core::control_greeting)) return nullptr;
        const auto grant = control->open_session(wish_for_memory());
        if (!grant) return nullptr;
        std::unique_ptr<memory_session> made(new memory_session(std::move(*control), *grant));
        if (made->connect(at, made->token_) != status::ok) return nullptr;
        return made;
    }
    ~memory_session() {
        if (base_ != MAP_FAILED) ::munmap(base_, layout_.bytes);
    }
    memory_session(const memory_session&) = delete;
    memory_session& operator=(const memory_session&) = delete;

    /// What the server answers a data connection with this token; nothing: it just closes.
    [[nodiscard]] std::optional<status> connect(const target& at, const core::session_token& token) {
        unique_fd socket = connect_from(nowhere, at);
        if (!socket.open() || !push(socket.get(), shown(id_, token))) return std::nullopt;
        if (core::wait_ready(socket.get(), POLLIN, core::deadline_after(patience(2s))) != 0) return std::nullopt;
        std::array<std::byte, core::max_data_answer_bytes> answer{};
        shm::passed_descriptors passed;
        if (shm::receive_descriptors(socket.get(), answer, passed) < 4) return std::nullopt;
        std::uint16_t code = 0;
        std::memcpy(&code, answer.data(), sizeof code);
        if (passed[shm::requests_segment].open()) take(std::move(socket), passed[shm::requests_segment].get());
        return static_cast<status>(code);
    }
    [[nodiscard]] scribbler& writes() { return writes_; }
    /// Answers heartbeats, so that only what is written counts. False: the session is over.
    [[nodiscard]] bool alive() {
        (void)control_.send(control_message{0, core::heartbeat{}});
        return control_.discard() && discard(data_.get());
    }
    [[nodiscard]] core::session_token token() const { return token_; }

  private:
    memory_session(wire control, const core::session_grant& grant)
        : control_(std::move(control)), id_(grant.session_id), token_(grant.token) {}
    void take(unique_fd socket, int requests) {
        data_ = std::move(socket);
        base_ = ::mmap(nullptr, layout_.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, requests, 0);
        if (base_ != MAP_FAILED) writes_ = scribbler(static_cast<std::byte*>(base_), geometry.request_bytes);
    }

    wire control_;
    std::uint64_t id_;
    core::session_token token_;
    unique_fd data_;
    shm::segment_layout layout_{geometry.slots, geometry.request_bytes};
    void* base_ = MAP_FAILED;
    scribbler writes_;
};

/// Requests that break the protocol, in every way that a header can.
void scribble(scribbler& over, std::minstd_rand& random) {
    const std::span<std::byte> all = over.all();
    for (int i = 0; i < 100; ++i) all[random() % all.size()] = static_cast<std::byte>(random());
    core::slot_header header;
    header.slot = static_cast<std::uint32_t>(random() % 5);
    header.generation = static_cast<std::uint32_t>(random());
    header.length = random() % 4 == 0 ? ~std::uint64_t{0} : random() % 1000;
    header.flags = static_cast<std::uint16_t>(random() % 8);
    header.extension_bytes = static_cast<std::uint16_t>(random() % 25 * 8);
    over.write_header(header.slot % geometry.slots, header);
    over.announce(header.slot);
}

/// A lane that is always full: its session takes its turns, and no more.
void announce_endlessly(const target& at, const std::atomic<bool>& go) {
    while (go.load()) {
        const auto own = memory_session::open(at);
        for (std::uint32_t i = 1; own && go.load() && (i % 4096 != 0 || own->alive()); ++i) {
            core::slot_header header;
            header.slot = i % geometry.slots;
            header.generation = i;
            own->writes().write_header(header.slot, header);
            own->writes().announce(header.slot);
        }
    }
}

struct same_host : arena {
    same_host() { scheme_ = "shm"; }
};

TEST_P(same_host, attacks_do_not_disturb_other_clients) {
    const auto queries = repeated(frame(control_message{1, core::query{}}), 4096);
    auto garbage = random_texts(19, 32);
    garbage.insert(garbage.end(), {shown(1, {}), shown(99, {}), bytes_of("ACCLCTL\nGET / HTTP/1.1\r\n\r\n")});
    endure_all({{"short connections", storm(nowhere)},
                {"connections that stall after a byte", keep_open(nowhere, 700, bytes_of("A"))},
                {"garbage, and data connections of no session", send_and_leave(nowhere, garbage)},
                {"queries", flood(nowhere, nullptr, queries, true)},
                {"queries, no answer is read", flood(nowhere, nullptr, queries, false)},
                {"frames without a message",
                 flood(nowhere, nullptr, repeated(frame(std::vector<std::byte>(64, std::byte{0xa5})), 4096))},
                {"endless announcements", announce_endlessly, {.threads = 1, .lasts = 400ms}}});
}

TEST_P(same_host, a_token_opens_shared_memory_only_once) {
    open();
    const target at = server_->where();
    auto own = memory_session::open(at);
    ASSERT_TRUE(own);
    EXPECT_EQ(own->connect(at, own->token()), core::no_session_waits) << "a token is good once";
    auto wrong = own->token();
    wrong[15] ^= std::byte{1};
    EXPECT_EQ(own->connect(at, wrong), core::no_session_waits);
    EXPECT_TRUE(own->alive());
    own.reset();
    expect_unharmed();
}

/// Each scribbler loses its own session, and nothing else.
TEST_P(same_host, scribbling_over_shared_memory_costs_only_its_own_session) {
    open();
    std::atomic<int> sessions{0};
    const auto scribbles = [&sessions](const target& at, const std::atomic<bool>& go) {
        std::minstd_rand random{23};
        while (go.load()) {
            const auto own = memory_session::open(at);
            if (!own) continue;
            ++sessions;
            for (int i = 0; i < 50 && go.load(); ++i) scribble(own->writes(), random);
            const auto deadline = core::deadline_after(20ms);
            while (go.load() && own->alive() && core::now() < deadline) std::this_thread::sleep_for(1ms);
        }
    };
    endure(scribbles, {.threads = 2, .lasts = 400ms});
    fmt::print("{} sessions scribbled\n", sessions.load());
    EXPECT_GT(sessions.load(), 1);
}

/// Each session takes several descriptors, and gives all of them back.
TEST_P(same_host, descriptors_that_sessions_have_used_up_come_back) {
    open({}, {"nofile=64"});
    std::vector<std::unique_ptr<memory_session>> all;
    for (int i = 0; i < 40; ++i) {
        auto one = memory_session::open(server_->where());
        if (!one) break;
        all.push_back(std::move(one));
    }
    fmt::print("{} sessions\n", all.size());
    EXPECT_GT(all.size(), 4U);
    EXPECT_LT(all.size(), 40U);
    all.clear();
    EXPECT_TRUE(eventually(
        patience(5s), [&] { return server_->counts().sessions == clients_.size(); }, 20ms));
    expect_unharmed();
}

INSTANTIATE_TEST_SUITE_P(hostile, same_host, ::testing::Values(false), with_or_without_keys);

}  // namespace
}  // namespace accel::hostile
