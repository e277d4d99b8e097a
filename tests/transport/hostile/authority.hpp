// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/tls/credentials.hpp"
#include "core/tls/openssl.hpp"

#include <string>
#include <vector>

/// Certificates for tests.
namespace accel::hostile {

/// A certificate authority in a folder: ca.pem, and NAME.key with NAME.pem for each it signs.
class authority {
  public:
    /// Its own certificate expires after `lasts` seconds.
    explicit authority(std::string folder, long lasts = a_day);
    authority(const authority&) = delete;
    authority& operator=(const authority&) = delete;

    /// Signs a certificate for this DNS name, which expires after `lasts` seconds. Gives the end. `use`: what it is
    /// good for alone, as serverAuth. `hosts`: what it is for instead, as "DNS:localhost,IP:::1".
    core::wall_time sign(const std::string& name, long lasts = a_day, const std::string& use = {},
                         const std::string& hosts = {});
    /// Writes ca.pem anew, with the same key and without lists. Gives the new certificate's end.
    core::wall_time renew(long lasts = a_day);
    /// Appends a list that revokes these to ca.pem.
    void revoke(const std::vector<std::string>& names);
    [[nodiscard]] std::string file(const std::string& name) const { return folder_ + "/" + name; }

    static constexpr long a_day = 24L * 60 * 60;

  private:
    void write_key(const std::string& name, EVP_PKEY* key) const;
    void write_certificate(const std::string& name, X509* certificate) const;
    std::string folder_;
    core::pkey_ptr key_;
    core::x509_ptr own_;
    long serial_ = 1;
};

}  // namespace accel::hostile
