// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "staging/accelerator.hpp"
#include "verbs/device.hpp"

#include <accel_transport/gpu_options.hpp>
#include <accel_transport/status.hpp>

#include <memory>
#include <string>

namespace accel::gpu {

/// How a service reaches a device, and why.
struct engine_choice {
    std::shared_ptr<verbs::device> on;  ///< opened as the engine needs it
    gpu_engine engine = gpu_engine::automatic;
    std::string reason;      ///< a sentence for people, which names the device
    bool fell_back = false;  ///< the proxy, though the device has queues that a GPU could drive
};

/// Before kernels run: whether `gpu` (null: threads of the host act as kernels) is fit for kernels that stay there.
/// From then on its failures are looked for.
[[nodiscard]] result<void> admit_gpu(core::accelerator_device* gpu, bool host_slots);

/// `unsupported`: `queues=gpu` was asked for, and the engine has no queues there.
[[nodiscard]] result<void> check_queues(const kernel_options& wanted, const engine_choice& chosen);

/// Opens the device that `options` name and tries whether `gpu` can map the registers of its queues (null:
/// threads of the host act as kernels). Call it before kernels run: some of it would wait for them. An engine
/// that was asked for by name and does not work is an error.
[[nodiscard]] result<engine_choice> choose_engine(const verbs_options& options, gpu_engine wanted,
                                                  const std::string& near_host,
                                                  const std::shared_ptr<core::accelerator>& gpus,
                                                  core::accelerator_device* gpu);

}  // namespace accel::gpu
