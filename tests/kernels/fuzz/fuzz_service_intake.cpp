// SPDX-License-Identifier: Apache-2.0
// A service as its kernels run it, over queues in the fuzzer's hands: clients that write any header and
// announce any slot, completions of any kind, sessions that come and go. Byte 0: the engine.
#include "fake_client.hpp"
#include "fake_clock.hpp"
#include "fake_queues.hpp"
#include "fuzz_target.hpp"
#include "kernels/service/number_table.hpp"

#include <accel_transport/device/service.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

namespace {

using namespace accel;
using device::detail::session_phase;
using tests::require;

constexpr std::uint32_t sessions = 3;
constexpr std::uint32_t slots = 2;
constexpr std::uint32_t max_opened = 12;

/// One place for a session, with a client that the input plays.
struct place {
    place(tests::input_reader& input, device::detail::engine by, std::uint32_t index, std::uint32_t name)
        : sends(by, name), client(input, index, requests) {}
    tests::fake_sends sends;
    std::vector<std::byte> requests = std::vector<std::byte>(slots * tests::fake_client::stride);
    tests::fake_client client;
    std::array<std::uint32_t, slots> generations{};
    std::array<std::uint32_t, slots> busy{};
    std::array<device::detail::part_slot, slots> parts{};
    bool open = false;  ///< the host's word: its client is connected
    bool ended = true;  ///< the service has released it
    std::uint32_t closing_number = 0;
};

class service_rig {
  public:
    service_rig(tests::input_reader& input, device::detail::engine by)
        : input_(input), by_(by), completions_(by), numbers_(table_) {
        state_.receives = receives_.located();
        for (std::uint32_t i = 0; i < sessions; ++i) {
            const std::uint32_t name = by == device::detail::engine::direct ? 0x4fe + i : i;
            places_.push_back(std::make_unique<place>(input, by, i, name));
            device::detail::session_entry& entry = entries_[i];
            entry.sends = places_[i]->sends.port();
            entry.generations = places_[i]->generations.data();
            entry.busy = places_[i]->busy.data();
            entry.parts = places_[i]->parts.data();
            if (by == device::detail::engine::direct) numbers_.put(name, i);
        }
        service_.state = &state_;
        service_.sessions = entries_.data();
        service_.session_count = sessions;
        service_.numbers = table_.data();
        service_.numbers_mask = static_cast<std::uint32_t>(table_.size() - 1);
        service_.ready = ready_.data();
        service_.ready_mask = static_cast<std::uint32_t>(ready_.size() - 1);
        service_.completions = completions_.port(state_.completions, state_.proxied_completions);
        service_.orders = &orders_;
        service_.commands = commands_.data();
        service_.command_mask = static_cast<std::uint32_t>(commands_.size() - 1);
        service_.offers = offers_.data();
        service_.report = &report_;
        service_.session_reports = reports_.data();
    }

    void run() {
        for (int step = 0; step < 150 && !input_.empty(); ++step) {
            act(input_.byte() % 16);
            work();
            check();
        }
        end();
    }

  private:
    void act(unsigned what) {
        switch (what) {
            case 0:
            case 1:
                return open(pick());
            case 2:
                return close(pick());
            case 3:
            case 4:
            case 5:
                return ask(pick());
            case 6:
                if (place& of = *places_[pick()]; of.open) of.client.write_anything();
                return;
            case 7:
                return announce_anything();
            case 8:
                return complete_anything();
            case 9:
            case 10:
            case 11:
                return take();
            case 12:
            case 13:
                if (!held_.empty()) answer(input_.byte());
                return;
            case 14:
                clock_.pass(std::chrono::microseconds{input_.byte() * 100});
                return;
            default:
                orders_.clock_ns = device::clock_ns() + 5'000 + input_.byte();
                mlx5::store_flag(&orders_.clock_tick, orders_.clock_tick + 1);
                return;
        }
    }
    std::uint32_t pick() { return input_.byte() % sessions; }

