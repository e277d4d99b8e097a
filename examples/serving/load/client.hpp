// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "report/timetable.hpp"
#include "serving/load/inputs.hpp"
#include "serving/load/issue_queue.hpp"
#include "serving/load/measured.hpp"
#include "serving/load/settings.hpp"

#include <accel_transport/channel.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace accel::examples::serving {

/// One client: its channel, its request, and what it has seen. Belongs to one thread. Owner; move-only.
class load_client {
  public:
    /// Connects to the client's URI, finds the model and makes the request.
    [[nodiscard]] static result<load_client> connect(context& ctx, const load_settings& chosen, std::uint32_t number);

    /// Calls before the measurement. Fails with the first call that does.
    [[nodiscard]] result<void> warm_up();
    /// Sends what is to be sent from `start` on, and takes the answers. Goes on when calls fail, and after a loss as
    /// soon as the channel is connected again; ends early when that takes too long. `answers` counts for people who
    /// watch.
    void run(std::chrono::nanoseconds start, std::atomic<std::uint64_t>& answers);
    /// The same with what `from` brings, until it is over.
    void serve(issue_queue& from, std::atomic<std::uint64_t>& answers);

    [[nodiscard]] const measured& seen() const noexcept { return seen_; }
    [[nodiscard]] const channel& to() const noexcept { return to_; }
    [[nodiscard]] bool has_priority() const noexcept { return number_ < chosen_->priority_clients; }
    /// Calls before the measurement.
    [[nodiscard]] std::uint64_t warmed_up() const noexcept { return warmed_up_; }
    /// CPU time of this thread that went into comparing answers.
    [[nodiscard]] std::chrono::nanoseconds checking() const noexcept { return checking_; }

  private:
    enum class sending : std::uint8_t { sent, full, lost };

    load_client(channel to, load_input input, const load_settings& chosen, std::uint32_t number)
        : to_(std::move(to)), input_(std::move(input)), chosen_(&chosen), number_(number) {}

    /// The mean time of a series of the warm-up, in ns.
    [[nodiscard]] result<double> warm_up_once();
    void work(std::uint64_t wanted, std::atomic<std::uint64_t>& answers);
    void send_what_is_due();
    [[nodiscard]] result<void> prepare();
    [[nodiscard]] bool is_over(std::chrono::nanoseconds due) const noexcept;
    [[nodiscard]] sending send(std::uint64_t tag);
    void send_issued(issue_queue& from);
    [[nodiscard]] std::chrono::nanoseconds answer_issued(std::uint64_t tag);
    void give_up(const issued_call& call);
    void sleep_for_issued(const issue_queue& from);
    void await_connection();
    void take(completion& done);
    /// `due`: nothing where the call was sent as soon as it could be.
    void take_answer(const completion& done, std::optional<std::chrono::nanoseconds> due, std::chrono::nanoseconds now);
    [[nodiscard]] bool is_right(const completion& done);
    [[nodiscard]] std::uint64_t take_answers();
    [[nodiscard]] std::uint64_t take_arrived(std::chrono::nanoseconds patience);
    [[nodiscard]] std::chrono::nanoseconds wait_at_most() const noexcept;
    void count_unsent();

    channel to_;
    load_input input_;
    const load_settings* chosen_;
    std::uint32_t number_;
    target target_{};
    std::optional<report::timetable> due_;  ///< open loop
    issue_queue* from_ = nullptr;           ///< of calls that somebody else decides on
    std::optional<issued_call> taken_;      ///< from there, and not sent yet
    std::vector<issued_call> under_way_;    ///< by the tags of their calls
    std::vector<std::uint32_t> free_tags_;
    measured seen_;
    std::chrono::nanoseconds checking_{};
    std::chrono::nanoseconds end_ = std::chrono::nanoseconds::max();
    std::chrono::nanoseconds least_{};       ///< a call due from then on may be the last one
    std::chrono::nanoseconds lost_since_{};  ///< 0: connected
    std::array<completion, 16> arrived_;     ///< of the poll at hand; kept, because clearing them takes time
    std::chrono::nanoseconds prepared_{};    ///< of the call under way: its stage at this client
    std::uint64_t warmed_up_ = 0;
    std::uint64_t wanted_ = 0;
    std::uint64_t issued_ = 0;
    std::uint64_t done_ = 0;
    bool over_ = false;
};

}  // namespace accel::examples::serving
