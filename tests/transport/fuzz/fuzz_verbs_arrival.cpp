// SPDX-License-Identifier: Apache-2.0
// What a peer writes into the slots of a verbs link, and announces. Byte 0: which end reads. Then steps: the
// peer writes bytes anywhere, or a header with extensions in front of it, or announces a slot; the
// application lends room for a response.
#include "backends/rdma/link.hpp"
#include "fuzz_target.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

namespace {

using namespace accel;
using tests::require;

constexpr core::link_geometry shape{3, 100, 100};
constexpr std::size_t stride = 384;

class reading_end {
  public:
    reading_end(tests::input_reader& input, core::link_role role) : input_(input) {
        config_.role = role;
        config_.geometry = shape;
        config_.owner = this;
        config_.receive = core::slot_memory::over(memory_.data(), shape.slots, shape.request_bytes, stride);
    }
    void run() {
        while (!input_.empty()) {
            const std::uint8_t what = input_.byte();
            if (what % 4 == 0) write();
            if (what % 4 == 1) write_message();
            if (what % 4 == 2) lend();
            if (what % 4 == 3 && !announce()) return;
        }
    }

  private:
    void write() {
        const std::size_t at = (std::size_t{input_.byte()} << 8 | input_.byte()) % memory_.size();
        const auto bytes = input_.bytes(std::min<std::size_t>(input_.byte(), memory_.size() - at));
        if (!bytes.empty()) std::memcpy(memory_.data() + at, bytes.data(), bytes.size());
    }
    /// A header as it should be, but for what the input says; its extensions are the input's.
    void write_message() {
        core::slot_header header;
        const std::uint32_t slot = input_.byte() % shape.slots;
        header.slot = slot;
        header.generation = input_.byte();
        header.length = input_.byte();
        header.response_room = input_.byte();
        header.extension_bytes = static_cast<std::uint16_t>(input_.byte() & ~7U);
        header.code = static_cast<status>(input_.byte() % 4 == 3 ? 1 : 0);
        const bool request = config_.role == core::link_role::server;
        header.kind = request ? core::message_kind::request : core::message_kind::response;
        std::byte* const at = config_.receive->header(slot);
        std::memcpy(at, &header, sizeof header);
        const std::size_t room = std::min<std::size_t>(header.extension_bytes, core::extension_room);
        const auto extensions = input_.bytes(room);
        if (!extensions.empty()) std::memcpy(at - room, extensions.data(), extensions.size());
    }
    void lend() {
        if (config_.role == core::link_role::server) return;
        rdma::slot_use& use = uses_[input_.byte() % shape.slots];
        const std::uint8_t length = input_.byte();
        own_ = std::vector<std::byte>(length);
        for (rdma::slot_use& each : uses_) each.response_into = {};
        use.response_into = own_;
        use.copies_response = length % 2 == 0;
    }
    /// False: the link ends.
    bool announce() {
        const std::uint8_t choice = input_.byte();
        const std::uint32_t slot = choice < 250 ? choice % shape.slots : 0xffff'ff00U + choice;
        core::link_event out;
        if (!rdma::read_arrival(config_, uses_, slot, out)) return false;
        require(slot < shape.slots && out.header.slot == slot, "the slot exists, and its header names it");
        require(out.kind == core::event_kind::arrived && out.owner == this, "it is an arrival of this link");
        require(out.payload.size() == out.header.length && lies_right(slot, out.payload),
                "the payload lies in its slot or in the room lent for it");
        const wire::response_target& placed = uses_[slot].target;
        require(placed.length == 0 ||
                    (config_.role == core::link_role::server && out.header.response_room <= placed.length),
                "an answer fits where it is placed");
        require(uses_[slot].response_into.empty(), "room is lent for one response");
        return true;
    }
    bool lies_right(std::uint32_t slot, std::span<const std::byte> payload) const {
        const auto within = [&](const std::byte* from, std::size_t length) {
            return payload.data() >= from && payload.data() + payload.size() <= from + length;
        };
        unsigned sum = 0;
        for (const std::byte b : payload) sum += std::to_integer<unsigned>(b);
        require(sum <= 255 * shape.request_bytes, "all of it can be read");
        return within(config_.receive->payload(slot), shape.request_bytes) || within(own_.data(), own_.size());
    }

    tests::input_reader& input_;
    std::vector<std::byte> memory_ = std::vector<std::byte>(shape.slots * stride);
    std::vector<std::byte> own_;
    core::link_config config_;
    std::array<rdma::slot_use, shape.slots> uses_{};
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    tests::input_reader input(data, size);
    const auto role = input.byte() % 2 == 0 ? core::link_role::server : core::link_role::client;
    reading_end(input, role).run();
    return 0;
}
