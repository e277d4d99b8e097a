// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "arrays.hpp"
#include "lifetime.hpp"

#include <accel_transport/context.hpp>
#include <accel_transport/memory.hpp>

#include <cstddef>
#include <memory>
#include <utility>

#include <nanobind/nanobind.h>

namespace accel::python {

/// A context that channels, servers and regions share.
using shared_context = std::shared_ptr<accel::context>;

/// A region, and the Python object whose memory it registers, if it is not the library's own.
struct region_owner : owner {
    region_owner(shared_context its_context, accel::region its_region, reference its_memory) noexcept
        : made_by(std::move(its_context)), memory(std::move(its_memory)), whole(std::move(its_region)) {}
    shared_context made_by;
    reference memory;
    accel::region whole;  ///< ends first
};

/// A part of a region: the Python object.
struct lent_memory {
    std::shared_ptr<region_owner> of;
    slice range;
};

/// Memory that is kept for exchanges of `local` which were open at some time.
class local_epoch;

/// Over `local` a handler sees the client's lent memory itself, and its arrays of it may outlive a call that ends
/// early. Such memory is kept for the exchanges that this process serves at that moment.
class local_exchange {
  public:
    explicit local_exchange(bool is_local);

  private:
    std::shared_ptr<local_epoch> since_;  ///< null: not of `local`
};
/// Keeps the region until all exchanges of `local` that are open now have ended. With the GIL.
void keep_for_local(std::shared_ptr<region_owner> memory);

void add_context(nb::module_& module);

}  // namespace accel::python
