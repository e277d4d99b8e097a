// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include <grpc/grpc_security.h>
#include <grpcpp/security/server_credentials.h>

namespace accel::examples::serving::doors {

/// The certificate and the key of one gRPC server, in PEM, which change while it runs: each handshake gets the last
/// ones. gRPC's C++ API can only have files read again every few seconds, unchecked; its C API asks at each handshake.
/// Threads: all.
class renewable_certificate {
  public:
    renewable_certificate(std::string certificate, std::string key);
    renewable_certificate(const renewable_certificate&) = delete;
    renewable_certificate& operator=(const renewable_certificate&) = delete;
    ~renewable_certificate() = default;

    /// From the next handshake on. They fit each other (`open_tls`).
    void renew(std::string certificate, std::string key);
    /// For one server, which this certificate has to outlive.
    [[nodiscard]] std::shared_ptr<::grpc::ServerCredentials> credentials();

  private:
    static grpc_ssl_certificate_config_reload_status fetch(void* self, grpc_ssl_server_certificate_config** to);

    std::mutex lock_;
    std::string certificate_;
    std::string key_;
    bool fresh_ = true;  ///< gRPC does not have them yet
};

}  // namespace accel::examples::serving::doors
