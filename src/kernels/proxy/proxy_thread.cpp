// SPDX-License-Identifier: Apache-2.0
#include "kernels/proxy/proxy_thread.hpp"

#include "core/event_signal.hpp"
#include "core/log.hpp"
#include "core/net/descriptor_error.hpp"
#include "core/thread.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <sys/prctl.h>
#include <unistd.h>

namespace accel::gpu {
namespace {

/// How often a thread that waits for the end of a round looks.
constexpr std::chrono::microseconds look_interval{20};

}  // namespace

/// The state of the thread. The thread owns it too: it outlives a `proxy_thread` that could not wait for it.
class proxy_thread::loop {
  public:
    explicit loop(const proxy_pace& pace) noexcept : pace_(pace) {}
    [[nodiscard]] static result<void> start(const std::shared_ptr<loop>& made);
    void stop() noexcept;

    void add(served_rings& rings);
    [[nodiscard]] bool remove(const served_rings& rings, core::nanoseconds bound) noexcept;
    [[nodiscard]] std::size_t size() noexcept;
    [[nodiscard]] pid_t id() const noexcept { return id_.load(std::memory_order_relaxed); }

  private:
    void run() noexcept;
    void take_news() noexcept;
    [[nodiscard]] bool serve_all() noexcept;
    [[nodiscard]] bool nap(core::nanoseconds bound) noexcept;
    std::uint32_t tell() noexcept;
    template <class Condition>
    [[nodiscard]] static bool wait(core::nanoseconds bound, const Condition& done) noexcept;

    const proxy_pace pace_;
    core::wake_signal wake_;
    std::thread thread_;

    // For the thread alone.
    std::vector<served_rings*> served_;
    std::vector<pollfd> sleep_on_;

    std::atomic<pid_t> id_{0};
    std::atomic<bool> stop_{false};
    std::atomic<bool> ended_{false};
    std::atomic<std::uint32_t> told_{0};   ///< news so far, free-running
    std::atomic<std::uint32_t> taken_{0};  ///< of them
    std::mutex mutex_;                     ///< of what follows; met when rings come or go
    std::vector<served_rings*> wanted_;
};

result<void> proxy_thread::loop::start(const std::shared_ptr<loop>& made) {
    if (!made->wake_.open()) return core::no_descriptor("for the proxy", made->wake_.failure());
    made->sleep_on_.push_back({made->wake_.fd(), POLLIN, 0});
    try {
        made->thread_ = core::start_thread("accel-proxy", [made] { made->run(); });
    } catch (const std::system_error& none) {
        return error{status::system_error, none.code().value(), "proxy: no thread could be started"};
    }
    return {};
}

void proxy_thread::loop::stop() noexcept {
    stop_.store(true, std::memory_order_release);
    wake_.set();
    if (wait(max_round, [this] { return ended_.load(std::memory_order_acquire); })) return thread_.join();
    core::log().error("proxy: a device's driver does not return; its thread is not joined");
    thread_.detach();
}

template <class Condition>
bool proxy_thread::loop::wait(core::nanoseconds bound, const Condition& done) noexcept {
    const core::nanoseconds deadline = core::deadline_after(bound);
    while (!done()) {
        const core::nanoseconds now = core::now();
        if (now >= deadline) return done();
        core::sleep_on({}, std::min(deadline, now + look_interval));
    }
    return true;
}

// Rings that come and go.

std::uint32_t proxy_thread::loop::tell() noexcept {
    const std::uint32_t mine = told_.fetch_add(1, std::memory_order_acq_rel) + 1;
    wake_.set();
    return mine;
}

void proxy_thread::loop::add(served_rings& rings) {
    const std::lock_guard lock(mutex_);
    wanted_.push_back(&rings);
    (void)tell();
}

/// Once the thread has taken this list of rings, or a later one, the round that used the old list is over.
bool proxy_thread::loop::remove(const served_rings& rings, core::nanoseconds bound) noexcept {
    std::uint32_t mine = 0;
    {
        const std::lock_guard lock(mutex_);
        std::erase(wanted_, &rings);
        mine = tell();
    }
    return wait(bound, [&] { return static_cast<std::int32_t>(taken_.load(std::memory_order_acquire) - mine) >= 0; });
}

std::size_t proxy_thread::loop::size() noexcept {
    const std::lock_guard lock(mutex_);
    return wanted_.size();
}

void proxy_thread::loop::take_news() noexcept {
    const std::lock_guard lock(mutex_);
    try {
        sleep_on_.reserve(1 + 2 * wanted_.size());
        served_ = wanted_;
    } catch (const std::bad_alloc&) {
        return;  // the next round tries again; a shorter list needs no memory
    }
    sleep_on_.resize(1);
    for (const served_rings* each : served_) {
        sleep_on_.push_back({each->news_fd(), POLLIN, 0});
        sleep_on_.push_back({each->event_fd(), POLLIN, 0});
    }
    taken_.store(told_.load(std::memory_order_relaxed), std::memory_order_release);
}

// The thread.

void proxy_thread::loop::run() noexcept {
    ::prctl(PR_SET_TIMERSLACK, 1);  // naps are as long as they say
    id_.store(::gettid(), std::memory_order_relaxed);
    core::spinner spinner(poll_mode::adaptive);
    core::nanoseconds quiet_since = core::now();
    while (!stop_.load(std::memory_order_acquire)) {
        if (serve_all()) {
            spinner.restart();
            quiet_since = core::now();
            continue;
        }
        const core::nanoseconds silence = core::now() - quiet_since;
        if (silence < pace_.spin)
            spinner.pause();
        else if (!nap(std::clamp(silence / 64, pace_.nap, pace_.longest_nap)))
            quiet_since = core::now();
    }
    ended_.store(true, std::memory_order_release);
}

/// One round for each, so that nobody waits for more than a round of all others.
bool proxy_thread::loop::serve_all() noexcept {
    bool any = false;
    if (taken_.load(std::memory_order_relaxed) != told_.load(std::memory_order_acquire)) {
        take_news();
        any = true;
    }
    for (served_rings* each : served_) any = each->progress() || any;
    return any;
}

/// False: there was something to do before it began.
bool proxy_thread::loop::nap(core::nanoseconds bound) noexcept {
    bool any = false;
    for (served_rings* each : served_) any = !each->fall_asleep() || any;
    if (any) return false;
    core::sleep_on(sleep_on_, core::now() + bound);
    if ((sleep_on_[0].revents & POLLIN) != 0) wake_.clear();
    for (std::size_t i = 0; i < served_.size(); ++i) {
        const bool news = (sleep_on_[1 + 2 * i].revents & POLLIN) != 0;
        served_[i]->wake_up(news, (sleep_on_[2 + 2 * i].revents & POLLIN) != 0);
    }
    return true;
}

// The public face.

result<std::unique_ptr<proxy_thread>> proxy_thread::start(const proxy_pace& pace) {
    auto made = std::make_shared<loop>(pace);
    if (auto started = loop::start(made); !started) return started.error();
    return std::unique_ptr<proxy_thread>(new proxy_thread(std::move(made)));
}

proxy_thread::~proxy_thread() {
    loop_->stop();
}
void proxy_thread::add(served_rings& rings) {
    loop_->add(rings);
}
bool proxy_thread::remove(const served_rings& rings, core::nanoseconds bound) noexcept {
    return loop_->remove(rings, bound);
}
std::size_t proxy_thread::size() const noexcept {
    return loop_->size();
}
pid_t proxy_thread::id() const noexcept {
    return loop_->id();
}

}  // namespace accel::gpu
