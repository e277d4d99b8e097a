// SPDX-License-Identifier: Apache-2.0
#include "core/tls/tls_stream.hpp"

#include "core/guarded.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

namespace accel::core {
namespace {

/// The most socket reads of one call. OpenSSL skips records without data by itself, so a peer that sends only those
/// would keep it busy for ever. The socket stays readable for the rest.
constexpr int reads_a_call = 4;

bool try_later(int number) noexcept {
    return number == EAGAIN || number == EWOULDBLOCK || number == EINTR;
}

}  // namespace

/// A BIO over a socket that neither blocks nor raises SIGPIPE, as OpenSSL's own may.
struct socket_bio {
    static tls_stream::socket_use& use_of(BIO* bio) noexcept {
        return *static_cast<tls_stream::socket_use*>(BIO_get_data(bio));
    }

    static int write(BIO* bio, const char* data, int size) {
        BIO_clear_retry_flags(bio);
        const ssize_t put = ::send(use_of(bio).fd, data, static_cast<std::size_t>(size), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put < 0 && try_later(errno)) BIO_set_retry_write(bio);
        return static_cast<int>(put);
    }

    static int read(BIO* bio, char* data, int size) {
        BIO_clear_retry_flags(bio);
        if (use_of(bio).reads_left-- <= 0) {
            BIO_set_retry_read(bio);
            return -1;
        }
        const ssize_t got = ::recv(use_of(bio).fd, data, static_cast<std::size_t>(size), MSG_DONTWAIT);
        if (got < 0 && try_later(errno)) BIO_set_retry_read(bio);
        if (got == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
        return static_cast<int>(got);
    }

    static long control(BIO* bio, int command, long, void*) {
        if (command == BIO_CTRL_FLUSH) return 1;
        if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
        return 0;
    }

    static const BIO_METHOD* method() {
        static const BIO_METHOD* const made = [] {
            BIO_METHOD* fresh = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "accel socket");
            BIO_meth_set_write(fresh, write);
            BIO_meth_set_read(fresh, read);
            BIO_meth_set_ctrl(fresh, control);
            return fresh;
        }();
        return made;
    }

    static BIO* over(tls_stream::socket_use& socket) {
        BIO* bio = BIO_new(method());
        if (bio == nullptr) return nullptr;
        BIO_set_data(bio, &socket);
        BIO_set_init(bio, 1);
        return bio;
    }
};

namespace {

/// The error queue belongs to the thread. An error left there by other code, such as a handler, would turn a
/// call that only has to wait into a failure.
void forget_errors() noexcept {
    if (ERR_peek_error() != 0) ERR_clear_error();
}

bool is_address(const std::string& host) {
    in6_addr any{};
    return ::inet_pton(AF_INET, host.c_str(), &any) == 1 || ::inet_pton(AF_INET6, host.c_str(), &any) == 1;
}

/// The server's certificate has to be for this host (RFC 6125).
bool expect_host(SSL* ssl, const std::string& host) {
    if (is_address(host)) return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host.c_str()) == 1;
    return SSL_set1_host(ssl, host.c_str()) == 1 &&
           SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, const_cast<char*>(host.c_str())) == 1;
}

/// `line` ends in a secret in hexadecimal.
void read_secret(std::string_view line, traffic_secret& out) noexcept {
    const std::string_view text = line.substr(line.rfind(' ') + 1);
    if (text.size() / 2 > out.bytes.size()) return;
    for (std::size_t i = 0; i < text.size() / 2; ++i)
        out.bytes[i] = static_cast<unsigned char>(OPENSSL_hexchar2int(static_cast<unsigned char>(text[2 * i])) * 16 +
                                                  OPENSSL_hexchar2int(static_cast<unsigned char>(text[2 * i + 1])));
    out.length = text.size() / 2;
}

