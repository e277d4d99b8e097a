// SPDX-License-Identifier: Apache-2.0
#include "core/tls/credentials.hpp"

#include "core/tls/tls_stream.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>
#include <new>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/sha.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

namespace accel::core {
namespace {

/// AES-128 first: strong enough for RFC 8446, and the fastest on processors with AES instructions.
constexpr const char* cipher_suites = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";
/// As many bytes as one read may bring; four of the longest records.
constexpr std::size_t read_buffer_bytes = std::size_t{4} * (SSL3_RT_MAX_PLAIN_LENGTH + SSL3_RT_MAX_ENCRYPTED_OVERHEAD);
/// A certificate that only carries a pinned key never expires: the pin decides.
constexpr long far_future_s = 100L * 365 * 24 * 60 * 60;
/// As in DNS (RFC 1035).
constexpr std::size_t longest_name = 253;

error openssl_error(const char* what) {
    return {status::system_error, 0, fmt::format("{}: {}", what, openssl_failure())};
}

error missing_keys(const char* end, const char* options) {
    return {status::unauthorized, 0,
            fmt::format("the {} has no keys: make a pair with 'accel_keys NAME' and set {}, or set insecure to connect "
                        "without keys",
                        end, options)};
}

bool has_authority(const security_options& options) {
    return !options.cert_file.empty() || !options.ca_file.empty();
}

result<void> check_client(const security_options& options) {
    if (!has_authority(options)) {
        if (!options.server_key.empty()) return {};
        return missing_keys("client", "key_file (NAME.key) and server_key (the server's .pub file)");
    }
    if (!options.ca_file.empty() && options.cert_file.empty() == options.key_file.empty()) return {};
    return error{status::invalid_argument, 0,
                 "a client's certificates need all of cert_file, key_file and ca_file; an anonymous client has only "
                 "ca_file"};
}

result<void> check_server(const security_options& options) {
    if (!has_authority(options)) {
        const bool whole = !options.key_file.empty() && (options.anonymous || !options.authorized_keys.empty());
        if (whole) return {};
        return missing_keys("server",
                            "key_file (NAME.key) and authorized_keys (a file of the clients' public keys), or key_file "
                            "and anonymous=true (for clients without keys)");
    }
    const bool own = !options.cert_file.empty() && !options.key_file.empty();
    if (own && (options.anonymous || !options.ca_file.empty())) return {};
    if (own)
        return error{status::invalid_argument, 0,
                     "the server has no ca_file, so no client could connect: set ca_file to the authority that signs "
                     "the clients' certificates, or set anonymous=true to let in clients without a certificate"};
    return error{status::invalid_argument, 0,
                 "a server's certificates need all of cert_file, key_file and ca_file; with anonymous=true, ca_file is "
                 "optional"};
}

/// Refuses a peer in the middle of the handshake.
int reject(X509_STORE_CTX* context, int why) {
    X509_STORE_CTX_set_error(context, why);
    return 0;
}

x509_ptr read_certificate(BIO* from) {
    return x509_ptr(PEM_read_bio_X509(from, nullptr, nullptr, nullptr));
}

std::string first_dns_name(const X509* certificate) {
    auto* names = static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
    std::string out;
    for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names) && out.empty(); ++i) {
        const GENERAL_NAME* each = sk_GENERAL_NAME_value(names, i);
        if (each->type != GEN_DNS) continue;
        const auto* text = reinterpret_cast<const char*>(ASN1_STRING_get0_data(each->d.dNSName));
        out.assign(text, static_cast<std::size_t>(ASN1_STRING_length(each->d.dNSName)));
    }
    GENERAL_NAMES_free(names);
    return out;
}

std::string common_name(const X509* certificate) {
    std::array<char, 256> text{};
    const int length = X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, text.data(),
                                                 static_cast<int>(text.size()));
    return length > 0 ? std::string(text.data(), static_cast<std::size_t>(length)) : std::string{};
}

/// Printable ASCII only: it may end in a log or on a terminal.
std::string printable(std::string text) {
    for (char& each : text)
        if (each < 0x20 || each > 0x7e) each = '?';
    return text;
}

