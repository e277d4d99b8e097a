// SPDX-License-Identifier: Apache-2.0
// Random valid work on two queue pairs, both directions at once, over a way that may lose, double, delay and reorder,
// in memory of the host or of a GPU, of one process or of two; compared with a model that carries the same work out at
// once, in order, on plain arrays. Then one queue pair fails in the middle of it.
#include "hidden_memory.hpp"
#include "rig.hpp"

#include <array>
#include <deque>

#include <endian.h>
#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

namespace accel::softnic {
namespace {

using testing::hidden_memory;
using testing::link_options;
using testing::rig;
using testing::seen_completion;
using testing::test_cq;
using testing::test_qp;
using testing::work;

constexpr std::uint8_t opcode_of_dump = 0x23;
constexpr std::uint32_t receive_bytes = 3100;
constexpr std::uint32_t fetch_bytes = 8192;
constexpr std::uint32_t receive_slots = 32;  ///< as many as receives at once
constexpr std::uint32_t fetch_slots = 64;    ///< as many as requests at once
constexpr std::uint32_t target_bytes = 1 << 15;

using bytes = std::vector<std::uint8_t>;

/// Memory with a key, and what the model says is in it.
class arena {
  public:
    arena(rig& on, std::size_t size, bool of_gpu) : model(size) {
        if (of_gpu) {
            hidden_ = std::make_shared<hidden_memory>(size);
            const auto address = reinterpret_cast<std::uint64_t>(hidden_->address());
            key = on.adapter.state.devices[0].regions.add({0, 1, address, size, address, 0xf, false, hidden_}).key;
        } else {
            plain_.resize(size);
            key = on.add_region(plain_);
        }
    }
    [[nodiscard]] std::uint64_t address(std::uint32_t offset = 0) const {
        const void* at = hidden_ ? hidden_->address() : plain_.data();
        return reinterpret_cast<std::uint64_t>(at) + offset;
    }
    [[nodiscard]] std::span<std::uint8_t> now() { return hidden_ ? hidden_->bytes() : std::span(plain_); }
    [[nodiscard]] bool agrees(std::uint32_t offset, std::uint32_t size) {
        const auto part = now().subspan(offset, size);
        return std::equal(part.begin(), part.end(), model.begin() + offset);
    }
    bytes model;
    std::uint32_t key = 0;

  private:
    bytes plain_;
    std::shared_ptr<hidden_memory> hidden_;
};

struct awaited_send {
    std::uint16_t index;
    std::uint8_t opcode;
    std::uint32_t length;
    bool signalled;
    std::uint32_t fetched_at, fetched;  ///< what is in `fetched` when it has completed
};
struct awaited_receive {
    std::uint8_t kind;
    std::uint32_t length;
    std::uint32_t immediate;
    bytes payload;
    std::uint32_t slot = 0;
    std::vector<segment> pieces{};
};

/// One end. Each area is written by one direction only, so that the order between the two does not matter.
struct end {
    /// A bit of `gpu` for each area that is memory of a GPU.
    end(rig& of, unsigned gpu) : on(of), gpu_(gpu) {}
    rig& on;
    unsigned gpu_;
    test_cq cq{on.adapter, 512};
    test_qp qp{on.adapter, cq, cq, 1};
    arena source{on, target_bytes, (gpu_ >> 0 & 1) != 0};  ///< what this end sends; never written
    arena target{on, target_bytes, (gpu_ >> 1 & 1) != 0};  ///< what the other end writes, reads, and does atomics on
    arena inbox{on, receive_slots* receive_bytes, (gpu_ >> 2 & 1) != 0};
    arena fetched{on, fetch_slots* fetch_bytes, (gpu_ >> 3 & 1) != 0};  ///< results of reads and atomics
    std::deque<awaited_send> sends;
    std::deque<awaited_receive> receives;
    std::size_t unposted = 0;  ///< of these receives, the last ones: not posted yet
    std::uint32_t next_receive = 0, next_fetch = 0;
    std::uint32_t last_fetched = 0;  ///< bytes of the newest fetch
    bytes spare = bytes(64);
    std::vector<std::uint32_t> invalidated;  ///< keys of `spare`
    std::uint16_t completed = 0;             ///< producer index up to which everything is known to be done
    bool unfenced_read = false;
    bool failed = false;

