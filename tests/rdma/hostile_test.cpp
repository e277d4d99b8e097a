// A client that does with its queue pair what no correct client does. Its session ends; nothing else does.
#include "rdma_pair.hpp"
#include "verbs/completion_queue.hpp"
#include "verbs/domain.hpp"
#include "verbs/placement.hpp"
#include "verbs/queue_pair.hpp"

#include <functional>

#include <arpa/inet.h>

namespace accel::rdma::testing {
namespace {

using verbs::endpoint;

/// A client's end made of bare verbs, connected to a server's link.
class bare_client {
  public:
    explicit bare_client(core::link_geometry shape)
        : shape_(shape),
          device_(verbs::device::open({}, {}).value()),
          domain_(verbs::domain::create(device_).value()),
          completions_(verbs::completion_queue::create(device_, 64, nullptr).value()),
          pair_(verbs::queue_pair::create(device_, domain_->get(), completions_->get(), nullptr, {16, 16, 0},
                                          nullptr)
                    .value()),
          memory_(64 << 10),
          registered_(domain_->register_memory(memory_, verbs::access::peer_writes).value()) {}

    [[nodiscard]] core::link_description describe() const {
        endpoint own;
        pair_.describe(own);
        own.slots_address = reinterpret_cast<std::uintptr_t>(memory_.data());
        own.slots_stride = 8192;
        own.slots_key = registered_->rkey;
        own.slots = shape_.slots;
        core::link_description out(own.size_bytes());
        std::memcpy(out.data(), &own, out.size());
        return out;
    }
    void connect(const core::link_description& server) {
        ASSERT_LE(server.size(), sizeof server_);
        std::memcpy(&server_, server.data(), server.size());
        ASSERT_TRUE(pair_.connect(server_, {}).ok());
    }

    /// A request as a correct client sends it, to be spoilt.
    struct request {
        ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        std::uint32_t immediate = 0;
        std::uint64_t address = 0;
        std::uint32_t key = 0;
        slot_header header;
        verbs::placement_extension placed;
        std::size_t extensions = 0;
        std::uint32_t length = sizeof(slot_header);
    };
    [[nodiscard]] request correct(std::uint32_t slot) const {
        request out;
        out.immediate = slot;
        out.address = server_.slots_address + slot * server_.slots_stride + core::extension_room;
        out.key = server_.slots_key;
        out.header.slot = slot;
        out.header.generation = 1;
        out.header.response_room = 64;
        return out;
    }
    void post(const request& what) {
        std::byte* const head = memory_.data() + 4096;
        std::memcpy(head, &what.header, sizeof what.header);
        std::memcpy(head - sizeof what.placed, &what.placed, sizeof what.placed);
        ibv_sge segment{reinterpret_cast<std::uintptr_t>(head) - what.extensions,
                        static_cast<std::uint32_t>(what.length + what.extensions), registered_->lkey};
        ibv_send_wr wr{};
        wr.wr_id = 1;
        wr.sg_list = &segment;
        wr.num_sge = segment.length == 0 ? 0 : 1;
        wr.opcode = what.opcode;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.imm_data = htonl(what.immediate);
        wr.wr.rdma.remote_addr = what.address - what.extensions;
        wr.wr.rdma.rkey = what.key;
        ibv_send_wr* failed = nullptr;
        ASSERT_EQ(pair_.post(&wr, &failed), 0);
    }
    [[nodiscard]] ibv_wc_status outcome() {
        verbs::work_completion completion;
        const bool came = eventually(
            patience(5s),
            [&] {
                return completions_->poll({&completion, 1}) > 0;
            },
            50us);
        EXPECT_TRUE(came);
        return completion.status;
    }
    [[nodiscard]] const endpoint& server() const { return server_; }
    /// Soft-RoCE refuses a read to whoever asked, and does not tell the side that was asked.
    [[nodiscard]] bool is_told_of_reads() const { return !device_->name().starts_with("rxe"); }