/// The server's choice among what the client offers; nothing in common ends the handshake.
int choose_protocol(SSL*, const unsigned char** out, unsigned char* length, const unsigned char* offered,
                    unsigned offered_length, void*) {
    unsigned char* chosen = nullptr;
    const auto* ours = reinterpret_cast<const unsigned char*>(all_protocols.data());
    const int found = SSL_select_next_proto(&chosen, length, ours, static_cast<unsigned>(all_protocols.size()), offered,
                                            offered_length);
    *out = chosen;
    return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

/// Its name, which a stranger may have chosen, and by what `openssl x509 -fingerprint -sha256` tells it from others.
std::string described(const X509* certificate) {
    std::array<unsigned char, SHA256_DIGEST_LENGTH> sum{};
    unsigned size = 0;
    if (X509_digest(certificate, EVP_sha256(), sum.data(), &size) != 1) size = 0;
    const std::string dns = first_dns_name(certificate);
    std::string name = printable(dns.empty() ? common_name(certificate) : dns);
    if (name.size() > longest_name) name.replace(longest_name, std::string::npos, "...");
    return fmt::format("'{}' (SHA-256 {:02X})", name, fmt::join(sum.begin(), sum.begin() + size, ":"));
}

/// A certificate of one's own that OpenSSL does not take.
error unusable(const std::string& cert_file) {
    const int reason = ERR_GET_REASON(ERR_peek_last_error());
    const bool weak =
        reason == SSL_R_EE_KEY_TOO_SMALL || reason == SSL_R_CA_KEY_TOO_SMALL || reason == SSL_R_CA_MD_TOO_WEAK;
    if (weak)
        return {status::unauthorized, 0,
                fmt::format("the certificate in cert_file '{}' is too weak ({}); use a certificate with a stronger key",
                            cert_file, openssl_failure())};
    return {status::unauthorized, 0,
            fmt::format("OpenSSL rejects the certificate in cert_file '{}' ({})", cert_file, openssl_failure())};
}

traffic_notes& notes_of(X509_STORE_CTX* handshake) noexcept {
    auto* ssl = static_cast<SSL*>(X509_STORE_CTX_get_ex_data(handshake, SSL_get_ex_data_X509_STORE_CTX_idx()));
    return *static_cast<traffic_notes*>(SSL_get_app_data(ssl));
}

/// OpenSSL calls this: it must not throw. Without memory for the text, nothing is noted.
template <class Text>
void note_refused(X509_STORE_CTX* handshake, Text text) noexcept {
    try {
        notes_of(handshake).refused = text();
    } catch (const std::bad_alloc&) {
        notes_of(handshake).refused.clear();
    }
}

/// Null: no memory.
x509_ptr certificate_of(EVP_PKEY* key, const std::string& name) {
    x509_ptr made(X509_new());
    if (!made) return made;
    X509_NAME* subject = X509_get_subject_name(made.get());
    const auto* text = reinterpret_cast<const unsigned char*>(name.data());
    const bool whole = X509_set_version(made.get(), X509_VERSION_3) == 1 &&
                       ASN1_INTEGER_set(X509_get_serialNumber(made.get()), 1) == 1 &&
                       X509_NAME_add_entry_by_NID(subject, NID_commonName, MBSTRING_ASC, text,
                                                  static_cast<int>(name.size()), -1, 0) == 1 &&
                       X509_set_issuer_name(made.get(), subject) == 1 &&
                       ASN1_TIME_set(X509_getm_notBefore(made.get()), 0) != nullptr &&
                       X509_gmtime_adj(X509_getm_notAfter(made.get()), far_future_s) != nullptr &&
                       X509_set_pubkey(made.get(), key) == 1 && X509_sign(made.get(), key, nullptr) > 0;
    return whole ? std::move(made) : nullptr;
}

SSL_CTX* new_tls(bool server) {
    SSL_CTX* tls = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
    if (tls == nullptr) return nullptr;
    // A server's OpenSSL asks for a name before it takes a session's key in place of a certificate.
    constexpr std::string_view session_context = "accel";
    const bool set =
        SSL_CTX_set_min_proto_version(tls, TLS1_3_VERSION) == 1 && SSL_CTX_set_ciphersuites(tls, cipher_suites) == 1 &&
        SSL_CTX_set1_groups_list(tls, "X25519:P-256") == 1 &&
        (!server || SSL_CTX_set_session_id_context(tls, reinterpret_cast<const unsigned char*>(session_context.data()),
                                                   static_cast<unsigned>(session_context.size())) == 1);
    if (!set) {
        SSL_CTX_free(tls);
        return nullptr;
    }
    // No resumption: a resumed session would survive the revocation of its key.
    SSL_CTX_set_session_cache_mode(tls, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(tls, 0);
    SSL_CTX_set_options(tls, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_mode(tls, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    // A read ends when its buffer is empty, even if it held no application data.
    SSL_CTX_clear_mode(tls, SSL_MODE_AUTO_RETRY);
    SSL_CTX_set_read_ahead(tls, 1);
    SSL_CTX_set_default_read_buffer_len(tls, read_buffer_bytes);
    SSL_CTX_set_keylog_callback(tls, note_secret);
    SSL_CTX_set_max_cert_list(tls, 32 << 10);
    SSL_CTX_set_verify(tls, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    if (server) SSL_CTX_set_alpn_select_cb(tls, choose_protocol, nullptr);
    return tls;
}

}  // namespace

credentials::~credentials() {
    SSL_CTX_free(tls_);
}

void credentials::add_to_digest(std::string_view text) {
    std::array<unsigned char, SHA256_DIGEST_LENGTH> sum{};
    const std::string all = fmt::format("{}{}:{}", digest_, text.size(), text);
    SHA256(reinterpret_cast<const unsigned char*>(all.data()), all.size(), sum.data());
    digest_.assign(reinterpret_cast<const char*>(sum.data()), sum.size());
}

result<std::shared_ptr<credentials>> credentials::load_own(const security_options& options, bool server) {
    const std::shared_ptr<credentials> made(new credentials);
    made->by_authority_ = has_authority(options);
    made->tls_ = new_tls(server);
    if (made->tls_ == nullptr) return openssl_error("cannot set up TLS");
    if (auto set = made->set_own(options); !set) return set.error();
    if (options.ca_file.empty()) return made;
    if (auto loaded = made->load_authority(options); !loaded) return loaded.error();
    return made;
}

/// What this end shows. An anonymous client shows nothing.
result<void> credentials::set_own(const security_options& options) {
    if (options.key_file.empty()) {
        shown_ = "a client without a key or certificate";
        return {};
    }
    auto key = read_private_key(options.key_file);
    if (!key) return key.error();
    return by_authority_ ? set_certificate(options, key->get()) : make_certificate(key->get());
}

/// The key's certificate, and those between it and the authority.
result<void> credentials::set_certificate(const security_options& options, EVP_PKEY* key) {
    auto text = read_trusted_file(options.cert_file, "cert_file");
    if (!text) return text.error();
    const bio_ptr memory(BIO_new_mem_buf(text->data(), static_cast<int>(text->size())));
    x509_ptr own = read_certificate(memory.get());
    if (!own)
        return error{status::unauthorized, 0,
                     fmt::format("cert_file '{}' does not contain a certificate (PEM)", options.cert_file)};
    if (SSL_CTX_use_certificate(tls_, own.get()) != 1) return unusable(options.cert_file);
    while (x509_ptr between = read_certificate(memory.get()))
        if (SSL_CTX_add1_chain_cert(tls_, between.get()) != 1) return unusable(options.cert_file);
    ERR_clear_error();
    if (SSL_CTX_use_PrivateKey(tls_, key) != 1 || SSL_CTX_check_private_key(tls_) != 1) {
        ERR_clear_error();
        return error{status::unauthorized, 0,
                     fmt::format("key_file '{}' is not the key of the certificate in '{}'", options.key_file,
                                 options.cert_file)};
    }
    name_ = name_of(own.get());
    shown_ = described(own.get());
    add_to_digest(*text);
    return {};
}

/// Certificates of authorities, and their CRLs if there are any.
result<void> credentials::load_authority(const security_options& options) {
    auto text = read_trusted_file(options.ca_file, "ca_file");
    if (!text) return text.error();
    store_.reset(X509_STORE_new());
    if (!store_) return openssl_error("cannot load ca_file");
    const bio_ptr memory(BIO_new_mem_buf(text->data(), static_cast<int>(text->size())));
    STACK_OF(X509_INFO)* items = PEM_X509_INFO_read_bio(memory.get(), nullptr, nullptr, nullptr);
    bool revocations = false;
    bool taken = true;
    for (int i = 0; i < sk_X509_INFO_num(items); ++i) {
        const X509_INFO* each = sk_X509_INFO_value(items, i);
        // One that is left out might be a list of revoked certificates.
        taken = taken && (each->x509 == nullptr || X509_STORE_add_cert(store_.get(), each->x509) == 1) &&
                (each->crl == nullptr || X509_STORE_add_crl(store_.get(), each->crl) == 1);
        revocations = revocations || each->crl != nullptr;
        if (each->x509 == nullptr) continue;
        ++authorities_;
        authority_ = described(each->x509);
    }
    sk_X509_INFO_pop_free(items, X509_INFO_free);
    if (!taken) return openssl_error("OpenSSL rejects ca_file");
    ERR_clear_error();
    if (authorities_ == 0)
        return error{status::unauthorized, 0,
                     fmt::format("ca_file '{}' does not contain a certificate (PEM)", options.ca_file)};
    if (revocations) X509_STORE_set_flags(store_.get(), X509_V_FLAG_CRL_CHECK);
    SSL_CTX_set1_cert_store(tls_, store_.get());
    SSL_CTX_set_cert_verify_callback(tls_, verify_signed, this);
    add_to_digest(*text);
    return {};
}

/// Makes a certificate around the key, because OpenSSL 3.0 has no raw public keys in TLS.
result<void> credentials::make_certificate(EVP_PKEY* key) {
    const auto half = public_half(key);
    if (!half)
        return error{status::unauthorized, 0,
                     "key_file is not an Ed25519 key; make one with accel_keys, or give cert_file and ca_file"};
    const std::string name = half->text();
    const x509_ptr made = certificate_of(key, name);
    const bool whole = made && SSL_CTX_use_certificate(tls_, made.get()) == 1 && SSL_CTX_use_PrivateKey(tls_, key) == 1;
    if (!whole) return openssl_error("OpenSSL rejects the key");
    shown_ = name_ = name;
    add_to_digest(name);
    return {};
}

void credentials::pin(std::vector<public_key> trusted) {
    trusted_ = std::move(trusted);
    std::sort(trusted_.begin(), trusted_.end());
    for (const public_key& each : trusted_) add_to_digest(each.text());
    SSL_CTX_set_cert_verify_callback(tls_, verify_pinned, this);
}

std::string credentials::trusted_text() const {
    if (authorities_ > 1) return fmt::format("this end trusts {} authorities", authorities_);
    if (authorities_ == 1) return fmt::format("this end trusts the authority {}", authority_);
    if (trusted_.size() == 1) return fmt::format("this end trusts only {}", trusted_.front().text());
    return fmt::format("this end trusts {} other keys", trusted_.size());
}

bool credentials::trusts(const X509* certificate) const noexcept {
    const auto key = public_half(X509_get0_pubkey(certificate));
    return key && std::binary_search(trusted_.begin(), trusted_.end(), *key);
}

/// As without a callback, but notes what was shown.
int credentials::verify_signed(X509_STORE_CTX* context, void* /*self*/) noexcept {
    if (X509_verify_cert(context) == 1) return 1;
    if (const X509* shown = X509_STORE_CTX_get0_cert(context)) note_refused(context, [&] { return described(shown); });
    return 0;
}

/// TLS verifies that the peer owns the key in its certificate. This decides only which keys are good.
int credentials::verify_pinned(X509_STORE_CTX* context, void* self) noexcept {
    const X509* shown = X509_STORE_CTX_get0_cert(context);
    if (shown == nullptr) return reject(context, X509_V_ERR_UNSPECIFIED);
    if (static_cast<const credentials*>(self)->trusts(shown)) return 1;
    const auto key = public_half(X509_get0_pubkey(shown));
    if (key) note_refused(context, [&] { return key->text(); });
    return reject(context, X509_V_ERR_CERT_REJECTED);
}

result<wall_time> credentials::admits_until(SSL* connection) const {
    error why{status::unauthorized, 0, "its key is not trusted"};
    X509* certificate = SSL_get0_peer_certificate(connection);
    if (certificate == nullptr) return anonymous_ ? result<wall_time>(wall_time::max()) : why;
    if (!by_authority()) return trusts(certificate) ? result<wall_time>(wall_time::max()) : why;
    const std::unique_ptr<X509_STORE_CTX, decltype(&X509_STORE_CTX_free)> context(X509_STORE_CTX_new(),
                                                                                  X509_STORE_CTX_free);
    const error no_memory{status::out_of_memory, 0, "no memory is left to verify its certificate"};
    if (!context ||
        X509_STORE_CTX_init(context.get(), store_.get(), certificate, SSL_get_peer_cert_chain(connection)) != 1)
        return no_memory;
    // As OpenSSL does in a handshake: for the peer's end, and for the host that the connection is to.
    const bool good =
        X509_STORE_CTX_set_default(context.get(), SSL_is_server(connection) == 1 ? "ssl_client" : "ssl_server") == 1 &&
        X509_VERIFY_PARAM_set1(X509_STORE_CTX_get0_param(context.get()), SSL_get0_param(connection)) == 1 &&
        X509_verify_cert(context.get()) == 1;
    ERR_clear_error();
    if (good) return end_of(X509_STORE_CTX_get0_chain(context.get()));
    const int reason = X509_STORE_CTX_get_error(context.get());
    if (reason == X509_V_ERR_OUT_OF_MEM) return no_memory;
    why.message = X509_verify_cert_error_string(reason);
    return why;
}

result<std::shared_ptr<const credentials>> credentials::for_client(const security_options& options) {
    if (auto whole = check_client(options); !whole) return whole.error();
    auto made = load_own(options, false);
    if (!made) return made.error();
    if (!(*made)->by_authority()) {
        auto server = read_server_key(options.server_key);
        if (!server) return server.error();
        (*made)->pin({*server});
    }
    return std::shared_ptr<const credentials>(std::move(*made));
}

result<std::shared_ptr<const credentials>> credentials::for_server(const security_options& options, bool reload) {
    if (auto whole = check_server(options); !whole) return whole.error();
    auto made = load_own(options, true);
    if (!made) return made.error();
    (*made)->anonymous_ = options.anonymous;
    const bool knows_peers = !options.ca_file.empty() || !options.authorized_keys.empty();
    // Whoever shows something is checked; a server that knows nobody by name does not ask.
    if (options.anonymous) SSL_CTX_set_verify((*made)->tls_, knows_peers ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, nullptr);
    if (!options.authorized_keys.empty()) {
        auto clients = read_authorized_keys(options.authorized_keys);
        if (!clients) return clients.error();
        if (clients->empty() && !reload && !options.anonymous)
            return error{
                status::unauthorized, 0,
                fmt::format(
                    "authorized_keys '{}' contains no keys, so no client could connect; add the clients' .pub files to "
                    "it",
                    options.authorized_keys)};
        (*made)->pin(std::move(*clients));
    }
    return std::shared_ptr<const credentials>(std::move(*made));
}

wall_time end_of(const STACK_OF(X509) * chain) {
    wall_time first = wall_time::max();
    for (int i = 0; i < sk_X509_num(chain); ++i) {
        std::tm end{};
        if (ASN1_TIME_to_tm(X509_get0_notAfter(sk_X509_value(chain, i)), &end) == 1)
            first = std::min(first, wall_time{std::chrono::seconds{::timegm(&end)}});
    }
    return first;
}

std::string name_of(const X509* certificate) {
    if (certificate == nullptr) return {};
    const std::string dns = first_dns_name(certificate);
    std::string name = printable(dns.empty() ? common_name(certificate) : dns);
    // Only pinned keys are called so.
    return name.starts_with("ed25519:") || name.size() > longest_name ? std::string{} : name;
}

}  // namespace accel::core
