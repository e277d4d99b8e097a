// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/tls/key_file.hpp"
#include "core/tls/openssl.hpp"

#include <accel_transport/options.hpp>
#include <accel_transport/status.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace accel::core {

/// What certificates count time by.
using wall_time = std::chrono::sys_seconds;
[[nodiscard]] inline wall_time wall_now() noexcept {
    return std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
}

/// One end's own identity and the peers that it trusts, loaded from the files that the options name. Either
/// pinned keys (`key_file` with `server_key` or `authorized_keys`) or certificates (`cert_file`, `key_file`,
/// `ca_file`). An anonymous client has no identity, and a server with `anonymous` may trust no peers by name.
/// Immutable, so any thread may use it; a reload makes another.
class credentials {
  public:
    credentials(const credentials&) = delete;
    credentials& operator=(const credentials&) = delete;
    ~credentials();

    /// For TLS connections of this end.
    [[nodiscard]] SSL_CTX* tls() const noexcept { return tls_; }
    /// True: the ends show certificates of an authority; false: keys that are pinned.
    [[nodiscard]] bool by_authority() const noexcept { return by_authority_; }
    /// The name of this end: "ed25519:…", or its certificate's name. Empty: an anonymous client.
    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    /// What it shows to peers, for people: the key, or the certificate's name and fingerprint.
    [[nodiscard]] const std::string& shown() const noexcept { return shown_; }
    /// Which peers these trust, for people: the key or the authority, or how many.
    [[nodiscard]] std::string trusted_text() const;
    /// Credentials of equal digest show and trust the same keys.
    [[nodiscard]] const std::string& digest() const noexcept { return digest_; }
    /// The peer of a connection that others have made: until when these would trust it, or why they do not.
    [[nodiscard]] result<wall_time> admits_until(SSL* connection) const;

    [[nodiscard]] static result<std::shared_ptr<const credentials>> for_client(const security_options& options);
    /// `reload`: an empty authorized_keys is allowed and shuts everybody out.
    [[nodiscard]] static result<std::shared_ptr<const credentials>> for_server(const security_options& options,
                                                                               bool reload);

  private:
    credentials() = default;
    [[nodiscard]] static result<std::shared_ptr<credentials>> load_own(const security_options& options, bool server);
    [[nodiscard]] result<void> set_own(const security_options& options);
    [[nodiscard]] result<void> load_authority(const security_options& options);
    [[nodiscard]] result<void> set_certificate(const security_options& options, EVP_PKEY* key);
    [[nodiscard]] result<void> make_certificate(EVP_PKEY* key);
    void pin(std::vector<public_key> trusted);
    [[nodiscard]] bool trusts(const X509* certificate) const noexcept;
    static int verify_pinned(X509_STORE_CTX* context, void* self) noexcept;
    static int verify_signed(X509_STORE_CTX* context, void* self) noexcept;
    void add_to_digest(std::string_view text);

    SSL_CTX* tls_ = nullptr;
    bool by_authority_ = false;
    bool anonymous_ = false;           ///< a server's: peers may show nothing
    store_ptr store_;                  ///< null: no authority is trusted
    std::vector<public_key> trusted_;  ///< sorted
    int authorities_ = 0;
    std::string authority_;  ///< one of them, for people
    std::string name_;
    std::string shown_;
    std::string digest_;
};

/// When the first of these expires; `wall_time::max()` without any.
[[nodiscard]] wall_time end_of(const STACK_OF(X509) * chain);

/// A peer's name: its key as text, or its certificate's first DNS name, else its common name.
[[nodiscard]] std::string name_of(const X509* certificate);

}  // namespace accel::core