    [[nodiscard]] std::uint32_t newest_fetch() const { return (next_fetch - 1) % fetch_slots * fetch_bytes; }
};

/// Sums of fields that end with the bits of `boundary`.
std::uint64_t add_fields(std::uint64_t one, std::uint64_t other, std::uint64_t boundary, unsigned bits) {
    std::uint64_t sum = 0;
    for (unsigned low = 0, high = 0; high < bits; ++high) {
        if ((boundary >> high & 1) == 0 && high + 1 != bits) continue;
        const std::uint64_t mask = high - low == 63 ? ~0ull : (1ull << (high - low + 1)) - 1;
        sum |= (((one >> low) + (other >> low)) & mask) << low;
        low = high + 1;
    }
    return sum;
}

constexpr const char* ways[]{
    "",
    "drop p=0.01 seed={0}",
    "drop p=0.08 seed={0}",
    "drop p=0.15 op=ack seed={0}",
    "drop p=0.1 op=read_response seed={0}",
    "drop p=0.15 op=atomic_response seed={0}",
    "drop p=0.3 op=nak seed={0};drop p=0.03 seed={0}",
    "duplicate p=0.2 seed={0}",
    "reorder p=0.1 seed={0}",
    "delay p=0.1 us=3000 seed={0}",
    "nak:rnr p=0.1 seed={0}",
    "nak:sequence p=0.1 seed={0}",
    "drop p=0.02 seed={0};duplicate p=0.03 seed={0};reorder p=0.03 seed={0};delay p=0.02 us=500 seed={0}",
};

class scenario {
  public:
    explicit scenario(std::uint64_t seed)
        : random_(seed),
          first_(make_settings(seed)),
          second_(beside(seed)),
          ends_{end(first_, gpu_), end(*second_, gpu_)} {
        for (end& each : ends_) {
            for (auto& byte : each.source.model) byte = static_cast<std::uint8_t>(random_());
            std::copy(each.source.model.begin(), each.source.model.end(), each.source.now().begin());
        }
        for (end& each : ends_)
            for (arena* part : {&each.target, &each.inbox, &each.fetched})
                std::fill(part->now().begin(), part->now().end(), std::uint8_t{0});
        connect();
    }

    void run(int rounds) {
        for (int round = 0; round < rounds; ++round) {
            run_round();
            if (pick(8) == 0) rest();
            collect();
            if (::testing::Test::HasFailure()) return;
        }
        rest();
        collect();
        check_end();
    }

    /// One queue pair goes to the error state while both have work.
    void fail_one(int rounds) {
        for (int round = 0; round < rounds; ++round) run_round();
        collect();
        for (end& each : ends_) post_receives(each);
        end& dying = ends_[static_cast<std::size_t>(pick(2))];
        qp_modification change;
        change.mask = IBV_QP_STATE;
        change.next = qp_state::error;
        ASSERT_EQ(dying.on.adapter.modify_qp(*dying.qp.qp, change), 0);
        ASSERT_TRUE(settle(all()));
        collect();
        EXPECT_TRUE(dying.receives.empty()) << "not flushed";
        EXPECT_EQ(dying.qp.qp->state, qp_state::error);
        for (end& each : ends_) {
            for (const auto& left : each.sends) EXPECT_TRUE(!left.signalled && !each.failed) << "never completed";
            EXPECT_EQ(each.qp.qp->state == qp_state::error, each.failed || &each == &dying);
            EXPECT_TRUE(each.receives.empty() || !each.failed);
        }
    }

    /// Both begin anew, with what is in memory now.
    void start_again() {
        for (end& each : ends_) {
            qp_modification change;
            change.mask = IBV_QP_STATE;
            ASSERT_EQ(each.on.adapter.modify_qp(*each.qp.qp, change), 0);
            each.qp.restart();
            each.sends.clear();
            each.receives.clear();
            each.invalidated.clear();
            each.unposted = each.completed = 0;
            each.unfenced_read = each.failed = false;
            each.last_fetched = 0;
            for (arena* part : {&each.target, &each.inbox, &each.fetched})
                std::copy(part->now().begin(), part->now().end(), part->model.begin());
        }
        connect();
    }

