// refused: a scope is thread_scope, or in a CUDA kernel
#include <accel_transport/device/detail/mlx5/scopes.hpp>

accel::status post(const accel::mlx5::send_queue_ref& queue, const accel::mlx5::work_request& request) {
#ifdef MISUSE
    return accel::mlx5::post<accel::mlx5::warp_scope>(queue, &request, 1);
#else
    return accel::mlx5::post<accel::mlx5::thread_scope>(queue, &request, 1);
#endif
}
