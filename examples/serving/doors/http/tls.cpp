// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/http/tls.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/error.hpp>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/sslerr.h>

namespace accel::examples::serving::doors {

namespace ssl = boost::asio::ssl;
using boost::system::error_code;

namespace {

error unusable(const std::string& path, const char* what, const error_code& why) {
    return {.code = status::invalid_argument,
            .native = why.value(),
            .message = path + " is not a valid " + what + " in PEM: " + why.message()};
}

}  // namespace

result<std::shared_ptr<ssl::context>> open_tls(const file_text& certificate, const file_text& key) {
    auto out = std::make_shared<ssl::context>(ssl::context::tls_server);
    SSL_CTX* const raw = out->native_handle();
    SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
    SSL_CTX_set_options(raw, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(raw, SSL_MODE_RELEASE_BUFFERS);
    error_code failed;
    out->use_certificate_chain(boost::asio::buffer(certificate.text), failed);
    if (failed) return unusable(certificate.path, "certificate", failed);
    // Else OpenSSL would ask for a passphrase at the terminal.
    out->set_password_callback([](std::size_t, ssl::context::password_purpose) { return std::string{}; }, failed);
    out->use_private_key(boost::asio::buffer(key.text), ssl::context::pem, failed);
    if (failed) return unusable(key.path, "key of this certificate", failed);
    return out;
}

bool is_plain_http(const error_code& failed) noexcept {
    return failed.category() == boost::asio::error::get_ssl_category() &&
           ERR_GET_REASON(static_cast<unsigned long>(failed.value())) == SSL_R_HTTP_REQUEST;
}

}  // namespace accel::examples::serving::doors
