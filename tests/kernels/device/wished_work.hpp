// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "conformance/payload.hpp"
#include "device/service_rig.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

/// Servers that do what requests say, as kernels or as handlers: many requests at once, answered in any order.
namespace accel::tests {

enum class wish : std::uint32_t {
    answer,
    hold,     ///< answer once the test says so
    outlast,  ///< answer once nobody waits for the answer
    stream,   ///< answer in parts
};

/// The beginning of a request. Requests without it are echoed.
struct wished {
    static constexpr std::uint64_t known = 0x7773'6864'2062'7977;
    std::uint64_t is = known;
    std::uint64_t number = 0;  ///< of the call; the bytes of parts follow from it
    wish what = wish::answer;
    std::uint32_t code = 0;  ///< the answer is a failure with this code; 0: an echo, or the end of the parts
    std::uint32_t target = 0;
    std::uint32_t stalls_after = 0;  ///< this number of parts, until nobody waits; 0: never
    std::uint64_t parts = 0;
    std::uint64_t bytes = 0;  ///< of part i: these, and i % 50
    [[nodiscard]] std::uint64_t bytes_of(std::uint64_t part) const { return bytes + part % 50; }
    [[nodiscard]] std::uint64_t seed_of(std::uint64_t part) const { return (number << 32) + part; }
};

/// The trace that call `number` has. One call in three has none.
inline trace_context trace_of(std::uint64_t number) {
    trace_context out;
    if (number % 3 == 0) return out;
    for (std::size_t i = 0; i < out.trace_id.size(); ++i) out.trace_id[i] = static_cast<std::uint8_t>(mix(number + i));
    out.parent_id.back() = 9;
    out.flags = trace_context::sampled;
    return out;
}

constexpr std::uint32_t code_of_unknown_target = 98;
constexpr const char* failure_text = "as was wished";

/// The test's word to all workers, and what they saw.
class wished_work {
  public:
    std::atomic<bool> answers_held{false};  ///< all of them
    std::atomic<bool> forgets{false};       ///< requests that are not answered when its service stops
    std::atomic<bool> over{false};          ///< the test ends: nothing is worked on any longer
    std::atomic<int> at_work{0};            ///< requests that are taken and not answered
    std::atomic<std::uint64_t> requests{0};
    std::atomic<std::int64_t> last_time_left{0};

    void let_answer(std::uint64_t number) { insert(may_answer_, number); }
    /// Before the call ends early: from now on its worker may hear that nobody waits.
    void give_up(std::uint64_t number) { insert(given_up_, number); }
    [[nodiscard]] bool has_taken(std::uint64_t number) const { return has(taken_, number); }
    [[nodiscard]] bool has_heard(std::uint64_t number) const { return has(heard_, number); }
    [[nodiscard]] bool may_answer(std::uint64_t number) const { return answers_held || has(may_answer_, number); }
    void take(std::uint64_t number) { insert(taken_, number); }
    /// For the message of a test that waits in vain.
    [[nodiscard]] std::string at_work_on() const {
        const std::lock_guard lock(mutex_);
        std::string out;
        for (const auto& [number, what] : working_on_)
            out += "call " + std::to_string(number) + ", wish " + std::to_string(static_cast<int>(what)) + "; ";
        return out;
    }
    void begin(const wished& what) {
        ++at_work;
        const std::lock_guard lock(mutex_);
        working_on_.emplace(what.number, what.what);
    }
    void end(const wished& what) {
        --at_work;
        const std::lock_guard lock(mutex_);
        working_on_.erase(what.number);
    }
    void hear(std::uint64_t number) {
        if (!has(given_up_, number)) wrong("told that nobody waits for a call that its client waits for");
        insert(heard_, number);
    }
    void wrong(const std::string& what) {
        const std::lock_guard lock(mutex_);
        if (wrong_.empty()) wrong_ = what;
    }
    /// Empty: nothing was.
    [[nodiscard]] std::string first_wrong() const {
        const std::lock_guard lock(mutex_);
        return wrong_;
    }

