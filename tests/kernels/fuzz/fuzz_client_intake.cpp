// SPDX-License-Identifier: Apache-2.0
// A channel as kernels use it, over queues in the fuzzer's hands: a server that writes any header and answers
// any slot, completions of any kind, and the host's orders. Byte 0: the engine, where payloads go, and whether
// responses may come in parts.
#include "kernel_calls.hpp"

namespace {

using namespace accel;
using tests::require;

class client_rig : public tests::kernel_calls<client_rig, 3> {
  public:
    client_rig(tests::input_reader& input, device::detail::engine by, bool apart, bool parts)
        : kernel_calls(input, by, apart, parts) {
        state_.receives = receives_.located();
        for (std::uint32_t i = 0; i < slots; ++i) calls_[i].next = i + 1 < slots ? i + 1 : device::detail::no_call;
        channel_.state = &state_;
        channel_.calls = calls_.data();
        channel_.slots = slots;
        channel_.sends = sends_.port();
        channel_.completions = completions_.port(state_.completions, state_.proxied_completions);
        device::detail::begin(channel_.sends);
    }

    void run() {
        for (int step = 0; step < 150 && !input_.empty(); ++step) {
            take(input_.byte() % (takes_parts_ ? 19U : 16U));
            sends_.work(completions_, [&](const tests::posted_request& found) { check_posted(found); });
            check();
        }
        end();
    }

    // What kernel_calls asks for.
    const device::channel_ref& mine() { return channel_; }
    [[nodiscard]] bool refuses() const { return state_.failure != 0; }
    [[nodiscard]] bool failed() const { return refuses() && state_.failure != device::detail::going_away; }
    [[nodiscard]] std::uint32_t quarantined() const { return state_.quarantined; }
    [[nodiscard]] device::detail::call_phase phase_of(std::uint32_t slot) const {
        return device::detail::phase_in(calls_[slot].word);
    }
    [[nodiscard]] std::uint32_t generation_of(std::uint32_t slot) const {
        return device::detail::generation_in(calls_[slot].word);
    }
    [[nodiscard]] std::uint32_t next_free(std::uint32_t slot) const { return calls_[slot].next; }
    static bool may_be_refused(const device::call_options& with) { return with.parts != 0; }
    void answer() {
        const std::uint8_t choice = input_.byte();
        const std::uint32_t slot = choice % slots;
        wire::slot_header header;
        header.kind = wire::message_kind::response;
        header.slot = slot;
        header.generation = generation_of(slot);
        header.length = input_.byte() % (response_bytes + 2);
        if (takes_parts_) header.parts_before = parts_[slot].call.next;
        if (choice >= 128) header.code = static_cast<status>(choice % (status_count + 1));
        if (choice >= 224) --header.generation;
        if (choice >= 250) header.slot ^= 1U;
        std::memcpy(response_header(slot), &header, sizeof header);
        announce(mlx5::entry_kind::write_immediate, slot);
    }
    void announce_room(std::uint32_t slot) { announce(mlx5::entry_kind::write_immediate, slot); }
    void announce_anything() {
        const std::uint8_t choice = input_.byte();
        if (choice < 64) return;
        constexpr std::array kinds{mlx5::entry_kind::write_immediate, mlx5::entry_kind::receive,
                                   mlx5::entry_kind::receive_immediate, mlx5::entry_kind::receive_invalidate};
        announce(choice < 224 ? kinds[0] : kinds[choice % 4], choice < 250 ? choice % slots : 0xffff'ff00U + choice);
    }
    /// There has to be room, and a receive.
    void tell(mlx5::completion told, bool receive) {
        if (completions_.room() <= 1) return;
        if (receive && by_ == device::detail::engine::direct) {
            if (receives_.left() == 0) return;
            told.counter = receives_.use();
        }
        completions_.tell(told);
    }

  private:
    void take(unsigned what) {
        if (what < 16) return act(what);
        return what == 16 ? release_part() : answer_room();
    }
    void announce(mlx5::entry_kind kind, std::uint32_t immediate) {
        mlx5::completion told;
        told.kind = kind;
        told.queue_pair = name;
        told.immediate = mlx5::to_be32(immediate);
        tell(told, true);
    }

    void check_posted(const tests::posted_request& found) {
        check_source(found);
        if (found.operation == mlx5::opcode::write) return check_payload(found);
        require(found.operation == mlx5::opcode::write_immediate && found.immediate < slots,
                "a request is told of by its slot");
        const wire::slot_header header = check_header(found);
        require(found.remote_key == 3000 &&
                    found.remote_address == peer_base + stride * found.immediate - header.extension_bytes,
                "its header goes into the server's slot");
    }
    void check() {
        check_slots(static_cast<std::uint32_t>(state_.free));
        check_counts(state_.submitted, state_.completed, state_.ended_early);
    }
    void end() {
        if (input_.byte() % 2 == 0) {
            mlx5::store_whole(&orders_.ended, closed);
            for (int i = 0; i < 100 && !failed(); ++i) device::detail::look(channel_);
            require(failed(), "it hears of its end");
        }
        end_calls(slots);  // parts that have come are handed out first
        check();
    }

    tests::fake_receives receives_;
    std::vector<device::detail::call_entry> calls_ = std::vector<device::detail::call_entry>(slots);
    device::detail::channel_state state_;
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    tests::input_reader input(data, size);
    const std::uint8_t first = input.byte();
    const auto by = first % 2 == 0 ? device::detail::engine::direct : device::detail::engine::proxy;
    client_rig(input, by, first % 4 >= 2, first % 16 >= 8).run();
    return 0;
}
