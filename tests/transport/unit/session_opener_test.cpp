// SPDX-License-Identifier: Apache-2.0
// Whose session is opened next.
#include "core/control/session_opener.hpp"

#include "control_fixture.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace accel::core::testing {
namespace {

open_job job_of(const std::string& client, std::uint64_t connection, std::uint64_t request) {
    open_job out;
    out.client.address = client;
    out.connection = connection;
    out.request = request;
    return out;
}

struct session_opener_test : ::testing::Test {
    void ask(const std::string& client, std::uint64_t connection, std::uint64_t request) {
        ASSERT_TRUE(opener_.submit(job_of(client, connection, request)));
    }
    /// Numbers of all requests, in the order in which they were opened.
    std::vector<std::uint64_t> opened() {
        while (opener_.open_next()) continue;
        std::vector<std::uint64_t> out;
        for (const opened_session& each : opener_.take(100)) out.push_back(each.job.request);
        return out;
    }

    fake_host host_;
    wake_signal done_;
    session_opener opener_{host_, done_};
};

TEST_F(session_opener_test, clients_take_turns) {
    for (const std::uint64_t request : {1U, 2U, 3U}) ask("a", 7, request);
    for (const std::uint64_t request : {4U, 5U}) ask("b", 8, request);
    EXPECT_EQ(opened(), (std::vector<std::uint64_t>{1, 4, 2, 5, 3}));
    EXPECT_TRUE(opener_.idle());
}

TEST_F(session_opener_test, clients_take_turns_in_being_answered) {
    for (std::uint64_t request = 1; request <= 50; ++request) ask("a", request, request);
    while (opener_.open_next()) continue;
    ask("b", 100, 100);
    while (opener_.open_next()) continue;
    std::vector<std::uint64_t> answered;
    for (const opened_session& each : opener_.take(3)) answered.push_back(each.job.request);
    EXPECT_EQ(answered, (std::vector<std::uint64_t>{1, 100, 2}));
    EXPECT_FALSE(opener_.idle());
    EXPECT_EQ(opener_.take(100).size(), 48U);
    EXPECT_TRUE(opener_.idle());
    EXPECT_TRUE(opener_.take(1).empty());
}

TEST_F(session_opener_test, sessions_of_a_closed_connection_are_not_opened) {
    ask("a", 7, 1);
    ask("a", 9, 2);
    ask("a", 7, 3);
    ask("b", 8, 4);
    opener_.forget(job_of("a", 7, 0).client, 7);
    opener_.forget(job_of("b", 8, 0).client, 8);
    opener_.forget(job_of("nobody", 8, 0).client, 8);
    EXPECT_EQ(opened(), (std::vector<std::uint64_t>{2}));
    ask("b", 8, 5);
    EXPECT_EQ(opened(), (std::vector<std::uint64_t>{5}));
    EXPECT_TRUE(opener_.idle());
}

}  // namespace
}  // namespace accel::core::testing