  private:
    settings make_settings(std::uint64_t seed) {
        settings chosen;
        chosen.seed = seed;
        chosen.strict = pick(3) == 0;
        chosen.faults = fmt::format(fmt::runtime(ways[seed % std::size(ways)]), seed);
        if (pick(4) == 0) chosen.link = parse_link("25Gb/s,1us");
        gpu_ = pick(2) == 0 ? 0 : below(16);
        return chosen;
    }
    /// The process of the second end, which may be that of the first.
    rig* beside(std::uint64_t seed) {
        if (pick(2) == 0) return &first_;
        settings same = first_.adapter.state.config;
        same.seed = seed + 1;
        other_ = std::make_unique<rig>(same, fabric::join_peer(*first_.adapter.state.net));
        return other_.get();
    }
    std::span<rig* const> all() { return {processes_.data(), second_ == &first_ ? 1u : 2u}; }

    void connect() {
        link_options how;
        how.mtu = static_cast<std::uint8_t>(1 + pick(3));
        how.reads = static_cast<std::uint8_t>(pick(2) == 0 ? 16 : 1 + pick(4));
        how.psn = static_cast<std::uint32_t>(random_()) & psn_mask;
        testing::connect(ends_[0].on.adapter, *ends_[0].qp.qp, ends_[1].qp.qp->number, how);
        testing::connect(ends_[1].on.adapter, *ends_[1].qp.qp, ends_[0].qp.qp->number, how);
        processes_ = {&first_, second_};
    }

    int pick(int below) { return static_cast<int>(random_() % static_cast<std::uint64_t>(below)); }
    std::uint32_t below(std::uint32_t limit) { return static_cast<std::uint32_t>(random_() % limit); }
    std::uint32_t length(std::uint32_t longest) {
        const int shape = pick(20);
        if (shape == 0) return 0;
        if (shape == 1) return 1 + below(longest);
        return 1 + below(shape < 12 ? 64 : 3000);
    }

