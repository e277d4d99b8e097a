// SPDX-License-Identifier: Apache-2.0
#include "kernels/channel/kernel_connection.hpp"

#include "core/backend.hpp"
#include "core/log.hpp"

#include <utility>

namespace accel::gpu {
namespace {

/// `wants_sharing`: the server cannot do what `service_sharing::exclusive` needs.
result<kernel_connection> open_kernels(const core::connect_request& request, const kernel_options& kernels,
                                       const core::poller_options& source, bool& wants_sharing) {
    auto chosen = core::usable_backend(request);
    if (!chosen) return chosen.error();
    kernel_connection made;
    auto events = dynamic_cast<kernel_backend&>(**chosen).open_client(source, kernels);
    if (!events) return events.error();
    made.events = std::move(*events);

    auto path = made.events->open_connection(core::client_config(request));
    if (!path) return path.error();
    made.path = std::move(*path);
    if (auto opened = core::open_session(request, *made.path, made.session, request.deadline); !opened) {
        wants_sharing = made.events->wants_sharing();
        return opened.error();
    }
    return made;
}

}  // namespace

result<kernel_connection> open_kernel_connection(const core::connect_request& request, const kernel_options& kernels) {
    core::poller_options source = core::source_options(request);
    bool wants_sharing = false;
    auto made = open_kernels(request, kernels, source, wants_sharing);
    if (made || !wants_sharing) return made;
    core::log().warn(
        "gpu: the server at {} announces its responses: the channel is shared, in spite of sharing=exclusive",
        request.peer.text());
    source.verbs.sharing = service_sharing::shared;
    return open_kernels(request, kernels, source, wants_sharing);
}

}  // namespace accel::gpu
