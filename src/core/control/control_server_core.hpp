// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/control/client_limits.hpp"
#include "core/control/control_message.hpp"
#include "core/control/control_server.hpp"
#include "core/control/half_open_table.hpp"
#include "core/control/handshake_queue.hpp"
#include "core/control/listener.hpp"
#include "core/control/liveness.hpp"
#include "core/control/round_robin.hpp"
#include "core/control/server_connection.hpp"
#include "core/control/session_opener.hpp"
#include "core/event_signal.hpp"

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

namespace accel::core {

/// A control server, without a thread until `start`: tests run its rounds by hand. control_server.cpp runs
/// rounds; control_arrivals.cpp handles connections until their peer and purpose are known;
/// control_sessions.cpp talks to clients.
class control_server::impl {
  public:
    impl(listener door, unique_fd epoll, std::shared_ptr<live_security> security, nanoseconds peer_timeout,
         session_host& host, const control_limits& limits);
    ~impl();
    impl(const impl&) = delete;
    impl& operator=(const impl&) = delete;

    /// Starts the thread that runs rounds. Fails if it could not be woken.
    [[nodiscard]] result<void> start();
    /// Sleeps until there is something to do, or for `longest`; then does a bounded part of it.
    void progress(nanoseconds longest);
    /// A connection from `address` has come.
    void adopt(unique_fd socket, std::string address);

    [[nodiscard]] std::uint16_t port() const noexcept { return door_.port(); }
    void end_session(std::uint64_t id, status why, ended_sessions notice = ended_sessions(1)) noexcept;
    void drain() noexcept {
        draining_.store(true);
        wake_.set();
    }
    void wake() noexcept { wake_.set(); }

  private:
    friend struct control_server_view;  // of the fuzz targets

    /// What a client takes with all its control connections.
    struct client_share {
        std::uint32_t connections = 0;
        std::uint32_t opening = 0;  ///< sessions
        std::size_t unsent = 0;     ///< bytes that it does not read

        [[nodiscard]] bool operator==(const client_share&) const = default;
    };

    // Rounds.
    void run();
    void take_events(int timeout_ms);
    void await_turn(server_connection& which, std::uint32_t events);
    void take_turns();
    void take_turn(server_connection& which);
    void look_at_keys();
    void check_keys(server_connection& which);
    void run_timers(nanoseconds at);
    [[nodiscard]] nanoseconds check_timers(server_connection& each, nanoseconds at);
    [[nodiscard]] bool shows_life(server_connection& each);
    [[nodiscard]] int time_to_sleep(nanoseconds longest) const noexcept;
    void watch(server_connection& which, std::uint32_t events) noexcept;
    void sync_output(server_connection& which);
    [[nodiscard]] server_connection* find(std::uint64_t id) noexcept;

    // Arrivals.
    void accept_some();
    void count_client(const server_connection& which);
    void forget_client(const server_connection& which);
    void make_room();
    void shed();
    void on_readable(server_connection& which);
    void on_first_byte(server_connection& which);
    void start_handshakes();
    void start_handshake(server_connection& which);
    void shake_hands(server_connection& which);
    void on_shaken(server_connection& which);
    [[nodiscard]] result<wall_time> admitted_until(const server_connection& which) const;
    void read_greeting(server_connection& which);
    void on_control_greeting(server_connection& which);
    [[nodiscard]] bool find_place(const std::string& account);
    [[nodiscard]] static bool may_carry(const tls_stream& tls, std::uint64_t session_id);
    void pass_on(server_connection& which);
    void refuse(server_connection& which, std::string_view why);
    void refuse_plain(server_connection& which);
    void leave(server_connection& which);
    void read_off(server_connection& which);
    void drop(server_connection& which);

    // Sessions.
    void read_messages(server_connection& which);
    void on_message(server_connection& from, std::span<const std::byte> bytes);
    void on_malformed(server_connection& from, std::span<const std::byte> bytes, const error& why);
    void on_hello(server_connection& from, std::uint64_t request, hello& body);
    void on_find_target(server_connection& from, std::uint64_t request, const find_target& body);
    void on_heartbeat(server_connection& from, const heartbeat& body) noexcept;
    void on_goodbye(server_connection& from, const goodbye& body);
    void on_cancel(const server_connection& from, const cancel_calls& body) noexcept;
    static void log_refusal(const server_connection& which);
    void read_later(server_connection& which, tls_outcome last_read);
    void pause(server_connection& which, nanoseconds at);
    [[nodiscard]] bool opens_too_many(const server_connection& which) const;
    [[nodiscard]] static std::uint32_t events_of(const server_connection& which) noexcept;
    [[nodiscard]] bool count_unsent(server_connection& which);
    void take_opened();
    void welcome_client(server_connection& to, opened_session& opened);
    void refuse_opened(server_connection& to, const opened_session& opened, const error& why);
    void take_ended();
    void tell_ended(const ended_session& each, bool all_welcomed);
    void send(server_connection& to, const control_message& message);
    void lose(server_connection& which, status why);
    void end_sessions(server_connection& which, status why);
    void say_going_away();
    void say_goodbye();
    void say_to_all(const control_message& message, bool last);
    [[nodiscard]] nanoseconds silence_left(const server_connection& each) const noexcept;

    session_host& host_;
    const std::shared_ptr<live_security> security_;
    const nanoseconds peer_timeout_;
    const control_limits limits_;
    const boot_identity boot_;
    listener door_;
    unique_fd epoll_;
    int unwatched_ = 0;  ///< errno, where `epoll_` does not have what wakes this thread
    wake_signal wake_;
    session_opener opener_;
    std::mutex mutex_;
    ended_sessions ended_;
    std::atomic<bool> stopping_{false};
    std::atomic<bool> draining_{false};

    // For the thread alone.
    listening_clock listening_;
    std::shared_ptr<const security_identity> identity_;
    std::uint64_t key_generation_ = 0;
    std::unordered_map<std::uint64_t, std::unique_ptr<server_connection>> connections_;
    std::vector<std::unique_ptr<server_connection>> dropped_;    ///< ended in this round; callers may still hold them
    std::unordered_map<std::uint64_t, std::uint64_t> sessions_;  ///< session → connection
    std::unordered_map<std::uint64_t, status> ended_early_;      ///< before the welcome was sent
    std::unordered_map<std::string, client_share> clients_;
    handshake_queue queued_;
    round_robin<std::deque<std::uint64_t>> turns_;  ///< connections with something to do, of each client
    std::deque<std::uint64_t> unchecked_;           ///< clients that the newest keys have not let in yet
    handshake_limits handshakes_;
    half_open_table half_open_;
    std::uint64_t next_id_ = 1;
    std::vector<std::uint64_t> timed_;  ///< of one pass over the timers; kept for its room
    nanoseconds next_timer_ = never;
    nanoseconds door_closed_until_{};
    bool queue_waits_ = false;  ///< nobody in the queue may start now
    bool goes_away_ = false;    ///< clients have been told that the server drains
    std::thread thread_;
};

}  // namespace accel::core
