// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "arrays.hpp"
#include "lifetime.hpp"

#include <accel_transport/completion.hpp>
#include <accel_transport/metadata.hpp>
#include <accel_transport/tensor.hpp>

#include <memory>
#include <span>

#include <nanobind/nanobind.h>

namespace accel::python {

/// A call that has ended, with its slot: of a channel or of a pool. The last view or response releases the slot.
class answer : public owner {
  public:
    [[nodiscard]] virtual const call_outcome& outcome() const noexcept = 0;
    [[nodiscard]] virtual result<std::span<tensor>, status> tensors(std::span<tensor> room) const noexcept = 0;
    [[nodiscard]] virtual result<std::span<const metadata_entry>, status> metadata(
        metadata_room& room) const noexcept = 0;
    /// How often this module copied the request, into the slot or out of it.
    int copies = 1;
    /// Where the response is.
    memory_kind where{};
};

/// The Python object.
struct response {
    std::shared_ptr<answer> of;  ///< null: released
};

/// A response, or the exception of a call that failed. `of` has ended.
[[nodiscard]] response response_of(std::shared_ptr<answer> of);

void add_response(nb::module_& module);

}  // namespace accel::python
