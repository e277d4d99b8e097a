#pragma once

#include "core/accelerator.hpp"
#include "core/event_signal.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

/// A stand-in for a GPU where there is none, behind the library's own contract: its memory is the host's, and
/// each stream is a thread that does what it is given in order, later. For the logic of staging, streams and
/// failures; it says nothing about CUDA.
namespace accel::tests {

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
        at_work_.fetch_add(1);
        {
            const std::lock_guard lock(mutex_);
            queue_.push_back(std::move(work));
        }
        changed_.notify_all();
    }

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
        launch([this, to, from, bytes] {
            while (held_ && !failed_) std::this_thread::sleep_for(std::chrono::microseconds{100});
            if (bytes > 0 && !failed_) std::memcpy(to, from, bytes);
        });
    }
    void copy_piece(std::byte* to, const std::byte* from, std::size_t bytes) noexcept override {
        const unsigned now = pieces_.fetch_add(1) + 1;
        if (now > most_pieces_seen) most_pieces_seen = now;
        copy(to, from, bytes);
        launch([this] { pieces_.fetch_sub(1); });
    }
    [[nodiscard]] unsigned pieces_under_way() noexcept override { return failed_ ? 0 : pieces_.load(); }
    /// Of all streams; since it was set to 0.
    inline static std::atomic<unsigned> most_pieces_seen{0};

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

class fake_device final : public core::accelerator_device {
  public:
    explicit fake_device(std::int16_t ordinal) : kind_(memory_kind::cuda(ordinal)) {}

    [[nodiscard]] memory_kind kind() const noexcept override { return kind_; }
    [[nodiscard]] const std::string& name() const noexcept override { return name_; }
    [[nodiscard]] result<std::byte*> allocate(std::size_t bytes) override {
        const std::lock_guard lock(mutex_);
        if (allocated_ + bytes > capacity) return error{status::out_of_memory, 0, "the fake GPU is full"};
        // Zeroed, and of pages that cost nothing before they are touched.
        block memory(static_cast<std::byte*>(std::calloc(bytes + 256, 1)), &std::free);
        if (!memory) return error{status::out_of_memory, 0, "no memory for the fake GPU"};
        auto address = reinterpret_cast<std::uintptr_t>(memory.get());
        std::byte* const made = memory.get() + (256 - address % 256);
        blocks_[made] = {std::move(memory), bytes};
        allocated_ += bytes;
        return made;
    }
    void release(std::byte* memory) noexcept override {
        const std::lock_guard lock(mutex_);
        const auto found = blocks_.find(memory);
        if (found == blocks_.end()) return;
        allocated_ -= found->second.bytes;
        blocks_.erase(found);
    }
    [[nodiscard]] result<std::unique_ptr<core::device_stream>> open_stream(stream_priority) override {
        return std::unique_ptr<core::device_stream>(std::make_unique<fake_stream>(failed, held, at_work));
    }
    [[nodiscard]] result<core::dma_buf> export_memory(const std::byte*, std::size_t) override {
        return error{status::unsupported, 0, "a fake GPU exports nothing"};
    }
    [[nodiscard]] result<void> when_ended(CUstream_st* stream, void (*done)(void*), void* argument) override {
        fake_stream::of(stream).launch([done, argument] { done(argument); });
        return {};
    }
    [[nodiscard]] std::size_t allocated() const noexcept override {
        const std::lock_guard lock(mutex_);
        return allocated_;
    }
    [[nodiscard]] bool alive() const noexcept override { return !failed; }
    void make_inbound_visible() noexcept override {}
    [[nodiscard]] bool holds(const void* memory, std::size_t bytes) const {
        const auto* const begin = static_cast<const std::byte*>(memory);
        const std::lock_guard lock(mutex_);
        auto after = blocks_.upper_bound(const_cast<std::byte*>(begin));
        if (after == blocks_.begin()) return false;
        --after;
        return begin + bytes <= after->first + after->second.bytes;
    }

    std::atomic<bool> failed{false};
    std::atomic<bool> held{false};  ///< copies wait
    std::atomic<int> at_work{0};
    std::atomic<std::size_t> capacity{std::size_t{4} << 30};

  private:
    using block = std::unique_ptr<std::byte, decltype(&std::free)>;
    struct allocation {
        block memory{nullptr, &std::free};
        std::size_t bytes = 0;
    };
    memory_kind kind_;
    std::string name_ = "a fake GPU";
    mutable std::mutex mutex_;
    std::map<std::byte*, allocation> blocks_;
    std::size_t allocated_ = 0;
};

class fake_accelerator final : public core::accelerator {
  public:
    [[nodiscard]] result<std::string> probe() override { return std::string{"fake GPUs"}; }
    [[nodiscard]] result<core::accelerator_device*> open(memory_kind kind) override {
        const std::lock_guard lock(mutex_);
        auto& place = devices_[kind.ordinal];
        if (place == nullptr) place = std::make_unique<fake_device>(kind.ordinal);
        return place.get();
    }
    [[nodiscard]] result<void> check(const void* memory, std::size_t bytes, memory_kind said) override {
        const std::lock_guard lock(mutex_);
        for (const auto& [ordinal, each] : devices_) {
            if (each->holds(memory, bytes) != (said == each->kind()))
                return error{status::invalid_argument, 0, "this memory is of another kind"};
        }
        return {};
    }
    [[nodiscard]] result<bool> pin(void*, std::size_t) override {
        ++pins;
        return true;
    }
    void unpin(void*) noexcept override { --pins; }
    [[nodiscard]] result<bool> pin_registers(void* page, std::size_t bytes) override {
        if (refuses_registers) return error{status::unsupported, 0, "a fake GPU that maps no registers"};
        return pin(page, bytes);
    }
    [[nodiscard]] fake_device& device(std::int16_t ordinal = 0) {
        return static_cast<fake_device&>(**open(memory_kind::cuda(ordinal)));
    }
    std::atomic<int> pins{0};
    std::atomic<bool> refuses_registers{false};

  private:
    std::mutex mutex_;
    std::map<int, std::unique_ptr<fake_device>> devices_;
};

}  // namespace accel::tests
