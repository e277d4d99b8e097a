// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/options.hpp>

#include <cstdlib>
#include <string>

namespace accel::tests {

/// How ends trust each other where a test is not about that: without keys; with `ACCEL_TEST_KEYS`, a folder
/// as of `key_folder`, by these and with `encrypt=required`. (`ACCEL_TEST_ENCRYPT=1` has main make one.)
[[nodiscard]] inline security_options usual_security(bool server) {
    security_options out;
    const char* const folder = std::getenv("ACCEL_TEST_KEYS");
    out.insecure = folder == nullptr;
    if (out.insecure) return out;
    const std::string keys = folder;
    out.key_file = keys + (server ? "/server.key" : "/client.key");
    out.encrypt = encryption::required;
    (server ? out.authorized_keys : out.server_key) = keys + (server ? "/authorized" : "/server.pub");
    return out;
}

}  // namespace accel::tests
