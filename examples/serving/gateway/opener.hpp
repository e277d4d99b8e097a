// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/gateway/reach.hpp"
#include "serving/gateway/upstream.hpp"

#include <accel_transport/context.hpp>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <list>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace accel::examples::gateway {

/// Resolves names and connects to servers, and tries again where it fails. Both take time, so each name has a thread,
/// and connecting another one: a silent name server delays no connect and no other name. Channels connect again by
/// themselves.
class opener {
  public:
    /// A server was reached, or its name does not have it any more. Then it leaves after another one was reached, one
    /// for each, or after all that the name has were tried.
    struct change {
        upstream* to = nullptr;  ///< null: one of a name
        const server_name* of = nullptr;
        std::string uri;
        std::vector<channel> channels;  ///< none: its name does not have it any more
        bool tells_models = false;
    };

    /// `names` stay where they are.
    opener(context& ctx, const reach_settings& chosen, std::list<upstream>& servers,
           const std::list<server_name>& names);
    ~opener();
    opener(const opener&) = delete;
    opener& operator=(const opener&) = delete;

    /// Readable when `take` has something.
    [[nodiscard]] int event_fd() const noexcept { return signal_; }
    /// In the order in which it has happened.
    [[nodiscard]] std::vector<change> take();
    /// Waits until each name was resolved and each server was tried, and one reached. On failure: what the last one
    /// said.
    [[nodiscard]] result<void> wait_for_servers(std::chrono::nanoseconds patience);
    /// Whether a server of a name is away. While one is, names are resolved more often, the first time at once.
    void set_missed(bool any);
    /// Closes channels that have no calls: that may take their `close_timeout`.
    void close(std::vector<channel> channels);

  private:
    using clock = std::chrono::steady_clock;

    struct known_server {
        std::string uri;
        bool tried = false;
        bool reached = false;
    };
    /// One host of a `server_name`.
    struct known_name {
        const server_name* name;
        std::string uri;
        std::vector<known_server> servers{};  ///< that it has
        std::vector<std::string> old{};       ///< reached ones that it does not have any more, and that have not left
        clock::time_point looked_up{};        ///< when the last lookup has ended
        bool fails = false;                   ///< the last lookup did
        bool tried = false;
        bool due = true;  ///< as soon as possible
    };
    struct wanted {
        upstream* to = nullptr;
        known_name* of = nullptr;
        std::string uri;
        bool tried = false;
        bool dropped = false;  ///< its name does not have it any more
        std::chrono::nanoseconds timeout{};
    };

    [[nodiscard]] result<channel> connect(const std::string& uri, const call_sizes& needs,
                                          std::chrono::nanoseconds timeout, bool& takes_metadata) const;
    [[nodiscard]] result<change> open(const wanted& what) const;
    void run();
    void follow(known_name& of);
    void look_up(known_name& of, std::unique_lock<std::mutex>& lock);
    void list(known_name& of, const std::vector<std::string>& found);
    void let_go(known_name& of, std::size_t most);
    [[nodiscard]] std::deque<wanted>::iterator next_wanted();
    [[nodiscard]] std::chrono::nanoseconds time_to_connect() const;
    void connect(const std::deque<wanted>::iterator& which, std::unique_lock<std::mutex>& lock);
    [[nodiscard]] bool all_tried() const;
    void report(change what);
    [[nodiscard]] clock::time_point next_lookup(const known_name& of) const;

    context& context_;
    const reach_settings& chosen_;
    const clock::time_point begun_ = clock::now();
    const int signal_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::list<known_name> names_;
    std::deque<wanted> left_;    ///< those not tried yet first, each kind in order
    std::optional<wanted> now_;  ///< is being connected to
    clock::time_point next_try_{};
    bool again_ = false;  ///< the last one had been tried before
    std::vector<change> done_;
    std::vector<channel> closing_;
    std::size_t reached_ = 0;
    error last_;
    bool missed_ = false;
    std::stop_source stop_;
    std::thread connecting_;
    std::vector<std::thread> resolving_;  ///< one for each name
};

}  // namespace accel::examples::gateway
