// SPDX-License-Identifier: Apache-2.0
// Random sequences of clients that come, call, cancel and leave, at services of all kinds, against a model: what each
// call must end with, what kernels hear of it, and when a place or a slot is free again. Threads of the host are in the
// kernels' place.
#include "device/wished_work.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <random>
#include <vector>

namespace accel::tests {
namespace {

constexpr std::uint32_t places = 3;
constexpr std::size_t most_bytes = 4096;

/// A call that has no answer yet, or whose last completion is not released.
struct open_call {
    call_id id;
    wished what;
    std::vector<std::byte> request;
    slice into;  ///< where its response goes, if it is not empty
    std::uint64_t came = 0;
    bool cancelled = false;
};
/// A part or a response that is not released.
struct kept_piece {
    completion is;
    std::vector<std::byte> bytes;
};

struct guest {
    channel is;
    std::uint32_t slots;
    std::size_t response_bytes;
    region memory;  ///< for response targets, a piece a slot
    std::map<std::uint64_t, open_call> calls;
    std::vector<kept_piece> pieces;
    [[nodiscard]] std::size_t used() const { return calls.size() + pieces.size(); }
};

class service_sequence {
  public:
    service_sequence(service_rig& rig, wished_work& work, unsigned seed) : rig_(rig), work_(work), random_(seed) {}

    void step() {
        switch (roll(16)) {
            case 0:
                return come();
            case 1:
                return roll(4) == 0 ? leave() : with_guest([](guest& one) { expect_same(one); });
            case 2:
            case 3:
                return with_guest([this](guest& one) { cancel(one); });
            case 4:
            case 5:
                return with_guest([this](guest& one) { answer(one); });
            case 6:
            case 7:
            case 8:
                return with_guest([this](guest& one) {
                    if (!one.pieces.empty()) release(one, roll(one.pieces.size()));
                });
            case 9:
            case 10:
            case 11:
                return poll_all();
            default:
                return with_guest([this](guest& one) { ask(one); });
        }
    }
    /// All calls end, clients have all their slots, and kernels have no request.
    void settle() {
        for (guest& each : guests_) settle(each);
        let_answer_all(late_);
        EXPECT_TRUE(eventually([this] { return work_.at_work == 0; })) << work_.at_work_on() << "kernels do not hear";
        EXPECT_EQ(work_.first_wrong(), "");
    }
    /// Requests that wait for the first kernel.
    void ask_all() {
        for (guest& each : guests_) ask(each);
    }
    void leave_all() {
        while (!guests_.empty()) leave();
    }
    [[nodiscard]] std::uint64_t came() const { return came_; }

  private:
    [[nodiscard]] std::size_t roll(std::size_t below) { return random_() % below; }
    template <class Action>
    void with_guest(const Action& action) {
        if (!guests_.empty()) action(guests_[roll(guests_.size())]);
    }
    template <class Condition, class Action>
    void with_call(guest& of, const Condition& condition, const Action& action) {
        std::vector<open_call*> fit;
        for (auto& [number, each] : of.calls)
            if (condition(each)) fit.push_back(&each);
        if (!fit.empty()) action(*fit[roll(fit.size())]);
    }

    // Clients.

