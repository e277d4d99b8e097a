// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/control/security.hpp"
#include "core/tls/key_file.hpp"
#include "fuzz_target.hpp"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace accel::tests {

/// Keys of a server and two clients, of which it knows the first, for all inputs.
class key_ring {
  public:
    key_ring() {
        std::string name = (std::filesystem::temp_directory_path() / "accel_fuzz_XXXXXX").string();
        folder_ = ::mkdtemp(name.data());
        for (const char* each : {"server", "client", "stranger"}) {
            auto key = core::make_private_key();
            require(key.ok() && core::write_key_files(file(each), key->get(), false).ok(), "keys are made");
            if (std::string_view(each) == "client") client_name = core::public_half(key->get())->text();
            if (std::string_view(each) == "stranger") stranger_name = core::public_half(key->get())->text();
        }
        std::filesystem::copy_file(file("client.pub"), file("authorized"));
        security_options options;
        options.key_file = file("server.key");
        options.authorized_keys = file("authorized");
        server = *core::live_security::of_server(options);
    }
    ~key_ring() { std::filesystem::remove_all(folder_); }
    key_ring(const key_ring&) = delete;
    key_ring& operator=(const key_ring&) = delete;

    /// Lets in the client, or the stranger in its place.
    void authorize(bool client) {
        if (client == authorized_) return;
        authorized_ = client;
        std::filesystem::copy_file(file(client ? "client.pub" : "stranger.pub"), file("authorized"),
                                   std::filesystem::copy_options::overwrite_existing);
        require(server->reload().ok(), "keys are loaded again");
    }
    [[nodiscard]] const std::shared_ptr<const core::credentials>& credentials_of(bool stranger) {
        auto& made = clients_[stranger ? 1U : 0U];
        if (made) return made;
        security_options options;
        options.key_file = file(stranger ? "stranger.key" : "client.key");
        options.server_key = file("server.pub");
        made = *core::credentials::for_client(options);
        return made;
    }

    std::shared_ptr<core::live_security> server;
    std::string client_name;
    std::string stranger_name;

  private:
    [[nodiscard]] std::string file(const std::string& name) const { return (folder_ / name).string(); }
    std::filesystem::path folder_;
    bool authorized_ = true;
    std::array<std::shared_ptr<const core::credentials>, 2> clients_;
};

inline key_ring& keys() {
    static key_ring made;
    return made;
}

}  // namespace accel::tests
