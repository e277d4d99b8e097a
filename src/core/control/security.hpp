#pragma once

#include "core/clock.hpp"

#include <accel_transport/options.hpp>
#include <accel_transport/status.hpp>

#include <memory>
#include <string>
#include <string_view>

namespace accel::core {

/// Keys of one end, loaded and checked. Shared by its control plane and its ZeroMQ data path.
struct security_identity {
    bool insecure = false;
    std::string public_key;  ///< Z85, 40 characters
    std::string secret_key;  ///< Z85, 40 characters
    std::string server_key;  ///< client: the server's public key
    std::string zap_domain;  ///< server: under which `authenticator` knows its authorised keys
};

class context_state;

/// Checks and loads what the options name. Neither keys nor `insecure`: `unauthorized`, with a sentence that
/// says how to make keys. A key file that others can read is refused.
[[nodiscard]] result<std::shared_ptr<const security_identity>> load_client_security(
    const security_options& options);
/// The same for a server; registers its authorised keys with the context's authenticator until the result is
/// destroyed.
[[nodiscard]] result<std::shared_ptr<const security_identity>> load_server_security(
    context_state& context, const security_options& options);

/// Sets the CURVE options of a ZeroMQ socket before it binds (server) or connects (client). Nothing when
/// insecure.
[[nodiscard]] result<void> secure_socket(void* socket, const security_identity& identity, bool as_server);

}  // namespace accel::core
