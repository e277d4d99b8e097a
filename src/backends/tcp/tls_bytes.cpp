// SPDX-License-Identifier: Apache-2.0
#include "backends/tcp/tls_bytes.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <sys/socket.h>

/// Encrypting, then decrypting. Only the constructor allocates; nothing here locks or logs.
namespace accel::tcp {
namespace {

bool is_transient(int number) noexcept {
    return number == EAGAIN || number == EWOULDBLOCK || number == EINTR || number == ENOBUFS;
}

}  // namespace

tls_bytes::tls_bytes(std::shared_ptr<core::tls_stream> stream, int socket, bool only_reads)
    : stream_(std::move(stream)),
      ssl_(stream_->get()),
      socket_(socket),
      broken_(only_reads),
      output_(only_reads ? 0 : output_bytes) {
    // OpenSSL keeps its buffers from now on, else each record would allocate.
    SSL_clear_mode(ssl_, SSL_MODE_RELEASE_BUFFERS);
    SSL_set_default_read_buffer_len(ssl_, input_bytes);
    SSL_free_buffers(ssl_);
    BIO* bio = BIO_new(bio_method());
    if (bio == nullptr) {
        broken_ = true;
        return;
    }
    BIO_set_data(bio, this);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl_, bio, bio);
}

// Sending.

tls_bytes::write_outcome tls_bytes::write(const send_batch& batch, std::size_t& taken) noexcept {
    taken = 0;
    flush();
    cursor at;
    record_room room;  // left uninitialised
    while (!holds_output() && !broken_ && at.piece < batch.count) {
        const std::span<const std::byte> record = next_record(batch, at, room);
        if (!encrypt(record)) break;
        taken += record.size();
    }
    if (broken_) return write_outcome::failed;
    return holds_output() ? write_outcome::blocked : write_outcome::done;
}

/// All records but the last are full, because each costs a system call at both ends. A piece that fills a record is
/// encrypted in place. Where one piece ends and the next begins, both are copied together. So a small message with a
/// lent payload is copied once, and one record in sixteen (a fragment's) of a long message.
std::span<const std::byte> tls_bytes::next_record(const send_batch& batch, cursor& at, record_room& room) noexcept {
    const iovec& first = batch.pieces[at.piece];
    const auto* start = static_cast<const std::byte*>(first.iov_base) + at.offset;
    const std::size_t left = first.iov_len - at.offset;
    if (left > record_bytes) {
        at.offset += record_bytes;
        return {start, record_bytes};
    }
    if (left == record_bytes || at.piece + 1 == batch.count) {
        at = {at.piece + 1, 0};
        return {start, left};
    }
    std::size_t filled = 0;
    while (filled < room.size() && at.piece < batch.count) {
        const iovec& piece = batch.pieces[at.piece];
        const std::size_t step = std::min(room.size() - filled, piece.iov_len - at.offset);
        std::memcpy(room.data() + filled, static_cast<const std::byte*>(piece.iov_base) + at.offset, step);
        filled += step;
        at.offset += step;
        if (at.offset == piece.iov_len) at = {at.piece + 1, 0};
    }
    return std::span(room).first(filled);
}

/// At most one record, which `bio_write` always takes whole, so OpenSSL never needs a retry.
bool tls_bytes::encrypt(std::span<const std::byte> record) noexcept {
    std::size_t put = 0;
    if (SSL_write_ex(ssl_, record.data(), record.size(), &put) == 1) return true;
    ERR_clear_error();
    broken_ = true;
    return false;
}

int tls_bytes::bio_write(BIO* bio, const char* data, int size) {
    auto& self = *static_cast<tls_bytes*>(BIO_get_data(bio));
    const auto bytes = std::as_bytes(std::span(data, static_cast<std::size_t>(size)));
    const std::size_t sent = self.holds_output() ? 0 : self.send_some(bytes);
    const auto rest = bytes.subspan(sent);
    if (self.end_ + rest.size() > self.output_.size()) self.broken_ = true;
    if (!rest.empty() && !self.broken_) {
        std::memcpy(self.output_.data() + self.end_, rest.data(), rest.size());
        self.end_ += rest.size();
    }
    return size;  // `write` reports the failure: OpenSSL still has to read
}

void tls_bytes::flush() noexcept {
    if (!holds_output()) return;
    begin_ += send_some(std::span(output_).subspan(begin_, end_ - begin_));
    if (begin_ == end_) begin_ = end_ = 0;
}

/// How many bytes the socket takes now.
std::size_t tls_bytes::send_some(std::span<const std::byte> bytes) noexcept {
    if (broken_) return 0;
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) return static_cast<std::size_t>(sent);
    broken_ = !is_transient(errno);
    return 0;
}

void tls_bytes::finish(std::span<const std::byte> last) noexcept {
    if (holds_output() || broken_) return;
    if (!last.empty() && !encrypt(last)) return;
    SSL_shutdown(ssl_);
    ERR_clear_error();
}

// Receiving.

/// OpenSSL decrypts into its own buffer and copies from there: one copy more than on a plain connection.
tls_bytes::read_outcome tls_bytes::read(std::span<std::byte> into, std::size_t& count, bool may_sleep) noexcept {
    may_sleep_ = may_sleep;
    would_block_ = false;
    if (SSL_read_ex(ssl_, into.data(), into.size(), &count) == 1) {
        const bool more = !drained_ || SSL_has_pending(ssl_) == 1;
        return more ? read_outcome::some : read_outcome::last;
    }
    // Not SSL_get_error: the thread's error queue may hold errors of the application.
    if (would_block_) return read_outcome::nothing;
    ERR_clear_error();
    return read_outcome::ended;
}

int tls_bytes::bio_read(BIO* bio, char* data, int size) {
    auto& self = *static_cast<tls_bytes*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    // A thread must not sleep for each part of a record.
    const int flags = std::exchange(self.may_sleep_, false) ? 0 : MSG_DONTWAIT;
    const ssize_t got = ::recv(self.socket_, data, static_cast<std::size_t>(size), flags);
    self.drained_ = got < size;
    self.would_block_ = got < 0 && is_transient(errno);
    if (self.would_block_) BIO_set_retry_read(bio);
    return static_cast<int>(got);
}

long tls_bytes::bio_control(BIO*, int command, long, void*) {
    return command == BIO_CTRL_FLUSH ? 1 : 0;
}

const BIO_METHOD* tls_bytes::bio_method() {
    static const BIO_METHOD* const method = [] {
        BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "accel data");
        BIO_meth_set_write(made, bio_write);
        BIO_meth_set_read(made, bio_read);
        BIO_meth_set_ctrl(made, bio_control);
        return made;
    }();
    return method;
}

}  // namespace accel::tcp
