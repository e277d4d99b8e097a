// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/control/client_limits.hpp"
#include "core/control/control_message.hpp"
#include "core/control/control_stream.hpp"
#include "core/control/liveness.hpp"
#include "core/control/security.hpp"
#include "core/net/socket.hpp"

#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include <poll.h>

namespace accel::core {

/// A server's addresses, and the keys for it.
struct server_address {
    std::string host;
    std::uint16_t port = 0;
    std::vector<socket_address> addresses;  ///< of the host; tried one after another
    std::shared_ptr<const security_identity> security;
};

/// One question to a server, and the thread that waits for its answer.
class waiting_call {
  public:
    /// What it asks, unless it asks for a session.
    using question = std::variant<query, find_target, list_targets, check_health>;
    using answer =
        std::variant<session_grant, std::vector<std::string>, std::uint32_t, target_page, health_state, error>;

    waiting_call(std::optional<session_request> request, std::shared_ptr<session_watch> told_of_end, nanoseconds until)
        : session(std::move(request)), watch(std::move(told_of_end)), deadline(until) {}
    waiting_call(question what, nanoseconds until) : asked(std::move(what)), deadline(until) {}

    /// The question, if it is of this type.
    template <class Question>
    [[nodiscard]] const Question* asks() const noexcept {
        return session ? nullptr : std::get_if<Question>(&asked);
    }

    /// False: the caller has given up.
    bool complete(answer value) {
        const std::lock_guard lock{mutex_};
        if (abandoned_) return false;
        answer_ = std::move(value);
        done_.notify_one();
        return true;
    }
    /// Ends the call with this error, or with `out_of_memory` where there is none for its text.
    void fail(const error& why) noexcept {
        try {
            complete(why);
        } catch (const std::bad_alloc&) {
            complete(error{status::out_of_memory, ENOMEM, "out of memory"});
        }
    }
    /// The caller waits no longer, unless there is an answer.
    void leave() noexcept {
        const std::lock_guard lock{mutex_};
        left_ = true;
        done_.notify_one();
    }
    /// Empty: no answer came until shortly after the deadline, or the caller has left.
    [[nodiscard]] std::optional<answer> wait();

    const std::optional<session_request> session;
    const question asked;
    const std::shared_ptr<session_watch> watch;
    const nanoseconds deadline;
    int refusals = 0;  ///< of the server's host in a row; the control thread's

  private:
    friend struct client_connection_view;  // of the fuzz targets

    std::mutex mutex_;
    std::condition_variable done_;
    std::optional<answer> answer_;
    bool left_ = false;
    bool abandoned_ = false;
};

/// The control connection to one server endpoint. Belongs to the control thread.
class client_connection {
  public:
    client_connection(server_address address, const listening_clock& listening);
    client_connection(const client_connection&) = delete;
    client_connection& operator=(const client_connection&) = delete;

    void ask(std::shared_ptr<waiting_call> call);
    /// The name of the host has these addresses now; for the next connection.
    void use(std::vector<socket_address> found);
    /// False: no such session here, or it is not the one of `watch`.
    bool close_session(std::uint64_t session_id, const session_watch* watch);
    /// Says goodbye if the connection still stands.
    void end() noexcept;

    /// The events to wait for; a descriptor of -1 while there is nothing.
    [[nodiscard]] pollfd poll_item() const noexcept;
    /// Handles a bounded part of the input; goes on connecting.
    void progress(short events);
    /// Sends heartbeats and checks deadlines; returns when to be called again.
    [[nodiscard]] nanoseconds run_timers();
    /// TLS or a bound has kept input: `progress` has more to do at once.
    [[nodiscard]] bool has_more() const noexcept { return more_; }
    /// Nobody has used it for a while.
    [[nodiscard]] bool finished() const noexcept { return finished_; }
    [[nodiscard]] const server_address& address() const noexcept { return address_; }

  private:
    friend struct client_connection_view;  // of the fuzz targets

    struct live_session {
        std::shared_ptr<session_watch> watch;
        nanoseconds peer_timeout;
    };
    enum class state : std::uint8_t { disconnected, connecting, shaking, ready };

    void connect();
    void connect_next(int last_failure);
    void note_failure(int failure);
    /// All addresses of the host have been tried. Questions that were refused too often end.
    void count_refusal();
    void go_on_connecting();
    void on_connected();
    void shake_hands();
    void greet();
    void disconnect();
    /// The connection broke: its sessions end, questions are asked again on the next one.
    void lose(status why);
    void refuse(const error& why);
    void receive();
    void on_broken();
    void on_malformed(std::span<const std::byte> bytes, const error& why);
    void on_message(const control_message& message);
    void on_refused(const control_message& message, const refused& body);
    void on_welcome(const control_message& message, const welcome& body);
    void on_offers(const control_message& message, const offers& body);
    void on_target_found(const control_message& message, const target_found& body);
    void on_targets_listed(const control_message& message, const targets_listed& body);
    void on_health_checked(const control_message& message, const health_checked& body);
    [[nodiscard]] std::string unsound(const session_request& asked, const session_grant& grant) const;
    void on_goodbye(const goodbye& body);
    void on_going_away() noexcept;
    void send(const control_message& message);
    void send_question(std::uint64_t request, const waiting_call& call);
    void send_heartbeat();
    void send_cancels(nanoseconds at);
    [[nodiscard]] bool cancels_wait() const noexcept;
    [[nodiscard]] std::shared_ptr<waiting_call> take_call(std::uint64_t request);
    void fail_calls(const error& why) noexcept;
    void expire_calls(nanoseconds at);
    void judge_silence();
    void judge_server();
    [[nodiscard]] nanoseconds next_look(nanoseconds at) const;
    void update_clock(const clock_stamps& stamps, nanoseconds received);
    [[nodiscard]] std::string name() const { return host_and_port(address_.host, address_.port); }
    [[nodiscard]] error no_answer() const;
    [[nodiscard]] error wrong_answer() const;

    server_address address_;
    const listening_clock& listening_;
    const boot_identity boot_;
    state state_ = state::disconnected;
    control_stream stream_{unique_fd{}};
    std::size_t next_address_ = 0;
    std::string reached_;   ///< the address that it is connected to
    bool refused_ = false;  ///< an address has said in this round that nothing listens there
    bool hopeful_ = false;  ///< an address failed in this round neither for a shortage nor because it is forbidden
    nanoseconds connect_at_{};
    nanoseconds connect_by_ = never;  ///< deadline of the current address
    bool closed_unheard_ = false;     ///< the last connections closed before the server sent anything
    bool more_ = false;
    bool wants_write_ = false;  ///< TLS does, while it shakes hands
    std::map<std::uint64_t, std::shared_ptr<waiting_call>> calls_;
    std::uint64_t last_request_ = 0;
    std::unordered_map<std::uint64_t, live_session> sessions_;
    live_security keys_;                ///< begin as those of `address_`
    std::uint64_t key_generation_ = 0;  ///< of the keys that have let the server in
    wall_time trusted_until_ = wall_time::max();
    nanoseconds server_timeout_{};  ///< 0: not yet told
    /// Fewer than a server reads at once (`server_connection::messages`), so that heartbeats do not wait behind them.
    token_bucket cancel_messages_{256, 512};
    nanoseconds next_beat_ = never;
    nanoseconds heard_{};  ///< on the listening clock
    nanoseconds echo_{};
    nanoseconds echo_received_{};
    nanoseconds idle_since_{};
    clock_estimate clock_;
    bool finished_ = false;
};

}  // namespace accel::core