/// OpenSSL tells the type of each record that it has encrypted or decrypted. Our own ends never change their keys
/// (KeyUpdate), which costs the receiver more than the sender. OpenSSL works through all records that it has read, so
/// the first one that might change keys has to stop it: as if the peer had ended the stream before.
void count_record(int sending, int, int kind, const void* type, std::size_t, SSL* ssl, void* notes) {
    if (kind != SSL3_RT_INNER_CONTENT_TYPE) return;
    auto& counted = *static_cast<traffic_notes*>(notes);
    const auto content = *static_cast<const unsigned char*>(type);
    if (content == SSL3_RT_APPLICATION_DATA)
        ++(sending != 0 ? counted.sent : counted.received);
    else if (sending == 0 && content != SSL3_RT_ALERT && SSL_is_init_finished(ssl) == 1) {
        ++counted.renewals;
        SSL_set_shutdown(ssl, SSL_get_shutdown(ssl) | SSL_RECEIVED_SHUTDOWN);
    }
}

using derived_key = std::array<unsigned char, SHA256_DIGEST_LENGTH>;

/// A separate key, so that values derived from it reveal nothing of the token.
derived_key derive(const session_key& from) noexcept {
    constexpr std::string_view label = "accel data connection";
    std::array<unsigned char, label.size() + sizeof from.session_id + sizeof from.token> all{};
    std::memcpy(all.data(), label.data(), label.size());
    std::memcpy(all.data() + label.size(), &from.session_id, sizeof from.session_id);
    std::memcpy(all.data() + label.size() + sizeof from.session_id, from.token.data(), from.token.size());
    derived_key out{};
    SHA256(all.data(), all.size(), out.data());
    OPENSSL_cleanse(all.data(), all.size());
    return out;
}

const SSL_CIPHER* first_suite(SSL* of) noexcept {
    constexpr std::array<unsigned char, 2> tls_aes_128_gcm_sha256{0x13, 0x01};
    return SSL_CIPHER_find(of, tls_aes_128_gcm_sha256.data());
}

/// The key as TLS takes it: for the cipher suite that is offered first. Null: no memory.
SSL_SESSION* make_pre_shared_key(SSL* of, const session_key& key) noexcept {
    SSL_SESSION* made = SSL_SESSION_new();
    if (made == nullptr) return nullptr;
    derived_key secret = derive(key);
    const bool whole = SSL_SESSION_set1_master_key(made, secret.data(), secret.size()) == 1 &&
                       SSL_SESSION_set_cipher(made, first_suite(of)) == 1 &&
                       SSL_SESSION_set_protocol_version(made, TLS1_3_VERSION) == 1;
    OPENSSL_cleanse(secret.data(), secret.size());
    if (whole) return made;
    SSL_SESSION_free(made);
    return nullptr;
}

/// A client's offer.
int show_session_key(SSL* ssl, const EVP_MD*, const unsigned char** id, std::size_t* id_bytes, SSL_SESSION** out) {
    const auto& key = static_cast<const traffic_notes*>(SSL_get_app_data(ssl))->key;
    *out = key ? make_pre_shared_key(ssl, *key) : nullptr;
    if (*out == nullptr) return key ? 0 : 1;
    *id = reinterpret_cast<const unsigned char*>(&key->session_id);
    *id_bytes = sizeof key->session_id;
    return 1;
}

/// The token of sessions that do not exist. Empty: no randomness.
const std::optional<session_key>& nobodys_key() noexcept {
    static const std::optional<session_key> drawn = [] {
        std::optional<session_key> made(std::in_place);
        auto* bytes = reinterpret_cast<unsigned char*>(made->token.data());
        if (RAND_priv_bytes(bytes, static_cast<int>(made->token.size())) != 1) made.reset();
        return made;
    }();
    return drawn;
}

/// OpenSSL asks for it, which cannot catch. Empty also without memory.
std::optional<std::array<std::byte, 16>> found_token(const traffic_notes& notes, std::uint64_t session) noexcept {
    try {
        return notes.find(session);
    } catch (...) {
        return std::nullopt;
    }
}

