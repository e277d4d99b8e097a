// SPDX-License-Identifier: Apache-2.0
// RC when the program does something wrong: which error, where, and what becomes of the rest.
#include "pair_fixture.hpp"

#include <array>

#include <sys/mman.h>

namespace accel::softnic::errors {
namespace {

using testing::connect_pair;
using testing::connected;
using testing::pair;
using testing::piece;
using testing::test_cq;
using testing::test_qp;
using testing::work;

constexpr std::uint8_t opcode_of_dump = 0x23;
constexpr std::uint32_t all_rights = 0xf;

/// Registered memory that is gone.
struct hole {
    void* at = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::uint32_t key = 0;

    explicit hole(connected& in) : key(in.on.add_region(at, 4096, 1, all_rights)) { ::mprotect(at, 4096, PROT_NONE); }
    ~hole() { ::munmap(at, 4096); }
    hole(const hole&) = delete;
    hole& operator=(const hole&) = delete;
    [[nodiscard]] std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(at); }
};

/// Two connected queue pairs, and a request to be spoiled.
struct trial : connected {
    hole gone{*this};
    work what;
};

/// One request that is wrong in one way, or is just not.
struct mistake {
    const char* name;
    std::uint8_t opcode;
    void (*make)(trial& t);
    syndrome expected = syndrome::none;
    std::uint32_t event = connected::no_event;  ///< of the other side
    syndrome received = syndrome::none;         ///< the other side's error completion
};

void receive(connected& in, std::uint32_t length, std::uint32_t key) {
    in.other.post_receive(std::array{piece(in.to.data(), length, key)});
}
/// A key to `to` with these rights only.
std::uint32_t limited(connected& in, std::uint32_t rights) {
    return in.on.add_region(in.to.data(), in.to.size(), 1, rights);
}
void allow(connected& in, std::uint32_t rights) {
    in.other.qp->attributes.access = rights;
}
void take_bytes(work& what, std::uint32_t size) {
    what.operand_bytes = size;
    what.pieces[0].length = size;
}

using enum syndrome;
constexpr std::uint8_t write_op = MLX5_OPCODE_RDMA_WRITE;
constexpr std::uint8_t immediate_op = MLX5_OPCODE_RDMA_WRITE_IMM;
constexpr std::uint8_t read_op = MLX5_OPCODE_RDMA_READ;
constexpr std::uint8_t send_op = MLX5_OPCODE_SEND;
constexpr std::uint8_t invalidate_op = MLX5_OPCODE_SEND_INVAL;
constexpr std::uint8_t add_op = MLX5_OPCODE_ATOMIC_FA;
constexpr std::uint8_t narrow_op = MLX5_OPCODE_ATOMIC_MASKED_FA;
constexpr std::uint32_t access_event = IBV_EVENT_QP_ACCESS_ERR;
constexpr std::uint32_t request_event = IBV_EVENT_QP_REQ_ERR;

/// Requests are 64 bytes, atomics 8.
const mistake mistakes[]{
    // The remote key.
    {"another variant", write_op, [](trial& t) { t.what.rkey += 1; }, remote_access, access_event},
    {"no such key", write_op, [](trial& t) { t.what.rkey += 0x100000; }, remote_access, access_event},
    {"key 0", write_op, [](trial& t) { t.what.rkey = 0; }, remote_access, access_event},
    {"with immediate", immediate_op, [](trial& t) { receive(t, 64, t.to_key), t.what.rkey += 1; }, remote_access,
     access_event, flushed},
    {"up to the end", write_op, [](trial& t) { t.what.remote += 5000 - 64; }},
    {"past the end", write_op, [](trial& t) { t.what.remote += 5000 - 63; }, remote_access, access_event},
    {"before the start", write_op, [](trial& t) { t.what.remote -= 1; }, remote_access, access_event},
    {"several packets past the end", write_op, [](trial& t) { t.what.pieces[0].length = 2000, t.what.remote += 3001; },
     remote_access, access_event},
    {"around the address space", write_op, [](trial& t) { t.what.remote = ~0ull - 62; }, remote_access, access_event},
    {"another domain", write_op,
     [](trial& t) { t.what.rkey = t.on.add_region(t.to.data(), t.to.size(), 2, all_rights); }, remote_access,
     access_event},
    {"no bytes through a bad key", write_op, [](trial& t) { t.what.pieces.clear(), t.what.rkey = 0; }},
    {"memory that is gone", write_op, [](trial& t) { t.what.remote = t.gone.address(), t.what.rkey = t.gone.key; },
     remote_access, access_event},
    {"a read past the end", read_op, [](trial& t) { t.what.remote += 5000 - 63; }, remote_access, access_event},
    {"a read of memory that is gone", read_op,
     [](trial& t) { t.what.remote = t.gone.address(), t.what.rkey = t.gone.key; }, remote_access, access_event},
    {"a read of no bytes through a bad key", read_op, [](trial& t) { t.what.pieces.clear(), t.what.rkey = 0; }},
    // The rights of the key, and of the queue pair.
    {"write key without write", write_op, [](trial& t) { t.what.rkey = limited(t, 0xd); }, remote_access, access_event},
    {"write key with write alone", write_op, [](trial& t) { t.what.rkey = limited(t, 0x2); }},
    {"read key without read", read_op, [](trial& t) { t.what.rkey = limited(t, 0xb); }, remote_access, access_event},
    {"read key with read alone", read_op, [](trial& t) { t.what.rkey = limited(t, 0x4); }},
    {"atomic key without atomic", add_op, [](trial& t) { t.what.rkey = limited(t, 0x7); }, remote_access, access_event},
    {"atomic key with atomic alone", add_op, [](trial& t) { t.what.rkey = limited(t, 0x8); }},
    {"queue pair without write", write_op, [](trial& t) { allow(t, 0xc); }, remote_access, access_event},
    {"queue pair with write alone", write_op, [](trial& t) { allow(t, 0x2); }},
    {"queue pair without read", read_op, [](trial& t) { allow(t, 0xa); }, remote_access, access_event},
    {"queue pair without read, no bytes", read_op, [](trial& t) { allow(t, 0xa), t.what.pieces.clear(); },
     remote_access, access_event},
    {"queue pair with read alone", read_op, [](trial& t) { allow(t, 0x6); }},
    {"queue pair without atomic", add_op, [](trial& t) { allow(t, 0x6); }, remote_access, access_event},
    {"queue pair with atomic alone", add_op, [](trial& t) { allow(t, 0xa); }},
    // Atomics.
    {"8 bytes not aligned", add_op, [](trial& t) { t.what.remote += 4; }, remote_invalid_request, request_event},
    {"8 bytes at the end", add_op, [](trial& t) { t.what.remote += 4992; }},
    {"8 bytes past the end", add_op, [](trial& t) { t.what.remote += 5000; }, remote_access, access_event},
    {"4 bytes aligned to 4", narrow_op, [](trial& t) { take_bytes(t.what, 4), t.what.remote += 4996; }},
    {"4 bytes past the end", narrow_op, [](trial& t) { take_bytes(t.what, 4), t.what.remote += 5000; }, remote_access,
     access_event},
    {"4 bytes not aligned", narrow_op, [](trial& t) { take_bytes(t.what, 4), t.what.remote += 2; },
     remote_invalid_request, request_event},
    {"an answer of another size", narrow_op, [](trial& t) { t.what.operand_bytes = 4; }, local_qp_operation},
    // Receives.
    {"a receive that just fits", send_op, [](trial& t) { receive(t, 64, t.to_key); }},
    {"a receive one byte short", send_op, [](trial& t) { receive(t, 63, t.to_key); }, remote_invalid_request,
     connected::no_event, local_length},
    {"a long message one byte longer", send_op,
     [](trial& t) { t.what.pieces[0].length = 701, receive(t, 700, t.to_key); }, remote_invalid_request,
     connected::no_event, local_length},
    {"a receive with a bad key", send_op, [](trial& t) { receive(t, 64, t.to_key + 1); }, remote_operation,
     connected::no_event, local_protection},
    {"a receive that may not be written", send_op, [](trial& t) { receive(t, 64, limited(t, 0xe)); }, remote_operation,
     connected::no_event, local_protection},
    {"a receive into memory that is gone", send_op,
     [](trial& t) { t.other.post_receive(std::array{piece(t.gone.at, 64, t.gone.key)}); }, remote_operation,
     connected::no_event, local_protection},
    {"an invalidation of no key", invalidate_op,
     [](trial& t) { receive(t, 64, t.to_key), t.what.immediate = 0x777700; }, remote_operation, connected::no_event,
     local_protection},
    {"an invalidation in another domain", invalidate_op,
     [](trial& t) { receive(t, 64, t.to_key), t.what.immediate = t.on.add_region(t.to.data(), 64, 2, all_rights); },
     remote_operation, connected::no_event, local_protection},
    {"an invalidation", invalidate_op,
     [](trial& t) { receive(t, 64, t.to_key), t.what.immediate = limited(t, all_rights); }},
    // The requester's own side.
    {"a bad local key", write_op, [](trial& t) { t.what.pieces[0].lkey += 1; }, local_protection},
    {"a local key of another domain", write_op,
     [](trial& t) { t.what.pieces[0].lkey = t.on.add_region(t.from.data(), t.from.size(), 2, all_rights); },
     local_protection},
    {"local memory up to the end", write_op, [](trial& t) { t.what.pieces[0].address += 5000 - 64; }},
    {"local memory past the end", write_op, [](trial& t) { t.what.pieces[0].address += 5000 - 63; }, local_protection},
    {"local memory that is gone", write_op, [](trial& t) { t.what.pieces = {piece(t.gone.at, 64, t.gone.key)}; },
     local_protection},
    {"a read into a bad key", read_op, [](trial& t) { t.what.pieces[0].lkey += 1; }, local_protection},
    {"a read into what may not be written", read_op,
     [](trial& t) { t.what.pieces[0].lkey = t.on.add_region(t.from.data(), t.from.size(), 1, 0xe); }, local_protection},
    {"an atomic into what may not be written", add_op,
     [](trial& t) { t.what.pieces[0].lkey = t.on.add_region(t.from.data(), t.from.size(), 1, 0xe); }, local_protection},
    {"a read where none were agreed on", read_op, [](trial& t) { t.qp.qp->attributes.max_rd_atomic = 0; },
     local_qp_operation},
    {"more than a gibibyte", write_op,
     [](trial& t) {
         t.what.pieces = {piece(t.from.data(), 1u << 30, t.from_key), piece(t.from.data(), 1, t.from_key)};
     },
     local_length},
    {"an unknown opcode", 0x13, [](trial&) {}, local_qp_operation},
    {"a dump of a bad key", opcode_of_dump, [](trial& t) { t.what.pieces[0].lkey += 1; }, local_protection},
    {"a dump past the end", opcode_of_dump, [](trial& t) { t.what.pieces[0].address += 5000 - 63; }, local_protection},
    {"a dump", opcode_of_dump, [](trial&) {}},
};

/// A good request before it completes, and one after it is flushed if it fails.
void expect_outcome(const mistake& row) {
    trial in;
    const std::uint16_t before = in.qp.post(in.message(write_op, 0));
    in.what = in.message(row.opcode, row.opcode == add_op || row.opcode == narrow_op ? 8 : 64);
    row.make(in);
    const std::uint16_t index = in.qp.post(in.what);
    work next = in.message(write_op, 8);
    next.remote += 4500;
    const std::uint16_t after = in.qp.post(next);
    in.qp.post_receive({});
    in.qp.ring();
    ASSERT_TRUE(in.on.settle());
    const bool local = row.event == connected::no_event && row.received == none;
    in.expect_done(before);
    if (row.expected == none) {
        in.expect_done(index);
        in.expect_done(after);
        EXPECT_EQ(in.qp.qp->state, qp_state::ready_to_send);
    } else {
        in.expect_error(index, row.expected);
        in.expect_error(after, flushed);
        ASSERT_TRUE(in.cq.poll(in.seen)) << "the receive is not flushed";
        EXPECT_EQ(in.seen.kind, MLX5_CQE_RESP_ERR);
        const bool answered_late = row.opcode == read_op || row.opcode == add_op;  // what follows may be under way
        const bool untouched = std::all_of(in.to.begin() + 701, in.to.end(), [](auto byte) { return byte == 0; });
        EXPECT_TRUE(untouched || answered_late) << "it was carried out, or the next one";
    }
    EXPECT_FALSE(in.cq.poll(in.seen));
    EXPECT_EQ(in.other.qp->state, local ? qp_state::ready_to_send : qp_state::error);
    EXPECT_EQ(in.next_event(), row.event);
    EXPECT_EQ(in.next_event(), connected::no_event) << "who has a completion needs no event";
    if (row.received == none && row.expected == none) return;
    EXPECT_EQ(in.other_cq.poll(in.seen), row.received != none);
    if (row.received == none) return;
    EXPECT_EQ(in.seen.kind, MLX5_CQE_RESP_ERR);
    EXPECT_EQ(in.seen.syndrome, static_cast<std::uint8_t>(row.received));
}

TEST(mistakes, each_mistake_has_its_errors_and_ends_what_follows) {
    for (const mistake& row : mistakes) {
        SCOPED_TRACE(row.name);
        expect_outcome(row);
    }
}

TEST_F(pair, a_doorbell_for_more_than_the_ring_holds_is_fatal) {
    work nop;
    nop.opcode = MLX5_OPCODE_NOP;
    for (std::uint32_t count = 0; count < test_qp::send_wqebbs; ++count) qp.post(nop);
    qp.ring();
    ASSERT_TRUE(on.settle());
    for (std::uint16_t index = 0; index < test_qp::send_wqebbs; ++index) expect_done(index);
    qp.set_send_record(static_cast<std::uint16_t>(2 * test_qp::send_wqebbs + 1));
    qp.ring();
    ASSERT_TRUE(on.settle());
    EXPECT_EQ(qp.qp->state, qp_state::error);
    EXPECT_EQ(next_event(), static_cast<std::uint32_t>(IBV_EVENT_QP_FATAL));
    EXPECT_FALSE(cq.poll(seen)) << "nobody knows what was posted";
}

TEST_F(pair, a_full_completion_queue_stops_the_queue_pair) {
    test_cq small(on.adapter, 2, nullptr, events);
    test_qp one(on.adapter, small, small, 1, qp_type::reliable_connection, events);
    test_qp two(on.adapter, other_cq, other_cq, 1);
    connect_pair(on.adapter, one, two);
    for (int count = 0; count < 2; ++count) one.post(message(MLX5_OPCODE_RDMA_WRITE, 1));
    one.ring();
    ASSERT_TRUE(on.settle());
    EXPECT_EQ(one.qp->state, qp_state::ready_to_send) << "full, and no more";
    one.post(message(MLX5_OPCODE_RDMA_WRITE, 1));
    one.ring();
    ASSERT_TRUE(on.settle());
    EXPECT_EQ(one.qp->state, qp_state::error);
    EXPECT_EQ(next_event(), static_cast<std::uint32_t>(IBV_EVENT_CQ_ERR));
    EXPECT_EQ(next_event(), static_cast<std::uint32_t>(IBV_EVENT_QP_FATAL));
}

/// Receives have no doorbell, and are flushed all the same.
TEST_F(pair, requests_posted_in_the_error_state_are_flushed) {
    qp_modification change;
    change.mask = IBV_QP_STATE;
    change.next = qp_state::error;
    ASSERT_EQ(on.adapter.modify_qp(*qp.qp, change), 0);
    for (int round = 0; round < 3; ++round) {
        qp.post_receive({});
        on.step();
        ASSERT_TRUE(cq.poll(seen));
        EXPECT_EQ(seen.kind, MLX5_CQE_RESP_ERR);
        EXPECT_EQ(seen.syndrome, static_cast<std::uint8_t>(flushed));
        expect_error(run(message(MLX5_OPCODE_RDMA_WRITE, 10)), flushed);
    }
    EXPECT_EQ(next_event(), testing::connected::no_event) << "the program asked for it";
}

}  // namespace
}  // namespace accel::softnic::errors
