// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/configuration/settings.hpp"
#include "serving/doors/oip/request_payload.hpp"
#include "serving/doors/servers/backend.hpp"
#include "serving/doors/servers/served_model.hpp"
#include "serving/doors/shared_memory/call_regions.hpp"

#include <accel_transport/channel.hpp>
#include <accel_transport/status.hpp>

#include <chrono>
#include <cstdint>
#include <memory>

namespace accel::examples::serving::doors {

/// The table of a door whose clients may register so much; null: they may register none. `unsupported`: there is no
/// GPU.
[[nodiscard]] result<std::shared_ptr<shared_memory::region_table>> open_regions(context& ctx,
                                                                                const shared_memory::permission& may,
                                                                                const model_table& models);

/// Of a request. `timeout`: 0 for the channel's own, or, in parts, `stream_timeout`. `parts`: how many unread ones the
/// answer may have; 0: it comes in one piece.
[[nodiscard]] submit_options options_of(std::chrono::nanoseconds timeout, std::uint32_t parts,
                                        const door_settings& settings);

/// The deadline has passed.
[[nodiscard]] error deadline_passed();

/// Submits a request whose inputs lie in its slot, or in regions: those are lent to the channel, or copied to the slot
/// where that cannot be. BYTES are copied and checked, because their client may change its memory meanwhile. `options`:
/// from `options_of`. On failure the call stays begun, and nothing was sent.
[[nodiscard]] result<void> submit_request(const served_model& model, const oip::request_payload& payload,
                                          const call_slot& slot, submit_options options,
                                          shared_memory::call_regions& regions, const std::shared_ptr<caller>& who);

}  // namespace accel::examples::serving::doors