  private:
    using numbers = std::set<std::uint64_t>;
    void insert(numbers& to, std::uint64_t number) {
        const std::lock_guard lock(mutex_);
        to.insert(number);
    }
    [[nodiscard]] bool has(const numbers& in, std::uint64_t number) const {
        const std::lock_guard lock(mutex_);
        return in.contains(number);
    }
    mutable std::mutex mutex_;
    numbers may_answer_;
    numbers given_up_;
    numbers taken_;
    numbers heard_;
    std::map<std::uint64_t, wish> working_on_;
    std::string wrong_;
};

/// A request of a kernel, as `wish_worker` needs it.
struct request_of_kernel : taken_request {
    [[nodiscard]] bool in_parts() const { return device::in_parts(exchange); }
    [[nodiscard]] std::uint32_t target() const { return exchange.target_number; }
    [[nodiscard]] std::int64_t time_left() const { return device::time_left_ns(exchange); }
    [[nodiscard]] result<trace_context, status> trace() const {
        trace_context found;
        if (const status read = device::trace(exchange, found); read != status::ok) return read;
        return found;
    }
};

/// A request of a handler likewise.
struct request_of_handler {
    std::shared_ptr<exchange> is;
    std::uint32_t number_of_target = 0;

    [[nodiscard]] std::span<const std::byte> request() const { return is->request(); }
    [[nodiscard]] std::span<std::byte> response() const { return is->response(); }
    [[nodiscard]] bool cancelled() const { return is->cancelled(); }
    [[nodiscard]] bool in_parts() const { return is->in_parts(); }
    [[nodiscard]] std::uint32_t target() const { return number_of_target; }
    [[nodiscard]] std::int64_t time_left() const { return is->time_left().count(); }
    [[nodiscard]] result<trace_context, status> trace() const { return is->trace(); }
    status reply(std::uint64_t length) const { return is->reply(length); }
    status fail(status reason, std::uint32_t code) const { return is->fail(reason, code, failure_text); }
    [[nodiscard]] status next_part(std::span<std::byte>& out) const {
        out = is->part();
        if (!out.empty()) return status::ok;
        return is->in_parts() ? status::again : status::unsupported;
    }
    [[nodiscard]] status send(std::uint64_t length) const { return is->send(length); }
};

/// By one thread.
template <class Request>
class wish_worker {
  public:
    explicit wish_worker(wished_work& all) : all_(all) {}
    void take(Request request) {
        ++all_.requests;
        all_.last_time_left = request.time_left();
        task one{std::move(request), {}, 0};
        const std::span<const std::byte> bytes = one.request.request();
        if (bytes.size() >= sizeof one.what) std::memcpy(&one.what, bytes.data(), sizeof one.what);
        if (bytes.size() < sizeof one.what || one.what.is != wished::known) {
            one.what = {};
            one.what.target = one.request.target();
        } else {
            all_.take(one.what.number);
            check(one);
        }
        all_.begin(one.what);
        if (!goes_on(one)) return end(one);
        tasks_.push_back(std::move(one));
    }
    void go_on() {
        for (std::size_t i = 0; i < tasks_.size();) {
            if (goes_on(tasks_[i])) {
                ++i;
                continue;
            }
            end(tasks_[i]);
            tasks_[i] = std::move(tasks_.back());
            tasks_.pop_back();
        }
    }
    /// No request comes any more. One that is forgotten is never answered.
    void finish() {
        for (; !tasks_.empty() && !all_.forgets; std::this_thread::sleep_for(100us)) go_on();
        for (const task& each : tasks_) all_.end(each.what);
        tasks_.clear();
    }

