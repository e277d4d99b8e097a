// SPDX-License-Identifier: Apache-2.0
// What a modelled link lets memory show while messages arrive, and how late they are in memory that takes time.
#include "link/overhead.hpp"
#include "link_rig.hpp"
#include "timed_memory.hpp"

#include <random>

namespace accel::softnic {
namespace {

using testing::host;
using testing::linked;
using testing::piece;
using testing::rig;
using testing::seen_completion;
using testing::test_cq;
using testing::test_qp;
using testing::timed_memory;
using testing::timed_view;
using testing::work;

std::uint32_t add_view(rig& on, timed_memory& memory, std::uint64_t offset, std::uint64_t size) {
    const std::uint64_t address = timed_memory::address + offset;
    return on.adapter.state.devices[0]
        .regions.add({0, 1, address, size, address, 0xf, false, std::make_shared<timed_view>(memory)})
        .key;
}

// ---- how late

constexpr testing::link_options large_packets{.mtu = 5};
constexpr std::uint32_t payload_bytes = 602'112;
constexpr std::uint32_t header_bytes = 64;

/// Clients that write a payload and then its header to one server, as the library does: each waits until the header is
/// there, and then a while.
class requests {
  public:
    explicit requests(std::uint32_t clients, const settings& chosen = linked())
        : server_(chosen, fabric::create_private()),
          memory_(clients * std::uint64_t{stride}),
          payloads_(add_view(server_, memory_, 0, clients * std::uint64_t{stride})),
          headers_(add_view(server_, memory_, 0, clients * std::uint64_t{stride})) {
        for (std::uint32_t at = 0; at < clients; ++at) {
            clients_.push_back(std::make_unique<client>(chosen, server_));
            auto& ends = *clients_.back();
            testing::connect(ends.on.on.adapter, *ends.on.qp.qp, ends.there.qp->number, large_packets);
            testing::connect(server_.adapter, *ends.there.qp, ends.on.qp.qp->number, large_packets);
            ends.on.on.adapter.state.wire_clock = &timed_memory::read_clock;
        }
        server_.adapter.state.wire_clock = &timed_memory::read_clock;
    }
    timed_memory& memory() { return memory_; }
    [[nodiscard]] const counters& count() const { return server_.adapter.state.count; }
    [[nodiscard]] double late_percent() const {
        return 100.0 * static_cast<double>(count().late_messages) / static_cast<double>(count().timed_messages);
    }

    /// Each client this number of times, with completions of this kind.
    void run(int rounds, std::uint64_t longest_pause_ns, std::uint8_t kind = MLX5_CQE_REQ) {
        std::uint64_t left = clients_.size() * static_cast<std::uint64_t>(rounds);
        for (auto& each : clients_) each->next_at = now() + random_() % longest_pause_ns;
        for (const std::uint64_t end = now() + 10'000'000'000; left != 0;) {
            ASSERT_LT(now(), end) << left << " requests are missing";
            step();
            for (std::uint32_t at = 0; at < clients_.size(); ++at) {
                client& each = *clients_[at];
                if (each.next_at != 0 && now() >= each.next_at) send(each, at);
                if (!each.on.cq.poll(each.on.seen)) continue;
                ASSERT_EQ(each.on.seen.kind, kind);
                if (kind != MLX5_CQE_REQ) return;
                if (!server_.adapter.state.config.strict) expect_there(at, each.generation);
                --left;
                each.next_at = now() + 1 + random_() % longest_pause_ns;
            }
        }
    }

  private:
    static constexpr std::uint32_t stride = payload_bytes + header_bytes;
    struct client {
        client(const settings& chosen, rig& server)
            : on(chosen, &server), cq(server.adapter), there(server.adapter, cq, cq, 1) {}
        host on;
        test_cq cq;
        test_qp there;
        std::uint64_t next_at = 0;
        std::uint8_t generation = 0;
    };