    // The host.
    void command(device::detail::command_kind kind, std::uint32_t index) {
        device::detail::command& next = commands_[commands_given_++ & (commands_.size() - 1)];
        next.kind = kind;
        next.session = index;
        mlx5::store_flag(&next.number, commands_given_);
    }
    void open(std::uint32_t index) {
        place& of = *places_[index];
        if (of.open || !of.ended || opened_ == max_opened) return;
        ++opened_;
        of.sends.restart();
        of.open = true;
        of.ended = false;
        offers_[index] = of.client.connect();
        of.sends.answers = device::detail::answer_way_of(offers_[index]);
        reports_[index] = {};
        command(device::detail::command_kind::open, index);
    }
    void close(std::uint32_t index) {
        place& of = *places_[index];
        if (!of.open) return;
        of.open = false;
        command(device::detail::command_kind::close, index);
        of.closing_number = commands_given_;
    }

    // Clients.
    void ask(std::uint32_t index) {
        std::uint32_t slot = 0;
        if (places_[index]->open && places_[index]->client.ask(slot))
            announce(index, mlx5::entry_kind::write_immediate, slot);
    }
    void announce_anything() {
        const std::uint32_t index = pick();
        if (!places_[index]->open) return;
        places_[index]->client.hostile = true;
        const std::uint8_t choice = input_.byte();
        constexpr std::array kinds{mlx5::entry_kind::write_immediate, mlx5::entry_kind::receive,
                                   mlx5::entry_kind::receive_immediate, mlx5::entry_kind::receive_invalidate};
        announce(index, kinds[choice % 4], choice < 200 ? choice / 4 % slots : 0xffff'ff00U + choice);
    }
    /// A message as the adapter tells of it. There has to be room, and a receive.
    void announce(std::uint32_t index, mlx5::entry_kind kind, std::uint32_t immediate) {
        mlx5::completion told;
        told.kind = kind;
        told.queue_pair = device::detail::name_of(entries_[index].sends);
        told.immediate = mlx5::to_be32(immediate);
        tell(told, true);
    }
    /// Failures, completions of sends with any number, and what names no session.
    void complete_anything() {
        const std::uint32_t index = pick();
        const std::uint8_t choice = input_.byte();
        if (choice >= 128) {
            mlx5::completion stray;
            stray.queue_pair = choice < 200 ? mlx5::no_queue_pair : std::uint32_t{choice} << 8;
            stray.kind = mlx5::entry_kind::write_immediate;
            return tell(stray, true);
        }
        if (!places_[index]->open) return;
        places_[index]->client.hostile = true;
        mlx5::completion told;
        told.queue_pair = device::detail::name_of(entries_[index].sends);
        told.counter = choice;
        told.kind = choice % 3 == 0   ? mlx5::entry_kind::request
                    : choice % 3 == 1 ? mlx5::entry_kind::request_error
                                      : mlx5::entry_kind::receive_error;
        if (choice % 3 != 0) told.failure = mlx5::syndrome::remote_access;
        tell(told, choice % 3 == 2);
    }
    void tell(mlx5::completion told, bool receive) {
        constexpr std::uint32_t kept_for_sends = sessions;
        if (completions_.room() <= kept_for_sends) {
            forget(told);
            return;
        }
        if (receive && by_ == device::detail::engine::direct) {
            if (receives_.left() == 0) return forget(told);
            told.counter = receives_.use();
        }
        completions_.tell(told);
    }
    /// A message that could not be told of: its client waits in vain.
    void forget(const mlx5::completion& lost) {
        for (std::uint32_t i = 0; i < sessions; ++i)
            if (device::detail::name_of(entries_[i].sends) == lost.queue_pair) places_[i]->client.hostile = true;
    }

    // Kernels.
    void take() {
        device::exchange_ref got;
        const status found = device::take(service_, got);
        require(found == status::ok || found == status::again, "the service goes on");
        if (found != status::ok) return;
        require(got.session < sessions && got.slot < slots, "session and slot exist");
        const place& of = *places_[got.session];
        require(!of.ended, "its session is there");
        require(of.busy[got.slot] == 1, "its slot is taken");
        for (const device::exchange_ref& each : held_)
            require(each.session != got.session || each.slot != got.slot, "nobody else has it");
        places_[got.session]->client.check_handed_over(got);
        held_.push_back(got);
    }
    void answer(std::uint8_t choice) {
        const std::size_t at = choice % held_.size();
        const device::exchange_ref one = held_[at];
        held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(at));
        const bool good = !places_[one.session]->client.hostile && places_[one.session]->open;
        status sent = status::ok;
        if (choice % 5 == 0) {
            sent = device::fail(service_, one, static_cast<status>(choice), choice);
        } else {
            require(device::reply(service_, one, one.response_room + 1) == status::message_too_large,
                    "an answer has to fit");
            sent = device::reply(service_, one, choice % (one.response_room + 1));
        }
        require(sent == status::ok || (!good && sent == status::peer_lost), "an answer to a correct client leaves");
    }