  private:
    struct task {
        Request request;
        wished what;
        std::uint64_t sent = 0;
    };
    /// Unless its client is gone.
    void check(const task& one) {
        const auto differs = [](status found, status expected) {
            return found != expected && found != status::peer_lost && found != status::cancelled;
        };
        const trace_context expected = trace_of(one.what.number);
        const auto found = one.request.trace();
        if (differs(found.code(), expected.valid() ? status::ok : status::not_found))
            all_.wrong("whether there is a trace");
        if (found && *found != expected) all_.wrong("the trace");
        if (one.request.target() != one.what.target) all_.wrong("the target");
        std::span<std::byte> none;
        if (one.request.in_parts()) return;
        if (differs(one.request.next_part(none), status::unsupported) ||
            differs(one.request.send(0), status::unsupported))
            all_.wrong("parts for a client that takes none");
    }
    [[nodiscard]] bool goes_on(task& one) {
        if (one.what.what == wish::answer || all_.over) return false;
        const bool nobody_waits = one.request.cancelled();
        if (nobody_waits) all_.hear(one.what.number);
        switch (one.what.what) {
            case wish::hold:
                return !all_.may_answer(one.what.number);
            case wish::stream:
                return !nobody_waits && streams_on(one);
            default:
                return !nobody_waits;
        }
    }
    /// Sends what there is room for. False: that was all, or the client is gone.
    [[nodiscard]] bool streams_on(task& one) {
        for (; one.sent < one.what.parts; ++one.sent) {
            if (one.what.stalls_after != 0 && one.sent == one.what.stalls_after) return true;
            std::span<std::byte> room;
            const status found = one.request.next_part(room);
            if (found == status::again) return true;
            if (found != status::ok) return false;
            const std::uint64_t length = one.what.bytes_of(one.sent);
            fill(room.first(length), one.what.seed_of(one.sent));
            const status too_long = one.request.send(room.size() + 1);
            if (too_long == status::ok || too_long == status::again) all_.wrong("a part longer than its room");
            if (one.request.send(length) != status::ok) return false;
        }
        return false;
    }
    void end(const task& one) {
        all_.end(one.what);
        if (one.what.target != 0 && one.what.target != target_of("named").number)
            return (void)one.request.fail(status::not_found, code_of_unknown_target);
        if (one.what.code != 0) return (void)one.request.fail(status::application_error, one.what.code);
        if (one.what.what == wish::stream || one.what.what == wish::outlast) return (void)one.request.reply(0);
        const std::span<const std::byte> from = one.request.request();
        const std::size_t length = std::min(from.size(), one.request.response().size());
        if (length > 0) std::memcpy(one.request.response().data(), from.data(), length);
        if (one.request.reply(one.request.response().size() + 1) != status::message_too_large)
            all_.wrong("an answer longer than its room");
        (void)one.request.reply(length);
    }

    wished_work& all_;
    std::vector<task> tasks_;
};

class wishing_kernel final : public kernel_work {
  public:
    explicit wishing_kernel(wished_work& all) : worker_(all) {}
    void take(const taken_request& request) override { worker_.take({request}); }
    void go_on() override { worker_.go_on(); }
    void end() override { worker_.finish(); }

  private:
    wish_worker<request_of_kernel> worker_;
};
inline kernel_maker kernels_for(wished_work& all) {
    return [&all] { return std::make_unique<wishing_kernel>(all); };
}

/// Handlers whose requests a thread of its own goes on with.
class wishing_handler {
  public:
    explicit wishing_handler(wished_work& all) : worker_(all), thread_([this] { run(); }) {}
    ~wishing_handler() {
        over_ = true;
        thread_.join();
        worker_.finish();
    }
    wishing_handler(const wishing_handler&) = delete;
    wishing_handler& operator=(const wishing_handler&) = delete;
    [[nodiscard]] handler answers(std::uint32_t target = 0) {
        return [this, target](exchange request) {
            const std::lock_guard lock(mutex_);
            worker_.take({std::make_shared<exchange>(std::move(request)), target});
        };
    }

  private:
    void run() {
        while (!over_) {
            {
                const std::lock_guard lock(mutex_);
                worker_.go_on();
            }
            std::this_thread::sleep_for(100us);
        }
    }
    std::mutex mutex_;
    wish_worker<request_of_handler> worker_;
    std::atomic<bool> over_{false};
    std::thread thread_;
};

}  // namespace accel::tests
