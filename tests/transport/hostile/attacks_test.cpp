// SPDX-License-Identifier: Apache-2.0
// Crowds of connections, handshakes and messages that mean nothing: the other clients do not notice, and the server
// gives back all that it took for them. (What it costs in time: `./run bench attacks`.)
#include "hostile/attacks.hpp"

namespace accel::hostile {
namespace {

/// The attackers have a key of their own.
struct attacked : arena {
    attacked() {
        folder_.make("other");
        folder_.authorize({"client", "other"});
    }
};

TEST_P(attacked, attacks_do_not_disturb_other_clients) {
    auto garbage = random_texts(11, 64);
    garbage.insert(garbage.end(), {bytes_of("GET / HTTP/1.1\r\nHost: here\r\n\r\n"),
                                   bytes_of("ACCLCTL\nGET / HTTP/1.1\r\n\r\n"), bytes_of("SSH-2.0-OpenSSH_9.6\r\n"),
                                   repeated({std::byte{0x16}}, 4000), repeated({std::byte{0}}, 4000)});
    auto half = shown(1, {});
    half.resize(40);
    // 700 each: more than may be half open.
    const attack two_kinds = [](const target& at, const std::atomic<bool>& go) {
        const siege tls(keep_open(stranger_address, 700, {core::tls_first_byte}), at, 1);
        keep_open("127.66.0.2", 700, bytes_of("A"))(at, go);
    };
    const auto query = frame(control_message{1, core::query{}});
    endure_all({{"short connections", storm(stranger_address)},
                {"connections that stall after a byte", two_kinds},
                {"stalled connections of a client's address", keep_open(client_address, 1200, bytes_of("A"))},
                {"garbage", send_and_leave(stranger_address, garbage)},
                {"data connections of no session", send_and_leave(stranger_address, {shown(1, {}), shown(99, {})})},
                {"unfinished data connections", keep_open(stranger_address, 400, half)},
                {"queries", flood(stranger_address, client_keys("other"), query)}});
}

/// A megabyte in records of one byte costs the server as much as 16 GB in full ones.
TEST_P(attacked, attacks_with_tls_do_not_disturb_other_clients) {
    if (!keyed()) GTEST_SKIP() << "it takes keys";
    // Longer than the clients' peer_timeout, except in sanitized builds, where that is seconds.
    const siege_options long_ones{.threads = 1, .lasts = sanitized() ? 300ms : 1s};
    endure_all(
        {{"an unknown key", shake_hands(stranger_address, client_keys("stranger"), 32)},
         {"at a client's address", shake_hands(client_address, client_keys("stranger"), 8), long_ones},
         {"a valid key", shake_hands(stranger_address, client_keys("other"), 8)},
         {"records of a byte", drip_records(stranger_address, client_keys("other")), {.threads = 3, .lasts = 500ms}}});
}

INSTANTIATE_TEST_SUITE_P(hostile, attacked, ::testing::Bool(), with_or_without_keys);

}  // namespace
}  // namespace accel::hostile
