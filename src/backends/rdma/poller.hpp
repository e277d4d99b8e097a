// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/rdma/link.hpp"
#include "core/backend.hpp"
#include "verbs/async_events.hpp"
#include "verbs/device.hpp"
#include "verbs/domain_list.hpp"
#include "verbs/queues.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace accel::rdma {

/// From a queue pair's number to its link: a hash table with linear probing, at most half full. Grows when a
/// link is added, never while completions are looked up.
class link_table {
  public:
    /// Null: there is none.
    [[nodiscard]] rdma_link* find(std::uint32_t number) noexcept {
        if (last_.link == nullptr || number != last_.number) last_ = {number, look_up(number)};
        return last_.link;
    }
    void add(std::uint32_t number, rdma_link& link) {
        if ((count_ + 1) * 2 > entries_.size()) grow();
        put({number, &link});
        ++count_;
        last_ = none;
    }
    void remove(std::uint32_t number) noexcept {
        last_ = none;
        std::size_t hole = place_of(number);
        while (entries_[hole].link != nullptr && entries_[hole].number != number) hole = (hole + 1) & mask();
        if (entries_[hole].link == nullptr) return;
        --count_;
        // Those behind it move up, unless they would pass the place where they are looked for first.
        for (std::size_t i = (hole + 1) & mask(); entries_[i].link != nullptr; i = (i + 1) & mask()) {
            const std::size_t home = place_of(entries_[i].number);
            if (((i - home) & mask()) < ((i - hole) & mask())) continue;
            entries_[hole] = entries_[i];
            hole = i;
        }
        entries_[hole] = {};
    }
    [[nodiscard]] std::size_t size() const noexcept { return count_; }
    template <class Visit>
    void for_each(Visit&& visit) const {
        for (const entry& each : entries_)
            if (each.link != nullptr) visit(*each.link);
    }

  private:
    struct entry {
        std::uint32_t number = 0;
        rdma_link* link = nullptr;
    };
    [[nodiscard]] rdma_link* look_up(std::uint32_t number) const noexcept {
        for (std::size_t i = place_of(number);; i = (i + 1) & mask()) {
            const entry& each = entries_[i];
            if (each.link == nullptr || each.number == number) return each.link;
        }
    }
    [[nodiscard]] std::size_t mask() const noexcept { return entries_.size() - 1; }
    /// Numbers are handed out one after another, so their low bits spread well.
    [[nodiscard]] std::size_t place_of(std::uint32_t number) const noexcept { return number & mask(); }
    void put(const entry& made) noexcept {
        std::size_t i = place_of(made.number);
        while (entries_[i].link != nullptr) i = (i + 1) & mask();
        entries_[i] = made;
    }
    void grow() {
        std::vector<entry> old(entries_.size() * 2);
        old.swap(entries_);
        for (const entry& each : old)
            if (each.link != nullptr) put(each);
    }

    std::vector<entry> entries_ = std::vector<entry>(16);
    std::size_t count_ = 0;
    /// No queue pair has this number: they have 24 bits.
    static constexpr entry none{0xffff'ffff, nullptr};
    entry last_ = none;  ///< what was looked up last; most often it is the next one too
};

/// All links of one thread over one completion queue, or a few when there are many links; on a server also
/// one shared receive queue.
class rdma_poller final : public core::poller, public verbs::async_listener {
  public:
    [[nodiscard]] static result<std::unique_ptr<core::poller>> open(std::shared_ptr<verbs::device> on,
                                                                    std::shared_ptr<verbs::domain_list> domains,
                                                                    const core::poller_options& options,
                                                                    bool fills_devices);
    ~rdma_poller() override;
    rdma_poller(const rdma_poller&) = delete;
    rdma_poller& operator=(const rdma_poller&) = delete;

    [[nodiscard]] result<std::unique_ptr<core::link>> open_link(const core::link_config& config) override;
    [[nodiscard]] std::size_t poll(std::span<core::link_event> out) noexcept override;
    [[nodiscard]] int event_fd() const noexcept override { return epoll_fd_; }
    [[nodiscard]] bool arm() noexcept override;
    [[nodiscard]] bool sleep(int other_fd, core::nanoseconds until) noexcept override;
    void disarm() noexcept override;

