// SPDX-License-Identifier: Apache-2.0
// The states of a queue pair: which steps there are, with which attributes, and what works in which state. Tables of
// the InfiniBand specification (11.2.5.2, 10.3.1), and of the vendor's driver for dynamically connected queue pairs.
#include "rig.hpp"

#include <array>
#include <cerrno>
#include <deque>
#include <map>
#include <set>

#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

namespace accel::softnic::states {
namespace {

using testing::link_options;
using testing::piece;
using testing::rig;
using testing::seen_completion;
using testing::test_cq;
using testing::test_qp;
using testing::work;

constexpr auto rc = qp_type::reliable_connection;
constexpr auto ud = qp_type::datagram;
constexpr auto dci = qp_type::dynamic_initiator;
constexpr auto dct = qp_type::dynamic_target;
using enum qp_state;

struct step {
    qp_type type;
    qp_state from, to;
    std::set<int> required, optional;
};

const std::set<int> rc_live{IBV_QP_CUR_STATE, IBV_QP_ACCESS_FLAGS, IBV_QP_ALT_PATH, IBV_QP_PATH_MIG_STATE,
                            IBV_QP_MIN_RNR_TIMER};
const std::set<int> ud_live{IBV_QP_CUR_STATE, IBV_QP_QKEY};
const std::set<int> to_send{IBV_QP_TIMEOUT, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_SQ_PSN, IBV_QP_MAX_QP_RD_ATOMIC};
const std::set<int> rc_drained{
    IBV_QP_PORT,          IBV_QP_AV,        IBV_QP_TIMEOUT,          IBV_QP_RETRY_CNT,
    IBV_QP_RNR_RETRY,     IBV_QP_CUR_STATE, IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MAX_DEST_RD_ATOMIC,
    IBV_QP_ACCESS_FLAGS,  IBV_QP_ALT_PATH,  IBV_QP_PKEY_INDEX,       IBV_QP_MIN_RNR_TIMER,
    IBV_QP_PATH_MIG_STATE};
const std::set<int> rc_init{IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_ACCESS_FLAGS};
const std::set<int> ud_init{IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY};
const std::set<int> dci_init{IBV_QP_PKEY_INDEX, IBV_QP_PORT};

const step steps[]{
    {rc, reset, initialised, rc_init, {}},
    {rc, initialised, initialised, {}, rc_init},
    {rc,
     initialised,
     ready_to_receive,
     {IBV_QP_AV, IBV_QP_PATH_MTU, IBV_QP_DEST_QPN, IBV_QP_RQ_PSN, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER},
     {IBV_QP_ALT_PATH, IBV_QP_ACCESS_FLAGS, IBV_QP_PKEY_INDEX}},
    {rc, ready_to_receive, ready_to_send, to_send, rc_live},
    {rc, ready_to_send, ready_to_send, {}, rc_live},
    {rc, ready_to_send, send_drained, {}, {IBV_QP_EN_SQD_ASYNC_NOTIFY}},
    {rc, send_drained, ready_to_send, {}, rc_live},
    {rc, send_drained, send_drained, {}, rc_drained},
    {ud, reset, initialised, ud_init, {}},
    {ud, initialised, initialised, {}, ud_init},
    {ud, initialised, ready_to_receive, {}, {IBV_QP_PKEY_INDEX, IBV_QP_QKEY}},
    {ud, ready_to_receive, ready_to_send, {IBV_QP_SQ_PSN}, ud_live},
    {ud, ready_to_send, ready_to_send, {}, ud_live},
    {ud, ready_to_send, send_drained, {}, {IBV_QP_EN_SQD_ASYNC_NOTIFY}},
    {ud, send_drained, ready_to_send, {}, ud_live},
    {ud, send_drained, send_drained, {}, {IBV_QP_PKEY_INDEX, IBV_QP_QKEY}},
    {ud, send_error, ready_to_send, {}, ud_live},
    {dci, reset, initialised, dci_init, {}},
    {dci, initialised, initialised, {}, dci_init},
    {dci, initialised, ready_to_receive, {IBV_QP_PATH_MTU}, {IBV_QP_PKEY_INDEX, IBV_QP_AV}},
    {dci, ready_to_receive, ready_to_send, to_send, {IBV_QP_MIN_RNR_TIMER}},
    {dci, ready_to_send, ready_to_send, {}, {IBV_QP_MIN_RNR_TIMER}},
    {dct, reset, initialised, rc_init, {}},
    {dct, initialised, ready_to_receive, {IBV_QP_MIN_RNR_TIMER, IBV_QP_AV, IBV_QP_PATH_MTU}, {}},
};

std::uint32_t mask_of(const std::set<int>& bits) {
    std::uint32_t mask = IBV_QP_STATE;
    for (const int bit : bits) mask |= static_cast<std::uint32_t>(bit);
    return mask;
}

/// Each bit of the mask by itself, added and left out.
void expect_attributes(const step& row) {
    const std::uint32_t least = mask_of(row.required);
    const std::uint32_t most = least | mask_of(row.optional);
    for (const std::uint32_t mask : {least, most})
        EXPECT_TRUE(transition_allowed(row.type, row.from, row.to, mask)) << std::hex << mask;
    for (std::uint32_t bit = 1; bit != 0; bit <<= 1) {
        if (bit == IBV_QP_STATE) continue;
        const bool required = (least & bit) != 0;
        EXPECT_EQ(transition_allowed(row.type, row.from, row.to, least & ~bit), !required) << std::hex << bit;
        EXPECT_EQ(transition_allowed(row.type, row.from, row.to, least | bit), (most & bit) != 0) << std::hex << bit;
    }
}

TEST(transitions, each_step_needs_its_attributes_and_takes_no_others) {
    for (const qp_type type : {rc, ud, dci, dct}) {
        for (int from = 0; from <= static_cast<int>(error); ++from) {
            for (int to = 0; to <= static_cast<int>(error); ++to) {
                const auto here = static_cast<qp_state>(from);
                const auto there = static_cast<qp_state>(to);
                SCOPED_TRACE(
                    fmt::format("type {:#x}, {} to {}", static_cast<int>(type), to_string(here), to_string(there)));
                const auto row = std::find_if(std::begin(steps), std::end(steps), [&](const step& each) {
                    return each.type == type && each.from == here && each.to == there;
                });
                if (row != std::end(steps))
                    expect_attributes(*row);
                else if ((there == reset || (there == error && here != reset)) && type != dct)
                    expect_attributes({type, here, there, {}, {IBV_QP_CUR_STATE}});
                else
                    for (const std::uint32_t mask : {0u, ~0u, std::uint32_t{IBV_QP_STATE}, mask_of(rc_init)})
                        EXPECT_FALSE(transition_allowed(type, here, there, mask));
            }
        }
    }
}

TEST(timers, timers_have_their_specified_values) {
    constexpr std::uint64_t microseconds[]{655360, 10,    20,    30,     40,     60,     80,     120,
                                           160,    240,   320,   480,    640,    960,    1280,   1920,
                                           2560,   3840,  5120,  7680,   10240,  15360,  20480,  30720,
                                           40960,  61440, 81920, 122880, 163840, 245760, 327680, 491520};
    for (std::uint8_t code = 0; code < 32; ++code) EXPECT_EQ(rnr_wait_ns(code), microseconds[code] * 1'000);
    EXPECT_EQ(acknowledge_timeout_ns(0), 0u) << "for ever";
    for (std::uint8_t code = 1; code < 32; ++code) EXPECT_EQ(acknowledge_timeout_ns(code), 4096ull << code);
}

// ---- values

/// A queue pair in INIT, RTR or RTS, and a change of one value that keeps it where it is or takes it on.
struct value_row {
    const char* name;
    qp_state from;
    void (*set)(qp_attributes& values, std::uint32_t value);
    std::uint32_t good, bad;
};

#define SET [](qp_attributes & values, std::uint32_t value)
#define SET_SMALL(member)                                 \
    SET {                                                 \
        values.member = static_cast<std::uint8_t>(value); \
    }

const value_row value_rows[]{{"port", reset, SET_SMALL(port), 1, 2}, {"port 0", reset, SET_SMALL(port), 1, 0},
                             {"key index", reset, SET{values.pkey_index = static_cast<std::uint16_t>(value);
}  // namespace
, 127, 128
}  // namespace accel::softnic::states
, {"largest MTU", initialised, SET_SMALL(path_mtu), 5, 6}, {"smallest MTU", initialised, SET_SMALL(path_mtu), 1, 0},
    {"reads as a target", initialised, SET_SMALL(max_dest_rd_atomic), 16, 17},
    {"receiver's timer", initialised, SET_SMALL(min_rnr_timer), 31, 32},
    {"source address", initialised,
     SET{values.destination.global = true, values.destination.sgid_index = static_cast<std::uint8_t>(value);
}
, 0, 1
}
, {"reads", ready_to_receive, SET_SMALL(max_rd_atomic), 16, 17},
    {"retries", ready_to_receive, SET_SMALL(retry_count), 7, 8},
    {"retries of receives", ready_to_receive, SET_SMALL(rnr_retry), 7, 8},
    {"timeout", ready_to_receive, SET_SMALL(timeout), 31, 32},
}
;

qp_modification change_from(qp_state from) {
    const auto row = std::find_if(std::begin(steps), std::end(steps), [&](const step& each) {
        return each.type == rc && each.from == from && each.to != from;
    });
    qp_modification change;
    change.mask = mask_of(row->required);
    change.next = row->to;
    change.values.destination.dlid = 1;
    return change;
}

TEST(transitions, values_out_of_range_are_refused_and_change_nothing) {
    for (const value_row& row : value_rows) {
        SCOPED_TRACE(row.name);
        rig on;
        test_cq cq(on.adapter);
        test_qp qp(on.adapter, cq, cq, 1);
        for (qp_state at = reset; at != row.from; at = qp.qp->state)
            ASSERT_EQ(on.adapter.modify_qp(*qp.qp, change_from(at)), 0);
        qp_modification change = change_from(row.from);
        row.set(change.values, row.bad);
        EXPECT_EQ(on.adapter.modify_qp(*qp.qp, change), EINVAL);
        EXPECT_EQ(qp.qp->state, row.from);
        row.set(change.values, row.good);
        EXPECT_EQ(on.adapter.modify_qp(*qp.qp, change), 0);
        EXPECT_EQ(qp.qp->state, change.next);
    }
}

TEST(transitions, a_change_from_another_state_than_it_names_is_refused) {
    rig on;
    test_cq cq(on.adapter);
    test_qp qp(on.adapter, cq, cq, 1);
    testing::connect(on.adapter, *qp.qp, 0x101);
    qp_modification change;
    change.mask = IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_MIN_RNR_TIMER;
    change.next = ready_to_send;
    change.values.min_rnr_timer = 9;
    change.current = send_drained;
    EXPECT_EQ(on.adapter.modify_qp(*qp.qp, change), EINVAL);
    EXPECT_NE(qp.qp->attributes.min_rnr_timer, 9);
    change.current = ready_to_send;
    EXPECT_EQ(on.adapter.modify_qp(*qp.qp, change), 0);
    EXPECT_EQ(qp.qp->attributes.min_rnr_timer, 9);
}

TEST(transitions, a_roce_port_needs_a_global_address) {
    settings chosen;
    chosen.devices = {{link_layer::ethernet}};
    rig on(chosen);
    test_cq cq(on.adapter);
    test_qp qp(on.adapter, cq, cq, 1);
    ASSERT_EQ(on.adapter.modify_qp(*qp.qp, change_from(reset)), 0);
    qp_modification change = change_from(initialised);
    EXPECT_EQ(on.adapter.modify_qp(*qp.qp, change), EINVAL);
    change.values.destination.global = true;
    change.values.destination.sgid_index = 4;
    EXPECT_EQ(on.adapter.modify_qp(*qp.qp, change), EINVAL) << "there are four";
    change.values.destination.sgid_index = 3;
    change.values.destination.gid = on.adapter.state.devices[0].ports()[0].gids[1].bytes;
    EXPECT_EQ(on.adapter.modify_qp(*qp.qp, change), 0);
    EXPECT_EQ(qp.qp->attributes.remote, (port_address{0, 1}));
}

// ---- what works in which state, for queue pairs of several processes

/// A process with memory. Its device goes on when the others do.
struct process {
    explicit process(const rig* first)
        : on({}, first == nullptr ? fabric::create_private() : fabric::join_peer(*first->adapter.state.net)) {}
    rig on;
    std::vector<std::uint8_t> memory = std::vector<std::uint8_t>(64);
    std::uint32_t key = on.add_region(memory);
};

/// A queue pair, and what the model says of it.
struct member {
    explicit member(process& of) : home(of), cq(of.on.adapter, 512), qp(of.on.adapter, cq, cq, 1, rc, events) {}
    process& home;
    std::shared_ptr<event_pipe> events = std::make_shared<event_pipe>(event_pipe::kind::asynchronous);
    test_cq cq;
    test_qp qp;
    qp_state state = reset;
    member* peer = nullptr;            ///< whom it is connected to, from RTR on
    std::deque<std::uint16_t> posted;  ///< not completed
    std::size_t receives = 0;          ///< not completed
    std::uint32_t next_psn = 0, expected_psn = 0;
    bool rang = false;  ///< the device knows of what was posted

    ~member() { ::close(events->read_descriptor()); }
    [[nodiscard]] bool takes() const {
        return state == ready_to_receive || state == ready_to_send || state == send_drained;
    }
};

class crowd {
  public:
    explicit crowd(std::uint64_t seed) : random_(seed) {
        for (int count = 0; count < 3; ++count)
            processes_.push_back(std::make_unique<process>(count == 0 ? nullptr : &processes_[0]->on));
        for (const auto& each : processes_) rigs_.push_back(&each->on);
    }
    void run(int rounds) {
        for (int round = 0; round < rounds && !::testing::Test::HasFatalFailure(); ++round) {
            if (all_.size() < 2 || (all_.size() < 6 && pick(8) == 0)) {
                all_.push_back(std::make_unique<member>(*processes_[pick(processes_.size())]));
                all_.back()->next_psn = new_psn();
                continue;
            }
            const std::size_t which = pick(all_.size());
            member& one = *all_[which];
            switch (pick(6)) {
                case 0:
                    if (pick(4) == 0) destroy(which);
                    break;
                case 1:
                    one.qp.post_receive({});
                    ++one.receives;
                    break;
                case 2:
                    post(one);
                    break;
                default:
                    change(one);
            }
            ASSERT_TRUE(settle(rigs_));
            SCOPED_TRACE(fmt::format("round {}", round));
            carry_out();
            check();
        }
    }

  private:
    std::size_t pick(std::size_t below) { return random_() % below; }
    std::uint32_t new_psn() { return static_cast<std::uint32_t>(random_()) & psn_mask; }

    void destroy(std::size_t which) {
        for (const auto& each : all_)
            if (each->peer == all_[which].get()) each->peer = nullptr;
        all_.erase(all_.begin() + static_cast<std::ptrdiff_t>(which));
    }

    /// A send without bytes.
    void post(member& one) {
        if (one.posted.size() >= 20 || one.receives >= 20) return;
        work what;
        what.opcode = MLX5_OPCODE_SEND;
        one.posted.push_back(one.qp.post(what));
        one.qp.ring();
        one.rang = one.rang || one.state == ready_to_send || one.state == send_drained || one.state == error;
    }

    /// Any step, whether there is one or not.
    void change(member& one) {
        const auto next = static_cast<qp_state>(pick(7));
        const auto row = std::find_if(std::begin(steps), std::end(steps), [&](const step& each) {
            return each.type == rc && each.from == one.state && each.to == next;
        });
        const bool always = next == reset || (next == error && one.state != reset);
        qp_modification change;
        change.next = next;
        change.mask = row == std::end(steps) ? std::uint32_t{IBV_QP_STATE} : mask_of(row->required);
        change.values.destination.dlid = 1;
        change.values.max_rd_atomic = change.values.max_dest_rd_atomic = 4;
        change.values.retry_count = 1;
        change.values.rnr_retry = 1;
        change.values.min_rnr_timer = 1;
        change.values.timeout = 1;
        member* const peer = all_[pick(all_.size())].get();
        change.values.remote_qpn = peer->qp.qp->number;
        change.values.receive_psn = peer->next_psn;
        change.values.send_psn = one.next_psn;
        const int result = one.home.on.adapter.modify_qp(*one.qp.qp, change);
        ASSERT_EQ(result == 0, always || row != std::end(steps)) << to_string(one.state) << " to " << to_string(next);
        if (result != 0) return;
        one.state = next;
        if (next == ready_to_receive) {
            one.peer = peer;
            one.expected_psn = peer->next_psn;
        }
        if (next != reset) return;
        one.next_psn = new_psn();  // nobody takes it for its predecessor
        one.qp.restart();
        one.posted.clear();
        one.receives = 0;
        one.peer = nullptr;
        one.rang = false;
    }

    /// What the model says to all that could happen since. Repeats, since one failure may cause another.
    void carry_out() {
        for (bool again = true; again;) {
            again = false;
            for (const auto& each : all_) again |= carry_out(*each);
        }
    }
    bool carry_out(member& one) {
        if (one.state == error) {
            for (; one.rang && !one.posted.empty(); one.posted.pop_front())
                expect(one, MLX5_CQE_REQ_ERR, syndrome::flushed);
            for (; one.receives > 0; --one.receives) expect(one, MLX5_CQE_RESP_ERR, syndrome::flushed);
            return false;
        }
        if (one.state != ready_to_send || !one.rang || one.posted.empty()) return false;
        member* const to = one.peer;
        const bool reaches = to != nullptr && to->takes() && to->peer == &one && to->expected_psn == one.next_psn;
        if (reaches && to->receives > 0) {
            expect(one, MLX5_CQE_REQ, syndrome::none);
            expect(*to, MLX5_CQE_RESP_SEND, syndrome::none);
            --to->receives;
            to->expected_psn = one.next_psn = (one.next_psn + 1) & psn_mask;
        } else {
            expect(one, MLX5_CQE_REQ_ERR, reaches ? syndrome::rnr_retry_exceeded : syndrome::transport_retry_exceeded);
            one.state = error;
        }
        one.posted.pop_front();
        return true;
    }
    void expect(member& of, std::uint8_t kind, syndrome error) {
        wanted_[&of].push_back({kind, static_cast<std::uint8_t>(error)});
    }

    /// All completions, each kind of a queue pair in its order.
    void check() {
        for (const auto& each : all_) {
            std::array<std::vector<std::pair<std::uint8_t, std::uint8_t>>, 2> seen, wanted;
            seen_completion one;
            while (each->cq.poll(one)) seen[is_send(one.kind)].push_back({one.kind, one.syndrome});
            for (const auto& [kind, error] : wanted_[each.get()]) wanted[is_send(kind)].push_back({kind, error});
            ASSERT_EQ(seen, wanted);
            ASSERT_EQ(each->qp.qp->state, each->state)
                << to_string(each->qp.qp->state) << " " << to_string(each->state);
        }
        wanted_.clear();
    }
    static bool is_send(std::uint8_t kind) { return kind == MLX5_CQE_REQ || kind == MLX5_CQE_REQ_ERR; }

    std::mt19937_64 random_;
    std::vector<std::unique_ptr<process>> processes_;
    std::vector<rig*> rigs_;
    std::vector<std::unique_ptr<member>> all_;
    std::map<const member*, std::vector<std::pair<std::uint8_t, std::uint8_t>>> wanted_;
};

TEST(states, each_request_ends_as_the_states_of_both_ends_say) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        SCOPED_TRACE(fmt::format("seed {}", seed));
        crowd(seed).run(120);
        if (::testing::Test::HasFailure()) return;
    }
}

}  // namespace
}  // namespace accel::softnic::states
