// SPDX-License-Identifier: Apache-2.0
// Awaited calls: they resume once, in poll, and may be destroyed at any time.
#include "client_rig.hpp"

#include <accel_transport/coro.hpp>

#include <algorithm>
#include <atomic>
#include <coroutine>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

namespace accel::tests {
namespace {

/// A coroutine that a test can destroy while it waits.
class owned {
  public:
    struct promise_type {
        owned get_return_object() { return owned{std::coroutine_handle<promise_type>::from_promise(*this)}; }
        [[nodiscard]] std::suspend_never initial_suspend() const noexcept { return {}; }
        [[nodiscard]] std::suspend_always final_suspend() const noexcept { return {}; }
        void return_void() const noexcept {}
        void unhandled_exception() const noexcept { std::terminate(); }
    };
    owned(owned&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
    owned& operator=(owned&&) = delete;
    ~owned() { destroy(); }

    [[nodiscard]] bool done() const { return handle_.done(); }
    void destroy() {
        if (handle_) std::exchange(handle_, {}).destroy();
    }

  private:
    explicit owned(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
    std::coroutine_handle<promise_type> handle_;
};

class awaiting : public client_rig {
  protected:
    [[nodiscard]] coro::calls calls_to(const server& there) { return coro::calls{connect_to(there)}; }
    static bool drive(coro::calls& calls, const std::function<bool()>& done) {
        return eventually(patience(10s), [&] {
            (void)calls.wait(5ms);
            return done();
        });
    }

    shelf held;
};

const std::string a_request = "request";  // read when a call is sent, which may be later than it is made

owned ask(coro::calls& calls, std::string text, std::vector<std::string>& answers) {
    const coro::answer got = co_await calls.call(bytes_of(text));
    answers.push_back(got.ok() ? text_of(got.bytes()) : std::string{to_string(got.status())});
}

/// Takes every free slot, and then waits for more.
owned take_slots(coro::calls& calls, std::vector<call_id>& taken) {
    for (;;) {
        const auto call = co_await calls.begin();
        if (!call) co_return;
        taken.push_back(call->id);
    }
}

owned ask_in_place(coro::calls& calls, std::string& answer_text) {
    const auto call = co_await calls.begin();
    if (!call) co_return;
    std::memcpy(call->request.data(), "in place", 8);
    const coro::answer got = co_await calls.submit(call->id, 8);
    answer_text = text_of(got.bytes());
}

TEST_P(awaiting, a_request_may_be_written_in_place) {
    const server there = serve(place("in-place"));
    coro::calls calls = calls_to(there);
    std::string seen;
    const owned one = ask_in_place(calls, seen);
    EXPECT_TRUE(drive(calls, [&] { return one.done(); }));
    EXPECT_EQ(seen, "in place");
}

TEST_P(awaiting, a_request_too_long_fails_at_once_and_takes_no_slot) {
    const server there = serve(place("long"));
    coro::calls calls = calls_to(there);
    for (int i = 0; i < 10; ++i) {
        std::vector<std::string> answers;
        const owned one = ask(calls, std::string(5000, 'x'), answers);
        ASSERT_TRUE(one.done()) << "without a suspension";
        EXPECT_EQ(answers.front(), "message_too_large");
    }
}

owned lend(coro::calls& calls, std::shared_ptr<region> memory, std::size_t length, std::vector<std::string>& answers) {
    const slice all = memory->whole();
    const coro::answer got = co_await calls.call(all.part(0, length).value(),
                                                 {.response_into = all.part(64, 64).value()}, std::move(memory));
    answers.push_back(text_of(got.bytes()));
}

/// A call by a coroutine: it waits in line for one of four slots, is with the handler, and is answered. Whoever
/// destroys the coroutine in flight cancels the call, which keeps its slot until the late answer. Lent memory is kept
/// until the call has ended.
struct asked_call {
    std::string text;
    bool lends = false;
    std::optional<owned> coroutine;
    std::vector<std::string> answers;
    std::weak_ptr<region> memory;
    bool begun = false;
    bool answered = false;
    [[nodiscard]] bool in_flight() const { return begun && !answered; }
    [[nodiscard]] bool gone() const { return answered || (!begun && !coroutine); }
    /// What has to be so at last.
    [[nodiscard]] bool has_its_answer() const {
        if (gone() && !memory.expired()) return false;
        return !answered || !coroutine || (coroutine->done() && answers == std::vector{text});
    }
};

class awaiting_at_random : public awaiting {
  protected:
    void ask_anew(coro::calls& calls, bool lends) {
        asked_call& made = all.emplace_back();
        made.text = std::to_string(++last);
        made.lends = lends;
        line.push_back(&made);
        if (!lends) return static_cast<void>(made.coroutine.emplace(ask(calls, made.text, made.answers)));
        auto memory = std::make_shared<region>(ctx.allocate(128).value());
        std::memcpy(memory->data(), made.text.data(), made.text.size());
        made.memory = memory;
        made.coroutine.emplace(lend(calls, std::move(memory), made.text.size(), made.answers));
    }
    void destroy_one() {
        if (all.empty()) return;
        asked_call& one = *std::next(all.begin(), static_cast<std::ptrdiff_t>(random() % all.size()));
        const bool was_alive = one.coroutine.has_value();
        one.coroutine.reset();
        std::erase(line, &one);
        EXPECT_FALSE(one.lends && one.in_flight() && was_alive && one.memory.expired()) << "its call has not ended";
    }
    void answer_one() {
        std::optional<exchange> one = held.with_all([&](auto& kept) -> std::optional<exchange> {
            if (kept.empty()) return std::nullopt;
            std::swap(kept[random() % kept.size()], kept.back());
            std::optional<exchange> last(std::move(kept.back()));
            kept.pop_back();
            return last;
        });
        if (!one) return;
        std::ranges::find(all, text_of(one->request()), &asked_call::text)->answered = true;
        echo_back(std::move(*one));
    }
    /// The handler has the calls in flight and no other, and knows which are cancelled.
    [[nodiscard]] bool handler_has_them() {
        const auto in_flight = static_cast<std::size_t>(std::ranges::count_if(all, &asked_call::in_flight));
        const auto is_known = [&](const exchange& each) {
            const auto of = std::ranges::find(all, text_of(each.request()), &asked_call::text);
            return of != all.end() && of->in_flight() && each.cancelled() == !of->coroutine;
        };
        return held.with_all(
            [&](const auto& kept) { return kept.size() == in_flight && std::ranges::all_of(kept, is_known); });
    }
    /// Calls begin in their order, as slots are free. False: one has not what it should, however long it waits.
    [[nodiscard]] bool settles(coro::calls& calls) {
        while (!line.empty() && std::ranges::count_if(all, &asked_call::in_flight) < 4) {
            line.front()->begun = true;
            line.pop_front();
        }
        const auto settled = [&] {
            (void)calls.poll();
            return handler_has_them() && std::ranges::all_of(all, &asked_call::has_its_answer);
        };
        const bool done = within(until_hung(), settled, 50us);
        for (const asked_call& each : all)
            EXPECT_FALSE(each.lends && each.coroutine && !each.answered && each.memory.expired());
        std::erase_if(all, [](const asked_call& each) { return each.gone(); });
        return done;
    }

    std::mt19937 random{1};
    std::list<asked_call> all;
    std::deque<asked_call*> line;
    int last = 0;
};

TEST_P(awaiting_at_random, coroutines_have_their_answers_in_turn_and_destroyed_ones_cancel_their_calls) {
    const server there = serve(place("random"), held.keeper());
    std::unique_ptr<coro::calls> calls(new coro::calls(calls_to(there)));
    for (int i = 0; i < 60; ++i) {
        const auto what = random() % 6;
        if (what < 3 && all.size() < 8) ask_anew(*calls, random() % 3 == 0);
        if (what == 3) destroy_one();
        if (what > 3) answer_one();
        ASSERT_TRUE(settles(*calls)) << "step " << i;
    }
    while (!all.empty()) {
        answer_one();
        ASSERT_TRUE(settles(*calls));
    }
    for (int i = 0; i < 6; ++i) ask_anew(*calls, false);
    ASSERT_TRUE(settles(*calls));
    calls.reset();
    for (const asked_call& each : all) {
        EXPECT_TRUE(each.coroutine->done());
        EXPECT_EQ(each.answers, std::vector<std::string>{"closed"});
    }
}

TEST_P(awaiting, one_coroutine_may_destroy_another_whose_answer_has_come) {
    const server there = serve(place("other"), held.keeper());
    coro::calls calls = calls_to(there);
    std::vector<std::string> answers;
    std::vector<owned> all;
    const auto first = [&]() -> owned {
        const coro::answer got = co_await calls.call(bytes_of("first"));
        EXPECT_TRUE(got.ok());
        all.clear();
    };
    const owned killer = first();
    for (int i = 0; i < 3; ++i) all.push_back(ask(calls, "victim", answers));
    ASSERT_TRUE(eventually(patience(5s), [&] { return held.size() == 4; }));
    held.answer_all();
    std::this_thread::sleep_for(20ms);  // so that all four are there for one poll
    EXPECT_TRUE(drive(calls, [&] { return killer.done(); }));
    std::vector<std::string> later;
    const owned next = ask(calls, "later", later);
    ASSERT_TRUE(drive(calls, [&] { return held.size() == 1; }));
    held.answer_all();
    EXPECT_TRUE(drive(calls, [&] { return next.done(); }));
}

TEST_P(awaiting, a_lost_server_ends_calls_and_those_in_line) {
    std::optional<server> there(serve(place("lost"), held.keeper()));
    coro::calls calls = calls_to(*there);
    std::vector<std::string> answers;
    std::vector<owned> all;
    for (int i = 0; i < 6; ++i) all.push_back(ask(calls, "x", answers));
    ASSERT_TRUE(drive(calls, [&] { return held.size() == 4; }));
    held.drop_all();
    there.reset();
    EXPECT_TRUE(drive(calls, [&] { return std::ranges::all_of(all, &owned::done); }));
}

TEST_P(awaiting, arm_is_false_while_a_call_could_have_a_slot) {
    const server there = serve(place("arm"));
    coro::calls calls = calls_to(there);
    std::vector<call_id> taken;
    take_slots(calls, taken).destroy();
    std::vector<std::string> answers;
    const owned waiting = ask(calls, "late", answers);
    EXPECT_EQ(calls.poll(), 0U);
    for (const call_id id : taken) calls.give_back(id);
    EXPECT_FALSE(calls.arm());
    EXPECT_TRUE(drive(calls, [&] { return waiting.done(); }));
    EXPECT_EQ(answers, std::vector<std::string>{"late"});
}

TEST_P(awaiting, requests_written_in_place_wait_in_line_for_a_slot) {
    const server there = serve(place("begin"));
    coro::calls calls = calls_to(there);
    std::vector<call_id> taken;
    owned taking = take_slots(calls, taken);
    ASSERT_EQ(taken.size(), calls.under().slots());
    std::string first;
    std::vector<std::string> second;
    const owned in_place = ask_in_place(calls, first);
    const owned after = ask(calls, "after", second);
    calls.give_back(taken.back());
    (void)calls.poll();
    EXPECT_EQ(taken.size(), calls.under().slots() + 1) << "who waited first has it";
    taking.destroy();
    calls.give_back(taken.back());
    EXPECT_TRUE(drive(calls, [&] { return in_place.done() && after.done(); }));
    EXPECT_EQ(first, "in place");
    EXPECT_EQ(second, std::vector<std::string>{"after"});
    owned last = take_slots(calls, taken);
    calls.close();
    EXPECT_TRUE(last.done()) << "told that there will be none";
}

TEST_P(awaiting, a_cancelled_call_ends_wherever_it_is) {
    const server there = serve(place("cancel"), held.keeper());
    coro::calls calls = calls_to(there);
    std::vector<call_id> taken;
    take_slots(calls, taken).destroy();
    std::vector<status> ended;
    std::vector<coro::operation*> waiting;
    const auto asking = [&]() -> owned {
        coro::operation one = calls.call(bytes_of(a_request));
        waiting.push_back(&one);
        const coro::answer got = co_await one;
        ended.push_back(got.status());
    };
    const owned first = asking();
    const owned second = asking();
    waiting[1]->cancel();
    EXPECT_TRUE(ended.empty()) << "within poll alone";
    EXPECT_FALSE(calls.arm());
    EXPECT_EQ(calls.poll(), 1U);
    EXPECT_TRUE(second.done());
    calls.give_back(taken.front());
    ASSERT_TRUE(drive(calls, [&] { return held.size() == 1; }));
    waiting[0]->cancel();
    EXPECT_TRUE(drive(calls, [&] { return first.done(); }));
    EXPECT_EQ(ended, (std::vector<status>{status::cancelled, status::cancelled}));
    EXPECT_TRUE(eventually(patience(5s),
                           [&] { return held.with_all([](const auto& kept) { return kept.front().cancelled(); }); }));
    held.answer_all();
}

/// A handler that awaits another server, on the thread of those calls.
coro::detached ask_next(exchange request, coro::gate& gate, coro::calls& next) {
    if (!co_await gate.enter()) co_return;
    const coro::answer got = co_await next.call(request.request());
    if (!got.ok()) {
        (void)request.fail(status::application_error);
        co_return;
    }
    std::memcpy(request.response().data(), got.bytes().data(), got.bytes().size());
    (void)request.reply(got.bytes().size());
}

TEST_P(awaiting, a_handler_awaits_another_server) {
    const server back = serve(place("back"));
    coro::calls next = calls_to(back);
    std::atomic<bool> woken{false};
    coro::gate gate{[&] { woken = true; }};
    const server front = serve(
        place("front"), [&](exchange one) { ask_next(std::move(one), gate, next); }, 2);
    std::atomic<int> finished{0};
    std::vector<std::thread> clients;
    for (int i = 0; i < 2; ++i) {
        clients.emplace_back([&, i] {
            auto client = channel::connect(ctx, where(front), client_options());
            for (int call = 0; client && call < 20; ++call) {
                const std::string text = "through " + std::to_string(i) + " " + std::to_string(call);
                auto answer = client->call(bytes_of(text));
                EXPECT_TRUE(answer && text_of(answer->response) == text);
            }
            ++finished;
        });
    }
    EXPECT_TRUE(drive(next, [&] {
        if (woken.exchange(false)) (void)gate.run();
        return finished == 2;
    }));
    for (std::thread& each : clients) each.join();
}

TEST_P(awaiting, a_destroyed_gate_lets_its_coroutines_end) {
    const server back = serve(place("gate-back"));
    coro::calls next = calls_to(back);
    auto gate = std::make_unique<coro::gate>([] {});
    std::atomic<int> arrived{0};
    const server front = serve(place("gate-front"), [&](exchange one) {
        ask_next(std::move(one), *gate, next);
        ++arrived;
    });
    auto client = channel::connect(ctx, where(front), client_options());
    ASSERT_TRUE(client);
    const auto call = client->begin();
    ASSERT_EQ(call.code(), status::ok);
    ASSERT_EQ(client->submit(call->id, 1), status::ok);
    ASSERT_TRUE(eventually(patience(5s), [&] { return arrived == 1; }));
    gate.reset();
    completion ended;
    ASSERT_EQ(client->wait({&ended, 1}, patience(5s)), 1U);
    EXPECT_EQ(ended.status, status::abandoned);
}

// Responses in parts.

owned read_parts(coro::calls& calls, std::uint32_t room, std::vector<std::string>& got) {
    coro::stream parts = calls.parts(bytes_of(a_request), {.parts = room});
    for (bool more = true; more;) {
        const coro::answer part = co_await parts.next();
        more = part.more();
        got.push_back((more ? "" : std::string{to_string(part.status())} + ":") + text_of(part.bytes()));
    }
    const coro::answer none = co_await parts.next();
    EXPECT_EQ(none.status(), status::invalid_state);
}

/// Sends "0", "1" and so on, as the client gives room, and then "end".
coro::detached send_parts(exchange one, coro::gate& gate, int count, std::atomic<int>& ended) {
    if (!co_await gate.enter()) co_return;
    for (int i = 0; i < count; ++i) {
        const std::span<std::byte> room = co_await coro::room_for_part(one, gate);
        if (room.empty()) break;
        const std::string text = std::to_string(i);
        std::memcpy(room.data(), text.data(), text.size());
        if (one.send(text.size()) != status::ok) break;
    }
    std::memcpy(one.response().data(), "end", 3);
    (void)one.reply(3);
    ++ended;
}
std::vector<std::string> all_parts(int count) {
    std::vector<std::string> out;
    for (int i = 0; i < count; ++i) out.push_back(std::to_string(i));
    out.emplace_back("ok:end");
    return out;
}

/// Handlers that await room, on the thread of the test.
class awaiting_parts : public awaiting {
  protected:
    [[nodiscard]] static bool has_all_slots(coro::calls& calls) {
        std::vector<call_id> free;
        take_slots(calls, free).destroy();
        for (const call_id id : free) calls.give_back(id);
        return free.size() == calls.under().slots();
    }
    [[nodiscard]] handler sender(int count) {
        return [this, count](exchange one) { send_parts(std::move(one), gate, count, ended); };
    }
    bool drive_both(coro::calls& calls, const std::function<bool()>& done) {
        return eventually(patience(10s), [&] {
            (void)gate.run();
            (void)calls.wait(1ms);
            return done();
        });
    }
    coro::gate gate{[] {}};
    std::atomic<int> ended{0};
};

/// Answers on threads of its own with all parts of a request, as one text, or as parts too.
class joiner {
  public:
    [[nodiscard]] handler service() {
        return [this](exchange one) {
            const std::lock_guard lock(mutex_);
            threads_.emplace_back([open = std::move(one)]() mutable { join(open); });
        };
    }

  private:
    static void join(exchange& open) {
        std::string all = text_of(open.request());
        status ended = status::ok;
        while (open.continues() && ended == status::ok) {
            const request_part part = open.receive(until_hung());
            ended = part.status();
            all += text_of(part.bytes());
            if (ended == status::ok && open.in_parts()) ended = open.send(part.bytes(), until_hung());
        }
        if (ended != status::ok) return static_cast<void>(open.fail(ended));
        std::memcpy(open.response().data(), all.data(), all.size());
        (void)open.reply(all.size());
    }
    std::mutex mutex_;
    std::vector<std::jthread> threads_;
};

owned send_numbers(coro::stream& to, int count) {
    for (int i = 0; i < count; ++i) EXPECT_EQ((co_await to.send(bytes_of(std::to_string(i)))).status(), status::ok);
    EXPECT_TRUE((co_await to.finish()).ok());
    EXPECT_EQ((co_await to.send({})).status(), status::invalid_state) << "the last was sent";
}
owned read_texts(coro::stream& from, std::vector<std::string>& got) {
    for (bool more = true; more;) {
        const coro::answer part = co_await from.next();
        more = part.more();
        got.push_back(text_of(part.bytes()));
    }
}

TEST_P(awaiting_parts, requests_go_in_parts_while_calls_wait_for_slots) {
    joiner texts;
    const server there = serve(place("request-parts"), texts.service());
    coro::calls calls = calls_to(there);
    std::string all = a_request;
    for (int i = 0; i < 40; ++i) all += std::to_string(i);
    for (const std::uint32_t parts : {0U, 1U}) {
        coro::stream both = calls.parts(bytes_of(a_request), {.continues = true, .parts = parts});
        std::vector<std::string> got;
        std::vector<std::vector<std::string>> others(5);
        const owned sending = send_numbers(both, 40);
        const owned reading = read_texts(both, got);
        std::vector<owned> waiting;  // for more slots than are free until the stream has ended
        for (auto& each : others) waiting.push_back(read_parts(calls, 3, each));
        EXPECT_TRUE(drive_both(calls, [&] { return reading.done() && sending.done(); }));
        EXPECT_EQ(got.back(), all);
        EXPECT_EQ(got.size(), parts == 0 ? 1U : 42U);
        EXPECT_TRUE(drive_both(calls, [&] { return std::ranges::all_of(waiting, &owned::done); }));
    }
    EXPECT_TRUE(drive_both(calls, [&] { return has_all_slots(calls); }));
}

/// A handler that awaits the parts of a request, and answers with all of them as one text; or with each of them first,
/// if its client takes parts.
coro::detached join_parts(exchange one, coro::gate& gate, std::vector<status>& ends) {
    if (!co_await gate.enter()) co_return;
    std::string all = text_of(one.request());
    status ended = status::ok;
    while (ended == status::ok) {
        const request_part part = co_await coro::next_request_part(one, gate);
        ended = part.status();
        all += text_of(part.bytes());
        if (ended != status::ok || !one.in_parts()) continue;
        const std::span<std::byte> room = co_await coro::room_for_part(one, gate);
        EXPECT_FALSE(room.empty());
        EXPECT_EQ(one.send(part.bytes()), status::ok);
    }
    ends.push_back(ended);
    if (ended != status::invalid_state) co_return;
    std::memcpy(one.response().data(), all.data(), all.size());
    (void)one.reply(all.size());
}

TEST_P(awaiting_parts, handler_awaits_the_parts_of_a_request) {
    std::vector<status> ends;
    const server there = serve(place("joins"), [&](exchange one) { join_parts(std::move(one), gate, ends); });
    coro::calls calls = calls_to(there);
    const int count = 300;
    std::string all = a_request;
    for (int i = 0; i < count; ++i) all += std::to_string(i);
    for (const std::uint32_t parts : {0U, 1U}) {
        coro::stream both = calls.parts(bytes_of(a_request), {.continues = true, .parts = parts});
        std::vector<std::string> got;
        const owned sending = send_numbers(both, count);
        const owned reading = read_texts(both, got);
        ASSERT_TRUE(drive_both(calls, [&] { return reading.done() && sending.done(); }));
        EXPECT_EQ(got.back(), all);
        EXPECT_EQ(got.size(), parts == 0 ? 1U : 2U + count);
    }
    EXPECT_EQ(ends, (std::vector<status>{status::invalid_state, status::invalid_state}));
    EXPECT_TRUE(drive_both(calls, [&] { return has_all_slots(calls); }));
}

owned send_one(coro::calls& calls, submit_options options, int& sent) {
    options.continues = true;
    coro::stream one = calls.parts(bytes_of(a_request), options);
    sent += (co_await one.send(bytes_of(a_request))).ok();
    (void)co_await one.next();
}

TEST_P(awaiting_parts, handler_that_awaits_a_part_is_told_when_none_will_come) {
    std::vector<status> ends;
    std::atomic<std::size_t> started{0};
    const server there = serve(place("joins-none"), [&](exchange one) {
        ++started;
        join_parts(std::move(one), gate, ends);
    });
    std::unique_ptr<coro::calls> calls(new coro::calls(calls_to(there)));
    int sent = 0;
    owned cancelled = send_one(*calls, {}, sent);
    EXPECT_TRUE(drive_both(*calls, [&] { return sent == 1 && started == 1; }));
    cancelled.destroy();
    EXPECT_TRUE(drive_both(*calls, [&] { return ends.size() == 1; }));

    with_enough_time(50ms, [&](nanoseconds time) {  // until the handler has the call
        const std::size_t before = started;
        const owned late = send_one(*calls, {.timeout = time}, sent);
        EXPECT_TRUE(drive_both(*calls, [&] { return late.done(); }));
        EXPECT_TRUE(drive_both(*calls, [&] { return ends.size() == started; }));
        return started > before;
    });
    EXPECT_TRUE(std::ranges::all_of(ends, [](status each) { return each == status::cancelled; }));

    sent = 0;
    const std::size_t before = ends.size();
    const owned leaves = send_one(*calls, {}, sent);
    EXPECT_TRUE(drive_both(*calls, [&] { return sent == 1 && started == before + 1; }));
    calls.reset();
    EXPECT_TRUE(leaves.done());
    EXPECT_TRUE(eventually([&] {
        (void)gate.run();
        return ends.size() == before + 1;
    }));
    EXPECT_TRUE(ends.back() == status::cancelled || ends.back() == status::peer_lost) << to_string(ends.back());
}

TEST_P(awaiting_parts, a_destroyed_gate_keeps_the_part_that_has_come) {
    std::vector<status> ends;
    std::optional<coro::gate> own;
    std::atomic<int> woken{0};
    own.emplace([&] { ++woken; });
    const server there = serve(place("joins-gate"), [&](exchange one) { join_parts(std::move(one), *own, ends); });
    coro::calls calls = calls_to(there);
    coro::stream upload = calls.parts(bytes_of(a_request), {.continues = true});
    std::vector<std::string> got;
    const owned reading = read_texts(upload, got);
    ASSERT_TRUE(drive(calls, [&] { return woken == 1; }));
    EXPECT_EQ(own->run(), 1U);
    const owned sending = send_numbers(upload, 1);
    ASSERT_TRUE(drive(calls, [&] { return woken == 2 && sending.done(); }));
    EXPECT_TRUE(ends.empty());
    own.reset();
    EXPECT_EQ(ends, std::vector<status>{status::closed});
    EXPECT_TRUE(drive(calls, [&] { return reading.done(); }));
}

TEST_P(awaiting_parts, a_handler_may_be_destroyed_while_it_awaits_a_part) {
    std::atomic<int> woken{0};
    coro::gate own{[&] { ++woken; }};
    std::optional<server> there(serve(place("joins-destroyed"), held.keeper()));
    coro::calls calls = calls_to(*there);
    coro::stream upload = calls.parts(bytes_of(a_request), {.continues = true});
    std::vector<std::string> got;
    const owned reading = read_texts(upload, got);
    ASSERT_TRUE(drive(calls, [&] { return held.size() == 1; }));
    const auto wait = [&](exchange& one) -> owned { (void)co_await coro::next_request_part(one, own); };
    held.with_all([&](auto& kept) { wait(kept.front()).destroy(); });
    const owned sending = send_numbers(upload, 1);
    EXPECT_TRUE(drive(calls, [&] { return sending.done(); }));
    held.answer_all();
    EXPECT_TRUE(drive(calls, [&] { return reading.done(); }));
    there.reset();  // its worker has called all waiters
    EXPECT_EQ(woken, 0);
}

TEST_P(awaiting_parts, a_part_of_a_call_that_is_not_sent_says_so) {
    const server there = serve(place("request-parts-refused"), sender(0));
    coro::calls calls = calls_to(there);
    coro::stream all = calls.parts(bytes_of(a_request), {.continues = true, .parts = 3});
    const auto try_to_send = [&]() -> owned {
        EXPECT_EQ((co_await all.send({})).status(), status::invalid_state);
        EXPECT_EQ((co_await all.next()).status(), status::invalid_argument) << "four slots are too few";
        EXPECT_EQ((co_await all.next()).status(), status::invalid_state);
        const coro::answer whole = co_await calls.call(bytes_of(a_request), {.continues = true});
        EXPECT_EQ(whole.status(), status::unsupported);
    };
    EXPECT_TRUE(try_to_send().done());
}

TEST_P(awaiting_parts, parts_arrive_one_by_one_with_room_for_only_one) {
    const server there = serve(place("parts"), sender(30));
    coro::calls calls = calls_to(there);
    for (const std::uint32_t room : {1U, 3U}) {
        std::vector<std::string> got;
        const owned one = read_parts(calls, room, got);
        EXPECT_TRUE(drive_both(calls, [&] { return one.done(); }));
        EXPECT_EQ(got, all_parts(30));
    }
    EXPECT_EQ(ended, 2);
}

TEST_P(awaiting_parts, calls_wait_in_line_until_there_are_slots_for_their_parts) {
    const server there = serve(place("parts-line"), sender(5));
    coro::calls calls = calls_to(there);
    std::vector<std::vector<std::string>> got(6);
    std::vector<owned> all;
    for (auto& each : got) all.push_back(read_parts(calls, 2, each));  // of four slots, each takes three
    EXPECT_TRUE(drive_both(calls, [&] { return std::ranges::all_of(all, &owned::done); }));
    for (const auto& each : got) EXPECT_EQ(each, all_parts(5));
    std::vector<std::string> refused;
    const owned one = read_parts(calls, 4, refused);
    EXPECT_TRUE(one.done());
    EXPECT_EQ(refused, std::vector<std::string>{"invalid_argument:"});
}

TEST_P(awaiting_parts, a_destroyed_reader_cancels_its_call_and_wakes_the_sender) {
    const server there = serve(place("parts-cancel"), sender(100));
    coro::calls calls = calls_to(there);
    for (int round = 1; round <= 3; ++round) {
        std::vector<std::string> got;
        {
            std::optional<coro::answer> unread;
            const auto hold = [&]() -> owned {
                coro::stream parts = calls.parts(bytes_of(a_request), {.parts = 1});
                unread.emplace(co_await parts.next());
                got.push_back(text_of((co_await parts.next()).bytes()));
            };
            const owned one = hold();
            ASSERT_TRUE(drive_both(calls, [&] { return unread.has_value(); }));
            EXPECT_EQ(text_of(unread->bytes()), "0");
            for (int i = 0; i < 10; ++i) (void)gate.run();
            EXPECT_EQ(ended, round - 1) << "it waits for room";
        }
        EXPECT_TRUE(drive_both(calls, [&] { return ended == round; }));
        EXPECT_TRUE(got.empty());
        ASSERT_TRUE(drive_both(calls, [&] { return has_all_slots(calls); }));
    }
}

TEST_P(awaiting_parts, unread_parts_are_released_with_their_reader) {
    const server there = serve(place("parts-unread"), sender(3));
    coro::calls calls = calls_to(there);
    const auto read_one = [&]() -> owned {
        coro::stream parts = calls.parts(bytes_of(a_request), {.parts = 3});
        (void)co_await parts.next();
        (void)co_await calls.call(bytes_of(std::string{"meanwhile"}), {.timeout = patience(5s)});
    };
    {
        const owned one = read_one();
        EXPECT_TRUE(drive_both(calls, [&] { return ended >= 1; }));
        (void)drive_both(calls, [&] { return one.done(); });
    }
    ASSERT_TRUE(drive_both(calls, [&] { return has_all_slots(calls); }));
}

TEST_P(awaiting_parts, close_ends_a_reader_with_closed) {
    const server there = serve(place("parts-close"), held.keeper());
    std::vector<std::string> got;
    std::optional<owned> one;
    {
        coro::calls calls = calls_to(there);
        one.emplace(read_parts(calls, 2, got));
        ASSERT_TRUE(drive(calls, [&] { return held.size() == 1; }));
    }
    EXPECT_TRUE(one->done());
    EXPECT_EQ(got, std::vector<std::string>{"closed:"});
}

ACCEL_OVER_EVERY_TRANSPORT(awaiting);
ACCEL_OVER_EVERY_TRANSPORT(awaiting_at_random);
ACCEL_OVER_EVERY_TRANSPORT(awaiting_parts);

}  // namespace
}  // namespace accel::tests
