// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/control/control_server.hpp"
#include "core/control/in_process.hpp"
#include "core/control/same_host.hpp"
#include "core/control/session.hpp"
#include "core/fork_guard.hpp"
#include "core/metrics/metrics_registry.hpp"
#include "core/server/session_maker.hpp"
#include "core/server/worker.hpp"
#include "core/uri.hpp"

#include <accel_transport/server.hpp>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace accel::core {

/// A limit for one client: its own, or three quarters of the one for all.
template <class Number>
[[nodiscard]] constexpr Number own_or_share(Number own, Number all) noexcept {
    return own != 0 ? own : static_cast<Number>(all - all / 4);
}

[[nodiscard]] error no_handler();

/// A server: its workers, what it listens on, and who is connected. Control path only; requests go to the
/// workers directly. Thread-safe.
class server_core : private session_observer, private metrics_source {
  public:
    [[nodiscard]] static result<std::shared_ptr<server_core>> listen(std::shared_ptr<context_state> context,
                                                                     const std::vector<std::string>& uris,
                                                                     const service_table& services,
                                                                     const server_options& options,
                                                                     std::unique_ptr<session_maker> maker = {});
    ~server_core() override;
    server_core(const server_core&) = delete;
    server_core& operator=(const server_core&) = delete;

    /// True in a child of the process that made it.
    [[nodiscard]] bool inherited() const noexcept { return stamp_.inherited(); }
    [[nodiscard]] std::vector<std::string> endpoints() const;
    [[nodiscard]] server_statistics statistics() const;
    /// One round of the only worker, if the caller drives it.
    std::size_t poll() noexcept { return driven_ != nullptr ? driven_->serve() : 0; }
    /// -1: no caller drives it.
    [[nodiscard]] int event_fd() noexcept { return driven_ != nullptr ? driven_->event_fd() : -1; }
    [[nodiscard]] bool arm() noexcept { return driven_ == nullptr || driven_->arm(); }
    [[nodiscard]] result<void> reload_keys();
    /// The names that clients may resolve, in place of those told before: of a `session_maker`'s server.
    [[nodiscard]] result<void> set_targets(const std::vector<std::string>& names);
    /// All of these or none, for requests that arrive from now on.
    [[nodiscard]] result<void> add_targets(const std::vector<service_table::entry>& added);
    [[nodiscard]] result<void> remove_target(std::string_view name);
    [[nodiscard]] result<void> set_health(std::string_view name, health_state state);
    status drain(nanoseconds timeout);
    /// Clients go elsewhere from now on, while their calls in flight are answered.
    void tell_draining() noexcept;
    void stop();
    /// True: the caller is one of its handlers, for which `stop` would wait.
    [[nodiscard]] bool in_handler() const noexcept;
    /// For a handler: stops the server, which may have no other owner, once handlers have returned.
    static void stop_later(std::shared_ptr<server_core> stopped) noexcept;
    /// Where `server_options::memory` says; null: the host.
    [[nodiscard]] accelerator_device* device() const noexcept { return device_; }

  private:
    /// One URI.
    struct listener {
        uri where;
        backend* scheme = nullptr;
        std::map<const worker*, poller*> pollers;  ///< none with a `session_maker`
    };
    /// One control plane: the listeners that share its host and port.
    class entrance;
    struct open_entry {
        worker* owner = nullptr;
        poller* source = nullptr;  ///< null: of a `session_maker`
        entrance* through = nullptr;
        client_identity client;
        session_token token{};
        std::shared_ptr<cancel_board> cancels;
        std::shared_ptr<session_watch> watch;  ///< of a client of this process
        connection* made = nullptr;            ///< by a `session_maker`; good while `counted`
        std::size_t memory_bytes = 0;
        std::size_t gpu_memory_bytes = 0;
        std::uint32_t descriptors = 0;
        bool counted = true;  ///< not lost yet
        /// Closes it: not every transport tells of a client that has gone, so memory may not run out then.
        session_commands::list closing = session_commands::list(1);
        /// Tells its client likewise.
        control_server::ended_sessions notice = control_server::ended_sessions(1);
    };

    server_core(std::shared_ptr<context_state> context, server_options options, std::unique_ptr<session_maker> maker);
    void add_workers(const handler& service);
    status drain_by(worker* driven, nanoseconds timeout);
    [[nodiscard]] bool drained() const noexcept;
    [[nodiscard]] bool holds_exchanges() const noexcept;
    result<void> open_device();
    result<void> load_keys(const std::vector<uri>& uris);
    result<void> add_listener(const uri& where);
    [[nodiscard]] poller_options options_for(const listener& added, std::size_t worker_index);
    result<void> open_pollers(listener& added);
    result<void> open_maker(const listener& added);
    [[nodiscard]] std::uint16_t data_port(const listener& of, std::size_t worker_index) noexcept;
    result<void> join_entrance(listener added);
    [[nodiscard]] result<std::shared_ptr<live_security>> security_of(const uri& where) const;
    [[nodiscard]] control_limits limits() const noexcept;

