// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/channel.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

namespace accel::examples::serving::doors {

/// Whoever calls a backend.
class caller {
  public:
    caller() = default;
    caller(const caller&) = delete;
    caller& operator=(const caller&) = delete;
    virtual ~caller() = default;
    /// With `ok` the call is begun, and the caller has to submit or release it: at once, if its answer comes in parts.
    virtual void on_slot(status got, const call_view& call) = 0;
    /// The caller has to release `answer.id`. Others follow while it says `more`.
    virtual void on_answer(const completion& answer) = 0;
};

/// Most unread parts that a call of a door asks for.
inline constexpr std::uint32_t max_parts = 16;

/// A channel in a loop of Asio. Belongs to the loop's thread.
class backend {
  public:
    backend(boost::asio::io_context& loop, channel to);

    /// Gives a slot: now, or when one is free, in the order of asking. Keeps `who` alive until then. For an answer in
    /// `parts`, at most `most_parts()`, there are as many slots free besides. Such calls share three quarters of all
    /// slots, so that clients who read slowly do not hold all of them; others overtake those that wait for that.
    void ask_slot(const std::shared_ptr<caller>& who, std::uint32_t parts = 0);
    /// 0: this channel has too few slots for answers in parts.
    [[nodiscard]] std::uint32_t most_parts() const { return std::min(max_parts, channel_.slots() - 1); }
    /// `who` waits no longer.
    void forget(const caller& who);
    /// As `channel::submit`; with `ok`, `who` gets an answer and is kept alive until then.
    [[nodiscard]] status submit(call_id id, std::size_t length, const submit_options& options,
                                const std::shared_ptr<caller>& who);
    /// The same, with what `lent` holds.
    [[nodiscard]] status submit(call_id id, std::span<const slice> lent, const submit_options& options,
                                const std::shared_ptr<caller>& who);
    void cancel(call_id id) { static_cast<void>(channel_.cancel(id)); }
    void release(call_id id);
    /// What the response says of its tensors, until the next call; empty: nothing.
    [[nodiscard]] std::span<const tensor> tensors(const completion& answer);
    [[nodiscard]] bool connected() const { return channel_.connected(); }
    [[nodiscard]] channel& line() { return channel_; }

  private:
    struct waiting_call {
        std::shared_ptr<caller> who;
        std::uint32_t parts = 0;
    };
    using open_call = waiting_call;

    [[nodiscard]] status expect(status sent, call_id id, open_call one);
    void drive();
    std::size_t take_answers();
    [[nodiscard]] std::shared_ptr<caller> owner_of(const completion& answer);
    [[nodiscard]] bool may_begin(const waiting_call& one) const;
    [[nodiscard]] status begin(std::uint32_t parts, call_view& call);
    void serve_waiting();
    [[nodiscard]] bool serve_next();
    void wake();
    void sleep();

    boost::asio::io_context& loop_;
    channel channel_;
    boost::asio::posix::stream_descriptor events_;
    std::vector<open_call> calls_;  ///< by slot
    std::deque<waiting_call> waiting_;
    std::uint32_t in_parts_ = 0;  ///< slots of open calls whose answers come in parts
    bool serving_ = false;
    bool driven_soon_ = false;  ///< `drive` is posted
    bool sleeping_ = false;     ///< on the channel's descriptor
    std::array<tensor, max_tensors> described_{};
};

}  // namespace accel::examples::serving::doors
