#pragma once

#include "core/accelerator.hpp"
#include "core/backend.hpp"
#include "core/fork_guard.hpp"
#include "core/region_state.hpp"

#include <accel_transport/context.hpp>

#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

namespace accel::core {

class control_client;
class authenticator;

/// What a context shares between its channels and servers. Thread-safe.
class context_state : public std::enable_shared_from_this<context_state> {
  public:
    context_state();
    ~context_state();
    context_state(const context_state&) = delete;
    context_state& operator=(const context_state&) = delete;

    /// True in a child of the process that made it.
    [[nodiscard]] bool inherited() const noexcept { return stamp_.inherited(); }
    /// The ZeroMQ context (`zmq_ctx_new`), made on first use, terminated with this object.
    [[nodiscard]] void* zmq();
    /// The client side of the control plane: one thread, started on first use.
    [[nodiscard]] control_client& control();
    /// Answers ZAP requests of `zmq()`: started on first use.
    [[nodiscard]] authenticator& auth();
    /// GPUs, if there are any.
    [[nodiscard]] const std::shared_ptr<accelerator>& gpus() const noexcept { return gpus_; }
    /// Tests: a stand-in. Before anything uses the GPUs.
    void replace_gpus(std::shared_ptr<accelerator> other) noexcept { gpus_ = std::move(other); }
    [[nodiscard]] const std::vector<std::unique_ptr<backend>>& backends() const noexcept { return backends_; }
    [[nodiscard]] backend* find_backend(std::string_view scheme) const noexcept;

  private:
    process_stamp stamp_;
    std::recursive_mutex mutex_;  ///< as the control plane asks for `zmq()` while it is made
    void* zmq_ = nullptr;
    std::unique_ptr<authenticator> authenticator_;
    std::unique_ptr<control_client> control_;
    std::shared_ptr<accelerator> gpus_ = make_accelerator();  ///< outlives the backends
    std::vector<std::unique_ptr<backend>> backends_;
};

}  // namespace accel::core
