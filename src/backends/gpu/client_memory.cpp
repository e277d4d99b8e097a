// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/client_memory.hpp"

#include "backends/gpu/layout.hpp"

/// The layout of a channel: slots, one block of GPU memory, one block of host memory.
namespace accel::gpu {
namespace {

/// Memory that only kernels touch.
struct client_parts {
    client_parts(std::byte* base, std::uint32_t slots, std::uint32_t send_blocks) noexcept
        : parts(base),
          state(parts.take<device::detail::channel_state>(1)),
          sends(parts.take<mlx5::shared_send_queue_state>(1)),
          proxied(parts.take<proxy::send_queue_state>(1)),
          whole(parts.take<mlx5::ready_request>(send_blocks)),
          calls(parts.take<device::detail::call_entry>(slots)) {}
    /// Makes `channel` use these.
    void put_into(device::channel_ref& channel) const noexcept {
        channel.state = state;
        channel.calls = calls;
        channel.sends.direct.state = sends;
        channel.sends.direct.ready_requests = whole;
        channel.sends.proxied.state = proxied;
        channel.completions.direct.state = &state->completions;
        channel.completions.proxied.state = &state->proxied_completions;
    }
    layout_allocator parts;
    device::detail::channel_state* state;
    mlx5::shared_send_queue_state* sends;
    proxy::send_queue_state* proxied;
    mlx5::ready_request* whole;
    device::detail::call_entry* calls;
};

/// All slots are free, the first one on top.
void write_calls(device::detail::call_entry* calls, std::uint32_t count) noexcept {
    for (std::uint32_t i = 0; i < count; ++i) {
        calls[i] = {};
        calls[i].next = i + 1 < count ? i + 1 : device::detail::no_call;
    }
}

}  // namespace

result<void> client_memory::allocate(std::uint32_t send_blocks) {
    send_blocks_ = send_blocks;
    auto slots =
        memory_.allocate_slots(sizes_.slots * (sizes_.request_stride + sizes_.response_stride), sizes_.host_slots);
    if (!slots) return slots.error();
    slots_ = *slots;
    content_.resize(client_parts(nullptr, sizes_.slots, send_blocks).parts.used());
    auto block = memory_.allocate(content_.size());
    if (!block) return block.error();
    kernel_block_ = *block;
    const auto lay_out = [this](layout_allocator& parts) {
        orders_ = parts.take<device::detail::channel_orders>(1);
        report_ = parts.take<device::detail::channel_report>(1);
    };
    layout_allocator measure(nullptr);
    lay_out(measure);
    auto shared = memory_.allocate_shared(measure.used());
    if (!shared) return shared.error();
    layout_allocator parts(*shared);
    lay_out(parts);
    return {};
}

std::span<std::byte> client_memory::requests() const noexcept {
    return {slots_, sizes_.slots * sizes_.request_stride};
}

std::span<std::byte> client_memory::responses() const noexcept {
    return {slots_ + sizes_.slots * sizes_.request_stride, sizes_.slots * sizes_.response_stride};
}

const device::channel_ref& client_memory::prepare(const client_start& from) {
    const client_parts here(content_.data(), sizes_.slots, send_blocks_);
    *here.state = {};
    here.state->receives = from.receives;
    write_calls(here.calls, sizes_.slots);
    channel_.slots = sizes_.slots;
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
    channel_.layout.kernel_version = &report_->kernel_version;
    channel_.call_timeout_ns = from.call_timeout.count();
    here.put_into(channel_);
    device::detail::begin(channel_.sends);
    return channel_;
}

result<void> client_memory::hand_over() {
    client_parts(kernel_block_, sizes_.slots, send_blocks_).put_into(channel_);
    auto written = memory_.upload(kernel_block_, content_);
    content_ = {};
    return written;
}

result<void> client_memory::finish_report() {
    device::detail::channel_state last;
    const auto bytes = std::as_writable_bytes(std::span{&last, 1});
    if (auto read = memory_.download(bytes, kernel_block_); !read) return read;
    mlx5::store_whole(&report_->submitted, last.submitted);
    mlx5::store_whole(&report_->completed, last.completed);
    mlx5::store_whole(&report_->ended_early, last.ended_early);
    mlx5::store_whole(&report_->stale, last.stale);
    mlx5::store_whole(&report_->quarantined, last.quarantined);
    return {};
}

}  // namespace accel::gpu
