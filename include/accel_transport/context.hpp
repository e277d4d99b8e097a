// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/config.hpp>
#include <accel_transport/log.hpp>
#include <accel_transport/memory.hpp>
#include <accel_transport/metrics.hpp>
#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace accel {

namespace core {
class context_state;
struct internals;
}  // namespace core

/// Options of a context.
struct context_options {
    log_level log = log_level::warning;  ///< of the process; the most recently opened context decides
    /// Receives the process's log lines, instead of standard error. With several sinks (one per context), each receives
    /// every line, including lines still queued when its context opens. Called until the context's destructor returns,
    /// never after. The destructor waits for a running call, so a sink must not wait for the thread that destroys its
    /// context.
    log_function log_sink = {};
    /// Channels and servers of this context count their calls, for `context::metrics` (docs/metrics.md).
    bool metrics = false;
};

/// Whether a scheme works on this machine, and why.
struct scheme_report {
    std::string scheme;
    bool usable = false;
    std::string reason;  ///< one sentence for people: what will be used, or what is missing and how to get it
};

/// What channels and servers share: registered memory, backends, the control plane's thread. Any thread may use it.
/// Channels and servers keep the parts that they need alive.
/// A child of fork() must open its own context: objects made by the parent return `invalid_state` there and end without
/// effect (docs/threads.md, "fork").
class ACCEL_API context {
  public:
    /// If standard input, output or error is closed, opens /dev/null in its place, so that no socket gets a descriptor
    /// that other code writes output to (docs/errors.md).
    [[nodiscard]] static result<context> open(const context_options& options = {});
    context(context&&) noexcept;
    context& operator=(context&&) noexcept;
    ~context();

    /// New registered memory, zeroed, aligned to at least 64 bytes (256 on a GPU). May block.
    /// Fails with `out_of_memory`, or with `unsupported`, which names what GPU memory lacks here.
    [[nodiscard]] result<region> allocate(std::size_t size_bytes, memory_kind kind = memory_kind::host());
    /// Registers the application's own memory, which must outlive the region. GPU memory may come from another library,
    /// such as PyTorch. May block.
    /// `invalid_argument`: some of the memory is not of this kind, or not mapped.
    [[nodiscard]] result<region> register_memory(void* data, std::size_t size_bytes,
                                                 memory_kind kind = memory_kind::host());
    /// Every scheme of this build, best first, and what this machine lacks for it. Do not call while kernels of a
    /// `gpu_service` run: this function tries devices.
    [[nodiscard]] std::vector<scheme_report> schemes() const;
    /// The counts of this context's channels and servers, including those that have ended. Empty without
    /// `context_options::metrics`. Any thread, at any time. Allocates, and waits for channels and servers that are just
    /// being opened or closed.
    [[nodiscard]] metrics_snapshot metrics() const;

  private:
    friend struct core::internals;
    explicit context(std::shared_ptr<core::context_state> state) noexcept;
    std::shared_ptr<core::context_state> state_;
};

}  // namespace accel