    /// A few requests from one end, and some time.
    void run_round() {
        const auto from = static_cast<std::size_t>(pick(2));
        for (int count = pick(16) == 0 ? 40 : pick(5); count >= 0; --count) post(ends_[from], ends_[1 - from]);
        ends_[from].qp.ring();
        for (end& each : ends_)
            if (pick(3) != 0) post_receives(each);
        for (int steps = pick(6); steps > 0; --steps) {
            first_.now += 1 + below(20'000);
            for (rig* each : all()) each->adapter.progress(each->now = first_.now);
        }
    }
    void rest() {
        for (end& each : ends_) post_receives(each);
        ASSERT_TRUE(settle(all()));
    }

    /// Cuts [offset, offset + size) of an arena into one to three pieces.
    std::vector<segment> cut(const arena& from, std::uint32_t offset, std::uint32_t size) {
        std::vector<segment> pieces;
        for (int left = 1 + pick(3); left > 0 && size > 0; --left) {
            const std::uint32_t part = left == 1 ? size : 1 + below(size);
            pieces.push_back({from.address(offset), part, from.key, false});
            offset += part;
            size -= part;
        }
        return pieces;
    }

    /// The payload of a send or write. Sometimes the beginning of it inline; sometimes what an earlier request has
    /// fetched, after a fence.
    bytes choose_payload(end& from, std::uint32_t size, work& what) {
        if (from.last_fetched >= size && size != 0 && pick(3) == 0) {
            what.fenced = true;
            what.pieces = cut(from.fetched, from.newest_fetch(), size);
            const auto start = from.fetched.model.begin() + from.newest_fetch();
            return {start, start + size};
        }
        const std::uint32_t offset = below(target_bytes - size);
        bytes payload(from.source.model.begin() + offset, from.source.model.begin() + offset + size);
        const std::uint32_t inlined = pick(3) == 0 ? std::min(size, below(100)) : 0;
        for (std::uint32_t at = 0; at < inlined; ++at) what.inlined.push_back(std::byte{payload[at]});
        what.pieces = cut(from.source, offset + inlined, size - inlined);
        return payload;
    }

    void post_receives(end& at) {
        for (; at.unposted > 0; --at.unposted) {
            awaited_receive& next = at.receives[at.receives.size() - at.unposted];
            next.slot = at.next_receive++ % receive_slots * receive_bytes;
            next.pieces = cut(at.inbox, next.slot, receive_bytes);
            at.qp.post_receive(next.pieces);
        }
    }
    void await(end& at, awaited_receive what) {
        at.receives.push_back(std::move(what));
        ++at.unposted;
    }

    void post(end& from, end& to) {
        constexpr std::uint32_t largest_blocks = 5;
        if (from.qp.room(from.completed) < largest_blocks || to.receives.size() > 28) return;
        static constexpr std::uint8_t opcodes[]{MLX5_OPCODE_RDMA_WRITE,
                                                MLX5_OPCODE_RDMA_WRITE_IMM,
                                                MLX5_OPCODE_SEND,
                                                MLX5_OPCODE_SEND_IMM,
                                                MLX5_OPCODE_SEND_INVAL,
                                                MLX5_OPCODE_RDMA_READ,
                                                MLX5_OPCODE_ATOMIC_FA,
                                                MLX5_OPCODE_ATOMIC_CS,
                                                MLX5_OPCODE_ATOMIC_MASKED_FA,
                                                MLX5_OPCODE_NOP,
                                                opcode_of_dump,
                                                MLX5_OPCODE_ATOMIC_MASKED_CS};
        work what;
        what.opcode = opcodes[pick(std::size(opcodes))];
        what.signalled = pick(3) != 0;
        what.fenced = pick(4) == 0;
        awaited_send expected{0, what.opcode, 0, what.signalled, 0, 0};
        fill(from, to, what, expected);
        // Without a fence, a write may overtake a read: the standard allows it, and the model knows nothing of it.
        if (what.opcode != MLX5_OPCODE_RDMA_READ && from.unfenced_read) what.fenced = true;
        from.unfenced_read = what.opcode == MLX5_OPCODE_RDMA_READ || (from.unfenced_read && !what.fenced);
        expected.index = from.qp.post(what);
        from.sends.push_back(expected);
    }

    void fill(end& from, end& to, work& what, awaited_send& expected) {
        switch (what.opcode) {
            case MLX5_OPCODE_NOP:
                break;
            case opcode_of_dump:
                expected.length = length(3000);
                what.pieces = cut(from.source, 0, expected.length);
                break;
            case MLX5_OPCODE_RDMA_READ:
                fill_read(from, to, what, expected);
                break;
            case MLX5_OPCODE_SEND:
            case MLX5_OPCODE_SEND_IMM:
            case MLX5_OPCODE_SEND_INVAL:
                fill_send(from, to, what, expected);
                break;
            case MLX5_OPCODE_RDMA_WRITE:
            case MLX5_OPCODE_RDMA_WRITE_IMM:
                fill_write(from, to, what, expected);
                break;
            default:
                fill_atomic(from, to, what, expected);
                break;
        }
    }

    void fill_write(end& from, end& to, work& what, awaited_send& expected) {
        expected.length = length(20'000);
        const std::uint32_t offset = below(target_bytes - expected.length);
        const auto payload = choose_payload(from, expected.length, what);
        what.remote = to.target.address(offset);
        what.rkey = to.target.key;
        std::copy(payload.begin(), payload.end(), to.target.model.begin() + offset);
        if (what.opcode != MLX5_OPCODE_RDMA_WRITE_IMM) return;
        what.immediate = static_cast<std::uint32_t>(random_());
        await(to, {MLX5_CQE_RESP_WR_IMM, expected.length, what.immediate, {}});
    }

    void fill_send(end& from, end& to, work& what, awaited_send& expected) {
        expected.length = length(3000);
        auto payload = choose_payload(from, expected.length, what);
        std::uint8_t kind = MLX5_CQE_RESP_SEND;
        if (what.opcode == MLX5_OPCODE_SEND_IMM) {
            what.immediate = static_cast<std::uint32_t>(random_());
            kind = MLX5_CQE_RESP_SEND_IMM;
        } else if (what.opcode == MLX5_OPCODE_SEND_INVAL) {
            what.immediate = to.on.add_region(to.spare);
            to.invalidated.push_back(what.immediate);
            kind = MLX5_CQE_RESP_SEND_INV;
        }
        await(to, {kind, expected.length, what.immediate, std::move(payload)});
    }

    /// A place for what comes back.
    std::uint32_t take_fetch(end& from, std::uint32_t size, awaited_send& expected) {
        expected.fetched_at = from.next_fetch++ % fetch_slots * fetch_bytes;
        expected.fetched = from.last_fetched = size;
        return expected.fetched_at;
    }

    void fill_read(end& from, end& to, work& what, awaited_send& expected) {
        expected.length = length(fetch_bytes);
        const std::uint32_t offset = below(target_bytes - expected.length);
        const std::uint32_t into = take_fetch(from, expected.length, expected);
        what.remote = to.target.address(offset);
        what.rkey = to.target.key;
        what.pieces = cut(from.fetched, into, expected.length);
        std::copy_n(to.target.model.begin() + offset, expected.length, from.fetched.model.begin() + into);
    }

    void fill_atomic(end& from, end& to, work& what, awaited_send& expected) {
        const bool masked = what.opcode == MLX5_OPCODE_ATOMIC_MASKED_CS || what.opcode == MLX5_OPCODE_ATOMIC_MASKED_FA;
        const std::uint32_t size = masked && pick(2) == 0 ? 4 : 8;
        const std::uint32_t offset = below(target_bytes / 64) * size;  // often the same place
        std::uint64_t before = 0;
        std::memcpy(&before, to.target.model.data() + offset, size);
        what.operand_bytes = expected.length = size;
        what.remote = to.target.address(offset);
        what.rkey = to.target.key;
        const std::uint32_t into = take_fetch(from, size, expected);
        what.pieces = {{from.fetched.address(into), size, from.fetched.key, false}};
        what.swap_or_add = random_();
        what.compare = pick(2) == 0 ? before : random_();
        if (masked) {
            what.boundary = random_() & random_();
            what.swap_mask = random_();
            what.compare_mask = pick(2) == 0 ? random_() : 0xff;
        }
        const std::uint64_t after = apply(what, before, size);
        std::memcpy(to.target.model.data() + offset, &after, size);
        const std::uint32_t narrow = htobe32(static_cast<std::uint32_t>(before));
        std::memcpy(from.fetched.model.data() + into, size == 4 ? static_cast<const void*>(&narrow) : &before, size);
    }
    static std::uint64_t apply(const work& what, std::uint64_t before, std::uint32_t size) {
        const bool swaps = what.opcode == MLX5_OPCODE_ATOMIC_CS || what.opcode == MLX5_OPCODE_ATOMIC_MASKED_CS;
        if (!swaps) return add_fields(before, what.swap_or_add, what.boundary, size * 8);
        const std::uint64_t all_bits = size == 4 ? 0xffffffff : ~0ull;
        const std::uint64_t compared = what.compare_mask & all_bits;
        if ((before & compared) != (what.compare & compared)) return before;
        return (before & ~what.swap_mask) | (what.swap_or_add & what.swap_mask);
    }

    void collect() {
        for (end& each : ends_) {
            seen_completion seen;
            while (each.cq.poll(seen)) {
                SCOPED_TRACE(fmt::format("kind {} syndrome {} index {}", seen.kind, seen.syndrome, seen.index));
                ASSERT_EQ(seen.qpn, each.qp.qp->number);
                const bool of_send = seen.kind == MLX5_CQE_REQ || seen.kind == MLX5_CQE_REQ_ERR;
                if (of_send)
                    collect_send(each, seen);
                else
                    collect_receive(each, seen);
                if (::testing::Test::HasFatalFailure()) return;
            }
            const auto& requester = each.qp.qp->requester;
            const bool idle = requester.oldest == requester.newest && requester.consumed == each.qp.produced();
            if (!idle || each.failed) continue;
            each.completed = each.qp.produced();
            while (!each.sends.empty() && !each.sends.front().signalled) each.sends.pop_front();
        }
    }

    /// Those before it that ask for no completion are done as well, unless one has failed: then each is told.
    void collect_send(end& of, const seen_completion& seen) {
        while (!of.failed && !of.sends.empty() && of.sends.front().index != seen.index) {
            ASSERT_FALSE(of.sends.front().signalled) << "out of order";
            of.sends.pop_front();
        }
        ASSERT_FALSE(of.sends.empty()) << "a completion for nothing";
        const awaited_send expected = of.sends.front();
        of.sends.pop_front();
        ASSERT_EQ(seen.index, expected.index) << "out of order";
        ASSERT_EQ(seen.opcode, expected.opcode);
        of.completed = seen.index;
        if (seen.kind == MLX5_CQE_REQ_ERR) {
            const bool flushed = seen.syndrome == static_cast<std::uint8_t>(syndrome::flushed);
            const bool unanswered = seen.syndrome == static_cast<std::uint8_t>(syndrome::transport_retry_exceeded);
            ASSERT_TRUE(of.qp.qp->state == qp_state::error && (flushed || (unanswered && !of.failed)));
            of.failed = true;
            return;
        }
        ASSERT_TRUE(!of.failed && expected.signalled) << "a completion that nobody asked for";
        ASSERT_EQ(seen.bytes, expected.length);
        ASSERT_TRUE(of.fetched.agrees(expected.fetched_at, expected.fetched)) << "completed ahead of its data";
    }

    void collect_receive(end& of, const seen_completion& seen) {
        ASSERT_LT(of.unposted, of.receives.size()) << "a completion for nothing";
        const awaited_receive expected = std::move(of.receives.front());
        of.receives.pop_front();
        if (seen.kind == MLX5_CQE_RESP_ERR) {
            ASSERT_EQ(seen.syndrome, static_cast<std::uint8_t>(syndrome::flushed));
            ASSERT_EQ(of.qp.qp->state, qp_state::error);
            return;
        }
        ASSERT_EQ(seen.kind, expected.kind);
        ASSERT_EQ(seen.bytes, expected.length);
        ASSERT_EQ(seen.immediate, expected.immediate);
        std::copy(expected.payload.begin(), expected.payload.end(), of.inbox.model.begin() + expected.slot);
        ASSERT_TRUE(of.inbox.agrees(expected.slot, receive_bytes)) << "not its data, or ahead of it";
    }

    void check_end() {
        for (end& each : ends_) {
            EXPECT_TRUE(each.sends.empty()) << each.sends.size() << " completions missing";
            EXPECT_TRUE(each.receives.empty()) << each.receives.size() << " receives missing";
            EXPECT_TRUE(each.target.agrees(0, target_bytes));
            EXPECT_TRUE(each.inbox.agrees(0, receive_slots * receive_bytes));
            EXPECT_TRUE(each.fetched.agrees(0, fetch_slots * fetch_bytes));
            const auto& regions = each.on.adapter.state.devices[0].regions;
            for (const std::uint32_t key : each.invalidated) EXPECT_TRUE(regions.find(key)->invalidated);
        }
    }

    std::mt19937_64 random_;
    unsigned gpu_ = 0;
    rig first_;
    std::unique_ptr<rig> other_;
    rig* second_;
    std::array<rig*, 2> processes_{};
    std::array<end, 2> ends_;
};

/// Each kind of way as often. A sanitizer takes fifty times as long.
#ifdef SOFTNIC_SANITIZED
constexpr std::uint64_t runs_each = std::size(ways);
#else
constexpr std::uint64_t runs_each = 3 * std::size(ways);
#endif

struct random_work : ::testing::TestWithParam<std::uint64_t> {};

TEST_P(random_work, is_done_once_in_order_whatever_the_way_does) {
    for (std::uint64_t seed = GetParam(); seed < GetParam() + runs_each; ++seed) {
        SCOPED_TRACE(fmt::format("seed {}", seed));
        scenario(seed).run(100);
        if (HasFailure()) return;
    }
}

TEST_P(random_work, ends_once_when_a_queue_pair_fails_and_goes_on_after_a_reset) {
    for (std::uint64_t seed = GetParam(); seed < GetParam() + runs_each; ++seed) {
        SCOPED_TRACE(fmt::format("seed {}", seed));
        scenario one(seed);
        for (int lives = 0; lives < 3 && !HasFailure(); ++lives) {
            one.fail_one(static_cast<int>(seed % 7) * 3);
            if (!HasFailure()) one.start_again();
        }
        if (!HasFailure()) one.run(20);
        if (HasFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(seeds, random_work, ::testing::Values(0, runs_each, 2 * runs_each, 3 * runs_each));

}  // namespace
}  // namespace accel::softnic
