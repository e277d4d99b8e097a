#pragma once

#include "core/backend.hpp"

#include <memory>

namespace accel::core {
class context_state;
}

namespace accel::gpu {

/// The `gpu` scheme: on the wire as `rdma`. A server's requests are taken, and its responses posted, by the
/// kernels of a service that lives on a GPU, or by workers that do what kernels would; a client is one of
/// `rdma`.
[[nodiscard]] std::unique_ptr<core::backend> make_backend(core::context_state& context);

}  // namespace accel::gpu
