// SPDX-License-Identifier: Apache-2.0
#include "core/control/session_opener.hpp"

#include "core/thread.hpp"

#include <utility>

namespace accel::core {
namespace {

constexpr std::size_t max_waiting = 65'536;

}  // namespace

session_opener::session_opener(session_host& host, wake_signal& done) : host_(host), done_(done) {}

session_opener::~session_opener() {
    {
        const std::lock_guard lock{mutex_};
        stopping_ = true;
    }
    arrived_.notify_one();
    if (thread_.joinable()) thread_.join();
}

void session_opener::start() {
    thread_ = start_thread("accel-opener", [this] { run(); });
}

bool session_opener::open_next() {
    std::unique_lock lock{mutex_};
    if (jobs_.empty()) return false;
    open_one(lock);
    return true;
}

bool session_opener::submit(open_job job) {
    {
        const std::lock_guard lock{mutex_};
        if (jobs_.size() >= max_waiting) return false;
        jobs_.push_back(std::move(job));
    }
    arrived_.notify_one();
    return true;
}

std::vector<opened_session> session_opener::take(std::size_t count) {
    const std::lock_guard lock{mutex_};
    std::vector<opened_session> taken;
    for (; count > 0 && !opened_.empty(); --count) {
        taken.push_back(std::move(opened_.front()));
        opened_.pop_front();
    }
    if (!opened_.empty()) done_.set();
    return taken;
}

bool session_opener::idle() {
    const std::lock_guard lock{mutex_};
    return jobs_.empty() && opened_.empty() && !busy_;
}

void session_opener::run() {
    std::unique_lock lock{mutex_};
    for (;;) {
        arrived_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
        if (stopping_) return;
        open_one(lock);
    }
}

void session_opener::open_one(std::unique_lock<std::mutex>& lock) {
    open_job job = std::move(jobs_.front());
    jobs_.pop_front();
    busy_ = true;
    lock.unlock();
    auto outcome = host_.open_session(job.wish, job.client);
    lock.lock();
    opened_.push_back({std::move(job), std::move(outcome)});
    busy_ = false;
    done_.set();
}

}  // namespace accel::core