    // For the links.
    [[nodiscard]] const std::shared_ptr<verbs::device>& device() const noexcept { return device_; }
    [[nodiscard]] verbs::domain_list& domains() const noexcept { return *domains_; }
    [[nodiscard]] ibv_srq* receives() const noexcept { return receives_ ? receives_->get() : nullptr; }
    [[nodiscard]] const verbs_options& options() const noexcept { return options_; }
    /// Payloads travel apart from their headers, to or from a GPU.
    [[nodiscard]] bool fills_devices() const noexcept { return fills_devices_; }
    /// For this poller's thread.
    [[nodiscard]] verbs::empty_receives& receive_chain() noexcept { return receive_chain_; }
    [[nodiscard]] verbs::receive_use& shared_use() noexcept { return shared_use_; }
    /// Server: posts the shared receives that were used up.
    void refill_receives() noexcept;
    /// Before a link makes its queue pair: a completion queue with room for its completions. Any thread.
    [[nodiscard]] result<verbs::completion_queue*> admit(std::uint32_t completions);
    /// After its queue pair is gone. Any thread.
    void dismiss(const verbs::completion_queue& from, std::uint32_t completions) noexcept;
    /// From now on the link's completions are its own. Any thread.
    void add(rdma_link& link);
    /// After the queue pair is gone; if the link is polled, on the polling thread. Idempotent.
    void remove(rdma_link& link, std::uint32_t number, bool polled) noexcept;
    /// The link has something to tell at the next poll. On the polling thread; never allocates.
    void mark_pending(rdma_link& link) noexcept;
    /// The link has failed. Any thread.
    void report(rdma_link& link) noexcept;
    void on_async_event(ibv_event_type type) noexcept override;

  private:
    rdma_poller(std::shared_ptr<verbs::device> on, std::shared_ptr<verbs::domain_list> domains,
                const core::poller_options& options, bool fills_devices);
    /// Receives are posted anew when so many have been used up.
    static constexpr std::uint32_t receives_at_once = 32;

    /// Each holds twice as much as the one before.
    static constexpr std::size_t max_queues = 12;
    struct queue_share {
        std::unique_ptr<verbs::completion_queue> queue;
        std::uint32_t needed = 0;  ///< completions that may come
    };

    [[nodiscard]] result<void> make_queues();
    [[nodiscard]] result<void> add_queue(std::uint32_t completions);
    [[nodiscard]] verbs::completion_queue& next_queue() noexcept;
    void discard_completions(std::uint32_t number) noexcept;
    void replace_queues() noexcept;
    void wake() noexcept;
    void take_commands() noexcept;
    void take_added() noexcept;
    [[nodiscard]] std::size_t drain_events(std::span<core::link_event> out) noexcept;
    [[nodiscard]] std::size_t poll_on(int got, std::span<core::link_event> out) noexcept;
    [[nodiscard]] std::size_t poll_all(std::span<core::link_event> out) noexcept;
    [[nodiscard]] std::size_t take(const mlx5::completion& completion, core::link_event& out) noexcept;
    [[nodiscard]] std::size_t take_completions(std::span<core::link_event> out) noexcept;
    [[nodiscard]] static bool is_arrival(const mlx5::completion& completion, const rdma_link* link) noexcept;
    [[nodiscard]] bool fetch() noexcept;
    void keep(int got) noexcept;
    void top_up() noexcept;
    void settle_busy() noexcept {
        busy_ = !pending_links_.empty() || next_fetched_ < last_fetched_ || queue_failed_ || top_up_due_;
    }
    void fail_all(status reason) noexcept;
    void fail_queue() noexcept;

    std::shared_ptr<verbs::device> device_;
    std::shared_ptr<verbs::domain_list> domains_;
    core::link_role role_;
    bool fills_devices_;
    verbs_options options_;
    int epoll_fd_;
    int wake_fd_;
    verbs::completion_queue* completions_ = nullptr;  ///< the one looked at last
    std::uint32_t queues_polled_ = 0;
    std::uint32_t polled_queue_ = 0;                  ///< with several: the one polled last
    std::unique_ptr<verbs::receive_queue> receives_;  ///< server
    verbs::empty_receives receive_chain_;
    verbs::receive_use shared_use_{0, receives_at_once};
    bool top_up_due_ = false;  ///< a session has ended; nobody may hear of the receives it had used up

    std::array<mlx5::completion, 16> fetched_{};
    std::uint32_t next_fetched_ = 0;
    std::uint32_t last_fetched_ = 0;
    link_table links_;
    std::vector<rdma_link*> pending_links_;  ///< capacity for all links
    bool queue_failed_ = false;              ///< as `mutex_` guards it for other threads
    bool busy_ = false;                      ///< there is more to `poll` than a look at the completion queue
    std::uint32_t single_looks_ = 0;         ///< so many looks ask for one completion, the next one for more
    core::nanoseconds replace_at_{};
    bool armed_ = false;  ///< an event of the completion queue may be there to be taken

    std::atomic<bool> commands_pending_{false};
    std::mutex mutex_;  ///< of what follows; met only when a link comes, goes or fails
    std::vector<rdma_link*> added_;
    std::vector<rdma_link*> failed_;
    bool device_failed_ = false;
    bool overrun_ = false;
    std::uint32_t links_alive_ = 0;
    std::array<queue_share, max_queues> queues_;  ///< those polled change with none polling only
    std::uint32_t queues_made_ = 0;
};

}  // namespace accel::rdma
