// SPDX-License-Identifier: Apache-2.0
// Random valid work on two queue pairs, both directions at once, over a way that may lose, double and
// reorder; compared with a model that carries the same work out at once, in order, on plain arrays.
#include "rig.hpp"

#include <array>
#include <deque>
#include <map>

#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>

namespace accel::softnic {
namespace {

using testing::connect_pair;
using testing::link_options;
using testing::piece;
using testing::rig;
using testing::seen_completion;
using testing::test_cq;
using testing::test_qp;
using testing::work;

constexpr std::size_t arena_bytes = 1 << 14;
using arena = std::vector<std::uint8_t>;

struct expected_send {
    std::uint16_t index;
    std::uint8_t opcode;
    std::uint32_t bytes;
};
struct expected_receive {
    std::uint8_t kind;
    std::uint32_t bytes;
    std::uint32_t immediate;
};

/// One end: real memory with the device, and what the model says it should be. Each end has areas of its own
/// that only one direction writes, so that the order between the two directions does not matter.
struct end {
    explicit end(rig& on) : cq(on.adapter, 512), qp(on.adapter, cq, cq, 1) {
        for (arena* each : {&source, &target, &inbox, &fetched}) each->resize(arena_bytes);
        source_key = on.add_region(source);
        target_key = on.add_region(target);
        inbox_key = on.add_region(inbox);
        fetched_key = on.add_region(fetched);
    }
    test_cq cq;
    test_qp qp;
    arena source;   ///< what this end sends; never written
    arena target;   ///< what the other end writes, reads, and does atomics on
    arena inbox;    ///< receives
    arena fetched;  ///< results of reads and atomics
    std::uint32_t source_key, target_key, inbox_key, fetched_key;
    arena model_target = arena(arena_bytes), model_inbox = arena(arena_bytes), model_fetched = arena(arena_bytes);
    std::deque<expected_send> sends;
    std::deque<expected_receive> receives;
    std::deque<std::vector<segment>> posted;  ///< receive WQEs not yet used, oldest first
    std::uint16_t completed = 0;              ///< producer index up to which everything is known to be done
    std::uint32_t inbox_next = 0;
    bool unfenced_read = false;
};

class scenario {
  public:
    explicit scenario(std::uint64_t seed) : random_(seed), on_(make_settings(seed)), ends_{end(on_), end(on_)} {
        for (end& each : ends_)
            for (auto& byte : each.source) byte = static_cast<std::uint8_t>(random_());
        link_options how;
        how.mtu = static_cast<std::uint8_t>(1 + random_() % 3);
        how.reads = static_cast<std::uint8_t>(1 + random_() % 4);
        how.psn = static_cast<std::uint32_t>(random_()) & psn_mask;
        connect_pair(on_.adapter, ends_[0].qp, ends_[1].qp, how);
    }

