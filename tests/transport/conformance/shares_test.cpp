// SPDX-License-Identifier: Apache-2.0
// What a server lets all clients have, and one: sessions and memory for slots, taken and given back.
#include "keys.hpp"
#include "rig.hpp"

#include <array>
#include <iterator>
#include <list>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace accel::tests {
namespace {

/// What a server lets its clients have.
struct allowance {
    std::uint32_t sessions = 0;
    std::size_t bytes = 0;
    std::uint32_t sessions_of_a_client = 0;
    std::size_t bytes_of_a_client = 0;
};

/// One client as the server counts it, by its key where there are keys.
struct counted_client {
    struct session {
        checked_channel path;
        std::size_t bytes;  ///< of the server's memory
    };
    security_options security;
    std::list<session> sessions;

    [[nodiscard]] std::size_t bytes() const {
        return std::accumulate(sessions.begin(), sessions.end(), std::size_t{0},
                               [](std::size_t sum, const session& each) { return sum + each.bytes; });
    }
};

/// Clients that come and go, over and over, and ask for little or much.
class sharing : public on_every_backend {
  protected:
    static constexpr std::array<std::size_t, 2> sizes{4 << 10, 60 << 10};

    sharing() {
        if (!by_keys()) {
            clients_.push_back({calm_client().security, {}});
            return;
        }
        options_.security = keys_.server();
        options_.security.authorized_keys =
            keys_.authorise("both", {keys_.path() + "/client", keys_.make_pair("other")});
        clients_.push_back({keys_.client(), {}});
        clients_.push_back({keys_.client(), {}});
        clients_.back().security.key_file = keys_.path() + "/other.key";
    }
    /// Without keys all clients of this test are one, or nobody in the server's own process.
    [[nodiscard]] static bool by_keys() { return GetParam().scheme != "local" && GetParam().scheme != "shm"; }
    [[nodiscard]] static bool counts_clients() { return GetParam().scheme != "local"; }
    [[nodiscard]] result<channel> try_connect(rig& to, const counted_client& as, std::size_t size) const {
        channel_options options = calm_client();
        options.security = as.security;
        options.slots = 2;
        options.request_bytes = options.response_bytes = size;
        return to.try_connect(options);
    }
    /// What a session of this size takes of a server's memory.
    [[nodiscard]] std::size_t cost_of(std::size_t size) {
        rig measured(GetParam(), echo, options_);
        const auto one = try_connect(measured, clients_.front(), size);
        EXPECT_TRUE(one) << one.error().message;
        return measured.served().statistics().memory_bytes;
    }
    [[nodiscard]] bool admits(const allowance& most, const counted_client& to, std::size_t cost) const {
        std::size_t sessions = 0, bytes = cost;
        for (const counted_client& each : clients_) {
            sessions += each.sessions.size();
            bytes += each.bytes();
        }
        const bool in_share = !counts_clients() || (to.sessions.size() < most.sessions_of_a_client &&
                                                    to.bytes() + cost <= most.bytes_of_a_client);
        return in_share && sessions < most.sessions && bytes <= most.bytes;
    }
    void come_and_go(const allowance& most, unsigned seed) {
        const std::array costs{cost_of(sizes[0]), cost_of(sizes[1])};
        rig r(GetParam(), echo, options_);
        std::mt19937 random(seed);
        std::uint64_t refused = 0;
        for (int i = 0; i < 80; ++i) {
            counted_client& who = clients_.at(random() % clients_.size());
            if (!who.sessions.empty() && random() % 5 < 2) {
                who.sessions.erase(
                    std::next(who.sessions.begin(), static_cast<std::ptrdiff_t>(random() % who.sessions.size())));
            } else {
                const std::size_t which = random() % 2;
                const bool admitted = admits(most, who, costs.at(which));
                auto made = try_connect(r, who, sizes.at(which));
                ASSERT_EQ(made.ok(), admitted) << "step " << i << (made ? "" : ": " + made.error().message);
                if (made) {
                    who.sessions.push_back({checked_channel(std::move(*made)), costs.at(which)});
                    who.sessions.back().path.send_seed(1, 1);
                    EXPECT_EQ(who.sessions.back().path.finish(status::ok), 1U);
                } else {
                    EXPECT_EQ(made.code(), status::overloaded) << made.error().message;
                    ++refused;
                }
            }
            ASSERT_TRUE(is_counted(r)) << "step " << i;
        }
        EXPECT_GT(refused, 0U);
        EXPECT_EQ(r.served().statistics().sessions_refused, refused);
        for (counted_client& each : clients_) each.sessions.clear();
        EXPECT_TRUE(is_counted(r));
    }
    [[nodiscard]] bool is_counted(rig& r) const {
        std::size_t sessions = 0, bytes = 0;
        for (const counted_client& each : clients_) {
            sessions += each.sessions.size();
            bytes += each.bytes();
        }
        return eventually([&] {
            const auto now = r.served().statistics();
            return now.sessions == sessions && now.memory_bytes == bytes;
        });
    }

    key_folder keys_;
    server_options options_ = calm_server();
    std::vector<counted_client> clients_;
};

TEST_P(sharing, a_session_takes_of_its_clients_share_until_it_ends) {
    const std::size_t large = cost_of(sizes[1]);
    const allowance most{6, large == 0 ? std::size_t{1} << 30 : 7 * large / 2, 4, large == 0 ? 0 : 5 * large / 2};
    options_.max_sessions = most.sessions;
    options_.max_memory_bytes = most.bytes;
    options_.max_client_sessions = most.sessions_of_a_client;
    options_.max_client_memory_bytes = most.bytes_of_a_client;
    come_and_go(most, 1);
}

TEST_P(sharing, a_client_has_three_quarters_of_a_server_unless_told_otherwise) {
    if (GetParam().scheme == "gpu") GTEST_SKIP() << "places of a GPU-resident service may all be one client's";
    const std::size_t large = cost_of(sizes[1]);
    const allowance most{8, large == 0 ? std::size_t{1} << 30 : 4 * large, 6, 3 * large};
    options_.max_sessions = most.sessions;
    options_.max_memory_bytes = most.bytes;
    come_and_go(most, 2);
}

ACCEL_INSTANTIATE(sharing, all_backends);

}  // namespace
}  // namespace accel::tests
