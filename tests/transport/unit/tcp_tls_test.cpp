// SPDX-License-Identifier: Apache-2.0
#include "core/tls/kernel_tls.hpp"
#include "tls_pair.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <sys/socket.h>

/// Encrypted data connections: who agrees to what, and what somebody on the way can see and do.
namespace accel::tcp {
namespace {

using namespace testing;
using bytes = std::vector<std::byte>;

/// Somebody on the way between client and server: keeps all that passes, and changes a byte if told to.
class wiretap {
  public:
    struct change {
        bool to_server = true;
        std::size_t offset = 0;
    };

    explicit wiretap(std::uint16_t server, std::optional<change> what = {}) : server_(server), change_(what) {
        auto opened = core::listener::open("127.0.0.1", 0);
        EXPECT_TRUE(opened.ok());
        door_.emplace(std::move(*opened));
        thread_ = std::thread([this] { run(); });
    }
    ~wiretap() {
        stopping_ = true;
        thread_.join();
    }
    [[nodiscard]] std::uint16_t port() const { return door_->port(); }
    [[nodiscard]] bool heard(std::string_view text) const {
        const std::lock_guard lock(mutex_);
        return heard_.find(text) != std::string::npos;
    }
    [[nodiscard]] std::size_t passed(bool to_server) const {
        const std::lock_guard lock(mutex_);
        return seen_[to_server ? 0 : 1];
    }
    [[nodiscard]] bool changed() const { return changed_; }

  private:
    void run() {
        core::unique_fd client;
        while (door_->accept(client) != core::listener::outcome::accepted) {
            if (stopping_) return;
            std::this_thread::sleep_for(1ms);
        }
        auto server = core::connect_to("127.0.0.1", server_, core::deadline_after(5s));
        ASSERT_TRUE(server.ok());
        while (!stopping_) {
            std::array<pollfd, 2> items{{{client.get(), POLLIN, 0}, {server->get(), POLLIN, 0}}};
            ::poll(items.data(), items.size(), 20);
            if (items[0].revents != 0 && !pass(client.get(), server->get(), true)) return;
            if (items[1].revents != 0 && !pass(server->get(), client.get(), false)) return;
        }
    }
    bool pass(int from, int to, bool to_server) {
        std::array<char, 16384> room;
        const ssize_t got = ::recv(from, room.data(), room.size(), MSG_DONTWAIT);
        if (got <= 0) return got < 0 && errno == EAGAIN;
        const auto count = static_cast<std::size_t>(got);
        keep({room.data(), count}, to_server);
        for (std::size_t sent = 0; sent < count;) {
            const ssize_t put = ::send(to, room.data() + sent, count - sent, MSG_NOSIGNAL);
            if (put > 0) sent += static_cast<std::size_t>(put);
            const bool full = put < 0 && errno == EAGAIN;
            if (put < 0 && (!full || core::wait_ready(to, POLLOUT, core::deadline_after(5s)) != 0)) return false;
        }
        return true;
    }
    void keep(std::span<char> part, bool to_server) {
        const std::lock_guard lock(mutex_);
        heard_.append(part.data(), part.size());
        std::size_t& seen = seen_[to_server ? 0 : 1];
        if (change_ && change_->to_server == to_server && change_->offset - seen < part.size()) {
            char& changed = part[change_->offset - seen];
            changed = static_cast<char>(changed ^ 1);
            changed_ = true;
        }
        seen += part.size();
    }

