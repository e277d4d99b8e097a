// SPDX-License-Identifier: Apache-2.0
// A channel as its owner uses it, over queues in the fuzzer's hands: a server that writes any header at any time,
// completions of any kind, the host's orders, and owners that come and go. Byte 0: the engine, where payloads go, and
// whether requests are announced, and responses may come in parts.
#include "kernel_calls.hpp"

namespace {

using namespace accel;
using tests::require;

class owner_rig : public tests::kernel_calls<owner_rig, device::detail::max_calls_at_hand + 2> {
  public:
    owner_rig(tests::input_reader& input, device::detail::engine by, bool apart, bool plain, bool parts)
        : kernel_calls(input, by, apart, parts) {
        for (std::uint32_t i = 0; i < slots; ++i) calls_[i].next = i + 1 < slots ? i + 1 : device::detail::no_call;
        channel_.plain_requests = plain ? 1 : 0;
        prepare();
        require(device::own(channel_, mine_) == status::ok, "it has an owner");
    }

    void run() {
        for (int step = 0; step < 150 && !input_.empty(); ++step) {
            take(input_.byte() % (takes_parts_ ? 20U : 17U));
            sends_.work(completions_, [&](const tests::posted_request& found) { check_posted(found); });
            check();
        }
        end();
    }

    // What kernel_calls asks for.
    device::owned_channel& mine() { return mine_; }
    [[nodiscard]] bool refuses() const { return mine_.state.failure != 0; }
    [[nodiscard]] bool failed() const { return refuses() && mine_.state.failure != device::detail::going_away; }
    [[nodiscard]] std::uint32_t quarantined() const { return mine_.state.counters.quarantined; }
    [[nodiscard]] device::detail::call_phase phase_of(std::uint32_t slot) const { return calls_[slot].phase; }
    [[nodiscard]] std::uint32_t generation_of(std::uint32_t slot) const { return calls_[slot].generation; }
    [[nodiscard]] std::uint32_t next_free(std::uint32_t slot) const { return calls_[slot].next; }
    static bool may_be_refused(const device::call_options& /*with*/) { return true; }
    void answer() {
        const std::uint8_t choice = input_.byte();
        const std::uint32_t slot = choice % slots;
        wire::slot_header header;
        header.kind = wire::message_kind::response;
        header.slot = slot;
        header.generation = header_generation(choice, slot);
        header.length = input_.byte() % (response_bytes + 2);
        if (takes_parts_) header.parts_before = parts_[slot].call.next;
        if (choice >= 128) header.code = static_cast<status>(choice % (status_count + 1));
        if (choice >= 250) header.slot ^= 1U;
        header.arrival_word = choice % 16 == 15 ? header.generation + 1 : header.generation;
        std::memcpy(response_header(slot), &header, sizeof header);
    }
    static void announce_room(std::uint32_t /*slot*/) {}
    static void announce_anything() {}
    void tell(const mlx5::completion& told, bool /*of_receive*/) {
        if (completions_.room() > 1) completions_.tell(told);
    }

  private:
    void prepare() {
        channel_.sends = sends_.port();
        kept_.completions = completions_.port(kept_.completions_state, nobody_).direct;
        kept_.proxied = channel_.sends.proxied;
        device::detail::completion_port port;
        port.direct = kept_.completions;
        device::detail::prepare_sends(channel_.sends, port, kept_.state);
        kept_.state.first_free = 0;
        for (std::uint32_t i = 0; i < slots; ++i) device::detail::prepare_call(channel_, i, prepared_[i]);
        channel_.exclusive = {&kept_, calls_.data(), prepared_.data(), slots, by_, mlx5::queue_place::host};
        sends_.answers = device::detail::way_of_requests(channel_);
    }
    void take(unsigned what) {
        if (what < 16) return act(what);
        if (what == 16) return pass_on();
        return what == 17 ? release_part() : answer_room();
    }
    /// All that the next owner needs is in the channel.
    void pass_on() {
        device::owned_channel next;
        require(device::own(channel_, next) == status::ok, "it has a next owner");
        require(std::memcmp(&next.state.counters, &mine_.state.counters, sizeof mine_.state.counters) == 0 &&
                    next.state.posted == mine_.state.posted && next.state.released == mine_.state.released &&
                    next.state.first_free == mine_.state.first_free && next.state.failure == mine_.state.failure,
                "which finds what the last one left");
        mine_ = next;
    }
    [[nodiscard]] std::uint32_t header_generation(std::uint8_t choice, std::uint32_t slot) const {
        const std::uint32_t last = calls_[slot].generation;
        return choice >= 224 ? last - 1 : choice >= 216 ? last + 1 : last;
    }

    void check_posted(const tests::posted_request& found) {
        check_source(found);
        if (found.remote_key == 4000) return check_payload(found);
        if (found.from.length == sizeof(wire::trace_extension)) {
            require(found.operation == mlx5::opcode::write && found.remote_key == 3000 &&
                        (found.remote_address + found.from.length - peer_base) % stride == 0,
                    "extensions go in front of a header");
            return;
        }
        const auto kind = channel_.plain_requests != 0 ? mlx5::opcode::write : mlx5::opcode::write_immediate;
        require(found.operation == kind && found.immediate < slots, "a request is told of by its slot, or not at all");
        require(found.remote_key == 3000 && found.remote_address == peer_base + stride * found.immediate,
                "its header goes into the server's slot");
        const wire::slot_header header = check_header(found);
        require(channel_.plain_requests == 0 || header.arrival_word == header.generation, "and says that it is there");
    }
    void check() {
        check_slots(kept_.state.first_free);
        const auto& counters = mine_.state.counters;
        check_counts(counters.submitted, counters.completed, counters.ended_early);
    }
    void end() {
        if (input_.byte() % 2 == 0) {
            mlx5::store_whole(&orders_.ended, closed);
            clock_.pass(std::chrono::milliseconds{1});
            device::detail::look_elsewhere(mine_, device::clock_ns());
            require(failed(), "it hears of its end");
        }
        // What looks like a response that is on its way is looked at again, but not for ever.
        end_calls(device::detail::max_torn);
        check();
    }

    std::vector<device::detail::owned_call> calls_ = std::vector<device::detail::owned_call>(slots);
    std::vector<device::detail::prepared_call> prepared_ = std::vector<device::detail::prepared_call>(slots);
    device::detail::exclusive_channel kept_;
    proxy::completion_queue_state nobody_;
    device::owned_channel mine_;
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    tests::input_reader input(data, size);
    const std::uint8_t first = input.byte();
    const auto by = first % 2 == 0 ? device::detail::engine::direct : device::detail::engine::proxy;
    owner_rig(input, by, first % 4 >= 2, first % 8 >= 4, first % 16 >= 8).run();
    return 0;
}
