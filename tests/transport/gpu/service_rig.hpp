// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "conformance/payload.hpp"
#include "core/context_state.hpp"
#include "core/internals.hpp"
#include "gpu/fake_gpu.hpp"
#include "patience.hpp"

#include <accel_transport/accel_transport.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

/// A server and its clients with stand-ins for GPUs, over one transport.
namespace accel::tests {

using namespace std::chrono_literals;
/// As a kernel would: later, on the exchange's stream.
inline void echo_on_gpu(exchange one) {
    const std::size_t length = std::min(one.request().size(), one.response().size());
    fake_stream& stream = fake_stream::of(one.stream());
    one.mark(stage::preprocessing);
    one.mark(stage::inference);
    stream.copy(one.response().data(), one.request().data(), length);
    (void)one.reply(length);
}

class gpu_service : public ::testing::TestWithParam<std::string> {
  protected:
    void serve(handler service, server_options options = {}) {
        options.memory = memory_kind::cuda(0);
        serve_with(std::move(service), options);
    }
    void serve_with(handler service, server_options options) {
        auto opened = context::open({.log = log_level::off});
        context_ = std::make_unique<context>(std::move(*opened));
        core::internals::state_of(*context_)->replace_devices(gpus_);
        options.security.insecure = true;
        options.peer_timeout = patience(5s);
        const std::string uri = GetParam() == "local" ? "local://gpu-service" : GetParam() + "://127.0.0.1:0";
        auto listening = server::listen(*context_, {uri}, std::move(service), options);
        ASSERT_TRUE(listening) << listening.error().message;
        server_ = std::make_unique<server>(std::move(*listening));
    }
    result<channel> try_connect(channel_options options = {}) {
        options.security.insecure = true;
        options.peer_timeout = patience(5s);
        options.connect_timeout = patience(10s);
        options.request_bytes = options.response_bytes = slot_bytes_;
        return channel::connect(*context_, server_->endpoints().at(0), options);
    }
    channel connect(const channel_options& options = {}) {
        auto made = try_connect(options);
        EXPECT_TRUE(made) << made.error().message;
        return std::move(*made);
    }
    static call_id send(channel& through, std::size_t length, std::uint64_t seed, const submit_options& options = {}) {
        const auto call = through.begin();
        EXPECT_EQ(call.code(), status::ok);
        fill(call->request.first(length), seed);
        EXPECT_EQ(through.submit(call->id, length, options), status::ok);
        return call->id;
    }
    static completion next(channel& through) {
        std::array<completion, 1> one;
        EXPECT_EQ(through.wait(one, patience(10s)), 1U);
        return std::move(one[0]);
    }

    std::size_t slot_bytes_ = 64 << 10;
    std::shared_ptr<fake_accelerator> gpus_ = std::make_shared<fake_accelerator>();
    std::unique_ptr<context> context_;
    std::unique_ptr<server> server_;
};

}  // namespace accel::tests
