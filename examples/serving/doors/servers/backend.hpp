// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/servers/door_channel.hpp"
#include "serving/gateway/opener.hpp"
#include "serving/gateway/server_choice.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

namespace accel::examples::serving::doors {

/// The servers of a model, and the callers that wait for a slot at one of them. Belongs to the loop's thread.
class backend {
  public:
    backend(backends& all, gateway::balance how) : all_(all), servers_(how) {}
    void add(gateway::upstream& server) { servers_.add(server); }

    /// Gives a slot: now, or when one is free, in the order of asking. Keeps `who` alive until then. For an answer in
    /// parts, or as many as the channel can have, there are as many slots free besides. Calls that wait for a share of
    /// the slots are overtaken by others.
    void ask_slot(const std::shared_ptr<caller>& who, slot_wish wish = {});
    /// `who` waits no longer.
    void forget(const caller& who);
    /// Sends the `length` bytes at the begin of `slot.request`, as `door_channel::submit` does, with as many
    /// parts as the slot says. Where the server was lost before anything left, they go to one other, and `slot` is a
    /// slot there.
    [[nodiscard]] status submit(call_slot& slot, std::size_t length, submit_options options,
                                const std::shared_ptr<caller>& who);
    /// `sent` was the answer to a submission out of `slot`. True where that says that the server was lost before
    /// anything left, and it was the call's first: `slot` is one at another server then, and its request has the first
    /// `length` bytes again.
    [[nodiscard]] bool move_on(status sent, call_slot& slot, std::size_t length, const caller& who);
    /// At least one server is.
    [[nodiscard]] bool connected() const;
    [[nodiscard]] std::size_t servers() const { return servers_.size(); }
    /// `holds` is true of the scheme in the URI of one of its servers.
    template <typename Predicate>
    [[nodiscard]] bool any_scheme(Predicate holds) const {
        for (std::size_t i = 0; i < servers_.size(); ++i)
            if (holds(servers_.server(i).scheme())) return true;
        return false;
    }
    [[nodiscard]] std::size_t connected_servers() const;

  private:
    friend class backends;
    struct waiting_call {
        std::shared_ptr<caller> who;
        slot_wish wish;
    };

    void serve_waiting();
    [[nodiscard]] bool serve_next();
    /// A slot at the server that a call with this key is meant for, else at another one; never at the one it has left.
    /// `overloaded`: slots are free, but none that such a call may have.
    [[nodiscard]] status begin(std::uint64_t key, const slot_wish& wish, call_slot& to,
                               const gateway::upstream* left = nullptr);

    backends& all_;
    gateway::server_choice servers_;
    std::deque<waiting_call> waiting_;
    bool serving_ = false;
};

/// All servers behind the doors of a program, in a loop of Asio. Servers that are away join when they are reached.
class backends {
  public:
    backends(boost::asio::io_context& loop, const gateway::reach_settings& reach);
    backends(const backends&) = delete;
    backends& operator=(const backends&) = delete;

    gateway::upstream& add_server(gateway::upstream made) { return servers_.emplace_back(std::move(made)); }
    /// A model that these servers have.
    backend& add(std::span<gateway::upstream* const> servers);
    /// Connects to all servers, and returns when each was tried and one was reached. May block for `patience`.
    [[nodiscard]] result<void> open(context& ctx);
    /// Callers that wait, as far as slots are free.
    void serve_waiting();
    /// Somebody waits: looks after them also while no channel does anything.
    void watch_waiting();

  private:
    void take_opened();
    void await_opened();

    boost::asio::io_context& loop_;
    gateway::reach_settings reach_;
    boost::asio::steady_timer timer_;
    bool watching_ = false;
    std::deque<gateway::upstream> servers_;  ///< stay where they are
    std::deque<backend> models_;
    std::unique_ptr<gateway::opener> opener_;
    std::vector<std::unique_ptr<door_channel>> channels_;
    boost::asio::posix::stream_descriptor opened_;
};

}  // namespace accel::examples::serving::doors
