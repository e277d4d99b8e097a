// SPDX-License-Identifier: Apache-2.0
// What a queue pair makes of single packets from another process: each field of a request and of an answer, with the
// value that is right and those on either side of it.
#include "fabric/packet.hpp"
#include "pair_fixture.hpp"

#include <functional>
#include <utility>

namespace accel::softnic::packets {
namespace {

using testing::link_options;
using testing::piece;
using testing::rig;
using testing::seen_completion;
using testing::test_cq;
using testing::test_qp;
using testing::work;

namespace flag = packet_flag;
constexpr std::uint8_t whole = flag::first | flag::last | flag::ack_request;
constexpr std::uint32_t start_psn = 0xfffffe;  ///< goes round soon
constexpr std::uint32_t mtu = 256;

/// A queue pair, and what has the fabric's place and number of its peer.
struct stranger {
    rig on;
    std::unique_ptr<fabric> net = fabric::join_peer(*on.adapter.state.net);
    std::uint32_t number = net->claim_qpn(0).value();
    std::shared_ptr<event_pipe> events = std::make_shared<event_pipe>(event_pipe::kind::asynchronous);
    test_cq cq{on.adapter, 64};
    test_qp qp{on.adapter, cq, cq, 1, qp_type::reliable_connection, events};
    std::vector<std::uint8_t> memory = std::vector<std::uint8_t>(4000);
    std::uint32_t key = on.add_region(memory.data(), 2000, 1, 0xf);
    seen_completion seen;

    stranger() {
        link_options how;
        how.psn = start_psn;
        how.reads = 3;
        testing::connect(on.adapter, *qp.qp, number, how);
    }
    ~stranger() { ::close(events->read_descriptor()); }
    stranger(const stranger&) = delete;
    stranger& operator=(const stranger&) = delete;

    [[nodiscard]] packet_header header(packet_kind kind, std::uint32_t psn_ahead = 0) const {
        packet_header made{};
        made.kind = kind;
        made.flags = whole;
        made.from = made.to = {0, 1};
        made.from_qpn = number;
        made.to_qpn = qp.qp->number;
        made.psn = (start_psn + psn_ahead) & psn_mask;
        made.rkey = key;
        made.address = reinterpret_cast<std::uint64_t>(memory.data());
        return made;
    }
    /// A message of one packet of 100 bytes.
    [[nodiscard]] packet_header request(packet_kind kind = packet_kind::write) const {
        packet_header made = header(kind);
        made.length = kind == packet_kind::atomic_request ? 8 : 100;
        if (kind == packet_kind::write || kind == packet_kind::send) made.payload_bytes = 100;
        return made;
    }
    void put(const packet_header& what) {
        packet* slot = net->reserve(on.adapter.state.node());
        ASSERT_NE(slot, nullptr);
        slot->header = what;
        std::fill_n(slot->payload.begin(), std::min<std::size_t>(what.payload_bytes, max_mtu), std::byte{0x5a});
        net->commit(on.adapter.state.node());
    }
    /// What comes back.
    std::vector<packet_header> answers() {
        for (int round = 0; round < 20; ++round) on.step();
        std::vector<packet_header> all;
        for (; const packet* in = net->receive(); net->release()) {
            all.push_back(in->header);
            on.step();
        }
        return all;
    }
    std::uint32_t next_event() {
        ib_uverbs_async_event_desc event{};
        if (!events->readable()) return 0;
        EXPECT_EQ(::read(events->read_descriptor(), &event, sizeof event), static_cast<ssize_t>(sizeof event));
        return event.event_type;
    }
    [[nodiscard]] std::size_t written() const {
        return static_cast<std::size_t>(std::count(memory.begin(), memory.end(), 0x5a));
    }
};

// ---- requests

enum class fate : std::uint8_t { taken, dropped, gap, again, not_ready, invalid, denied };

struct request_row {
    const char* name;
    fate expected;
    void (*spoil)(packet_header& what);
};

void expect_answer(const std::vector<packet_header>& answers, packet_kind kind, std::uint32_t psn, nak_code code = {}) {
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].kind, kind) << to_string(answers[0].kind);
    EXPECT_EQ(answers[0].psn, psn & psn_mask);
    if (kind == packet_kind::negative_acknowledge) {
        EXPECT_EQ(answers[0].nak, code) << to_string(answers[0].nak);
    }
}

