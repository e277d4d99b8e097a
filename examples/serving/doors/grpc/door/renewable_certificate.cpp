// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/grpc/door/renewable_certificate.hpp"

#include <type_traits>
#include <utility>

#include <grpc/grpc.h>

namespace accel::examples::serving::doors {
namespace {

/// Credentials of the C API, for a server of the C++ API. gRPC 1.51 leaves all of it to the derived class; in later
/// versions the base holds the credentials.
template <typename Base, bool BaseHolds = !std::is_abstract_v<Base>>
class held_credentials final : public Base {
  public:
    explicit held_credentials(grpc_server_credentials* held) : Base(held) {}
};

template <typename Base>
class held_credentials<Base, false> final : public Base {
  public:
    explicit held_credentials(grpc_server_credentials* held) : held_(held) {}
    held_credentials(const held_credentials&) = delete;
    held_credentials& operator=(const held_credentials&) = delete;
    ~held_credentials() override { grpc_server_credentials_release(held_); }
    void SetAuthMetadataProcessor(const std::shared_ptr<::grpc::AuthMetadataProcessor>& /*none*/) override {}

  private:
    int AddPortToServer(const std::string& address, grpc_server* server) override {
        return grpc_server_add_http2_port(server, address.c_str(), held_);
    }

    grpc_server_credentials* const held_;
};

}  // namespace

renewable_certificate::renewable_certificate(std::string certificate, std::string key)
    : certificate_(std::move(certificate)), key_(std::move(key)) {}

void renewable_certificate::renew(std::string certificate, std::string key) {
    const std::lock_guard lock{lock_};
    certificate_ = std::move(certificate);
    key_ = std::move(key);
    fresh_ = true;
}

std::shared_ptr<::grpc::ServerCredentials> renewable_certificate::credentials() {
    auto* const options = grpc_ssl_server_credentials_create_options_using_config_fetcher(
        GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE, &renewable_certificate::fetch, this);
    return std::make_shared<held_credentials<::grpc::ServerCredentials>>(
        grpc_ssl_server_credentials_create_with_options(options));
}

/// In a thread that begins a handshake.
grpc_ssl_certificate_config_reload_status renewable_certificate::fetch(void* self,
                                                                       grpc_ssl_server_certificate_config** to) {
    auto& of = *static_cast<renewable_certificate*>(self);
    const std::lock_guard lock{of.lock_};
    if (!std::exchange(of.fresh_, false)) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const grpc_ssl_pem_key_cert_pair pair{of.key_.c_str(), of.certificate_.c_str()};
    // gRPC 1.51 aborts without roots for clients' certificates, although no client is asked for one.
    const char* const unused_roots = of.certificate_.c_str();
    *to = grpc_ssl_server_certificate_config_create(unused_roots, &pair, 1);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

}  // namespace accel::examples::serving::doors
