// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/servers/door_channel.hpp"
#include "serving/doors/servers/returned_request.hpp"
#include "serving/gateway/opener.hpp"
#include "serving/gateway/server_choice.hpp"

#include <accel_transport/target.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
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
    backend(backends& all, gateway::balance how, accel::target target) : all_(all), servers_(how), target_(target) {}
    void add(gateway::upstream& server) { servers_.add(server); }
    /// All servers that this name has from now on.
    void add(const gateway::server_name& name) { names_.push_back(&name); }

    /// Gives a slot: now, or when one is free, in the order of asking. Keeps `who` alive until then. For an answer in
    /// parts, or as many as the channel can have, there are as many slots free besides. Calls that wait for a share of
    /// the slots are overtaken by others.
    void ask_slot(const std::shared_ptr<caller>& who, slot_wish wish = {});
    /// `who` waits no longer.
    void forget(const caller& who);
    /// A call at this server has ended with this.
    void heard(const door_channel& on, const completion& end);
    /// This server has these models loaded (`loaded_models_target`).
    void learn(const gateway::upstream& from, std::span<const std::byte> loaded);
    /// True: `why` says that the request in `slot` was not sent, and it goes to another server: as `take_back`.
    [[nodiscard]] bool take_back_unsent(status why, const call_slot& slot, std::size_t length, returned_request& to);
    /// True: `end` says that no handler has seen the request in `slot`, there is another server for it, and memory. Its
    /// first `length` bytes are kept, and the slot is released; `ask_slot` with `to.past()` is next.
    [[nodiscard]] bool take_back(const completion& end, const call_slot& slot, std::size_t length,
                                 returned_request& to);
    /// What a client is told of an unseen end with this, where `take_back` gives it to no other server.
    [[nodiscard]] status without_server(status said) const { return servers_.without_server(said); }
    /// A server is connected, and has the model as far as is known.
    [[nodiscard]] bool ready() const { return servers_.ready(); }
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
    /// A slot at the server that a call with this key is meant for, else at another one. `overloaded`: slots are free,
    /// but none that such a call may have.
    [[nodiscard]] status begin(std::uint64_t key, const slot_wish& wish, call_slot& to);
    [[nodiscard]] status begin_in_turn(std::span<const std::size_t> order, const slot_wish& wish, bool last_resort,
                                       call_slot& to);
    [[nodiscard]] bool has_name(const gateway::server_name& name) const;
    [[nodiscard]] bool keep(status why, const call_slot& slot, std::size_t length, returned_request& to);
    /// Asks servers that lack the model, and do not tell which they have, whether they still lack it: each by one
    /// question at a time. As long as that is so, no model sees it. Any other answer, an error as well, disproves it.
    void ask_lacking();

    backends& all_;
    gateway::server_choice servers_;
    accel::target target_;
    std::deque<waiting_call> waiting_;
    std::vector<const gateway::server_name*> names_;
    std::vector<const gateway::upstream*> questioned_;  ///< a question is open there
    bool serving_ = false;
};

/// All servers behind the doors of a program, in a loop of Asio. Servers that are away join when they are reached.
class backends {
  public:
    /// `most_kept`: bytes of requests that were taken back and wait for a slot.
    backends(boost::asio::io_context& loop, const gateway::reach_settings& reach, std::size_t most_kept);
    backends(const backends&) = delete;
    backends& operator=(const backends&) = delete;

    /// How soon a door that nobody asks notices that a model was loaded or unloaded, beside the time of a call.
    static constexpr std::chrono::milliseconds between_questions{250};

    gateway::upstream& add_server(gateway::upstream made) { return servers_.emplace_back(std::move(made)); }
    const gateway::server_name& add_name(gateway::server_name made) { return names_.emplace_back(std::move(made)); }
    /// A model that these servers have, and those of these names.
    backend& add(std::span<gateway::upstream* const> servers, accel::target target = {},
                 std::span<const gateway::server_name* const> names = {});
    /// Connects to all servers, and returns when each was tried and one was reached. May block for `patience`.
    [[nodiscard]] result<void> open(context& ctx);
    /// Questions and callers that wait, as far as slots are free.
    void serve_waiting();
    /// Somebody waits: looks after them also while no channel does anything.
    void watch_waiting();
    /// Requests that were taken back from a server; each was copied twice.
    [[nodiscard]] std::uint64_t taken_back() const noexcept { return taken_back_; }
    [[nodiscard]] const std::shared_ptr<memory_budget>& kept() const noexcept { return kept_; }
    void count_taken_back() noexcept { ++taken_back_; }
    /// The key of sticky.
    [[nodiscard]] std::uint64_t key_of(const caller& who) const;
    /// A channel was lost, or has come back.
    void look_for_missed();
    /// All that are not at their end.
    [[nodiscard]] std::size_t servers() const noexcept { return servers_.size(); }

  private:
    /// One that tells which models it has loaded.
    struct asked_server {
        gateway::upstream* to;
        bool due = true;     ///< a question waits for a slot
        bool asked = false;  ///< a question is open
    };

    void take_changes();
    void await_changes();
    [[nodiscard]] gateway::upstream& join(const gateway::opener::change& one);
    void let_leave();
    [[nodiscard]] bool end(gateway::upstream& one);
    void ask_regularly();
    void ask_due();
    void take_news(asked_server& from, const completion& end);

    boost::asio::io_context& loop_;
    gateway::reach_settings reach_;
    std::shared_ptr<memory_budget> kept_;
    boost::asio::steady_timer timer_;
    boost::asio::steady_timer questions_;
    bool watching_ = false;
    bool missed_ = false;  ///< a server of a name is
    std::uint64_t taken_back_ = 0;
    std::list<gateway::server_name> names_;
    std::list<gateway::upstream> servers_;
    std::deque<backend> models_;
    std::list<asked_server> asked_;
    std::unique_ptr<gateway::opener> opener_;
    std::vector<std::unique_ptr<door_channel>> channels_;
    boost::asio::posix::stream_descriptor opened_;
};

}  // namespace accel::examples::serving::doors