    void come() {
        if (guests_.size() == places && roll(8) != 0) return;
        channel_options wanted = service_rig::small();
        wanted.slots = static_cast<std::uint32_t>(1 + roll(8));
        wanted.response_bytes = roll(2) == 0 ? most_bytes : 100;
        wanted.call_timeout = patience(600s);
        const std::string scheme = roll(3) == 0 ? "rdma" : "gpu";
        result<channel> made = rig_.try_connect(wanted, scheme);
        if (guests_.size() == places) {
            EXPECT_EQ(made.code(), status::overloaded) << "there is a place for it";
            return;
        }
        // Places are used again as soon as kernels have released them.
        EXPECT_TRUE(eventually([&] {
            if (!made) made = rig_.try_connect(wanted, scheme);
            return made.ok();
        })) << made.error().message;
        if (!made) return;
        ++came_;
        guests_.push_back({std::move(*made),
                           wanted.slots,
                           wanted.response_bytes,
                           rig_.client_context.allocate(wanted.slots * most_bytes).value(),
                           {},
                           {}});
    }
    /// With calls open.
    void leave() {
        if (guests_.empty()) return;
        const auto which = guests_.begin() + static_cast<std::ptrdiff_t>(roll(guests_.size()));
        for (const auto& [number, call] : which->calls) {
            work_.give_up(number);
            late_.push_back(number);
        }
        which->is.close();
        which->pieces.clear();  // before their channel, which `erase` assigns first
        guests_.erase(which);
        let_answer_all(late_);
    }
    void let_answer_all(std::vector<std::uint64_t>& numbers) {
        for (const std::uint64_t each : numbers) work_.let_answer(each);
        numbers.clear();
    }
    void ask(guest& one) {
        const auto call = one.is.begin();
        const status begun = call.code();
        if (begun != status::ok) {
            EXPECT_EQ(begun, status::again);
            return;
        }
        EXPECT_LT(one.used(), one.slots);
        open_call made;
        submit_options with;
        plan(one, call->id.slot, made, with);
        std::copy(made.request.begin(), made.request.end(), call->request.begin());
        made.id = call->id;
        const status sent = one.is.submit(call->id, made.request.size(), with);
        if (sent == status::again) {
            EXPECT_GT(with.parts, 0U);
            EXPECT_EQ(one.is.release(call->id), status::ok);
            return;
        }
        EXPECT_EQ(sent, status::ok) << to_string(sent);
        one.calls.emplace(made.what.number, std::move(made));
    }
    void plan(guest& one, std::uint32_t slot, open_call& made, submit_options& with) {
        constexpr std::array kinds{wish::answer, wish::answer, wish::hold, wish::outlast, wish::stream, wish::stream};
        made.what.number = ++last_;
        made.what.what = kinds[roll(kinds.size())];
        made.what.code = roll(5) == 0 ? static_cast<std::uint32_t>(1 + roll(1000)) : 0;
        made.what.parts = roll(4) == 0 ? 40 : roll(6);
        made.what.bytes = roll(2) == 0 || one.response_bytes < most_bytes ? roll(50) : most_bytes - 49;
        made.what.stalls_after = roll(5) == 0 ? 1 : 0;
        if (one.slots == 1 && made.what.what == wish::stream) made.what.what = wish::answer;
        const bool in_parts = made.what.what == wish::stream || (one.slots > 1 && roll(8) == 0);
        with.parts = in_parts ? static_cast<std::uint32_t>(1 + roll(one.slots - 1)) : 0;
        with.tag = with.trace_id = made.what.number;
        if (roll(4) == 0) with.timeout = std::chrono::nanoseconds::max();
        if (made.what.what == wish::answer && roll(3) == 0) made.what.target = target_of("named").number;
        if (made.what.target != 0) with.target = target_of("named");
        constexpr std::array<std::size_t, 8> sizes{0, 1, 7, sizeof(wished) - 1, 64, 65, 1000, most_bytes};
        const std::size_t size = sizes[roll(sizes.size())];
        const bool plain = made.what.what == wish::answer && made.what.code == 0;
        made.request.resize(plain ? size : std::max(size, sizeof made.what));
        fill(made.request, made.what.number);
        if (plain && (size < sizeof made.what || roll(2) == 0)) {
            made.what.is = 0;
        } else {
            std::memcpy(made.request.data(), &made.what, sizeof made.what);
            with.trace = trace_of(made.what.number);
        }
        if (in_parts || roll(3) != 0) return;
        made.into = one.memory.part(slot * most_bytes, roll(2) == 0 ? most_bytes : 1 + roll(200)).value();
        with.response_into = made.into;
    }

