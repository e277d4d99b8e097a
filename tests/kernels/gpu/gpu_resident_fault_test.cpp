// SPDX-License-Identifier: Apache-2.0
// The device misbehaves (softnic's fault rules) towards one session that kernels serve: what retransmission
// mends is not noticed; else the call ends, and its session, and the one beside it is served on.
#include "gpu/gpu_resident_kernels.hpp"
#include "loopback.hpp"
#include "patience.hpp"
#include "softnic/softnic.h"

#include <accel_transport/accel_transport.hpp>
#include <accel_transport/gpu_service.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <ostream>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

namespace accel::tests {
namespace {

struct device_fault {
    const char* name;
    const char* rule;  ///< of softnic; only the stricken session sends anything while it holds
    bool survived;
    friend std::ostream& operator<<(std::ostream& out, const device_fault& f) { return out << f.name; }
};

const device_fault all_faults[] = {
    {"packets_lost", "drop p=0.2 seed=6 count=10", true},
    {"packets_twice", "duplicate p=0.5 seed=2 count=10", true},
    {"packets_late", "delay us=3000 p=0.3 seed=1 count=3", true},
    {"a_receiver_that_is_not_ready", "nak:rnr count=3", true},
    {"a_sequence_error", "nak:sequence count=2", true},
    {"an_access_error", "nak:access count=1", false},
    {"an_operation_error", "nak:operation nth=2 count=1", false},
    {"an_error_completion", "error:0x02 nth=2 count=1", false},
    {"retries_exceeded", "drop p=1", false},
    {"a_queue_pair_that_fails", "qp_error nth=2 count=1", false},
};

class gpu_resident_faults : public ::testing::TestWithParam<std::tuple<gpu_engine, device_fault>> {
  protected:
    void SetUp() override {
        if (softnic_fault_add == nullptr) GTEST_SKIP() << "these tests need softnic";
        stream_ = open_stream();
        if (stream_ == nullptr) GTEST_SKIP() << "there is no GPU";
        gpu_service_options options = gpu_service::defaults();
        options.max_sessions = 2;
        options.max_request_bytes = options.max_response_bytes = 4096;
        options.security.insecure = true;
        options.peer_timeout = patience(2s);
        options.kernels.engine = std::get<0>(GetParam());
        options.verbs.ack_timeout = 8ms;
        options.verbs.ack_retries = 6;
        auto made = gpu_service::listen(server_context_, "gpu://" + own_loopback() + ":0", options);
        if (!made && made.error().code == status::unsupported) GTEST_SKIP() << made.error().message;
        ASSERT_TRUE(made.ok()) << made.error().message;
        service_ = std::make_unique<gpu_service>(std::move(*made));
        ASSERT_TRUE(launch_gpu_resident(service_->ref(), kernel_work::echo, 2, 64, nullptr, stream_));
    }
    void TearDown() override {
        if (softnic_fault_clear != nullptr) softnic_fault_clear();
        if (service_) {
            EXPECT_EQ(service_->stop(stream_, patience(10s)), status::ok);
            EXPECT_STREQ(stream_failure(stream_), "");
        }
        if (stream_ != nullptr) close_stream(stream_);
    }
    [[nodiscard]] result<channel> connect() {
        channel_options wanted;
        wanted.slots = 2;
        wanted.request_bytes = wanted.response_bytes = 256;
        wanted.security.insecure = true;
        wanted.reconnect = false;
        wanted.call_timeout = patience(5s);
        wanted.peer_timeout = patience(2s);
        wanted.verbs.ack_timeout = 8ms;
        wanted.verbs.ack_retries = 6;
        return channel::connect(client_context_, service_->endpoint(), wanted);
    }
    static status echo(channel& client) {
        constexpr std::array<std::byte, 100> request{std::byte{7}};
        auto answer = client.call(request);
        if (!answer) return answer.error().code;
        const auto bytes = answer->response;
        return std::equal(bytes.begin(), bytes.end(), request.begin(), request.end()) ? status::ok
                                                                                      : status::protocol_error;
    }

    context server_context_ = context::open().value();
    context client_context_ = context::open().value();
    std::unique_ptr<gpu_service> service_;
    CUstream_st* stream_ = nullptr;
};

TEST_P(gpu_resident_faults, a_device_fault_ends_at_most_its_own_session) {
    const device_fault fault = std::get<1>(GetParam());
    auto friendly = connect();
    ASSERT_TRUE(friendly.ok()) << friendly.error().message;
    auto stricken = connect();
    ASSERT_TRUE(stricken.ok()) << stricken.error().message;
    ASSERT_EQ(echo(*friendly), status::ok);
    ASSERT_EQ(echo(*stricken), status::ok);
    const std::uint64_t before = softnic_fault_count();
    char problem[256] = "";
    ASSERT_EQ(softnic_fault_add(fault.rule, problem, sizeof problem), 0) << problem;
    status ended = status::ok;
    for (int i = 0; i < 20 && ended == status::ok; ++i) ended = echo(*stricken);
    EXPECT_GT(softnic_fault_count(), before);
    EXPECT_EQ(ended == status::ok, fault.survived) << static_cast<int>(ended);
    if (!fault.survived) {
        EXPECT_EQ(ended, status::peer_lost);
    }
    softnic_fault_clear();
    EXPECT_EQ(echo(*friendly), status::ok);
    if (fault.survived) return;
    // Its place is as good as new, once the service knows.
    result<channel> next = connect();
    EXPECT_TRUE(eventually(patience(10s), [&] {
        if (!next) next = connect();
        return next.ok();
    }));
    if (next) {
        EXPECT_EQ(echo(*next), status::ok);
    }
    EXPECT_EQ(echo(*friendly), status::ok);
}

INSTANTIATE_TEST_SUITE_P(by, gpu_resident_faults,
                         ::testing::Combine(::testing::Values(gpu_engine::direct, gpu_engine::proxy),
                                            ::testing::ValuesIn(all_faults)),
                         [](const auto& row) {
                             const bool proxied = std::get<0>(row.param) == gpu_engine::proxy;
                             return std::string{proxied ? "proxy_" : "direct_"} + std::get<1>(row.param).name;
                         });

}  // namespace
}  // namespace accel::tests
