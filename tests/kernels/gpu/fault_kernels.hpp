// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/graph.hpp>
#include <accel_transport/device/service.hpp>

struct CUstream_st;

/// Kernels that serve until a request of one byte makes them fault: the GPU is then lost to the process.
namespace accel::tests {

enum class kernel_fault {
    wild_store,  ///< writes where there is no memory
    trap,
};

/// Before any kernel stays on the GPU: a first launch would wait for it.
[[nodiscard]] bool load_faulting_kernels();
[[nodiscard]] bool launch_faulting_service(const device::service_ref& service, kernel_fault what, CUstream_st* stream);
/// The same for a service whose sessions have one owner each, a block.
[[nodiscard]] bool launch_faulting_owner(const device::service_ref& service, kernel_fault what, CUstream_st* stream);
/// A kernel to record.
[[nodiscard]] bool record_fault(CUstream_st* stream, const device::graph_iteration& iteration, kernel_fault what);
/// A kernel that faults at once, and has to do with no service.
[[nodiscard]] bool launch_fault(kernel_fault what, CUstream_st* stream);

}  // namespace accel::tests
