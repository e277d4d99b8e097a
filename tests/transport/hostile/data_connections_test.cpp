// SPDX-License-Identifier: Apache-2.0
// Data connections that belong to nobody, or are no one's to take.
#include "hostile/attacks.hpp"

#include <cstring>

#include <fmt/format.h>

namespace accel::hostile {
namespace {

struct data_connections : arena {
    /// A data connection as the tcp backend makes it: what the server answers; nothing: it just closes.
    [[nodiscard]] std::optional<status> show(const std::vector<std::byte>& bytes) {
        const unique_fd fd = connect_from(stranger_address, server_->where());
        if (!fd.open() || !push(fd.get(), bytes)) return std::nullopt;
        std::array<std::byte, core::max_data_answer_bytes> answer{};
        const auto deadline = core::deadline_after(patience(2s));
        std::size_t filled = 0;
        while (filled < core::data_answer_head_bytes) {
            if (core::wait_ready(fd.get(), POLLIN, deadline) != 0) return std::nullopt;
            const ssize_t got = ::recv(fd.get(), answer.data() + filled, answer.size() - filled, MSG_DONTWAIT);
            if (got <= 0) return std::nullopt;
            filled += static_cast<std::size_t>(got);
        }
        std::uint16_t code = 0;
        std::memcpy(&code, answer.data(), sizeof code);
        return static_cast<status>(code);
    }
    /// All that the server says before it closes the connection.
    [[nodiscard]] std::string refusal(const std::vector<std::byte>& bytes) {
        const unique_fd fd = connect_from(stranger_address, server_->where());
        if (!fd.open() || !push(fd.get(), bytes)) return "not connected";
        std::string all;
        std::array<char, core::max_data_answer_bytes> part{};
        const auto deadline = core::deadline_after(patience(5s));
        while (core::wait_ready(fd.get(), POLLIN, deadline) == 0) {
            const ssize_t got = ::recv(fd.get(), part.data(), part.size(), MSG_DONTWAIT);
            if (got <= 0) return all;
            all.append(part.data(), static_cast<std::size_t>(got));
        }
        return "still open";
    }
};

TEST_P(data_connections, data_connections_without_a_session_or_its_token_are_refused) {
    open();
    auto own = wire::open(stranger_address, server_->where(), client_keys());
    ASSERT_TRUE(own && own->send(core::control_greeting));
    const auto grant = own->open_session(wish());
    ASSERT_TRUE(grant);
    auto wrong = grant->token;
    wrong[15] ^= std::byte{1};
    // The good clients have sessions 1 and 2.
    for (const std::uint64_t id : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{2}, ~std::uint64_t{0}})
        EXPECT_EQ(show(shown(id, grant->token)), core::no_session_waits) << id;
    EXPECT_EQ(show(shown(grant->session_id, wrong)), core::no_session_waits);
    EXPECT_EQ(show(shown(grant->session_id, grant->token)), status::ok);
    EXPECT_EQ(show(shown(grant->session_id, grant->token)), core::no_session_waits) << "a token is good once";
    auto longer = shown(grant->session_id, grant->token);
    longer.push_back(std::byte{0});
    EXPECT_NE(show(longer), status::ok);
    auto other_version = shown(grant->session_id, grant->token);
    other_version[8] = std::byte{99};
    EXPECT_NE(show(other_version), status::ok);
    own.reset();
    expect_unharmed();
}

TEST_P(data_connections, refusals_do_not_reveal_which_sessions_exist) {
    open();
    auto own = wire::open(stranger_address, server_->where(), client_keys());
    ASSERT_TRUE(own && own->send(core::control_greeting));
    const auto grant = own->open_session(wish());
    ASSERT_TRUE(grant);
    const std::string of_none = refusal(shown(grant->session_id + 1000, {}));
    EXPECT_NE(of_none.find("no session with this number"), std::string::npos) << of_none;
    EXPECT_EQ(refusal(shown(1, {})), of_none) << "which has its connection";
    EXPECT_EQ(refusal(shown(grant->session_id, {})), of_none) << "which waits for its connection";
    own.reset();
    expect_unharmed();
}

/// Whoever has a session and connects to it, but then sends what is no request.
TEST_P(data_connections, garbage_after_a_valid_token_ends_only_its_own_session) {
    open();
    const auto keys = client_keys();
    for (int round = 0; round < 20; ++round) {
        auto own = wire::open(stranger_address, server_->where(), keys);
        ASSERT_TRUE(own && own->send(core::control_greeting));
        const auto grant = own->open_session(wish());
        ASSERT_TRUE(grant);
        const unique_fd fd = connect_from(stranger_address, server_->where());
        ASSERT_TRUE(push(fd.get(), shown(grant->session_id, grant->token)));
        ASSERT_EQ(core::wait_ready(fd.get(), POLLIN, core::deadline_after(patience(2s))), 0);
        push(fd.get(), repeated({std::byte(round * 13), std::byte{0xff}}, 4096));
        EXPECT_TRUE(ends(fd.get(), patience(3s))) << round;
    }
    expect_unharmed();
}

INSTANTIATE_TEST_SUITE_P(hostile, data_connections, ::testing::Bool(), with_or_without_keys);

}  // namespace
}  // namespace accel::hostile
