#include "core/control/security.hpp"

#include "core/context_state.hpp"
#include "core/control/authenticator.hpp"
#include "core/control/key_file.hpp"
#include "core/control/zmq_socket.hpp"

#include <cerrno>

#include <fmt/format.h>

namespace accel::core {
namespace {

constexpr int zap_enforce_domain = 93;  // ZMQ_ZAP_ENFORCE_DOMAIN: named in zmq.h only for draft builds

/// A server's identity, and its entry at the authenticator.
class registered_identity {
  public:
    explicit registered_identity(std::shared_ptr<context_state> context) : context_(std::move(context)) {}
    registered_identity(const registered_identity&) = delete;
    registered_identity& operator=(const registered_identity&) = delete;
    ~registered_identity() { context_->auth().revoke(identity.zap_domain); }

    security_identity identity;

  private:
    std::shared_ptr<context_state> context_;
};

error missing_keys(const char* end, const char* options) {
    return {status::unauthorized, 0,
            fmt::format(
                "the {} has no keys: make a pair with 'accel_keys NAME' and set {}, or ask for a connection "
                "without keys by name with insecure",
                end, options)};
}

result<void> check_insecure(const security_options& options) {
    if (options.key_file.empty() && options.server_key.empty() && options.authorized_keys.empty()) return {};
    return error{status::invalid_argument, 0,
                 "insecure means no keys, but keys were given as well; leave out one or the other"};
}

bool set_text(void* socket, int option, const std::string& text) {
    return zmq_setsockopt(socket, option, text.c_str(), text.size()) == 0;
}

bool set_key(void* socket, int option, const std::string& key) {
    // Z85 text counts with its final zero.
    return zmq_setsockopt(socket, option, key.c_str(), key.size() + 1) == 0;
}

bool secure_server(void* socket, const security_identity& identity) {
    const int yes = 1;
    // Nobody gets in while no authenticator answers. Unknown to libraries before 4.3, which we do not build
    // with.
    zmq_setsockopt(socket, zap_enforce_domain, &yes, sizeof yes);
    return set_text(socket, ZMQ_ZAP_DOMAIN, identity.zap_domain) &&
           zmq_setsockopt(socket, ZMQ_CURVE_SERVER, &yes, sizeof yes) == 0 &&
           set_key(socket, ZMQ_CURVE_SECRETKEY, identity.secret_key);
}

bool secure_client(void* socket, const security_identity& identity) {
    return set_key(socket, ZMQ_CURVE_SERVERKEY, identity.server_key) &&
           set_key(socket, ZMQ_CURVE_PUBLICKEY, identity.public_key) &&
           set_key(socket, ZMQ_CURVE_SECRETKEY, identity.secret_key);
}

}  // namespace

result<std::shared_ptr<const security_identity>> load_client_security(const security_options& options) {
    auto identity = std::make_shared<security_identity>();
    if (options.insecure) {
        if (auto checked = check_insecure(options); !checked) return checked.error();
        identity->insecure = true;
        return std::shared_ptr<const security_identity>{std::move(identity)};
    }
    if (options.key_file.empty() || options.server_key.empty())
        return missing_keys("client", "key_file (NAME.key) and server_key (the server's .pub file)");
    auto keys = read_key_file(options.key_file);
    if (!keys) return keys.error();
    auto server_key = read_public_key(options.server_key);
    if (!server_key) return server_key.error();
    identity->public_key = std::move(keys->public_key);
    identity->secret_key = std::move(keys->secret_key);
    identity->server_key = std::move(*server_key);
    return std::shared_ptr<const security_identity>{std::move(identity)};
}

result<std::shared_ptr<const security_identity>> load_server_security(context_state& context,
                                                                      const security_options& options) {
    if (options.insecure) {
        if (auto checked = check_insecure(options); !checked) return checked.error();
        auto identity = std::make_shared<security_identity>();
        identity->insecure = true;
        return std::shared_ptr<const security_identity>{std::move(identity)};
    }
    if (options.key_file.empty() || options.authorized_keys.empty())
        return missing_keys("server",
                            "key_file (NAME.key) and authorized_keys (a file of the clients' public keys)");
    auto keys = read_key_file(options.key_file);
    if (!keys) return keys.error();
    auto clients = read_authorized_keys(options.authorized_keys);
    if (!clients) return clients.error();
    if (!context.auth().running())
        return error{status::system_error, 0,
                     "the authenticator of client keys could not start; see the log"};
    auto registered = std::make_shared<registered_identity>(context.shared_from_this());
    registered->identity.public_key = std::move(keys->public_key);
    registered->identity.secret_key = std::move(keys->secret_key);
    registered->identity.zap_domain = context.auth().authorize(*clients);
    return std::shared_ptr<const security_identity>{registered, &registered->identity};
}

result<void> secure_socket(void* socket, const security_identity& identity, bool as_server) {
    if (identity.insecure) return {};
    if (as_server ? secure_server(socket, identity) : secure_client(socket, identity)) return {};
    const int native = zmq_errno();
    return error{
        native == EINVAL ? status::unsupported : status::system_error, native,
        fmt::format(
            "ZeroMQ did not take the keys: {}; it may have been built without CURVE (Debian's libzmq5 has "
            "it)",
            zmq_strerror(native))};
}

}  // namespace accel::core
