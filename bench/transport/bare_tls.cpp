// SPDX-License-Identifier: Apache-2.0
#include "loopback_socket.hpp"
#include "side.hpp"

#include <memory>

#include <openssl/ssl.h>

namespace accel::bench {
namespace {

template <auto Free>
struct free_with {
    template <class Object>
    void operator()(Object* object) const noexcept {
        Free(object);
    }
};
using tls_options = std::unique_ptr<SSL_CTX, free_with<SSL_CTX_free>>;
using tls_socket = std::unique_ptr<SSL, free_with<SSL_free>>;

/// TLS 1.3 with the cipher that the library uses, and OpenSSL's own buffering at its best.
tls_options options_of(const SSL_METHOD* method) {
    tls_options made(SSL_CTX_new(method));
    SSL_CTX_set_min_proto_version(made.get(), TLS1_3_VERSION);
    SSL_CTX_set_ciphersuites(made.get(), "TLS_AES_128_GCM_SHA256");
    SSL_CTX_set_read_ahead(made.get(), 1);
    SSL_CTX_set_default_read_buffer_len(made.get(), 128 << 10);
    SSL_CTX_set_verify(made.get(), SSL_VERIFY_NONE, nullptr);
    SSL_CTX_set_num_tickets(made.get(), 0);
    return made;
}

/// A certificate that nobody checks.
bool show_some_key(SSL_CTX* to) {
    const std::unique_ptr<EVP_PKEY, free_with<EVP_PKEY_free>> key(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
    const std::unique_ptr<X509, free_with<X509_free>> shown(X509_new());
    X509_set_version(shown.get(), X509_VERSION_3);
    X509_gmtime_adj(X509_getm_notBefore(shown.get()), 0);
    X509_gmtime_adj(X509_getm_notAfter(shown.get()), 3600);
    return X509_set_pubkey(shown.get(), key.get()) == 1 && X509_sign(shown.get(), key.get(), nullptr) > 0 &&
           SSL_CTX_use_certificate(to, shown.get()) == 1 && SSL_CTX_use_PrivateKey(to, key.get()) == 1;
}

bool send_whole(SSL* to, std::span<const std::byte> bytes) {
    std::size_t sent = 0;
    return SSL_write_ex(to, bytes.data(), bytes.size(), &sent) == 1 && sent == bytes.size();
}

bool receive_whole(SSL* from, std::span<std::byte> bytes) {
    while (!bytes.empty()) {
        std::size_t now = 0;
        if (SSL_read_ex(from, bytes.data(), bytes.size(), &now) != 1) return false;
        bytes = bytes.subspan(now);
    }
    return true;
}

class tls_echo final : public echo {
  public:
    tls_echo(descriptor socket, std::size_t size_bytes)
        : socket_(std::move(socket)), out_(size_bytes), in_(size_bytes) {}
    bool shake_hands() {
        const tls_options options = options_of(TLS_client_method());
        tls_.reset(SSL_new(options.get()));
        return SSL_set_fd(tls_.get(), socket_.get()) == 1 && SSL_connect(tls_.get()) == 1;
    }
    bool round_trip() override { return send_whole(tls_.get(), out_) && receive_whole(tls_.get(), in_); }

  private:
    descriptor socket_;
    tls_socket tls_;
    std::vector<std::byte> out_;
    std::vector<std::byte> in_;
};

result<std::unique_ptr<echo>> connect_tls(const std::string& port, std::size_t size_bytes) {
    auto socket = connect_on_loopback(port);
    if (!socket) return socket.error();
    auto made = std::make_unique<tls_echo>(std::move(*socket), size_bytes);
    if (!made->shake_hands()) return error{status::system_error, 0, "bare TLS: no handshake"};
    return std::unique_ptr<echo>{std::move(made)};
}

}  // namespace

side bare_tls(std::size_t size_bytes) {
    return {"bare TLS", {"tls", std::to_string(size_bytes)}, connect_tls};
}

int serve_bare_tls(std::size_t size_bytes) {
    const tls_options options = options_of(TLS_server_method());
    if (!show_some_key(options.get())) return 1;
    const descriptor client = serve_one_on_loopback();
    const tls_socket tls(SSL_new(options.get()));
    if (client.get() < 0 || SSL_set_fd(tls.get(), client.get()) != 1 || SSL_accept(tls.get()) != 1) return 1;
    std::vector<std::byte> bytes(size_bytes);
    while (receive_whole(tls.get(), bytes) && send_whole(tls.get(), bytes)) {
    }
    return 0;
}

}  // namespace accel::bench