void expect_fate(stranger& in, fate expected, packet_kind kind) {
    constexpr auto nak = packet_kind::negative_acknowledge;
    const auto answers = in.answers();
    const bool fatal = expected == fate::invalid || expected == fate::denied;
    EXPECT_EQ(in.qp.qp->state, fatal ? qp_state::error : qp_state::ready_to_send);
    EXPECT_EQ(in.written(), expected == fate::taken && kind == packet_kind::write ? 100u : 0u);
    EXPECT_EQ(in.qp.qp->responder.expected_psn, (start_psn + (expected == fate::taken ? 1 : 0)) & psn_mask);
    std::uint32_t event = 0;
    switch (expected) {
        case fate::taken:
            expect_answer(answers,
                          kind == packet_kind::read_request     ? packet_kind::read_response
                          : kind == packet_kind::atomic_request ? packet_kind::atomic_response
                                                                : packet_kind::acknowledge,
                          start_psn);
            break;
        case fate::dropped:
            EXPECT_TRUE(answers.empty());
            break;
        case fate::gap:
            expect_answer(answers, nak, start_psn, nak_code::sequence);
            break;
        case fate::again:
            expect_answer(answers, packet_kind::acknowledge, start_psn - 1);
            break;
        case fate::not_ready:
            expect_answer(answers, nak, start_psn, nak_code::receiver_not_ready);
            break;
        case fate::invalid:
            expect_answer(answers, nak, start_psn, nak_code::invalid_request);
            event = IBV_EVENT_QP_REQ_ERR;
            break;
        case fate::denied:
            expect_answer(answers, nak, start_psn, nak_code::remote_access);
            event = IBV_EVENT_QP_ACCESS_ERR;
            break;
    }
    EXPECT_EQ(in.next_event(), event);
    EXPECT_FALSE(in.cq.poll(in.seen));
}

using head = packet_header;
void keep(head&) {}

const request_row writes[]{
    {"as it is", fate::taken, keep},
    {"no such device", fate::dropped, [](head& h) { h.to.device = 1; }},
    {"a device that no fabric has", fate::dropped, [](head& h) { h.to.device = 255; }},
    {"port 0", fate::dropped, [](head& h) { h.to.port = 0; }},
    {"no such port", fate::dropped, [](head& h) { h.to.port = 2; }},
    {"no such queue pair", fate::dropped, [](head& h) { h.to_qpn += 1; }},
    {"a number that no queue pair has", fate::dropped, [](head& h) { h.to_qpn = ~0u; }},
    {"from another device", fate::dropped, [](head& h) { h.from.device = 1; }},
    {"from another port", fate::dropped, [](head& h) { h.from.port = 2; }},
    {"from another queue pair", fate::dropped, [](head& h) { h.from_qpn += 1; }},
    {"of a connection", fate::dropped, [](head& h) { h.session = 1; }},
    {"longer than any packet", fate::dropped, [](head& h) { h.payload_bytes = 4097; }},
    {"an answer", fate::dropped, [](head& h) { h.kind = packet_kind::acknowledge; }},
    {"a datagram", fate::dropped, [](head& h) { h.kind = packet_kind::datagram; }},
    {"one ahead", fate::gap, [](head& h) { h.psn = (h.psn + 1) & psn_mask; }},
    {"as far ahead as can be", fate::gap, [](head& h) { h.psn = (h.psn + 0x7fffff) & psn_mask; }},
    {"as far behind as can be", fate::again, [](head& h) { h.psn = (h.psn + 0x800000) & psn_mask; }},
    {"one behind", fate::again, [](head& h) { h.psn = (h.psn - 1) & psn_mask; }},
    {"not the first", fate::invalid, [](head& h) { h.flags = flag::last | flag::ack_request; }},
    {"neither first nor last", fate::invalid, [](head& h) { h.flags = flag::ack_request; }},
    {"first, and not full", fate::invalid, [](head& h) { h.flags = flag::first | flag::ack_request; }},
    {"longer than the MTU", fate::invalid, [](head& h) { h.length = h.payload_bytes = mtu + 1; }},
    {"shorter than it says", fate::invalid, [](head& h) { h.length = 101; }},
    {"longer than it says", fate::invalid, [](head& h) { h.length = 99; }},
    {"full, and longer than it says", fate::invalid,
     [](head& h) { h.flags = flag::first, h.length = h.payload_bytes = mtu; }},
    {"to the end of the region", fate::taken, [](head& h) { h.address += 1900; }},
    {"past the end of the region", fate::denied, [](head& h) { h.address += 1901; }},
    {"in front of the region", fate::denied, [](head& h) { h.address -= 1; }},
    {"by a wrong key", fate::denied, [](head& h) { h.rkey += 1; }},
    {"more than the region has, in all", fate::denied, [](head& h) { h.length = 2001; }},
    {"with immediate data and no receive", fate::not_ready, [](head& h) { h.flags |= flag::immediate; }},
};

