// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"
#include "core/fork_guard.hpp"
#include "core/log_sink.hpp"
#include "core/metrics/metrics_registry.hpp"
#include "core/region_state.hpp"
#include "staging/accelerator.hpp"

#include <accel_transport/context.hpp>

#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

namespace accel::core {

class control_client;

/// The state that a context shares between its channels and servers. Thread-safe.
class context_state : public std::enable_shared_from_this<context_state> {
  public:
    /// `metrics`: its channels and servers count their calls.
    explicit context_state(bool metrics = false);
    ~context_state();
    context_state(const context_state&) = delete;
    context_state& operator=(const context_state&) = delete;

    /// True in a child of the process that made it.
    [[nodiscard]] bool inherited() const noexcept { return stamp_.inherited(); }
    /// Null: nothing is counted.
    [[nodiscard]] metrics_registry* metrics() const noexcept { return metrics_.get(); }
    /// The client side of the control plane: one thread, started on first use.
    [[nodiscard]] control_client& control();
    /// Devices with memory of their own, if there are any.
    [[nodiscard]] const std::shared_ptr<accelerator>& devices() const noexcept { return devices_; }
    /// Tests: a stand-in. Before anything uses the devices.
    void replace_devices(std::shared_ptr<accelerator> other) noexcept { devices_ = std::move(other); }
    /// Tests: replaces the backend of a scheme. Before anything uses that one.
    void replace_backend(std::unique_ptr<backend> other) noexcept {
        for (auto& each : backends_)
            if (each->scheme() == other->scheme()) return each.swap(other);
    }
    [[nodiscard]] const std::vector<std::unique_ptr<backend>>& backends() const noexcept { return backends_; }
    [[nodiscard]] backend* find_backend(std::string_view scheme) const noexcept;
    /// The same; an error names all schemes of this build.
    [[nodiscard]] result<backend*> named_backend(std::string_view scheme) const;
    /// The application's sink goes with its `context`, which others of the state's owners may outlive.
    void put_log_sink(log_registration sink) noexcept { log_sink_ = std::move(sink); }
    [[nodiscard]] log_registration take_log_sink() noexcept { return std::move(log_sink_); }

  private:
    process_stamp stamp_;
    log_registration log_sink_;  ///< destroyed last
    const std::unique_ptr<metrics_registry> metrics_;
    std::mutex mutex_;
    std::unique_ptr<control_client> control_;
    std::shared_ptr<accelerator> devices_ = make_accelerator();  ///< outlives the backends
    std::vector<std::unique_ptr<backend>> backends_;
};

}  // namespace accel::core
