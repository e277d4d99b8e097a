// SPDX-License-Identifier: Apache-2.0
#include "device/harness/service.hpp"

#include <bit>

#include <fmt/format.h>

namespace accel::tests {

/// Zeroed, and without memory behind it until it is touched.
template <class Part>
result<Part*> harness_service::make(std::size_t count) {
    auto made = memory_.allocate_shared(count * sizeof(Part));
    if (!made) return made.error();
    return reinterpret_cast<Part*>(*made);
}

result<void> harness_service::prepare(const gpu::queue_set& queues) {
    const std::uint32_t commands = std::bit_ceil(count_ * 2);  // one to open and one to close
    const std::uint32_t table = gpu::number_table::size_for(count_);
    const std::uint32_t ready = std::bit_ceil(queues.depths().receives);
    auto state = make<device::detail::service_state>(1);
    auto sessions = make<device::detail::session_entry>(count_);
    auto reports = make<device::detail::session_report>(count_);
    auto offers = make<device::detail::session_offer>(count_);
    auto orders = make<device::detail::orders_layout>(1);
    auto report = make<device::detail::report_layout>(1);
    auto commands_made = make<device::detail::command>(commands);
    auto numbers = make<device::detail::session_number>(table);
    auto ring = make<device::detail::ready_entry>(ready);
    const bool all = state && sessions && reports && offers && orders && report && commands_made && numbers && ring;
    if (!all) return error{status::out_of_memory, 0, fmt::format("gpu: no memory for {} sessions", count_)};

    free_.reserve(count_);
    **state = {};
    (*state)->clock_offset = 0;  // deadlines are on the clock of whoever takes the requests
    (*state)->receives = queues.receives();
    numbers_ = gpu::number_table({*numbers, table});
    commands_ = *commands_made;
    offers_ = *offers;
    service_.state = *state;
    service_.sessions = *sessions;
    service_.session_count = count_;
    service_.numbers = *numbers;
    service_.numbers_mask = table - 1;
    service_.ready = *ring;
    service_.ready_mask = ready - 1;
    service_.completions = queues.completion_port();
    service_.completions.proxied.state = &(*state)->proxied_completions;
    service_.orders = *orders;
    service_.commands = commands_;
    service_.command_mask = commands - 1;
    service_.offers = offers_;
    service_.report = *report;
    service_.session_reports = *reports;
    return {};
}

result<std::uint32_t> harness_service::take_place() {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
        const std::uint32_t place = free_.back();
        free_.pop_back();
        return place;
    }
    if (places_used_ == count_)
        return error{status::overloaded, 0, fmt::format("gpu: all {} sessions of this worker are taken", count_)};
    return places_used_++;
}

void harness_service::give_place_back(std::uint32_t place) noexcept {
    const std::lock_guard lock(mutex_);
    free_.push_back(place);  // within the capacity of all
}

std::uint32_t harness_service::command(device::detail::command_kind kind, std::uint32_t place) noexcept {
    device::detail::command& next = commands_[commands_given_++ & service_.command_mask];
    next.kind = kind;
    next.session = place;
    mlx5::store_flag(&next.number, commands_given_);
    return commands_given_;
}

void harness_service::open(std::uint32_t place, const device::detail::session_entry& entry,
                           const device::detail::session_offer& offer) {
    const std::lock_guard lock(mutex_);
    device::detail::session_entry& here = service_.sessions[place];
    here.sends = entry.sends;
    here.generations = entry.generations;
    here.busy = entry.busy;
    here.parts = entry.parts;
    offers_[place] = offer;
    service_.session_reports[place] = {};
    if (here.sends.by == device::detail::engine::direct) numbers_.put(name_of(here.sends), place);
    (void)command(device::detail::command_kind::open, place);
}

bool harness_service::close(std::uint32_t place) noexcept {
    const std::lock_guard lock(mutex_);
    const std::uint32_t number = command(device::detail::command_kind::close, place);
    device::detail::take_commands(service_);
    const device::detail::send_port& sends = service_.sessions[place].sends;
    if (sends.by == device::detail::engine::direct) numbers_.drop(name_of(sends));
    return mlx5::load_flag(&service_.session_reports[place].closed) == number;
}

}  // namespace accel::tests
