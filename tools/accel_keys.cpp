// SPDX-License-Identifier: Apache-2.0
#include "core/tls/key_file.hpp"

#include <accel_transport/config.hpp>

#include <cstdio>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace {

int failed(const accel::error& why) {
    fmt::print(stderr, "accel_keys: {}\n", why.message);
    return 1;
}

int make(const std::string& name, bool force) {
    auto key = accel::core::make_private_key();
    if (!key) return failed(key.error());
    if (auto written = accel::core::write_key_files(name, key->get(), force); !written) return failed(written.error());
    fmt::print(
        "{0}.key  private: stays with its owner\n"
        "{0}.pub  public: {1}\n"
        "\n"
        "For a server:  key_file={0}.key&authorized_keys=FILE, where FILE holds the clients' public keys.\n"
        "For a client:  key_file={0}.key&server_key={1}, and on the server: cat {0}.pub >> FILE\n"
        "A server reads FILE again when it changes: a key that is taken out loses its sessions within a "
        "second.\n",
        name, accel::core::public_half(key->get())->text());
    return 0;
}

int show(const std::string& file) {
    auto key = accel::core::public_key_of_file(file);
    if (!key) return failed(key.error());
    fmt::print("{}\n", key->text());
    return 0;
}

}  // namespace

/// Makes Ed25519 key pairs, and tells the public key in files that others have made.
int main(int argc, char** argv) {
    CLI::App app{"Makes a key pair for a server or a client of accel_transport.", "accel_keys"};
    std::string name;
    std::string shown;
    bool force = false;
    auto* make_name =
        app.add_option("NAME", name, "path without ending: NAME.key (private, mode 0600) and NAME.pub are written");
    auto* show_file =
        app.add_option("--public", shown,
                       "prints the public key in a file: a private key (PEM), a certificate (PEM), a .pub file, or an "
                       "ssh-ed25519 line; writes no files");
    make_name->excludes(show_file);
    app.add_flag("--force", force, "replace existing files");
    app.set_version_flag(
        "--version", fmt::format("accel_keys {}.{}.{}", ACCEL_VERSION_MAJOR, ACCEL_VERSION_MINOR, ACCEL_VERSION_PATCH));
    app.footer(
        "Examples:\n"
        "  accel_keys server\n"
        "  accel_keys alice && cat alice.pub >> authorized_keys\n"
        "  accel_keys --public ~/.ssh/id_ed25519.pub >> authorized_keys\n"
        "Private keys are PEM files, as 'openssl genpkey -algorithm ed25519' writes them.");
    CLI11_PARSE(app, argc, argv);
    if (!shown.empty()) return show(shown);
    if (!name.empty()) return make(name, force);
    fmt::print(stderr, "accel_keys: give the name of the key pair, as in 'accel_keys server'\n");
    return 2;
}
