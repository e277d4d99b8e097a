// SPDX-License-Identifier: Apache-2.0
// Peers that do not trust each other: the sentences name what was shown and what is trusted, and advise what fits.
#include "clients/names.hpp"
#include "hostile/attacks.hpp"
#include "hostile/authority.hpp"

#include <cstdio>
#include <fstream>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

namespace accel::hostile {
namespace {

using namespace std::chrono_literals;

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using tests::eventually;
using tests::until_hung;

/// As `openssl x509 -fingerprint -sha256` writes it.
std::string fingerprint_of(const std::string& file) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> from(std::fopen(file.c_str(), "r"), std::fclose);
    const core::x509_ptr read(PEM_read_X509(from.get(), nullptr, nullptr, nullptr));
    std::array<unsigned char, 32> sum{};
    X509_digest(read.get(), EVP_sha256(), sum.data(), nullptr);
    std::string out;
    for (const unsigned char each : sum) out += fmt::format("{}{:02X}", out.empty() ? "" : ":", each);
    return out;
}

using file = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

/// A certificate for `key`, named and signed by `signer`.
core::x509_ptr signed_by(EVP_PKEY* signer, EVP_PKEY* key, const char* name) {
    core::x509_ptr made(X509_new());
    X509_set_version(made.get(), X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(made.get()), 7);
    X509_gmtime_adj(X509_getm_notBefore(made.get()), -60);
    X509_gmtime_adj(X509_getm_notAfter(made.get()), 3600);
    const auto entry = [](X509_NAME* to, const char* text) {
        X509_NAME_add_entry_by_NID(to, NID_commonName, MBSTRING_ASC, reinterpret_cast<const unsigned char*>(text), -1,
                                   -1, 0);
    };
    entry(X509_get_subject_name(made.get()), name);
    entry(X509_get_issuer_name(made.get()), "weak");
    X509_EXTENSION* ca = X509V3_EXT_conf_nid(nullptr, nullptr, NID_basic_constraints, "critical,CA:TRUE");
    if (signer == key) X509_add_ext(made.get(), ca, -1);
    X509_EXTENSION_free(ca);
    X509_set_pubkey(made.get(), key);
    X509_sign(made.get(), signer, EVP_sha256());
    return made;
}

void write_pair(const std::string& path, EVP_PKEY* key, X509* certificate) {
    const file open_part(std::fopen((path + ".pem").c_str(), "w"), std::fclose);
    PEM_write_X509(open_part.get(), certificate);
    const file secret(std::fopen((path + ".key").c_str(), "w"), std::fclose);
    ::chmod((path + ".key").c_str(), 0600);
    PEM_write_PrivateKey(secret.get(), key, nullptr, nullptr, 0, nullptr, nullptr);
}

/// weak.pem is of a key that anybody can break, which has signed fragile.pem.
void write_weak_pairs(const key_folder& to) {
    const core::pkey_ptr weak(EVP_PKEY_Q_keygen(nullptr, nullptr, "RSA", std::size_t{512}));
    const core::pkey_ptr strong(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
    write_pair(to.file("weak"), weak.get(), signed_by(weak.get(), weak.get(), "weak").get());
    write_pair(to.file("fragile"), strong.get(), signed_by(weak.get(), strong.get(), "fragile").get());
}

class trust : public ::testing::Test {
  protected:
    trust() {
        for (const char* each : {"localhost", "client"}) {
            ours_.sign(each);
            theirs_.sign(each);
        }
    }
    static std::string certificates(const authority& own, const std::string& who, const authority& trusted) {
        return fmt::format("cert_file={}&key_file={}&ca_file={}", own.file(who + ".pem"), own.file(who + ".key"),
                           trusted.file("ca.pem"));
    }
    [[nodiscard]] result<server> serve(const std::string& keys, const std::string& host = "localhost") {
        return server::listen(ctx_, {"tcp://" + host + ":0?" + keys}, [](exchange one) { (void)one.reply(0); });
    }
    /// NAME:PORT by which it is reached from now on.
    [[nodiscard]] static std::string named(const server& at, const std::string& name) {
        const std::string bound = at.endpoints().at(0);
        tests::let_name_have(name, {"127.0.0.1"});
        return name + bound.substr(bound.rfind(':'));
    }
    [[nodiscard]] bool logged(const std::string& part) const {
        return log_.text().find(part, before_) != std::string::npos;
    }
    /// What the client is told. `logged` tells what the server has said.
    [[nodiscard]] std::string refused(const std::string& serving, const std::string& calling) {
        before_ = log_.text().size();
        auto at = serve(serving);
        EXPECT_TRUE(at) << at.error().message;
        std::string said;
        EXPECT_TRUE(eventually(until_hung(), [&] {
            const auto made = channel::connect(ctx_, at->endpoints().at(0) + "?" + calling);
            EXPECT_EQ(made.code(), status::unauthorized);
            if (!made) said = made.error().message;
            // Tried again where the log has had many refusals in this second.
            return tests::within(500ms, [&] { return logged("refused") || logged("does not accept"); });
        }));
        return said;
    }

    core::testing::log_capture log_;
    std::size_t before_ = 0;
    context ctx_ = context::open().value();
    key_folder folder_;
    key_folder other_folder_;
    authority ours_{folder_.file("")};
    authority theirs_{other_folder_.file("")};
};

TEST_F(trust, a_refusal_names_certificates_by_fingerprint) {
    const std::string client = fingerprint_of(theirs_.file("client.pem"));
    const std::string said = refused(certificates(ours_, "localhost", ours_), certificates(theirs_, "client", ours_));
    EXPECT_THAT(said, AllOf(HasSubstr("does not accept 'client' (SHA-256 " + client + ")"), HasSubstr("ca_file"),
                            Not(HasSubstr("authorized_keys"))));
    EXPECT_TRUE(logged("is not valid here")) << log_.text();
    EXPECT_TRUE(logged("'client' (SHA-256 " + client + ")")) << log_.text();
    EXPECT_TRUE(
        logged("this end trusts the authority 'the authority' (SHA-256 " + fingerprint_of(ours_.file("ca.pem")) + ")"))
        << log_.text();
    EXPECT_FALSE(logged("authorized_keys")) << log_.text();
}

TEST_F(trust, a_client_that_refuses_the_server_names_its_certificate) {
    const std::string said = refused(certificates(ours_, "localhost", ours_), certificates(ours_, "client", theirs_));
    EXPECT_THAT(said, AllOf(HasSubstr("'localhost' (SHA-256 " + fingerprint_of(ours_.file("localhost.pem")) + ")"),
                            HasSubstr(fingerprint_of(theirs_.file("ca.pem")))));
    EXPECT_FALSE(logged("authorized_keys")) << log_.text();
}

/// By name and by address: the certificate has to be for what the client's URI says.
TEST_F(trust, a_client_connects_only_to_a_host_that_the_certificate_is_for) {
    std::vector<std::string> hosts{"localhost", "127.0.0.1"};
    if (tests::has_ipv6()) hosts.emplace_back("[::1]");
    const std::vector<std::pair<std::string, std::set<std::string>>> certificates_for{
        {"DNS:localhost", {"localhost"}},
        {"IP:127.0.0.1", {"127.0.0.1"}},
        {"IP:::1", {"[::1]"}},
        {"DNS:elsewhere,IP:::1,IP:127.0.0.1", {"127.0.0.1", "[::1]"}},
        {"DNS:elsewhere,IP:127.0.0.2,IP:::2", {}},
        {"DNS:127.0.0.1,DNS:::1", {}},  // names that look like addresses
    };
    for (const auto& [shown, good] : certificates_for) {
        ours_.sign("server", authority::a_day, {}, shown);
        for (const std::string& host : hosts) {
            auto at = serve(certificates(ours_, "server", ours_), host);
            ASSERT_TRUE(at) << at.error().message;
            const auto made =
                channel::connect(ctx_, at->endpoints().at(0) + "?" + certificates(ours_, "client", ours_));
            EXPECT_EQ(made.code(), good.contains(host) ? status::ok : status::unauthorized)
                << host << " with a certificate for " << shown;
            if (made) continue;
            EXPECT_THAT(made.error().message, HasSubstr("certificate is not valid here"));
        }
    }
}

TEST_F(trust, a_certificate_has_to_have_the_server_name_instead_of_the_host) {
    const auto at = serve(certificates(ours_, "localhost", ours_), "127.0.0.1");
    ASSERT_TRUE(at) << at.error().message;
    const std::string uri = at->endpoints().at(0) + "?" + certificates(ours_, "client", ours_);
    EXPECT_EQ(channel::connect(ctx_, uri).code(), status::unauthorized);
    EXPECT_EQ(channel::connect(ctx_, uri + "&server_name=elsewhere").code(), status::unauthorized);
    auto made = channel::connect(ctx_, uri + "&server_name=localhost");
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_TRUE(made->call({}).ok());
    EXPECT_EQ(channel::connect(ctx_, uri).code(), status::unauthorized) << "over a connection of its own";
}

/// They are reached by their addresses.
TEST_F(trust, servers_behind_a_name_have_to_have_certificates_for_it) {
    const auto at = serve(certificates(ours_, "localhost", ours_), "127.0.0.1");
    ASSERT_TRUE(at) << at.error().message;
    const std::string uri = "dns+tcp://" + named(*at, "localhost.test") + "?" + certificates(ours_, "client", ours_);
    const auto checked = [&](const std::string& more, const std::string& server_name = {}) {
        channel_options options;
        options.security.server_name = server_name;
        auto pool = channel_pool::open(ctx_, uri + more, options);
        EXPECT_TRUE(pool) << pool.error().message;
        const status called = pool->call({}).code();
        EXPECT_EQ(channel::connect(ctx_, uri + more, options).code(), called);
        return called;
    };
    EXPECT_EQ(checked(""), status::unauthorized);
    EXPECT_EQ(checked("&server_name=localhost"), status::ok);
    EXPECT_EQ(checked("", "localhost"), status::ok) << "named by the options";
    EXPECT_EQ(checked("&server_name=elsewhere", "localhost"), status::unauthorized) << "the URI comes first";

    ours_.sign("server", authority::a_day, {}, "DNS:localhost.test");
    const auto right = serve(certificates(ours_, "server", ours_), "127.0.0.1");
    ASSERT_TRUE(right) << right.error().message;
    const std::string to = "dns+tcp://" + named(*right, "localhost.test") + "?" + certificates(ours_, "client", ours_);
    for (const char* more : {"", "&server_name="}) {
        const auto made = channel::connect(ctx_, to + more);
        EXPECT_TRUE(made) << more << ": " << made.error().message;
    }
    channel_options other;
    other.security.server_name = "elsewhere";
    EXPECT_EQ(channel::connect(ctx_, to, other).code(), status::unauthorized);
}

TEST_F(trust, channel_that_reconnects_checks_each_server_for_its_own_name) {
    ours_.sign("one.test");
    ours_.sign("two.test");
    auto one = serve(certificates(ours_, "one.test", ours_), "127.0.0.1");
    const auto two = serve(certificates(ours_, "two.test", ours_), "127.0.0.1");
    ASSERT_TRUE(one && two);
    const std::string uri = "dns+tcp://" + named(*one, "one.test") + "," + named(*two, "two.test");
    auto made = channel::connect(
        ctx_, uri + "?reconnect=true&backoff_min=5ms&backoff_max=20ms&" + certificates(ours_, "client", ours_));
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_EQ(made->endpoint(), one->endpoints().at(0));
    EXPECT_TRUE(made->call({}).ok());
    one->stop();
    EXPECT_TRUE(eventually([&] { return made->call({}).ok(); }));
    EXPECT_EQ(made->endpoint(), two->endpoints().at(0));
    EXPECT_TRUE(made->targets().ok()) << "the control plane checks the same name";
}

TEST_F(trust, a_certificate_is_good_for_its_purpose_alone) {
    ours_.sign("localhost", authority::a_day, "clientAuth");
    (void)refused(certificates(ours_, "localhost", ours_), certificates(ours_, "client", ours_));
    ours_.sign("localhost", authority::a_day, "serverAuth");
    ours_.sign("client", authority::a_day, "serverAuth");
    (void)refused(certificates(ours_, "localhost", ours_), certificates(ours_, "client", ours_));
}

TEST_F(trust, a_weak_certificate_is_called_that) {
    write_weak_pairs(folder_);
    const auto made = serve(certificates(ours_, "weak", ours_));
    ASSERT_EQ(made.code(), status::unauthorized);
    EXPECT_THAT(made.error().message, HasSubstr("is too weak"));

    std::filesystem::copy_file(folder_.file("ca.pem"), other_folder_.file("ca.pem"),
                               std::filesystem::copy_options::overwrite_existing);
    std::ofstream(folder_.file("ca.pem"), std::ios::app) << std::ifstream(folder_.file("weak.pem")).rdbuf();
    (void)refused(certificates(ours_, "localhost", ours_), certificates(ours_, "fragile", theirs_));
    EXPECT_TRUE(logged("certificate is too weak")) << log_.text();
    EXPECT_TRUE(logged("this end trusts 2 authorities")) << log_.text();
    // A client that knows the weak authority would show it too.
    EXPECT_THAT(refused(certificates(ours_, "localhost", ours_), certificates(ours_, "fragile", ours_)),
                HasSubstr("is too weak"));
}

TEST_F(trust, a_refused_key_advises_the_end_that_can_help) {
    const auto keys = [&](const security_options& from) {
        return fmt::format("key_file={}&{}={}", from.key_file,
                           from.server_key.empty() ? "authorized_keys" : "server_key",
                           from.server_key.empty() ? from.authorized_keys : from.server_key);
    };
    EXPECT_THAT(refused(keys(folder_.server()), keys(folder_.client("stranger"))),
                AllOf(HasSubstr("add this key to authorized_keys of the server"), Not(HasSubstr("server_key"))));
    security_options deceived = folder_.client("client");
    deceived.server_key = folder_.file("stranger.pub");
    EXPECT_THAT(refused(keys(folder_.server()), keys(deceived)),
                AllOf(HasSubstr("set server_key to its public key"), Not(HasSubstr("authorized_keys"))));
    EXPECT_FALSE(logged("authorized_keys")) << log_.text();
    EXPECT_TRUE(logged("its server_key must be this key")) << log_.text();
}

}  // namespace
}  // namespace accel::hostile
