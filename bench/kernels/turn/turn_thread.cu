// SPDX-License-Identifier: Apache-2.0
#include "turn.cuh"

namespace accel::bench {

void launch_thread_turns(unsigned blocks, cudaStream_t stream, const device::service_ref& service,
                         const turn_log& log) {
    exclusive_turns<thread_scope><<<blocks, threads_of<thread_scope>, 0, stream>>>(service, log);
}

}  // namespace accel::bench