    static std::uint64_t now() { return timed_memory::clock(); }
    void expect_there(std::uint32_t at, std::uint8_t generation) {
        EXPECT_EQ(memory_.bytes()[at * stride + stride - 1], generation) << "a completion ahead of its data";
        EXPECT_EQ(memory_.bytes()[at * stride + payload_bytes - 1], generation);
    }
    void step() {
        std::uint64_t next = now() + 1'000;
        const auto run_one = [&](rig& each) {
            each.adapter.progress(now());
            const std::uint64_t due = each.adapter.state.next_due;
            if (due > now()) next = std::min(next, due);
        };
        run_one(server_);
        for (auto& each : clients_) run_one(each->on.on);
        timed_memory::clock() = std::max(now(), next);
    }
    void send(client& from, std::uint32_t at) {
        from.next_at = 0;
        std::fill_n(from.on.memory.begin(), stride, ++from.generation);
        work what;
        what.opcode = MLX5_OPCODE_RDMA_WRITE;
        what.signalled = false;
        what.pieces = {piece(from.on.memory.data(), payload_bytes, from.on.key)};
        what.remote = timed_memory::address + std::uint64_t{at} * stride;
        what.rkey = payloads_;
        from.on.qp.post(what);
        what.signalled = true;
        what.pieces = {piece(from.on.memory.data() + payload_bytes, header_bytes, from.on.key)};
        what.remote += payload_bytes;
        what.rkey = headers_;
        from.on.qp.post(what);
        from.on.on.adapter.progress(now());
        from.on.qp.ring();
    }

