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
        std::list<ask_command> asked;
        asked.push_back(std::move(what));
        {
            const std::lock_guard lock{mutex_};
            commands_.splice(commands_.end(), asked);
        }
        wake_.set();
    }

    /// Allocates nothing, because a channel's end cannot fail.
    void leave(std::uint64_t session_id, std::shared_ptr<session_watch> watch) noexcept {
        {
            const std::lock_guard lock{mutex_};
            if (watch->left_session != 0) return;
            watch->left_session = session_id;
            watch->next_left = std::exchange(left_, nullptr);
            left_ = std::move(watch);
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
        try {
            run_commands();
        } catch (const std::bad_alloc&) {
            log().error("no memory is left to notify servers that this context is closing");
        }
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
        run_commands();
        nanoseconds next = never;
        for (auto& each : connections_) {
            next = std::min(next, each.run_timers());
            if (each.has_more()) next = nanoseconds{0};
        }
        connections_.remove_if([](const client_connection& each) { return each.finished(); });
        return next;
    }

    void run_commands() {
        // Before questions: a new session may need the place of the one that was left.
        for (; is_left(); leaving_ = std::exchange(leaving_->next_left, nullptr)) {
            for (auto& open : connections_)
                if (open.close_session(leaving_->left_session, leaving_.get())) break;
        }
        {
            const std::lock_guard lock{mutex_};
            taken_.splice(taken_.end(), commands_);
        }
        for (; !taken_.empty(); taken_.pop_front()) connection_to(taken_.front().address).ask(taken_.front().call);
    }

    /// A channel has left the session of `leaving_`.
    [[nodiscard]] bool is_left() {
        if (leaving_ != nullptr) return true;
        const std::lock_guard lock{mutex_};
        leaving_ = std::exchange(left_, nullptr);
        return leaving_ != nullptr;
    }

    client_connection& connection_to(const server_address& address) {
        for (auto& each : connections_) {
            if (!same_server(each.address(), address)) continue;
            each.use(address.addresses);
            return each;
        }
        items_.reserve(1 + connections_.size() + 1);
        return connections_.emplace_back(address, listening_);
    }

    wake_signal wake_;
    std::mutex mutex_;
    std::list<ask_command> commands_;
    std::shared_ptr<session_watch> left_;  ///< the last session that its channel left, and those before it
    std::atomic<bool> stopping_{false};
    listening_clock listening_;
    std::list<client_connection> connections_;
    // Taken, and kept where memory runs out before they are done.
    std::list<ask_command> taken_;
    std::shared_ptr<session_watch> leaving_;
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
                                                              nanoseconds deadline, const std::stop_token& stopped) {
    const auto call = std::make_shared<waiting_call>(query{}, deadline);
    auto answer = impl_->ask(host, port, std::move(security), call, stopped);
    if (!answer) return answer.error();
    return std::get<std::vector<std::string>>(*std::move(answer));
}

result<std::uint32_t> control_client::find_target(const std::string& host, std::uint16_t port,
                                                  std::shared_ptr<const security_identity> security,
                                                  std::string_view name, nanoseconds deadline) {
    const auto call = std::make_shared<waiting_call>(core::find_target{std::string{name}}, deadline);
    auto answer = impl_->ask(host, port, std::move(security), call);
    if (!answer) return answer.error();
    return std::get<std::uint32_t>(*answer);
}

result<target_page> control_client::list_targets(const std::string& host, std::uint16_t port,
                                                 std::shared_ptr<const security_identity> security,
                                                 std::string_view after, nanoseconds deadline) {
    const auto call = std::make_shared<waiting_call>(core::list_targets{std::string{after}}, deadline);
    auto answer = impl_->ask(host, port, std::move(security), call);
    if (!answer) return answer.error();
    return std::get<target_page>(*std::move(answer));
}

result<health_state> control_client::check_health(const std::string& host, std::uint16_t port,
                                                  std::shared_ptr<const security_identity> security,
                                                  std::string_view name, nanoseconds deadline) {
    const auto call = std::make_shared<waiting_call>(core::check_health{std::string{name}}, deadline);
    auto answer = impl_->ask(host, port, std::move(security), call);
    if (!answer) return answer.error();
    return std::get<health_state>(*answer);
}

}  // namespace accel::core
