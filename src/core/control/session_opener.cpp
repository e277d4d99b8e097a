// SPDX-License-Identifier: Apache-2.0
#include "core/control/session_opener.hpp"

#include "core/guarded.hpp"
#include "core/thread.hpp"

#include <algorithm>
#include <new>
#include <string>
#include <thread>
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
    if (waiting_ == 0) return false;
    open_one(lock);
    return true;
}

bool session_opener::submit(open_job job) {
    {
        const std::lock_guard lock{mutex_};
        if (waiting_ >= max_waiting) return false;
        auto& line = jobs_.of(job.client.account());
        line.push_back(std::move(job));
        ++waiting_;
    }
    arrived_.notify_one();
    return true;
}

void session_opener::forget(const client_identity& client, std::uint64_t connection) {
    const std::lock_guard lock{mutex_};
    auto* line = jobs_.find(client.account());
    if (line == nullptr) return;
    waiting_ -= std::erase_if(*line, [&](const open_job& each) { return each.connection == connection; });
    if (waiting_ == 0) jobs_.clear();
}

std::vector<opened_session> session_opener::take(std::size_t count) {
    const std::lock_guard lock{mutex_};
    std::vector<opened_session> taken;
    taken.reserve(std::min(count, untaken_));
    for (; count > 0 && untaken_ > 0; --count, --untaken_) {
        auto& line = *opened_.next([](const std::string&) { return true; });
        taken.push_back(std::move(line.front()));
        line.pop_front();
    }
    if (untaken_ > 0)
        done_.set();
    else
        opened_.clear();
    return taken;
}

bool session_opener::idle() {
    const std::lock_guard lock{mutex_};
    return waiting_ == 0 && untaken_ == 0 && !busy_;
}

void session_opener::run() {
    std::unique_lock lock{mutex_};
    for (;;) {
        arrived_.wait(lock, [this] { return stopping_ || waiting_ > 0; });
        if (stopping_) return;
        open_one(lock);
    }
}

/// The oldest of the client whose turn it is. There is one.
open_job session_opener::take_next() {
    auto& line = *jobs_.next([](const std::string&) { return true; });
    open_job job = std::move(line.front());
    line.pop_front();
    if (--waiting_ == 0) jobs_.clear();
    return job;
}

/// Queues it for `take`. False: memory has run out; `done` is unchanged.
bool session_opener::keep(opened_session& done) noexcept {
    try {
        auto& line = opened_.of(done.job.client.account());
        line.push_back(std::move(done));  // taken only where there is room
        ++untaken_;
        return true;
    } catch (const std::bad_alloc&) {
        return false;
    }
}

void session_opener::open_one(std::unique_lock<std::mutex>& lock) {
    open_job job = take_next();
    busy_ = true;
    lock.unlock();
    auto outcome = guarded([&] { return host_.open_session(job.wish, job.client); });
    lock.lock();
    opened_session done{std::move(job), std::move(outcome)};
    while (!keep(done) && !stopping_) {
        lock.unlock();
        std::this_thread::sleep_for(pause_without_memory);
        lock.lock();
    }
    busy_ = false;
    done_.set();
}

}  // namespace accel::core
