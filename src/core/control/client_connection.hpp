#pragma once

#include "core/control/control_message.hpp"
#include "core/control/liveness.hpp"
#include "core/control/log_limit.hpp"
#include "core/control/security.hpp"
#include "core/control/zmq_socket.hpp"

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

namespace accel::core {

/// Where a server is, and with which keys it is spoken to.
struct server_address {
    std::string host;
    std::uint16_t port = 0;
    std::string endpoint;  ///< tcp://address:port
    std::shared_ptr<const security_identity> security;
};

/// One question to a server, and the thread that waits for its answer.
class waiting_call {
  public:
    using answer = std::variant<session_grant, std::vector<std::string>, error>;

    waiting_call(std::optional<session_request> request, std::shared_ptr<session_watch> told_of_end,
                 nanoseconds until)
        : session(std::move(request)), watch(std::move(told_of_end)), deadline(until) {}

    /// False: the caller has given up.
    bool complete(answer value) {
        const std::lock_guard lock{mutex_};
        if (abandoned_) return false;
        answer_ = std::move(value);
        done_.notify_one();
        return true;
    }
    /// Nothing: still no answer shortly after the deadline.
    [[nodiscard]] std::optional<answer> wait();

    const std::optional<session_request> session;  ///< empty: a query for offers
    const std::shared_ptr<session_watch> watch;
    const nanoseconds deadline;

  private:
    std::mutex mutex_;
    std::condition_variable done_;
    std::optional<answer> answer_;
    bool abandoned_ = false;
};

/// The control connection to one server endpoint. Belongs to the control thread.
class client_connection {
  public:
    client_connection(void* zmq_context, server_address address, const listening_clock& listening);
    client_connection(const client_connection&) = delete;
    client_connection& operator=(const client_connection&) = delete;

    void ask(std::shared_ptr<waiting_call> call);
    /// False: no such session here.
    bool close_session(std::uint64_t session_id);
    /// Says goodbye where there is someone to hear it.
    void end();

    void add_poll_items(std::vector<zmq_pollitem_t>& items);
    /// Takes what has arrived.
    void receive();
    /// Sends and judges what time demands; returns when to be called again.
    [[nodiscard]] nanoseconds run_timers();
    /// Nobody has used it for a while.
    [[nodiscard]] bool finished() const noexcept { return finished_; }
    [[nodiscard]] const server_address& address() const noexcept { return address_; }

  private:
    struct live_session {
        std::shared_ptr<session_watch> watch;
        nanoseconds peer_timeout;
    };
    enum class state : std::uint8_t { disconnected, connecting, ready };

    void connect();
    void disconnect();
    /// The connection broke: its sessions are lost, questions are asked again on the next one.
    void lose();
    void on_monitor(const monitor_event& event);
    void on_handshake_failure(const monitor_event& event);
    void on_message(const control_message& message);
    void on_welcome(const control_message& message, const welcome& body);
    void on_goodbye(const goodbye& body);
    void send(const control_message& message);
    void send_question(std::uint64_t request, const waiting_call& call);
    void send_heartbeat();
    [[nodiscard]] std::shared_ptr<waiting_call> take_call(std::uint64_t request);
    void fail_calls(const error& why);
    void expire_calls(nanoseconds at);
    void judge_silence();
    void update_clock(const clock_stamps& stamps, nanoseconds received);
    [[nodiscard]] std::string name() const { return host_and_port(address_.host, address_.port); }
    [[nodiscard]] error no_answer() const;

    void* zmq_;
    server_address address_;
    const listening_clock& listening_;
    state state_ = state::disconnected;
    zmq_socket socket_;
    socket_monitor monitor_;  // destroyed before its socket
    nanoseconds connect_at_{};
    int unexplained_failures_ = 0;
    std::map<std::uint64_t, std::shared_ptr<waiting_call>> calls_;
    std::uint64_t last_request_ = 0;
    std::unordered_map<std::uint64_t, live_session> sessions_;
    nanoseconds server_timeout_{};  ///< 0: not yet told
    nanoseconds next_beat_ = never;
    nanoseconds heard_{};  ///< on the listening clock
    nanoseconds echo_{};
    nanoseconds echo_received_{};
    nanoseconds idle_since_{};
    clock_estimate clock_;
    log_limit limit_;
    bool finished_ = false;
};

}  // namespace accel::core
