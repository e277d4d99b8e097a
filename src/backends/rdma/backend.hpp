// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"

#include <memory>
#include <string_view>

namespace accel::core {
class context_state;
}

namespace accel::rdma {

/// What a scheme over verbs is, beyond its name.
struct scheme_traits {
    std::string_view name;    ///< static storage
    bool fills_gpus = false;  ///< a server's payloads lie on a GPU
};

/// Writes between registered memory over reliable connections, posted by the CPU. All such schemes are one
/// wire: a client of one talks to a server of another.
[[nodiscard]] std::unique_ptr<core::backend> make_backend(core::context_state& context, const scheme_traits& scheme);

}  // namespace accel::rdma
