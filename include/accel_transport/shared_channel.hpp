// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/channel.hpp>
#include <accel_transport/completion.hpp>
#include <accel_transport/config.hpp>
#include <accel_transport/context.hpp>
#include <accel_transport/memory.hpp>
#include <accel_transport/options.hpp>
#include <accel_transport/status.hpp>
#include <accel_transport/target.hpp>
#include <accel_transport/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace accel {

namespace core {
class shared_state;
struct pending_call;
}  // namespace core

/// The response of a call over a `shared_channel` or a `channel_pool`. Owns its slot, so that other calls may wait for
/// it; keeps the memory of the channel valid, also after the channel was closed or destroyed. Move-only. Belongs to one
/// thread at a time, not always the one that called.
class ACCEL_API shared_response : public call_outcome {
  public:
    shared_response(shared_response&&) noexcept;
    shared_response& operator=(shared_response&&) noexcept;
    ~shared_response();

    /// As `completion::tensors`.
    [[nodiscard]] result<std::span<tensor>, accel::status> tensors(std::span<tensor> room) const noexcept;
    /// As `completion::metadata`.
    [[nodiscard]] result<std::span<const metadata_entry>, accel::status> metadata(metadata_room& room) const noexcept;

  private:
    friend class core::shared_state;
    shared_response(std::shared_ptr<core::shared_state> owner, const call_outcome& content) noexcept;
    void reset() noexcept;
    std::shared_ptr<core::shared_state> owner_;
};

/// A call under way over a `shared_channel` or a `channel_pool`. Owner; move-only. Belongs to one thread at a time,
/// except for `cancel`. The destructor cancels the call. If the call lent memory, the destructor then waits until the
/// transport has released it, at most `peer_timeout`.
class ACCEL_API shared_call {
  public:
    shared_call(shared_call&&) noexcept;
    shared_call& operator=(shared_call&&) noexcept;
    ~shared_call();

    /// Waits until the call has ended, which is at its deadline at the latest, and returns its response, once.
    /// Fails as `shared_channel::call`. `invalid_state`: the response was returned before.
    [[nodiscard]] result<shared_response> wait();
    /// True: `wait` returns at once. Takes what has arrived if no other thread waits for the channel; never blocks.
    [[nodiscard]] bool done() noexcept;
    /// Ends the call early, with `cancelled`, as `channel::cancel` does. From any thread, also while another is in
    /// `wait`. `invalid_state`: the call has ended.
    status cancel() noexcept;

  private:
    friend class core::shared_state;
    shared_call(std::shared_ptr<core::shared_state> owner, std::unique_ptr<core::pending_call> call) noexcept;
    void reset() noexcept;
    std::shared_ptr<core::shared_state> owner_;
    std::unique_ptr<core::pending_call> call_;
};

/// One connection that any number of threads call over. Move-only; one thread may move it.
/// A call needs a slot. While none is free, calls wait for one in order, until their deadlines. `slots` calls travel at
/// once; an unread response keeps its slot.
/// One of the waiting threads polls for all (`poll` says how it waits); the others sleep. No thread is started.
/// A call takes the channel's lock twice, for as long as the transport takes to send or to poll.
class ACCEL_API shared_channel {
  public:
    /// As `channel::connect`.
    [[nodiscard]] static result<shared_channel> connect(context& ctx, std::string_view uri,
                                                        const channel_options& options = {});
    shared_channel(shared_channel&&) noexcept;
    shared_channel& operator=(shared_channel&&) noexcept;
    /// As `close()`, also while other threads wait for calls.
    ~shared_channel();

    /// As `channel::resolve`.
    [[nodiscard]] result<target> resolve(std::string_view name);

    /// A blocking call: copies `request` into a slot and waits for the response. A failure from the server is an
    /// `error` with the handler's text.
    /// `timed_out`: also if no slot was free before the deadline.
    /// `closed`: this channel was closed, or the server is draining or has stopped.
    /// `invalid_argument`: `parts` or `continues` is set, which needs a `channel`.
    /// `message_too_large`, `peer_lost`, `device_lost`.
    [[nodiscard]] result<shared_response> call(std::span<const std::byte> request,
                                               const submit_options& options = usual_options);
    /// The same with lent memory, as `channel::submit` takes it.
    [[nodiscard]] result<shared_response> call(slice payload, const submit_options& options = usual_options);

    /// Begins a call and does not wait: the call may still wait for a slot. `request` and what `options` refers to must
    /// stay valid until `shared_call::wait` has returned or the `shared_call` is destroyed. The deadline counts from
    /// now; it is noticed while any thread waits for a call of this channel. Allocates.
    [[nodiscard]] result<shared_call> submit(std::span<const std::byte> request,
                                             const submit_options& options = usual_options);
    [[nodiscard]] result<shared_call> submit(slice payload, const submit_options& options = usual_options);

    [[nodiscard]] std::size_t max_request_bytes() const noexcept;   ///< as granted by the server
    [[nodiscard]] std::size_t max_response_bytes() const noexcept;  ///< as granted by the server
    [[nodiscard]] std::uint32_t slots() const noexcept;             ///< as granted by the server
    [[nodiscard]] std::string_view scheme() const noexcept;         ///< the scheme in use ("tcp")
    [[nodiscard]] std::string endpoint() const;                     ///< as `channel::endpoint`
    [[nodiscard]] bool connected() const noexcept;                  ///< as `channel::connected`
    [[nodiscard]] channel_statistics statistics() const noexcept;

    /// Closes the connection. All calls end with `closed`, in whichever thread; responses stay valid. May wait up to
    /// `close_timeout` for lent memory.
    void close() noexcept;

  private:
    explicit shared_channel(std::shared_ptr<core::shared_state> state) noexcept;
    std::shared_ptr<core::shared_state> state_;
};

}  // namespace accel
