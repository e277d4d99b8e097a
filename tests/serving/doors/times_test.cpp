// SPDX-License-Identifier: Apache-2.0
// How fast a client has to send a body, and the time of a request that is offered to one server after the other.
#include "serving/doors/servers/body_pace.hpp"
#include "serving/doors/servers/offer_time.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

namespace accel::examples::serving::doors {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

const door_settings limits{.body_rate = 1000, .body_grace = 2s};

/// A look of the door at a body of which so much has come.
struct look {
    milliseconds at;
    std::size_t bytes;
    bool too_slow;
    milliseconds next;  ///< look
};

TEST(doors_pace, a_body_must_keep_its_rate_in_each_grace_time) {
    const auto begin = body_pace::clock::time_point{} + 1h;
    const std::vector<look> bodies[]{
        {{0s, 0, false, 2s}, {1999ms, 0, false, 2s}, {2s, 2000, false, 4s}, {3999ms, 2000, false, 4s}},
        {{2s, 1999, false, 0s}, {2001ms, 1999, true, 0s}},  // the first look only suspects
        // What came before does not count.
        {{2s, 3000, false, 4s}, {4s, 4999, false, 2s}, {4001ms, 4999, true, 2s}},
        // A busy door reads late; it begins anew there.
        {{10s, 0, false, 0s}, {10100ms, 2000, false, 12100ms}, {12s, 2000, false, 12100ms}},
        // One that was suspected and is fast enough then has two looks again.
        {{2s, 0, false, 0s}, {3s, 2000, false, 5s}, {5s, 2000, false, 3s}, {5001ms, 2000, true, 3s}},
    };
    body_pace one;
    for (std::size_t i = 0; i < std::size(bodies); ++i) {
        one.begin(begin);
        EXPECT_EQ(one.bytes(), 0U);
        for (const look& each : bodies[i]) {
            one.has(each.bytes);
            EXPECT_EQ(one.is_too_slow(begin + each.at, limits), each.too_slow)
                << "body " << i << " at " << each.at.count();
            EXPECT_EQ(one.next_look(limits), begin + each.next) << "body " << i << " at " << each.at.count();
            EXPECT_FALSE(body_pace{one}.is_too_slow(begin + each.at, {.body_rate = 0})) << "any rate is fast enough";
        }
    }
}

TEST(doors_pace, the_timeout_of_a_message_grows_with_its_length) {
    EXPECT_EQ(body_patience(0, limits), 2s + 1s);
    EXPECT_EQ(body_patience(2999, limits), 2s + 3s);
    EXPECT_EQ(body_patience(3000, limits), 2s + 4s);
    EXPECT_EQ(body_patience(std::size_t{1} << 40, limits), limits.body_timeout);
    EXPECT_EQ(body_patience(0, {.body_rate = 0}), door_settings{}.body_timeout);
}

enum class does : std::uint8_t { wait, end_wait, call, is_over };

/// What a request does, and what it is told.
struct offer_step {
    does what;
    milliseconds at;
    milliseconds whole{};                  ///< of all its waits, or of all its calls
    std::optional<milliseconds> wanted{};  ///< nothing of a call or of `is_over`: it is over
};

TEST(doors_offer_time, all_offers_of_a_request_share_its_timeouts) {
    const offer_time::clock::time_point began{1h};
    const std::vector<offer_step> requests[]{
        {{does::call, 0ms, 100ms, 100ms},
         {does::call, 30ms, 100ms, 70ms},
         {does::call, 40ms, 20ms, 20ms},  // its client waits no longer
         {does::is_over, 99ms, 0ms, 0ms},
         {does::is_over, 100ms},
         {does::call, 100ms, 100ms}},
        // Without a timeout, that of the channel holds.
        {{does::call, 0ms, 0ms, 0ms}, {does::call, 1h, 0ms, 0ms}, {does::is_over, 1h, 0ms, 0ms}},
        // The time of a call is not time of waiting.
        {{does::wait, 0ms, 100ms, 100ms},
         {does::end_wait, 60ms},
         {does::wait, 10s, 100ms, 40ms},
         {does::end_wait, 10050ms},
         {does::wait, 20s, 100ms, 0ms}},
        // A wait ends at the deadline of the calls, or before it.
        {{does::wait, 0ms, 50ms, 50ms},
         {does::end_wait, 20ms},
         {does::call, 20ms, 100ms, 100ms},
         {does::wait, 30ms, 50ms, 30ms},
         {does::end_wait, 30ms},
         {does::wait, 110ms, 5s, 10ms},
         {does::wait, 1s, 5s, 0ms}},
    };
    for (std::size_t i = 0; i < std::size(requests); ++i) {
        offer_time of;
        for (const offer_step& each : requests[i]) {
            SCOPED_TRACE(testing::Message() << "request " << i << " at " << each.at.count());
            const auto now = began + each.at;
            switch (each.what) {
                case does::wait:
                    EXPECT_EQ(of.begin_wait(each.whole, now), each.wanted);
                    break;
                case does::end_wait:
                    of.end_wait(now);
                    break;
                case does::call:
                    EXPECT_EQ(of.begin_call(each.whole, now), each.wanted);
                    break;
                case does::is_over:
                    EXPECT_EQ(of.is_over(now), !each.wanted);
            }
        }
    }
}

}  // namespace
}  // namespace accel::examples::serving::doors
