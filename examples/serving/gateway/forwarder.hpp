// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/gateway/counts.hpp"
#include "serving/gateway/offering.hpp"
#include "serving/gateway/route.hpp"

#include <accel_transport/accel_transport.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace accel::examples::gateway {

/// One request on its way through the gateway. It holds its exchange, and so the memory that is lent, until the call
/// has completed.
struct passage {
    std::optional<exchange> one;
    route* way = nullptr;
    line* on = nullptr;  ///< null: it waits for a free slot
    call_id id;
    bool cancelled = false;   ///< the server was told
    past_offers past;         ///< to servers that did not take it
    passage* next = nullptr;  ///< in the route's queue, or among those that are free
    std::uint32_t index = 0;  ///< the tag of its call
};

/// Passes requests on and answers back. Of one thread. Only `make_room` allocates.
class forwarder {
  public:
    /// `in_flight`: calls on all channels at most; `waiting`: requests that wait for one of them.
    forwarder(std::size_t in_flight, std::size_t waiting);
    /// For this number of calls, if there was room for fewer.
    void make_room(std::size_t in_flight);

    /// A request has arrived: it is sent, waits, or is refused.
    void take(route& way, exchange one) noexcept;
    /// A call has completed. It is released here.
    void finish(line& on, completion& c) noexcept;
    /// A channel was lost or has come back, or time has passed: looks after requests that wait, and calls that
    /// nobody waits for.
    void look_after(std::vector<route>& routes) noexcept;
    [[nodiscard]] std::size_t open() const noexcept { return open_; }
    [[nodiscard]] const counts& counted() const noexcept { return counts_; }

  private:
    enum class sending : std::uint8_t { sent, full, ended };
    /// Of a request, copied from its message.
    struct request_extras {
        std::span<const tensor> tensors;
        std::span<const metadata_entry> metadata;
    };

    [[nodiscard]] passage* take_free() noexcept;
    void put_free(passage& done) noexcept;
    [[nodiscard]] sending send(passage& one) noexcept;
    /// `why`: of all but `taken`.
    [[nodiscard]] offer give(passage& one, upstream& to, const request_extras& described, status& why) noexcept;
    [[nodiscard]] sending end(passage& one, status why, std::string_view text) noexcept;
    [[nodiscard]] result<std::span<tensor>, status> read_tensors(const exchange& one) noexcept;
    [[nodiscard]] result<std::span<const metadata_entry>, status> read_metadata(const exchange& one) noexcept;
    [[nodiscard]] status submit(passage& one, line& on, const call_view& call,
                                const request_extras& described) noexcept;
    [[nodiscard]] status submit_payload(const exchange& one, line& on, const call_view& call,
                                        const submit_options& options) noexcept;
    /// True: the call was given back unseen, and goes to another server. It is released.
    [[nodiscard]] bool offer_again(passage& one, line& on, completion& c) noexcept;
    void answer(exchange& one, const completion& c) noexcept;
    [[nodiscard]] status reply(exchange& one, const completion& c) noexcept;
    [[nodiscard]] status describe_answer(exchange& one, const completion& c) noexcept;
    void fail(exchange& one, status why, std::uint32_t code, std::string_view text) noexcept;
    void wait(passage& one) noexcept;
    void wait_first(passage& one) noexcept;
    void send_waiting(route& way) noexcept;
    void drop_late(route& way) noexcept;
    void pass_on_cancels() noexcept;

    std::deque<passage> passages_;  ///< stay where they are
    passage* free_ = nullptr;
    std::size_t open_ = 0;
    std::size_t waiting_ = 0;
    std::size_t max_waiting_;
    counts counts_;
    std::array<tensor, max_tensors> tensors_;  ///< of the message at hand
    metadata_room metadata_;                   ///< likewise
};

}  // namespace accel::examples::gateway
