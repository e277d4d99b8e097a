// SPDX-License-Identifier: Apache-2.0
// Answers that nobody may give. (random_test.cpp has all others.)
#include "rig.hpp"

namespace accel::tests {
namespace {

class answers : public on_every_backend {};

TEST_P(answers, answering_twice_ends_the_process) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_DEATH(
        {
            held_exchanges held;
            rig r(GetParam(), held.keeper());
            auto client = r.connect();
            client.send({});
            exchange one = held.take();
            (void)one.reply(0);
            (void)one.reply(0);
        },
        "exchange");
}

ACCEL_INSTANTIATE(answers, all_backends);

}  // namespace
}  // namespace accel::tests
