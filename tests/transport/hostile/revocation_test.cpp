// SPDX-License-Identifier: Apache-2.0
// Keys and certificates that are taken back while their clients are connected.
#include "hostile/attacks.hpp"
#include "hostile/authority.hpp"

#include <fstream>
#include <functional>
#include <stdexcept>

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace accel::hostile {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using tests::eventually;

struct revocation : arena {
    void SetUp() override {
        for (const char* each : {"first", "second"}) folder_.make(each);
        folder_.authorize({"client", "first", "second"});
        open();
        for (const char* each : {"first", "second"})
            guests_.push_back(std::make_unique<good_client>(server_->uri(), client_options(each)));
    }
    [[nodiscard]] bool second_ends_within(std::chrono::nanoseconds bound) {
        return eventually(bound, [&] { return !guests_[1]->trouble().empty(); });
    }
    void expect_second_gone() {
        EXPECT_TRUE(second_ends_within(patience(1s)));
        EXPECT_THAT(guests_[1]->trouble(), ::testing::AnyOf(HasSubstr("peer_lost"), HasSubstr("unauthorized")));
        context ctx = *context::open({.log = log_level::off});
        EXPECT_EQ(channel::connect(ctx, server_->uri(), client_options("second")).code(), status::unauthorized);
    }
    void expect_first_served() {
        EXPECT_EQ(guests_[0]->trouble(), "");
        const std::uint64_t before = guests_[0]->calls();
        EXPECT_TRUE(eventually(patience(2s), [&] { return guests_[0]->calls() > before; }));
    }
    void TearDown() override {
        guests_.clear();
        expect_unharmed();
    }
    std::vector<std::unique_ptr<good_client>> guests_;
};

TEST_P(revocation, a_revoked_key_loses_its_sessions_within_a_second) {
    folder_.authorize({"client", "first"});
    expect_second_gone();
    expect_first_served();
    EXPECT_TRUE(log_.tells("is no longer authorised"));
}

TEST_P(revocation, a_reload_revokes_keys_at_once) {
    folder_.authorize({"client", "first"});
    server_->tell("reload");
    EXPECT_EQ(server_->line(), "ok");
    EXPECT_TRUE(second_ends_within(patience(500ms)));
    expect_second_gone();
    expect_first_served();
}

/// Whoever has shown a key, but not yet said what for, is no exception.
TEST_P(revocation, a_revoked_key_loses_connections_that_have_not_greeted_yet) {
    auto quiet = wire::open(stranger_address, server_->where(), client_keys("second"));
    ASSERT_TRUE(quiet);
    std::this_thread::sleep_for(50ms);
    folder_.authorize({"client", "first"});
    server_->tell("reload");
    EXPECT_EQ(server_->line(), "ok");
    expect_second_gone();
    static_cast<void>(quiet->send(core::control_greeting));
    EXPECT_FALSE(quiet->open_session(wish()));
}

TEST_P(revocation, a_half_written_or_unreadable_key_list_changes_nothing) {
    std::ifstream file(folder_.file("authorized"));
    const std::string whole((std::istreambuf_iterator<char>(file)), {});
    // Never empty on the way: an empty file is whole, and lets nobody in.
    std::ofstream half(folder_.file("half"));
    half << whole.substr(0, whole.find("ed25519:") + 20) << std::flush;
    std::filesystem::rename(folder_.file("half"), folder_.file("authorized"));
    EXPECT_TRUE(log_.tells("the old keys stay in use"));
    server_->tell("reload");
    EXPECT_EQ(server_->line(), "unauthorized");
    for (const auto& each : guests_) EXPECT_EQ(each->trouble(), "");
    half << whole.substr(whole.find("ed25519:") + 20) << std::flush;
    half.close();
    std::this_thread::sleep_for(600ms);
    for (const auto& each : guests_) EXPECT_EQ(each->trouble(), "");
    std::filesystem::remove(folder_.file("authorized"));
    server_->tell("reload");
    EXPECT_EQ(server_->line(), "unauthorized");
    std::this_thread::sleep_for(600ms);
    for (const auto& each : guests_) EXPECT_EQ(each->trouble(), "");
    folder_.authorize({"client", "first", "second"});
}

TEST_P(revocation, each_peer_is_listed_by_its_key) {
    std::string peers;
    EXPECT_TRUE(eventually(patience(2s), [&] {
        server_->tell("peers");
        peers = server_->line();
        return peers.find(folder_.key("second")) != std::string::npos;
    }));
    for (const char* each : {"client", "first", "second"}) EXPECT_THAT(peers, HasSubstr(folder_.key(each)));
    EXPECT_THAT(peers, Not(HasSubstr(folder_.key("stranger"))));
}

INSTANTIATE_TEST_SUITE_P(hostile, revocation, ::testing::Values(true), with_or_without_keys);

struct certificates : ::testing::Test {
    certificates() {
        authority_.sign("localhost", authority::a_day, "serverAuth");
        for (const char* each : {"good.client", "bad.client"}) authority_.sign(each, authority::a_day, "clientAuth");
    }
    [[nodiscard]] static std::string uri(std::uint16_t port, const authority& from, const std::string& who,
                                         const std::string& known = "ca.pem") {
        return fmt::format("tcp://localhost:{}?cert_file={}&key_file={}&ca_file={}&peer_timeout={}s", port,
                           from.file(who + ".pem"), from.file(who + ".key"), from.file(known), 10 * time_factor());
    }
    void serve() {
        server_ = std::make_unique<victim>(uri(0, authority_, "localhost"), std::vector<std::string>{}, log_.fd());
        port_ = server_->where().port;
    }
    [[nodiscard]] std::string client_uri(const authority& from, const std::string& who) const {
        return uri(port_, from, who, clients_know_);
    }
    [[nodiscard]] static channel_options options() {
        channel_options out;
        out.connect_timeout = patience(3s);
        return out;
    }
    /// Clients know it by today's certificate, whatever becomes of ca.pem.
    void keep_authority() {
        clients_know_ = "kept.pem";
        std::filesystem::copy_file(authority_.file("ca.pem"), authority_.file(clients_know_));
    }
    /// A client that has connected before a certificate expires which `sign` makes for some seconds: as few as this
    /// machine leaves time for, and more the next time. `sign` gives its end.
    [[nodiscard]] std::unique_ptr<good_client> connect_in_time(const std::function<core::wall_time(long)>& sign,
                                                               const std::string& who) {
        for (;;) {
            lasts_ *= 2;
            end_ = sign(lasts_);
            try {
                return std::make_unique<good_client>(client_uri(authority_, who), options());
            } catch (const std::runtime_error& refused) {
                if (lasts_ > longest) throw;
            }
        }
    }
    void expect_ended(const good_client& by_expiry, const std::string& who) const {
        std::this_thread::sleep_until(end_ + 1s);
        EXPECT_TRUE(eventually(
            patience(180s), [&] { return !by_expiry.trouble().empty(); }, 10ms));
        EXPECT_THAT(by_expiry.trouble(), ::testing::AnyOf(HasSubstr("peer_lost"), HasSubstr("unauthorized")));
        context ctx = *context::open({.log = log_level::off});
        const auto again = channel::connect(ctx, client_uri(authority_, who), options());
        ASSERT_EQ(again.code(), status::unauthorized);
        EXPECT_THAT(again.error().message, HasSubstr("expired"));
    }
    key_folder folder_;
    authority authority_{folder_.file("")};
    log_file log_;
    std::unique_ptr<victim> server_;
    std::uint16_t port_ = 0;
    std::string clients_know_ = "ca.pem";
    static constexpr long longest = 60;
    long lasts_ = 1;  ///< the last certificate that was made to expire, in seconds
    core::wall_time end_;
};

TEST_F(certificates, certificates_of_one_authority_connect_and_name_the_peer) {
    serve();
    good_client guest(client_uri(authority_, "good.client"), options());
    EXPECT_TRUE(eventually(patience(2s), [&] { return guest.calls() > 0; })) << guest.trouble();
    server_->tell("peers");
    EXPECT_EQ(server_->line(), "good.client ");
}

/// A handler that knows clients by their keys must not take one for another.
TEST_F(certificates, a_certificate_named_like_a_key_is_refused) {
    serve();
    const std::string name = "ed25519:" + std::string(43, 'A');
    authority_.sign(name);
    context ctx = *context::open({.log = log_level::off});
    const auto made = channel::connect(ctx, client_uri(authority_, name), options());
    ASSERT_EQ(made.code(), status::unauthorized);
    EXPECT_NE(made.error().message.find("has no name"), std::string::npos) << made.error().message;
}

TEST_F(certificates, a_certificate_of_another_authority_is_refused) {
    serve();
    const key_folder other_folder;
    authority other(other_folder.file(""));
    other.sign("good.client");
    context ctx = *context::open({.log = log_level::off});
    // It trusts the server, but the server does not trust it.
    const std::string mixed =
        fmt::format("tcp://localhost:{}?cert_file={}&key_file={}&ca_file={}", port_, other.file("good.client.pem"),
                    other.file("good.client.key"), authority_.file("ca.pem"));
    EXPECT_EQ(channel::connect(ctx, mixed, options()).code(), status::unauthorized);
    EXPECT_EQ(channel::connect(ctx, client_uri(other, "good.client"), options()).code(), status::unauthorized);
}

TEST_F(certificates, an_expired_certificate_of_a_client_ends_its_sessions) {
    serve();
    good_client good(client_uri(authority_, "good.client"), options());
    const auto brief =
        connect_in_time([this](long lasts) { return authority_.sign("brief.client", lasts); }, "brief.client");
    expect_ended(*brief, "brief.client");
    EXPECT_TRUE(log_.tells("brief.client at 127.0.0.1 is no longer authorised (certificate has expired)"))
        << log_.text();
    EXPECT_EQ(good.trouble(), "");
    const std::uint64_t before = good.calls();
    EXPECT_TRUE(eventually(patience(2s), [&] { return good.calls() > before; }));
}

TEST_F(certificates, an_expired_certificate_of_a_server_ends_its_sessions) {
    const auto client = connect_in_time(
        [this](long lasts) {
            const core::wall_time end = authority_.sign("localhost", lasts);
            serve();
            return end;
        },
        "good.client");
    expect_ended(*client, "good.client");
    EXPECT_EQ(log_.text().find("no longer authorised"), std::string::npos) << "the client has ended it";
}

/// The server knows the authority by a certificate that expires, its client by one that lasts.
TEST_F(certificates, an_expired_authority_ends_sessions) {
    keep_authority();
    const auto client = connect_in_time(
        [this](long lasts) {
            const core::wall_time end = authority_.renew(lasts);
            serve();
            return end;
        },
        "good.client");
    EXPECT_TRUE(log_.tells("good.client at 127.0.0.1 is no longer authorised (certificate has expired)", 180s))
        << log_.text();
    EXPECT_TRUE(eventually(patience(30s), [&] { return !client->trouble().empty(); }));
}

TEST_F(certificates, an_authority_renewed_in_time_ends_no_session) {
    std::unique_ptr<good_client> client;
    do {
        ASSERT_LE(lasts_, longest);
        client = connect_in_time(
            [this](long lasts) {
                const core::wall_time end = authority_.renew(lasts);
                serve();
                return end;
            },
            "good.client");
        const core::testing::log_capture clients_log(log_level::info);
        authority_.renew();
        server_->tell("reload");
        EXPECT_EQ(server_->line(), "ok");
        EXPECT_TRUE(eventually(patience(180s), [&] {
            return clients_log.text().find("loaded again") != std::string::npos || core::wall_now() >= end_;
        }));
    } while (core::wall_now() >= end_);
    std::this_thread::sleep_until(end_ + 1s);
    const std::uint64_t before = client->calls();
    EXPECT_TRUE(eventually(patience(10s), [&] { return client->calls() > before; })) << client->trouble();
}

/// Where certificates last for hours, their files are renewed under a running client.
TEST_F(certificates, a_renewed_certificate_reconnects_a_channel) {
    serve();
    context ctx = *context::open({.log = log_level::off});
    channel_options again = options();
    again.reconnect = true;
    again.backoff_min = again.backoff_max = 2s;  // its control connection, which reads keys as well, is gone by then
    std::optional<channel> client;
    const std::array<std::byte, 8> request{};
    for (long lasts = 2; !client && lasts <= longest; lasts *= 2) {
        authority_.sign("brief.client", lasts);
        auto made = channel::connect(ctx, client_uri(authority_, "brief.client"), again);
        if (made && made->call(request).ok()) client = std::move(*made);
    }
    ASSERT_TRUE(client);
    authority_.sign("brief.client");
    EXPECT_TRUE(log_.tells("brief.client at 127.0.0.1 is no longer authorised", 180s));
    const auto served = [&] { return client->call(request).ok() && client->statistics().reconnects > 0; };
    EXPECT_TRUE(eventually(patience(60s), served));
    EXPECT_EQ(client->resolve("nothing").code(), status::not_found) << "over the control plane";
}

TEST_F(certificates, a_revoked_server_loses_its_sessions) {
    serve();
    good_client guest(client_uri(authority_, "good.client"), options());
    EXPECT_TRUE(eventually(patience(2s), [&] { return guest.calls() > 0; })) << guest.trouble();
    authority_.revoke({"localhost"});
    EXPECT_TRUE(eventually(patience(10s), [&] { return !guest.trouble().empty(); }));
    EXPECT_THAT(guest.trouble(), ::testing::AnyOf(HasSubstr("peer_lost"), HasSubstr("unauthorized")));
    EXPECT_EQ(log_.text().find("no longer authorised"), std::string::npos) << "the client has ended it";
    context ctx = *context::open({.log = log_level::off});
    EXPECT_EQ(channel::connect(ctx, client_uri(authority_, "good.client"), options()).code(), status::unauthorized);
}

TEST_F(certificates, a_revoked_client_loses_its_sessions) {
    serve();
    good_client good(client_uri(authority_, "good.client"), options());
    good_client bad(client_uri(authority_, "bad.client"), options());
    EXPECT_TRUE(eventually(patience(2s), [&] { return bad.calls() > 0; })) << bad.trouble();
    authority_.revoke({"bad.client"});
    EXPECT_TRUE(eventually(patience(1s), [&] { return !bad.trouble().empty(); })) << log_.text();
    EXPECT_EQ(good.trouble(), "");
    const std::uint64_t before = good.calls();
    EXPECT_TRUE(eventually(patience(2s), [&] { return good.calls() > before; }));
    context ctx = *context::open({.log = log_level::off});
    EXPECT_EQ(channel::connect(ctx, client_uri(authority_, "bad.client"), options()).code(), status::unauthorized);
    EXPECT_TRUE(channel::connect(ctx, client_uri(authority_, "good.client"), options()).ok());
}

}  // namespace
}  // namespace accel::hostile
