// SPDX-License-Identifier: Apache-2.0
// Random sequences of calls of kernels, at servers of all kinds, against a model: which slots are in use, what each
// call must end with, and what the server hears of it. Threads of the host are in the kernels' place.
#include "device/client_rig.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <random>
#include <set>
#include <type_traits>
#include <vector>

namespace accel::tests {
namespace {

constexpr std::uint64_t capacity = 4096;

/// A call, from `begin` to its release.
struct modelled_call {
    device::call_ref is;
    wished what;
    std::vector<std::byte> request;
    std::uint64_t room = capacity;  ///< of the response
    std::uint32_t parts = 0;        ///< that may be unread
    std::uint64_t came = 0;         ///< of its parts
    bool submitted = false;
    bool hasty = false;  ///< its deadline comes before its answer
    bool ended = false;
    [[nodiscard]] bool in_flight() const { return submitted && !ended; }
};
struct modelled_part {
    device::arrival_ref is;
    wished of;
    std::uint64_t number = 0;
};

/// `Channel`: a `channel_ref`, or an `owned_channel`.
template <class Channel>
class call_sequence {
  public:
    call_sequence(client_rig& rig, Channel& channel, unsigned seed)
        : rig_(rig), channel_(channel), slots_(rig.wanted.slots), random_(seed), last_(std::uint64_t{seed} << 20) {}

    void step() {
        switch (roll(12)) {
            case 0:
                return begin();
            case 1:
            case 2:
            case 3:
                if (calls_.empty() || roll(2) == 0) begin();
                return with_any([](const auto& each) { return !each.submitted; }, [this](auto& one) { submit(one); });
            case 4:
            case 5:
            case 6:
                return with_any(&modelled_call::in_flight, [this](auto& one) { look(one); });
            case 7:
                return answer();
            case 8:
                return with_any(&modelled_call::in_flight, [this](auto& one) { cancel(one); });
            case 9:
                if (!parts_.empty()) return release_part(roll(parts_.size()));
                [[fallthrough]];
            case 10:
                return with_any([](const auto& each) { return each.ended || !each.submitted; },
                                [this](auto& one) { release(one); });
            default:
                return misuse();
        }
    }
    /// Every call ends, all slots are free, and the server works on nothing.
    void settle() {
        EXPECT_TRUE(eventually([this] {
            for (modelled_call& each : calls_) bring_to_its_end(each);
            for (std::size_t i = calls_.size(); i-- > 0;)
                if (calls_[i].ended || !calls_[i].submitted) release(calls_[i]);
            while (!parts_.empty()) release_part(0);
            for (const std::uint64_t number : quarantined_) rig_.work.let_answer(number);
            return calls_.empty();
        })) << calls_.size()
            << " calls do not end";
        expect_all_slots();
        EXPECT_TRUE(rig_.holds(0)) << rig_.work.at_work_on() << "the server does not hear that they ended";
        quarantined_.clear();
        uncertain_ = false;
    }
    void expect_counted(const gpu_channel_statistics& seen) const {
        EXPECT_EQ(seen.submitted, submitted_);
        EXPECT_EQ(seen.completed + seen.ended_early, submitted_);
        EXPECT_GE(seen.ended_early, cancelled_);
        EXPECT_LE(seen.stale, seen.ended_early);
        EXPECT_GE(seen.stale, late_answers_);
        EXPECT_EQ(seen.quarantined, 0U);
    }

  private:
    [[nodiscard]] std::size_t roll(std::size_t below) { return random_() % below; }
    template <class Condition, class Action>
    void with_any(const Condition& condition, const Action& action) {
        std::vector<std::size_t> fit;
        for (std::size_t i = 0; i < calls_.size(); ++i)
            if (std::invoke(condition, calls_[i])) fit.push_back(i);
        if (!fit.empty()) action(calls_[fit[roll(fit.size())]]);
    }
    /// Slots that are certainly in use. There may be more while `uncertain_`.
    [[nodiscard]] std::size_t used() const { return calls_.size() + parts_.size() + quarantined_.size(); }

    void begin() {
        device::call_ref made;
        const status begun = device::begin(channel_, made);
        if (begun != status::ok) {
            EXPECT_EQ(begun, status::again);
            EXPECT_TRUE(uncertain_ || used() == slots_) << used() << " slots are in use";
            return;
        }
        EXPECT_LT(used(), slots_);
        EXPECT_EQ(made.request_room, capacity);
        for (const modelled_call& each : calls_) EXPECT_NE(each.is.slot, made.slot);
        for (const modelled_part& each : parts_) EXPECT_NE(each.is.slot, made.slot);
        calls_.emplace_back().is = made;
    }

