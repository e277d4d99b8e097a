// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/tls/credentials.hpp"
#include "core/tls/openssl.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace accel::core {

/// The ALPN protocol names (RFC 7301): a length, then the name.
inline constexpr std::string_view control_protocol = "\015accel-control";
inline constexpr std::string_view data_protocol = "\012accel-data";
inline constexpr std::string_view all_protocols = "\015accel-control\012accel-data";

/// A secret that both ends of a session share. It replaces certificates on data connections, as an external pre-shared
/// key with (EC)DHE (RFC 8446, section 2.2): no signatures, and nobody but the session's own client can make one.
struct session_key {
    std::uint64_t session_id = 0;
    std::array<std::byte, 16> token{};
};

/// The token of an open session. Called during handshakes, on the thread that makes them.
using find_token = std::function<std::optional<std::array<std::byte, 16>>(std::uint64_t session_id)>;

enum class tls_outcome : std::uint8_t {
    done,
    wants_read,   ///< nothing more until the socket is readable
    wants_write,  ///< nothing more until the socket is writable
    closed,       ///< the peer has ended the stream
    failed,       ///< `failure` says why
};

/// A secret that keys of records are derived from (RFC 8446, section 7.3). Wiped when dropped.
struct traffic_secret {
    std::array<unsigned char, 48> bytes{};
    std::size_t length = 0;  ///< 0: not known

    traffic_secret() = default;
    traffic_secret(const traffic_secret&) = delete;
    traffic_secret& operator=(const traffic_secret&) = delete;
    ~traffic_secret();
};

/// The reports of OpenSSL's callbacks about a connection.
struct traffic_notes {
    std::string refused;             ///< the key or certificate of a peer that was refused
    traffic_secret sending;          ///< of what this end sends on a data connection; for the OS's TLS
    std::uint64_t sent = 0;          ///< records of application data
    std::uint64_t received = 0;      ///< …, which is what a peer costs
    std::uint64_t renewals = 0;      ///< received after the handshake: records that change keys; the first is the last
    find_token find;                 ///< server: of the sessions that a client may show
    std::optional<session_key> key;  ///< client: of its session; server: that the client has shown
};

/// One TLS 1.3 connection over a non-blocking socket that somebody else owns. Never blocks, never raises
/// SIGPIPE. One thread at a time.
class tls_stream {
  public:
    /// The server's end. With `find`, a client may show a session's key instead of a certificate.
    [[nodiscard]] static result<tls_stream> accept(std::shared_ptr<const credentials> own, int fd,
                                                   find_token find = {});
    /// The client's end. `host` is what a server's certificate has to be for; pinned keys need no host.
    /// `key`: shown instead of a certificate, if the server knows it.
    [[nodiscard]] static result<tls_stream> connect(std::shared_ptr<const credentials> own, int fd,
                                                    const std::string& host, std::string_view protocol,
                                                    const std::optional<session_key>& key = {});

    [[nodiscard]] tls_outcome handshake() noexcept;
    /// At least one byte if `done`.
    [[nodiscard]] tls_outcome read(std::span<std::byte> into, std::size_t& count) noexcept;
    [[nodiscard]] tls_outcome write(std::span<const std::byte> from, std::size_t& count) noexcept;
    /// True while bytes that have been read from the socket wait for `read`.
    [[nodiscard]] bool holds_input() const noexcept { return SSL_has_pending(ssl_.get()) == 1; }
    /// Sends close_notify, if the socket takes it at once.
    void shut_down() noexcept;

    /// After the handshake, or when it was refused: how the peer is called; with pinned keys, its key.
    [[nodiscard]] std::string peer_name() const;
    /// After the handshake: the peer has shown no certificate.
    [[nodiscard]] bool anonymous() const noexcept { return SSL_get0_peer_certificate(ssl_.get()) == nullptr; }
    [[nodiscard]] bool carries(std::string_view protocol) const noexcept;
    /// After the handshake: the session whose key was shown instead of certificates. Its peer has no name.
    [[nodiscard]] std::optional<std::uint64_t> session() const noexcept;
    /// After the handshake: when the first certificate that it relied on expires.
    [[nodiscard]] wall_time valid_until() const { return end_of(SSL_get0_verified_chain(ssl_.get())); }
    /// After the handshake: until when these credentials trust the peer, or why they do not. For a second, where memory
    /// is too short to judge.
    [[nodiscard]] result<wall_time> admitted_by(const credentials& today) const;
    /// Why the last call failed, as the rest of a sentence: "the server's key is not server_key".
    [[nodiscard]] std::string failure() const;
    /// True if keys caused the failure, not the network.
    [[nodiscard]] bool refused() const { return !key_failure().empty(); }
    [[nodiscard]] SSL* get() const noexcept { return ssl_.get(); }
    [[nodiscard]] const traffic_notes& traffic() const noexcept { return *notes_; }
    /// Wipes what the OS would have to know to continue this stream's records.
    void forget_secret() noexcept;

  private:
    tls_stream(std::shared_ptr<const credentials> own, ssl_ptr ssl) noexcept
        : own_(std::move(own)), ssl_(std::move(ssl)) {}
    [[nodiscard]] static result<tls_stream> open(std::shared_ptr<const credentials> own, int fd);
    [[nodiscard]] tls_outcome outcome_of(int returned) noexcept;
    [[nodiscard]] std::string untrusted() const;
    [[nodiscard]] std::string_view advice_when_refused() const noexcept;
    /// The text of `failure` if keys caused it; else empty.
    [[nodiscard]] std::string key_failure() const;

    std::shared_ptr<const credentials> own_;  // outlives the connection, which calls it back
    /// The data of the BIO; OpenSSL has its address.
    struct socket_use {
        int fd = -1;
        int reads_left = 0;
    };
    friend struct socket_bio;

    std::unique_ptr<socket_use> socket_ = std::make_unique<socket_use>();
    std::unique_ptr<traffic_notes> notes_ = std::make_unique<traffic_notes>();  // OpenSSL has its address
    ssl_ptr ssl_;
    int reason_ = 0;  ///< OpenSSL's, of the last failure
};

/// One read or write of a non-blocking socket: through TLS, or plain where `tls` is null.
[[nodiscard]] tls_outcome receive_some(int socket, tls_stream* tls, std::span<std::byte> into,
                                       std::size_t& count) noexcept;
[[nodiscard]] tls_outcome send_some(int socket, tls_stream* tls, std::span<const std::byte> from,
                                    std::size_t& count) noexcept;

/// For `SSL_CTX_set_keylog_callback`.
void note_secret(const SSL* of, const char* line) noexcept;

}  // namespace accel::core
