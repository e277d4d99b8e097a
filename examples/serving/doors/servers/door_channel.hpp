// SPDX-License-Identifier: Apache-2.0
#pragma once

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

/// A slot of one of the channels, for one call.
struct call_slot {
    door_channel* on = nullptr;
    call_id id;
    std::span<std::byte> request;  ///< where the call's request goes
};

/// Whoever calls a model.
class caller {
  public:
    caller() = default;
    caller(const caller&) = delete;
    caller& operator=(const caller&) = delete;
    virtual ~caller() = default;
    /// With `ok` the call is begun, and the caller has to submit or release it.
    virtual void on_slot(status got, const call_slot& slot) = 0;
    /// The caller has to release `answer.id` of `on`.
    virtual void on_answer(door_channel& on, const completion& answer) = 0;
    /// What `balance::sticky` goes by: the same for all calls of a client's connection.
    [[nodiscard]] virtual std::uint64_t sticky_key() const { return 0; }
};

/// A channel to a server, in a loop of Asio. Belongs to the loop's thread.
class door_channel {
  public:
    door_channel(boost::asio::io_context& loop, gateway::line& on, backends& all);
    door_channel(const door_channel&) = delete;
    door_channel& operator=(const door_channel&) = delete;

    /// As `channel::submit`; with `ok`, `who` gets an answer and is kept alive until then.
    [[nodiscard]] status submit(call_id id, std::size_t length, const submit_options& options,
                                const std::shared_ptr<caller>& who);
    /// The same, with what `lent` holds.
    [[nodiscard]] status submit(call_id id, std::span<const slice> lent, const submit_options& options,
                                const std::shared_ptr<caller>& who);
    void cancel(call_id id) { static_cast<void>(line_.path.cancel(id)); }
    void release(call_id id);
    /// What the response says of its tensors, until the next call; empty: nothing.
    [[nodiscard]] std::span<const tensor> tensors(const completion& answer);
    [[nodiscard]] channel& path() { return line_.path; }

  private:
    [[nodiscard]] status expect(status sent, call_id id, const std::shared_ptr<caller>& who);
    void drive();
    std::size_t take_answers();
    void wake();
    void sleep();

    boost::asio::io_context& loop_;
    gateway::line& line_;
    backends& all_;
    boost::asio::posix::stream_descriptor events_;
    std::vector<std::shared_ptr<caller>> calls_;  ///< by slot
    bool driven_soon_ = false;                    ///< `drive` is posted
    bool sleeping_ = false;                       ///< on the channel's descriptor
    std::array<tensor, max_tensors> described_{};
};

}  // namespace accel::examples::serving::doors
