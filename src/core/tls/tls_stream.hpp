#pragma once

#include "core/tls/credentials.hpp"
#include "core/tls/openssl.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace accel::core {

/// What travels in a TLS connection, as ALPN names it (RFC 7301): a length, then the name.
inline constexpr std::string_view control_protocol =
    "\x0d"
    "accel-control";
inline constexpr std::string_view data_protocol =
    "\x0a"
    "accel-data";
inline constexpr std::string_view all_protocols =
    "\x0d"
    "accel-control"
    "\x0a"
    "accel-data";

enum class tls_outcome : std::uint8_t {
    done,
    wants_read,   ///< nothing more until the socket is readable
    wants_write,  ///< nothing more until the socket is writable
    closed,       ///< the peer has ended the stream
    failed,       ///< `failure` says why
};

/// One TLS 1.3 connection over a non-blocking socket that somebody else owns. Never blocks, never raises
/// SIGPIPE. One thread at a time.
class tls_stream {
  public:
    /// The server's end.
    [[nodiscard]] static result<tls_stream> accept(std::shared_ptr<const credentials> own, int fd);
    /// The client's end. `host` is what a server's certificate has to be for; pinned keys need no host.
    [[nodiscard]] static result<tls_stream> connect(std::shared_ptr<const credentials> own, int fd,
                                                    const std::string& host, std::string_view protocol);

    [[nodiscard]] tls_outcome handshake() noexcept;
    /// At least one byte if `done`.
    [[nodiscard]] tls_outcome read(std::span<std::byte> into, std::size_t& count) noexcept;
    [[nodiscard]] tls_outcome write(std::span<const std::byte> from, std::size_t& count) noexcept;
    /// True while bytes that have been read from the socket wait for `read`.
    [[nodiscard]] bool holds_input() const noexcept { return SSL_has_pending(ssl_.get()) == 1; }
    /// Tells the peer that nothing more comes, if the socket takes it at once.
    void shut_down() noexcept;

    /// After the handshake, or when it was refused: how the peer is called; with pinned keys, its key.
    [[nodiscard]] std::string peer_name() const;
    [[nodiscard]] bool carries(std::string_view protocol) const noexcept;
    /// Server, after the handshake: whether these would let the peer in.
    [[nodiscard]] bool admitted_by(const credentials& today) const;
    /// Why the last call failed, as the rest of a sentence: "the server's key is not server_key".
    [[nodiscard]] std::string failure() const;
    /// True if what failed is a matter of keys, not of the network.
    [[nodiscard]] bool refused() const noexcept;
    [[nodiscard]] SSL* get() const noexcept { return ssl_.get(); }

  private:
    tls_stream(std::shared_ptr<const credentials> own, ssl_ptr ssl) noexcept
        : own_(std::move(own)), ssl_(std::move(ssl)) {}
    [[nodiscard]] static result<tls_stream> open(std::shared_ptr<const credentials> own, int fd);
    [[nodiscard]] tls_outcome outcome_of(int returned) noexcept;

    std::shared_ptr<const credentials> own_;  // outlives the connection, which calls it back
    std::unique_ptr<std::string> shown_ =
        std::make_unique<std::string>();  ///< the name of a peer that was refused
    ssl_ptr ssl_;
    int reason_ = 0;  ///< OpenSSL's, of the last failure
};

}  // namespace accel::core