    // Submitting.

    void submit(modelled_call& one) {
        device::call_options with;
        plan(one, with);
        const trace_context trace = trace_of(one.what.number);
        if (one.what.is == wished::known) with.trace = &trace;
        std::copy(one.request.begin(), one.request.end(), one.is.request);
        const status sent = device::submit(channel_, one.is, one.request.size(), with);
        if (sent == status::again) {
            EXPECT_GT(one.parts, 0U);
            EXPECT_TRUE(uncertain_ || slots_ - used() < one.parts) << "there are slots for its parts";
            return;
        }
        EXPECT_EQ(sent, status::ok);
        EXPECT_LE(used() + one.parts, slots_);
        one.submitted = true;
        ++submitted_;
        uncertain_ = uncertain_ || one.parts > 0;
    }
    void plan(modelled_call& one, device::call_options& with) {
        constexpr std::array kinds{wish::answer, wish::answer, wish::hold, wish::outlast, wish::stream, wish::stream};
        one.what = {};
        one.what.number = ++last_;
        one.what.what = kinds[roll(kinds.size())];
        one.what.code = roll(5) == 0 ? static_cast<std::uint32_t>(1 + roll(1000)) : 0;
        if (one.what.what == wish::stream && slots_ == 1) one.what.what = wish::answer;
        one.parts = one.what.what == wish::stream || (slots_ > 1 && roll(6) == 0)
                        ? static_cast<std::uint32_t>(1 + roll(slots_ - 1))
                        : 0;
        one.what.parts = roll(4) == 0 ? 40 : roll(6);
        one.what.bytes = roll(2) == 0 ? roll(100) : capacity - 49;
        one.what.stalls_after = roll(4) == 0 ? 1 : 0;
        one.room = roll(4) == 0 ? 1 + roll(200) : capacity;
        one.hasty = one.what.what == wish::hold && one.parts == 0 && roll(3) == 0;
        if (one.hasty) {
            with.timeout_ns = roll(2) == 0 ? 1 : 20'000'000;  // before and after the server has it
            rig_.work.give_up(one.what.number);
        }
        if (one.what.what == wish::answer && roll(3) == 0)
            one.what.target = target_of(roll(2) == 0 ? "named" : "other").number;
        with.target = one.what.target;
        with.parts = one.parts;
        with.max_bytes = one.room == capacity ? 0 : one.room;
        with.trace_id = one.what.number;
        write_request(one);
    }
    void write_request(modelled_call& one) {
        constexpr std::array<std::size_t, 8> sizes{0, 1, 7, sizeof(wished) - 1, 64, 65, 1000, capacity};
        const std::size_t size = sizes[roll(sizes.size())];
        const bool plain = one.what.what == wish::answer && one.what.code == 0;
        one.request.resize(plain ? size : std::max(size, sizeof one.what));
        fill(one.request, one.what.number);
        if (one.request.size() >= sizeof one.what && (!plain || roll(2) == 0))
            std::memcpy(one.request.data(), &one.what, sizeof one.what);
        else
            one.what.is = 0;
    }

    // Arrivals and ends.

