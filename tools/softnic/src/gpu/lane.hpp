// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/job.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace accel::softnic::gpu {

class lane;

/// Whoever does a lane's jobs: a copy kernel, or a thread.
class server {
  public:
    virtual ~server() = default;
    /// Jobs wait and nobody serves the lane. Returns at once; called again until somebody does.
    virtual void wake(lane& which) = 0;
    /// Asked now and then while somebody waits. False: nothing more will be done.
    [[nodiscard]] virtual bool alive() = 0;
    /// A lane has given up: none of its jobs will be done.
    virtual void given_up() {}
};

struct job {
    action what = action::write;
    std::uint32_t size = 0;
    std::uint64_t memory = 0;       ///< on the device
    std::uint64_t host = 0;         ///< pinned; with the same address modulo 16 as `memory`
    const void* payload = nullptr;  ///< at most inline_bytes, in place of `host`
    bool loose = false;             ///< done in any order with loose jobs next to it: a write from `host`
    std::uint64_t operand = 0;      ///< atomics: what to add, or to store
    std::uint64_t expected = 0;
};

/// Jobs in order, to one server. One thread submits and waits; every wait ends, at the latest after
/// `patience`, and a lane that had to give up once does nothing more.
class lane {
  public:
    lane(lane_memory& at, server& by, std::chrono::nanoseconds patience);

    /// The job's number. Jobs of a broken lane are done never.
    std::uint32_t submit(const job& what);
    /// submit() in two steps, so that the server finds several jobs at once. Only while there are places.
    std::uint32_t prepare(const job& what);
    void publish();
    [[nodiscard]] bool wait(std::uint32_t number);
    [[nodiscard]] bool is_done(std::uint32_t number) const;
    [[nodiscard]] bool idle() const { return is_done(last_); }
    [[nodiscard]] std::uint32_t outstanding() const { return last_ + 1 - next(); }
    /// wait() for who comes again: is the job done now? Takes care of the server, and gives up when it has done nothing
    /// for as long.
    [[nodiscard]] bool look(std::uint32_t number);
    [[nodiscard]] std::uint32_t last() const { return last_; }
    [[nodiscard]] bool broken() const { return broken_; }
    [[nodiscard]] std::uint64_t previous() const { return memory_.previous; }

    // For the server.
    [[nodiscard]] bool unserved() const;
    /// Number of the service that begins; the server writes it to `left` when it goes.
    std::uint32_t begin_service();
    /// The same of a kernel, which begins when the GPU has room for it, and then waits for grant().
    std::uint32_t begin_kernel() { return ++services_; }
    /// Such a kernel is to come, or waits.
    [[nodiscard]] bool expects_kernel() const;
    [[nodiscard]] bool kernel_waits() const;
    void grant();
    [[nodiscard]] lane_memory& memory() { return memory_; }
    /// The first job that is not done.
    [[nodiscard]] std::uint32_t next() const;
    [[nodiscard]] bool has_work() const;

  private:
    using time = std::chrono::steady_clock::time_point;
    /// What a wait does now and then.
    struct watch {
        time start{};
        time wake_at{};
        time look_at{};
    };
    void attend(watch& by, time now);
    void give_up();

    lane_memory& memory_;
    server& server_;
    std::chrono::nanoseconds patience_;
    std::uint32_t last_ = 0;
    std::uint32_t published_ = 0;  ///< the last job that the server can see
    std::atomic<std::uint32_t> services_{0};
    std::atomic<std::uint32_t> granted_{0};  ///< the newest service that may serve
    watch looking_;
    std::uint32_t looked_for_ = 0;  ///< the first job that was not done, at the last look
    bool broken_ = false;
};

/// The server's side, for servers that are threads: true and the content, if job `number` is there.
[[nodiscard]] bool take_job(lane_memory& from, std::uint32_t number, std::array<std::uint32_t, content_words>& content);
void finish_job(lane_memory& of, std::uint32_t number);
void leave(lane_memory& of, std::uint32_t service);

}  // namespace accel::softnic::gpu
