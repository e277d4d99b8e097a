// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "conformance/run_calls.hpp"
#include "gpu/connect.hpp"
#include "gpu/gpu_resident_kernels.hpp"
#include "loopback.hpp"
#include "patience.hpp"

#include <accel_transport/accel_transport.hpp>
#include <accel_transport/gpu_service.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <gtest/gtest.h>

/// A service of real kernels, and clients that call it.
namespace accel::tests {

/// How kernels reach the device, and who serves a session.
enum class way { direct, proxy, exclusive };

class gpu_resident_service : public ::testing::Test {
  protected:
    void SetUp() override {
        stream_ = open_stream();
        if (stream_ == nullptr) GTEST_SKIP() << "there is no GPU";
        options_.max_slots = 16;
        options_.max_request_bytes = options_.max_response_bytes = std::size_t{64} << 10;
        options_.security.insecure = true;
        options_.peer_timeout = patience(2s);
    }
    void TearDown() override {
        if (stream_ == nullptr) return;
        if (service_) {
            EXPECT_EQ(service_->stop(stream_, patience(10s)), status::ok);
        }
        EXPECT_STREQ(stream_failure(stream_), "");
        close_stream(stream_);
    }
    [[nodiscard]] virtual way served() const = 0;
    [[nodiscard]] gpu_engine engine() const { return served() == way::proxy ? gpu_engine::proxy : gpu_engine::direct; }
    void serve(kernel_work work, int blocks, int threads, kernel_times* times = nullptr) {
        const bool exclusive = served() == way::exclusive;
        options_.kernels.engine = engine();
        if (exclusive) options_.kernels.sharing = service_sharing::exclusive;
        auto made = gpu_service::listen(server_context_, "gpu://" + own_loopback() + ":0", options_);
        if (!made && made.error().code == status::unsupported) GTEST_SKIP() << made.error().message;
        ASSERT_TRUE(made.ok()) << made.error().message;
        service_ = std::make_unique<gpu_service>(std::move(*made));
        ASSERT_EQ(service_->engine(), engine());
        const auto launch = exclusive ? launch_owners : launch_gpu_resident;
        ASSERT_TRUE(launch(service_->ref(), work, blocks, threads, times, stream_));
    }
    [[nodiscard]] std::string cpu_used() const {
        const auto seen = service_->statistics();
        const auto ms = [](std::chrono::nanoseconds time) {
            return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(time).count());
        };
        return "CPU of the service's thread: " + ms(seen.cpu_user + seen.cpu_kernel) +
               " ms, of the proxy's: " + ms(seen.cpu_proxy) + " ms";
    }
    [[nodiscard]] channel connect(std::uint32_t slots = 8) {
        return connect_to_service(client_context_, service_->endpoint(), 4096, slots);
    }

    context server_context_ = context::open().value();
    context client_context_ = context::open().value();
    gpu_service_options options_ = gpu_service::defaults();
    std::unique_ptr<gpu_service> service_;
    CUstream_st* stream_ = nullptr;
};

inline std::string name_of(way served) {
    if (served == way::exclusive) return "exclusive";
    return served == way::proxy ? "proxy" : "direct";
}
inline auto every_way() {
    return ::testing::Values(way::direct, way::proxy, way::exclusive);
}

}  // namespace accel::tests