    // Completions.

    void poll_all() {
        for (guest& each : guests_) {
            std::array<completion, 4> some;
            const std::size_t count = each.is.poll(some);
            for (std::size_t i = 0; i < count; ++i) take(each, some[i]);
        }
    }
    void take(guest& from, completion& done) {
        const auto found = from.calls.find(done.tag);
        ASSERT_NE(found, from.calls.end()) << done.tag << " has ended before";
        open_call& of = found->second;
        EXPECT_EQ(done.trace_id, of.what.number);
        EXPECT_EQ(done.call, of.id);
        if (done.more) {
            EXPECT_LT(of.came, of.what.parts);
            EXPECT_EQ(done.response.size(), of.what.bytes_of(of.came));
            EXPECT_TRUE(matches(done.response, of.what.seed_of(of.came))) << of.came;
            ++of.came;
        } else {
            EXPECT_EQ(done.id, of.id);
            expect_end(from, of, done);
            if (done.status == status::cancelled) late_.push_back(of.what.number);
            from.calls.erase(found);
        }
        std::vector<std::byte> bytes(done.response.begin(), done.response.end());
        from.pieces.push_back({std::move(done), std::move(bytes)});
    }
    [[nodiscard]] static bool stalls(const open_call& one) {
        return one.what.what == wish::stream && one.what.stalls_after != 0 && one.what.stalls_after < one.what.parts;
    }
    [[nodiscard]] bool ends_by_itself(const open_call& one) const {
        if (one.what.what == wish::hold) return work_.may_answer(one.what.number);
        return one.what.what != wish::outlast && !stalls(one);
    }
    void expect_end(const guest& from, const open_call& of, const completion& done) {
        if (of.cancelled && done.status == status::cancelled) return;
        EXPECT_TRUE(ends_by_itself(of)) << "wish " << static_cast<int>(of.what.what) << ": " << to_string(done.status);
        if (of.what.what == wish::stream) {
            EXPECT_EQ(of.came, of.what.parts);
        }
        if (of.what.code != 0) {
            EXPECT_EQ(done.status, status::application_error) << to_string(done.status);
            EXPECT_EQ(done.code, of.what.code);
            return;
        }
        EXPECT_EQ(done.status, status::ok) << to_string(done.status);
        if (of.what.what == wish::stream) return;
        const std::size_t room = std::min(of.into.size() > 0 ? of.into.size() : most_bytes, from.response_bytes);
        const std::span<const std::byte> request = of.request;
        EXPECT_TRUE(std::ranges::equal(done.response, request.first(std::min(request.size(), room))));
        EXPECT_TRUE(of.into.size() == 0 || done.response.empty() || done.response.data() == of.into.data());
    }
    void cancel(guest& one) {
        with_call(
            one, [](const open_call& each) { return !each.cancelled; },
            [&](open_call& call) {
                work_.give_up(call.what.number);
                const status said = one.is.cancel(call.id);
                if (said == status::ok)
                    call.cancelled = true;
                else
                    EXPECT_TRUE(ends_by_itself(call)) << to_string(said);
            });
    }
    void answer(guest& one) {
        with_call(
            one, [](const open_call& each) { return each.what.what == wish::hold; },
            [this](open_call& call) { work_.let_answer(call.what.number); });
        if (roll(4) == 0) let_answer_all(late_);
    }
    /// What was read stays so until it is released.
    static void expect_same(const guest& one) {
        for (const kept_piece& each : one.pieces)
            EXPECT_TRUE(each.is.status != status::ok || std::ranges::equal(each.is.response, each.bytes));
    }
    static void release(guest& from, std::size_t which) {
        expect_same(from);
        from.pieces.erase(from.pieces.begin() + static_cast<std::ptrdiff_t>(which));
    }
    void settle(guest& one) {
        EXPECT_TRUE(eventually([&] {
            for (auto& [number, each] : one.calls) {
                work_.let_answer(number);
                if (each.cancelled || ends_by_itself(each)) continue;
                work_.give_up(number);
                each.cancelled = one.is.cancel(each.id) == status::ok;
            }
            poll_all();
            let_answer_all(late_);
            while (!one.pieces.empty()) release(one, 0);
            return one.calls.empty();
        })) << one.calls.size()
            << " calls do not end";
        std::vector<call_id> begun;
        EXPECT_TRUE(eventually([&] {
            EXPECT_EQ(one.is.poll({}), 0U);
            while (const auto call = one.is.begin()) begun.push_back(call->id);
            return begun.size() == one.slots;
        })) << begun.size();
        for (const call_id each : begun) EXPECT_EQ(one.is.release(each), status::ok);
    }

