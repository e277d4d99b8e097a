// SPDX-License-Identifier: Apache-2.0
/// door_stand_in URI: a server with models whose answers a test can foresee, until SIGTERM. Each of them takes eight
/// floats and gives eight: `double` gives twice as much, `slow` likewise after 300 ms, `failing` fails with a sentence,
/// `short` answers too little, `nan` with what JSON cannot represent. `held` gives twice as much once `release` is
/// called; `caught` answers once as many calls of `held` are there as its first float says, `left` once as many of them
/// have been cancelled. `large` gives 2^20 numbers, all of them the first, `traced` the parent of its request's trace,
/// `laden` the length of its baggage and the bytes it begins with, `passing` how much metadata its request has, with
/// the same metadata and one entry more, `empty` 0×2 numbers. Some answer in parts: `parts`
/// as the input says, `words` with the words of a text, `flood` with 64 KiB of text for ever. `echo` answers with its
/// request, of any size; `reflect` says of it what its request says of its tensors, and the first byte of `cut`'s
/// answer is another, so that its strings are none.
#include "report/program.hpp"

#include <accel_transport/accel_transport.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <limits>
#include <mutex>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t numbers = 8;
constexpr std::size_t payload = numbers * sizeof(float);

void answer_with(accel::exchange& to, float factor) {
    if (to.request().size() != payload || to.response().size() < payload) {
        static_cast<void>(to.fail(accel::status::invalid_argument, 0, "eight floats are wanted"));
        return;
    }
    float values[numbers];
    std::memcpy(values, to.request().data(), sizeof values);
    for (float& each : values) each *= factor;
    std::memcpy(to.response().data(), values, sizeof values);
    accel::tensor one;
    one.rank = 1;
    one.shape[0] = numbers;
    static_cast<void>(to.describe(payload, std::span{&one, 1}));
    static_cast<void>(to.reply(payload));
}

void answer_at_length(accel::exchange& to) {
    constexpr std::size_t count = 1 << 20;
    if (to.request().size() != payload || to.response().size() < count * sizeof(float)) {
        static_cast<void>(to.fail(accel::status::invalid_argument, 0, "eight floats are wanted, and room for 4 MiB"));
        return;
    }
    float first = 0;
    std::memcpy(&first, to.request().data(), sizeof first);
    const std::vector<float> values(count, first);
    std::memcpy(to.response().data(), values.data(), count * sizeof(float));
    accel::tensor one;
    one.rank = 1;
    one.shape[0] = count;
    static_cast<void>(to.describe(count * sizeof(float), std::span{&one, 1}));
    static_cast<void>(to.reply(count * sizeof(float)));
}

void echo(accel::exchange to) {
    const auto asked = to.request();
    const bool fits = asked.size() <= to.response().size();
    if (fits) std::memcpy(to.response().data(), asked.data(), asked.size());
    static_cast<void>(to.reply(fits ? asked.size() : 0));
}

/// Its outputs are its inputs, of the same shapes.
void reflect(accel::exchange& to, std::byte change) {
    std::array<accel::tensor, accel::max_tensors> room;
    const auto tensors = to.tensors(room);
    const auto asked = to.request();
    if (!tensors || asked.size() > to.response().size()) {
        static_cast<void>(to.fail(accel::status::invalid_argument, 0, "a request says what its tensors are"));
        return;
    }
    std::memcpy(to.response().data(), asked.data(), asked.size());
    if (!asked.empty()) to.response().front() ^= change;
    static_cast<void>(to.describe(asked.size(), *tensors));
    static_cast<void>(to.reply(asked.size()));
}

