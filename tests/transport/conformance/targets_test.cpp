// SPDX-License-Identifier: Apache-2.0
// Requests that name their target: each comes to the handler of that name, and others get `not_found`.
#include "rig.hpp"

#include <atomic>
#include <memory>
#include <string>
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

TEST_P(targets, each_name_has_its_handler) {
    listen({{{"resnet", tell(1)}, {"bert", tell(2)}, {"a/b.c:d", tell(3)}}, tell(4)});
    auto client = connect();
    const auto resnet = client->resolve("resnet");
    const auto bert = client->resolve("bert");
    const auto other = client->resolve("a/b.c:d");
    ASSERT_TRUE(resnet.ok() && bert.ok() && other.ok());
    EXPECT_EQ(*result<target>(resnet), target_of("resnet")) << "a kernel can compute the same";
    for (int round = 0; round < 3; ++round) {
        EXPECT_EQ(outcome(client, resnet.value()).code, 1U);
        EXPECT_EQ(outcome(client, bert.value()).code, 2U);
        EXPECT_EQ(outcome(client, other.value()).code, 3U);
        EXPECT_EQ(outcome(client, {}).code, 4U) << "without a target";
    }
    EXPECT_EQ(served_.load(), 12);
}

TEST_P(targets, an_unknown_name_is_not_found) {
    listen({{{"resnet", tell(1)}}, tell(2)});
    auto client = connect();
    const auto unknown = client->resolve("resnet50");
    ASSERT_EQ(unknown.code(), status::not_found);
    EXPECT_NE(unknown.error().message.find("resnet50"), std::string::npos) << unknown.error().message;
    const completion c = outcome(client, target_of("resnet50"));
    EXPECT_EQ(c.status, status::not_found);
    EXPECT_TRUE(c.response.empty());
    EXPECT_EQ(served_.load(), 0) << "no handler saw it";
    EXPECT_TRUE(eventually(patience(5s), [&] { return server_->statistics().not_found == 1; }));
    EXPECT_EQ(outcome(client, target_of("resnet")).code, 1U) << "the session goes on";
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(targets, a_server_may_have_nothing_for_requests_without_a_name) {
    listen({{{"resnet", tell(1)}}});
    auto client = connect();
    EXPECT_EQ(outcome(client, {}).status, status::not_found);
    EXPECT_EQ(outcome(client, target_of("resnet")).code, 1U);
}

TEST_P(targets, a_server_with_one_handler_has_no_names) {
    listen({{}, echo});
    auto client = connect();
    EXPECT_EQ(client->resolve("resnet").code(), status::not_found);
    EXPECT_EQ(outcome(client, target_of("resnet")).status, status::not_found);
    EXPECT_EQ(outcome(client, {}).status, status::ok);
}

TEST_P(targets, lent_memory_goes_to_its_target_too) {
    listen({{{"echo", echo}}, tell(1)});
    auto client = connect();
    auto memory = context_.allocate(2000);
    ASSERT_TRUE(memory.ok());
    fill({memory->data(), 1000}, 7);
    call_view call;
    ASSERT_EQ(client.begin(call), status::ok);
    const submit_options options{.response_into = memory->part(1000, 1000).value(), .target = target_of("echo")};
    ASSERT_EQ(client.submit(call.id, memory->part(0, 1000).value(), options), status::ok);
    const completion c = client.next();
    ASSERT_EQ(c.status, status::ok);
    EXPECT_TRUE(matches(c.response, 7));
    EXPECT_EQ(c.response.data(), memory->data() + 1000);
    EXPECT_EQ(client.release(c.id), status::ok);
}

TEST_P(targets, a_blocking_call_names_its_target) {
    listen({{{"echo", echo}}});
    auto client = connect();
    std::vector<std::byte> request(500);
    fill(request, 3);
    auto answer = client->call(request, {.target = target_of("echo")});
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    EXPECT_TRUE(matches(answer->bytes(), 3));
    EXPECT_EQ(client->call(request, {.target = target_of("reply")}).code(), status::not_found);
}

/// Channels in all states, and names of all kinds.
TEST_P(targets, resolving_has_typed_failures) {
    listen({{{std::string(max_target_bytes, 'n'), echo}}});
    auto client = connect();
    EXPECT_TRUE(client->resolve(std::string(max_target_bytes, 'n')).ok());
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
