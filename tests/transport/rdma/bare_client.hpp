// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"
#include "patience.hpp"
#include "verbs/device.hpp"
#include "verbs/domain.hpp"
#include "verbs/endpoint.hpp"
#include "verbs/queues.hpp"

#include <accel_transport/detail/mlx5/fences.hpp>
#include <accel_transport/detail/wire/response_target.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include <gtest/gtest.h>

namespace accel::rdma::testing {

/// A client's end made of bare verbs, connected to a server's link.
class bare_client {
  public:
    explicit bare_client(core::link_geometry shape)
        : shape_(shape),
          device_(verbs::device::open({}, {}).value()),
          domain_(verbs::domain::create(device_).value()),
          completions_(verbs::completion_queue::create(device_, 64, nullptr).value()),
          pair_(verbs::queue_pair::create(device_, domain_->get(), completions_->get(), nullptr, {16, 16, 0}, nullptr)
                    .value()),
          memory_(64 << 10),
          registered_(domain_->register_memory(memory_, verbs::access::peer_writes).value()) {}

    [[nodiscard]] core::link_description describe() const {
        verbs::endpoint own;
        pair_.describe(own);
        own.slots_address = reinterpret_cast<std::uintptr_t>(memory_.data());
        own.slots_stride = slots_stride;
        own.slots_key = registered_->rkey;
        own.slots = shape_.slots;
        return verbs::to_bytes(own);
    }
    /// `receives`: without any, the peer's messages never arrive, and it tries again for ever.
    void connect(const core::link_description& server, std::uint32_t receives = 16) {
        ASSERT_LE(server.size(), sizeof server_);
        std::memcpy(&server_, server.data(), server.size());
        ASSERT_TRUE(pair_.connect(server_, {}).ok());
        verbs::empty_receives chain;
        ASSERT_EQ(pair_.post_receives(receives, chain), receives);
    }

    /// A request as a correct client sends it, to be spoilt.
    struct request {
        mlx5::opcode operation = mlx5::opcode::write_immediate;
        std::uint32_t immediate = 0;
        std::uint64_t address = 0;
        std::uint32_t key = 0;
        core::slot_header header;
        wire::response_target_extension placed;
        std::size_t extensions = 0;
        std::uint32_t length = sizeof(core::slot_header);
        bool repeats_generation = true;  ///< in the arrival word, where the server wants that
    };
    [[nodiscard]] request correct(std::uint32_t slot) const {
        request out;
        out.immediate = slot;
        if (server_.wants_plain()) out.operation = mlx5::opcode::write;
        out.address = server_.slots_address + slot * server_.slots_stride + core::extension_room;
        out.key = server_.slots_key;
        out.header.slot = slot;
        out.header.generation = 1;
        out.header.response_room = 64;
        return out;
    }
    void post(const request& what) {
        std::byte* const head = memory_.data() + outgoing_at;
        core::slot_header header = what.header;
        if (server_.wants_plain() && what.repeats_generation) header.arrival_word = header.generation;
        std::memcpy(head, &header, sizeof header);
        std::memcpy(head - sizeof what.placed, &what.placed, sizeof what.placed);
        const mlx5::local_range range{reinterpret_cast<std::uintptr_t>(head) - what.extensions,
                                      static_cast<std::uint32_t>(what.length + what.extensions), registered_->lkey};
        mlx5::work_request wr;
        wr.ranges = range.length == 0 ? 0 : 1;
        wr.first = &range;
        wr.operation = what.operation;
        wr.flags = mlx5::flag_signalled;
        wr.immediate = mlx5::to_be32(what.immediate);
        wr.remote_address = what.address - what.extensions;
        wr.remote_key = what.key;
        ASSERT_EQ(pair_.post(std::span{&wr, 1}), 1U);
    }
    /// Of the next work request; answers that arrive are passed over.
    [[nodiscard]] mlx5::syndrome outcome() {
        mlx5::completion completion;
        const auto sent = [&] {
            while (completions_->poll(completion) > 0) {
                if (verbs::is_receive(completion)) continue;
                (void)pair_.take_sent(completion);
                return true;
            }
            return false;
        };
        const bool came =
            tests::eventually(tests::patience(std::chrono::seconds{5}), sent, std::chrono::microseconds{50});
        EXPECT_TRUE(came);
        return completion.failure;
    }
    [[nodiscard]] const verbs::endpoint& server() const { return server_; }
    /// What has arrived in its slot.
    [[nodiscard]] core::slot_header answer(std::uint32_t slot) const {
        const std::byte* const from = memory_.data() + slot * slots_stride + core::extension_room;
        std::array<std::uint64_t, sizeof(core::slot_header) / 8> words{};
        for (std::size_t i = 0; i < words.size(); ++i)
            words[i] = mlx5::load_whole(reinterpret_cast<const std::uint64_t*>(from) + i);
        return core::read_header(reinterpret_cast<const std::byte*>(words.data()));
    }
    /// … and in front of it, if its sender wants its answer elsewhere.
    [[nodiscard]] wire::response_target response_target(std::uint32_t slot) const {
        const std::byte* const header = memory_.data() + slot * slots_stride + core::extension_room;
        wire::response_target out;
        EXPECT_TRUE(
            wire::find_response_target(header - answer(slot).extension_bytes, answer(slot).extension_bytes, out));
        return out;
    }
    /// Soft-RoCE refuses a read to whoever asked, and does not tell the side that was asked.
    [[nodiscard]] bool is_told_of_reads() const { return !device_->name().starts_with("rxe"); }

  private:
    static constexpr std::size_t slots_stride = 8192;
    static constexpr std::size_t outgoing_at = 4096;  ///< behind the first slot's answer
    core::link_geometry shape_;
    std::shared_ptr<verbs::device> device_;
    std::shared_ptr<verbs::domain> domain_;
    std::unique_ptr<verbs::completion_queue> completions_;
    verbs::queue_pair pair_;
    std::vector<std::byte> memory_;
    verbs::region_handle registered_;
    verbs::endpoint server_;
};

}  // namespace accel::rdma::testing