    std::mt19937_64 random_{1};
    rig server_;
    timed_memory memory_;
    std::uint32_t payloads_, headers_;  ///< keys: two registrations, as of the library
    std::vector<std::unique_ptr<client>> clients_;
};

struct late_messages : ::testing::TestWithParam<bool> {};

TEST_P(late_messages, one_in_a_hundred_is_late_at_most_in_memory_of_a_gpu) {
    for (const std::uint32_t clients : {1U, 2U, 4U, 8U, 16U}) {
        SCOPED_TRACE(fmt::format("{} clients", clients));
        requests on(clients, linked(GetParam()));
        on.run(static_cast<int>(160 / clients), std::uint64_t{500'000} * clients);
        EXPECT_GE(on.count().timed_messages, 320U);
        EXPECT_LE(on.late_percent(), 1.0);
    }
}

INSTANTIATE_TEST_SUITE_P(strict, late_messages, ::testing::Bool(),
                         [](const auto& mode) { return mode.param ? "on" : "off"; });

TEST(messages_to_a_gpu, are_late_if_its_memory_takes_nothing_early) {
    requests on(1);
    on.memory().refuses_early = true;
    on.run(20, 500'000);
    EXPECT_GT(on.late_percent(), 25.0);
}

TEST(messages_to_a_gpu, do_not_make_the_device_wait) {
    requests on(4);
    on.run(20, 2'000'000);
    EXPECT_EQ(on.memory().waited_ns, 0U);
}

TEST(messages_to_a_gpu, fail_if_their_last_piece_is_lost) {
    requests on(1);
    on.run(1, 1'000);
    on.memory().loses = true;
    on.run(1, 1'000, MLX5_CQE_REQ_ERR);
}

// ---- what memory may show

struct shown_message {
    std::uint32_t at, length;
    std::uint32_t kept;    ///< bytes of its last packet
    std::uint64_t due_ns;  ///< of that packet
    std::uint8_t seed;
    bool completed = false;

    [[nodiscard]] bool has(std::uint32_t offset) const { return offset >= at && offset - at < length; }
    [[nodiscard]] std::uint8_t value(std::uint32_t offset) const {
        return static_cast<std::uint8_t>(seed * 37 + (offset - at) * 7 + ((offset - at) >> 8));
    }
};

/// Random messages from one host to another, some of them in the place of others, and after each step each byte: it is
/// that of the last message that has completed, or of one that the link has brought, or of the next one, if it is not
/// in its last packet.
class shown_memory {
  public:
    static constexpr std::uint32_t bytes = 6'000;

    shown_memory(std::uint64_t seed, bool gpu, const settings& chosen)
        : random_(seed),
          strict_(chosen.strict),
          gpu_(gpu),
          one_(chosen),
          two_(chosen, &one_.on),
          timed_(2 * bytes, 3'000),
          key_(gpu ? add_view(two_.on, timed_, 0, 2 * bytes) : two_.key) {
        how_.mtu = static_cast<std::uint8_t>(1 + random_() % 2);
        testing::connect(one_.on.adapter, *one_.qp.qp, two_.qp.qp->number, how_);
        testing::connect(two_.on.adapter, *two_.qp.qp, one_.qp.qp->number, how_);
        for (host* each : {&one_, &two_}) each->on.adapter.state.wire_clock = &timed_memory::read_clock;
        settled_.assign(bytes, 0);
        step();
    }

    void run(int batches) {
        for (int batch = 0; batch < batches && !::testing::Test::HasFailure(); ++batch) {
            post_batch(1 + below(5));
            for (const std::uint64_t end = now() + 1'000'000'000; completed_ != messages_.size();) {
                ASSERT_LT(now(), end) << "batch " << batch;
                step();
                collect();
                check();
                if (::testing::Test::HasFailure()) return;
            }
            for (int rest = 0; rest < 300; ++rest) step();  // strict mode is late by 200 us at most
            ASSERT_NO_FATAL_FAILURE(check());
            for (std::uint32_t offset = 0; offset < bytes; ++offset) settled_[offset] = newest(offset);
            ASSERT_TRUE(std::equal(settled_.begin(), settled_.end(), seen().begin())) << "batch " << batch;
            messages_.clear();
            completed_ = 0;
        }
    }
    [[nodiscard]] std::uint64_t early_packets() const { return two_.on.adapter.state.count.early_packets; }

  private:
    static std::uint64_t now() { return timed_memory::clock(); }
    std::uint32_t below(std::uint32_t limit) { return static_cast<std::uint32_t>(random_() % limit); }
    std::span<std::uint8_t> seen() { return gpu_ ? timed_.bytes() : std::span(two_.memory); }
    [[nodiscard]] std::uint64_t target(std::uint32_t at) const {
        return (gpu_ ? timed_memory::address : reinterpret_cast<std::uint64_t>(two_.memory.data())) + at;
    }

    void step() {
        std::uint64_t next = now() + 1'000;
        for (host* each : {&one_, &two_}) {
            each->on.adapter.progress(now());
            const std::uint64_t due = each->on.adapter.state.next_due;
            if (due > now()) next = std::min(next, due);
        }
        timed_memory::clock() = std::max(now(), next);
    }

    void post_batch(std::uint32_t count) {
        link_port out(25'000'000'000);
        link_port in(25'000'000'000);
        for (host* each : {&one_, &two_}) each->on.adapter.progress(now());
        for (std::uint32_t at = 0; at < count; ++at) {
            constexpr std::uint8_t opcodes[]{MLX5_OPCODE_RDMA_WRITE, MLX5_OPCODE_RDMA_WRITE, MLX5_OPCODE_RDMA_WRITE_IMM,
                                             MLX5_OPCODE_SEND};
            const std::uint8_t opcode = opcodes[below(std::size(opcodes))];
            shown_message made{};
            made.length = 1 + below(below(2) == 0 ? 300 : bytes - 1);
            made.at = below(bytes - made.length + 1);
            made.seed = static_cast<std::uint8_t>(++seeds_);
            const std::uint32_t mtu = 128U << how_.mtu;
            made.kept = (made.length - 1) % mtu + 1;
            made.due_ns = due_of(made, opcode, mtu, out, in);
            std::uint8_t* const from = one_.memory.data() + std::size_t{at} * bytes;
            for (std::uint32_t offset = 0; offset < made.length; ++offset) from[offset] = made.value(made.at + offset);
            work what;
            what.opcode = opcode;
            what.pieces = {piece(from, made.length, one_.key)};
            what.remote = target(made.at);
            what.rkey = key_;
            if (opcode == MLX5_OPCODE_SEND || opcode == MLX5_OPCODE_RDMA_WRITE_IMM)
                two_.qp.post_receive(std::array{segment{target(made.at), made.length, key_, false}});
            one_.qp.post(what);
            messages_.push_back(made);
        }
        one_.qp.ring();
    }
    static std::uint64_t due_of(const shown_message& of, std::uint8_t opcode, std::uint32_t mtu, link_port& out,
                                link_port& in) {
        std::uint64_t due = 0;
        for (std::uint32_t done = 0; done < of.length; done += mtu) {
            packet_header header{};
            header.kind = opcode == MLX5_OPCODE_SEND ? packet_kind::send : packet_kind::write;
            header.payload_bytes = static_cast<std::uint16_t>(std::min(mtu, of.length - done));
            if (done == 0) header.flags |= packet_flag::first;
            if (done + mtu >= of.length) header.flags |= packet_flag::last;
            if (header.has(packet_flag::last) && opcode == MLX5_OPCODE_RDMA_WRITE_IMM)
                header.flags |= packet_flag::immediate;
            const std::uint32_t size = overhead::wire_bytes(header);
            due = in.receive(out.send(now(), size) + 1'000, size);
        }
        return due;
    }

    void collect() {
        while (one_.cq.poll(one_.seen)) {
            ASSERT_EQ(one_.seen.kind, MLX5_CQE_REQ);
            ASSERT_GE(now(), messages_[completed_].due_ns + 1'000);
            messages_[completed_++].completed = true;
        }
        seen_completion received;
        while (two_.cq.poll(received)) ASSERT_TRUE(received.kind != MLX5_CQE_RESP_ERR);
    }

    [[nodiscard]] std::uint8_t newest(std::uint32_t offset) const {
        std::uint8_t value = settled_[offset];
        for (const auto& each : messages_)
            if (each.has(offset)) value = each.value(offset);
        return value;
    }
    /// At the last step's time, which the clock has gone beyond: so `before` this time nothing may be there.
    [[nodiscard]] bool may_show(std::uint32_t offset, std::uint8_t value) const {
        bool good = value == settled_[offset];
        bool all_before_came = true;
        for (const auto& each : messages_) {
            const bool came = each.due_ns < now();
            const bool allowed = came || (all_before_came && offset - each.at < each.length - each.kept);
            if (each.has(offset)) {
                if (each.completed && !strict_) good = false;
                good |= allowed && value == each.value(offset);
            }
            all_before_came = all_before_came && came;
        }
        return good;
    }
    void check() {
        const auto shown = seen();
        for (std::uint32_t offset = 0; offset < bytes; ++offset)
            ASSERT_TRUE(may_show(offset, shown[offset])) << offset << " at " << now() << explain(offset, shown[offset]);
    }
    [[nodiscard]] std::string explain(std::uint32_t offset, std::uint8_t shown) const {
        std::string text = fmt::format(": {} in place of {}", shown, settled_[offset]);
        for (const auto& each : messages_)
            if (each.has(offset))
                text += fmt::format(", {} of [{}, {}) due {}{}", each.value(offset), each.at, each.at + each.length,
                                    each.due_ns, each.completed ? " completed" : "");
        return text;
    }

    std::mt19937_64 random_;
    bool strict_;
    bool gpu_;
    host one_;
    host two_;
    timed_memory timed_;
    std::uint32_t key_;
    testing::link_options how_;
    std::uint32_t seeds_ = 0;
    std::vector<std::uint8_t> settled_;
    std::vector<shown_message> messages_;
    std::size_t completed_ = 0;
};

constexpr const char* ways_of_loss[]{"", "drop p=0.02 seed={}", "duplicate p=0.1 seed={}", "reorder p=0.05 seed={}"};

struct early_payloads : ::testing::TestWithParam<bool> {};

TEST_P(early_payloads, memory_shows_no_last_packet_and_no_later_message_before_its_time) {
    std::uint64_t early = 0;
    for (std::uint64_t seed = 0; seed < 24; ++seed) {
        SCOPED_TRACE(fmt::format("seed {}", seed));
        const std::string faults = fmt::format(fmt::runtime(ways_of_loss[seed % 4]), seed);
        shown_memory on(seed, GetParam(), linked(seed % 8 >= 4, faults.c_str()));
        on.run(6);
        early += on.early_packets();
        if (HasFailure()) return;
    }
    EXPECT_GT(early, 500U);
}

INSTANTIATE_TEST_SUITE_P(memory, early_payloads, ::testing::Bool(),
                         [](const auto& of) { return of.param ? "gpu" : "host"; });

}  // namespace
}  // namespace accel::softnic
