// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "staging/accelerator.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace accel::tests {

/// A stream of the stand-in for a GPU: a thread that does what it is given, in order.
class fake_stream final : public core::device_stream {
  public:
    fake_stream(std::atomic<bool>& failed, std::atomic<bool>& held, std::atomic<int>& at_work)
        : failed_(failed), held_(held), at_work_(at_work), thread_([this] { run(); }) {}
    ~fake_stream() override {
        {
            const std::lock_guard lock(mutex_);
            ending_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }
    fake_stream(const fake_stream&) = delete;
    fake_stream& operator=(const fake_stream&) = delete;

    [[nodiscard]] static fake_stream& of(CUstream_st* native) {
        return *static_cast<fake_stream*>(static_cast<void*>(native));
    }
    /// As a kernel: runs when all that was given before has run.
    void launch(std::function<void()> work) {
        if (recording_ != nullptr) {
            recording_->push_back(std::move(work));
            return;
        }
        at_work_.fetch_add(1);
        {
            const std::lock_guard lock(mutex_);
            queue_.push_back(std::move(work));
        }
        changed_.notify_all();
    }

    /// What is launched from now on is kept there, and does not run; null ends that. On the launching thread.
    void record_into(std::vector<std::function<void()>>* recording) { recording_ = recording; }

    [[nodiscard]] CUstream_st* native() const noexcept override {
        return static_cast<CUstream_st*>(static_cast<void*>(const_cast<fake_stream*>(this)));
    }
    void begin() noexcept override {
        const std::lock_guard lock(mutex_);
        times_ = {};
        finished_ = false;
    }
    void make_current() noexcept override {}
    void copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept override {
        const bool pageable = copies_pageable_memory;
        std::atomic<bool> copied{false};
        launch([this, to, from, bytes, pageable, &copied] {
            while (held_ && !failed_) std::this_thread::sleep_for(std::chrono::microseconds{100});
            if (bytes > 0 && !failed_) std::memcpy(to, from, bytes);
            if (pageable) std::this_thread::sleep_for(pageable_copy);
            if (pageable) copied = true;
        });
        while (pageable && !copied) std::this_thread::yield();
    }
    /// A GPU's driver returns from a copy of pageable memory when it has been made. Then it takes `pageable_copy`.
    inline static std::atomic<bool> copies_pageable_memory{false};
    static constexpr std::chrono::milliseconds pageable_copy{20};
    void copy_piece(std::byte* to, const std::byte* from, std::size_t bytes) noexcept override {
        const unsigned now = pieces_.fetch_add(1) + 1;
        if (now > max_pieces_seen) max_pieces_seen = now;
        copy(to, from, bytes);
        launch([this] { pieces_.fetch_sub(1); });
    }
    [[nodiscard]] unsigned pieces_under_way() noexcept override { return failed_ ? 0 : pieces_.load(); }
    /// Of all streams; since it was set to 0.
    inline static std::atomic<unsigned> max_pieces_seen{0};

    void mark(core::stream_mark what) noexcept override {
        launch([this, what] {
            const std::lock_guard lock(mutex_);
            times_[static_cast<std::size_t>(what)] = core::now();
        });
    }
    void finish(void (*done)(void*), void* argument) noexcept override {
        mark(core::stream_mark::finished);
        launch([this, done, argument] {
            {
                const std::lock_guard lock(mutex_);
                finished_ = true;
            }
            if (done != nullptr && !failed_) done(argument);
        });
    }
    [[nodiscard]] core::stream_progress poll() noexcept override {
        const std::lock_guard lock(mutex_);
        if (failed_) return core::stream_progress::failed;
        return finished_ ? core::stream_progress::done : core::stream_progress::running;
    }
    [[nodiscard]] core::nanoseconds between(core::stream_mark from, core::stream_mark to) noexcept override {
        const std::lock_guard lock(mutex_);
        const auto first = times_[static_cast<std::size_t>(from)];
        const auto last = times_[static_cast<std::size_t>(to)];
        return first.count() == 0 || last.count() == 0 ? core::nanoseconds{} : last - first;
    }

  private:
    void run() {
        std::unique_lock lock(mutex_);
        for (;;) {
            changed_.wait(lock, [this] { return ending_ || !queue_.empty(); });
            if (queue_.empty()) return;
            const auto work = std::move(queue_.front());
            queue_.pop_front();
            lock.unlock();
            work();
            at_work_.fetch_sub(1);
            lock.lock();
        }
    }

    std::vector<std::function<void()>>* recording_ = nullptr;
    std::atomic<unsigned> pieces_{0};
    std::atomic<bool>& failed_;
    std::atomic<bool>& held_;
    std::atomic<int>& at_work_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> queue_;
    std::array<core::nanoseconds, core::stream_mark_count> times_{};
    bool finished_ = false;
    bool ending_ = false;
    std::thread thread_;
};

}  // namespace accel::tests
