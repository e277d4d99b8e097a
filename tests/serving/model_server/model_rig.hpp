// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "loopback.hpp"
#include "patience.hpp"
#include "serving/model_server/model_registry.hpp"
#include "serving/model_server/request_check.hpp"

#include <accel_transport/accel_transport.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace accel::tests {

using namespace accel::examples::serving;
using bytes = std::vector<std::byte>;

/// Bytes that differ from place to place and from seed to seed.
[[nodiscard]] inline bytes some_bytes(std::size_t length, std::uint32_t seed) {
    bytes out(length);
    for (std::size_t i = 0; i < length; ++i) out[i] = static_cast<std::byte>((i * 131 + seed * 29 + i / 251) & 0xff);
    return out;
}

/// What came back.
struct outcome {
    status code = status::ok;
    std::string text;  ///< of a failure
    bytes content;
    std::vector<tensor> tensors;
};

[[nodiscard]] inline outcome outcome_of(const completion& done) {
    outcome out;
    out.code = done.status;
    if (done.status != status::ok) {
        out.text.assign(reinterpret_cast<const char*>(done.response.data()), done.response.size());
        return out;
    }
    out.content.assign(done.response.begin(), done.response.end());
    std::array<tensor, max_tensors> room;
    if (const auto described = done.tensors(room)) out.tensors.assign(described->begin(), described->end());
    return out;
}

/// Sends one request and does not wait for its answer.
[[nodiscard]] inline call_id begin_call(channel& to, target model, std::span<const std::byte> payload,
                                        std::span<const tensor> tensors, nanoseconds timeout = patience(10s)) {
    const auto call = to.begin();
    EXPECT_EQ(call.code(), status::ok);
    std::ranges::copy(payload, call->request.begin());
    submit_options options;
    options.timeout = timeout;
    options.target = model;
    options.tensors = tensors;
    EXPECT_EQ(to.submit(call->id, payload.size(), options), status::ok);
    return call->id;
}

[[nodiscard]] inline outcome end_call(channel& to) {
    std::array<completion, 1> done;
    if (to.wait(done, patience(20s)) == 0) {
        ADD_FAILURE() << "no answer";
        return {status::timed_out, {}, {}, {}};
    }
    outcome out = outcome_of(done[0]);
    done[0].release();
    return out;
}

[[nodiscard]] inline outcome ask(channel& to, target model, std::span<const std::byte> payload,
                                 std::span<const tensor> tensors) {
    (void)begin_call(to, model, payload, tensors);
    return end_call(to);
}

/// The tensors of a model's requests, as they lie.
[[nodiscard]] inline std::vector<tensor> inputs_of(const model_shapes& shapes) {
    std::vector<tensor> out = shapes.inputs;
    place_from_zero(out);
    return out;
}
[[nodiscard]] inline tensor image_of(const model_shapes& shapes) {
    return {{type_code::unsigned_integer, 8, 1}, 3, 0, {shapes.image.height, shapes.image.width, 3}};
}

/// A server of models in this process, over local or tcp.
class model_rig : public ::testing::TestWithParam<std::string> {
  protected:
    void serve(const std::vector<std::string>& models, const serving_options& options = {},
               const synthetic_options& synthetic = {100'000, synthetic_pace::wait}) {
        registry = std::make_unique<model_registry>(ctx, model_place{std::nullopt, synthetic}, options);
        for (const std::string& each : models) {
            const auto loaded = registry->load(parse_model_spec(each).value());
            ASSERT_TRUE(loaded) << loaded.error().message;
        }
        server_options at_server;
        at_server.security.insecure = true;
        at_server.peer_timeout = patience(5s);
        const std::string where = GetParam() == "tcp" ? "tcp://" + own_loopback() + ":0" : "local://model-rig";
        const std::vector<std::string> uris{where};
        auto made = server::listen(ctx, uris, registry->services(), at_server);
        ASSERT_TRUE(made) << made.error().message;
        running = std::make_unique<server>(std::move(*made));
    }
    [[nodiscard]] channel connect(std::size_t response_bytes = 1 << 20) {
        channel_options options;
        options.slots = 16;
        options.response_bytes = response_bytes;
        options.security.insecure = true;
        options.peer_timeout = patience(5s);
        auto made = channel::connect(ctx, running->endpoints().front(), options);
        EXPECT_TRUE(made) << made.error().message;
        return std::move(made).value();
    }

    context ctx = context::open({.log = log_level::off}).value();
    std::unique_ptr<model_registry> registry;
    std::unique_ptr<server> running;  ///< before its registry goes
};

#define ACCEL_MODELS_OVER_LOCAL_AND_TCP(suite) \
    INSTANTIATE_TEST_SUITE_P(over, suite, ::testing::Values("local", "tcp"), [](const auto& row) { return row.param; })

}  // namespace accel::tests
