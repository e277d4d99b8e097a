// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/model_server/loaded_list.hpp"
#include "serving/model_server/model_spec.hpp"
#include "serving/model_server/served_model.hpp"

#include <accel_transport/context.hpp>
#include <accel_transport/server.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace accel::examples::serving {

/// The models of a server, by name. They come and go while it runs: requests for a name without a model are answered
/// with `not_found`. Names are those that the table knows when the registry is made. It must outlive the server; its
/// context must outlive it. Any thread.
class model_registry {
  public:
    model_registry(context& ctx, model_place place, const serving_options& options);
    ~model_registry();
    model_registry(const model_registry&) = delete;
    model_registry& operator=(const model_registry&) = delete;

    /// Loads it and lets requests in. `invalid_state`: it is loaded already. Fails as `open_model` does. May block.
    [[nodiscard]] result<void> load(const model_spec& spec);
    /// Lets no request in any more, waits for those in flight, and unloads it. `not_found`: it is not loaded.
    /// May block.
    [[nodiscard]] result<void> unload(std::string_view name);
    /// Those that are loaded.
    [[nodiscard]] std::vector<std::string> names() const;
    /// Null: it is not loaded. Good until it is unloaded.
    [[nodiscard]] served_model* find(std::string_view name) const;

    /// A target for each name, and `loaded_models_target`, for `server::listen`.
    [[nodiscard]] service_table services();

    struct row {
        std::string name;
        served_statistics seen;
    };
    /// One for each model that was ever loaded, unloaded ones included.
    [[nodiscard]] std::vector<row> statistics() const;
    /// Counts from here on: after the warm-up.
    void forget_statistics();

  private:
    /// The place of one name.
    struct slot {
        explicit slot(std::string own) : name(std::move(own)) {}
        const std::string name;
        std::atomic<served_model*> model{nullptr};
        std::atomic<std::uint32_t> entered{0};  ///< handlers that may use `model` now
        std::unique_ptr<served_model> owned;    ///< guarded by the registry's mutex
        served_statistics before;               ///< of unloaded ones, less those of the warm-up; likewise
        bool ever = false;
    };
    [[nodiscard]] slot* find_slot(std::string_view name) const;
    static void serve(slot& place, exchange request) noexcept;
    /// To those who ask which models are loaded.
    void announce();

    context& ctx_;
    const model_place place_;
    const serving_options options_;
    mutable std::mutex mutex_;  ///< of loads, unloads and looks; no request takes it
    std::vector<std::unique_ptr<slot>> slots_;
    loaded_list loaded_;
};

}  // namespace accel::examples::serving
