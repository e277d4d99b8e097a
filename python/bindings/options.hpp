// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "context.hpp"

#include <accel_transport/channel.hpp>
#include <accel_transport/metadata.hpp>

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>

namespace accel::python {

[[nodiscard]] memory_kind memory_of(const std::string& name);
/// Seconds as Python has them. `invalid_argument`: negative, not a number, or more than a year.
[[nodiscard]] std::chrono::nanoseconds duration_of(double seconds);

/// Metadata of Python, a dict or another mapping, with its bytes.
class metadata_input {
  public:
    explicit metadata_input(nb::handle dict);
    [[nodiscard]] std::span<const metadata_entry> list() const noexcept { return entries_; }

  private:
    std::vector<nb::object> held_;
    std::vector<metadata_entry> entries_;
};
/// A dict; values are `bytes` where the key ends in -bin, else `str`.
[[nodiscard]] nb::dict metadata_dict(std::span<const metadata_entry> list);

/// The keyword arguments of a call. What it refers to lives as long as it does.
struct call_options {
    call_options(std::optional<double> timeout, nb::handle target, nb::handle metadata, nb::handle trace,
                 nb::handle baggage, nb::handle into);
    submit_options native;
    metadata_input metadata;
    std::shared_ptr<region_owner> into;  ///< of `native.response_into`
};

/// The context of a `Context`.
[[nodiscard]] const shared_context& context_of(nb::handle context);

}  // namespace accel::python
