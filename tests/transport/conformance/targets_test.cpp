// SPDX-License-Identifier: Apache-2.0
// Requests that name their target: each comes to the handler of that name, and others get `not_found`.
#include "rig.hpp"

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace accel::tests {
namespace {

class targets : public on_every_backend {
  protected:
    /// A server with these handlers, at the case's scheme.
    void listen(const service_table& services) {
        const std::string at = GetParam().listen_uri();
        auto made = server::listen(context_, {at}, services, calm_server());
        ASSERT_TRUE(made.ok()) << made.error().message;
        server_ = std::make_unique<server>(std::move(*made));
    }
    [[nodiscard]] checked_channel connect(channel_options options = calm_client()) {
        auto made = channel::connect(context_, server_->endpoints().at(0), options);
        if (!made) throw std::runtime_error(made.error().message);
        return checked_channel(std::move(*made));
    }
    /// Answers with this code.
    [[nodiscard]] handler tell(std::uint32_t code) {
        return [this, code](exchange one) {
            ++served_;
            (void)one.fail(status::application_error, code);
        };
    }
    /// What one call for a target ends with.
    [[nodiscard]] static completion outcome(checked_channel& client, target named) {
        client.send_seed(100, 1, {.target = named});
        const completion c = client.next();
        EXPECT_EQ(client.release(c.id), status::ok);
        return c;
    }

    context context_ = quiet_context();
    std::unique_ptr<server> server_;
    std::atomic<int> served_{0};
};

/// No handler sees another's request, whichever targets a server has.
TEST_P(targets, requests_reach_the_handler_of_their_target_or_none) {
    constexpr std::array<std::string_view, 4> names{"resnet", "bert", "a/b.c:d", ""};
    for (std::uint32_t served = 1; served < 1U << names.size(); ++served) {
        SCOPED_TRACE(served);
        const auto serves = [served](std::size_t which) { return (served >> which & 1U) != 0; };
        service_table services;
        for (std::size_t i = 0; i < names.size(); ++i) {
            if (!serves(i)) continue;
            const auto code = static_cast<std::uint32_t>(10 + i);
            if (names.at(i).empty())
                services.unnamed = tell(code);
            else
                services.named.push_back({std::string(names.at(i)), tell(code)});
        }
        served_ = 0;
        listen(services);
        auto client = connect();
        int refused = 0;
        std::uint64_t not_found = 0;  // of the names that this server lacks
        for (std::size_t i = 0; i < 2 * names.size(); ++i) {
            const std::string_view name = names.at(i % names.size());
            const completion c = outcome(client, name.empty() ? target{} : target_of(name));
            const bool found = serves(i % names.size());
            refused += found ? 0 : 1;
            not_found += found || name.empty() ? 0U : 1U;
            EXPECT_EQ(c.status, found ? status::application_error : status::not_found) << name;
            EXPECT_EQ(c.code, found ? 10 + i % names.size() : unseen_code) << name;
        }
        EXPECT_EQ(served_.load(), static_cast<int>(2 * names.size()) - refused);
        EXPECT_TRUE(eventually([&] { return server_->statistics().not_found == not_found; }));
        EXPECT_TRUE(client.all_slots_free());
    }
}

/// Channels in all states, and names of all kinds.
TEST_P(targets, resolving_has_typed_failures) {
    listen({{{std::string(max_target_bytes, 'n'), echo}}});
    auto client = connect();
    const auto found = client->resolve(std::string(max_target_bytes, 'n'));
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(*result<target>(found), target_of(std::string(max_target_bytes, 'n'))) << "a kernel can compute the same";
    const auto unknown = client->resolve("resnet50");
    ASSERT_EQ(unknown.code(), status::not_found);
    EXPECT_NE(unknown.error().message.find("resnet50"), std::string::npos) << unknown.error().message;
    for (const std::string& wrong : {std::string{}, std::string("a b"), std::string("a\n"), std::string("\xc3\xa9"),
                                     std::string("a\0b", 3), std::string(max_target_bytes + 1, 'n')})
        EXPECT_EQ(client->resolve(wrong).code(), status::invalid_argument) << wrong;
    client->close();
    EXPECT_EQ(client->resolve("a").code(), status::closed);
}

TEST_P(targets, wrong_tables_are_refused) {
    const auto refusal = [&](const service_table& services) {
        auto made = server::listen(context_, {GetParam().listen_uri()}, services, calm_server());
        EXPECT_FALSE(made.ok());
        return made.code();
    };
    EXPECT_EQ(refusal({}), status::invalid_argument);
    EXPECT_EQ(refusal({{{"a", {}}}}), status::invalid_argument);
    EXPECT_EQ(refusal({{{"a", echo}, {"a", echo}}}), status::invalid_argument);
    EXPECT_EQ(refusal({{{"", echo}}}), status::invalid_argument);
    EXPECT_EQ(refusal({{{"two words", echo}}}), status::invalid_argument);
    service_table many;
    for (std::size_t i = 0; i <= max_targets; ++i) many.named.push_back({"m" + std::to_string(i), echo});
    EXPECT_EQ(refusal(many), status::invalid_argument);
}

/// A request for another model must never come to this one, also by a number that was resolved elsewhere.
TEST_P(targets, numbers_hold_over_servers_and_never_name_another_target) {
    listen({{{"first", tell(1)}, {"second", tell(2)}}});
    target first;
    {
        auto client = connect();
        first = client->resolve("first").value();
        EXPECT_EQ(outcome(client, first).code, 1U);
    }
    server_.reset();
    listen({{{"second", tell(2)}, {"third", tell(3)}}});
    auto client = connect();
    EXPECT_EQ(outcome(client, first).status, status::not_found);
    EXPECT_EQ(outcome(client, client->resolve("second").value()).code, 2U);
}

ACCEL_INSTANTIATE(targets, all_backends);

}  // namespace
}  // namespace accel::tests
