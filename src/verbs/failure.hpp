#pragma once

#include <accel_transport/status.hpp>

#include <string_view>

#include <infiniband/verbs.h>

namespace accel::verbs {

/// An error of a verb that failed with `native` (an errno), in a sentence that says what to do.
[[nodiscard]] error verb_failed(std::string_view what, int native);
/// The same where memory is registered: the usual reason is the limit of locked memory.
[[nodiscard]] error registration_failed(std::size_t size_bytes, int native);

/// What a failed completion means for its link.
[[nodiscard]] status meaning(ibv_wc_status native) noexcept;

}  // namespace accel::verbs