    // The adapter.
    void work() {
        for (std::uint32_t i = 0; i < sessions; ++i) {
            place& of = *places_[i];
            if (!of.open) continue;
            of.sends.work(completions_, [&](const tests::posted_request& found) { check_posted(i, found); });
        }
    }
    void check_posted(std::uint32_t index, const tests::posted_request& found) {
        require(found.queue_pair == device::detail::name_of(entries_[index].sends), "it names its queue pair");
        places_[index]->client.check_posted(found);
    }

    void check() {
        for (std::uint32_t i = 0; i < sessions; ++i) {
            place& of = *places_[i];
            const bool taken = state_.commands_taken == commands_given_;
            const auto phase = static_cast<session_phase>(entries_[i].phase);
            if (of.open && taken && !of.client.hostile) {
                require(phase == session_phase::open && reports_[i].failure == 0,
                        "the session of a correct client stays open");
            }
            std::uint32_t held = 0;
            for (const device::exchange_ref& each : held_) held += each.session == i ? 1 : 0;
            require(entries_[i].open >= held, "what is held is counted");
            if (!of.open && !of.ended) of.ended = reports_[i].closed == of.closing_number;
            require(!of.ended || held == 0, "a session ends when nothing of it is held");
        }
    }
    void end() {
        while (!held_.empty()) answer(0);
        for (std::uint32_t i = 0; i < sessions; ++i) close(i);
        for (int i = 0; i < 200 && !all_ended(); ++i) {
            take();
            while (!held_.empty()) answer(0);
            check();
        }
        require(all_ended(), "every session ends");
        for (const device::detail::session_entry& each : entries_) require(each.open == 0, "nothing is left");
        require(state_.closing == 0 && state_.ready_head == state_.ready_tail, "nor does anything wait");
        orders_.stop = 1;
        device::exchange_ref none;
        status found = status::again;
        for (int i = 0; i < 200 && found == status::again; ++i) found = device::take(service_, none);
        require(found == status::closed, "it stops when it is told to");
        require(report_.replies == state_.replies && report_.dropped == state_.dropped, "and has reported");
    }
    [[nodiscard]] bool all_ended() const {
        return std::all_of(places_.begin(), places_.end(), [](const auto& each) { return each->ended; });
    }

    tests::fake_clock clock_;
    tests::input_reader& input_;
    device::detail::engine by_;
    tests::fake_completions completions_;
    tests::fake_receives receives_;
    std::vector<std::unique_ptr<place>> places_;
    std::vector<device::detail::session_number> table_ =
        std::vector<device::detail::session_number>(gpu::number_table::size_for(sessions));
    gpu::number_table numbers_;
    device::detail::service_state state_;
    std::vector<device::detail::session_entry> entries_ = std::vector<device::detail::session_entry>(sessions);
    std::vector<device::detail::ready_entry> ready_ = std::vector<device::detail::ready_entry>(8);
    device::detail::orders_layout orders_;
    std::vector<device::detail::command> commands_ = std::vector<device::detail::command>(16);
    std::vector<device::detail::session_offer> offers_ = std::vector<device::detail::session_offer>(sessions);
    device::detail::report_layout report_;
    std::vector<device::detail::session_report> reports_ = std::vector<device::detail::session_report>(sessions);
    device::service_ref service_;
    std::vector<device::exchange_ref> held_;
    std::uint32_t commands_given_ = 0;
    std::uint32_t opened_ = 0;
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    tests::input_reader input(data, size);
    const auto by = input.byte() % 2 == 0 ? device::detail::engine::direct : device::detail::engine::proxy;
    service_rig(input, by).run();
    return 0;
}
