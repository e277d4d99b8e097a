// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/mlx5/completion_queue.hpp>
#include <accel_transport/detail/mlx5/receive_queue.hpp>
#include <accel_transport/detail/mlx5/send_queue.hpp>
#include <accel_transport/status.hpp>

#include <infiniband/verbs.h>

namespace accel::verbs {

/// The two queues of a queue pair. Their counters are the caller's to provide.
struct mlx5_queue_pair {
    mlx5::send_queue_ref sends;
    mlx5::receive_queue_ref receives;  ///< without a ring where receives are shared
};

/// Where the queues of mlx5 devices lie, as libmlx5 tells (mlx5dv_init_obj). It is not linked with:
/// libibverbs has loaded it if there is such a device. Whoever asks for a completion queue takes its
/// completions himself from then on, and it cannot be resized any more.
class mlx5_driver {
  public:
    /// `unsupported`, with the reason: not such a device, or set up in a way that only libmlx5 can handle.
    [[nodiscard]] static result<const mlx5_driver*> of(ibv_context& context);

    [[nodiscard]] result<mlx5_queue_pair> locate(ibv_qp& of) const;
    [[nodiscard]] result<mlx5::completion_queue_ref> locate(ibv_cq& of) const;
    [[nodiscard]] result<mlx5::shared_receive_queue_ref> locate(ibv_srq& of) const;

  private:
    using is_supported_function = bool(ibv_device*);
    using init_object_function = int(void*, std::uint64_t);

    mlx5_driver() noexcept;
    is_supported_function* is_supported_ = nullptr;
    init_object_function* init_object_ = nullptr;
};

}  // namespace accel::verbs
