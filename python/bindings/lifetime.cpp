// SPDX-License-Identifier: Apache-2.0
#include "lifetime.hpp"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include <pthread.h>
#include <unistd.h>

namespace accel::python {

namespace {

std::atomic<bool> interpreter_ends{false};
std::thread::id ends_on;  ///< the thread that ends it
std::atomic<unsigned> forks{0};
/// Threads that are about to take the GIL. Each counts itself before it asks whether the interpreter ends.
std::atomic<int> entering{0};

/// Tasks of `run_beside`.
std::atomic<int> beside{0};

void begin_to_enter() noexcept {
    entering.fetch_add(1);
    if (!interpreter_ends.load() || ends_on == std::this_thread::get_id()) return;
    entering.fetch_sub(1);
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

/// The Python state of a thread that Python has not made.
class thread_state {
  public:
    thread_state() noexcept {
        begin_to_enter();
        static_cast<void>(PyGILState_Ensure());
        entering.fetch_sub(1);
        own_ = PyEval_SaveThread();
    }
    thread_state(const thread_state&) = delete;
    thread_state& operator=(const thread_state&) = delete;
    ~thread_state() {
        if (ending()) return;
        begin_to_enter();
        PyEval_RestoreThread(own_);
        entering.fetch_sub(1);
        PyGILState_Release(PyGILState_UNLOCKED);
    }

  private:
    PyThreadState* own_;
};

/// Never destroyed: threads may still ask at the process's end.
struct open_list {
    std::mutex lock;
    std::vector<std::weak_ptr<closable>> list;
};
open_list& open_ones() {
    static auto* const made = new open_list;
    return *made;
}

void close_all() noexcept {
    std::vector<std::weak_ptr<closable>> all;
    {
        auto& open = open_ones();
        const std::lock_guard held(open.lock);
        all.swap(open.list);
    }
    // Latest first: clients usually come after their servers.
    for (auto at = all.rbegin(); at != all.rend(); ++at)
        if (const auto one = at->lock()) one->close_at_exit();
    ends_on = std::this_thread::get_id();
    interpreter_ends.store(true);
    // Those that have asked before get the GIL now.
    PyThreadState* const state = PyEval_SaveThread();
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    while (entering.load() != 0 && std::chrono::steady_clock::now() < until)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    while (beside.load() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    PyEval_RestoreThread(state);
}

}  // namespace

bool is_main_thread() noexcept {
    return ::gettid() == ::getpid();
}

void run_beside(std::function<void()> task) {
    beside.fetch_add(1);
    try {
        std::thread([own = std::move(task)]() mutable {
            own();
            own = nullptr;
            beside.fetch_sub(1);
        }).detach();
    } catch (...) {
        beside.fetch_sub(1);
        throw;
    }
}

bool ending() noexcept {
    return interpreter_ends.load(std::memory_order_acquire);
}

unlocked::~unlocked() {
    begin_to_enter();
    PyEval_RestoreThread(state_);
    entering.fetch_sub(1);
}

locked::locked() noexcept {
    begin_to_enter();
    state_ = PyGILState_Ensure();
    entering.fetch_sub(1);
}

void keep_thread_state() noexcept {
    thread_local bool looked = false;
    if (std::exchange(looked, true) || PyGILState_GetThisThreadState() != nullptr) return;
    thread_local const thread_state kept;
}

unsigned fork_generation() noexcept {
    return forks.load(std::memory_order_relaxed);
}

void reference::reset() noexcept {
    PyObject* const object = std::exchange(object_, nullptr);
    if (object == nullptr || ending()) return;
    const locked held;
    Py_DECREF(object);
}

void close_at_exit(const std::shared_ptr<closable>& one) {
    auto& open = open_ones();
    const std::lock_guard held(open.lock);
    std::erase_if(open.list, [](const auto& each) { return each.expired(); });
    open.list.push_back(one);
}

void add_lifetime(nb::module_& module) {
    ::pthread_atfork(nullptr, nullptr, [] {
        forks.fetch_add(1, std::memory_order_relaxed);
        entering.store(0);
        beside.store(0);
    });
    module.def("_close_all", &close_all);
    nb::module_::import_("atexit").attr("register")(module.attr("_close_all"));
}

}  // namespace accel::python
