// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/tcp/send_queue.hpp"
#include "backends/tcp/stream_reader.hpp"
#include "backends/tcp/tls_bytes.hpp"
#include "backends/tcp/zerocopy.hpp"
#include "core/backend.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace accel::tcp {

class tcp_poller;

/// One data connection. control.cpp makes and ends it, datapath.cpp sends and receives.
class tcp_link final : public core::link {
  public:
    tcp_link(tcp_poller& owner, const core::link_config& config);
    ~tcp_link() override;
    tcp_link(const tcp_link&) = delete;
    tcp_link& operator=(const tcp_link&) = delete;

    [[nodiscard]] core::link_description describe() const override;
    [[nodiscard]] result<void> attach(const core::link_grant& grant, core::nanoseconds deadline) override;
    void activate() override;
    void peer_left() noexcept override { output_ = output::unwanted; }
    [[nodiscard]] bool close() noexcept override;
    [[nodiscard]] status deliver(const core::outgoing& message) noexcept override;
    [[nodiscard]] status deliver_plain(std::uint32_t slot, std::span<const std::byte> payload) noexcept override {
        return deliver({slot, payload, nullptr, {}});
    }
    [[nodiscard]] bool retract(std::uint32_t slot) noexcept override;
    void consumed(std::uint32_t slot) noexcept override;
    /// The peer's kernel has everything.
    [[nodiscard]] bool flushed() noexcept override;
    [[nodiscard]] bool gathers() const noexcept override { return true; }
    [[nodiscard]] bool scatters() const noexcept override { return true; }
    [[nodiscard]] core::slot_memory& send() const noexcept override { return *config_.send; }
    [[nodiscard]] core::slot_memory& receive() const noexcept override { return *config_.receive; }

    // For the poller.
    [[nodiscard]] std::uint64_t session_id() const noexcept { return config_.session_id; }
    /// Takes the connection that its client has made.
    void adopt(core::data_connection made) noexcept;
    /// Moves bytes both ways; returns how many events it wrote. `out` has room for at least 2.
    [[nodiscard]] std::size_t progress(std::span<core::link_event> out) noexcept;
    /// True if `progress` has something to do without a new event from the OS.
    [[nodiscard]] bool has_work() const noexcept {
        const bool can_send = !all_sent() && !blocked();
        return more_to_read_ || can_send || first_released_ != none || state_ == state::losing;
    }
    /// True while the OS takes no more bytes.
    [[nodiscard]] bool blocked() const noexcept { return output_ == output::blocked; }
    void unblock() noexcept {
        if (blocked()) output_ = output::open;
    }
    /// After a sleep, a first read that does not fill its room means that the socket is empty: the next
    /// `progress` does not read again.
    void after_sleep() noexcept { input_ = input::woken; }
    /// True if only bytes from the peer are waited for.
    [[nodiscard]] bool may_read_asleep() const noexcept {
        return reads_sleep_ && state_ == state::open && all_sent() && !zerocopy_.pending();
    }
    [[nodiscard]] bool read_asleep() noexcept;
    [[nodiscard]] int fd() const noexcept { return fd_.get(); }

    // Kept here by the poller.
    bool hot = false;
    bool watches_output = false;

  private:
    enum class state : std::uint8_t {
        idle,      ///< not active yet
        expected,  ///< server: its client has not connected yet
        open,
        losing,  ///< failed; the `lost` event is still to be reported
        lost,
        closing,  ///< `close` was called; the OS still reads lent or slot memory
        closed,
    };
    /// The state of incoming bytes.
    enum class input : std::uint8_t {
        unknown,
        woken,  ///< nothing was read since a sleep
        empty,  ///< the next `progress` does not read
        ahead,  ///< likewise, and the `progress` after that does not either: `read_asleep` has read for them
    };
    /// The state of outgoing bytes.
    enum class output : std::uint8_t {
        open,
        blocked,   ///< the OS takes no more
        failed,    ///< for good; bytes that the peer sent before are still read
        unwanted,  ///< the peer is gone
    };
    /// Memory lent for a slot, and whether its owner still waits for the release.
    struct loan {
        bool owed = false;  ///< a `buffer_released` is due once nothing touches the memory
        std::uint32_t next = none;
    };
    static constexpr std::uint32_t none = send_queue::none;

    /// The poller knows this link.
    [[nodiscard]] bool polled() const noexcept { return state_ >= state::expected && state_ <= state::lost; }
    [[nodiscard]] bool is_server() const noexcept { return config_.role == core::link_role::server; }
    [[nodiscard]] result<void> read_wish(const core::link_description& told);
    [[nodiscard]] result<void> connect(const core::link_grant& grant, core::nanoseconds deadline);
    [[nodiscard]] result<void> connect_once(const core::link_grant& grant, core::nanoseconds deadline);
    [[nodiscard]] bool pace() const noexcept;
    void secure(std::shared_ptr<core::tls_stream> tls);
    void start();
    void leave_poller() noexcept;
    void fail(status reason) noexcept;

    // Sending.
    /// What is sent, here; false: its bytes are plain, or the OS encrypts them.
    [[nodiscard]] bool encrypts() const noexcept { return tls_ != nullptr && !kernel_encrypts_; }
    /// True if neither messages nor ciphertext wait for the socket.
    [[nodiscard]] bool all_sent() const noexcept {
        return queue_.empty() && (tls_ == nullptr || !tls_->holds_output());
    }
    void flush() noexcept;
    [[nodiscard]] bool send_once() noexcept;
    [[nodiscard]] bool send_records() noexcept;
    void stop_sending() noexcept;
    void send_failed() noexcept;
    void forget_output() noexcept;
    void book_sent(std::size_t count) noexcept;
    void settle_loan(std::uint32_t slot) noexcept;
    void push_released(std::uint32_t slot) noexcept;
    void reap_zerocopy() noexcept;
    [[nodiscard]] std::size_t take_released(std::span<core::link_event> out) noexcept;

    // Receiving.
    enum class read_outcome : std::uint8_t { all, some, nothing, failed };
    [[nodiscard]] std::size_t receive(std::span<core::link_event> out) noexcept;
    [[nodiscard]] read_outcome read_once(std::size_t& count, int flags) noexcept;
    [[nodiscard]] read_outcome read_record(std::size_t& count, bool may_sleep) noexcept;
    [[nodiscard]] std::size_t take_arrivals(std::span<core::link_event> out) noexcept;

    // Ending.
    void say_goodbye() noexcept;
    [[nodiscard]] bool drained(core::nanoseconds now) noexcept;
    void abort_connection() noexcept;

    tcp_poller& poller_;
    core::link_config config_;
    core::unique_fd fd_;
    state state_ = state::idle;
    status reason_ = status::ok;
    input input_ = input::unknown;
    output output_ = output::open;
    bool encrypted_ = false;        ///< as both ends agreed
    bool kernel_encrypts_ = false;  ///< what is sent
    bool more_to_read_ = false;
    bool reads_sleep_ = false;  ///< its socket is one of `let_reads_sleep`
    std::uint32_t first_released_ = none;
    std::uint32_t last_released_ = none;
    core::nanoseconds close_by_{};
    send_queue queue_;
    zerocopy_ledger zerocopy_;
    std::unique_ptr<tls_bytes> tls_;  ///< null: the socket's bytes are plain
    std::vector<loan> loans_;
    stream_reader reader_;
};

}  // namespace accel::tcp
