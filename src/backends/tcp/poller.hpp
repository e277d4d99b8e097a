// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/tcp/arrivals.hpp"
#include "backends/tcp/link.hpp"
#include "core/backend.hpp"
#include "core/event_signal.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace accel::tcp {

/// All links of one thread over one epoll; a server's also takes new connections. Few links are read
/// directly, one system call each; among many, only those that the epoll names.
class tcp_poller final : public core::poller {
  public:
    [[nodiscard]] static result<std::unique_ptr<core::poller>> open(const core::poller_options& options);

    [[nodiscard]] result<std::unique_ptr<core::link>> open_link(const core::link_config& config) override;
    [[nodiscard]] std::size_t poll(std::span<core::link_event> out) noexcept override;
    [[nodiscard]] int event_fd() const noexcept override { return epoll_.get(); }
    [[nodiscard]] bool arm() noexcept override;
    void disarm() noexcept override;
    [[nodiscard]] bool sleep(int other_fd, core::nanoseconds until) noexcept override;
    [[nodiscard]] bool doze(int other_fd, core::nanoseconds until) noexcept override;

    [[nodiscard]] result<void> take_connection(core::data_connection& made) override;

    // For the links.
    [[nodiscard]] bool is_server() const noexcept { return arrivals_.has_value(); }
    /// This end's keys and its wish for encryption; null: none.
    [[nodiscard]] const core::security_identity* security() const noexcept { return security_.get(); }
    [[nodiscard]] bool encrypts() const noexcept;
    [[nodiscard]] bool has_to_encrypt() const noexcept;
    /// Server: where the link waits for its client.
    [[nodiscard]] arrivals& door() noexcept { return *arrivals_; }
    /// For one more link.
    void make_room();
    /// From now on the link is polled. False: the OS cannot watch it. After `make_room`.
    [[nodiscard]] bool add(tcp_link& link) noexcept;
    /// Nothing is polled or awaited for the link any more; its socket is still open. Idempotent.
    void remove(tcp_link& link) noexcept;
    /// The OS no longer watches the link.
    void unwatch(tcp_link& link) noexcept;
    /// The link has something to do at the next poll. Never allocates.
    void make_hot(tcp_link& link) noexcept;
    /// The link's `blocked` has changed.
    void output_changed(tcp_link& link) noexcept;

  private:
    tcp_poller(core::unique_fd epoll, const core::poller_options& options)
        : epoll_(std::move(epoll)), zerocopy_(options.zerocopy), security_(options.security) {}
    /// Up to this many links are read one by one, which costs less than an epoll call.
    static constexpr std::size_t few_links = 4;
    [[nodiscard]] bool few() const noexcept { return links_.size() <= few_links; }
    [[nodiscard]] std::size_t poll_few(std::span<core::link_event> out) noexcept;
    [[nodiscard]] std::size_t poll_many(std::span<core::link_event> out) noexcept;
    bool ask_epoll(core::nanoseconds until) noexcept;
    [[nodiscard]] bool may_read_asleep(core::nanoseconds until) const noexcept;
    void sync_output(tcp_link& link) noexcept;
    void take_arrivals() noexcept;
    void disarm_links() noexcept;
    [[nodiscard]] bool watch_other(int fd) noexcept;

    core::unique_fd epoll_;
    bool zerocopy_;
    std::shared_ptr<const core::security_identity> security_;
    std::optional<arrivals> arrivals_;  ///< server
    std::vector<tcp_link*> links_;      ///< connected
    std::vector<tcp_link*> hot_;        ///< capacity for all links
    std::size_t first_link_ = 0;
    std::uint32_t polls_ = 0;
    bool slept_ = false;  ///< by `sleep`, which leaves nothing to do for `disarm`
    bool quiet_ = false;  ///< the last read asleep brought nothing
    int other_fd_ = -1;   ///< of `sleep`, in the epoll
};

}  // namespace accel::tcp
