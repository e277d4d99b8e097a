// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/event_signal.hpp"
#include "gpu/fake_stream.hpp"
#include "staging/accelerator.hpp"

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
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/// A stand-in for a GPU where there is none, behind the library's own contract: its memory is the host's, and
/// each stream is a thread that does what it is given in order, later. For the logic of staging, streams and
/// failures; it says nothing about CUDA.
namespace accel::tests {

class fake_device : public core::accelerator_device {
  public:
    explicit fake_device(std::int16_t ordinal) : kind_(memory_kind::cuda(ordinal)) {}

    [[nodiscard]] memory_kind kind() const noexcept override { return kind_; }
    [[nodiscard]] const std::string& name() const noexcept override { return name_; }
    [[nodiscard]] result<std::byte*> allocate(std::size_t bytes) override {
        const std::lock_guard lock(mutex_);
        if (allocated_ + bytes > capacity) return error{status::out_of_memory, 0, "the fake GPU is full"};
        // Zeroed, and of pages that cost nothing before they are touched. Shares none with other memory: a
        // forked child may not have the pages of a registration.
        constexpr std::size_t page = 4096;
        block memory(static_cast<std::byte*>(std::calloc(bytes + 256 + 2 * page, 1)), &std::free);
        if (!memory) return error{status::out_of_memory, 0, "no memory for the fake GPU"};
        const auto address = reinterpret_cast<std::uintptr_t>(memory.get());
        std::byte* const made = memory.get() + (page - address % page) + 256;
        blocks_[made] = {std::move(memory), {}, bytes};
        allocated_ += bytes;
        return made;
    }
    /// Memory of other processes too, as a GPU's is.
    [[nodiscard]] result<std::byte*> allocate_shareable(std::size_t bytes) override {
        if (!shares) return error{status::unsupported, 0, "a fake GPU that shares nothing"};
        const std::size_t size = (bytes + share_step - 1) / share_step * share_step;
        core::unique_fd made(::memfd_create(shared_name().c_str(), MFD_CLOEXEC));
        if (!made.open() || ::ftruncate(made.get(), static_cast<off_t>(size)) != 0)
            return error{status::out_of_memory, 0, "no memory for the fake GPU"};
        return map(std::move(made), size);
    }
    [[nodiscard]] result<core::unique_fd> share(const std::byte* memory) override {
        const std::lock_guard lock(mutex_);
        const auto found = blocks_.find(const_cast<std::byte*>(memory));
        if (found == blocks_.end() || !found->second.shared.open())
            return error{status::unsupported, 0, "this memory was not made to be shared"};
        return core::unique_fd(::fcntl(found->second.shared.get(), F_DUPFD_CLOEXEC, 0));
    }
    [[nodiscard]] result<std::byte*> map_shared(int fd, std::size_t bytes, core::shared_of whose) override {
        struct stat file {};
        const std::size_t size = (bytes + share_step - 1) / share_step * share_step;
        std::array<char, 64> name{};
        const std::string link = "/proc/self/fd/" + std::to_string(fd);
        const bool known = ::readlink(link.c_str(), name.data(), name.size() - 1) > 0;
        const bool own = known && std::string(name.data()) == "/memfd:" + shared_name() + " (deleted)";
        const bool of_peer = known && !own && std::string(name.data()).starts_with("/memfd:fake GPU ");
        if (!(whose == core::shared_of::device ? own : of_peer && reaches_peers) || ::fstat(fd, &file) != 0 ||
            static_cast<std::size_t>(file.st_size) < size)
            return error{status::system_error, 0, "the passed memory is not on this fake GPU, or too short"};
        return map(core::unique_fd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)), size);
    }
    void release(std::byte* memory) noexcept override {
        const std::lock_guard lock(mutex_);
        const auto found = blocks_.find(memory);
        if (found == blocks_.end()) return;
        allocated_ -= found->second.bytes;
        if (found->second.shared.open()) ::munmap(memory, found->second.bytes);
        blocks_.erase(found);
    }
    [[nodiscard]] result<std::unique_ptr<core::device_stream>> open_stream(stream_priority) override {
        return std::unique_ptr<core::device_stream>(std::make_unique<fake_stream>(failed, held, at_work));
    }
    [[nodiscard]] result<core::dma_buf> export_memory(const std::byte*, std::size_t) override {
        return error{status::unsupported, 0, "a fake GPU exports nothing"};
    }
    [[nodiscard]] result<void> watch() override {
        watched = true;
        return {};
    }
    [[nodiscard]] bool orders_inbound() const noexcept override { return ordered; }
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
    std::atomic<bool> watched{false};
    std::atomic<bool> ordered{true};  ///< kernels see what arrives in its order
    std::atomic<bool> shares{true};   ///< memory between processes
    std::atomic<bool> reaches_peers{true};
    std::atomic<int> at_work{0};
    std::atomic<std::size_t> capacity{std::size_t{4} << 30};
    /// Of shared memory: what is mapped at once.
    static constexpr std::size_t share_step = std::size_t{64} << 10;

  private:
    [[nodiscard]] std::string shared_name() const { return "fake GPU " + std::to_string(kind_.ordinal); }
    [[nodiscard]] result<std::byte*> map(core::unique_fd shared, std::size_t bytes) {
        void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shared.get(), 0);
        if (at == MAP_FAILED) return error{status::out_of_memory, 0, "no memory for the fake GPU"};
        const std::lock_guard lock(mutex_);
        auto* const made = static_cast<std::byte*>(at);
        blocks_[made] = {{nullptr, &std::free}, std::move(shared), bytes};
        allocated_ += bytes;
        return made;
    }
    using block = std::unique_ptr<std::byte, decltype(&std::free)>;
    struct allocation {
        block memory{nullptr, &std::free};
        core::unique_fd shared;  ///< in place of `memory`
        std::size_t bytes = 0;
    };
    memory_kind kind_;
    std::string name_ = "a fake GPU";
    mutable std::mutex mutex_;
    std::map<std::byte*, allocation> blocks_;
    std::size_t allocated_ = 0;
};

class fake_accelerator : public core::accelerator {
  public:
    [[nodiscard]] result<std::string> probe() override { return std::string{"fake GPUs"}; }
    [[nodiscard]] result<core::accelerator_device*> open(memory_kind kind) override {
        const std::lock_guard lock(mutex_);
        auto& place = devices_[kind.ordinal];
        if (place == nullptr) place = make_device(kind.ordinal);
        return place.get();
    }
    [[nodiscard]] std::vector<core::accelerator_device*> opened() override {
        const std::lock_guard lock(mutex_);
        std::vector<core::accelerator_device*> all;
        for (const auto& [ordinal, each] : devices_) all.push_back(each.get());
        return all;
    }
    [[nodiscard]] result<void> check(const void* memory, std::size_t bytes, memory_kind said) override {
        const std::lock_guard lock(mutex_);
        for (const auto& [ordinal, each] : devices_)
            if (each->holds(memory, bytes) != (said == each->kind()))
                return error{status::invalid_argument, 0, "this memory is of another kind"};
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

  protected:
    [[nodiscard]] virtual std::unique_ptr<fake_device> make_device(std::int16_t ordinal) const {
        return std::make_unique<fake_device>(ordinal);
    }

  private:
    std::mutex mutex_;
    std::map<int, std::unique_ptr<fake_device>> devices_;
};

}  // namespace accel::tests
