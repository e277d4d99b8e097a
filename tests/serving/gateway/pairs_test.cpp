// SPDX-License-Identifier: Apache-2.0
// From one transport to another: every answer is right, with its tensors, and the gateway copies no payload where it
// need not.
#include "gateway_rig.hpp"
#include "handler_memory.hpp"
#include "payload.hpp"

#include <algorithm>
#include <array>
#include <ostream>
#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace accel::tests {
namespace {

/// Clients of a gateway come over `from`, and it reaches servers over `to`.
struct pair_case {
    std::string from;
    std::string to;
    bool copies = false;  ///< the gateway has to copy long requests
};

std::ostream& operator<<(std::ostream& out, const pair_case& one) {
    return out << one.from << " to " << one.to;
}

[[nodiscard]] auto all_pairs() {
    return ::testing::Values(
        pair_case{"tcp", "tcp"}, pair_case{"tcp", "zmq"}, pair_case{"tcp", "shm"}, pair_case{"tcp", "rdma"},
        pair_case{"tcp", "gdr"}, pair_case{"shm", "tcp"}, pair_case{"shm", "zmq"}, pair_case{"shm", "shm"},
        pair_case{"shm", "rdma"}, pair_case{"shm", "gdr"}, pair_case{"rdma", "tcp"}, pair_case{"rdma", "zmq"},
        pair_case{"rdma", "shm"}, pair_case{"rdma", "rdma"}, pair_case{"rdma", "gdr"}, pair_case{"zmq", "tcp", true},
        pair_case{"zmq", "zmq", true}, pair_case{"zmq", "shm", true}, pair_case{"zmq", "rdma", true},
        pair_case{"zmq", "gdr", true});
}

[[nodiscard]] std::string name_of_pair(const ::testing::TestParamInfo<pair_case>& each) {
    return each.param.from + "_to_" + each.param.to;
}

class pairs_of_transports : public ::testing::TestWithParam<pair_case> {};

/// On both sides of what transports treat alike.
constexpr std::array<std::size_t, 8> sizes{0, 1, 64, 1'000, 5'000, 65'536, 602'112, 100};
constexpr std::uint64_t callers = 4;

/// Of `sizes`, those whose requests may lie in ZeroMQ's own messages.
[[nodiscard]] std::uint64_t long_sizes() {
    return static_cast<std::uint64_t>(
        std::count_if(sizes.begin(), sizes.end(), [](auto size) { return size >= 1'024; }));
}

/// Requests and answers of these sizes describe themselves as a tensor, without elements too.
[[nodiscard]] bool is_described(std::size_t size) {
    return size == 0 || size == 100 || size == 1'000;
}
[[nodiscard]] tensor bytes_tensor(std::size_t size) {
    tensor out{.type = {type_code::unsigned_integer, 8, 1}, .rank = 1};
    out.shape[0] = static_cast<std::uint32_t>(size);
    return out;
}

/// Calls of one client, several in flight.
void call_many(context& ctx, const std::string& uri, std::uint64_t seed) {
    channel to = connect(ctx, uri);
    auto model = to.resolve("model");
    ASSERT_TRUE(model) << model.error().message;
    for (int round = 0; round < effort(12); ++round) {
        for (const std::size_t size : sizes) {
            const auto call = to.begin();
            ASSERT_EQ(call.code(), status::ok);
            fill(call->request.first(size), seed + size);
            submit_options options{.tag = size, .trace_id = seed, .target = *model};
            const tensor bytes = bytes_tensor(size);
            if (is_described(size)) options.tensors = {&bytes, 1};
            ASSERT_EQ(to.submit(call->id, size, options), status::ok);
        }
        for (std::size_t left = sizes.size(); left > 0; --left) {
            completion c;
            ASSERT_EQ(to.wait({&c, 1}, patience(20s)), 1U);
            ASSERT_EQ(c.status, status::ok) << to_string(c.status);
            EXPECT_EQ(c.trace_id, seed);
            EXPECT_TRUE(is_changed(c.response, seed + c.tag, c.tag)) << c.tag;
            std::array<tensor, 2> list;
            ASSERT_EQ(c.tensors(list).code(), is_described(c.tag) ? status::ok : status::not_found) << c.tag;
            EXPECT_TRUE(!is_described(c.tag) || list[0].shape[0] == c.tag) << c.tag;
        }
    }
}

TEST_P(pairs_of_transports, every_pair_of_transports_answers_correctly) {
    if (GetParam().to == "gdr" && !missing_handler_memory().empty()) GTEST_SKIP() << missing_handler_memory();
    auto ctx = context::open({.log = log_level::off});
    ASSERT_TRUE(ctx);
    prepare(*ctx);
    server behind = listen(*ctx, any_uri(GetParam().to), service_table{{{"model", answer_changed}}, {}});
    gateway_process between(
        {"--listen", any_uri(GetParam().from), "--to", "model=" + server_uri(client_uri(behind.endpoints().at(0)))});
    std::vector<std::thread> clients;
    for (std::uint64_t i = 0; i < callers; ++i)
        clients.emplace_back([&, i] { call_many(*ctx, between.uri(), 1'000'000 * (i + 1)); });
    for (std::thread& each : clients) each.join();
    const auto seen = between.stop();
    const std::uint64_t rounds = callers * static_cast<std::uint64_t>(effort(12));
    EXPECT_EQ(seen.at("answers"), rounds * sizes.size());
    EXPECT_TRUE(seen.at("errors").empty()) << seen;
    // What ZeroMQ delivers misaligned, its transport has copied already, and the gateway lends that.
    EXPECT_EQ(seen.at("payload_copies") > 0, GetParam().copies) << seen;
    EXPECT_LE(seen.at("payload_copies"), rounds * long_sizes()) << seen;
}

INSTANTIATE_TEST_SUITE_P(pairs, pairs_of_transports, all_pairs(), name_of_pair);

}  // namespace
}  // namespace accel::tests
