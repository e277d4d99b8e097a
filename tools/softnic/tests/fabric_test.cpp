// SPDX-License-Identifier: Apache-2.0
#include "fabric/fabric.hpp"

#include <csignal>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace accel::softnic {
namespace {

/// A shared fabric with a name of its own, removed afterwards.
class named_fabric {
  public:
    named_fabric() : name_(fmt::format("test-{}-{}", ::getpid(), ++count_)) {}
    ~named_fabric() { ::shm_unlink(fmt::format("/softnic-{}-{}", ::getuid(), name_).c_str()); }
    named_fabric(const named_fabric&) = delete;
    named_fabric& operator=(const named_fabric&) = delete;
    [[nodiscard]] const std::string& get() const { return name_; }
    [[nodiscard]] bool exists() const {
        return ::access(fmt::format("/dev/shm/softnic-{}-{}", ::getuid(), name_).c_str(), F_OK) == 0;
    }

  private:
    static inline int count_ = 0;
    std::string name_;
};

void send(fabric& from, int to, std::uint32_t psn) {
    packet* slot = from.reserve(to);
    ASSERT_NE(slot, nullptr);
    slot->header.psn = psn;
    from.commit(to);
}

/// Of three nodes each to each, and to itself. A ring holds so many, and no more.
TEST(fabric, packets_arrive_once_in_the_order_of_their_sender) {
    std::mt19937 random(1);
    std::vector<std::unique_ptr<fabric>> nodes;
    nodes.push_back(fabric::create_private());
    for (int count = 1; count < 3; ++count) nodes.push_back(fabric::join_peer(*nodes[0]));
    std::map<std::pair<std::size_t, std::size_t>, std::deque<std::uint32_t>> under_way;
    std::uint32_t next = 0;
    for (int round = 0; round < 20'000; ++round) {
        const std::size_t one = random() % nodes.size();
        const std::size_t other = random() % nodes.size();
        const bool fills = round / 1000 % 2 == 0;
        for (std::size_t count = fills ? 3 : 1; count > 0; --count) {
            auto& ring = under_way[{one, other}];
            const bool full = ring.size() == (one == other ? loopback_slots : ring_slots);
            ASSERT_EQ(nodes[one]->reserve(nodes[other]->node()) == nullptr, full);
            if (full) break;
            send(*nodes[one], nodes[other]->node(), next);
            ring.push_back(next++);
        }
        for (std::size_t count = fills ? 1 : 4; count > 0; --count) {
            const packet* in = nodes[other]->receive();
            const auto from = std::find_if(under_way.begin(), under_way.end(), [&](const auto& each) {
                return each.first.second == other && in != nullptr && !each.second.empty() &&
                       each.second.front() == in->header.psn;
            });
            const bool any = std::any_of(under_way.begin(), under_way.end(), [&](const auto& each) {
                return each.first.second == other && !each.second.empty();
            });
            ASSERT_EQ(in != nullptr, any);
            if (in == nullptr) break;
            ASSERT_NE(from, under_way.end()) << "out of order, or twice";
            ASSERT_EQ(nodes[other]->receiving_from_self(), from->first.first == other);
            from->second.pop_front();
            nodes[other]->release();
        }
    }
}

TEST(fabric, queue_pair_numbers_are_unique_until_they_are_given_back) {
    const auto one = fabric::create_private();
    std::set<std::uint32_t> numbers;
    while (const auto qpn = one->claim_qpn(0)) {
        ASSERT_GE(*qpn, first_qpn);
        ASSERT_TRUE(numbers.insert(*qpn).second);
        ASSERT_EQ(one->owner_of(0, *qpn), one->node());
    }
    EXPECT_EQ(numbers.size(), qpn_space - first_qpn);
    EXPECT_EQ(one->owner_of(1, first_qpn), -1) << "devices have numbers of their own";
    for (const std::uint32_t qpn : {first_qpn, qpn_space - 1, first_qpn + 1000}) {
        one->release_qpn(0, qpn);
        EXPECT_EQ(one->owner_of(0, qpn), -1);
        EXPECT_EQ(one->claim_qpn(0), qpn) << "the only one";
    }
    EXPECT_FALSE(one->claim_qpn(0));
    EXPECT_EQ(one->owner_of(0, qpn_space), -1);
    EXPECT_EQ(one->owner_of(max_devices, first_qpn), -1);
    EXPECT_EQ(one->owner_of(-1, first_qpn), -1);
}

TEST(fabric, gives_back_what_a_killed_process_held) {
    const named_fabric name;
    const auto mine = fabric::join(name.get(), 7);
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        const auto theirs = fabric::join(name.get(), 7);
        const std::uint32_t told[]{theirs->claim_qpn(0).value_or(0), static_cast<std::uint32_t>(theirs->node())};
        if (::write(ready[1], told, sizeof told) < 0) ::_exit(1);
        ::pause();
        ::_exit(0);
    }
    std::uint32_t told[2]{};
    ASSERT_EQ(::read(ready[0], told, sizeof told), static_cast<ssize_t>(sizeof told));
    const int their_node = static_cast<int>(told[1]);
    mine->reap_dead_nodes();
    EXPECT_EQ(mine->owner_of(0, told[0]), their_node) << "still alive";
    send(*mine, their_node, 1);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    mine->reap_dead_nodes();
    EXPECT_EQ(mine->owner_of(0, told[0]), -1);
    const auto next = fabric::join(name.get(), 7);
    EXPECT_EQ(next->node(), their_node) << "the place is free again";
    EXPECT_EQ(next->receive(), nullptr) << "what was sent to the dead is not for the next";
    send(*mine, next->node(), 5);
    ASSERT_NE(next->receive(), nullptr);
    EXPECT_EQ(next->receive()->header.psn, 5u);
}

