// SPDX-License-Identifier: Apache-2.0
// Which device, port and GID are used, and what is said when none will do. Run under softnic with several
// sets of devices (tests/transport/rdma/CMakeLists.txt); each test picks its set by name.
#include "conformance/rig.hpp"
#include "softnic/softnic.h"
#include "verbs/device.hpp"

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace accel::verbs {
namespace {

using namespace std::chrono_literals;

std::string devices() {
    const char* set = std::getenv("SOFTNIC_DEVICES");
    return set == nullptr ? "ib" : set;
}

#define ACCEL_NEEDS_DEVICES(set) \
    if (devices() != (set)) GTEST_SKIP() << "for SOFTNIC_DEVICES=" << (set)

result<std::shared_ptr<device>> open(const std::string& name, int gid_index = -1, const std::string& near = "") {
    verbs_options wanted;
    wanted.device = name;
    wanted.gid_index = gid_index;
    return device::open(wanted, near);
}

std::string why_not(const std::string& name, int gid_index = -1) {
    auto opened = open(name, gid_index);
    return opened ? "it opened" : opened.error().message;
}

/// softnic's devices have fixed names.
std::string first_device() {
    if (softnic_fault_add != nullptr) return "mlx5_0";
    return std::string{open("").value()->name()};
}

TEST(verbs_choice, the_first_active_port_is_the_default) {
    const auto chosen = open("").value();
    EXPECT_EQ(chosen->name(), first_device());
    EXPECT_EQ(chosen->port().number, 1);
    EXPECT_NE(chosen->describe().find(first_device() + " port 1"), std::string::npos) << chosen->describe();
}

TEST(verbs_choice, unknown_devices_ports_and_gids_have_errors_of_their_own) {
    EXPECT_NE(why_not("mlx5_77").find("no RDMA device 'mlx5_77'"), std::string::npos) << why_not("mlx5_77");
    const std::string first = first_device();
    EXPECT_NE(why_not(first + ":9").find("no port 9"), std::string::npos) << why_not(first + ":9");
    EXPECT_NE(why_not(first, 200).find("no GID at gid_index=200"), std::string::npos) << why_not(first, 200);
    EXPECT_EQ(open(first + ":x").code(), status::invalid_argument);
    EXPECT_EQ(open(first + ":0").code(), status::invalid_argument);
}

TEST(verbs_choice, mlx5_queues_are_driven_directly_unless_asked_otherwise) {
    verbs_options wanted;
    const auto chosen = device::open(wanted, "").value();
    const bool mlx5 = chosen->name().starts_with("mlx5");
    EXPECT_EQ(chosen->driver() != nullptr, mlx5);
    const std::string_view way = mlx5 ? "queues driven directly" : "queues driven by libibverbs";
    EXPECT_NE(chosen->describe().find(way), std::string::npos) << chosen->describe();
    wanted.direct = false;
    const auto asked = device::open(wanted, "").value();
    EXPECT_EQ(asked->driver(), nullptr);
    EXPECT_NE(asked->describe().find("queues driven by libibverbs"), std::string::npos) << asked->describe();
}

TEST(verbs_devices, the_default_gid_is_roce_v2_with_an_ipv4_address) {
    ACCEL_NEEDS_DEVICES("roce");
    const auto chosen = open("").value();
    EXPECT_TRUE(chosen->port().ethernet);
    EXPECT_EQ(to_text(chosen->port().gid), "10.83.0.1");
    ibv_gid_entry entry{};
    ASSERT_EQ(ibv_query_gid_ex(&chosen->context(), 1, chosen->port().gid_index, &entry, 0), 0);
    EXPECT_EQ(entry.gid_type, static_cast<std::uint32_t>(IBV_GID_TYPE_ROCE_V2));
    EXPECT_EQ(open("mlx5_0", 0).value()->port().gid_index, 0) << "unless another is asked for";
}

TEST(verbs_devices, the_address_of_the_server_selects_the_port) {
    ACCEL_NEEDS_DEVICES("roce+roce,roce");
    EXPECT_EQ(open("", -1, "10.83.0.2").value()->port().number, 2);
    EXPECT_EQ(open("", -1, "10.83.1.1").value()->name(), "mlx5_1");
    EXPECT_EQ(open("", -1, "127.0.0.1").value()->name(), "mlx5_0");
    EXPECT_EQ(open("mlx5_0:2").value()->port().number, 2);
}

TEST(verbs_devices, an_inactive_port_is_passed_over_and_named) {
    ACCEL_NEEDS_DEVICES("roce+roce,roce");
    if (softnic_fault_add == nullptr) GTEST_SKIP() << "needs softnic";
    // The first packet out of the first port takes it down.
    ASSERT_EQ(softnic_fault_add("port_down count=1 us=60000000", nullptr, 0), 0);
    {
        const auto& all = tests::all_backends();
        const auto row = std::find_if(all.begin(), all.end(), [](auto& r) { return r.scheme == "rdma"; });
        tests::rig r(*row);
        auto options = tests::calm_client();
        options.connect_timeout = 2s;
        options.verbs.ack_timeout = 4ms;
        options.verbs.ack_retries = 1;
        auto refused = r.try_connect(options);
        ASSERT_FALSE(refused.ok());
        EXPECT_NE(refused.error().message.find("cannot reach the server's port"), std::string::npos)
            << refused.error().message;
    }
    softnic_fault_clear();
    EXPECT_NE(why_not("mlx5_0:1").find("not active"), std::string::npos) << why_not("mlx5_0:1");
    EXPECT_EQ(open("").value()->port().number, 2);
}

TEST(verbs_choice, the_option_mtu_is_an_upper_bound) {
    verbs_options wanted;
    wanted.mtu = 1024;
    EXPECT_EQ(device::open(wanted, "").value()->port().mtu, IBV_MTU_1024);
}

TEST(verbs_devices, different_kinds_of_port_are_refused_by_name) {
    ACCEL_NEEDS_DEVICES("ib,roce");
    const auto& all = tests::all_backends();
    const auto row = std::find_if(all.begin(), all.end(), [](auto& r) { return r.scheme == "rdma"; });
    tests::rig r(*row, tests::echo, tests::calm_server(), "?device=mlx5_0");
    auto options = tests::calm_client();
    options.verbs.device = "mlx5_1";
    auto refused = r.try_connect(options);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.code(), status::unsupported);
    EXPECT_NE(refused.error().message.find("InfiniBand"), std::string::npos) << refused.error().message;
    EXPECT_NE(refused.error().message.find("device=NAME:PORT"), std::string::npos) << refused.error().message;
}

}  // namespace
}  // namespace accel::verbs
