// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <memory>
#include <string>

#include <boost/asio/ssl/context.hpp>

namespace accel::examples::serving::doors {

/// A file that was read.
struct file_text {
    const std::string& path;
    const std::string& text;
};

/// A server's TLS, 1.2 and later. `certificate`: PEM, with the certificates between it and a root's behind it; `key`:
/// PEM without a passphrase. `invalid_argument` names the file that is wrong.
[[nodiscard]] result<std::shared_ptr<boost::asio::ssl::context>> open_tls(const file_text& certificate,
                                                                          const file_text& key);

/// Whether a handshake failed because the client spoke HTTP without TLS.
[[nodiscard]] bool is_plain_http(const boost::system::error_code& failed) noexcept;

}  // namespace accel::examples::serving::doors
