#include "core/control/key_file.hpp"

#include <accel_transport/config.hpp>

#include <cstdio>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

/// Makes a CURVE key pair: NAME.key for the one who owns it, NAME.pub for everyone else.
int main(int argc, char** argv) {
    CLI::App app{"Makes a key pair for a server or a client of accel_transport.", "accel_keys"};
    std::string name;
    bool force = false;
    app.add_option("NAME", name,
                   "path without ending: NAME.key (private, mode 0600) and NAME.pub are written")
        ->required();
    app.add_flag("--force", force, "replace files that exist already");
    app.set_version_flag("--version", fmt::format("accel_keys {}.{}.{}", ACCEL_VERSION_MAJOR,
                                                  ACCEL_VERSION_MINOR, ACCEL_VERSION_PATCH));
    app.footer(
        "Examples:\n"
        "  accel_keys server\n"
        "  accel_keys alice && cat alice.pub >> authorized_keys");
    CLI11_PARSE(app, argc, argv);

    const auto failed = [](const accel::error& why) {
        fmt::print(stderr, "accel_keys: {}\n", why.message);
        return 1;
    };
    auto keys = accel::core::make_key_pair();
    if (!keys) return failed(keys.error());
    if (auto written = accel::core::write_key_files(name, *keys, force); !written)
        return failed(written.error());
    fmt::print(
        "{0}.key  private: stays with its owner\n"
        "{0}.pub  public: {1}\n"
        "\n"
        "For a server:  key_file={0}.key&authorized_keys=FILE, where FILE holds the clients' public keys.\n"
        "For a client:  key_file={0}.key&server_key=SERVER.pub, and on the server: cat {0}.pub >> FILE\n",
        name, keys->public_key);
    return 0;
}
