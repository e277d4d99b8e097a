// SPDX-License-Identifier: Apache-2.0
#include "engine/runner.hpp"

#include <algorithm>

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>

namespace accel::softnic {
namespace {

constexpr unsigned rounds_before_sleep = 4;
constexpr std::uint64_t shortest_sleep_ns = 20'000;
constexpr std::uint64_t longest_sleep_busy_ns = 200'000;
constexpr std::uint64_t longest_sleep_idle_ns = 1'000'000;
constexpr std::uint64_t longest_sleep_unused_ns = 20'000'000;
/// A sleep ends so much before a packet of a modelled link is due. Not longer: a thread that spins loses its processor
/// for a time slice where others want it, and one that slept gets it at once.
constexpr std::uint64_t wake_up_ns = 10'000;
constexpr std::uint64_t virtual_step_ns = 1'000;
constexpr std::uint64_t longest_step_ns = 2'000'000;  ///< longer than any sleep of a device that has work

thread_local int depth = 0;

std::uint64_t monotonic_ns() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

/// The program's signals are the program's; only faults in guarded access are ours.
void block_signals() {
    sigset_t all;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

}  // namespace

bool inside_model() {
    return depth != 0;
}

model_guard::model_guard(nic& target) : nic_(target) {
    ++depth;
    nic_.callers.fetch_add(1, std::memory_order_relaxed);
    nic_.mutex.lock();
    nic_.callers.fetch_sub(1, std::memory_order_relaxed);
}

model_guard::~model_guard() {
    nic_.mutex.unlock();
    --depth;
}

/// With a modelled link the machine's clock, which all processes share, says when a packet arrives: a link does not
/// stand still.
runner::runner(nic& driven) : nic_(driven) {
    if (mode() != poll_mode::deterministic && nic_.state.link.on()) nic_.state.wire_clock = &monotonic_ns;
}

/// A step a round, or a shorter one to the moment when a packet arrives.
std::uint64_t runner::virtual_clock() {
    const hca& state = nic_.state;
    if (!state.link.on()) return virtual_time_ns_.fetch_add(virtual_step_ns);
    const bool soon = state.next_due > state.wire_now && state.next_due - state.wire_now < virtual_step_ns;
    return nic_.state.net->advance_virtual_time(soon ? state.next_due - state.wire_now : virtual_step_ns);
}

/// The device's own clock. Deterministic time goes on by one step a round, whatever the machine does
/// meanwhile. Else it is the machine's, but stands still where the device was kept from running: an adapter
/// always runs, and nobody's acknowledgement is late because of a busy processor.
std::uint64_t runner::clock() {
    if (mode() == poll_mode::deterministic) return virtual_clock();
    const std::uint64_t now = monotonic_ns();
    if (last_ns_ != 0 && now > last_ns_ + longest_step_ns) lost_ns_ += now - last_ns_ - longest_step_ns;
    last_ns_ = now;
    return now - lost_ns_;
}

/// A mutex is not fair: whoever has just unlocked it is the first to lock it again.
void runner::give_way() const {
    constexpr int patience = 1000;
    for (int i = 0; i < patience && nic_.callers.load(std::memory_order_relaxed) != 0; ++i) ::sched_yield();
}

bool runner::step() {
    give_way();
    const model_guard guard(nic_);
    return nic_.progress(clock());
}

/// For `softnic stats`.
void runner::show_cpu_time() {
    constexpr std::uint64_t interval_ns = 500'000'000;
    const std::uint64_t now = monotonic_ns();
    if (now < show_at_ns_) return;
    show_at_ns_ = now + interval_ns;
    node_record& shown = nic_.state.net->own_record();
    shown.threads_ns.store(device_threads_cpu_ns(), std::memory_order_relaxed);
    shown.helped_ns.store(helped_.nanoseconds(), std::memory_order_relaxed);
}

void runner::help() {
    if (inside_model() || !nic_.mutex.try_lock()) return;
    ++depth;
    if (nic_.has_something_to_do()) {
        const std::uint64_t before = helped_time::cycles();
        nic_.progress(clock());
        helped_.add(helped_time::cycles() - before);
    }
    --depth;
    nic_.mutex.unlock();
}

void runner::start() {
    if (mode() == poll_mode::deterministic) return;
    pthread_t thread{};
    const auto body = [](void* self) -> void* {
        static_cast<runner*>(self)->run();
        return nullptr;
    };
    if (::pthread_create(&thread, nullptr, body, this) == 0) ::pthread_detach(thread);
}

void runner::run() {
    block_signals();
    ::pthread_setname_np(::pthread_self(), "softnic");
    count_as_device_thread();
    ::prctl(PR_SET_TIMERSLACK, 1);
    if (mode() == poll_mode::spin)
        spin();
    else
        run_adaptive();
}

void runner::spin() {
    while (true) {
        if (step()) continue;
        show_cpu_time();
        ::sched_yield();
    }
}

/// 0: not at all, the next packet of a modelled link arrives before a sleep would end.
std::uint64_t runner::longest_sleep() {
    const model_guard guard(nic_);
    if (nic_.cqs().empty()) return longest_sleep_unused_ns;
    const std::uint64_t longest = nic_.busy() ? longest_sleep_busy_ns : longest_sleep_idle_ns;
    const hca& state = nic_.state;
    if (!state.link.on() || state.next_due == hca::never) return longest;
    const std::uint64_t wake_at = state.next_due - std::min(state.next_due, wake_up_ns);
    const std::uint64_t now = monotonic_ns();
    return wake_at > now ? std::min(longest, wake_at - now) : 0;
}

/// No sched_yield() here: it puts the thread behind every busy one for a whole time slice, while a thread
/// that slept is scheduled at once. Sleeps longer the longer nothing happens; packets from other processes
/// end the sleep, and the program's own calls do the device's work meanwhile.
void runner::run_adaptive() {
    unsigned quiet_rounds = 0;
    std::uint64_t sleep_ns = shortest_sleep_ns;
    while (true) {
        const std::uint32_t seen = nic_.state.net->arrivals();
        if (step()) {
            quiet_rounds = 0;
            sleep_ns = shortest_sleep_ns;
            continue;
        }
        if (++quiet_rounds < rounds_before_sleep) continue;
        show_cpu_time();
        const std::uint64_t longest = longest_sleep();
        if (longest == 0) continue;
        nic_.state.net->wait_for_arrival(seen, std::min(sleep_ns, longest));
        sleep_ns = std::min(sleep_ns * 2, longest);
    }
}

}  // namespace accel::softnic
