// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include <openssl/ssl.h>

/// Owners of OpenSSL's objects.
namespace accel::core {

template <auto Free>
struct openssl_free {
    template <class Object>
    void operator()(Object* object) const noexcept {
        Free(object);
    }
};

using pkey_ptr = std::unique_ptr<EVP_PKEY, openssl_free<EVP_PKEY_free>>;
using x509_ptr = std::unique_ptr<X509, openssl_free<X509_free>>;
using store_ptr = std::unique_ptr<X509_STORE, openssl_free<X509_STORE_free>>;
using bio_ptr = std::unique_ptr<BIO, openssl_free<BIO_free>>;
using ssl_ptr = std::unique_ptr<SSL, openssl_free<SSL_free>>;

/// OpenSSL's text for the last failure of this thread; empties its queue.
[[nodiscard]] std::string openssl_failure();

}  // namespace accel::core