const request_row others[]{
    {"a send without a receive", fate::not_ready, [](head& h) { h.kind = packet_kind::send; }},
    {"a read", fate::taken, [](head& h) { h.kind = packet_kind::read_request, h.payload_bytes = 0; }},
    {"a read past the end", fate::denied,
     [](head& h) { h.kind = packet_kind::read_request, h.payload_bytes = 0, h.address += 1901; }},
    {"an atomic", fate::taken,
     [](head& h) { h.kind = packet_kind::atomic_request, h.payload_bytes = 0, h.length = 8; }},
    {"an atomic of 7 bytes", fate::invalid,
     [](head& h) { h.kind = packet_kind::atomic_request, h.payload_bytes = 0, h.length = 7; }},
    {"an atomic of 16 bytes", fate::invalid,
     [](head& h) { h.kind = packet_kind::atomic_request, h.payload_bytes = 0, h.length = 16; }},
    {"an atomic of none", fate::invalid,
     [](head& h) { h.kind = packet_kind::atomic_request, h.payload_bytes = 0, h.length = 0; }},
    {"an atomic of 8 bytes, aligned to 4", fate::invalid,
     [](head& h) { h.kind = packet_kind::atomic_request, h.payload_bytes = 0, h.length = 8, h.address += 4; }},
};

TEST(requests, each_field_of_a_request_is_checked) {
    for (const auto rows : {std::span<const request_row>(writes), std::span<const request_row>(others)}) {
        for (const request_row& row : rows) {
            SCOPED_TRACE(row.name);
            stranger in;
            packet_header what = in.request();
            row.spoil(what);
            in.put(what);
            expect_fate(in, row.expected, what.kind);
        }
    }
}