/// A server's answer to an offer. An unknown session fails as a wrong token does, so that a stranger does not learn
/// which sessions there are. Without an offer the handshake goes on with certificates.
int find_session_key(SSL* ssl, const unsigned char* id, std::size_t id_bytes, SSL_SESSION** out) noexcept {
    auto& notes = *static_cast<traffic_notes*>(SSL_get_app_data(ssl));
    *out = nullptr;
    notes.key.reset();
    session_key key;
    if (id_bytes != sizeof key.session_id) return 1;
    std::memcpy(&key.session_id, id, id_bytes);
    const auto token = found_token(notes, key.session_id);
    const auto& none = nobodys_key();
    if (!token && !none) return 0;
    key.token = token ? *token : none->token;
    *out = make_pre_shared_key(ssl, key);
    if (*out == nullptr) return 0;
    if (token) notes.key = key;
    return 1;
}

/// OpenSSL's words for a reason of its own.
std::string reason_text(int reason, const std::string& otherwise) {
    const char* known = ERR_reason_error_string(ERR_PACK(ERR_LIB_SSL, 0, reason));
    return known != nullptr ? known : otherwise;
}

/// An error of verification.
bool is_weak(long why) noexcept {
    return why == X509_V_ERR_EE_KEY_TOO_SMALL || why == X509_V_ERR_CA_KEY_TOO_SMALL || why == X509_V_ERR_CA_MD_TOO_WEAK;
}

bool chose(const SSL* ssl, std::string_view protocol) noexcept {
    const unsigned char* chosen = nullptr;
    unsigned length = 0;
    SSL_get0_alpn_selected(ssl, &chosen, &length);
    return length + 1 == protocol.size() &&
           std::equal(protocol.begin() + 1, protocol.end(), reinterpret_cast<const char*>(chosen));
}

}  // namespace

traffic_secret::~traffic_secret() {
    OPENSSL_cleanse(bytes.data(), bytes.size());
}

void note_secret(const SSL* of, const char* line) noexcept {
    auto* notes = static_cast<traffic_notes*>(SSL_get_app_data(of));
    const std::string_view text = line;
    if (notes == nullptr || !chose(of, data_protocol)) return;
    const std::string_view own = SSL_is_server(of) == 1 ? "SERVER_TRAFFIC_SECRET_0 " : "CLIENT_TRAFFIC_SECRET_0 ";
    if (text.substr(0, own.size()) == own) read_secret(text, notes->sending);
}

result<tls_stream> tls_stream::open(std::shared_ptr<const credentials> own, int fd) {
    ssl_ptr ssl(SSL_new(own->tls()));
    if (!ssl)
        return error{status::out_of_memory, 0, fmt::format("cannot make a TLS connection: {}", openssl_failure())};
    tls_stream made(std::move(own), std::move(ssl));
    made.socket_->fd = fd;
    BIO* socket = socket_bio::over(*made.socket_);
    if (socket == nullptr) return error{status::out_of_memory, 0, "cannot make a TLS connection: out of memory"};
    SSL_set_bio(made.ssl_.get(), socket, socket);
    SSL_set_app_data(made.ssl_.get(), made.notes_.get());
    SSL_set_msg_callback(made.ssl_.get(), count_record);
    SSL_set_msg_callback_arg(made.ssl_.get(), made.notes_.get());
    return made;
}

result<tls_stream> tls_stream::accept(std::shared_ptr<const credentials> own, int fd, find_token find) {
    auto made = open(std::move(own), fd);
    if (!made) return made;
    SSL_set_accept_state(made->ssl_.get());
    if (!find) return made;
    made->notes_->find = std::move(find);
    SSL_set_psk_find_session_callback(made->ssl_.get(), find_session_key);
    return made;
}

result<tls_stream> tls_stream::connect(std::shared_ptr<const credentials> own, int fd, const std::string& host,
                                       std::string_view protocol, const std::optional<session_key>& key) {
    const bool by_authority = own->by_authority();
    auto made = open(std::move(own), fd);
    if (!made) return made;
    SSL* ssl = made->ssl_.get();
    SSL_set_connect_state(ssl);
    // 0 is good there.
    const bool set = SSL_set_alpn_protos(ssl, reinterpret_cast<const unsigned char*>(protocol.data()),
                                         static_cast<unsigned>(protocol.size())) == 0 &&
                     (!by_authority || expect_host(ssl, host));
    if (!set)
        return error{status::out_of_memory, 0, fmt::format("cannot make a TLS connection: {}", openssl_failure())};
    made->notes_->key = key;
    if (key) SSL_set_psk_use_session_callback(ssl, show_session_key);
    return made;
}

