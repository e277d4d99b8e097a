// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "dma/engine.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <limits>
#include <span>
#include <vector>

#include <gtest/gtest.h>

namespace accel::softnic::testing {

/// Memory as a GPU's on virtual time: jobs take a while each and for their bytes, one after the other in each of two
/// lanes. Nobody else finds its addresses.
class timed_memory {
  public:
    explicit timed_memory(std::size_t size, std::uint64_t job_ns = 6'000) : bytes_(size), job_ns_(job_ns) {}

    /// The time of everything on virtual time, as hca::wire_clock.
    static std::uint64_t& clock() {
        static std::uint64_t now = 1;
        return now;
    }
    static std::uint64_t read_clock() { return clock() += 10; }

    static constexpr std::uint64_t address = std::uint64_t{1} << 46;
    bool refuses_early = false;
    bool loses = false;  ///< what is written from now on
    std::uint64_t waited_ns = 0;

    /// What has really arrived.
    [[nodiscard]] std::span<std::uint8_t> bytes() {
        advance();
        return bytes_;
    }
    bool read(void* to, std::uint64_t from, std::size_t size) {
        if (!contains(from, size) || !flush()) return false;
        std::memcpy(to, bytes_.data() + (from - address), size);
        return true;
    }
    bool write(std::uint64_t to, const void* from, std::size_t size) { return put(bulk_, to, from, size) != 0; }
    write_start write_early(std::uint64_t to, const void* from, std::size_t size, write_order how,
                            std::uint64_t& mark) {
        advance();
        if (refuses_early || !contains(to, size)) return write_start::refused;
        const bool may_wait = how == write_order::due_behind;
        if (!may_wait && !bulk_.running.empty() && bulk_.waiting_bytes >= largest_job) return write_start::later;
        mark = put(bulk_, to, from, size);
        return write_start::begun;
    }
    bool write_last(std::uint64_t to, const void* from, std::size_t size, std::uint64_t after, std::uint64_t& mark) {
        advance();
        if (refuses_early || !contains(to, size)) return false;
        const bool all_there = bulk_.running.empty() && bulk_.waiting.empty();
        const bool overtakes = after == dma_engine::everything ? all_there : (after & 1) != 0 || is_done(after);
        mark = put(overtakes ? urgent_ : bulk_, to, from, size) | (overtakes ? 1 : 0);
        return true;
    }
    write_state state_of(std::uint64_t mark) {
        if ((mark & 1) != 0) begin_last_pieces();
        advance();
        if (!is_done(mark)) return write_state::under_way;
        return lost_ ? write_state::lost : write_state::in_memory;
    }
    bool flush() {
        const std::uint64_t before = clock();
        begin_last_pieces();
        for (advance(); !bulk_.running.empty() || !urgent_.running.empty(); advance()) {
            const auto end = [](const lane& of) { return of.running.empty() ? never : of.ends_at; };
            clock() = std::max(clock(), std::min(end(bulk_), end(urgent_)));
        }
        waited_ns += clock() - before;
        return !std::exchange(lost_, false);
    }

  private:
    static constexpr std::size_t largest_job = 64 << 10;
    static constexpr std::uint64_t bytes_each_ns = 24;
    static constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

    struct piece {
        std::size_t at;
        std::vector<std::uint8_t> bytes;
        std::uint64_t since;
        bool lost;
    };
    struct lane {
        std::deque<piece> waiting;
        std::deque<piece> running;
        std::size_t waiting_bytes = 0;
        std::uint64_t written = 0, done = 0, ends_at = 0;
    };

    [[nodiscard]] bool contains(std::uint64_t at, std::size_t size) const {
        return at >= address && at - address + size <= bytes_.size();
    }
    [[nodiscard]] bool is_done(std::uint64_t mark) const {
        return ((mark & 1) != 0 ? urgent_ : bulk_).done >= mark >> 1;
    }
    std::uint64_t put(lane& by, std::uint64_t to, const void* from, std::size_t size) {
        if (!contains(to, size)) return 0;
        const auto* first = static_cast<const std::uint8_t*>(from);
        const std::uint64_t since = &by == &urgent_ ? never : clock();
        by.waiting.push_back({to - address, {first, first + size}, since, loses});
        by.waiting_bytes += size;
        advance();
        return ++by.written << 1;
    }
    void begin_last_pieces() {
        for (piece& one : urgent_.waiting) one.since = std::min(one.since, clock());
    }
    void advance() {
        for (lane* each : {&bulk_, &urgent_})
            while (step(*each)) {
            }
    }
    /// The end of a job, or the beginning of the next one.
    bool step(lane& of) {
        if (!of.running.empty()) {
            if (of.ends_at > clock()) return false;
            for (const piece& one : of.running) {
                lost_ |= one.lost;
                if (!one.lost)
                    std::copy(one.bytes.begin(), one.bytes.end(), bytes_.begin() + static_cast<std::ptrdiff_t>(one.at));
            }
            of.done += of.running.size();
            of.running.clear();
        }
        if (of.waiting.empty() || of.waiting.front().since == never) return false;
        const std::uint64_t start = std::max(of.ends_at, of.waiting.front().since);
        std::size_t size = 0;
        while (!of.waiting.empty() && size < largest_job && of.waiting.front().since <= start) {
            size += of.waiting.front().bytes.size();
            of.running.push_back(std::move(of.waiting.front()));
            of.waiting.pop_front();
        }
        of.waiting_bytes -= size;
        of.ends_at = start + job_ns_ + size / bytes_each_ns;
        return true;
    }

    std::vector<std::uint8_t> bytes_;
    std::uint64_t job_ns_;
    lane bulk_;
    lane urgent_;
    bool lost_ = false;
};

/// One registration of such memory.
class timed_view final : public dma_engine {
  public:
    explicit timed_view(timed_memory& of) : of_(of) {}

    bool read(void* to, std::uint64_t from, std::size_t size) override { return of_.read(to, from, size); }
    bool write(std::uint64_t to, const void* from, std::size_t size) override { return of_.write(to, from, size); }
    [[nodiscard]] bool defers() const override { return true; }
    bool flush() override { return of_.flush(); }
    bool fetch_add(std::uint64_t at, std::uint64_t add, std::uint64_t& previous) override {
        return compare_swap(at, 0, add, previous);
    }
    bool compare_swap(std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t&) override { return false; }
    write_start write_early(std::uint64_t to, const void* from, std::size_t size, write_order how,
                            std::uint64_t& mark) override {
        return of_.write_early(to, from, size, how, mark);
    }
    bool write_last(std::uint64_t to, const void* from, std::size_t size, std::uint64_t after,
                    std::uint64_t& mark) override {
        return of_.write_last(to, from, size, after, mark);
    }
    write_state state_of(std::uint64_t mark) override { return of_.state_of(mark); }
    [[nodiscard]] bool keeps_order_with(const dma_engine& other) const override {
        const auto* view = dynamic_cast<const timed_view*>(&other);
        return view != nullptr && &view->of_ == &of_;
    }

  private:
    timed_memory& of_;
};

}  // namespace accel::softnic::testing
