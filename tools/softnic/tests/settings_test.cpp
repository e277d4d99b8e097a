// SPDX-License-Identifier: Apache-2.0
#include "model/settings.hpp"

#include "model/device.hpp"

#include <cstdlib>
#include <stdexcept>

#include <gtest/gtest.h>

namespace accel::softnic {
namespace {

TEST(settings, device_lists_are_parsed) {
    const auto devices = parse_devices("ib+roce,roce");
    ASSERT_EQ(devices.size(), 2u);
    EXPECT_EQ(devices[0], (device_plan{link_layer::infiniband, link_layer::ethernet}));
    EXPECT_EQ(devices[1], (device_plan{link_layer::ethernet}));
    for (const char* bad : {"", "iwarp", "ib,,ib", "ib+ib+ib", "ib,ib,ib,ib,ib"}) {
        EXPECT_THROW(static_cast<void>(parse_devices(bad)), std::invalid_argument) << bad;
    }
}

TEST(settings, nonsense_in_settings_is_refused) {
    for (const char* name :
         {"SOFTNIC_MODE", "SOFTNIC_STRICT", "SOFTNIC_SEED", "SOFTNIC_DEVICES", "SOFTNIC_MIN_TIMEOUT_US"}) {
        ::setenv(name, "nonsense", 1);
        EXPECT_THROW(static_cast<void>(settings_from_environment()), std::invalid_argument) << name;
        ::unsetenv(name);
    }
    EXPECT_NO_THROW(static_cast<void>(settings_from_environment()));
}

TEST(settings, configurations_differ_by_device_list) {
    settings one;
    settings other;
    other.devices = parse_devices("ib,ib");
    EXPECT_NE(one.configuration_hash(), other.configuration_hash());
    other.devices = parse_devices("ib+ib");
    EXPECT_NE(one.configuration_hash(), other.configuration_hash());
}

TEST(ports, ports_have_identities_of_their_own) {
    const device first(0, parse_devices("ib+roce")[0]);
    const device second(1, parse_devices("ib+roce")[0]);
    EXPECT_NE(first.ports()[0].lid, second.ports()[0].lid);
    EXPECT_EQ(first.ports()[1].lid, 0) << "no LIDs on Ethernet";
    EXPECT_NE(first.ports()[0].gids[0].bytes, second.ports()[0].gids[0].bytes);
    EXPECT_NE(first.ports()[1].gids[0].bytes, second.ports()[1].gids[0].bytes);
    EXPECT_EQ(first.ports()[1].gids[3].type, gid_type::roce_v2);
}

}  // namespace
}  // namespace accel::softnic
