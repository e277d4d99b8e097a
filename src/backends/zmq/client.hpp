// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/zmq/arrivals.hpp"
#include "backends/zmq/credentials.hpp"
#include "backends/zmq/description.hpp"
#include "backends/zmq/in_flight.hpp"
#include "backends/zmq/monitor.hpp"
#include "backends/zmq/shared_context.hpp"
#include "backends/zmq/socket.hpp"
#include "core/backend.hpp"
#include "core/net/unique_fd.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sys/epoll.h>

namespace accel::zmq {

class client_link;

/// The state that the links of one client's poller share: the descriptor to sleep on, and the active links.
class client_hub {
  public:
    client_hub();
    /// Why it is of no use, as errno: there was no descriptor. 0: it is.
    [[nodiscard]] int failure() const noexcept { return epoll_.open() ? returned->failure() : epoll_.failure(); }

    void add(client_link& link);
    void remove(client_link& link) noexcept;
    /// Watched from the first call on: ZeroMQ's thread pays for each watcher.
    [[nodiscard]] int event_fd() noexcept;
    [[nodiscard]] bool watched() const noexcept { return watched_; }
    /// False: the system refuses that the descriptor tells of all. Tries again.
    [[nodiscard]] bool hears() noexcept;

    std::shared_ptr<release_list> returned = std::make_shared<release_list>();
    std::vector<client_link*> active;

  private:
    void watch(int fd) noexcept;
    void forget(int fd) const noexcept;

    core::unique_fd epoll_{::epoll_create1(EPOLL_CLOEXEC)};
    bool watched_ = false;
    bool deaf_ = false;
};

/// The client's end: one DEALER.
class client_link final : public core::link {
  public:
    /// `keys`: for CURVE; none: PLAIN.
    client_link(std::shared_ptr<shared_context> zmq, std::shared_ptr<client_hub> hub, std::optional<key_pair> keys,
                const core::link_config& config);
    ~client_link() override;

    [[nodiscard]] core::link_description describe() const override;
    [[nodiscard]] result<void> attach(const core::link_grant& grant, core::nanoseconds deadline) override;
    void activate() override;
    [[nodiscard]] bool close() noexcept override;

    [[nodiscard]] status deliver(const core::outgoing& message) noexcept override;
    [[nodiscard]] status deliver_plain(std::uint32_t slot, std::span<const std::byte> payload) noexcept override {
        return deliver({slot, payload, nullptr, {}});
    }
    [[nodiscard]] bool retract(std::uint32_t slot) noexcept override;
    void consumed(std::uint32_t slot) noexcept override { arrivals_.consumed(slot); }
    [[nodiscard]] bool flushed() noexcept override { return frames_->idle(); }
    [[nodiscard]] core::slot_memory& send() const noexcept override { return *config_.send; }
    [[nodiscard]] core::slot_memory& receive() const noexcept override { return *config_.receive; }

    // For the poller:
    /// At most one event; false: none.
    [[nodiscard]] bool receive(core::link_event& out) noexcept;
    /// Makes the event for a returned payload; false: the application needs none.
    [[nodiscard]] bool on_returned(const lent_payload& returned, core::link_event& out) noexcept;
    /// Whether there is nothing to receive.
    [[nodiscard]] bool quiet() noexcept;
    [[nodiscard]] bool gone() const noexcept { return gone_; }
    /// Waits some milliseconds for a response in the call that receives it, which saves the calls that only
    /// look. False: none came.
    [[nodiscard]] bool receive_asleep() noexcept;
    /// Notices a connection that has gone.
    void check_connection() noexcept;
    [[nodiscard]] int fd() const noexcept { return fd_; }
    [[nodiscard]] int monitor_fd() const noexcept { return monitor_fd_; }
    /// A correct server sends nothing more: every request has its response.
    [[nodiscard]] bool answered() const noexcept { return owed_ == 0; }

  private:
    /// The last request in a slot.
    struct request {
        slice response_into;
        std::uint32_t generation = 0;
    };

    [[nodiscard]] result<void> open_socket(const server_description& server, const core::session_token& token);
    [[nodiscard]] result<void> connect(const std::string& endpoint, core::nanoseconds deadline);
    [[nodiscard]] bool lose(status why, core::link_event& out) noexcept;
    [[nodiscard]] bool arrive(incoming& in, core::link_event& out) noexcept;

    std::shared_ptr<shared_context> zmq_;
    std::shared_ptr<client_hub> hub_;
    std::optional<key_pair> keys_;
    core::link_config config_;
    owned_socket socket_;
    socket_monitor monitor_;  // destroyed before its socket
    arrival_slots arrivals_;
    std::vector<request> requests_;
    in_flight::owner frames_;
    std::vector<core::link_event> deferred_;  ///< responses to requests that ZeroMQ still holds
    message_part early_;                      ///< from a blocking receive, if `has_early_`
    bool has_early_ = false;
    std::uint32_t owed_ = 0;  ///< requests without a response yet
    /// The socket was empty and has not been used since, so its descriptor signals the next message.
    bool dry_ = false;
    int fd_ = -1;
    int monitor_fd_ = -1;
    bool gone_ = false;  ///< the connection has gone; `lost` was not yet reported
    bool ended_ = false;
    bool closed_ = false;
};

class client_poller final : public core::poller {
  public:
    [[nodiscard]] static result<std::unique_ptr<core::poller>> open(std::shared_ptr<shared_context> zmq, bool insecure);
    client_poller(std::shared_ptr<shared_context> zmq, std::shared_ptr<client_hub> hub, bool insecure)
        : zmq_(std::move(zmq)), hub_(std::move(hub)), insecure_(insecure) {}
    ~client_poller() override { hub_->returned->close(); }

    [[nodiscard]] result<std::unique_ptr<core::link>> open_link(const core::link_config& config) override;
    [[nodiscard]] std::size_t poll(std::span<core::link_event> out) noexcept override;
    [[nodiscard]] int event_fd() const noexcept override { return hub_->event_fd(); }
    [[nodiscard]] bool arm() noexcept override;
    [[nodiscard]] bool sleep(int other_fd, core::nanoseconds until) noexcept override;
    [[nodiscard]] bool doze(int other_fd, core::nanoseconds until) noexcept override;
    void disarm() noexcept override {
        hub_->returned->disarm();
        woken_ = true;
    }

  private:
    [[nodiscard]] std::size_t take_returned(std::span<core::link_event> out) noexcept;

    std::shared_ptr<shared_context> zmq_;
    std::shared_ptr<client_hub> hub_;
    bool insecure_;
    std::size_t first_link_ = 0;
    [[nodiscard]] bool may_receive_asleep(core::nanoseconds until) const noexcept;

    std::uint32_t empty_polls_ = 0;
    bool vain_ = false;   ///< the last blocking receive brought nothing
    bool woken_ = false;  ///< the event that woke the thread has not been found yet
};

}  // namespace accel::zmq