TEST(fabric, a_fabric_is_removed_with_its_last_process) {
    const named_fabric name;
    auto one = fabric::join(name.get(), 7);
    auto other = fabric::join(name.get(), 7);
    one->remove_if_last();
    EXPECT_TRUE(name.exists()) << "the other is still there";
    other->remove_if_last();
    EXPECT_FALSE(name.exists()) << "both are about to go";
    const auto next = fabric::join(name.get(), 8);
    EXPECT_EQ(next->node(), 0) << "a new file, not the old one";
}

TEST(fabric, the_fabric_of_killed_processes_is_removed_by_the_next) {
    const named_fabric stale;
    const named_fabric used;
    const auto mine = fabric::join(used.get(), 7);
    const pid_t child = ::fork();
    if (child == 0) {
        const auto theirs = fabric::join(stale.get(), 7);
        ::kill(::getpid(), SIGKILL);
    }
    ::waitpid(child, nullptr, 0);
    // Programs of other tests may be looking at the same file just now, and have it locked or removed.
    for (int tries = 0; tries < 1000 && stale.exists(); ++tries) {
        fabric::remove_unused();
        ::usleep(1000);
    }
    EXPECT_FALSE(stale.exists());
    EXPECT_TRUE(used.exists());
}

TEST(fabric, refuses_another_device_list) {
    const named_fabric name;
    const auto mine = fabric::join(name.get(), 7);
    EXPECT_THROW(static_cast<void>(fabric::join(name.get(), 8)), std::runtime_error);
}

TEST(fabric, a_full_fabric_refuses_another_node) {
    std::vector<std::unique_ptr<fabric>> all;
    all.push_back(fabric::create_private());
    while (all.size() < static_cast<std::size_t>(max_nodes)) all.push_back(fabric::join_peer(*all[0]));
    EXPECT_THROW(static_cast<void>(fabric::join_peer(*all[0])), std::runtime_error);
    all.pop_back();
    EXPECT_NO_THROW(all.push_back(fabric::join_peer(*all[0])));
}

TEST(fabric, a_packet_wakes_a_waiting_node) {
    const auto one = fabric::create_private();
    const auto other = fabric::join_peer(*one);
    const std::uint32_t seen = other->arrivals();
    std::thread sender([&] { send(*one, other->node(), 1); });
    const auto start = std::chrono::steady_clock::now();
    while (other->arrivals() == seen) other->wait_for_arrival(seen, 5'000'000'000);
    sender.join();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(4));
    EXPECT_NE(other->receive(), nullptr);
}

}  // namespace
}  // namespace accel::softnic