    void run(int rounds) {
        for (int round = 0; round < rounds; ++round) {
            const auto from = static_cast<std::size_t>(pick(2));
            for (int count = pick(5); count >= 0; --count) post(ends_[from], ends_[1 - from]);
            ends_[from].qp.ring();
            for (int steps = pick(6); steps > 0; --steps) on_.step(static_cast<std::uint64_t>(pick(20'000)) + 1);
            if (pick(8) == 0) {
                ASSERT_TRUE(on_.settle());
            }
            collect();
            if (::testing::Test::HasFailure()) return;
        }
        ASSERT_TRUE(on_.settle());
        collect();
        check_end();
    }

  private:
    static settings make_settings(std::uint64_t seed) {
        settings chosen;
        chosen.seed = seed;
        chosen.strict = seed % 4 == 3;
        if (seed % 2 == 1) {
            chosen.faults = fmt::format(
                "drop p=0.02 seed={0};duplicate p=0.02 seed={0};reorder p=0.02 seed={0};"
                "delay p=0.02 us=500 seed={0}",
                seed);
        }
        return chosen;
    }

    int pick(int below) { return static_cast<int>(random_() % static_cast<std::uint64_t>(below)); }
    std::uint32_t length() {
        const int shape = pick(10);
        return shape == 0  ? 0
               : shape < 6 ? 1 + static_cast<std::uint32_t>(pick(64))
                           : 1 + static_cast<std::uint32_t>(pick(3000));
    }
    std::uint32_t offset_for(std::uint32_t size) {
        return static_cast<std::uint32_t>(pick(static_cast<int>(arena_bytes - size)));
    }

    /// Cuts [offset, offset + size) of an arena into one to three pieces.
    std::vector<segment> cut(const arena& from, std::uint32_t offset, std::uint32_t size, std::uint32_t key) {
        std::vector<segment> pieces;
        for (int left = 1 + pick(3); left > 0 && size > 0; --left) {
            const std::uint32_t part = left == 1 ? size : 1 + static_cast<std::uint32_t>(pick(static_cast<int>(size)));
            pieces.push_back(piece(from.data() + offset, part, key));
            offset += part;
            size -= part;
        }
        return pieces;
    }

    /// The payload of a send or write: sometimes the beginning of it inline.
    std::vector<std::uint8_t> choose_payload(end& from, std::uint32_t size, work& what) {
        const std::uint32_t offset = offset_for(size);
        std::vector<std::uint8_t> payload(from.source.begin() + offset, from.source.begin() + offset + size);
        const std::uint32_t inlined =
            pick(3) == 0 ? std::min<std::uint32_t>(size, static_cast<std::uint32_t>(pick(100))) : 0;
        for (std::uint32_t at = 0; at < inlined; ++at) what.inlined.push_back(std::byte{payload[at]});
        what.pieces = cut(from.source, offset + inlined, size - inlined, from.source_key);
        return payload;
    }

    void post_receive(end& at) {
        const std::uint32_t size = 3100;
        if (at.inbox_next + size > arena_bytes) at.inbox_next = 0;
        const auto pieces = cut(at.inbox, at.inbox_next, size, at.inbox_key);
        at.inbox_next += size;
        at.qp.post_receive(pieces);
        at.posted.push_back(pieces);
    }

    void model_receive(end& to, const std::vector<std::uint8_t>& payload) {
        std::size_t done = 0;
        for (const segment& part : to.posted.front()) {
            const std::size_t start = part.address - reinterpret_cast<std::uint64_t>(to.inbox.data());
            for (std::size_t at = 0; at < part.length && done < payload.size(); ++at)
                to.model_inbox[start + at] = payload[done++];
        }
        to.posted.pop_front();
    }

    void post(end& from, end& to) {
        constexpr std::uint32_t largest_blocks = 5;
        if (from.qp.room(from.completed) < largest_blocks || to.receives.size() > 28) return;
        static constexpr std::uint8_t opcodes[]{
            MLX5_OPCODE_RDMA_WRITE, MLX5_OPCODE_RDMA_WRITE_IMM, MLX5_OPCODE_SEND,      MLX5_OPCODE_SEND_IMM,
            MLX5_OPCODE_RDMA_READ,  MLX5_OPCODE_ATOMIC_FA,      MLX5_OPCODE_ATOMIC_CS, MLX5_OPCODE_NOP};
        work what;
        what.opcode = opcodes[pick(std::size(opcodes))];
        what.signalled = pick(3) != 0;
        what.fenced = pick(4) == 0;
        what.solicited = pick(4) == 0;
        std::uint32_t bytes = 0;
        switch (what.opcode) {
            case MLX5_OPCODE_NOP:
                break;
            case MLX5_OPCODE_RDMA_READ:
                bytes = post_read(from, to, what);
                break;
            case MLX5_OPCODE_ATOMIC_FA:
            case MLX5_OPCODE_ATOMIC_CS:
                bytes = post_atomic(from, to, what);
                break;
            case MLX5_OPCODE_SEND:
            case MLX5_OPCODE_SEND_IMM:
                bytes = post_send(from, to, what);
                break;
            default:
                bytes = post_write(from, to, what);
                break;
        }
        // Without a fence, a write may overtake a read: the standard allows it, and the model knows nothing
        // of it.
        if (what.opcode != MLX5_OPCODE_RDMA_READ && from.unfenced_read) what.fenced = true;
        from.unfenced_read = what.opcode == MLX5_OPCODE_RDMA_READ || (from.unfenced_read && !what.fenced);
        const std::uint16_t index = from.qp.post(what);
        if (what.signalled) from.sends.push_back({index, what.opcode, bytes});
    }

    std::uint32_t post_write(end& from, end& to, work& what) {
        const std::uint32_t size = length();
        const std::uint32_t offset = offset_for(size);
        const auto payload = choose_payload(from, size, what);
        what.remote = reinterpret_cast<std::uint64_t>(to.target.data() + offset);
        what.rkey = to.target_key;
        std::copy(payload.begin(), payload.end(), to.model_target.begin() + offset);
        if (what.opcode == MLX5_OPCODE_RDMA_WRITE_IMM) {
            what.immediate = static_cast<std::uint32_t>(random_());
            post_receive(to);
            to.posted.pop_front();
            to.receives.push_back({MLX5_CQE_RESP_WR_IMM, size, what.immediate});
        }
        return size;
    }

    std::uint32_t post_send(end& from, end& to, work& what) {
        const std::uint32_t size = length();
        const auto payload = choose_payload(from, size, what);
        const bool immediate = what.opcode == MLX5_OPCODE_SEND_IMM;
        what.immediate = immediate ? static_cast<std::uint32_t>(random_()) : 0;
        post_receive(to);
        model_receive(to, payload);
        to.receives.push_back({immediate ? std::uint8_t{MLX5_CQE_RESP_SEND_IMM} : std::uint8_t{MLX5_CQE_RESP_SEND},
                               size, what.immediate});
        return size;
    }

    std::uint32_t post_read(end& from, end& to, work& what) {
        const std::uint32_t size = length();
        const std::uint32_t offset = offset_for(size);
        const std::uint32_t into = offset_for(size);
        what.remote = reinterpret_cast<std::uint64_t>(to.target.data() + offset);
        what.rkey = to.target_key;
        what.pieces = cut(from.fetched, into, size, from.fetched_key);
        std::copy_n(to.model_target.begin() + offset, size, from.model_fetched.begin() + into);
        return size;
    }

    std::uint32_t post_atomic(end& from, end& to, work& what) {
        const std::uint32_t offset = offset_for(16) / 8 * 8;
        const std::uint32_t into = offset_for(8);
        std::uint64_t before = 0;
        std::memcpy(&before, to.model_target.data() + offset, 8);
        what.remote = reinterpret_cast<std::uint64_t>(to.target.data() + offset);
        what.rkey = to.target_key;
        what.pieces = {piece(from.fetched.data() + into, 8, from.fetched_key)};
        what.swap_or_add = random_();
        what.compare = pick(2) == 0 ? before : random_();
        std::uint64_t after = before + what.swap_or_add;
        if (what.opcode == MLX5_OPCODE_ATOMIC_CS) after = before == what.compare ? what.swap_or_add : before;
        std::memcpy(to.model_target.data() + offset, &after, 8);
        std::memcpy(from.model_fetched.data() + into, &before, 8);
        return 8;
    }

    void collect() {
        for (end& each : ends_) {
            seen_completion seen;
            while (each.cq.poll(seen)) {
                ASSERT_EQ(seen.qpn, each.qp.qp->number);
                if (seen.kind == MLX5_CQE_REQ) {
                    ASSERT_FALSE(each.sends.empty()) << "a completion for nothing";
                    const expected_send expected = each.sends.front();
                    each.sends.pop_front();
                    ASSERT_EQ(seen.index, expected.index) << "out of order";
                    ASSERT_EQ(seen.opcode, expected.opcode);
                    ASSERT_EQ(seen.bytes, expected.bytes);
                    each.completed = seen.index;
                } else {
                    ASSERT_FALSE(each.receives.empty())
                        << "kind " << int{seen.kind} << " syndrome " << int{seen.syndrome};
                    const expected_receive expected = each.receives.front();
                    each.receives.pop_front();
                    ASSERT_EQ(seen.kind, expected.kind);
                    ASSERT_EQ(seen.bytes, expected.bytes);
                    ASSERT_EQ(seen.immediate, expected.immediate);
                }
            }
            if (each.qp.qp->requester.oldest == each.qp.qp->requester.newest &&
                each.qp.qp->requester.consumed == each.qp.produced())
                each.completed = each.qp.produced();
        }
    }

    void check_end() {
        for (const end& each : ends_) {
            EXPECT_TRUE(each.sends.empty()) << each.sends.size() << " completions missing";
            EXPECT_TRUE(each.receives.empty()) << each.receives.size() << " receives missing";
            EXPECT_EQ(each.target, each.model_target);
            EXPECT_EQ(each.inbox, each.model_inbox);
            EXPECT_EQ(each.fetched, each.model_fetched);
        }
    }

    std::mt19937_64 random_;
    rig on_;
    std::array<end, 2> ends_;
};

struct random_work : ::testing::TestWithParam<std::uint64_t> {};

TEST_P(random_work, agrees_with_the_model) {
    for (std::uint64_t seed = GetParam(); seed < GetParam() + 8; ++seed) {
        SCOPED_TRACE(fmt::format("seed {}", seed));
        scenario(seed).run(150);
        if (HasFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(seeds, random_work, ::testing::Values(0, 8, 16, 24, 32, 40));

}  // namespace
}  // namespace accel::softnic