  private:
    core::link_geometry shape_;
    std::shared_ptr<verbs::device> device_;
    std::shared_ptr<verbs::domain> domain_;
    std::unique_ptr<verbs::completion_queue> completions_;
    verbs::queue_pair pair_;
    std::vector<std::byte> memory_;
    verbs::region_handle registered_;
    endpoint server_;
};

class rdma_hostile : public rdma_test {
  protected:
    /// A well-behaved session beside the attacked one has to go on as if nothing had been.
    void expect_only_its_own_session_ends(const std::function<void(bare_client&)>& attack,
                                          status reason = status::protocol_error, bool reads = false) {
        listen();
        pair good = connect();
        bare_client bad(small);
        int owner = 0;
        auto attacked = accept(bad.describe(), small, &owner).value();
        bad.connect(attacked->describe());
        attack(bad);
        if (!reads || bad.is_told_of_reads()) {
            const auto lost = next(*server_events);
            EXPECT_EQ(lost.kind, event_kind::lost);
            EXPECT_EQ(lost.owner, &owner);
            EXPECT_EQ(lost.reason, reason);
        }
        EXPECT_TRUE(eventually(patience(1s), [&] { return attacked->close(); }));
        for (unsigned i = 0; i < 100; ++i) {
            std::array<link_event, 16> none;
            EXPECT_EQ(good.client_events->poll(none), 0U);
            ASSERT_EQ(send(*good.client, message_kind::request, i % 4, pattern(100, i)), status::ok);
            expect_payload(next(*server_events), pattern(100, i));
        }
    }
    void expect_refused(const std::function<void(bare_client::request&, const endpoint&)>& spoil,
                        status reason = status::protocol_error) {
        expect_only_its_own_session_ends(
            [&](bare_client& bad) {
                auto what = bad.correct(1);
                spoil(what, bad.server());
                bad.post(what);
            },
            reason);
    }
};

TEST_F(rdma_hostile, a_correct_request_is_taken) {
    listen();
    bare_client one(small);
    auto served = accept(one.describe(), small).value();
    one.connect(served->describe());
    one.post(one.correct(3));
    const auto event = next(*server_events);
    EXPECT_EQ(event.kind, event_kind::arrived);
    EXPECT_EQ(event.header.slot, 3U);
}

TEST_F(rdma_hostile, immediate_data_beyond_the_slots) {
    expect_refused([](auto& what, auto&) { what.immediate = 4; });
}
TEST_F(rdma_hostile, immediate_data_of_all_ones) {
    expect_refused([](auto& what, auto&) { what.immediate = 0xffff'ffff; });
}
TEST_F(rdma_hostile, immediate_data_of_another_slot) {
    expect_refused([](auto& what, auto&) { what.immediate = 2; });
}
TEST_F(rdma_hostile, a_payload_longer_than_a_slot) {
    expect_refused([](auto& what, auto&) { what.header.length = 4097; });
}
TEST_F(rdma_hostile, a_payload_longer_than_memory) {
    expect_refused([](auto& what, auto&) { what.header.length = ~std::uint64_t{0}; });
}
TEST_F(rdma_hostile, extensions_longer_than_their_room) {
    expect_refused([](auto& what, auto&) { what.header.extension_bytes = 0xfff8; });
}
TEST_F(rdma_hostile, extensions_that_are_none) {
    expect_refused([](auto& what, auto&) {
        what.placed.head.length = 0xffff;
        what.extensions = sizeof what.placed;
        what.header.extension_bytes = sizeof what.placed;
    });
}
TEST_F(rdma_hostile, a_placement_smaller_than_the_room_it_promises) {
    expect_refused([](auto& what, auto&) {
        what.placed.value = {0x1000, 63, 1, 0};
        what.extensions = sizeof what.placed;
        what.header.extension_bytes = sizeof what.placed;
    });
}
TEST_F(rdma_hostile, a_send_without_a_write) {
    expect_refused([](auto& what, auto&) {
        what.opcode = IBV_WR_SEND_WITH_IMM;
        what.length = 0;
    });
}

TEST_F(rdma_hostile, writing_past_the_last_slot_touches_nothing) {
    expect_only_its_own_session_ends([](bare_client& bad) {
        auto what = bad.correct(0);
        what.address = bad.server().slots_address + 4 * bad.server().slots_stride;
        bad.post(what);
        EXPECT_EQ(bad.outcome(), IBV_WC_REM_ACCESS_ERR);
    });
}
TEST_F(rdma_hostile, reading_is_not_allowed) {
    const auto read = [](bare_client& bad) {
        auto what = bad.correct(0);
        what.opcode = IBV_WR_RDMA_READ;
        bad.post(what);
        EXPECT_NE(bad.outcome(), IBV_WC_SUCCESS);
    };
    expect_only_its_own_session_ends(read, status::protocol_error, true);
}

TEST_F(rdma_hostile, another_sessions_key_opens_nothing) {
    listen();
    pair good = connect();
    endpoint other;
    std::memcpy(&other, good.server->describe().data(), sizeof other);
    bare_client bad(small);
    auto attacked = accept(bad.describe(), small).value();
    bad.connect(attacked->describe());
    auto what = bad.correct(0);
    what.key = other.slots_key;
    what.address = other.slots_address + core::extension_room;
    bad.post(what);
    EXPECT_EQ(bad.outcome(), IBV_WC_REM_ACCESS_ERR) << "protection domains are per session";
    ASSERT_EQ(send(*good.client, message_kind::request, 0, pattern(10, 1)), status::ok);
    link_event event = next(*server_events);
    if (event.kind == event_kind::lost) event = next(*server_events);  // of the attacker
    expect_payload(event, pattern(10, 1));
}

TEST_F(rdma_hostile, keys_that_were_guessed_open_nothing) {
    listen();
    pair good = connect();
    endpoint other;
    std::memcpy(&other, good.server->describe().data(), sizeof other);
    for (std::uint32_t guess = 0; guess < 64; ++guess) {
        bare_client bad(small);
        auto attacked = accept(bad.describe(), small).value();
        bad.connect(attacked->describe());
        auto what = bad.correct(0);
        what.key = other.slots_key + guess - 32;
        what.address = other.slots_address + core::extension_room;
        bad.post(what);
        EXPECT_NE(bad.outcome(), IBV_WC_SUCCESS) << guess;
    }
}

TEST_F(rdma_hostile, an_answer_to_a_place_the_client_does_not_own_ends_its_session_only) {
    listen();
    pair good = connect();
    bare_client bad(small);
    auto attacked = accept(bad.describe(), small).value();
    bad.connect(attacked->describe());
    auto what = bad.correct(1);
    what.placed.value = {0xdead'0000, 4096, 12345, 0};
    what.extensions = sizeof what.placed;
    what.header.extension_bytes = sizeof what.placed;
    bad.post(what);
    ASSERT_EQ(next(*server_events).kind, event_kind::arrived);
    ASSERT_EQ(send(*attacked, message_kind::response, 1, pattern(64, 1)), status::ok);
    const auto lost = next(*server_events);
    EXPECT_EQ(lost.kind, event_kind::lost);
    EXPECT_EQ(lost.reason, status::protocol_error);
    ASSERT_EQ(send(*good.client, message_kind::request, 0, pattern(10, 1)), status::ok);
    expect_payload(next(*server_events), pattern(10, 1));
}

TEST_F(rdma_hostile, descriptions_that_do_not_fit_are_refused) {
    listen();
    auto events = open_poller(core::link_role::client);
    auto client = events->open_link(config_of(core::link_role::client, small)).value();
    const auto good = client->describe();
    const auto refused = [&](const std::function<void(endpoint&)>& spoil) {
        endpoint e;
        std::memcpy(&e, good.data(), good.size());
        spoil(e);
        core::link_description bytes(e.size_bytes());
        std::memcpy(bytes.data(), &e, bytes.size());
        return accept(bytes, small).code();
    };
    EXPECT_EQ(refused([](endpoint& e) { e.slots = 5; }), status::protocol_error);
    EXPECT_EQ(refused([](endpoint& e) { e.slots_stride = 64; }), status::protocol_error);
    EXPECT_EQ(refused([](endpoint& e) { e.mtu = 9; }), status::protocol_error);
    EXPECT_EQ(refused([](endpoint& e) {
                  e.flags = verbs::payloads_apart;
                  e.payloads_stride = 64;
              }),
              status::protocol_error);
    EXPECT_EQ(refused([](endpoint& e) {
                  e.layer = e.layer == verbs::link_layer::ethernet ? verbs::link_layer::infiniband
                                                                   : verbs::link_layer::ethernet;
              }),
              status::unsupported);
    EXPECT_EQ(accept({}, small).code(), status::protocol_error);
    EXPECT_EQ(refused([](endpoint&) {}), status::ok);
}

}  // namespace
}  // namespace accel::rdma::testing
