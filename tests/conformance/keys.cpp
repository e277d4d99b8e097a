#include "keys.hpp"

#include <array>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

namespace accel::tests {

key_folder::key_folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "accel-keys-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no folder for keys");
    path_ = pattern;
    make_pair("server");
    make_pair("client");
    authorise("authorized", {path_ + "/client"});
}

key_folder::~key_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

std::string key_folder::make_pair(const std::string& name) {
    std::array<char, 41> public_key{};
    std::array<char, 41> secret_key{};
    if (zmq_curve_keypair(public_key.data(), secret_key.data()) != 0)
        throw std::runtime_error("this ZeroMQ has no CURVE");
    const std::string base = path_ + "/" + name;
    const std::string public_line = std::string("public-key = \"") + public_key.data() + "\"\n";
    std::ofstream(base + ".pub") << "metadata\ncurve\n    " << public_line;
    std::ofstream(base + ".key") << "metadata\ncurve\n    " << public_line << "    secret-key = \""
                                 << secret_key.data() << "\"\n";
    chmod((base + ".key").c_str(), 0600);
    return base;
}

std::string key_folder::authorise(const std::string& file, const std::vector<std::string>& pairs) {
    const std::string name = path_ + "/" + file;
    std::ofstream out(name);
    for (const std::string& pair : pairs) out << std::ifstream(pair + ".pub").rdbuf();
    return name;
}

security_options key_folder::server() {
    security_options out;
    out.key_file = path_ + "/server.key";
    out.authorized_keys = path_ + "/authorized";
    return out;
}

security_options key_folder::client() {
    security_options out;
    out.key_file = path_ + "/client.key";
    out.server_key = path_ + "/server.pub";
    return out;
}

}  // namespace accel::tests
