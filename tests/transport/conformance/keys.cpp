// SPDX-License-Identifier: Apache-2.0
#include "keys.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

namespace accel::tests {
namespace {

struct file_closer {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};

/// "ed25519:" and base64url without padding, made with OpenSSL's base64.
std::string public_text(const EVP_PKEY* key) {
    std::array<unsigned char, 32> raw{};
    std::array<unsigned char, 48> text{};
    std::size_t length = raw.size();
    EVP_PKEY_get_raw_public_key(key, raw.data(), &length);
    EVP_EncodeBlock(text.data(), raw.data(), static_cast<int>(raw.size()));
    std::string out(reinterpret_cast<const char*>(text.data()), 43);
    std::replace(out.begin(), out.end(), '+', '-');
    std::replace(out.begin(), out.end(), '/', '_');
    return "ed25519:" + out;
}

using key_ptr = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

key_ptr write_new_key(const std::string& path) {
    key_ptr key(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"), EVP_PKEY_free);
    const std::unique_ptr<std::FILE, file_closer> file(std::fopen(path.c_str(), "w"));
    if (!key || !file || PEM_write_PrivateKey(file.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1)
        throw std::runtime_error("OpenSSL makes no Ed25519 key");
    chmod(path.c_str(), 0600);
    return key;
}

}  // namespace

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
    const std::string base = path_ + "/" + name;
    const key_ptr key = write_new_key(base + ".key");
    std::ofstream(base + ".pub") << public_text(key.get()) << ' ' << name << '\n';
    return base;
}

std::string key_folder::certify(const std::string& name, const std::string& hosts) {
    constexpr long a_day = 24L * 60 * 60;
    const std::string base = path_ + "/" + name;
    const key_ptr key = write_new_key(base + ".key");
    const std::unique_ptr<X509, decltype(&X509_free)> made(X509_new(), X509_free);
    const auto* text = reinterpret_cast<const unsigned char*>(name.c_str());
    X509_set_version(made.get(), X509_VERSION_3);
    X509_NAME_add_entry_by_NID(X509_get_subject_name(made.get()), NID_commonName, MBSTRING_ASC, text, -1, -1, 0);
    X509_set_issuer_name(made.get(), X509_get_subject_name(made.get()));
    X509_gmtime_adj(X509_getm_notBefore(made.get()), -a_day);
    X509_gmtime_adj(X509_getm_notAfter(made.get()), a_day);
    X509_set_pubkey(made.get(), key.get());
    X509_EXTENSION* names = X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, hosts.c_str());
    X509_add_ext(made.get(), names, -1);
    X509_EXTENSION_free(names);
    const std::unique_ptr<std::FILE, file_closer> file(std::fopen((base + ".pem").c_str(), "w"));
    if (X509_sign(made.get(), key.get(), nullptr) <= 0 || !file || PEM_write_X509(file.get(), made.get()) != 1)
        throw std::runtime_error("OpenSSL makes no certificate");
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
