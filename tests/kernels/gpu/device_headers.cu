// SPDX-License-Identifier: Apache-2.0
// The posting functions as a CUDA kernel has them: compiled for the device, with warnings as errors.
#include "bench/kernels/post/batch.hpp"
#include "bench/kernels/post/deferred_doorbell.hpp"

#include <accel_transport/detail/mlx5/completion_queue.hpp>
#include <accel_transport/detail/mlx5/receive_queue.hpp>
#include <accel_transport/detail/mlx5/send_queue.hpp>
#include <accel_transport/device/client.hpp>
#include <accel_transport/device/detail/engine.hpp>
#include <accel_transport/device/detail/mlx5/shared_send_queue.hpp>
#include <accel_transport/device/detail/proxy/queue.hpp>
#include <accel_transport/device/service.hpp>

namespace accel::tests {

__global__ void post_and_poll(mlx5::send_queue_ref sends, mlx5::completion_queue_ref completions,
                              mlx5::work_request request, status* outcome) {
    *outcome = mlx5::post(sends, request);
    mlx5::completion done;
    if (!mlx5::take(completions, done)) return;
    mlx5::publish_taken(completions);
    if (!mlx5::release(sends, done.counter)) *outcome = status::protocol_error;
    mlx5::arm(completions);
    mlx5::count_event(completions);
    mlx5::discard_completions(completions, sends.queue_pair);
}

__global__ void share(mlx5::shared_send_queue_ref shared, mlx5::work_request request, std::uint16_t done,
                      status* outcome) {
    if (threadIdx.x == 0) mlx5::clear_ready_requests(shared);
    __syncthreads();
    *outcome = mlx5::post(shared, request);
    if (!mlx5::release(shared, done)) *outcome = status::protocol_error;
}

/// As many requests as the thread's rank is odd: some of the scope have none.
template <class Scope>
__global__ void post_together(mlx5::send_queue_ref sends, mlx5::work_request request, status* outcome) {
    *outcome = bench::post<Scope>(sends, &request, Scope::rank() & 1U);
    const mlx5::request_size size = mlx5::size_of(request);
    bench::batch_share share;
    *outcome = bench::reserve<Scope>(sends, mlx5::wqebbs_of(size.ds), share);
    if (*outcome != status::ok) return;
    mlx5::fill(sends, share.first, request, size);
    bench::publish<Scope>(sends, share);
    bench::ring(sends, share, mlx5::doorbell_of(sends, share.first, request, size));
    if (share.closes && !mlx5::release_to(sends, share.end)) *outcome = status::protocol_error;
}
template __global__ void post_together<device::thread_scope>(mlx5::send_queue_ref, mlx5::work_request, status*);
template __global__ void post_together<device::warp_scope>(mlx5::send_queue_ref, mlx5::work_request, status*);
template __global__ void post_together<device::block_scope>(mlx5::send_queue_ref, mlx5::work_request, status*);

__global__ void post_owing(mlx5::send_queue_ref sends, mlx5::work_request request, status* outcome) {
    bench::deferred_doorbell deferred;
    for (int i = 0; i < 2; ++i) *outcome = bench::post(sends, request, deferred);
    bench::ring(sends, deferred);
}

__global__ void receive(mlx5::receive_queue_ref* own, mlx5::shared_receive_queue_ref* shared) {
    mlx5::write_empty_receives(*own);
    mlx5::post_empty(*own, 1);
    mlx5::post_empty(*shared, mlx5::write_empty_receives(*shared));
    mlx5::take_back(*shared, 0);
    mlx5::order_flag_before_payload();
}

__global__ void post_by_proxy(proxy::send_queue_ref sends, proxy::completion_queue_ref completions,
                              mlx5::work_request request, status* outcome) {
    *outcome = proxy::post(sends, request);
    std::uint32_t first = 0;
    if (proxy::reserve(sends, 2, first) == status::ok) {
        proxy::order_payload_before_descriptor();
        proxy::fill(sends, first, request);
        proxy::fill(sends, first + 1, request);
    }
    mlx5::completion done;
    if (!proxy::take(completions, done)) return;
    proxy::publish_taken(completions);
    if (!proxy::release(sends, done.counter)) *outcome = status::protocol_error;
    if (proxy::free_descriptors(sends) == sends.count) proxy::discard_completions(completions, sends.queue_pair);
    proxy::clear(sends.ring, sends.count);
    proxy::clear(completions.entries, completions.count);
}

__global__ void post_by_either(device::detail::send_port sends, device::detail::completion_port completions,
                               mlx5::work_request request, status* outcome) {
    device::detail::begin(sends);
    *outcome = device::detail::post(sends, request);
    mlx5::completion done;
    if (!device::detail::take(completions, done)) return;
    device::detail::publish_taken(completions);
    if (!device::detail::release(sends, done.counter)) *outcome = status::protocol_error;
    device::detail::discard_completions(completions, device::detail::name_of(sends));
    device::detail::end(sends);
}

template <class Scope>
__global__ void call(device::channel_ref channel, status* outcome) {
    __shared__ device::call_ref one;
    *outcome = device::begin<Scope>(channel, one);
    *outcome = device::submit<Scope>(channel, one, 0);
    while (device::poll<Scope>(channel, one) == status::again) continue;
    *outcome = device::wait<Scope>(channel, one);
    *outcome = device::cancel<Scope>(channel, one);
    *outcome = device::release<Scope>(channel, one);
}
template __global__ void call<device::thread_scope>(device::channel_ref, status*);
template __global__ void call<device::warp_scope>(device::channel_ref, status*);
template __global__ void call<device::block_scope>(device::channel_ref, status*);

template <class Scope, class Channel>
__device__ void read_stream(Channel& channel, const trace_context& trace) {
    __shared__ device::call_ref one;
    __shared__ device::arrival_ref part;
    if (device::begin<Scope>(channel, one) != status::ok) return;
    if (device::submit<Scope>(channel, one, 0, {.parts = 2, .trace = &trace}) != status::ok) return;
    while (device::poll<Scope>(channel, one, part) == status::again) continue;
    (void)device::release<Scope>(channel, part);
    (void)device::cancel<Scope>(channel, one);
    (void)device::wait<Scope>(channel, one, part);
    (void)device::release<Scope>(channel, part);
}
template <class Scope>
__global__ void read_streams(const __grid_constant__ device::channel_ref channel, trace_context trace) {
    __shared__ device::owned_channel mine;
    read_stream<Scope>(channel, trace);
    if (device::own<Scope>(channel, mine) == status::ok) read_stream<Scope>(mine, trace);
}
template __global__ void read_streams<device::thread_scope>(const __grid_constant__ device::channel_ref, trace_context);
template __global__ void read_streams<device::warp_scope>(const __grid_constant__ device::channel_ref, trace_context);
template __global__ void read_streams<device::block_scope>(const __grid_constant__ device::channel_ref, trace_context);

template <class Scope>
__global__ void serve(device::service_ref service) {
    __shared__ device::exchange_ref one;
    if (device::take<Scope>(service, one) == status::ok) (void)device::fail<Scope>(service, one, status::overloaded);
    trace_context trace;
    if (device::wait<Scope>(service, one, 0) != status::ok || device::trace(one, trace) == status::ok) return;
    (void)device::reply<Scope>(service, one, 0);
}
template <class Scope>
__global__ void stream(device::service_ref service) {
    __shared__ device::exchange_ref one;
    __shared__ device::owned_sessions mine;
    __shared__ device::part_ref part;
    if (device::take<Scope>(service, one) != status::ok || !device::in_parts(one)) return;
    if (device::next_part<Scope>(service, one, part) == status::ok) (void)device::send<Scope>(service, one, part.room);
    if (device::own<Scope>(service, 0, 1, mine) != status::ok || device::take<Scope>(mine, one) != status::ok) return;
    if (device::next_part<Scope>(mine, one, part) == status::ok) (void)device::send<Scope>(mine, one, part.room);
}
template __global__ void stream<device::thread_scope>(device::service_ref);
template __global__ void stream<device::warp_scope>(device::service_ref);
template __global__ void stream<device::block_scope>(device::service_ref);
template __global__ void serve<device::thread_scope>(device::service_ref);
template __global__ void serve<device::warp_scope>(device::service_ref);
template __global__ void serve<device::block_scope>(device::service_ref);

}  // namespace accel::tests