    std::uint16_t server_;
    std::optional<change> change_;
    std::optional<core::listener> door_;
    mutable std::mutex mutex_;
    std::string heard_;
    std::array<std::size_t, 2> seen_{};
    std::atomic<bool> changed_{false};
    std::atomic<bool> stopping_{false};
    std::thread thread_;
};

constexpr std::string_view secret = "the weights of a model that nobody else may see";

bytes bytes_of(std::string_view text) {
    bytes out(text.size());
    std::memcpy(out.data(), text.data(), text.size());
    return out;
}

/// The secret goes to the server and comes back, past somebody who listens.
bool is_overheard(const world_security& security) {
    tcp_world world("127.0.0.1", security);
    const wiretap tap(world.door.port());
    auto c = world.connect({}, tap.port());
    EXPECT_EQ(send_message(*c.client->path, message_kind::request, 0, 1, bytes_of(secret)), status::ok);
    world.run({&c}, [&] { return !c.server->arrived.empty(); });
    EXPECT_TRUE(same(c.server->arrived.at(0).payload, bytes_of(secret)));
    EXPECT_EQ(send_message(*c.server->path, message_kind::response, 0, 1, bytes_of(secret)), status::ok);
    world.run({&c}, [&] { return !c.client->arrived.empty(); });
    EXPECT_TRUE(same(c.client->arrived.at(0).payload, bytes_of(secret)));
    EXPECT_GT(std::min(tap.passed(true), tap.passed(false)), secret.size());
    return tap.heard(secret) || tap.heard("ACCLTCP");
}

TEST(tcp_tls, an_eavesdropper_sees_no_payload_unless_an_end_says_off_or_has_no_keys) {
    EXPECT_TRUE(is_overheard({}));
    EXPECT_FALSE(is_overheard(all_encrypted()));
    EXPECT_FALSE(is_overheard(with_keys(encryption::automatic, encryption::automatic)));
    EXPECT_FALSE(is_overheard(with_keys(encryption::automatic, encryption::required)));
    EXPECT_TRUE(is_overheard(with_keys(encryption::automatic, encryption::off)));
}

TEST(tcp_tls, one_changed_byte_ends_the_session_and_delivers_nothing_wrong) {
    const bytes payload = random_bytes(40'000, 1);
    for (const bool to_server : {true, false}) {
        // Behind handshake, preamble and answer: in a record's length, its body and its end. (Linux ignores
        // the outer type, which is always the same.)
        for (const std::size_t behind :
             {std::size_t{3}, std::size_t{60}, std::size_t{16'389}, std::size_t{16'404}, std::size_t{30'000}}) {
            SCOPED_TRACE((to_server ? "to the server, " : "to the client, ") + std::to_string(behind));
            tcp_world world("127.0.0.1", all_encrypted());
            std::size_t before = 0;
            {
                const wiretap tap(world.door.port());
                auto c = world.connect({}, tap.port());
                world.run_for(c, 20ms);
                before = tap.passed(to_server);
            }
            const wiretap tap(world.door.port(), wiretap::change{to_server, before + behind});
            auto c = world.connect({.slots = 1, .request_bytes = 1 << 20, .response_bytes = 1 << 20}, tap.port());
            for (std::uint32_t generation = 1; c.server->lost.empty() && c.client->lost.empty(); ++generation) {
                (void)send_message(*c.client->path, message_kind::request, 0, generation, payload);
                world.run({&c}, [&] {
                    return !c.server->arrived.empty() || !c.server->lost.empty() || !c.client->lost.empty();
                });
                if (c.server->arrived.empty()) break;
                ASSERT_TRUE(same(c.server->arrived[0].payload, payload));
                c.server->arrived.clear();
                c.server->path->consumed(0);
                (void)send_message(*c.server->path, message_kind::response, 0, generation, payload);
                world.run({&c}, [&] {
                    return !c.client->arrived.empty() || !c.server->lost.empty() || !c.client->lost.empty();
                });
                if (c.client->arrived.empty()) break;
                ASSERT_TRUE(same(c.client->arrived[0].payload, payload));
                c.client->arrived.clear();
            }
            EXPECT_TRUE(tap.changed());
            const auto& told = to_server ? c.server->lost : c.client->lost;
            world.run({&c}, [&] { return !told.empty(); });
            ASSERT_FALSE(told.empty());
            EXPECT_EQ(told[0], status::peer_lost);
        }
    }
}

TEST(tcp_tls, a_plain_connection_to_an_encrypted_session_is_refused) {
    tcp_world world("127.0.0.1", all_encrypted());
    auto server = world.open_server({.slots = 1, .request_bytes = 64, .response_bytes = 64}, 77);
    auto peer = core::connect_to("127.0.0.1", world.door.port(), core::deadline_after(5s));
    ASSERT_TRUE(peer.ok());
    core::data_preamble p;
    p.session_id = 77;
    p.token.fill(std::byte{0x5a});
    ASSERT_EQ(::send(peer->get(), &p, sizeof p, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof p));
    std::array<std::byte, core::data_answer_head_bytes> head{};
    ASSERT_EQ(core::wait_ready(peer->get(), POLLIN, core::deadline_after(10s)), 0);
    ASSERT_EQ(::recv(peer->get(), head.data(), head.size(), MSG_WAITALL), static_cast<ssize_t>(head.size()));
    EXPECT_EQ(core::decode_data_answer(head).code(), status::unauthorized);
    for (int i = 0; i < 20; ++i) tcp_world::take(*world.server_poller);
    EXPECT_TRUE(server->arrived.empty() && server->lost.empty());
}

TEST(tcp_tls, encrypted_payloads_release_lent_memory_at_once) {
    constexpr std::size_t size = 3 << 20;
    tcp_world world("127.0.0.1", all_encrypted());
    auto c = world.connect({.slots = 2, .request_bytes = size, .response_bytes = size, .zerocopy = true});
    for (std::uint32_t i = 1; i <= 10; ++i) {
        bytes lent = random_bytes(size - i, i);
        const bytes sent = lent;
        ASSERT_EQ(send_message(*c.client->path, message_kind::request, 0, i, lent, some_region()), status::ok);
        if (i % 2 == 0) {
            ASSERT_TRUE(c.client->path->retract(0));
            std::fill(lent.begin(), lent.end(), std::byte{0xee});
        }
        world.run({&c}, [&] { return !c.server->arrived.empty(); });
        ASSERT_TRUE(same(c.server->arrived[0].payload, sent));
        c.server->arrived.clear();
        c.server->path->consumed(0);
        ASSERT_EQ(send_message(*c.server->path, message_kind::response, 0, i, lent, some_region()), status::ok);
        world.run({&c}, [&] { return !c.server->released.empty(); });
        // The client has not read all of it yet, and gets what was there when it was lent.
        const bytes answer = lent;
        std::fill(lent.begin(), lent.end(), std::byte{0x11});
        world.run({&c}, [&] { return !c.client->arrived.empty(); });
        ASSERT_TRUE(same(c.client->arrived[0].payload, answer));
        c.client->arrived.clear();
        c.server->released.clear();
    }
}

TEST(tcp_tls, an_end_without_tls_own_goodbye_is_a_loss) {
    tcp_world world("127.0.0.1", all_encrypted());
    auto c = world.connect({.slots = 1, .request_bytes = 1 << 20, .response_bytes = 64});
    ASSERT_EQ(send_message(*c.client->path, message_kind::request, 0, 1, random_bytes(1 << 20, 1)), status::ok);
    ::shutdown(static_cast<tcp_link&>(*c.client->path).fd(), SHUT_RDWR);
    world.run({}, [&] { return !c.server->lost.empty(); });
    EXPECT_EQ(c.server->lost, std::vector<status>{status::peer_lost});
    EXPECT_TRUE(c.server->arrived.empty());
}

/// Decrypts a record (RFC 8446, section 5.2) as the kernel would with these keys; without its type.
std::string decrypted(std::span<const unsigned char> record, const core::record_keys& keys) {
    constexpr std::size_t head = 5;
    constexpr std::size_t tag = 16;
    std::array<unsigned char, 12> nonce = keys.iv;
    for (std::size_t i = 0; i < 8; ++i)
        nonce[4 + i] = static_cast<unsigned char>(nonce[4 + i] ^ (keys.sequence >> (8 * (7 - i))));
    const auto text = record.subspan(head, record.size() - head - tag);
    std::string out(text.size(), '\0');
    EVP_CIPHER_CTX* context = EVP_CIPHER_CTX_new();
    int length = 0;
    EVP_DecryptInit_ex(context, keys.key_bytes == 16 ? EVP_aes_128_gcm() : EVP_aes_256_gcm(), nullptr, keys.key.data(),
                       nonce.data());
    EVP_DecryptUpdate(context, nullptr, &length, record.data(), head);
    EVP_DecryptUpdate(context, reinterpret_cast<unsigned char*>(out.data()), &length, text.data(),
                      static_cast<int>(text.size()));
    EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_SET_TAG, tag,
                        const_cast<unsigned char*>(record.data() + record.size() - tag));
    const bool good = EVP_DecryptFinal_ex(context, nullptr, &length) == 1;
    EVP_CIPHER_CTX_free(context);
    return good ? out.substr(0, out.size() - 1) : "not what was sent";
}

TEST(kernel_tls, kernel_tls_gets_the_keys_of_the_next_record) {
    for (const std::size_t records : {0U, 1U, 3U}) {
        tls_pair pair;
        ASSERT_TRUE(pair.done);
        for (auto [from, to, socket] : {std::tuple{&*pair.client, &*pair.server, pair.sockets[1].get()},
                                        std::tuple{&*pair.server, &*pair.client, pair.sockets[0].get()}}) {
            std::size_t count = 0;
            std::array<std::byte, 100> room;
            for (std::size_t i = 0; i < records; ++i) {
                ASSERT_EQ(from->write(bytes_of("earlier"), count), core::tls_outcome::done);
                ASSERT_EQ(read_some(*to, room, count), core::tls_outcome::done);
            }
            const auto keys = core::next_record_keys(*from);
            ASSERT_TRUE(keys.has_value());
            ASSERT_EQ(from->write(bytes_of(secret), count), core::tls_outcome::done);
            std::array<unsigned char, 200> record;
            ASSERT_EQ(core::wait_ready(socket, POLLIN, core::deadline_after(5s)), 0);
            const ssize_t got = ::recv(socket, record.data(), record.size(), MSG_DONTWAIT);
            ASSERT_GT(got, 0);
            const auto sent = std::span(record).first(static_cast<std::size_t>(got));
            EXPECT_EQ(decrypted(sent, *keys), secret);
        }
    }
}

TEST(kernel_tls, the_secret_is_gone_once_it_is_not_needed) {
    tls_pair pair;
    ASSERT_TRUE(pair.done);
    ASSERT_TRUE(core::next_record_keys(*pair.client).has_value());
    pair.client->forget_secret();
    EXPECT_FALSE(core::next_record_keys(*pair.client).has_value());
    const auto& left = pair.client->traffic().sending.bytes;
    EXPECT_TRUE(std::all_of(left.begin(), left.end(), [](unsigned char each) { return each == 0; }));
}

TEST(kernel_tls, an_absent_kernel_tls_changes_nothing) {
    tls_pair pair;
    ASSERT_TRUE(pair.done);
    const core::unique_fd no_tcp(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_FALSE(core::let_kernel_encrypt(*pair.client, no_tcp.get()));
    std::size_t count = 0;
    std::array<std::byte, 100> room;
    ASSERT_EQ(pair.client->write(bytes_of(secret), count), core::tls_outcome::done);
    ASSERT_EQ(read_some(*pair.server, room, count), core::tls_outcome::done);
    EXPECT_TRUE(same(std::span(room).first(count), bytes_of(secret)));
}

/// Only where the kernel has the module, as in the machine of tools/rxe-vm.
TEST(kernel_tls_module, kernel_tls_and_openssl_understand_each_other) {
    tls_pair pair;
    ASSERT_TRUE(pair.done);
    const int socket = pair.sockets[1].get();
    if (!core::let_kernel_encrypt(*pair.server, socket)) GTEST_SKIP() << "this kernel has no module tls";
    std::size_t count = 0;
    std::array<std::byte, 100> room;
    for (int i = 0; i < 3; ++i) {
        ASSERT_EQ(pair.client->write(bytes_of(secret), count), core::tls_outcome::done);
        ASSERT_EQ(read_some(*pair.server, room, count), core::tls_outcome::done);
        EXPECT_TRUE(same(std::span(room).first(count), bytes_of(secret)));
        ASSERT_EQ(::send(socket, secret.data(), secret.size(), MSG_NOSIGNAL), static_cast<ssize_t>(secret.size()));
        ASSERT_EQ(read_some(*pair.client, room, count), core::tls_outcome::done);
        EXPECT_TRUE(same(std::span(room).first(count), bytes_of(secret)));
    }
}

}  // namespace
}  // namespace accel::tcp
