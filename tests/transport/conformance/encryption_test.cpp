// SPDX-License-Identifier: Apache-2.0
// `encrypt` at both ends: what is refused, in which words, and that nothing becomes plain silently.
#include "keys.hpp"
#include "rig.hpp"

#include <optional>
#include <string>

namespace accel::tests {
namespace {

class encrypting : public on_every_backend {
  protected:
    static bool can_encrypt() { return GetParam().encrypted; }
    server_options serving(encryption wanted) {
        server_options options = calm_server();
        options.security = keys_.server();
        options.security.encrypt = wanted;
        return options;
    }
    channel_options calling(encryption wanted) {
        channel_options options = calm_client();
        options.security = keys_.client();
        options.security.encrypt = wanted;
        return options;
    }
    static void expect_refused(const error& why, status code, const std::string& option) {
        EXPECT_EQ(why.code, code) << why.message;
        EXPECT_NE(why.message.find(option), std::string::npos) << why.message;
    }
    /// Connects and calls; what went wrong, if anything did.
    std::optional<error> attempt(rig& at, encryption wanted) {
        auto connected = at.try_connect(calling(wanted));
        if (!connected) return connected.error();
        EXPECT_TRUE(connected->call({}));
        return std::nullopt;
    }
    key_folder keys_;
};

/// Each pair of wishes: what both want, or a refusal that names the option.
TEST_P(encrypting, nothing_becomes_plain_silently) {
    using enum encryption;
    const bool tcp = GetParam().scheme == "tcp";  // zmq has nothing but CURVE with keys, whatever the option says
    for (const encryption served : {automatic, required, off}) {
        SCOPED_TRACE(::testing::Message() << "served with " << static_cast<int>(served));
        if (served == required && !can_encrypt()) {
            context ctx = quiet_context();
            const auto listening = server::listen(ctx, {GetParam().listen_uri()}, echo, serving(required));
            ASSERT_FALSE(listening);
            expect_refused(listening.error(), status::unsupported, "encrypt=required");
            continue;
        }
        rig r(GetParam(), echo, serving(served));
        for (const encryption wanted : {automatic, required, off}) {
            SCOPED_TRACE(::testing::Message() << "called with " << static_cast<int>(wanted));
            const auto refused = attempt(r, wanted);
            const bool plain_server = served == off && tcp && wanted != off;
            const bool plain_client = served == required && tcp && wanted == off;
            EXPECT_EQ(refused.has_value(), plain_server || plain_client || (wanted == required && !can_encrypt()));
            if (!refused) continue;
            expect_refused(*refused, plain_client ? status::unauthorized : status::unsupported,
                           plain_server ? "encrypt=off" : "encrypt=required");
        }
    }
}

TEST_P(encrypting, a_client_without_keys_cannot_require_encryption) {
    rig r(GetParam());
    channel_options options = calm_client();
    options.security = {};
    options.security.insecure = true;
    options.security.encrypt = encryption::required;
    const auto connected = r.try_connect(options);
    ASSERT_FALSE(connected);
    expect_refused(connected.error(), status::invalid_argument, "encrypt");
}

TEST_P(encrypting, auto_takes_a_plain_transport_only_when_allowed_to) {
    rig r(GetParam(), echo, serving(encryption::automatic));
    const std::string anything = "auto" + r.uri().substr(r.uri().find("://"));
    const auto careful = channel::connect(r.ctx(), anything, calling(encryption::automatic));
    EXPECT_EQ(careful.ok(), can_encrypt());
    if (!careful) expect_refused(careful.error(), status::unsupported, "encrypt=off");
    const auto careless = channel::connect(r.ctx(), anything, calling(encryption::off));
    EXPECT_TRUE(careless) << careless.error().message;
}

ACCEL_INSTANTIATE(encrypting, network_backends);

}  // namespace
}  // namespace accel::tests
