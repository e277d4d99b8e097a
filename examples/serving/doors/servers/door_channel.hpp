// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/gateway/offering.hpp"
#include "serving/gateway/upstream.hpp"

#include <accel_transport/channel.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

namespace accel::examples::serving::doors {

class backends;
class door_channel;

/// What a call needs beside a slot.
struct slot_wish {
    std::uint32_t parts = 0;      ///< unread ones that its answer may have; 0: it comes in one piece
    bool body_follows = false;    ///< the slot is held while the client still sends
    gateway::past_offers past{};  ///< to servers that did not take it

    /// There is only a share of the slots for it.
    [[nodiscard]] bool is_shared() const noexcept { return parts > 0 || body_follows; }
};

/// A slot of one of the channels, for one call.
struct call_slot {
    door_channel* on = nullptr;
    call_id id;
    std::span<std::byte> request;  ///< where the call's request goes
    std::uint32_t parts = 0;       ///< unread ones that its answer may have; 0: it comes in one piece
};

/// Whoever calls a model.
class caller {
  public:
    caller() = default;
    caller(const caller&) = delete;
    caller& operator=(const caller&) = delete;
    virtual ~caller() = default;
    /// With `ok` the call is begun, and the caller has to submit or release it: at once, if its answer comes in parts.
    virtual void on_slot(status got, const call_slot& slot) = 0;
    /// The caller has to release `answer.id` of `on`. Others follow while it says `more`.
    virtual void on_answer(door_channel& on, const completion& answer) = 0;
    /// The key of `balance::sticky`: the same for all calls of a client's connection.
    [[nodiscard]] virtual std::uint64_t sticky_key() const { return 0; }
    /// Of its request.
    [[nodiscard]] virtual std::span<const metadata_entry> metadata() const { return {}; }
};

/// A channel to a server, in a loop of Asio. Belongs to the loop's thread.
class door_channel {
  public:
    door_channel(boost::asio::io_context& loop, gateway::line& on, backends& all);
    door_channel(const door_channel&) = delete;
    door_channel& operator=(const door_channel&) = delete;

    /// 0: this channel has too few slots for answers in parts.
    [[nodiscard]] std::uint32_t most_parts() const { return line_.path.slots() - 1; }
    /// Calls in parts share three quarters of all slots, and those whose bodies follow share half of them, so that
    /// clients who read or send slowly do not hold all of them.
    [[nodiscard]] bool has_share(const slot_wish& wish) const;
    /// The begun call's body follows: until it is submitted or released it takes of that share.
    void expect_body(call_id id);
    /// True: so many slots are free.
    [[nodiscard]] bool has_free(std::uint32_t slots);
    /// Gives back a call that was begun for nobody.
    void undo(call_id id);

    /// As `channel::submit`; with `ok`, `who` gets an answer and is kept alive until then.
    [[nodiscard]] status submit(call_id id, std::size_t length, const submit_options& options,
                                const std::shared_ptr<caller>& who);
    /// The same, with what `lent` holds.
    [[nodiscard]] status submit(call_id id, std::span<const slice> lent, const submit_options& options,
                                const std::shared_ptr<caller>& who);
    void cancel(call_id id) { static_cast<void>(line_.path.cancel(id)); }
    void release(call_id id);
    /// It gets no more calls. True: it has none, and nothing of it is left in the loop; else ask again.
    [[nodiscard]] bool end();
    /// What the response says of its tensors, until the next call; empty: nothing.
    [[nodiscard]] std::span<const tensor> tensors(const completion& answer);
    [[nodiscard]] channel& path() { return line_.path; }
    [[nodiscard]] const gateway::upstream& server() const { return *line_.to; }

  private:
    struct open_call {
        std::shared_ptr<caller> who;
        std::uint32_t parts = 0;
    };

    [[nodiscard]] status expect(status sent, call_id id, open_call one);
    [[nodiscard]] std::shared_ptr<caller> owner_of(const completion& answer);
    void end_body(call_id id);
    void drive();
    std::size_t take_answers();
    void wake();
    void sleep();

    boost::asio::io_context& loop_;
    gateway::line& line_;
    backends& all_;
    boost::asio::posix::stream_descriptor events_;
    std::vector<open_call> calls_;     ///< by slot
    std::vector<completion> answers_;  ///< by slot: until their caller releases them
    std::vector<bool> holds_part_;     ///< by slot: of another slot's call
    std::vector<bool> has_body_;       ///< by slot: a client still sends its body
    std::uint32_t in_parts_ = 0;       ///< slots of open calls whose answers come in parts
    std::uint32_t bodies_ = 0;         ///< of `has_body_`
    bool driven_soon_ = false;         ///< `drive` is posted
    bool sleeping_ = false;            ///< on the channel's descriptor
    bool ended_ = false;
    std::array<tensor, max_tensors> described_{};
};

}  // namespace accel::examples::serving::doors
