// SPDX-License-Identifier: Apache-2.0
#include "backends/rdma/link.hpp"
#include "backends/rdma/poller.hpp"
#include "verbs/failure.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

/// The way in: from a completion to the event that the core gets.
namespace accel::rdma {

std::size_t rdma_poller::poll(std::span<core::link_event> out) noexcept {
    const bool simple = single_looks_ > 0 && !busy_ && !commands_pending_.load(std::memory_order_acquire);
    if (!simple) [[unlikely]]
        return poll_all(out);
    --single_looks_;
    if (queues_polled_ > 1) [[unlikely]]
        completions_ = &next_queue();
    mlx5::completion completion;
    const int got = completions_->poll(completion);
    if (got == 0) return 0;
    rdma_link* const link = got > 0 ? links_.find(completion.queue_pair) : nullptr;
    if (is_arrival(completion, link)) [[likely]] {
        if (receives_) receives_->take_back(completion);
        return link->take_arrival(completion, out.front()) ? 1 : 0;
    }
    fetched_.front() = completion;
    return poll_on(got, out);
}

/// After a look that found no message, but a completion of a send or a failure: a message may stand behind
/// it. As long as looks ask for one completion.
[[gnu::noinline]] std::size_t rdma_poller::poll_on(int got, std::span<core::link_event> out) noexcept {
    if (got < 0)
        keep(got);
    else if (take(fetched_.front(), out.front()) > 0)
        return 1;
    return poll(out);
}

inline bool rdma_poller::is_arrival(const mlx5::completion& completion, const rdma_link* link) noexcept {
    return link != nullptr && completion.kind == mlx5::entry_kind::write_immediate;
}

verbs::completion_queue& rdma_poller::next_queue() noexcept {
    polled_queue_ = polled_queue_ + 1 < queues_polled_ ? polled_queue_ + 1 : 0;
    return *queues_[polled_queue_].queue;
}

/// With pending commands, pending links, or more than one completion.
[[gnu::noinline]] std::size_t rdma_poller::poll_all(std::span<core::link_event> out) noexcept {
    if (commands_pending_.load(std::memory_order_acquire)) take_commands();
    std::size_t count = pending_links_.empty() ? 0 : drain_events(out);
    if (queue_failed_)
        replace_queues();
    else
        count += take_completions(out.subspan(count));
    settle_busy();
    return count;
}

std::size_t rdma_poller::take_completions(std::span<core::link_event> out) noexcept {
    constexpr int max_looks = 4;  // those that make no event, of sends, may stand before one that does
    std::size_t count = 0;
    for (int looks = 0; looks < max_looks && count == 0 && !out.empty(); ++looks) {
        if (next_fetched_ == last_fetched_ && !fetch()) {
            if (top_up_due_) top_up();
            break;
        }
        while (next_fetched_ < last_fetched_ && count < out.size())
            count += take(fetched_[next_fetched_++], out[count]);
    }
    return count;
}

/// Returns how many events a completion makes: none or one, written to `out`.
std::size_t rdma_poller::take(const mlx5::completion& completion, core::link_event& out) noexcept {
    rdma_link* link = links_.find(completion.queue_pair);
    if (link == nullptr && commands_pending_.load(std::memory_order_acquire)) {
        take_commands();
        link = links_.find(completion.queue_pair);
    }
    const bool shared_receive = verbs::is_receive(completion) && receives_ != nullptr;
    if (shared_receive) receives_->take_back(completion);
    if (is_arrival(completion, link)) return link->take_arrival(completion, out) ? 1 : 0;
    if (shared_receive && shared_use_.one_more()) refill_receives();
    if (link != nullptr) link->on_other_completion(completion);
    return 0;
}

/// False: there is nothing.
bool rdma_poller::fetch() noexcept {
    // Each look for one that is not there costs, so while they come one by one, only now and then more are asked for.
    constexpr std::uint32_t looks_for_one = 15;
    const std::size_t most = single_looks_ > 0 ? 1 : fetched_.size();
    int got = 0;
    for (std::uint32_t i = 0; i < queues_polled_ && got == 0; ++i) {
        if (queues_polled_ > 1) completions_ = &next_queue();
        got = completions_->poll({fetched_.data(), most});
    }
    if (most == 1)
        --single_looks_;
    else if (got <= 1)
        single_looks_ = looks_for_one;
    keep(got);
    return got > 0;
}

void rdma_poller::keep(int got) noexcept {
    next_fetched_ = 0;
    last_fetched_ = got > 0 ? static_cast<std::uint32_t>(got) : 0;
    if (got < 0) fail_queue();
    settle_busy();
}

[[gnu::always_inline]] inline bool rdma_link::take_arrival(const mlx5::completion& completion,
                                                           core::link_event& out) noexcept {
    if (use_->one_more()) [[unlikely]]
        refill_receives();
    if (state_ != state::open || closing_) [[unlikely]]
        return false;
    const bool sane = read_arrival(config_, slots_, mlx5::from_be(completion.immediate), out);
    if (!sane) [[unlikely]]
        fail(status::protocol_error);
    return sane;
}

/// The completion of a send, or a failure.
void rdma_link::on_other_completion(const mlx5::completion& completion) noexcept {
    const bool sent = !verbs::is_receive(completion);
    if (sent && !queue_pair_->has_sent(completion)) return;
    if (verbs::has_failed(completion)) {
        if (closing_) close_by_ = {};  // nothing more will leave
        return fail(verbs::meaning(completion.failure));
    }
    if (!sent) return fail(status::protocol_error);  // no write with immediate data
    if (!queue_pair_->take_sent(completion)) return fail(status::system_error);
    if (!lent_.empty()) settle_lent();
}

[[gnu::noinline]] bool read_response_target(const core::slot_header& header, const std::byte* at,
                                            wire::response_target& out) noexcept {
    if (header.extension_bytes > core::extension_room) return false;
    std::array<std::byte, core::extension_room> copy;
    std::memcpy(copy.data(), at - header.extension_bytes, header.extension_bytes);
    return wire::find_response_target(copy.data(), header.extension_bytes, out) &&
           (out.length == 0 || header.response_room <= out.length);
}

[[gnu::noinline]] bool take_elsewhere(slot_use& use, core::link_event& event) noexcept {
    const std::span<std::byte> wanted = std::exchange(use.response_into, {});
    if (event.header.code != status::ok) return true;  // why it failed stands in the slot
    if (event.header.length > wanted.size()) return false;
    const std::span<std::byte> into = wanted.first(event.header.length);
    if (use.copies_response) std::copy(event.payload.begin(), event.payload.end(), into.begin());
    event.payload = into;
    return true;
}

std::size_t rdma_link::drain_events(std::span<core::link_event> out) noexcept {
    std::size_t count = 0;
    while (!released_.empty() && count < out.size()) {
        out[count++] = core::buffer_released_event(config_.owner, released_.back());
        released_.pop_back();
    }
    if (state_ == state::losing && count < out.size()) {
        out[count++] = core::lost_event(config_.owner, reason_);
        state_ = state::lost;
    }
    return count;
}

[[gnu::noinline]] void rdma_link::refill_receives() noexcept {
    if (is_server()) return poller_.refill_receives();
    own_use_.missing -= queue_pair_->post_receives(own_use_.missing, poller_.receive_chain());
}

}  // namespace accel::rdma
