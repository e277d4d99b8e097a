// SPDX-License-Identifier: Apache-2.0
// What the records of a peer cost: few are worked through at once, however little each brings.
#include "backends/tcp/link.hpp"
#include "backends/tcp/tls_bytes.hpp"
#include "tcp_bytes.hpp"
#include "tls_pair.hpp"

#include <algorithm>

#include <openssl/bio.h>
#include <openssl/ssl.h>

namespace accel::tcp {
namespace {

using namespace testing;

/// The records of so many changes of keys.
bytes key_changes(core::tls_stream& of, int count) {
    SSL* ssl = of.get();
    BIO* kept = BIO_new(BIO_s_mem());
    SSL_set0_wbio(ssl, kept);
    for (int i = 0; i < count; ++i) {
        EXPECT_EQ(SSL_key_update(ssl, SSL_KEY_UPDATE_NOT_REQUESTED), 1);
        EXPECT_EQ(SSL_do_handshake(ssl), 1);
    }
    char* data = nullptr;
    const long length = BIO_get_mem_data(kept, &data);
    const auto* begin = reinterpret_cast<const std::byte*>(data);
    return {begin, begin + length};
}

/// 65 KB that the reader has in its buffer after one read of the socket.
bytes burst(core::tls_stream& from) {
    bytes all = key_changes(from, 2400);
    EXPECT_GT(all.size(), 60'000U);
    return all;
}

class tls_cost : public ::testing::Test {
  protected:
    void SetUp() override { ASSERT_TRUE(pair.done); }
    void send_burst() {
        const bytes all = burst(*pair.client);
        ASSERT_EQ(::send(pair.sockets[0].get(), all.data(), all.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(all.size()));
    }
    tls_pair pair;
    std::array<std::byte, 4096> room;
    std::size_t count = 0;
};

TEST_F(tls_cost, the_first_change_of_keys_is_the_last_record_of_a_control_connection) {
    send_burst();
    EXPECT_EQ(read_some(*pair.server, room, count), core::tls_outcome::failed);
    EXPECT_EQ(pair.server->traffic().renewals, 1U);
    EXPECT_NE(pair.server->failure(), "the connection was lost");
    EXPECT_EQ(pair.server->read(room, count), core::tls_outcome::failed);
    EXPECT_EQ(pair.server->traffic().renewals, 1U);
}

TEST_F(tls_cost, the_first_change_of_keys_is_the_last_record_of_a_data_connection) {
    const auto stream = std::make_shared<core::tls_stream>(std::move(*pair.server));
    tls_bytes reader(stream, pair.sockets[1].get());
    send_burst();
    const core::nanoseconds deadline = core::deadline_after(5s);
    auto outcome = tls_bytes::read_outcome::nothing;
    while (outcome == tls_bytes::read_outcome::nothing && core::now() < deadline)
        outcome = reader.read(room, count, false);
    EXPECT_EQ(outcome, tls_bytes::read_outcome::ended);
    EXPECT_EQ(stream->traffic().renewals, 1U);
    EXPECT_EQ(reader.read(room, count, false), tls_bytes::read_outcome::ended);
    EXPECT_EQ(stream->traffic().renewals, 1U);
}

TEST_F(tls_cost, a_stream_ended_by_its_peer_is_not_a_failure) {
    pair.client->shut_down();
    EXPECT_EQ(read_some(*pair.server, room, count), core::tls_outcome::closed);
    EXPECT_EQ(pair.server->traffic().renewals, 0U);
}

/// A client that sends each byte in a record of its own.
class drop_by_drop {
  public:
    drop_by_drop(std::uint16_t port, std::uint64_t session)
        : socket_(std::move(*core::connect_to("127.0.0.1", port, core::deadline_after(5s)))),
          tls_(std::move(
              *core::tls_stream::connect(all_encrypted().client->keys, socket_.get(), "", core::data_protocol))) {
        while (tls_.handshake() != core::tls_outcome::done) std::this_thread::sleep_for(1ms);
        core::data_preamble shown;
        shown.session_id = session;
        shown.token.fill(std::byte{0x5a});
        send(std::as_bytes(std::span(&shown, 1)));
    }
    void drip(std::span<const std::byte> all) {
        for (const std::byte& each : all) send({&each, 1});
    }

  private:
    void send(std::span<const std::byte> all) {
        std::size_t sent = 0;
        ASSERT_EQ(tls_.write(all, sent), core::tls_outcome::done);
        ASSERT_EQ(sent, all.size());
    }
    core::unique_fd socket_;
    core::tls_stream tls_;
};

TEST(tls_rounds, rounds_over_tiny_records_are_short) {
    tcp_world world("127.0.0.1", all_encrypted());
    const auto server = world.open_server({.slots = 1, .request_bytes = 4096, .response_bytes = 64}, 1);
    drop_by_drop client(world.door.port(), 1);
    world.run({}, [&] { return static_cast<tcp_link&>(*server->path).fd() >= 0; });
    const bytes payload = random_bytes(2000, 1);
    client.drip(whole(0, 1, payload));
    const core::nanoseconds deadline = core::deadline_after(patience);
    std::uint32_t rounds = 0;
    for (; server->arrived.empty() && core::now() < deadline; ++rounds) tcp_world::take(*world.server_poller);
    ASSERT_EQ(server->arrived.size(), 1U);
    EXPECT_TRUE(same(server->arrived.front().payload, payload));
    EXPECT_GE(rounds, payload.size() / 256) << "one link kept the thread for more than 256 records";
}

}  // namespace
}  // namespace accel::tcp