    result<session_grant> open_session(entrance& through, const session_request& request,
                                       const client_identity& client);
    result<std::uint32_t> find_target(std::string_view name) const;
    target_page list_targets(std::string_view after) const;
    health_state check_health(std::string_view name) const noexcept;
    result<void> check_new_target(std::string_view name) const;
    [[nodiscard]] std::string names_text(std::size_t room, std::string_view wanted = {},
                                         std::string_view without = {}) const;
    [[nodiscard]] error no_such_target(std::string_view name) const;
    void publish_targets(std::span<const service_table::entry> added, std::span<const std::uint32_t> removed,
                         std::string names, std::vector<target_table::publication>& lists);
    std::optional<session_token> token_of(std::uint64_t session_id) const;
    result<void> take_connection(data_connection& made, const client_identity& client);
    std::optional<listener> find_listener(const entrance& through, std::string_view scheme) const;
    /// What a session takes from the limits.
    struct session_cost {
        std::size_t memory_bytes = 0;
        std::uint32_t descriptors = 0;
    };
    result<void> check_limits(const session_request& request, const client_identity& client,
                              const session_cost& cost) const;
    result<void> check_share(const client_identity& client, const session_cost& cost) const;
    result<void> make_slots(const listener& on, const link_geometry& wanted, link_config& config) const;
    result<void> put_on_device(session& made, const session_request& request) const;
    result<session_grant> make_session(entrance& through, const listener& on, worker& owner,
                                       const session_request& request, const client_identity& client,
                                       std::size_t memory_bytes);
    result<void> connect_session(session& made, const listener& on, const session_request& request, link_config config,
                                 session_grant& grant) const;
    worker& least_loaded() const noexcept;
    void close_session(std::uint64_t id, status why) noexcept;
    void cancel(std::uint64_t id, std::span<const call_id> calls) noexcept;
    void session_lost(const session& which, status why) noexcept override;
    void session_freed(const session& which) noexcept override;
    void forget_session(const session& which) noexcept;
    void add_to(metrics_sums& sums) const override;

    std::shared_ptr<context_state> context_;
    server_options options_;
    std::unique_ptr<session_maker> maker_;  ///< null: handlers serve
    accelerator_device* device_ = nullptr;  ///< where the bytes of requests are wanted; null: the host
    std::vector<worker*> workers_;          ///< each held once; changed under the mutex
    process_stamp stamp_;
    worker* driven_ = nullptr;  ///< the only one, where the caller drives it
    std::vector<std::unique_ptr<entrance>> entrances_;
    std::vector<std::string> endpoints_;
    std::shared_ptr<live_security> security_;  ///< null without network
    std::uint16_t next_data_port_ = 0;

    mutable std::mutex mutex_;
    /// The resources that one client holds.
    struct share {
        std::uint32_t sessions = 0;
        std::size_t memory_bytes = 0;
        std::uint32_t descriptors = 0;
    };
    std::map<std::uint64_t, open_entry> sessions_;
    std::map<std::string, share, std::less<>> clients_;  ///< by account
    /// A target, as clients ask for it.
    struct named_target {
        handler service;  ///< empty with a `session_maker`
        health_state health = health_state::serving;
    };
    std::map<std::string, named_target, std::less<>> targets_;  ///< by name
    health_state health_ = health_state::serving;
    std::map<std::uint32_t, std::string_view> numbers_;  ///< names in `targets_`, by number
    std::uint64_t next_id_ = 1;
    std::size_t memory_bytes_ = 0;
    std::size_t gpu_memory_bytes_ = 0;
    std::uint32_t descriptors_ = 0;  ///< of all sessions
    std::uint32_t open_sessions_ = 0;
    std::uint64_t opened_ = 0;
    std::uint64_t refused_ = 0;
    std::uint64_t lost_ = 0;
    server_statistics counted_;  ///< by workers that have ended, and their time
    bool draining_ = false;
    bool listens_ = false;  ///< `listen` has returned it: it may have sessions, and its workers run
    std::once_flag stopped_;
    std::atomic<bool> stops_later_{false};
};

/// Where the sessions of one control plane enter the server.
class server_core::entrance : public session_host {
  public:
    explicit entrance(server_core& core) noexcept : core_(core) {}
    ~entrance() override {
        if (!local_name.empty()) in_process::remove(local_name, *this);
    }
    entrance(const entrance&) = delete;
    entrance& operator=(const entrance&) = delete;

    result<session_grant> open_session(const session_request& request, const client_identity& client) override {
        return core_.open_session(*this, request, client);
    }
    result<void> take_connection(data_connection& made, const client_identity& client) override {
        return core_.take_connection(made, client);
    }
    std::optional<session_token> token_of(std::uint64_t session_id) const override {
        return core_.token_of(session_id);
    }
    void close_session(std::uint64_t session_id, status why) noexcept override { core_.close_session(session_id, why); }
    void cancel(std::uint64_t session_id, std::span<const call_id> calls) noexcept override {
        core_.cancel(session_id, calls);
    }
    result<std::uint32_t> find_target(std::string_view name) const override { return core_.find_target(name); }
    target_page list_targets(std::string_view after) const override { return core_.list_targets(after); }
    health_state check_health(std::string_view name) const noexcept override { return core_.check_health(name); }
    std::vector<std::string> offers() const override {
        const std::lock_guard lock(core_.mutex_);
        std::vector<std::string> all;
        for (const auto& door : core_.entrances_)
            if (!door->local_name.empty()) all.push_back(in_process::offer(door->local_name));
        for (const listener& each : listeners) all.push_back(each.where.scheme);
        for (const auto& door : core_.entrances_) door->offer_within_host(all);
        return all;
    }

    /// Adds the offer of `shm`, if this is where its sessions enter.
    void offer_within_host(std::vector<std::string>& offers) const {
        const uri& where = listeners.front().where;
        if (where.scheme != "shm") return;
        if (std::string offer = same_host::offer(where.host.substr(1)); !offer.empty())
            offers.push_back(std::move(offer));
    }

    std::vector<listener> listeners;          ///< guarded by the server's mutex
    std::string local_name;                   ///< empty on the network
    std::unique_ptr<control_server> control;  ///< null in process

  private:
    server_core& core_;
};

}  // namespace accel::core
