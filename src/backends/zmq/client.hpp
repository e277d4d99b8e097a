#pragma once

#include "backends/zmq/arrivals.hpp"
#include "backends/zmq/in_flight.hpp"
#include "core/backend.hpp"
#include "core/control/security.hpp"
#include "core/control/zmq_socket.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace accel::zmq {

class client_link;

/// What the links of one client's poller share: the descriptor to sleep on, and who is polled.
struct client_hub {
    client_hub();
    ~client_hub();
    client_hub(const client_hub&) = delete;
    client_hub& operator=(const client_hub&) = delete;
    void watch(int fd) noexcept;
    void forget(int fd) noexcept;

    std::shared_ptr<let_go_list> returned = std::make_shared<let_go_list>();
    std::vector<client_link*> active;
    int epoll_fd;
};

/// The client's end: one DEALER.
class client_link final : public core::link {
  public:
    client_link(void* zmq_context, std::shared_ptr<client_hub> hub,
                std::shared_ptr<const core::security_identity> security, const core::link_config& config);
    ~client_link() override;

    [[nodiscard]] core::link_description describe() const override { return {}; }
    [[nodiscard]] result<void> attach(const core::link_grant& grant, core::nanoseconds deadline) override;
    void activate() override;
    [[nodiscard]] bool close() noexcept override;

    [[nodiscard]] status deliver(const core::outgoing& message) noexcept override;
    [[nodiscard]] bool retract(std::uint32_t slot) noexcept override;
    void consumed(std::uint32_t slot) noexcept override { arrivals_.consumed(slot); }
    [[nodiscard]] bool flushed() const noexcept override { return frames_->idle(); }
    [[nodiscard]] core::slot_memory& send() const noexcept override { return *config_.send; }

    // For the poller:
    /// At most one event; false: none.
    [[nodiscard]] bool receive(core::link_event& out) noexcept;
    /// What `returned` means for the application; false: nothing.
    [[nodiscard]] bool on_returned(const lent_payload& returned, core::link_event& out) noexcept;
    /// Whether there is nothing to receive; notices a connection that has gone.
    [[nodiscard]] bool quiet() noexcept;
    [[nodiscard]] int fd() const noexcept { return watched_fd_; }

  private:
    /// What is known of the last request in a slot.
    struct request {
        slice response_into;
        std::uint32_t generation = 0;
    };

    [[nodiscard]] result<void> connect(const std::string& endpoint, core::nanoseconds deadline);
    [[nodiscard]] result<void> wait_for_handshake(core::socket_monitor& monitor, const std::string& endpoint,
                                                  core::nanoseconds deadline);
    [[nodiscard]] bool lose(status why, core::link_event& out) noexcept;
    [[nodiscard]] bool arrive(incoming& in, core::link_event& out) noexcept;

    void* zmq_;
    std::shared_ptr<client_hub> hub_;
    std::shared_ptr<const core::security_identity> security_;
    core::link_config config_;
    core::zmq_socket socket_;
    arrival_slots arrivals_;
    std::vector<request> requests_;
    in_flight::owner frames_;
    std::vector<core::link_event> deferred_;  ///< responses to requests that ZeroMQ still holds
    int watched_fd_ = -1;                     ///< -1: not active
    bool gone_ = false;                       ///< the connection is; `lost` was not yet reported
    bool ended_ = false;
    bool closed_ = false;
};

class client_poller final : public core::poller {
  public:
    client_poller(void* zmq_context, std::shared_ptr<const core::security_identity> security)
        : zmq_(zmq_context), security_(std::move(security)), hub_(std::make_shared<client_hub>()) {}
    ~client_poller() override { hub_->returned->close(); }

    [[nodiscard]] result<std::unique_ptr<core::link>> open_link(const core::link_config& config) override;
    [[nodiscard]] std::size_t poll(std::span<core::link_event> out) noexcept override;
    [[nodiscard]] int event_fd() const noexcept override { return hub_->epoll_fd; }
    [[nodiscard]] bool arm() noexcept override;
    [[nodiscard]] bool sleep(int other_fd, core::nanoseconds until) noexcept override;
    void disarm() noexcept override { hub_->returned->disarm(); }

  private:
    [[nodiscard]] std::size_t take_returned(std::span<core::link_event> out) noexcept;

    void* zmq_;
    std::shared_ptr<const core::security_identity> security_;
    std::shared_ptr<client_hub> hub_;
    std::size_t turn_ = 0;
    std::uint32_t empty_polls_ = 0;
};

}  // namespace accel::zmq
