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
    log_level log = log_level::warning;  ///< of the process: the context opened last decides
    /// Takes the lines of the process in place of standard error. Each context may bring one: every sink gets
    /// every line, also those that still wait when it comes. It is called until the context's destructor
    /// returns, and never after. The destructor waits for a call that is under way: a sink must not wait for
    /// the thread that destroys its context.
    log_function log_sink = {};
    /// Channels and servers of the context count their calls, for `context::metrics` (docs/metrics.md).
    bool metrics = false;
};

/// Whether one scheme works on this machine, and why.
struct scheme_report {
    std::string scheme;
    bool usable = false;
    std::string reason;  ///< one sentence: what it will use, or what is missing and how to get it
};

/// Shared ground of channels and servers: registered memory, backends, the control plane's thread.
/// Safe to use from any thread. Channels and servers keep what they need of it alive.
/// A child of fork() opens a context of its own: objects that its parent made return `invalid_state` there,
/// and end without effect (docs/threads.md, "fork").
class ACCEL_API context {
  public:
    /// Where standard input, output or error is closed, /dev/null takes its place, so that no socket lies where other
    /// code writes its output (docs/errors.md).
    [[nodiscard]] static result<context> open(const context_options& options = {});
    context(context&&) noexcept;
    context& operator=(context&&) noexcept;
    ~context();

    /// New registered memory, zeroed, at least 64-byte aligned (256 on a GPU). May block. `out_of_memory`;
    /// `unsupported` names what is missing for a GPU's.
    [[nodiscard]] result<region> allocate(std::size_t size_bytes, memory_kind kind = memory_kind::host());
    /// Registers memory of the application's own, which must outlive the region; a GPU's may be another
    /// library's (PyTorch's, say). May block. `invalid_argument` if it is not, or not wholly, of this kind, or not
    /// wholly mapped.
    [[nodiscard]] result<region> register_memory(void* data, std::size_t size_bytes,
                                                 memory_kind kind = memory_kind::host());
    /// Every scheme of this build, best first, and what this machine lacks for it. Not while kernels of a
    /// `gpu_service` run: it tries devices.
    [[nodiscard]] std::vector<scheme_report> schemes() const;
    /// The counts of this context's channels and servers, also of those that have ended; nothing without
    /// `context_options::metrics`. Any thread, while they work. Allocates, and waits for channels and servers that
    /// are made or end at this moment.
    [[nodiscard]] metrics_snapshot metrics() const;

  private:
    friend struct core::internals;
    explicit context(std::shared_ptr<core::context_state> state) noexcept;
    std::shared_ptr<core::context_state> state_;
};

}  // namespace accel
