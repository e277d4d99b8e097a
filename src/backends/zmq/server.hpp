#pragma once

#include "backends/zmq/arrivals.hpp"
#include "backends/zmq/in_flight.hpp"
#include "backends/zmq/message.hpp"
#include "core/backend.hpp"
#include "core/control/security.hpp"
#include "core/control/zmq_socket.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace accel::zmq {

class server_link;

/// What the links of one server's poller share: the ROUTER, and which link is behind which index. Outlives
/// both.
class server_hub {
  public:
    server_hub(core::zmq_socket router, std::shared_ptr<const core::security_identity> security);
    ~server_hub();
    server_hub(const server_hub&) = delete;
    server_hub& operator=(const server_hub&) = delete;

    [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
    // Any thread:
    [[nodiscard]] std::uint32_t take_index();
    void activate(server_link& opened);
    /// Of a link that the polling thread does not know (any more).
    void put_index(std::uint32_t index) noexcept;

    // The polling thread:
    [[nodiscard]] server_link* find(message_part& identity) noexcept;
    void merge_activated() noexcept;
    void remove(std::uint32_t index) noexcept;
    void stop() noexcept;
    /// Watched from the first call on: ZeroMQ's thread pays for each watcher.
    [[nodiscard]] int event_fd() noexcept;

    core::zmq_socket router;
    std::shared_ptr<let_go_list> returned = std::make_shared<let_go_list>();
    int router_fd;
    /// The router has said that there is nothing, and nothing was done to it since: its descriptor will tell.
    bool dry = false;

  private:
    int epoll_fd_;
    bool watched_ = false;
    std::shared_ptr<const core::security_identity> security_;  // its keys count for as long as it lives
    std::uint16_t port_;
    std::vector<server_link*> links_;  ///< of the polling thread
    std::atomic<bool> changed_{false};
    std::mutex mutex_;
    std::vector<server_link*> activated_;
    std::vector<std::uint32_t> free_;
    std::uint32_t next_index_ = 0;
};

/// The server's end of one session.
class server_link final : public core::link {
  public:
    server_link(std::shared_ptr<server_hub> hub, const core::link_config& config);
    ~server_link() override;

    /// u8 version, u8 0, u16 port, u32 index.
    [[nodiscard]] core::link_description describe() const override;
    [[nodiscard]] result<void> attach(const core::link_grant&, core::nanoseconds) override { return {}; }
    void activate() override;
    [[nodiscard]] bool close() noexcept override;

    [[nodiscard]] status deliver(const core::outgoing& message) noexcept override;
    [[nodiscard]] status deliver_plain(std::uint32_t slot,
                                       std::span<const std::byte> payload) noexcept override {
        return deliver({slot, payload, nullptr, {}});
    }
    [[nodiscard]] bool retract(std::uint32_t slot) noexcept override { return frames_->want(slot); }
    void consumed(std::uint32_t slot) noexcept override { arrivals_.consumed(slot); }
    [[nodiscard]] bool flushed() noexcept override { return frames_->idle(); }
    [[nodiscard]] core::slot_memory& send() const noexcept override { return *config_.send; }
    [[nodiscard]] core::slot_memory& receive() const noexcept override { return *config_.receive; }

    // For the hub and the poller:
    [[nodiscard]] const client_identity& identity() const noexcept { return identity_; }
    [[nodiscard]] bool ended() const noexcept { return ended_; }
    [[nodiscard]] void* owner() const noexcept { return config_.owner; }
    void arrive(incoming& in, status verdict, core::link_event& out) noexcept;

  private:
    std::shared_ptr<server_hub> hub_;
    core::link_config config_;
    client_identity identity_;
    arrival_slots arrivals_;
    in_flight::owner frames_;
    bool activated_ = false;
    bool ended_ = false;
    bool closed_ = false;
};

class server_poller final : public core::poller {
  public:
    [[nodiscard]] static result<std::unique_ptr<core::poller>> open(void* zmq_context,
                                                                    const core::poller_options& options);
    explicit server_poller(std::shared_ptr<server_hub> hub) : hub_(std::move(hub)) {}
    ~server_poller() override { hub_->stop(); }

    [[nodiscard]] result<std::unique_ptr<core::link>> open_link(const core::link_config& config) override;
    [[nodiscard]] std::size_t poll(std::span<core::link_event> out) noexcept override;
    [[nodiscard]] int event_fd() const noexcept override { return hub_->event_fd(); }
    [[nodiscard]] bool arm() noexcept override;
    [[nodiscard]] bool sleep(int other_fd, core::nanoseconds until) noexcept override;
    void disarm() noexcept override { hub_->returned->disarm(); }

  private:
    [[nodiscard]] std::size_t take_returned(std::span<core::link_event> out) noexcept;
    void drop_stranger(message_part& identity) noexcept;

    std::shared_ptr<server_hub> hub_;
    bool alone_ = false;  ///< the last message came alone, so the next is expected to
};

}  // namespace accel::zmq
