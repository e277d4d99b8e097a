// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/gateway/server_choice.hpp"

#include <accel_transport/metadata.hpp>
#include <accel_transport/server.hpp>
#include <accel_transport/target.hpp>

#include <cstdint>
#include <span>
#include <string>

namespace accel::examples::gateway {

struct passage;

/// One model, the servers that have it, and the requests that wait for one of them.
class route : public server_choice {
  public:
    route(const std::string& model, const reach_settings& chosen)
        : server_choice(chosen.balance),
          model_(model),
          target_(model.empty() ? accel::target{} : target_of(model)),
          key_(chosen.key),
          key_name_(chosen.key_name) {}

    [[nodiscard]] const std::string& model() const noexcept { return model_; }
    [[nodiscard]] accel::target target() const noexcept { return target_; }
    /// The key of sticky for this request, which has this metadata.
    [[nodiscard]] std::uint64_t key_of(const exchange& one, std::span<const metadata_entry> metadata) const noexcept {
        if (key_ == sticky_key::trace && one.trace_id() != 0) return one.trace_id();
        if (key_ == sticky_key::metadata)
            if (const auto value = find_metadata(metadata, key_name_)) return number_of(*value);
        return one.session_id();
    }

    // Requests that wait, oldest first.
    passage* oldest = nullptr;
    passage* youngest = nullptr;

  private:
    std::string model_;
    accel::target target_;
    sticky_key key_;
    std::string key_name_;
};

}  // namespace accel::examples::gateway
