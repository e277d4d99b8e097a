// SPDX-License-Identifier: Apache-2.0
#include "core/control/control_client.hpp"

#include "core/control/client_connection.hpp"
#include "core/event_signal.hpp"
#include "core/guarded.hpp"
#include "core/log.hpp"
#include "core/net/descriptor_error.hpp"
#include "core/net/socket.hpp"
#include "core/thread.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <list>
#include <mutex>
#include <new>
#include <stop_token>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

namespace accel::core {
namespace {

struct ask_command {
    server_address address;
    std::shared_ptr<waiting_call> call;
};

constexpr nanoseconds longest_sleep = std::chrono::seconds{60};

bool same_server(const server_address& a, const server_address& b) {
    return a.host == b.host && a.port == b.port && a.security->digest() == b.security->digest();
}

}  // namespace

class control_client::impl {
  public:
    /// Without a descriptor to wake it there is no thread, and `ask` fails.
    impl() {
        if (wake_.open()) thread_ = start_thread("accel-sessions", [this] { run(); });
    }

    ~impl() {
        stopping_.store(true);
        wake_.set();
        if (thread_.joinable()) thread_.join();
    }

    void post(ask_command what) {
        {
            const std::lock_guard lock{mutex_};
            commands_.push_back(std::move(what));
        }
        wake_.set();
    }

    /// Allocates nothing, because a channel's end cannot fail.
    void leave(std::uint64_t session_id, std::shared_ptr<session_watch> watch) noexcept {
        {
            const std::lock_guard lock{mutex_};
            if (watch->left_session != 0) return;
            watch->left_session = session_id;
            add_left(std::move(watch));
        }
        wake_.set();
    }

    void wake() noexcept { wake_.set(); }

    [[nodiscard]] result<waiting_call::answer> ask(const std::string& host, std::uint16_t port,
                                                   std::shared_ptr<const security_identity> security,
                                                   const std::shared_ptr<waiting_call>& call,
                                                   const std::stop_token& stopped = {}) {
        if (!wake_.open()) return no_descriptor("for the control plane", wake_.failure());
        auto addresses = resolve(host, port, false, call->deadline, stopped);
        if (!addresses) return addresses.error();
        const std::stop_callback leaving(stopped, [&call] { call->leave(); });
        post(ask_command{{host, port, std::move(*addresses), std::move(security)}, call});
        auto answer = call->wait();
        if (!answer && stopped.stop_requested()) return error{status::closed, 0, "the channel was closed"};
        if (!answer)
            return error{status::timed_out, 0,
                         fmt::format("no server answered at {} in time", host_and_port(host, port))};
        if (const auto* failure = std::get_if<error>(&*answer)) return *failure;
        return std::move(*answer);
    }

  private:
    void run() noexcept {
        nanoseconds next = never;
        while (!stopping_.load()) {
            sleep(next);
            try {
                next = run_round();
            } catch (const std::bad_alloc&) {
                limited_log("memory").error("no memory is left for the control plane; it tries again");
                next = now() + pause_without_memory;
            }
        }
        (void)run_commands();
        for (auto& each : connections_) each.end();
        connections_.clear();
    }

    /// Until `next`, or until there is something to do.
    void sleep(nanoseconds next) noexcept {
        items_.assign(1, {wake_.fd(), POLLIN, 0});
        for (const auto& each : connections_) items_.push_back(each.poll_item());
        const nanoseconds start = now();
        const nanoseconds until = std::min(next, start + longest_sleep);
        sleep_on(items_, until);
        if ((items_.front().revents & POLLIN) != 0) wake_.clear();
        listening_.advance(now(), std::max(until - start, nanoseconds{0}));
    }

    /// One round; returns when the next one is due.
    nanoseconds run_round() {
        std::size_t place = 1;
        for (auto& each : connections_) each.progress(items_[place++].revents);
        nanoseconds next = run_commands() ? never : now() + pause_without_memory;
        for (auto& each : connections_) {
            next = std::min(next, each.run_timers());
            if (each.has_more()) next = nanoseconds{0};
        }
        connections_.remove_if([](const client_connection& each) { return each.finished(); });
        return next;
    }

