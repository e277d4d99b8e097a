// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "digits/gpu_network.hpp"

#include <accel_transport/server.hpp>

namespace accel::examples::digits {

/// `digits_service` on a GPU, with the same requests and answers. Handlers give their kernels to the
/// exchange's stream and answer without waiting for them; so what only the content shows is refused in the
/// answer (`digit_answer`). It must outlive the server; any number of workers may call it at once.
class gpu_service {
  public:
    /// With the network that is built into the program, for requests in the memory of `where`. May block.
    [[nodiscard]] static result<gpu_service> load(memory_kind where, const server_options& options = {});

    void serve(exchange request);

  private:
    gpu_service(memory_kind where, gpu_network model) noexcept : where_(where), model_(std::move(model)) {}

    memory_kind where_;
    gpu_network model_;
};

}  // namespace accel::examples::digits
