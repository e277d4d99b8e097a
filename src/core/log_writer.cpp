// SPDX-License-Identifier: Apache-2.0
#include "core/log_writer.hpp"

#include "core/event_signal.hpp"
#include "core/log.hpp"
#include "core/log_limiter.hpp"
#include "core/log_sink.hpp"
#include "core/thread.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <new>
#include <utility>

#include <fmt/format.h>  // core.h alone does not format where fmt is header-only
#include <pthread.h>
#include <unistd.h>

namespace accel::core {
namespace {

constinit std::atomic<log_writer*> current{nullptr};
constinit std::atomic<log_writer*> parents{nullptr};  ///< in a child of `fork`
constinit thread_local bool on_log_thread = false;
constinit log_limiter limits;

/// How long a flush waits for a log's thread that gets no processor.
constexpr nanoseconds starved_patience = std::chrono::seconds{2};

/// May follow the text: how many lines like it were kept back.
constexpr std::size_t room_for_unsaid = 64;

/// In a child its threads are gone, and its locks are as they were: nothing of it can be used.
void leave_to_parent() noexcept {
    if (log_writer* const left = current.exchange(nullptr)) parents.store(left);
}

std::size_t format_text(char* out, std::size_t room, fmt::string_view text, fmt::format_args values) noexcept {
    constexpr std::string_view cut = "...";
    std::size_t length = 0;
    try {
        length = fmt::vformat_to_n(out, room, text, values).size;
    } catch (...) {
        length = std::min(text.size(), room);
        std::copy_n(text.data(), length, out);
    }
    if (length <= room) return length;
    std::copy(cut.begin(), cut.end(), out + room - cut.size());
    return room;
}

/// Peers have a say in some lines: none may look like two, or move a terminal's cursor.
void replace_control_characters(char* text, std::size_t length) noexcept {
    const auto control = [](char each) { return static_cast<unsigned char>(each) < 0x20 || each == 0x7f; };
    std::replace_if(text, text + length, control, '?');
}

void fill(log_line& out, log_level level, fmt::string_view text, fmt::format_args values,
          std::uint64_t unsaid) noexcept {
    char* const begin = out.bytes.data();
    std::size_t length = format_text(begin, log_line::max_bytes - room_for_unsaid, text, values);
    replace_control_characters(begin, length);
    if (unsaid > 0) {
        char* const end = fmt::format_to(begin + length, " ({} more like this were not logged)", unsaid);
        length = static_cast<std::size_t>(end - begin);
    }
    out.at = std::chrono::system_clock::now();
    out.level = level;
    out.length = static_cast<std::uint16_t>(length);
}

/// After all other destructors, so that what they log is written as well.
[[gnu::destructor]] void flush_at_exit() {
    flush_log(flush_patience);
}

}  // namespace

log_writer* log_writer::find() noexcept {
    return current.load(std::memory_order_acquire);
}

log_writer* log_writer::get() noexcept {
    static constinit std::atomic<bool> watching{false};
    log_writer* known = find();
    if (known != nullptr) return known;
    try {
        std::unique_ptr<log_writer> made(new log_writer(parents.load()));
        if (!watching.exchange(true)) ::pthread_atfork(nullptr, nullptr, leave_to_parent);
        if (current.compare_exchange_strong(known, made.get())) known = made.release();
    } catch (...) {
    }
    return known;
}

bool log_writer::write(log_level level, fmt::string_view text, fmt::format_args values, std::uint64_t unsaid) noexcept {
    log_line* const line = ring_.claim();
    if (line != nullptr) {
        fill(*line, level, text, values, unsaid);
        ring_.publish(*line);
        wake();
    }
    start();
    return line != nullptr;
}

void log_writer::wake() noexcept {
    changes_.fetch_add(1, std::memory_order_release);
    changes_.notify_one();
}

void log_writer::start() noexcept {
    if (started_.load(std::memory_order_relaxed) || started_.exchange(true)) return;
    try {
        start_thread("accel-log", [this] { run(); }).detach();
    } catch (...) {
        started_.store(false);  // the next line tries again
    }
}

void log_writer::run() noexcept {
    on_log_thread = true;
    for (;;) {
        const std::int32_t seen = changes_.load(std::memory_order_acquire);
        take_lines();
        changes_.wait(seen, std::memory_order_acquire);
    }
}

void log_writer::take_lines() noexcept {
    while (const log_line* line = ring_.front()) {
        tell_dropped(line->dropped);
        emit(line->at, line->level, line->text());
        ring_.pop();
    }
    tell_dropped(ring_.dropped());
}

void log_writer::tell_dropped(std::uint64_t until) noexcept {
    const std::uint64_t reported = reported_.load(std::memory_order_relaxed);
    if (until <= reported) return;
    std::array<char, 128> text;
    const char* const end = fmt::format_to(
        text.data(), "{} log lines were dropped: they came faster than they could be written", until - reported);
    emit(std::chrono::system_clock::now(), log_level::warning, {text.data(), end});
    reported_.store(until, std::memory_order_release);
}

/// Until it is written: the ring fills meanwhile. A sink that comes while standard error is stuck gets it.
void log_writer::emit(std::chrono::system_clock::time_point at, log_level level, std::string_view text) noexcept {
    emitting_.store(true, std::memory_order_relaxed);
    try {
        std::string_view rest;
        do {
            if (call_sinks(level, text)) return;
            if (rest.empty()) rest = stderr_.format(at, level, text);
        } while (!write_some(STDERR_FILENO, rest));
    } catch (...) {
        // No memory for the line: it is lost, the log goes on.
    }
    emitting_.store(false, std::memory_order_relaxed);
}

/// False: there is none.
bool log_writer::call_sinks(log_level level, std::string_view text) {
    std::vector<std::shared_ptr<log_sink>> all;
    {
        const std::lock_guard lock(sinks_mutex_);
        all = sinks_;
    }
    for (const auto& each : all) {
        const std::lock_guard lock(each->mutex);
        if (each->ended) continue;
        try {
            each->function(level, text);
        } catch (...) {
        }
    }
    return !all.empty();
}

bool log_writer::flush(nanoseconds within) noexcept {
    const std::uint64_t lines = ring_.claimed();
    const std::uint64_t dropped = ring_.dropped();
    const auto written = [&] { return ring_.taken() >= lines && reported_.load(std::memory_order_acquire) >= dropped; };
    if (written()) return true;
    if (on_log_thread) return false;
    start();
    wake();
    const nanoseconds begin = now();
    nanoseconds pause = std::chrono::microseconds{20};
    while (!written()) {
        const nanoseconds waited = now() - begin;
        const bool starved = started_.load() && !emitting_.load(std::memory_order_relaxed);
        if (waited >= within && (!starved || waited >= starved_patience)) return false;
        sleep_on({}, now() + pause);
        pause = std::min(pause * 2, nanoseconds{std::chrono::milliseconds{1}});
    }
    return true;
}

std::shared_ptr<log_sink> log_writer::add(log_function function) {
    auto made = std::make_shared<log_sink>();
    made->function = std::move(function);
    const std::lock_guard lock(sinks_mutex_);
    sinks_.push_back(made);
    return made;
}

void log_writer::remove(const std::shared_ptr<log_sink>& sink) noexcept {
    flush(flush_patience);
    {
        const std::lock_guard lock(sinks_mutex_);
        std::erase(sinks_, sink);
    }
    const std::lock_guard lock(sink->mutex);
    sink->ended = true;
    // Releases the captures of the function now, unless the function itself calls this.
    if (!on_log_thread) sink->function = {};
}

log_registration::log_registration(log_function function) {
    if (!function) return;
    writer_ = log_writer::get();
    if (writer_ == nullptr) throw std::bad_alloc{};
    sink_ = writer_->add(std::move(function));
}

log_registration& log_registration::operator=(log_registration&& other) noexcept {
    if (this == &other) return *this;
    end();
    writer_ = other.writer_;
    sink_ = std::move(other.sink_);
    return *this;
}

log_registration::~log_registration() {
    end();
}

void log_registration::end() noexcept {
    const auto ended = std::exchange(sink_, nullptr);
    if (ended != nullptr && writer_ == log_writer::find()) writer_->remove(ended);
}

bool flush_log(nanoseconds within) noexcept {
    log_writer* const writer = log_writer::find();
    return writer == nullptr || writer->flush(within);
}

void logger::write(log_level level, fmt::string_view text, fmt::format_args values) const noexcept {
    std::uint64_t unsaid = 0;
    if (limited_) {
        const auto allowed = limits.allow(text.data(), peer_, now());
        if (!allowed) return;
        unsaid = *allowed;
    }
    log_writer* const writer = log_writer::get();
    const bool written = writer != nullptr && writer->write(level, text, values, unsaid);
    if (!written && unsaid > 0) limits.keep_back(text.data(), unsaid);
}

}  // namespace accel::core