void answer_later(accel::exchange to) {
    std::thread([held = std::move(to)]() mutable {
        // Once nobody waits it answers sooner, but late enough for the client to have noticed its deadline itself.
        for (int i = 0; i < 30 && !held.cancelled(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds{10});
        if (held.cancelled()) std::this_thread::sleep_for(std::chrono::milliseconds{100});
        answer_with(held, 2);
    }).detach();
}

/// Calls that wait for `release`.
class waiting_room {
  public:
    void keep(accel::exchange one) {
        const std::lock_guard lock(mutex_);
        held_.push_back(std::move(one));
        changed_.notify_all();
    }
    void release() {
        std::vector<accel::exchange> all;
        {
            const std::lock_guard lock(mutex_);
            all.swap(held_);
            ++releases_;
            changed_.notify_all();
        }
        for (accel::exchange& each : all) answer_with(each, 2);
    }
    /// Waits for as many calls, or cancelled ones. False: nobody waits any more.
    [[nodiscard]] bool has(float count, const accel::exchange& asked, bool cancelled) {
        std::unique_lock lock(mutex_);
        const auto counts = [&](const accel::exchange& each) { return !cancelled || each.cancelled(); };
        const auto there = [&] { return static_cast<float>(std::ranges::count_if(held_, counts)) >= count; };
        while (!changed_.wait_for(lock, std::chrono::milliseconds{10}, there))
            if (asked.cancelled()) return false;
        return true;
    }

    /// Waits until `release` has been called so often. False: nobody waits any more.
    [[nodiscard]] bool released(std::size_t times, const accel::exchange& asked) {
        std::unique_lock lock(mutex_);
        while (!changed_.wait_for(lock, std::chrono::milliseconds{10}, [&] { return releases_ >= times; }))
            if (asked.cancelled()) return false;
        return true;
    }
    [[nodiscard]] std::size_t releases() {
        const std::lock_guard lock(mutex_);
        return releases_;
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<accel::exchange> held_;
    std::size_t releases_ = 0;
};

waiting_room& waiting() {
    static waiting_room room;
    return room;
}

template <bool Cancelled>
void answer_once_there(accel::exchange to) {
    float count = 0;
    if (to.request().size() == payload) std::memcpy(&count, to.request().data(), sizeof count);
    if (waiting().has(count, to, Cancelled))
        answer_with(to, 2);
    else
        static_cast<void>(to.fail(accel::status::cancelled, 0, "nobody waits"));
}

/// A tensor of 0×2 floats.
void answer_without_elements(accel::exchange& to) {
    accel::tensor one;
    one.rank = 2;
    one.shape[1] = 2;
    static_cast<void>(to.describe(0, std::span{&one, 1}));
    static_cast<void>(to.reply(0));
}

/// Each byte of the trace's parent as a number; zeros: there is none.
void answer_with_trace(accel::exchange& to) {
    const auto trace = to.trace();
    float values[numbers]{};
    if (trace) std::ranges::copy(trace->parent_id, std::begin(values));
    std::memcpy(to.response().data(), values, sizeof values);
    static_cast<void>(to.reply(sizeof values));
}

/// How long its baggage is, and then its first bytes.
void answer_with_baggage(accel::exchange& to) {
    std::array<char, accel::max_baggage_bytes> room{};
    const auto baggage = to.baggage(room);
    const std::string_view text = baggage ? *baggage : std::string_view{};
    float values[numbers]{static_cast<float>(text.size())};
    for (std::size_t i = 0; i < std::min(text.size(), numbers - 1); ++i) values[i + 1] = static_cast<float>(text[i]);
    std::memcpy(to.response().data(), values, sizeof values);
    static_cast<void>(to.reply(sizeof values));
}

/// How many entries of metadata its request has, and how many bytes their values have; with the same and `hidden`.
void answer_with_metadata(accel::exchange& to) {
    accel::metadata_room room;
    std::vector<accel::metadata_entry> all;
    if (const auto got = to.metadata(room)) all.assign(got->begin(), got->end());
    float values[numbers]{static_cast<float>(all.size())};
    for (const accel::metadata_entry& each : all) values[1] += static_cast<float>(each.value.size());
    all.push_back({"hidden", "1"});
    std::memcpy(to.response().data(), values, sizeof values);
    static_cast<void>(to.reply(sizeof values, all));
}

/// Sends a part, once there is room. False: nobody waits for it any more.
bool send_part(accel::exchange& to, std::span<const std::byte> bytes) {
    for (;;) {
        const accel::status sent = to.send(bytes);
        if (sent != accel::status::again) return sent == accel::status::ok;
        if (to.cancelled()) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
}

void send_numbers(accel::exchange to, const std::array<float, numbers>& asked) {
    const auto [count, first, wait_ms, fails, ends, infinite, stepwise, none] = asked;
    std::size_t releases = waiting().releases();
    bool waits = true;
    float values[numbers];
    for (float i = 0; waits && i < count; ++i) {
        std::this_thread::sleep_for(std::chrono::duration<float, std::milli>{wait_ms});
        std::fill(std::begin(values), std::end(values), first + i);
        if (i + 1 == infinite) values[0] = std::numeric_limits<float>::infinity();
        waits = send_part(to, std::as_bytes(std::span{values}));
        if (waits && stepwise > 0) waits = waiting().released(++releases, to);
    }
    if (fails > 0) {
        static_cast<void>(to.fail(accel::status::application_error, 7, "the model is on fire"));
        return;
    }
    std::fill(std::begin(values), std::end(values), -1.F);
    const std::size_t length = ends > 0 ? payload : 0;
    std::memcpy(to.response().data(), values, length);
    static_cast<void>(to.reply(length));
}

/// The input: how many parts, the first one's numbers, ms before each; whether it fails then, whether the end has
/// numbers too (-1); which part, counted from 1, begins with what JSON cannot represent; and whether each part is
/// followed by another only once `release` has been called.
void answer_in_parts(accel::exchange to) {
    std::array<float, numbers> asked;
    if (!to.in_parts() || to.request().size() != payload) {
        static_cast<void>(to.fail(accel::status::invalid_argument, 0, "it answers in parts"));
        return;
    }
    std::memcpy(asked.data(), to.request().data(), sizeof asked);
    send_numbers(std::move(to), asked);
}

/// Each word says its own length in a table.
void answer_in_words(accel::exchange to) {
    const auto asked = to.request();
    std::istringstream text(std::string(reinterpret_cast<const char*>(asked.data()), asked.size()));
    std::string word;
    while (std::getline(text, word, ' ')) {
        const std::string shown = word.substr(0, word.find('\0'));
        if (shown.empty()) break;
        accel::tensor one = accel::tensor_of<std::uint8_t>({static_cast<std::uint32_t>(shown.size())});
        std::vector<std::byte> part(accel::place_tensors(std::span{&one, 1}));
        static_cast<void>(accel::describe(part, std::span{&one, 1}));
        std::memcpy(part.data() + one.offset, shown.data(), shown.size());
        if (!send_part(to, part)) break;
    }
    static_cast<void>(to.reply(0));
}

/// As long as anybody takes it.
void flood(accel::exchange to) {
    const std::vector<std::byte> part(std::size_t{64} << 10, std::byte{'a'});
    while (send_part(to, part)) {
    }
    static_cast<void>(to.reply(0));
}

/// In a thread of its own, so that the server goes on.
accel::handler in_thread(void (*answer)(accel::exchange)) {
    return [answer](accel::exchange to) {
        std::thread([answer, held = std::move(to)]() mutable { answer(std::move(held)); }).detach();
    };
}

accel::service_table services() {
    return {.named = {{"double", [](accel::exchange to) { answer_with(to, 2); }},
                      {"slow", [](accel::exchange to) { answer_later(std::move(to)); }},
                      {"held", [](accel::exchange to) { waiting().keep(std::move(to)); }},
                      {"caught", in_thread(answer_once_there<false>)},
                      {"left", in_thread(answer_once_there<true>)},
                      {"release",
                       [](accel::exchange to) {
                           waiting().release();
                           answer_with(to, 2);
                       }},
                      {"failing",
                       [](accel::exchange to) {
                           static_cast<void>(to.fail(accel::status::application_error, 7, "the model is on fire"));
                       }},
                      {"short", [](accel::exchange to) { static_cast<void>(to.reply(4)); }},
                      {"large", [](accel::exchange to) { answer_at_length(to); }},
                      {"traced", [](accel::exchange to) { answer_with_trace(to); }},
                      {"laden", [](accel::exchange to) { answer_with_baggage(to); }},
                      {"passing", [](accel::exchange to) { answer_with_metadata(to); }},
                      {"empty", [](accel::exchange to) { answer_without_elements(to); }},
                      {"echo", echo},
                      {"reflect", [](accel::exchange to) { reflect(to, std::byte{0}); }},
                      {"cut", [](accel::exchange to) { reflect(to, std::byte{0x40}); }},
                      {"parts", in_thread(answer_in_parts)},
                      {"words", in_thread(answer_in_words)},
                      {"flood", in_thread(flood)},
                      {"nan", [](accel::exchange to) { answer_with(to, std::numeric_limits<float>::quiet_NaN()); }}}};
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) return accel::report::complain("door_stand_in", "it takes one URI");
    accel::report::block_stop_signals();
    auto context = accel::context::open();
    if (!context) return accel::report::complain("door_stand_in", context.error());
    auto server = accel::server::listen(*context, {std::string_view{argv[1]}}, services());
    if (!server) return accel::report::complain("door_stand_in", server.error());
    std::printf("serving %s\n", server->endpoints().front().c_str());
    std::fflush(stdout);
    accel::report::wait_for_stop_signal();
    server->stop();
    waiting().release();
    return 0;
}
