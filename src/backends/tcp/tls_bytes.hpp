// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/tcp/send_queue.hpp"
#include "core/tls/tls_stream.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace accel::tcp {

/// The bytes of an encrypted data connection: what is received, and what is sent unless the OS encrypts it. `write`
/// never reads the same bytes twice: ciphertext that the socket does not take stays here, at most one record. The
/// constructor allocates, and OpenSSL allocates a few bytes for each record. One thread.
class tls_bytes {
  public:
    enum class read_outcome : std::uint8_t {
        some,     ///< and more may be there
        last,     ///< and nothing more is there for now
        nothing,  ///< for now
        ended,    ///< by the peer, a failure, or bytes that were changed on the way
    };
    enum class write_outcome : std::uint8_t {
        done,
        blocked,  ///< the socket takes no more for now
        failed,
    };

    /// The handshake is done. `socket` has to stay open while this is used. `only_reads`: nothing is written; what
    /// OpenSSL would say to the peer by itself (alerts) is dropped.
    tls_bytes(std::shared_ptr<core::tls_stream> stream, int socket, bool only_reads = false);
    tls_bytes(const tls_bytes&) = delete;
    tls_bytes& operator=(const tls_bytes&) = delete;

    /// Decrypts into `into`: at most one record's bytes. `may_sleep`: the socket is read as it is, blocking
    /// or not, once.
    [[nodiscard]] read_outcome read(std::span<std::byte> into, std::size_t& count, bool may_sleep) noexcept;
    /// Encrypts and sends. The first `taken` bytes are not read any more, whatever the outcome.
    [[nodiscard]] write_outcome write(const send_batch& batch, std::size_t& taken) noexcept;
    /// True while ciphertext waits for the socket; `write` sends it, also with an empty batch.
    [[nodiscard]] bool holds_output() const noexcept { return begin_ != end_; }
    /// The connection ends in the middle of what is held.
    void forget_output() noexcept {
        begin_ = end_ = 0;
        broken_ = true;
    }
    /// Sends `last` and TLS's own end of the stream, if the socket takes them now.
    void finish(std::span<const std::byte> last) noexcept;

  private:
    static constexpr std::size_t record_bytes = SSL3_RT_MAX_PLAIN_LENGTH;
    /// A record on its way out, and what OpenSSL answers to a peer that changes its keys.
    static constexpr std::size_t output_bytes = record_bytes + SSL3_RT_MAX_ENCRYPTED_OVERHEAD + 256;
    /// Ciphertext that one read of the socket may bring.
    static constexpr std::size_t input_bytes = 128 << 10;

    struct cursor {
        std::size_t piece = 0;
        std::size_t offset = 0;
    };
    using record_room = std::array<std::byte, record_bytes>;

    [[nodiscard]] static std::span<const std::byte> next_record(const send_batch& batch, cursor& at,
                                                                record_room& room) noexcept;
    [[nodiscard]] bool encrypt(std::span<const std::byte> record) noexcept;
    void flush() noexcept;
    [[nodiscard]] std::size_t send_some(std::span<const std::byte> bytes) noexcept;

    // As OpenSSL's BIO, over the socket.
    static const BIO_METHOD* bio_method();
    static int bio_write(BIO* bio, const char* data, int size);
    static int bio_read(BIO* bio, char* data, int size);
    static long bio_control(BIO* bio, int command, long number, void* pointer);

    std::shared_ptr<core::tls_stream> stream_;
    SSL* ssl_;
    int socket_;
    bool may_sleep_ = false;
    bool would_block_ = false;
    bool drained_ = false;  ///< the last read of the socket brought less than it could
    bool broken_ = false;   ///< nothing can be sent any more
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
    std::vector<std::byte> output_;
};

}  // namespace accel::tcp