tls_outcome tls_stream::outcome_of(int returned) noexcept {
    switch (SSL_get_error(ssl_.get(), returned)) {
        case SSL_ERROR_WANT_READ:
            return tls_outcome::wants_read;
        case SSL_ERROR_WANT_WRITE:
            return tls_outcome::wants_write;
        case SSL_ERROR_ZERO_RETURN:
            return tls_outcome::closed;
        default:
            break;
    }
    // The last error is TLS's own. Its cause, such as a bad signature, stands before it.
    const unsigned long code = ERR_peek_last_error();
    ERR_clear_error();
    reason_ = code == 0 ? 0 : ERR_GET_REASON(code);
    return code == 0 ? tls_outcome::closed : tls_outcome::failed;
}

tls_outcome tls_stream::handshake() noexcept {
    forget_errors();
    socket_->reads_left = reads_a_call;
    const int done = SSL_do_handshake(ssl_.get());
    if (done != 1) return outcome_of(done);
    notes_->find = {};  // its owner may end before this stream
    if (notes_->key) OPENSSL_cleanse(notes_->key->token.data(), notes_->key->token.size());
    return tls_outcome::done;
}

tls_outcome tls_stream::read(std::span<std::byte> into, std::size_t& count) noexcept {
    count = 0;
    forget_errors();
    socket_->reads_left = reads_a_call;
    const int got = SSL_read_ex(ssl_.get(), into.data(), into.size(), &count);
    if (notes_->renewals > 0) {
        ERR_clear_error();
        reason_ = SSL_R_TOO_MANY_KEY_UPDATES;
        return tls_outcome::failed;
    }
    return got == 1 ? tls_outcome::done : outcome_of(got);
}

tls_outcome tls_stream::write(std::span<const std::byte> from, std::size_t& count) noexcept {
    count = 0;
    forget_errors();
    const int put = SSL_write_ex(ssl_.get(), from.data(), from.size(), &count);
    return put == 1 ? tls_outcome::done : outcome_of(put);
}

void tls_stream::shut_down() noexcept {
    if (SSL_is_init_finished(ssl_.get()) == 1) SSL_shutdown(ssl_.get());
    ERR_clear_error();
}

std::string tls_stream::peer_name() const {
    const X509* shown = SSL_get0_peer_certificate(ssl_.get());
    if (shown == nullptr) return notes_->refused;
    if (own_->by_authority()) return name_of(shown);
    const auto key = public_half(X509_get0_pubkey(shown));
    return key ? key->text() : std::string{};
}

std::optional<std::uint64_t> tls_stream::session() const noexcept {
    if (SSL_session_reused(ssl_.get()) != 1 || !notes_->key) return std::nullopt;
    return notes_->key->session_id;
}

bool tls_stream::carries(std::string_view protocol) const noexcept {
    return chose(ssl_.get(), protocol);
}

void tls_stream::forget_secret() noexcept {
    OPENSSL_cleanse(notes_->sending.bytes.data(), notes_->sending.bytes.size());
    notes_->sending.length = 0;
}

result<wall_time> tls_stream::admitted_by(const credentials& today) const {
    constexpr std::chrono::seconds pause{1};
    auto until = guarded([&] { return today.admits_until(ssl_.get()); });
    if (until.code() == status::out_of_memory) return wall_now() + pause;
    return until;
}

