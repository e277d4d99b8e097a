// SPDX-License-Identifier: Apache-2.0
#include "kernels/service/service_memory.hpp"

#include "kernels/layout.hpp"
#include "kernels/service/number_table.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

/// The layout of a service: one block of GPU memory, one block of host memory.
namespace accel::gpu {
namespace {

/// Memory that only kernels touch.
struct kernel_parts {
    /// `wqebbs`: of each send queue.
    kernel_parts(std::byte* base, const service_sizes& sizes, std::uint32_t wqebbs) noexcept
        : parts(base),
          state(parts.take<device::detail::service_state>(1)),
          sessions(parts.take<device::detail::session_entry>(sizes.sessions)),
          table_size(number_table::size_for(sizes.sessions)),
          table(parts.take<device::detail::session_number>(table_size)),
          ready_size(std::bit_ceil(sizes.in_flight())),
          ready(parts.take<device::detail::ready_entry>(ready_size)),
          send_states(parts.take<mlx5::shared_send_queue_state>(sizes.sessions)),
          ready_requests(parts.take<mlx5::ready_request>(std::size_t{sizes.sessions} * wqebbs)),
          proxied_states(parts.take<proxy::send_queue_state>(sizes.sessions)),
          generations(parts.take<std::uint32_t>(sizes.in_flight())),
          busy(parts.take<std::uint32_t>(sizes.in_flight())),
          part_slots(parts.take<device::detail::part_slot>(sizes.in_flight())) {}
    layout_allocator parts;
    device::detail::service_state* state;
    device::detail::session_entry* sessions;
    std::uint32_t table_size;
    device::detail::session_number* table;
    std::uint32_t ready_size;
    device::detail::ready_entry* ready;
    mlx5::shared_send_queue_state* send_states;
    mlx5::ready_request* ready_requests;
    proxy::send_queue_state* proxied_states;
    std::uint32_t* generations;
    std::uint32_t* busy;
    device::detail::part_slot* part_slots;
};

}  // namespace

result<void> service_memory::allocate() {
    const std::size_t a_session = sizes_.slots * (sizes_.request_stride + sizes_.response_stride);
    auto slots = memory_.allocate_slots(a_session * sizes_.sessions, sizes_.host_slots);
    if (!slots) return slots.error();
    slots_ = *slots;
    // Each session has one command to open and one to close it under way at most.
    command_count_ = std::bit_ceil(sizes_.sessions * 4);
    const auto lay_out = [this](layout_allocator& parts) {
        orders_ = parts.take<device::detail::orders_layout>(1);
        report_ = parts.take<device::detail::report_layout>(1);
        commands_ = parts.take<device::detail::command>(command_count_);
        offers_ = parts.take<device::detail::session_offer>(sizes_.sessions);
        session_reports_ = parts.take<device::detail::session_report>(sizes_.sessions);
        session_orders_ = parts.take<std::uint32_t>(sizes_.sessions);
        cancels_ = parts.take<std::uint32_t>(sizes_.sessions * (sizes_.slots + std::size_t{1}));
    };
    layout_allocator measure(nullptr);
    lay_out(measure);
    auto shared = memory_.allocate_shared(measure.used());
    if (!shared) return shared.error();
    layout_allocator parts(*shared);
    lay_out(parts);
    return {};
}

std::span<std::byte> service_memory::requests(std::uint32_t session) const noexcept {
    const std::size_t bytes = sizes_.slots * sizes_.request_stride;
    return {slots_ + session * bytes, bytes};
}

std::span<std::byte> service_memory::responses(std::uint32_t session) const noexcept {
    const std::size_t bytes = sizes_.slots * sizes_.response_stride;
    std::byte* const first = slots_ + std::size_t{sizes_.sessions} * sizes_.slots * sizes_.request_stride;
    return {first + session * bytes, bytes};
}

result<void> service_memory::prepare(std::span<const device::detail::send_port> sends,
                                     const device::detail::completion_port& completions,
                                     const mlx5::shared_receive_queue_ref& receives) {
    const std::uint32_t wqebbs = sends.front().direct.queue.wqebbs;
    const std::size_t bytes = kernel_parts(nullptr, sizes_, wqebbs).parts.used();
    auto block = memory_.allocate(bytes);
    if (!block) return block.error();
    std::vector<std::byte> content(bytes);
    const kernel_parts there(*block, sizes_, wqebbs);
    const kernel_parts here(content.data(), sizes_, wqebbs);

    *here.state = {};
    here.state->receives = receives;
    number_table numbers({here.table, here.table_size});
    for (std::uint32_t i = 0; i < sizes_.sessions; ++i) {
        device::detail::session_entry& entry = here.sessions[i];
        entry.sends = sends[i];
        entry.sends.direct.state = there.send_states + i;
        entry.sends.direct.ready_requests = there.ready_requests + std::size_t{i} * wqebbs;
        entry.sends.proxied.state = there.proxied_states + i;
        entry.generations = there.generations + std::size_t{i} * sizes_.slots;
        entry.busy = there.busy + std::size_t{i} * sizes_.slots;
        entry.parts = there.part_slots + std::size_t{i} * sizes_.slots;
        if (entry.sends.by == device::detail::engine::direct) numbers.put(device::detail::name_of(sends[i]), i);
    }
    service_.state = there.state;
    service_.sessions = there.sessions;
    service_.numbers = there.table;
    service_.numbers_mask = here.table_size - 1;
    service_.ready = there.ready;
    service_.ready_mask = here.ready_size - 1;
    service_.completions = completions;
    service_.completions.direct.state = &there.state->completions;
    service_.completions.proxied.state = &there.state->proxied_completions;
    name_shared_parts();
    return memory_.upload(*block, content);
}

/// The memory that kernels and host share.
void service_memory::name_shared_parts() noexcept {
    service_.session_count = sizes_.sessions;
    service_.orders = orders_;
    service_.commands = commands_;
    service_.command_mask = command_count_ - 1;
    service_.offers = offers_;
    service_.report = report_;
    service_.layout.kernel_version = &report_->kernel_version;
    service_.session_reports = session_reports_;
    service_.cancels = cancels_;
    service_.cancels_of_session = sizes_.slots + 1;
}

namespace {

/// Memory that the owners of sessions touch.
struct exclusive_parts {
    exclusive_parts(std::byte* base, const service_sizes& sizes) noexcept
        : parts(base),
          slot_bits(static_cast<std::uint32_t>(std::bit_width(sizes.slots - 1))),
          sessions(parts.take<device::detail::exclusive_session>(sizes.sessions)),
          watches(parts.take<device::detail::slot_watch>(std::size_t{sizes.sessions} << slot_bits)),
          prepared(parts.take<device::detail::prepared_header>(std::size_t{sizes.sessions} << slot_bits)),
          part_slots(parts.take<device::detail::part_slot>(std::size_t{sizes.sessions} << slot_bits)) {}
    layout_allocator parts;
    std::uint32_t slot_bits;
    device::detail::exclusive_session* sessions;
    device::detail::slot_watch* watches;
    device::detail::prepared_header* prepared;
    device::detail::part_slot* part_slots;
};

}  // namespace

result<void> service_memory::prepare_exclusive(std::span<const device::detail::exclusive_session> places,
                                               device::detail::engine by, mlx5::queue_place queues) {
    const std::size_t bytes = exclusive_parts(nullptr, sizes_).parts.used();
    auto block = memory_.allocate(bytes);
    if (!block) return block.error();
    std::vector<std::byte> content(bytes);
    const exclusive_parts there(*block, sizes_);
    const exclusive_parts here(content.data(), sizes_);
    for (std::uint32_t i = 0; i < sizes_.sessions; ++i) {
        here.sessions[i] = places[i];
        here.sessions[i].completions.state = &there.sessions[i].completions_state;
    }
    std::fill_n(here.watches, std::size_t{sizes_.sessions} << here.slot_bits, device::detail::slot_watch{});
    device::detail::exclusive_ref& out = service_.exclusive;
    out.sessions = there.sessions;
    out.watches = there.watches;
    out.prepared = there.prepared;
    out.parts = there.part_slots;
    out.requests = requests(0).data() + core::extension_room;
    out.slot_stride = sizes_.request_stride;
    out.session_stride = sizes_.slots * sizes_.request_stride;
    out.slots = sizes_.slots;
    out.slot_bits = here.slot_bits;
    out.orders = session_orders_;
    out.by = by;
    out.queues = queues;
    name_shared_parts();
    return memory_.upload(*block, content);
}

/// An owner reads the count of commands, and the last order of each of its sessions if that has changed.
std::uint32_t service_memory::order(device::detail::command_kind kind, std::uint32_t session) noexcept {
    const std::uint32_t number = ++commands_given_ & (~std::uint32_t{0} >> 1);
    const std::uint32_t open = kind == device::detail::command_kind::open ? 1 : 0;
    __atomic_store_n(&session_orders_[session], (number << 1) | open, __ATOMIC_RELEASE);
    __atomic_store_n(&orders_->commands, commands_given_, __ATOMIC_RELEASE);
    return number;
}

std::uint32_t service_memory::command(device::detail::command_kind kind, std::uint32_t session) noexcept {
    if (sizes_.exclusive) return order(kind, session);
    const std::uint32_t place = commands_given_++ & (command_count_ - 1);
    commands_[place].kind = kind;
    commands_[place].session = session;
    __atomic_store_n(&commands_[place].number, commands_given_, __ATOMIC_RELEASE);
    return commands_given_;
}

}  // namespace accel::gpu
