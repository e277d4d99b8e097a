// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/gateway/offering.hpp"
#include "serving/gateway/reach.hpp"
#include "serving/gateway/upstream.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace accel::examples::gateway {

/// The servers that have a model, and which of them the next request is meant for. Of one thread. There may be none.
class server_choice {
  public:
    explicit server_choice(gateway::balance how) noexcept : balance_(how) {}

    void add(upstream& server);
    /// It has to be there.
    void remove(const upstream& server) noexcept;
    [[nodiscard]] std::size_t size() const noexcept { return servers_.size(); }
    [[nodiscard]] upstream& server(std::size_t i) const noexcept { return *at(i).server; }
    /// The server that a request is meant for, and then the others, in the order to ask them. `key`: that of
    /// sticky. Until the next call.
    [[nodiscard]] std::span<const std::size_t> order_for(std::uint64_t key) noexcept;

    /// Whether the server at `i` may be given the request. At first not the one that gave it back, and none that lacks
    /// the model; where no other is there, as a `last_resort`, these as well. Of those that lack the model, one request
    /// in `between_questions` finds out whether they still do.
    [[nodiscard]] bool may_ask(std::size_t i, const past_offers& of, bool last_resort) const noexcept;
    /// The server at `i` has taken the request.
    void asked(std::size_t i) noexcept;
    /// True: a request that has met this may be offered once more, to a server that is connected.
    [[nodiscard]] bool has_other(const past_offers& of) const noexcept;

    /// What a client is told where no server takes its request and the last one has said this: `not_found` only if all
    /// servers lack the model. Else one that may have it is away: `peer_lost`.
    [[nodiscard]] status without_server(status said) const noexcept;

    /// A call there has ended with this.
    void heard(const upstream& from, const completion& end) noexcept;
    /// That server has the model, or lacks it.
    void learn(const upstream& from, bool has) noexcept;
    /// The server at `i` has said last that it lacks the model.
    [[nodiscard]] bool lacks(std::size_t i) const noexcept { return at(i).lacks; }
    /// How many do.
    [[nodiscard]] std::size_t lacking() const noexcept { return lacking_; }
    /// Some server is connected, and has the model as far as is known.
    [[nodiscard]] bool ready() const noexcept;

    static constexpr std::chrono::seconds between_questions{1};

  private:
    struct place {
        upstream* server;
        std::uint64_t number;  ///< from its URI, so that all gateways have the same
        bool lacks;
        std::chrono::steady_clock::time_point ask_again;  ///< of one that lacks the model
    };

    void count_lacking() noexcept;
    void turn_to(std::size_t first) noexcept;
    [[nodiscard]] std::size_t least_loaded(std::size_t turn) const noexcept;
    [[nodiscard]] const place& at(std::size_t i) const noexcept { return servers_[i]; }
    [[nodiscard]] bool is_ready(std::size_t i) const noexcept { return !lacks(i) && server(i).connected(); }

    gateway::balance balance_;
    std::vector<place> servers_;
    std::vector<std::size_t> order_;
    std::size_t next_ = 0;
    std::size_t lacking_ = 0;
};

}  // namespace accel::examples::gateway