/// Behind the first packet of a message of two.
TEST(requests, packets_of_one_message_do_not_mix_with_others) {
    struct second {
        const char* name;
        packet_kind kind;
        std::uint8_t flags;
        std::uint16_t size;
        bool good;
    };
    for (const auto& [name, kind, flags, size, good] :
         {second{"its last", packet_kind::write, flag::last | flag::ack_request, 44, true},
          {"shorter", packet_kind::write, flag::last | flag::ack_request, 43, false},
          {"longer", packet_kind::write, flag::last | flag::ack_request, 45, false},
          {"not its last", packet_kind::write, flag::ack_request, mtu, false},
          {"of another kind", packet_kind::send, flag::last | flag::ack_request, 44, false},
          {"of another message", packet_kind::write, whole, 44, false}}) {
        SCOPED_TRACE(name);
        stranger in;
        packet_header what = in.request();
        what.flags = flag::first;
        what.payload_bytes = mtu;
        what.length = mtu + 44;
        in.put(what);
        EXPECT_TRUE(in.answers().empty()) << "it asks for no answer";
        EXPECT_EQ(in.written(), mtu);
        what.kind = kind;
        what.flags = flags;
        what.payload_bytes = size;
        what.psn = (what.psn + 1) & psn_mask;
        in.put(what);
        expect_answer(in.answers(), good ? packet_kind::acknowledge : packet_kind::negative_acknowledge, start_psn + 1,
                      nak_code::invalid_request);
        EXPECT_EQ(in.qp.qp->state, good ? qp_state::ready_to_send : qp_state::error);
        EXPECT_EQ(in.written(), good ? mtu + 44 : mtu);
    }
}

/// A gap is reported once, and again only after something has been taken.
TEST(requests, a_gap_is_reported_once) {
    stranger in;
    for (int round = 0; round < 3; ++round) {
        packet_header late = in.request();
        late.psn = (start_psn + 2 + static_cast<std::uint32_t>(round)) & psn_mask;
        in.put(late);
        EXPECT_EQ(in.answers().size(), round == 0 ? 1u : 0u);
    }
    in.put(in.request());
    expect_answer(in.answers(), packet_kind::acknowledge, start_psn);
    packet_header late = in.request();
    late.psn = (start_psn + 2) & psn_mask;
    in.put(late);
    expect_answer(in.answers(), packet_kind::negative_acknowledge, start_psn + 1, nak_code::sequence);
}

TEST(requests, reads_and_atomics_at_once_are_as_many_as_agreed) {
    for (const packet_kind kind : {packet_kind::read_request, packet_kind::atomic_request}) {
        for (const std::uint32_t count : {3u, 4u}) {
            SCOPED_TRACE(fmt::format("{} {}", count, to_string(kind)));
            stranger in;
            for (std::uint32_t at = 0; at < count; ++at) {
                packet_header what = in.request(kind);
                what.psn = (what.psn + at) & psn_mask;
                in.put(what);
            }
            const auto answers = in.answers();
            ASSERT_EQ(answers.size(), count);
            EXPECT_EQ(answers[2].kind,
                      kind == packet_kind::read_request ? packet_kind::read_response : packet_kind::atomic_response);
            EXPECT_EQ(in.qp.qp->state, count == 3 ? qp_state::ready_to_send : qp_state::error);
            if (count == 3) continue;
            EXPECT_EQ(answers[3].nak, nak_code::invalid_request);
            EXPECT_EQ(in.next_event(), static_cast<std::uint32_t>(IBV_EVENT_QP_REQ_ERR));
        }
    }
}

/// What has a result is done again, from memory as it is now; an atomic is not.
TEST(requests, repeated_reads_and_atomics_get_their_answers_again) {
    stranger in;
    packet_header add = in.request(packet_kind::atomic_request);
    add.swap_or_add = 5;
    packet_header read = in.request(packet_kind::read_request);
    read.length = 600;
    read.psn = (start_psn + 1) & psn_mask;
    for (int round = 0; round < 3; ++round) {
        in.put(add);
        expect_answer(in.answers(), packet_kind::atomic_response, start_psn);
        EXPECT_EQ(in.memory[0], 5) << "added once";
        in.put(read);
        const auto answers = in.answers();
        ASSERT_EQ(answers.size(), 3u);
        for (std::uint32_t at = 0; at < 3; ++at) {
            EXPECT_EQ(answers[at].kind, packet_kind::read_response);
            EXPECT_EQ(answers[at].psn, (start_psn + 1 + at) & psn_mask);
            EXPECT_EQ(answers[at].payload_bytes, at == 2 ? 88 : 256);
            EXPECT_EQ(answers[at].has(flag::first), at == 0);
            EXPECT_EQ(answers[at].has(flag::last), at == 2);
        }
    }
}

