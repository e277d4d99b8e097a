// SPDX-License-Identifier: Apache-2.0
// Floods of TLS handshakes, with keys that are good and bad; and what a good key can do inside TLS.
#include "hostile/attacks.hpp"

namespace accel::hostile {
namespace {

struct handshakes : arena {};

TEST_P(handshakes, handshakes_with_an_unknown_key_do_not_delay_other_clients) {
    open();
    endure(shake_hands(stranger_address, client_keys("stranger"), 32), {.threads = 1});
}

TEST_P(handshakes, unknown_keys_at_the_address_of_a_client_do_not_delay_it) {
    open();
    // Longer than the clients' peer_timeout, except in sanitized builds, where that is seconds.
    endure(shake_hands(client_address, client_keys("stranger"), 8), {.threads = 1, .lasts = sanitized() ? 300ms : 1s});
}

TEST_P(handshakes, handshakes_with_a_valid_key_do_not_delay_other_clients) {
    open();
    endure(shake_hands(stranger_address, client_keys(), 8), {.threads = 1});
}

/// A megabyte in records of one byte costs the server as much as 16 GB in full ones.
TEST_P(handshakes, records_of_one_byte_do_not_delay_other_clients) {
    open();
    endure(drip_records(stranger_address, client_keys()), {.threads = 3, .lasts = 500ms});
}

INSTANTIATE_TEST_SUITE_P(hostile, handshakes, ::testing::Values(true), with_or_without_keys);

}  // namespace
}  // namespace accel::hostile
