// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/region.hpp"
#include "wqe/send_request.hpp"

/// What work requests do to memory windows: InfiniBand specification 10.6.7.2, for types 1 and 2B.
namespace accel::softnic::window {

enum class outcome : std::uint8_t {
    done,
    not_a_window,  ///< the key is a region's, another domain's, or nobody's
    not_free,      ///< type 2: it has to be invalidated first
    not_its_own,   ///< type 2: bound by another queue pair, or not bound
    bad_target,    ///< no region of this domain that allows windows and has these bytes, with enough rights
};

/// Binds a window, or takes a binding back. From then on the window has the key that the request says.
[[nodiscard]] outcome change(region_table& regions, region_table::user by, const window_request& request);

/// SEND with invalidate: the peer of the queue pair ends its window.
[[nodiscard]] outcome invalidate(region_table& regions, region_table::user by, memory_region& window);

/// Takes the binding back without asking whose it is: the window is deallocated.
void unbind(region_table& regions, memory_region& window);

}  // namespace accel::softnic::window
