// SPDX-License-Identifier: Apache-2.0
#include "hostile/authority.hpp"

#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>
#include <stdexcept>
#include <utility>

#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

namespace accel::hostile {
namespace {

struct file_closer {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};
using file_ptr = std::unique_ptr<std::FILE, file_closer>;

file_ptr open_file(const std::string& path, const char* mode) {
    file_ptr out(std::fopen(path.c_str(), mode));
    if (!out) throw std::runtime_error("cannot write " + path);
    return out;
}

core::pkey_ptr new_key() {
    return core::pkey_ptr(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
}

void add_extension(X509* to, X509* issuer, int what, const std::string& value) {
    X509V3_CTX context{};
    X509V3_set_ctx(&context, issuer, to, nullptr, nullptr, 0);
    X509_EXTENSION* made = X509V3_EXT_conf_nid(nullptr, &context, what, value.c_str());
    if (made == nullptr) throw std::runtime_error("no extension " + value);
    X509_add_ext(to, made, -1);
    X509_EXTENSION_free(made);
}

core::x509_ptr new_certificate(const std::string& name, long serial, EVP_PKEY* key, const X509* issuer, long lasts) {
    core::x509_ptr made(X509_new());
    X509_set_version(made.get(), X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(made.get()), serial);
    X509_gmtime_adj(X509_getm_notBefore(made.get()), -authority::a_day);
    X509_gmtime_adj(X509_getm_notAfter(made.get()), lasts);
    const auto* text = reinterpret_cast<const unsigned char*>(name.c_str());
    X509_NAME_add_entry_by_NID(X509_get_subject_name(made.get()), NID_commonName, MBSTRING_ASC, text, -1, -1, 0);
    X509_set_issuer_name(made.get(), X509_get_subject_name(issuer != nullptr ? issuer : made.get()));
    X509_set_pubkey(made.get(), key);
    return made;
}

core::wall_time last_second_of(const X509* certificate) {
    std::tm end{};
    ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &end);
    return core::wall_time{std::chrono::seconds{::timegm(&end)}};
}

}  // namespace

authority::authority(std::string folder, long lasts) : folder_(std::move(folder)), key_(new_key()) {
    renew(lasts);
}

core::wall_time authority::renew(long lasts) {
    own_ = new_certificate("the authority", serial_, key_.get(), nullptr, lasts);
    add_extension(own_.get(), own_.get(), NID_basic_constraints, "critical,CA:TRUE");
    add_extension(own_.get(), own_.get(), NID_key_usage, "critical,keyCertSign,cRLSign");
    X509_sign(own_.get(), key_.get(), nullptr);
    write_certificate("ca", own_.get());
    return last_second_of(own_.get());
}

core::wall_time authority::sign(const std::string& name, long lasts, const std::string& use, const std::string& hosts) {
    const core::pkey_ptr key = new_key();
    const core::x509_ptr made = new_certificate(name, ++serial_, key.get(), own_.get(), lasts);
    add_extension(made.get(), own_.get(), NID_subject_alt_name, hosts.empty() ? "DNS:" + name : hosts);
    if (!use.empty()) add_extension(made.get(), own_.get(), NID_ext_key_usage, use);
    X509_sign(made.get(), key_.get(), nullptr);
    write_key(name, key.get());
    write_certificate(name, made.get());
    return last_second_of(made.get());
}

void authority::revoke(const std::vector<std::string>& names) {
    const std::unique_ptr<X509_CRL, decltype(&X509_CRL_free)> list(X509_CRL_new(), X509_CRL_free);
    X509_CRL_set_version(list.get(), 1);
    X509_CRL_set_issuer_name(list.get(), X509_get_subject_name(own_.get()));
    const std::unique_ptr<ASN1_TIME, decltype(&ASN1_TIME_free)> time(ASN1_TIME_new(), ASN1_TIME_free);
    X509_gmtime_adj(time.get(), -60);
    X509_CRL_set1_lastUpdate(list.get(), time.get());
    for (const std::string& each : names) {
        const file_ptr file = open_file(this->file(each + ".pem"), "r");
        const core::x509_ptr gone(PEM_read_X509(file.get(), nullptr, nullptr, nullptr));
        X509_REVOKED* entry = X509_REVOKED_new();
        X509_REVOKED_set_serialNumber(entry, X509_get_serialNumber(gone.get()));
        X509_REVOKED_set_revocationDate(entry, time.get());
        X509_CRL_add0_revoked(list.get(), entry);
    }
    X509_gmtime_adj(time.get(), a_day);
    X509_CRL_set1_nextUpdate(list.get(), time.get());
    X509_CRL_sort(list.get());
    X509_CRL_sign(list.get(), key_.get(), nullptr);
    const file_ptr file = open_file(this->file("ca.pem"), "a");
    PEM_write_X509_CRL(file.get(), list.get());
}

void authority::write_key(const std::string& name, EVP_PKEY* key) const {
    const file_ptr out = open_file(file(name + ".key"), "w");
    ::chmod(file(name + ".key").c_str(), 0600);
    PEM_write_PrivateKey(out.get(), key, nullptr, nullptr, 0, nullptr, nullptr);
}

void authority::write_certificate(const std::string& name, X509* certificate) const {
    const file_ptr out = open_file(file(name + ".pem"), "w");
    PEM_write_X509(out.get(), certificate);
}

}  // namespace accel::hostile
