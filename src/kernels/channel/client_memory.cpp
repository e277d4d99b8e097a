// SPDX-License-Identifier: Apache-2.0
#include "kernels/channel/client_memory.hpp"

#include "kernels/layout.hpp"

#include <memory>

/// The layout of a channel: slots, one block of GPU memory, one block of host memory.
namespace accel::gpu {
namespace {

/// Memory that only kernels touch.
struct client_parts {
    client_parts(std::byte* base, std::uint32_t slots, std::uint32_t send_wqebbs) noexcept
        : parts(base),
          state(parts.take<device::detail::channel_state>(1)),
          sends(parts.take<mlx5::shared_send_queue_state>(1)),
          proxied(parts.take<proxy::send_queue_state>(1)),
          ready_requests(parts.take<mlx5::ready_request>(send_wqebbs)),
          calls(parts.take<device::detail::call_entry>(slots)),
          in_parts(parts.take<device::detail::channel_part_slot>(slots)) {}
    /// Makes `channel` use these.
    void put_into(device::channel_ref& channel) const noexcept {
        channel.state = state;
        channel.calls = calls;
        channel.parts = in_parts;
        channel.sends.direct.state = sends;
        channel.sends.direct.ready_requests = ready_requests;
        channel.sends.proxied.state = proxied;
        channel.completions.direct.state = &state->completions;
        channel.completions.proxied.state = &state->proxied_completions;
    }
    layout_allocator parts;
    device::detail::channel_state* state;
    mlx5::shared_send_queue_state* sends;
    proxy::send_queue_state* proxied;
    mlx5::ready_request* ready_requests;
    device::detail::call_entry* calls;
    device::detail::channel_part_slot* in_parts;
};

/// The same for a channel with one owner.
struct exclusive_client_parts {
    exclusive_client_parts(std::byte* base, std::uint32_t slots) noexcept
        : parts(base),
          channel(parts.take<device::detail::exclusive_channel>(1)),
          prepared(parts.take<device::detail::prepared_call>(slots)),
          calls(parts.take<device::detail::owned_call>(slots)),
          in_parts(parts.take<device::detail::channel_part_slot>(slots)) {}
    void put_into(device::channel_ref& out) const noexcept {
        out.exclusive.channel = channel;
        out.exclusive.prepared = prepared;
        out.exclusive.calls = calls;
        out.parts = in_parts;
    }
    layout_allocator parts;
    device::detail::exclusive_channel* channel;
    device::detail::prepared_call* prepared;
    device::detail::owned_call* calls;
    device::detail::channel_part_slot* in_parts;
};

/// All slots are free, the first one on top.
template <class Call>
void write_calls(Call* calls, std::uint32_t count) noexcept {
    for (std::uint32_t i = 0; i < count; ++i) {
        calls[i] = {};
        calls[i].next = i + 1 < count ? i + 1 : device::detail::no_call;
    }
}

}  // namespace

result<void> client_memory::allocate(std::uint32_t send_wqebbs) {
    send_wqebbs_ = send_wqebbs;
    auto slots =
        memory_.allocate_slots(sizes_.slots * (sizes_.request_stride + sizes_.response_stride), sizes_.host_slots);
    if (!slots) return slots.error();
    slots_ = *slots;
    content_.resize(kernel_bytes());
    auto block = memory_.allocate(content_.size());
    if (!block) return block.error();
    kernel_block_ = *block;
    const auto lay_out = [this](layout_allocator& parts) {
        orders_ = parts.take<device::detail::channel_orders>(1);
        report_ = parts.take<device::detail::channel_report>(1);
        cancels_ = parts.take<std::uint32_t>(sizes_.slots);
    };
    layout_allocator measure(nullptr);
    lay_out(measure);
    auto shared = memory_.allocate_shared(measure.used());
    if (!shared) return shared.error();
    layout_allocator parts(*shared);
    lay_out(parts);
    cancels_told_.resize(sizes_.slots);
    return {};
}

std::span<std::byte> client_memory::requests() const noexcept {
    return {slots_, sizes_.slots * sizes_.request_stride};
}

std::span<std::byte> client_memory::responses() const noexcept {
    return {slots_ + sizes_.slots * sizes_.request_stride, sizes_.slots * sizes_.response_stride};
}

std::size_t client_memory::kernel_bytes() const noexcept {
    if (sizes_.exclusive) return exclusive_client_parts(nullptr, sizes_.slots).parts.used();
    return client_parts(nullptr, sizes_.slots, send_wqebbs_).parts.used();
}

const device::channel_ref& client_memory::prepare(const client_start& from) {
    channel_.requests = {requests().data() + core::extension_room, sizes_.request_stride, shape_.request_bytes,
                         from.request_key};
    channel_.responses = {responses().data() + core::extension_room, sizes_.response_stride, shape_.response_bytes,
                          from.response_key};
    channel_.peer = from.peer;
    channel_.plain_requests = from.plain_requests ? 1 : 0;
    channel_.sends = from.sends;
    channel_.completions = from.completions;
    channel_.orders = orders_;
    channel_.report = report_;
    channel_.cancels = cancels_;
    channel_.layout.kernel_version = &report_->kernel_version;
    channel_.call_timeout_ns = from.call_timeout.count();
    sizes_.exclusive ? prepare_exclusive(from) : prepare_shared(from);
    device::detail::begin(channel_.sends);
    return channel_;
}

void client_memory::prepare_shared(const client_start& from) {
    const client_parts here(content_.data(), sizes_.slots, send_wqebbs_);
    *here.state = {};
    std::uninitialized_value_construct_n(here.in_parts, sizes_.slots);
    here.state->receives = from.receives;
    write_calls(here.calls, sizes_.slots);
    channel_.slots = sizes_.slots;
    here.put_into(channel_);
}

/// The functions of a shared channel find no slots.
void client_memory::prepare_exclusive(const client_start& from) {
    const exclusive_client_parts here(content_.data(), sizes_.slots);
    *here.channel = {};
    std::uninitialized_value_construct_n(here.in_parts, sizes_.slots);
    write_calls(here.calls, sizes_.slots);
    for (std::uint32_t i = 0; i < sizes_.slots; ++i) device::detail::prepare_call(channel_, i, here.prepared[i]);
    device::detail::exclusive_channel_ref& out = channel_.exclusive;
    out.slots = sizes_.slots;
    out.by = from.sends.by;
    out.queues = from.queues;
    device::detail::prepare_sends(from.sends, from.completions, here.channel->state);
    here.channel->state.first_free = 0;
    here.channel->proxied = from.sends.proxied;
    here.channel->completions = from.completions.direct;

    probe_ = {};
    probe_.ready.resize(send_wqebbs_);
    channel_.sends.direct.state = &probe_.sends;
    channel_.sends.direct.ready_requests = probe_.ready.data();
    channel_.sends.proxied.state = &probe_.proxied;
    channel_.completions.direct.state = &probe_.completions;
}

/// The owner goes on with the host's numbers.
void client_memory::end_probe() noexcept {
    const exclusive_client_parts here(content_.data(), sizes_.slots);
    device::detail::exclusive_channel& channel = *here.channel;
    channel.state.posted = channel.state.released = device::detail::posted_by(channel_.sends);
    channel.completions_state = probe_.completions;
    channel_.sends = {};
    channel_.completions = {};
    const exclusive_client_parts there(kernel_block_, sizes_.slots);
    channel.completions.state = &there.channel->completions_state;
    there.put_into(channel_);
}

result<void> client_memory::hand_over() {
    if (sizes_.exclusive)
        end_probe();
    else
        client_parts(kernel_block_, sizes_.slots, send_wqebbs_).put_into(channel_);
    auto written = memory_.upload(kernel_block_, content_);
    content_ = {};
    return written;
}

std::size_t client_memory::take_cancelled(std::span<call_id> out) noexcept {
    const std::uint32_t told = mlx5::load_flag(&report_->cancels);
    if (told == cancels_seen_) return 0;
    std::size_t found = 0;
    for (std::uint32_t slot = 0; slot < sizes_.slots; ++slot) {
        const std::uint32_t generation = mlx5::load_whole(cancels_ + slot);
        if (generation == cancels_told_[slot]) continue;
        if (found == out.size()) return found;
        cancels_told_[slot] = generation;
        out[found++] = {slot, generation};
    }
    cancels_seen_ = told;
    return found;
}

namespace {

/// `Counters` has those of a report.
template <class Counters>
void write_report(const Counters& last, device::detail::channel_report& out) noexcept {
    mlx5::store_whole(&out.submitted, last.submitted);
    mlx5::store_whole(&out.completed, last.completed);
    mlx5::store_whole(&out.ended_early, last.ended_early);
    mlx5::store_whole(&out.stale, last.stale);
    mlx5::store_whole(&out.quarantined, last.quarantined);
}

/// `Kept` is at the start of the kernels' memory.
template <class Kept>
result<Kept> read_back(kernel_memory& memory, const std::byte* from) {
    Kept out;
    const auto bytes = std::as_writable_bytes(std::span{&out, 1});
    if (auto read = memory.download(bytes, from); !read) return read.error();
    return out;
}

}  // namespace

result<void> client_memory::finish_report() {
    if (sizes_.exclusive) {
        auto last = read_back<device::detail::exclusive_channel>(memory_, kernel_block_);
        if (!last) return last.error();
        write_report(last->state.counters, *report_);
        return {};
    }
    auto last = read_back<device::detail::channel_state>(memory_, kernel_block_);
    if (!last) return last.error();
    write_report(*last, *report_);
    return {};
}

}  // namespace accel::gpu
