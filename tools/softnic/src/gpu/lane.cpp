// SPDX-License-Identifier: Apache-2.0
#include "gpu/lane.hpp"

#include <cstring>

#include <sched.h>

namespace accel::softnic::gpu {
namespace {

using steady = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr microseconds wake_interval{100};
constexpr milliseconds health_interval{1};
constexpr microseconds spin_time{50};
constexpr int looks_between_clocks = 32;

std::uint32_t load(std::uint32_t& word) {
    return std::atomic_ref(word).load(std::memory_order_acquire);
}
void store(std::uint32_t& word, std::uint32_t value, std::memory_order order) {
    std::atomic_ref(word).store(value, order);
}

/// Not before `before`, on numbers that wrap.
bool reached(std::uint32_t number, std::uint32_t before) {
    return static_cast<std::int32_t>(number - before) >= 0;
}

void put(std::array<std::uint32_t, content_words>& content, std::size_t at, std::uint64_t value) {
    content[at] = static_cast<std::uint32_t>(value);
    content[at + 1] = static_cast<std::uint32_t>(value >> 32);
}

std::array<std::uint32_t, content_words> encode(const job& what) {
    std::array<std::uint32_t, content_words> content{};
    content[0] = static_cast<std::uint32_t>(what.what) | what.size << size_shift;
    if (what.payload != nullptr) content[0] |= in_line_bit;
    if (what.loose) content[0] |= loose_bit;
    put(content, 1, what.memory);
    if (what.payload != nullptr) {
        std::memcpy(&content[3], what.payload, what.size);
    } else if (what.what == action::write || what.what == action::read) {
        put(content, 3, what.host);
    } else {
        put(content, 3, what.operand);
        put(content, 5, what.expected);
    }
    return content;
}

std::uint32_t (&line_of(lane_memory& memory, std::uint32_t number))[line_words] {
    return memory.ring[(number - 1) % lane_depth];
}

}  // namespace

lane::lane(lane_memory& at, server& by, std::chrono::nanoseconds patience)
    : memory_(at), server_(by), patience_(patience) {
    std::memset(&memory_, 0, sizeof memory_);
}

bool lane::is_done(std::uint32_t number) const {
    const bool is_old = last_ + lane_depth - number >= 2 * lane_depth;  // it may be older than numbers tell
    return is_old || reached(load(memory_.done), number);
}

bool lane::unserved() const {
    const std::uint32_t newest = services_.load(std::memory_order_acquire);
    return load(memory_.left) == newest || granted_.load(std::memory_order_acquire) != newest;
}

std::uint32_t lane::begin_service() {
    granted_ = services_ + 1;
    return ++services_;
}

bool lane::expects_kernel() const {
    return granted_ != services_ && load(memory_.left) != services_;
}

bool lane::kernel_waits() const {
    return expects_kernel() && load(memory_.begun) == services_;
}

void lane::grant() {
    store(memory_.first, next(), std::memory_order_relaxed);
    store(memory_.granted, services_, std::memory_order_release);
    granted_.store(services_, std::memory_order_release);
}

std::uint32_t lane::next() const {
    return load(memory_.done) + 1;
}

bool lane::has_work() const {
    const std::uint32_t number = next();
    return load(line_of(memory_, number)[0]) == number;
}

std::uint32_t lane::submit(const job& what) {
    if (!wait(last_ + 1 - lane_depth)) return last_ + 1;
    const std::uint32_t number = prepare(what);
    publish();
    return number;
}

std::uint32_t lane::prepare(const job& what) {
    const auto content = encode(what);
    auto& line = line_of(memory_, ++last_);
    for (std::size_t quad = 0; quad < line_words / quad_words; ++quad)
        for (std::size_t at = 0; at < quad_words - 1; ++at)
            store(line[quad * quad_words + at + 1], content[quad * (quad_words - 1) + at], std::memory_order_relaxed);
    return last_;
}

/// The first one last: who sees it sees the others.
void lane::publish() {
    if (published_ == last_) return;
    for (std::uint32_t number = last_; number != published_; --number)
        for (std::size_t at = 0; at < line_words; at += quad_words)
            store(line_of(memory_, number)[at], number, std::memory_order_release);
    published_ = last_;
    if (unserved()) server_.wake(*this);
}

bool lane::wait(std::uint32_t number) {
    if (is_done(number)) return true;
    const auto start = steady::now();
    watch by{start, start, start + health_interval};
    while (!broken_) {
        for (int look = 0; look < looks_between_clocks; ++look) {
            if (is_done(number)) return true;
            __builtin_ia32_pause();
        }
        const auto now = steady::now();
        if (now > start + spin_time) ::sched_yield();
        attend(by, now);
    }
    return false;
}

/// The wait for a job begins once the job is published. Otherwise the patience with it could be over before it comes.
bool lane::look(std::uint32_t number) {
    if (is_done(number)) return true;
    const std::uint32_t first = next();
    if (broken_ || !reached(published_, first)) return false;
    const auto now = steady::now();
    if (looked_for_ != first) {
        looked_for_ = first;
        looking_ = {now, now, now + health_interval};
    }
    attend(looking_, now);
    return false;
}

void lane::attend(watch& by, time now) {
    if (unserved() && now >= by.wake_at) {
        server_.wake(*this);
        by.wake_at = now + wake_interval;
    }
    const bool hopeless = now >= by.look_at && !server_.alive();
    if (now >= by.look_at) by.look_at = now + health_interval;
    if (hopeless || now > by.start + patience_) give_up();
}

/// A server that comes late must find nothing: what the jobs are about may be gone by then.
void lane::give_up() {
    broken_ = true;
    server_.given_up();
    for (auto& line : memory_.ring)
        for (std::uint32_t at = 0; at < line_words; at += quad_words) store(line[at], 0, std::memory_order_release);
}

bool take_job(lane_memory& from, std::uint32_t number, std::array<std::uint32_t, content_words>& content) {
    auto& line = line_of(from, number);
    for (std::size_t quad = 0; quad < line_words / quad_words; ++quad) {
        std::uint32_t* words = line + quad * quad_words;
        if (load(words[0]) != number) return false;
        for (std::size_t at = 0; at < quad_words - 1; ++at)
            content[quad * (quad_words - 1) + at] = std::atomic_ref(words[at + 1]).load(std::memory_order_relaxed);
    }
    return true;
}

void finish_job(lane_memory& of, std::uint32_t number) {
    store(of.done, number, std::memory_order_release);
}

void leave(lane_memory& of, std::uint32_t service) {
    store(of.left, service, std::memory_order_release);
}

}  // namespace accel::softnic::gpu
