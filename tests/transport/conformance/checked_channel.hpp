// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "patience.hpp"

#include <accel_transport/accel_transport.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

namespace accel::tests {

/// A channel with an account of its calls: every accepted call has to complete exactly once, with its own tag
/// and trace id. Violations are test failures; so is a call still open when this is destroyed, unless
/// `forget` was called.
class checked_channel {
  public:
    explicit checked_channel(channel under_test) : channel_(std::move(under_test)) {}
    checked_channel(checked_channel&& other) noexcept;
    checked_channel& operator=(checked_channel&&) = delete;
    ~checked_channel();

    [[nodiscard]] channel& raw() noexcept { return channel_; }
    channel* operator->() noexcept { return &channel_; }

    [[nodiscard]] result<call_view, status> begin() { return channel_.begin(); }
    [[nodiscard]] status submit(call_id id, std::size_t length, const submit_options& options = {});
    [[nodiscard]] status submit(call_id id, slice payload, const submit_options& options = {});
    [[nodiscard]] status submit(call_id id, std::span<const slice> ranges, const submit_options& options = {});
    [[nodiscard]] status cancel(call_id id) { return channel_.cancel(id); }
    [[nodiscard]] std::size_t poll(std::span<completion> out);
    [[nodiscard]] std::size_t wait(std::span<completion> out, nanoseconds timeout);
    status release(call_id id) { return channel_.release(id); }

    /// Begins, copies `request` in and submits; throws if the channel says no.
    call_id send(std::span<const std::byte> request, const submit_options& options = {});
    /// Begins and submits `length` bytes that follow from `seed`.
    call_id send_seed(std::size_t length, std::uint64_t seed, submit_options options = {});
    /// The next completion; throws if there is none within `bound`.
    [[nodiscard]] completion next(nanoseconds bound = until_hung());
    /// Waits for all open calls and releases them; how many ended with `expected`.
    std::size_t finish(status expected, nanoseconds bound = until_hung());
    /// Polls until a slot is free, takes it and gives it back; false if none was within `bound`.
    [[nodiscard]] bool slot_comes_back(nanoseconds bound = until_hung());
    /// Every slot can be begun, so none leaked. Nothing may be in flight.
    [[nodiscard]] bool all_slots_free(nanoseconds bound = until_hung());

    [[nodiscard]] std::size_t open_calls() const noexcept { return open_.size(); }
    /// Leaves the open calls out of account: their channel is about to be destroyed on purpose.
    void forget() noexcept { open_.clear(); }

  private:
    struct submission {
        std::uint64_t tag;
        std::uint64_t trace_id;
    };
    status accepted(status outcome, call_id id, const submit_options& options);
    void completed(std::span<const completion> all);

    channel channel_;
    std::map<call_id, submission> open_;
};

}  // namespace accel::tests