    service_rig& rig_;
    wished_work& work_;
    std::mt19937 random_;
    std::uint64_t last_ = 0;
    std::uint64_t came_ = 0;
    std::vector<guest> guests_;
    std::vector<std::uint64_t> late_;  ///< calls that have ended, and whose answers kernels hold
};

class service_sequences : public ::testing::TestWithParam<service_setting> {
  protected:
    void SetUp() override {
        if (!has(GetParam().engine)) GTEST_SKIP() << "this device has no queues to drive";
    }
    void run(unsigned seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        wished_work work;
        service_rig rig(GetParam());
        rig.options.max_sessions = places;
        // By the URI as well, which cannot add threads of the host.
        if (seed % 2 != 0) rig.query = GetParam().sharing == owned ? "?workers=4&sharing=exclusive" : "?workers=4";
        if (seed % 2 != 0 && GetParam().queues == queue_location::automatic)
            rig.options.kernels.sharing = service_sharing::shared;
        rig.listen();
        service_sequence clients(rig, work, seed);
        int kernels = 0;
        for (std::uint32_t round = 0; round < 3 && !HasFailure(); ++round) {
            rig.end_kernels_alone();
            clients.ask_all();
            kernels = static_cast<int>(1 + (seed + 3 * round) % 5);  // of owners, some have no session
            rig.serve_with(kernels_for(work), static_cast<std::uint32_t>(kernels));
            for (int step = 0; step < effort(200) && !HasFailure(); ++step) {
                SCOPED_TRACE(::testing::Message() << "round " << round << ", step " << step);
                clients.step();
            }
            clients.settle();
        }
        clients.leave_all();
        EXPECT_TRUE(eventually([&] { return rig.service->statistics().sessions == 0; }));
        work.over = true;
        rig.stop();
        EXPECT_EQ(rig.closed_kernels, kernels);
        EXPECT_EQ(rig.pages_pinned(), 0);
        expect_counted(rig.service->statistics(), work, clients);
    }
    static void expect_counted(const gpu_service_statistics& seen, const wished_work& work,
                               const service_sequence& clients) {
        EXPECT_EQ(seen.requests, work.requests) << "parts and the room for them are no requests";
        EXPECT_EQ(seen.requests, seen.replies + seen.dropped);
        EXPECT_EQ(seen.expired, 0U);
        EXPECT_EQ(seen.sessions_opened, clients.came());
        EXPECT_EQ(seen.sessions_lost, 0U);
    }
};

TEST_P(service_sequences, calls_end_as_a_model_says_and_give_places_and_slots_back) {
    for (unsigned seed = 1; seed <= 4 && !HasFailure(); ++seed) run(seed);
}

INSTANTIATE_TEST_SUITE_P(on, service_sequences, service_settings(),
                         [](const auto& setting) { return name_of(setting.param); });
INSTANTIATE_TEST_SUITE_P(by_owners, service_sequences, owned_service_settings(),
                         [](const auto& setting) { return name_of(setting.param); });

}  // namespace
}  // namespace accel::tests
