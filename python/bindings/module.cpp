// SPDX-License-Identifier: Apache-2.0
#include "answer.hpp"
#include "arrays.hpp"
#include "channel.hpp"
#include "context.hpp"
#include "exchange.hpp"
#include "lifetime.hpp"
#include "waker.hpp"

#include <nanobind/nanobind.h>

namespace accel::python {
void add_pool(nb::module_& module);
void add_server(nb::module_& module);
}  // namespace accel::python

NB_MODULE(_core, module) {
    using namespace accel::python;
    // At the interpreter's end objects may be left, and are meant to.
    nanobind::set_leak_warnings(false);
    add_lifetime(module);
    add_arrays(module);
    add_context(module);
    add_response(module);
    add_channel(module);
    add_pool(module);
    add_waker(module);
    add_exchange(module);
    add_server(module);
}
