// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "dma/engine.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace accel::softnic::testing {

/// Memory as a GPU's: its addresses are taken, but only its engine gets at the bytes. Writes are kept back
/// until flush(), or for ever, but for those that somebody looks after; what is read ahead is as old as
/// it may be.
class hidden_memory final : public dma_engine {
  public:
    explicit hidden_memory(std::size_t size) : size_(size) {
        const int file = ::memfd_create("hidden", MFD_CLOEXEC);
        EXPECT_EQ(::ftruncate(file, static_cast<off_t>(size)), 0);
        outside_ = ::mmap(nullptr, size, PROT_NONE, MAP_SHARED, file, 0);
        inside_ = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        ::close(file);
    }
    ~hidden_memory() override {
        ::munmap(outside_, size_);
        ::munmap(inside_, size_);
    }
    hidden_memory(const hidden_memory&) = delete;
    hidden_memory& operator=(const hidden_memory&) = delete;

    /// What has really arrived.
    [[nodiscard]] std::span<std::uint8_t> bytes() const { return {static_cast<std::uint8_t*>(inside_), size_}; }
    [[nodiscard]] void* address() const { return outside_; }
    [[nodiscard]] std::size_t waiting() const { return posted_.size(); }

    bool lose_writes = false;
    bool refuse_reads = false;
    int flushes = 0;
    int fetches = 0;

    bool read(void* to, std::uint64_t from, std::size_t size) override {
        if (refuse_reads || !contains(from, size)) return false;
        apply();
        ++fetches;
        std::memcpy(to, bytes().data() + offset(from), size);
        return true;
    }
    bool read_part(void* to, std::uint64_t from, std::size_t size, std::uint64_t message,
                   std::uint64_t following) override {
        auto& held = ahead_[message];
        const bool has = from >= held.start && from + size <= held.start + held.bytes.size();
        if (!has) {
            EXPECT_TRUE(contains(from, size + following)) << "told to fetch what is not registered";
            held.start = from;
            held.bytes.resize(size + following);
            if (!read(held.bytes.data(), from, held.bytes.size())) return false;
        }
        std::memcpy(to, held.bytes.data() + (from - held.start), size);
        return true;
    }
    bool write(std::uint64_t to, const void* from, std::size_t size) override {
        if (!contains(to, size)) return false;
        post(to, from, size);
        return true;
    }
    write_start write_early(std::uint64_t to, const void* from, std::size_t size, write_order how,
                            std::uint64_t& mark) override {
        if (!contains(to, size)) return write_start::refused;
        if (how != write_order::due_behind && ++early_writes_ % 4 == 0) return write_start::later;
        mark = post(to, from, size);
        return write_start::begun;
    }
    bool write_last(std::uint64_t to, const void* from, std::size_t size, std::uint64_t after,
                    std::uint64_t& mark) override {
        if (!contains(to, size)) return false;
        mark = post(to, from, size);
        last_pieces_.push_back({std::move(posted_.back()), after == everything ? mark : after});
        posted_.pop_back();
        return true;
    }
    write_state state_of(std::uint64_t mark) override {
        const auto waits = [&](const last_piece& one) { return one.what.mark == mark; };
        const bool urgent = std::any_of(last_pieces_.begin(), last_pieces_.end(), waits);
        if (urgent && ++looks_ % 3 == 0) {
            apply_until(last_pieces_.front().after);
            put(last_pieces_.front().what);
            last_pieces_.pop_front();
        }
        if (!urgent && ++looks_ % 5 == 0) apply_until(mark);
        const bool on_its_way =
            std::any_of(last_pieces_.begin(), last_pieces_.end(), waits) ||
            std::any_of(posted_.begin(), posted_.end(), [&](const piece& one) { return !urgent && one.mark <= mark; });
        return on_its_way ? write_state::under_way : write_state::in_memory;
    }
    [[nodiscard]] bool defers() const override { return true; }
    bool flush() override {
        ++flushes;
        if (lose_writes && !posted_.empty()) {
            posted_.clear();
            return false;
        }
        apply();
        return true;
    }
    bool fetch_add(std::uint64_t at, std::uint64_t add, std::uint64_t& previous) override {
        if (!read(&previous, at, 8)) return false;
        const std::uint64_t sum = previous + add;
        std::memcpy(bytes().data() + offset(at), &sum, 8);
        return true;
    }
    bool compare_swap(std::uint64_t at, std::uint64_t expected, std::uint64_t desired,
                      std::uint64_t& previous) override {
        if (!read(&previous, at, 8)) return false;
        if (previous == expected) std::memcpy(bytes().data() + offset(at), &desired, 8);
        return true;
    }

  private:
    struct piece {
        std::size_t at;
        std::vector<std::uint8_t> bytes;
        std::uint64_t mark;
    };
    struct last_piece {
        piece what;
        std::uint64_t after;
    };
    struct fetched {
        std::uint64_t start = 0;
        std::vector<std::uint8_t> bytes;
    };

    [[nodiscard]] std::size_t offset(std::uint64_t at) const { return at - reinterpret_cast<std::uint64_t>(outside_); }
    [[nodiscard]] bool contains(std::uint64_t at, std::size_t size) const {
        return at >= reinterpret_cast<std::uint64_t>(outside_) && offset(at) + size <= size_;
    }
    std::uint64_t post(std::uint64_t to, const void* from, std::size_t size) {
        const auto* first = static_cast<const std::uint8_t*>(from);
        posted_.push_back({offset(to), {first, first + size}, ++marks_});
        return marks_;
    }
    void put(const piece& one) const {
        std::copy(one.bytes.begin(), one.bytes.end(), bytes().begin() + static_cast<std::ptrdiff_t>(one.at));
    }
    void apply_until(std::uint64_t mark) {
        while (!posted_.empty() && posted_.front().mark <= mark) {
            put(posted_.front());
            posted_.pop_front();
        }
    }
    void apply() {
        apply_until(marks_);
        for (; !last_pieces_.empty(); last_pieces_.pop_front()) put(last_pieces_.front().what);
    }

    std::size_t size_;
    void* outside_;
    void* inside_;
    std::deque<piece> posted_;
    std::deque<last_piece> last_pieces_;
    std::uint64_t marks_ = 0;
    int early_writes_ = 0, looks_ = 0;
    std::map<std::uint64_t, fetched> ahead_;
};

}  // namespace accel::softnic::testing