// ---- answers

enum class effect : std::uint8_t { none, completes, fails, repeats };

struct answer_row {
    const char* name;
    std::uint8_t opcode;  ///< of the request that waits: 600 bytes, which are three packets
    packet_kind kind;
    std::uint32_t psn_ahead;
    std::uint16_t size;
    void (*spoil)(packet_header& what);
    effect expected;
    std::uint32_t psn = 0;  ///< `repeats`: from here on
    syndrome error = syndrome::none;
};

constexpr std::uint8_t write_op = MLX5_OPCODE_RDMA_WRITE;
constexpr std::uint8_t read_op = MLX5_OPCODE_RDMA_READ;
constexpr auto ack = packet_kind::acknowledge;
constexpr auto nak = packet_kind::negative_acknowledge;
constexpr auto data = packet_kind::read_response;
constexpr std::uint32_t before = psn_mask;  ///< one less

template <nak_code Code>
void refuse(packet_header& what) {
    what.nak = Code;
    what.rnr_timer = 1;  // 10 us
}

const answer_row answer_rows[]{
    {"all of it", write_op, ack, 2, 0, keep, effect::completes},
    {"a part", write_op, ack, 1, 0, keep, effect::none},
    {"what was before", write_op, ack, before, 0, keep, effect::none},
    {"what was never sent", write_op, ack, 3, 0, keep, effect::none},
    {"from another queue pair", write_op, ack, 2, 0, [](head& h) { h.from_qpn += 1; }, effect::none},
    {"to another port", write_op, ack, 2, 0, [](head& h) { h.to.port = 2; }, effect::none},
    {"data for a write", write_op, data, 0, 256, keep, effect::none},
    {"out of sequence at the start", write_op, nak, 0, 0, refuse<nak_code::sequence>, effect::repeats, 0},
    {"out of sequence in the middle", write_op, nak, 1, 0, refuse<nak_code::sequence>, effect::repeats, 1},
    {"out of sequence behind the end", write_op, nak, 3, 0, refuse<nak_code::sequence>, effect::none},
    {"access refused", write_op, nak, 1, 0, refuse<nak_code::remote_access>, effect::fails, 0, syndrome::remote_access},
    {"request refused", write_op, nak, 0, 0, refuse<nak_code::invalid_request>, effect::fails, 0,
     syndrome::remote_invalid_request},
    {"operation failed", write_op, nak, 2, 0, refuse<nak_code::remote_operation>, effect::fails, 0,
     syndrome::remote_operation},
    {"refused before", write_op, nak, before, 0, refuse<nak_code::remote_access>, effect::none},
    {"not ready", write_op, nak, 1, 0, refuse<nak_code::receiver_not_ready>, effect::repeats, 1},
    {"the first data", read_op, data, 0, 256, keep, effect::none},
    {"data of a byte less", read_op, data, 0, 255, keep, effect::fails, 0, syndrome::bad_response},
    {"data of a byte more", read_op, data, 0, 257, keep, effect::fails, 0, syndrome::bad_response},
    {"data behind lost data", read_op, data, 1, 256, keep, effect::repeats, 0},
    {"data that was never asked for", read_op, data, 3, 256, keep, effect::none},
    {"an acknowledgement in place of data", read_op, ack, 2, 0, keep, effect::none},
    {"a read refused", read_op, nak, 0, 0, refuse<nak_code::remote_access>, effect::fails, 0, syndrome::remote_access},
};

