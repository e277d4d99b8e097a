// SPDX-License-Identifier: Apache-2.0
#include "model/window.hpp"

namespace accel::softnic::window {
namespace {

/// The region that the window is to open, or null.
memory_region* target_of(const region_table& regions, region_table::user by, const window_request& request) {
    constexpr std::uint32_t writes = access::remote_write | access::remote_atomic;
    const std::uint32_t needed =
        access::bind_window | ((request.access & writes) != 0 ? access::local_write : std::uint32_t{0});
    const auto found = regions.check(request.lkey, by, request.address, request.length, needed);
    return found.status == access_check::ok ? found.region : nullptr;
}

/// A key of a region has as many variants as a byte has values, and the program chooses each.
void set_variant(memory_region& window, std::uint8_t variant) {
    window.key = (window.key & ~std::uint32_t{0xff}) | variant;
}

outcome bind(region_table& regions, region_table::user by, memory_region& window, const window_request& request) {
    if (window.window == window_type::type_2 && window.target != 0) return outcome::not_free;
    memory_region* target = target_of(regions, by, request);
    if (target == nullptr) return outcome::bad_target;
    unbind(regions, window);
    ++target->windows;
    window.target = target->key;
    window.qpn = by.qpn;
    window.iova = request.address;
    window.length = request.length;
    window.access = request.access & access::remote;
    return outcome::done;
}

}  // namespace

void unbind(region_table& regions, memory_region& window) {
    if (memory_region* target = regions.find(window.target); target != nullptr) --target->windows;
    window.target = 0;
    window.qpn = 0;
    window.length = 0;
    window.access = 0;
}

outcome invalidate(region_table& regions, region_table::user by, memory_region& window) {
    if (window.window != window_type::type_2 || window.target == 0 || window.qpn != by.qpn) return outcome::not_its_own;
    unbind(regions, window);
    return outcome::done;
}

outcome change(region_table& regions, region_table::user by, const window_request& request) {
    memory_region* window = regions.find_any_variant(request.key);
    if (window == nullptr || !window->is_window() || window->pd != by.pd) return outcome::not_a_window;
    outcome result = outcome::done;
    if (request.length != 0)
        result = bind(regions, by, *window, request);
    else if (window->window == window_type::type_2)
        result = invalidate(regions, by, *window);
    else
        unbind(regions, *window);
    if (result == outcome::done) set_variant(*window, request.variant);
    return result;
}

}  // namespace accel::softnic::window
