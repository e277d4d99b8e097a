// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include <nanobind/nanobind.h>

/// Who keeps what alive. Python may drop its objects on any thread, at any time, and at the end of the interpreter.
namespace accel::python {

namespace nb = nanobind;

/// Whether the interpreter is ending: from then on no thread of the library may enter it, and references are leaked.
[[nodiscard]] bool ending() noexcept;

/// How often this process is a child of fork() since the module was loaded. What an earlier generation made is not
/// used.
[[nodiscard]] unsigned fork_generation() noexcept;

/// Lets go of the GIL meanwhile. A thread that is late stays here for good when the interpreter ends: Python would end
/// it in the middle of C++ functions, and with it the process.
class unlocked {
  public:
    unlocked() noexcept : state_(PyEval_SaveThread()) {}
    unlocked(const unlocked&) = delete;
    unlocked& operator=(const unlocked&) = delete;
    ~unlocked();

  private:
    PyThreadState* state_;
};

/// Holds the GIL meanwhile, on any thread. Such a thread stays here likewise.
class locked {
  public:
    locked() noexcept;
    locked(const locked&) = delete;
    locked& operator=(const locked&) = delete;
    ~locked() { PyGILState_Release(state_); }

  private:
    PyGILState_STATE state_;
};

/// Keeps this thread's Python state from now until its end, and with it what Python code stores for the thread
/// (`threading.local`). For threads of the library: whoever joins them does not hold the GIL.
void keep_thread_state() noexcept;

/// A reference to a Python object that any thread may drop, with the GIL or without.
class reference {
  public:
    reference() noexcept = default;
    explicit reference(nb::object object) noexcept : object_(object.release().ptr()) {}
    reference(reference&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
    reference& operator=(reference&& other) noexcept {
        std::swap(object_, other.object_);
        return *this;
    }
    ~reference() { reset(); }
    void reset() noexcept;
    [[nodiscard]] nb::handle get() const noexcept { return object_; }
    explicit operator bool() const noexcept { return object_ != nullptr; }

  private:
    PyObject* object_ = nullptr;
};

/// Memory that Python's views keep alive: a slot with a response, an exchange, a region.
class owner {
  public:
    owner() = default;
    owner(const owner&) = delete;
    owner& operator=(const owner&) = delete;
    virtual ~owner() = default;
    [[nodiscard]] std::uint32_t views() const noexcept { return views_.load(std::memory_order_acquire); }

  private:
    friend class pin;
    /// The last view has gone. Any thread, with the GIL or without.
    virtual void unpinned() noexcept {}
    std::atomic<std::uint32_t> views_{0};
};

/// What a view holds: its memory stays valid. Owns a share of the memory's owner.
class pin {
  public:
    pin() noexcept = default;
    explicit pin(std::shared_ptr<owner> of) noexcept : of_(std::move(of)) { add(); }
    pin(const pin& other) noexcept : of_(other.of_) { add(); }
    pin(pin&& other) noexcept : of_(std::move(other.of_)) {}
    pin& operator=(pin other) noexcept {
        std::swap(of_, other.of_);
        return *this;
    }
    ~pin() {
        if (of_ && of_->views_.fetch_sub(1, std::memory_order_acq_rel) == 1) of_->unpinned();
    }

  private:
    void add() noexcept {
        if (of_) of_->views_.fetch_add(1, std::memory_order_relaxed);
    }
    std::shared_ptr<owner> of_;
};

/// Something with threads or sessions that has to end before the interpreter does.
class closable {
  public:
    closable() = default;
    closable(const closable&) = delete;
    closable& operator=(const closable&) = delete;
    virtual ~closable() = default;
    /// With the GIL; lets go of it while it waits.
    virtual void close_at_exit() noexcept = 0;
};

/// `one` is closed at the interpreter's end, if it is still there.
void close_at_exit(const std::shared_ptr<closable>& one);

/// The thread that Python's signal handlers run on.
[[nodiscard]] bool is_main_thread() noexcept;
/// Runs this on a thread of its own, without Python; the interpreter's end waits for it.
void run_beside(std::function<void()> task);

void add_lifetime(nb::module_& module);

}  // namespace accel::python
