// SPDX-License-Identifier: Apache-2.0
#include "backends/zmq/shared_context.hpp"

#include "backends/zmq/descriptors.hpp"
#include "core/net/descriptor_error.hpp"
#include "core/thread.hpp"

#include <cerrno>

#include <zmq.h>

namespace accel::zmq {
namespace {

/// The reaper and one for sockets, whose absence ends the process, and the gatekeeper's.
constexpr std::size_t context_threads = 3;

}  // namespace

result<std::shared_ptr<shared_context>> shared_context::open() {
    if (const int none = try_descriptors(context_descriptors); none != 0) return no_descriptor(none);
    if (!core::room_for_threads(context_threads))
        return error{status::system_error, EAGAIN,
                     "ZeroMQ needs threads, and none can be started: raise the limit of processes (ulimit -u, or "
                     "pids.max of the cgroup)"};
    void* const made = ::zmq_ctx_new();
    if (made == nullptr) return no_descriptor(zmq_errno());
    ::zmq_ctx_set(made, ZMQ_MAX_SOCKETS, 65'535);
    return std::make_shared<shared_context>(made);
}

shared_context::~shared_context() {
    gate_.reset();
    while (::zmq_ctx_term(handle_) != 0 && zmq_errno() == EINTR) continue;
}

result<gatekeeper*> shared_context::gate() {
    const std::scoped_lock lock{mutex_};
    if (gate_ && !gate_->running()) gate_.reset();
    if (!gate_) {
        if (const int none = try_descriptors(context_descriptors); none != 0) return no_descriptor(none);
        gate_.emplace(handle_);
    }
    if (gate_->running()) return &*gate_;
    return no_descriptor(gate_->failure());
}

}  // namespace accel::zmq
