// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/zmq/arrivals.hpp"
#include "backends/zmq/credentials.hpp"
#include "backends/zmq/gatekeeper.hpp"
#include "backends/zmq/in_flight.hpp"
#include "backends/zmq/message.hpp"
#include "backends/zmq/shared_context.hpp"
#include "backends/zmq/socket.hpp"
#include "core/backend.hpp"
#include "core/net/unique_fd.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <sys/epoll.h>

namespace accel::zmq {

class server_link;

/// A bound ROUTER, and who may connect to it.
struct server_entrance {
    std::shared_ptr<shared_context> zmq;
    gatekeeper* gate = nullptr;  ///< of `zmq`
    std::string domain;
    std::optional<curve_key> key;  ///< the ROUTER's public key; none: PLAIN
    owned_socket router;
};

/// The state that the links of one server's poller share: the ROUTER, and the link of each index. Outlives both.
class server_hub {
  public:
    explicit server_hub(server_entrance entrance);
    /// Why it is of no use, as errno: there was no descriptor. 0: it is.
    [[nodiscard]] int failure() const noexcept { return epoll_.open() ? returned->failure() : epoll_.failure(); }

    [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
    [[nodiscard]] const std::optional<curve_key>& key() const noexcept { return key_; }
    // Any thread:
    /// Lets a client in, once, until `forget`. Empty: another client is expected with the same credential.
    [[nodiscard]] gatekeeper::entry expect(const credential& client) {
        return gate_->expect(domain_, key_.has_value(), client);
    }
    void forget(const gatekeeper::entry& which) noexcept { gate_->forget(which); }
    [[nodiscard]] std::uint32_t take_index();
    void activate(server_link& opened);
    /// For a link that the polling thread does not know (any more).
    void put_index(std::uint32_t index) noexcept;

    // The polling thread:
    [[nodiscard]] server_link* find(message_part& identity) noexcept;
    void merge_activated() noexcept;
    void remove(std::uint32_t index) noexcept;
    void stop() noexcept;
    /// Watched from the first call on, which comes before `arm`: ZeroMQ's thread pays for each watcher.
    [[nodiscard]] int event_fd() noexcept;
    [[nodiscard]] bool watched() const noexcept { return watched_; }
    /// False: the system refuses that the descriptor tells of all. Tries again.
    [[nodiscard]] bool hears() noexcept;

  private:
    std::shared_ptr<shared_context> zmq_;  // outlives the router

  public:
    owned_socket router;
    std::shared_ptr<release_list> returned = std::make_shared<release_list>();
    int router_fd;
    /// The router was empty and has not been used since, so its descriptor signals the next message.
    bool dry = false;

  private:
    core::unique_fd epoll_{::epoll_create1(EPOLL_CLOEXEC)};
    bool watched_ = false;
    bool deaf_ = false;
    gatekeeper* gate_;
    std::string domain_;
    std::optional<curve_key> key_;
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

    [[nodiscard]] core::link_description describe() const override;
    /// From now on its client may connect, once.
    [[nodiscard]] result<void> attach(const core::link_grant& grant, core::nanoseconds) override;
    void activate() override;
    [[nodiscard]] bool close() noexcept override;

    [[nodiscard]] status deliver(const core::outgoing& message) noexcept override;
    [[nodiscard]] status deliver_plain(std::uint32_t slot, std::span<const std::byte> payload) noexcept override {
        return deliver({slot, payload, nullptr, {}});
    }
    [[nodiscard]] bool retract(std::uint32_t slot) noexcept override { return frames_->want(slot); }
    void consumed(std::uint32_t slot) noexcept override { arrivals_.consumed(slot); }
    /// ZeroMQ does not say what has arrived: true some time after it has taken everything.
    [[nodiscard]] bool flushed() noexcept override;
    [[nodiscard]] core::slot_memory& send() const noexcept override { return *config_.send; }
    [[nodiscard]] core::slot_memory& receive() const noexcept override { return *config_.receive; }

    // For the hub and the poller:
    [[nodiscard]] const client_identity& identity() const noexcept { return identity_; }
    [[nodiscard]] bool ended() const noexcept { return ended_; }
    [[nodiscard]] void* owner() const noexcept { return config_.owner; }
    void arrive(incoming& in, status verdict, core::link_event& out) noexcept;

  private:
    [[nodiscard]] status wait_for_room() noexcept;

    std::shared_ptr<server_hub> hub_;
    core::link_config config_;
    client_identity identity_;
    arrival_slots arrivals_;
    in_flight::owner frames_;
    gatekeeper::entry entry_;          ///< of its client, once attached
    core::nanoseconds waits_since_{};  ///< since when an answer waits for room; 0: none waits
    core::nanoseconds flushed_at_{};   ///< 0: nobody has asked yet
    bool activated_ = false;
    bool ended_ = false;
    bool closed_ = false;
};

class server_poller final : public core::poller {
  public:
    [[nodiscard]] static result<std::unique_ptr<core::poller>> open(const std::shared_ptr<shared_context>& zmq,
                                                                    const core::poller_options& options);
    explicit server_poller(std::shared_ptr<server_hub> hub) : hub_(std::move(hub)) {}
    ~server_poller() override { hub_->stop(); }

    [[nodiscard]] result<std::unique_ptr<core::link>> open_link(const core::link_config& config) override;
    [[nodiscard]] std::size_t poll(std::span<core::link_event> out) noexcept override;
    [[nodiscard]] int event_fd() const noexcept override { return hub_->event_fd(); }
    [[nodiscard]] bool arm() noexcept override;
    [[nodiscard]] bool sleep(int other_fd, core::nanoseconds until) noexcept override;
    [[nodiscard]] bool doze(int other_fd, core::nanoseconds until) noexcept override;
    void disarm() noexcept override { hub_->returned->disarm(); }

  private:
    [[nodiscard]] std::size_t take_returned(std::span<core::link_event> out) noexcept;
    [[nodiscard]] bool receive_identity(message_part& identity) noexcept;
    [[nodiscard]] bool quiet() noexcept;
    [[nodiscard]] bool may_receive_asleep(core::nanoseconds until) const noexcept;
    void drop_stranger(message_part& identity) noexcept;

    std::shared_ptr<server_hub> hub_;
    message_part early_;  ///< the identity in front of a message, received asleep
    bool has_early_ = false;
    bool vain_ = false;   ///< the last receive asleep brought nothing
    bool alone_ = false;  ///< the last message came alone, so the next is expected to
};

}  // namespace accel::zmq
