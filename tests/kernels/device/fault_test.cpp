// SPDX-License-Identifier: Apache-2.0
// The device misbehaves (softnic's fault rules) towards one session of a GPU-resident service; a
// thread is in the kernel's place. What retransmission mends is not noticed; else that session ends, the one
// beside it is served on, and its place is as good as new.
#include "device/bare_service.hpp"
#include "softnic/softnic.h"

#include <ostream>
#include <string>
#include <tuple>

#include <fmt/format.h>

namespace accel::tests {
namespace {

enum class whose { client, server };

struct service_fault {
    const char* name;
    const char* rule;  ///< of softnic, without the queue pair
    whose queue_pair;
    bool survived;  ///< by retransmission
    friend std::ostream& operator<<(std::ostream& out, const service_fault& f) { return out << f.name; }
};

const service_fault all_faults[] = {
    {"a_packet_lost", "drop nth=2 count=1", whose::server, true},
    {"packets_lost_at_random", "drop p=0.2 seed=6 count=10", whose::server, true},
    {"packets_twice", "duplicate p=0.5 seed=2 count=10", whose::server, true},
    {"packets_late", "delay us=3000 p=0.3 seed=1 count=3", whose::server, true},
    {"a_receiver_that_is_not_ready", "nak:rnr count=3", whose::client, true},
    {"a_sequence_error", "nak:sequence count=2", whose::client, true},
    {"an_access_error_of_an_answer", "nak:access count=1", whose::client, false},
    {"an_invalid_request_in_an_answer", "nak:invalid count=1", whose::client, false},
    {"an_operation_error_of_an_answer", "nak:operation count=1", whose::client, false},
    {"a_local_protection_error", "local_protection nth=1 count=1", whose::server, false},
    {"an_error_completion", "error:0x02 nth=1 count=1", whose::server, false},
    {"retries_exceeded", "drop p=1", whose::server, false},
    {"a_queue_pair_that_fails", "qp_error nth=1 count=1", whose::server, false},
};

class device_faults : public bare_service, public ::testing::WithParamInterface<std::tuple<gpu_engine, service_fault>> {
  protected:
    void SetUp() override {
        if (softnic_fault_add == nullptr) GTEST_SKIP() << "these tests need softnic";
        softnic_fault_clear();
        bare_service::SetUp();
    }
    void TearDown() override {
        if (softnic_fault_clear != nullptr) softnic_fault_clear();
        bare_service::TearDown();
    }
    [[nodiscard]] gpu_engine engine() const override { return std::get<0>(GetParam()); }
    [[nodiscard]] static service_fault fault() { return std::get<1>(GetParam()); }
    static std::uint32_t queue_pair_of(const core::link_description& described) {
        return verbs::parse_endpoint(described).value().queue_pair;
    }
    void arm(const bare_client& client) {
        const std::uint32_t number =
            queue_pair_of(fault().queue_pair == whose::client ? client.describe() : bad_->describe());
        char problem[256] = "";
        const std::string rule = fmt::format("{} qpn={}", fault().rule, number);
        ASSERT_EQ(softnic_fault_add(rule.c_str(), problem, sizeof problem), 0) << problem;
    }
};

TEST_P(device_faults, a_device_fault_ends_at_most_its_own_session) {
    bare_client friendly(shape);
    good_ = accept(friendly.describe()).value();
    friendly.connect(good_->describe());
    bare_client stricken(shape);
    int owner = 0;
    bad_ = accept(stricken.describe(), &owner).value();
    stricken.connect(bad_->describe());
    expect_served(friendly, 1);
    expect_served(stricken, 1);
    const std::uint64_t before = softnic_fault_count();
    if (fault().survived) {
        arm(stricken);
        for (std::uint32_t i = 2; i < 12; ++i) expect_served(stricken, i);
    } else {
        // What is struck is the answer.
        held_ = true;
        auto request = stricken.correct(1);
        request.header.generation = 2;
        request.header.deadline_ns = INT64_MAX;
        stricken.post(request);
        EXPECT_EQ(stricken.outcome(), mlx5::syndrome::none);
        arm(stricken);
        held_ = false;
        expect_loss(status::peer_lost, &owner);
    }
    EXPECT_GT(softnic_fault_count(), before);
    softnic_fault_clear();
    expect_served(friendly, 2);
    end(bad_);
    expect_place();
    expect_served(friendly, 3);
    end(good_);
}

INSTANTIATE_TEST_SUITE_P(by, device_faults,
                         ::testing::Combine(::testing::Values(gpu_engine::direct, gpu_engine::proxy),
                                            ::testing::ValuesIn(all_faults)),
                         [](const auto& row) {
                             const bool proxied = std::get<0>(row.param) == gpu_engine::proxy;
                             return std::string{proxied ? "proxy_" : "direct_"} + std::get<1>(row.param).name;
                         });

}  // namespace
}  // namespace accel::tests