void expect_effect(const answer_row& row) {
    stranger in;
    work what;
    what.opcode = row.opcode;
    what.pieces = {piece(in.memory.data() + 1000, 600, in.key)};
    what.remote = 0x1000;
    what.rkey = 77;
    const std::uint16_t index = in.qp.post(what);
    in.qp.ring();
    ASSERT_EQ(in.answers().size(), row.opcode == read_op ? 1u : 3u);
    packet_header answer = in.header(row.kind, row.psn_ahead);
    answer.payload_bytes = row.size;
    row.spoil(answer);
    in.put(answer);
    const auto sent = in.answers();
    if (row.expected == effect::repeats) {
        ASSERT_EQ(sent.size(), row.opcode == read_op ? 1u : 3 - row.psn);
        EXPECT_EQ(sent[0].psn, (start_psn + row.psn) & psn_mask);
        EXPECT_EQ(sent[0].kind, row.opcode == read_op ? packet_kind::read_request : packet_kind::write);
    } else {
        EXPECT_TRUE(sent.empty());
    }
    const bool ends = row.expected == effect::completes || row.expected == effect::fails;
    ASSERT_EQ(in.cq.poll(in.seen), ends);
    EXPECT_EQ(in.qp.qp->state, row.expected == effect::fails ? qp_state::error : qp_state::ready_to_send);
    if (!ends) return;
    EXPECT_EQ(in.seen.index, index);
    EXPECT_EQ(in.seen.syndrome, static_cast<std::uint8_t>(row.error));
}

TEST(answers, each_answer_has_its_effect_on_the_request_that_waits) {
    for (const answer_row& row : answer_rows) {
        SCOPED_TRACE(row.name);
        expect_effect(row);
    }
}

/// Two reads wait. An acknowledgement of the second says that the answer to the first was lost; whatever comes more
/// than once asks only once.
TEST(answers, an_acknowledgement_that_passes_over_a_read_asks_for_it_again_once) {
    stranger in;
    work what;
    what.opcode = read_op;
    what.pieces = {piece(in.memory.data() + 1000, 100, in.key)};
    for (int count = 0; count < 2; ++count) in.qp.post(what);
    in.qp.ring();
    ASSERT_EQ(in.answers().size(), 2u);
    in.put(in.header(ack, 1));
    auto sent = in.answers();
    ASSERT_EQ(sent.size(), 2u) << "both again, in their order";
    EXPECT_EQ(sent[0].psn, start_psn);
    in.put(in.header(ack, 1));
    EXPECT_TRUE(in.answers().empty());
    for (const std::uint32_t at : {0u, 1u}) {
        packet_header answer = in.header(data, at);
        answer.payload_bytes = 100;
        in.put(answer);
        EXPECT_TRUE(in.answers().empty());
        EXPECT_TRUE(in.cq.poll(in.seen));
        EXPECT_EQ(in.seen.kind, MLX5_CQE_REQ);
    }
}

/// Nothing in a packet from another process is believed.
TEST(requests, garbage_does_no_harm) {
    stranger in;
    std::mt19937_64 random(1);
    for (int count = 0; count < 100'000; ++count) {
        packet_header what;
        auto* words = reinterpret_cast<std::uint64_t*>(&what);
        for (std::size_t at = 0; at < sizeof what / 8; ++at) words[at] = random();
        if (count % 2 == 0) {
            const packet_header good = in.header(static_cast<packet_kind>(random() % 10));
            what.to = good.to;
            what.from = good.from;
            what.to_qpn = good.to_qpn;
            what.from_qpn = good.from_qpn;
            what.kind = good.kind;
            what.session = 0;
            what.psn = in.qp.qp->responder.expected_psn;
            what.payload_bytes = static_cast<std::uint16_t>(random() % 300);
        }
        in.put(what);
        in.on.step();
        while (in.net->receive() != nullptr) in.net->release();
        if (in.qp.qp->state != qp_state::error) continue;
        while (in.events->readable()) in.next_event();
        qp_modification change;
        change.mask = IBV_QP_STATE;
        ASSERT_EQ(in.on.adapter.modify_qp(*in.qp.qp, change), 0);
        testing::connect(in.on.adapter, *in.qp.qp, in.number);
    }
}

}  // namespace
}  // namespace accel::softnic::packets