    void look(modelled_call& one) {
        device::arrival_ref out;
        if (one.parts == 0 && roll(2) == 0) {
            const status found = device::wait(channel_, one.is, 20'000);
            if (found != status::again) end(one, found);
            return;
        }
        const status found = device::wait(channel_, one.is, out, 20'000);
        if (found == status::ok && out.more) return take_part(one, out);
        EXPECT_FALSE(out.more);
        if (found != status::again) end(one, found);
    }
    void take_part(modelled_call& one, const device::arrival_ref& part) {
        EXPECT_LT(one.came, one.what.stalls_after != 0 ? one.what.stalls_after : one.what.parts);
        EXPECT_EQ(one.what.what, wish::stream);
        parts_.push_back({part, one.what, one.came++});
        expect_bytes(parts_.back());
    }
    static void expect_bytes(const modelled_part& part) {
        EXPECT_EQ(part.is.response_bytes, part.of.bytes_of(part.number));
        EXPECT_TRUE(matches({part.is.response, part.is.response_bytes}, part.of.seed_of(part.number))) << part.number;
    }
    [[nodiscard]] bool ends_by_itself(const modelled_call& one) const {
        if (one.what.what == wish::hold) return one.hasty || rig_.work.may_answer(one.what.number);
        return one.what.what != wish::outlast && !stalls(one);
    }
    [[nodiscard]] static bool stalls(const modelled_call& one) {
        return one.what.what == wish::stream && one.what.stalls_after != 0 && one.what.stalls_after < one.what.parts;
    }
    void end(modelled_call& one, status found) {
        one.ended = true;
        EXPECT_EQ(one.is.outcome, found);
        EXPECT_EQ(one.is.trace_id, one.what.number);
        EXPECT_TRUE(ends_by_itself(one)) << "wish " << static_cast<int>(one.what.what) << ": " << to_string(found);
        if (one.hasty) {
            EXPECT_EQ(found, status::timed_out);
        } else if (one.what.target == target_of("other").number) {
            EXPECT_EQ(found, status::not_found);
        } else if (one.what.code != 0) {
            EXPECT_EQ(found, status::application_error);
            EXPECT_EQ(one.is.code, one.what.code);
        } else {
            EXPECT_EQ(found, status::ok) << to_string(found);
        }
        if (one.what.what == wish::stream) {
            EXPECT_EQ(one.came, one.what.parts);
        }
        expect_response(one);
    }
    /// As long as the call is not released.
    void expect_response(const modelled_call& one) const {
        const std::span<const std::byte> response{one.is.response, one.is.response_bytes};
        const bool echoes = one.is.outcome == status::ok && one.what.what != wish::stream;
        const bool has_text = one.is.outcome == status::application_error && rig_.handler;
        const std::string text = has_text ? std::string(failure_text).substr(0, one.room) : "";
        if (echoes) {
            EXPECT_TRUE(std::ranges::equal(
                response, std::span(one.request).first(std::min<std::size_t>(one.request.size(), one.room))));
        } else if (one.is.outcome != status::not_found) {
            EXPECT_TRUE(std::ranges::equal(response, std::as_bytes(std::span(text)))) << response.size();
        }
    }
    void cancel(modelled_call& one) {
        const bool certain = !ends_by_itself(one) && one.what.what != wish::stream;
        rig_.work.give_up(one.what.number);
        const status said = device::cancel(channel_, one.is);
        if (said != status::ok) {
            EXPECT_EQ(said, status::invalid_state);
            EXPECT_FALSE(certain);
            return;
        }
        one.ended = true;
        ++cancelled_;
        EXPECT_EQ(device::poll(channel_, one.is), status::cancelled);
        EXPECT_EQ(one.is.response_bytes, 0U);
    }
    void answer() {
        std::vector<std::uint64_t> held;
        for (const modelled_call& each : calls_)
            if (each.in_flight() && each.what.what == wish::hold && !each.hasty) held.push_back(each.what.number);
        for (const std::uint64_t number : quarantined_) held.push_back(number);
        if (held.empty()) return;
        const std::uint64_t number = held[roll(held.size())];
        rig_.work.let_answer(number);
        uncertain_ = quarantined_.erase(number) > 0 || uncertain_;
    }
    void bring_to_its_end(modelled_call& one) {
        if (!one.in_flight()) return;
        if (one.what.what == wish::hold && !one.hasty) rig_.work.let_answer(one.what.number);
        if (one.what.what == wish::outlast || stalls(one)) return cancel(one);
        look(one);
    }

    // Releasing.

    void release(modelled_call& one) {
        if (one.submitted) expect_response(one);
        const bool early = one.is.outcome == status::cancelled || one.is.outcome == status::timed_out;
        if (early && one.submitted) {
            const bool held = one.what.what == wish::hold && !one.hasty && rig_.work.has_taken(one.what.number) &&
                              !rig_.work.may_answer(one.what.number);
            late_answers_ += held && one.parts == 0 ? 1 : 0;
            if (held)
                quarantined_.insert(one.what.number);
            else
                rig_.work.let_answer(one.what.number);
            uncertain_ = uncertain_ || !held || one.parts != 0;
        }
        EXPECT_EQ(device::release(channel_, one.is), status::ok);
        old_.push_back(one.is);
        if (old_.size() > 8) old_.pop_front();
        calls_.erase(calls_.begin() + (&one - calls_.data()));
    }
    void release_part(std::size_t which) {
        expect_bytes(parts_[which]);
        EXPECT_EQ(device::release(channel_, parts_[which].is), status::ok);
        EXPECT_EQ(device::release(channel_, parts_[which].is), status::invalid_state) << "only once";
        parts_.erase(parts_.begin() + static_cast<std::ptrdiff_t>(which));
        uncertain_ = true;  // it may be lent again
    }
    void expect_all_slots() {
        std::vector<device::call_ref> all(slots_);
        std::size_t begun = 0;
        EXPECT_TRUE(eventually([&] {
            while (begun < all.size() && device::begin(channel_, all[begun]) == status::ok) ++begun;
            return begun == all.size();
        })) << begun;
        device::call_ref none;
        EXPECT_EQ(device::begin(channel_, none), status::again);
        for (std::size_t i = 0; i < begun; ++i) EXPECT_EQ(device::release(channel_, all[i]), status::ok);
    }

    // What no kernel should do, and what may happen between two calls.

    void misuse() {
        if (!old_.empty()) expect_stale(old_[roll(old_.size())]);
        with_any([](const auto&) { return true; },
                 [this](modelled_call& one) {
                     if (!one.submitted)
                         misuse_begun(one.is);
                     else if (!one.ended)
                         misuse_in_flight(one);
                     else
                         expect_end_to_stay(one);
                 });
        if constexpr (!std::is_const_v<Channel>) {
            EXPECT_EQ(device::own(rig_.channel->ref(), channel_), status::ok);
        }
    }
    void expect_stale(device::call_ref old) {
        for (const std::uint32_t slot : {old.slot, 1'000'000U}) {
            old.slot = slot;
            EXPECT_EQ(device::submit(channel_, old, 10), status::invalid_state);
            EXPECT_EQ(device::submit(channel_, old, 10, {.parts = 1}), status::invalid_state);
            EXPECT_EQ(device::poll(channel_, old), status::invalid_state);
            EXPECT_EQ(device::cancel(channel_, old), status::invalid_state);
            EXPECT_EQ(device::release(channel_, old), status::invalid_state);
        }
    }
    void misuse_begun(device::call_ref& call) {
        EXPECT_EQ(device::poll(channel_, call), status::invalid_state);
        EXPECT_EQ(device::cancel(channel_, call), status::invalid_state);
        for (const std::uint32_t parts : {0U, 1U}) {
            if (parts == slots_) continue;
            EXPECT_EQ(device::submit(channel_, call, capacity + 1, {.parts = parts}), status::message_too_large);
            EXPECT_EQ(device::submit(channel_, call, 8, {.timeout_ns = -1, .parts = parts}), status::invalid_argument);
        }
        EXPECT_EQ(device::submit(channel_, call, 8, {.parts = slots_}), status::invalid_argument);
        if (slots_ == 1) return;
        EXPECT_EQ(device::submit(channel_, call, 8, {.parts = 1, .part_timeout_ns = -1}), status::invalid_argument);
    }
    void misuse_in_flight(modelled_call& one) {
        const device::call_ref before = one.is;
        EXPECT_EQ(device::submit(channel_, one.is, 1, {.timeout_ns = 1, .trace_id = 7, .max_bytes = 1, .target = 7}),
                  status::invalid_state);
        EXPECT_EQ(one.is.deadline, before.deadline) << "its terms stay";
        EXPECT_EQ(one.is.trace_id, before.trace_id);
        EXPECT_EQ(one.is.response_room, before.response_room);
        EXPECT_EQ(one.is.target, before.target);
        EXPECT_EQ(device::release(channel_, one.is), status::invalid_state) << "it goes on";
        if (one.parts == 0) return;
        EXPECT_EQ(device::poll(channel_, one.is), status::invalid_state) << "it would lose parts";
    }
    void expect_end_to_stay(modelled_call& one) {
        EXPECT_EQ(device::cancel(channel_, one.is), status::invalid_state);
        EXPECT_EQ(device::poll(channel_, one.is), one.is.outcome);
        device::arrival_ref again;
        EXPECT_EQ(device::poll(channel_, one.is, again), one.is.outcome);
        EXPECT_FALSE(again.more);
    }

    client_rig& rig_;
    Channel& channel_;
    const std::uint32_t slots_;
    std::mt19937 random_;
    std::uint64_t last_;  ///< number of a call
    std::vector<modelled_call> calls_;
    std::vector<modelled_part> parts_;
    std::set<std::uint64_t> quarantined_;  ///< released calls whose answers the server holds
    bool uncertain_ = false;               ///< slots may be free again at any time
    std::deque<device::call_ref> old_;
    std::uint64_t submitted_ = 0;
    std::uint64_t cancelled_ = 0;
    std::uint64_t late_answers_ = 0;
};

class call_sequences : public ::testing::TestWithParam<client_case> {
  protected:
    void SetUp() override {
        if (!has(GetParam().caller.engine)) GTEST_SKIP() << "this device has no queues to drive";
        rig_.listen();
    }
    template <class Channel>
    void run(Channel& channel, unsigned seed) {
        call_sequence<Channel> calls(rig_, channel, seed);
        for (int round = 0; round < 3; ++round) {
            for (int step = 0; step < effort(150) && !HasFailure(); ++step) {
                SCOPED_TRACE(::testing::Message() << "seed " << seed << ", round " << round << ", step " << step);
                calls.step();
            }
            SCOPED_TRACE(::testing::Message() << "seed " << seed << ", round " << round);
            calls.settle();
            EXPECT_EQ(rig_.work.first_wrong(), "");
            if (HasFailure()) return;
        }
        rig_.channel->close();
        calls.expect_counted(rig_.channel->statistics());
    }
    client_rig rig_{GetParam()};
};

TEST_P(call_sequences, calls_end_as_a_model_says_and_give_all_slots_back) {
    constexpr std::array<std::uint32_t, 5> slots{8, 1, device::detail::max_calls_at_hand + 4, 2, 5};
    for (unsigned seed = 0; seed < slots.size() && !HasFailure(); ++seed) {
        rig_.wanted.slots = slots[seed];
        rig_.wanted.call_timeout = patience(600s);  // no deadline helps a server that hears nothing
        const bool shared = GetParam().caller.sharing == service_sharing::shared;
        rig_.wanted.kernels.host_slots = shared && seed == 3;
        rig_.connect();
        if (HasFatalFailure()) return;
        EXPECT_EQ(rig_.channel->sharing(), GetParam().caller.sharing);
        EXPECT_EQ(rig_.channel->engine(), GetParam().caller.engine);
        EXPECT_NE(rig_.channel->engine_reason(), "");
        EXPECT_EQ(rig_.channel->memory(), rig_.wanted.memory);
        EXPECT_EQ(rig_.pages_pinned() > 0, GetParam().caller.on_gpu);
        EXPECT_EQ(rig_.channel->resolve("named").value().number, target_of("named").number);
        EXPECT_EQ(rig_.channel->resolve("other").code(), status::not_found);
        EXPECT_EQ(rig_.channel->resolve("two words").code(), status::invalid_argument);
        device::owned_channel mine;
        ASSERT_EQ(device::own(rig_.channel->ref(), mine), status::ok);
        if (shared && seed % 2 == 0)
            run(rig_.channel->ref(), seed);
        else
            run(mine, seed);  // of a shared channel any scope may be an owner: its calls go the shared way
        rig_.channel.reset();
        EXPECT_EQ(rig_.pages_pinned(), 0);
    }
}

INSTANTIATE_TEST_SUITE_P(
    ways, call_sequences,
    ::testing::Values(client_case{{false, gpu_engine::direct}}, client_case{{false, gpu_engine::proxy}},
                      client_case{{true, gpu_engine::direct}}, client_case{{true, gpu_engine::proxy}},
                      client_case{{false, gpu_engine::direct}, true}, client_case{{true, gpu_engine::direct}, true},
                      client_case{{true, gpu_engine::proxy}, true},
                      client_case{{false, gpu_engine::direct}, true, true},
                      client_case{{false, gpu_engine::direct, owned}}, client_case{{false, gpu_engine::proxy, owned}},
                      client_case{{true, gpu_engine::direct, owned, queue_location::host}},
                      client_case{{false, gpu_engine::direct, owned, queue_location::gpu}},
                      client_case{{false, gpu_engine::direct, owned}, true},
                      client_case{{true, gpu_engine::proxy, owned}, true},
                      client_case{{false, gpu_engine::direct, owned}, true, true},
                      client_case{{false, gpu_engine::proxy, owned}, true, true},
                      client_case{{true, gpu_engine::direct, owned}, true, true}),
    [](const auto& way) { return name_of(way.param); });

}  // namespace
}  // namespace accel::tests
