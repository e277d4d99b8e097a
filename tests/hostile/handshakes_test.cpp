// SPDX-License-Identifier: Apache-2.0
// Floods of TLS handshakes, with keys that are good and bad; and what a good key can do inside TLS.
#include "hostile/attacks.hpp"

#include <openssl/ssl.h>

namespace accel::hostile {
namespace {

struct handshakes : arena {};

TEST_P(handshakes, with_an_unknown_key_keep_nobody_waiting) {
    open();
    endure(shake_hands(stranger_address, client_keys("stranger"), 32), {.threads = 1, .measured = true});
}

TEST_P(handshakes, with_an_unknown_key_from_the_clients_address_keep_nobody_waiting) {
    open();
    // Longer than the clients' peer_timeout, except in sanitized builds, where that is seconds.
    endure(shake_hands(client_address, client_keys("stranger"), 8), {.threads = 1, .lasts = sanitized() ? 300ms : 1s});
}

TEST_P(handshakes, with_a_good_key_keep_nobody_waiting) {
    open();
    endure(shake_hands(stranger_address, client_keys(), 8), {.threads = 1, .measured = true});
}

/// A KeyUpdate makes both ends derive new keys, and the server's reader of messages never sees it. A burst is as long
/// as what OpenSSL reads at once.
TEST_P(handshakes, that_renew_keys_without_end_keep_nobody_waiting) {
    open();
    const auto keys = client_keys();
    const auto renewing = [keys](const target& at, const std::atomic<bool>& go) {
        while (go.load()) {
            auto one = wire::open(stranger_address, at, keys);
            if (!one || !one->send(core::control_greeting)) continue;
            SSL* ssl = one->stream().tls()->get();
            BIO* kept = BIO_new(BIO_s_mem());
            SSL_set0_wbio(ssl, kept);
            for (int i = 0; i < 2400; ++i)
                if (SSL_key_update(ssl, SSL_KEY_UPDATE_NOT_REQUESTED) != 1 || SSL_do_handshake(ssl) != 1) break;
            char* burst = nullptr;
            const long length = BIO_get_mem_data(kept, &burst);
            push(one->stream().fd(), std::as_bytes(std::span(burst, static_cast<std::size_t>(length))));
        }
    };
    endure(renewing, {.threads = 8, .measured = true});
}

INSTANTIATE_TEST_SUITE_P(hostile, handshakes, ::testing::Values(true), with_or_without_keys);

}  // namespace
}  // namespace accel::hostile