    void add_left(std::shared_ptr<session_watch> watch) noexcept {
        watch->next_left = std::exchange(left_, nullptr);
        left_ = std::move(watch);
    }

    /// False: some are to be tried again, because memory has run out.
    bool run_commands() noexcept {
        std::vector<ask_command> taken;
        std::shared_ptr<session_watch> left;
        {
            const std::lock_guard lock{mutex_};
            taken.swap(commands_);
            left = std::exchange(left_, nullptr);
        }
        // Before questions: a new session may need the place of the one that was left.
        bool done = true;
        while (left != nullptr) {
            std::shared_ptr<session_watch> rest = std::exchange(left->next_left, nullptr);
            if (!close_session(*left)) {
                done = false;
                const std::lock_guard lock{mutex_};
                add_left(std::move(left));
            }
            left = std::move(rest);
        }
        for (ask_command& each : taken) ask_server(std::move(each));
        return done;
    }

    /// False: memory has run out.
    bool close_session(const session_watch& left) noexcept {
        try {
            for (auto& each : connections_)
                if (each.close_session(left.left_session, &left)) break;
            return true;
        } catch (const std::bad_alloc&) {
            return false;
        }
    }

    static_assert(std::is_nothrow_move_constructible_v<ask_command>);
    void ask_server(ask_command asked) noexcept {
        try {
            connection_to(std::move(asked.address)).ask(asked.call);
        } catch (const std::bad_alloc&) {
            asked.call->fail({status::out_of_memory, ENOMEM, "out of memory"});
        }
    }

    client_connection& connection_to(server_address address) {
        for (auto& each : connections_) {
            if (!same_server(each.address(), address)) continue;
            each.use(std::move(address.addresses));
            return each;
        }
        items_.reserve(1 + connections_.size() + 1);
        return connections_.emplace_back(std::move(address), listening_);
    }

    wake_signal wake_;
    std::mutex mutex_;
    std::vector<ask_command> commands_;
    std::shared_ptr<session_watch> left_;  ///< the last session that its channel left, and those before it
    std::atomic<bool> stopping_{false};
    listening_clock listening_;
    std::list<client_connection> connections_;
    std::vector<pollfd> items_{1};  ///< room for `wake_` and each connection
    std::thread thread_;
};

control_client::control_client() : impl_(std::make_unique<impl>()) {}
control_client::~control_client() = default;

result<session_grant> control_client::open_session(const std::string& host, std::uint16_t port,
                                                   std::shared_ptr<const security_identity> security,
                                                   const session_request& request, std::shared_ptr<session_watch> watch,
                                                   nanoseconds deadline, const std::stop_token& stopped) {
    const auto call = std::make_shared<waiting_call>(request, std::move(watch), deadline);
    auto answer = impl_->ask(host, port, std::move(security), call, stopped);
    if (!answer) return answer.error();
    return std::get<session_grant>(*std::move(answer));
}

void control_client::close_session(std::uint64_t session_id, std::shared_ptr<session_watch> watch) noexcept {
    impl_->leave(session_id, std::move(watch));
}

void control_client::send_cancels() noexcept {
    impl_->wake();
}

result<std::vector<std::string>> control_client::query_offers(const std::string& host, std::uint16_t port,
                                                              std::shared_ptr<const security_identity> security,
                                                              nanoseconds deadline) {
    const auto call = std::make_shared<waiting_call>(std::nullopt, nullptr, deadline);
    auto answer = impl_->ask(host, port, std::move(security), call);
    if (!answer) return answer.error();
    return std::get<std::vector<std::string>>(*std::move(answer));
}

result<std::uint32_t> control_client::find_target(const std::string& host, std::uint16_t port,
                                                  std::shared_ptr<const security_identity> security,
                                                  std::string_view name, nanoseconds deadline) {
    const auto call = std::make_shared<waiting_call>(std::string{name}, deadline);
    auto answer = impl_->ask(host, port, std::move(security), call);
    if (!answer) return answer.error();
    return std::get<std::uint32_t>(*answer);
}

}  // namespace accel::core
