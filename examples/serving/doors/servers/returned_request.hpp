// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/counting/memory_budget.hpp"
#include "serving/doors/servers/door_channel.hpp"
#include "serving/doors/servers/offer_time.hpp"
#include "serving/gateway/offering.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace accel::examples::serving::doors {

/// A request that a server has given back unseen. Its bytes lie in the slot of the call until that is released. They
/// are copied only now, twice: out of the slot, so that a lost channel can connect again while the request waits, and
/// into the next one.
class returned_request {
  public:
    /// Copies the first `length` bytes out of the slot, which may be released then. False: `of` has not so much left.
    [[nodiscard]] bool keep(const call_slot& from, std::size_t length, std::shared_ptr<memory_budget> of);
    /// True: the bytes are here, and wait for a slot.
    [[nodiscard]] bool is_kept() const noexcept { return kept_; }
    [[nodiscard]] std::size_t size() const noexcept { return bytes_.size(); }
    /// Into the request's room of its next slot.
    void move_to(const call_slot& next);
    /// Of this request, for the next offer.
    [[nodiscard]] gateway::past_offers& past() noexcept { return past_; }
    /// Of all its offers, the first one included.
    [[nodiscard]] offer_time& time() noexcept { return time_; }

  private:
    memory_share share_;  ///< before what it is for
    std::vector<std::byte> bytes_;
    gateway::past_offers past_;
    offer_time time_;
    bool kept_ = false;
};

}  // namespace accel::examples::serving::doors
