// SPDX-License-Identifier: Apache-2.0
#include "kernels/channel/kernel_connection.hpp"

#include "core/backend.hpp"

#include <utility>

namespace accel::gpu {

result<kernel_connection> open_kernel_connection(const core::connect_request& request, const kernel_setup& kernels) {
    auto chosen = core::usable_backend(request);
    if (!chosen) return chosen.error();
    kernel_connection made;
    auto events = dynamic_cast<kernel_backend&>(**chosen).open_client(core::source_options(request), kernels);
    if (!events) return events.error();
    made.events = std::move(*events);

    auto path = made.events->open_connection(core::client_config(request));
    if (!path) return path.error();
    made.path = std::move(*path);
    if (auto opened = core::open_session(request, *made.path, made.session, request.deadline); !opened)
        return opened.error();
    return made;
}

}  // namespace accel::gpu
