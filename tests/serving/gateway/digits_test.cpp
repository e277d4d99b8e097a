// SPDX-License-Identifier: Apache-2.0
// The digits service behind the gateway, from each transport to each other. `gdr`: the server has its bytes on a GPU or
// its stand-in, where the others have theirs on the host.
#include "gateway_rig.hpp"
#include "handler_memory.hpp"
#include "pairs.hpp"
#include "payload.hpp"
#include "serving/load/run.hpp"
#include "serving/models/digits_model.hpp"

#include <memory>

#include <gtest/gtest.h>

namespace accel::tests {
namespace {

namespace serving = examples::serving;

/// As model_server's, with the network on the host wherever the bytes are. It serves on any thread.
class digits_service {
  public:
    digits_service() : network_(serving::make_digits().value()) {}

    void operator()(exchange one) {
        tensor in;
        std::size_t count = 0;
        const tensor& wanted = network_->shapes().inputs.front();
        const bool good = one.tensors({&in, 1}, count) == status::ok && size_bytes(in) == size_bytes(wanted);
        if (!good) return (void)one.fail(status::invalid_argument, 0, "no image");
        const std::vector<std::byte> bytes = copy_of(one.request());
        tensor out = network_->shapes().outputs.front();
        std::vector<std::byte> scores(size_bytes(out));
        const serving::model_job job{std::span{bytes}.subspan(in.offset), scores};
        if (!network_->infer(nullptr, {&job, 1})) return (void)one.fail(status::application_error);
        out.offset = 0;
        put(one.response(), scores);
        if (const status told = one.describe(scores.size(), {&out, 1}); told != status::ok)
            return (void)one.fail(told, 0, "no room for the description");
        (void)one.reply(scores.size());
    }

  private:
    std::unique_ptr<serving::model> network_;
};

serving::load_settings digits_load(const std::string& uri) {
    serving::load_settings out;
    out.uris = {uri};
    out.model = serving::find_model("digits");
    out.expect = serving::expectation::digits;
    out.clients = 2;
    out.depth = 4;
    out.requests = 100;
    out.warm_up = 1;
    out.timeout = patience(20s);
    out.gpu = -1;
    return out;
}

class digits_through_the_gateway : public ::testing::TestWithParam<pair_case> {};

TEST_P(digits_through_the_gateway, digits_through_the_gateway_are_right) {
    if (GetParam().to == "gdr" && !missing_handler_memory().empty()) GTEST_SKIP() << missing_handler_memory();
    auto ctx = context::open({.log = log_level::off});
    ASSERT_TRUE(ctx);
    prepare(*ctx);
    digits_service digits;
    server behind = listen(*ctx, any_uri(GetParam().to),
                           service_table{{{"digits", [&](exchange one) { digits(std::move(one)); }}}});
    gateway_process between(
        {"--listen", any_uri(GetParam().from), "--to", "digits=" + server_uri(client_uri(behind.endpoints().at(0)))});
    auto seen = serving::run_load(*ctx, digits_load(between.uri()));
    ASSERT_TRUE(seen) << seen.error().message;
    EXPECT_EQ(seen->all().answered, 200U);
    EXPECT_EQ(seen->all().wrong, 0U);
    EXPECT_EQ(seen->all().failed(), 0U) << seen->all().first_error;
    const auto passed_on = between.stop();
    EXPECT_EQ(passed_on.at("answers"), 202) << passed_on;
    EXPECT_EQ(passed_on.at("payload_copies"), 0) << passed_on;  // such requests are small, so also from zmq
}

INSTANTIATE_TEST_SUITE_P(pairs, digits_through_the_gateway, all_pairs(), name_of_pair);

}  // namespace
}  // namespace accel::tests
