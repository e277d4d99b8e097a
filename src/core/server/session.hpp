#pragma once

#include "core/backend.hpp"
#include "core/control/session.hpp"
#include "core/server/device_work.hpp"
#include "core/server/exchange_state.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace accel::core {

class worker;

/// One client at the server: its link and its slots. Belongs to its worker's thread, but for what is marked.
class session {
  public:
    session(worker& owner, std::uint64_t id, std::string_view scheme, client_identity client,
            const link_geometry& geometry);
    session(const session&) = delete;
    session& operator=(const session&) = delete;

    /// Checks an arrived message against this session. Null: the peer broke the protocol.
    [[nodiscard]] exchange_state* admit(const link_event& event) noexcept;
    /// Writes the response's header into its slot and hands it to the link. `again`: try later.
    [[nodiscard]] status send(exchange_state& answered, nanoseconds at) noexcept;
    /// The answer of a client that is gone goes nowhere.
    status drop(const exchange_state& answered) noexcept;
    /// The slot is free for the client's next request.
    void finish(exchange_state& answered) noexcept;
    /// The transport no longer touches the last lent answer in this slot.
    void let_go(std::uint32_t slot) noexcept;
    /// The client wants its memory back: handlers go on in memory of their own, and their answers go nowhere.
    /// Spans that they have taken before are not changed by it.
    void part_from_client(recall how);
    /// Every lent answer, at the end of the link.
    void let_go_all() noexcept;

    [[nodiscard]] worker& owner() const noexcept { return owner_; }
    [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
    [[nodiscard]] std::string_view scheme() const noexcept { return scheme_; }
    [[nodiscard]] const client_identity& client() const noexcept { return client_; }
    [[nodiscard]] const link_geometry& geometry() const noexcept { return geometry_; }
    [[nodiscard]] std::uint32_t open() const noexcept { return open_; }
    /// Any thread: the client is gone, answers go nowhere.
    [[nodiscard]] bool gone() const noexcept { return gone_.load(std::memory_order_relaxed); }
    void set_gone() noexcept { gone_.store(true, std::memory_order_relaxed); }

    /// Once, before the session is installed; the link is attached.
    void set_link(std::unique_ptr<link> made) noexcept;
    [[nodiscard]] link& path() const noexcept { return *path_; }
    /// Once, after `set_link`: its handler wants its bytes on a GPU.
    void put_on_device(device_session place);
    /// Null: they are on the host.
    [[nodiscard]] const device_session* on_device() const noexcept { return device_.get(); }
    std::size_t memory_bytes = 0;
    [[nodiscard]] std::size_t gpu_memory_bytes() const noexcept;

  private:
    void write_header(const exchange_state& answered, nanoseconds at) const noexcept;

    worker& owner_;
    std::unique_ptr<link> path_;
    std::size_t answer_bytes_ = 0;  ///< that fit into a slot of `path_`
    std::uint64_t id_;
    std::string_view scheme_;
    client_identity client_;
    link_geometry geometry_;
    std::unique_ptr<device_session> device_;
    std::vector<device_work> device_work_;
    std::vector<exchange_state> exchanges_;
    std::vector<std::unique_ptr<own_memory>> own_;
    std::uint32_t open_ = 0;
    std::atomic<bool> gone_{false};
};

}  // namespace accel::core