/// This end has refused the other.
std::string tls_stream::untrusted() const {
    const long why = SSL_get_verify_result(ssl_.get());
    const std::string trusted = own_->trusted_text();
    if (own_->by_authority())
        return fmt::format("the other end's certificate is {} ({}): {}; {}",
                           is_weak(why) ? "too weak" : "not valid here", X509_verify_cert_error_string(why),
                           notes_->refused, trusted);
    return fmt::format("the other end's key is not trusted here: {}; {}; {}",
                       notes_->refused.empty() ? "not an Ed25519 key" : notes_->refused, trusted,
                       SSL_is_server(ssl_.get()) == 1
                           ? "to let it connect, add its public key to authorized_keys"
                           : "if this is the right server, set server_key to its public key");
}

/// The other end has refused this one.
std::string_view tls_stream::advice_when_refused() const noexcept {
    const bool server = SSL_is_server(ssl_.get()) == 1;
    if (SSL_get_certificate(ssl_.get()) == nullptr)
        return own_->by_authority() ? "; set cert_file and key_file, or anonymous=true at the server"
                                    : "; set key_file, or anonymous=true at the server";
    if (own_->by_authority())
        return reason_ == SSL_R_TLSV1_ALERT_UNKNOWN_CA || reason_ == SSL_R_TLSV1_ALERT_DECRYPT_ERROR
                   ? "; its ca_file must contain the authority that signed this certificate"
                   : "";
    if (reason_ != SSL_R_SSLV3_ALERT_BAD_CERTIFICATE) return "";
    return server ? "; its server_key must be this key" : "; add this key to authorized_keys of the server";
}

std::string tls_stream::key_failure() const {
    switch (reason_) {
        case SSL_R_CERTIFICATE_VERIFY_FAILED:
            return untrusted();
        case SSL_R_EE_KEY_TOO_SMALL:
        case SSL_R_CA_KEY_TOO_SMALL:
        case SSL_R_CA_MD_TOO_WEAK:
            return fmt::format("this end's certificate {}, or one that signed it, is too weak ({})", own_->shown(),
                               reason_text(reason_, "weak"));
        case SSL_R_WRONG_VERSION_NUMBER:
        case SSL_R_HTTP_REQUEST:
        case SSL_R_TLSV1_ALERT_ACCESS_DENIED:
            return "one end uses keys and the other does not";
        case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
            return own_->by_authority() ? "the other end has sent no certificate; anonymous=true lets such clients in"
                                        : "the other end has sent no key; anonymous=true lets such clients in";
        case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
        case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
        case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
        case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
        case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
        case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
        case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
        case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
            return fmt::format("the other end does not accept {} ({}){}", own_->shown(), reason_text(reason_, "alert"),
                               advice_when_refused());
        default:
            return {};
    }
}

std::string tls_stream::failure() const {
    if (reason_ == 0) return "the connection was lost";
    const bool offered = notes_->key && SSL_is_server(ssl_.get()) == 0;
    if (reason_ == SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER && offered)
        return "the other end does not know the session, which may have ended";
    if (reason_ == SSL_R_BINDER_DOES_NOT_VERIFY) return "it does not have the key of an open session";
    std::string keys = key_failure();
    return keys.empty() ? reason_text(reason_, fmt::format("TLS failure {}", reason_)) : keys;
}

tls_outcome receive_some(int socket, tls_stream* tls, std::span<std::byte> into, std::size_t& count) noexcept {
    if (tls != nullptr) return tls->read(into, count);
    const ssize_t got = ::recv(socket, into.data(), into.size(), MSG_DONTWAIT);
    if (got == 0) return tls_outcome::closed;
    if (got < 0) return try_later(errno) ? tls_outcome::wants_read : tls_outcome::failed;
    count = static_cast<std::size_t>(got);
    return tls_outcome::done;
}

tls_outcome send_some(int socket, tls_stream* tls, std::span<const std::byte> from, std::size_t& count) noexcept {
    if (tls != nullptr) return tls->write(from, count);
    const ssize_t put = ::send(socket, from.data(), from.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (put < 0) return try_later(errno) ? tls_outcome::wants_write : tls_outcome::failed;
    count = static_cast<std::size_t>(put);
    return tls_outcome::done;
}

}  // namespace accel::core
