// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "array_input.hpp"
#include "channel.hpp"
#include "options.hpp"

#include <chrono>
#include <memory>
#include <utility>

#include <nanobind/nanobind.h>

namespace accel::python {

/// The Python object: its end closes the channel.
struct py_channel {
    py_channel(std::shared_ptr<connection> its_own, std::chrono::nanoseconds its_timeout) noexcept
        : own(std::move(its_own)), call_timeout(its_timeout) {}
    py_channel(const py_channel&) = delete;
    py_channel& operator=(const py_channel&) = delete;
    ~py_channel() {
        if (!ending() && !own->closed) own->close_at_exit();
    }
    std::shared_ptr<connection> own;
    std::chrono::nanoseconds call_timeout;
};

/// Sends a begun call. False: as `connection::submit`.
bool send(connection& to, const std::shared_ptr<channel_call>& call, const payload_input& input,
          call_options& options);

/// Calls in parts.
void add_streams(nb::module_& module, nb::class_<py_channel>& channel);

}  // namespace accel::python

#define CALL_ARGUMENTS                                                                                                \
    nb::kw_only(), nb::arg("timeout") = nb::none(), nb::arg("target") = nb::none(), nb::arg("metadata") = nb::none(), \
                   nb::arg("trace") = nb::none(), nb::arg("baggage") = nb::none(), nb::arg("into") = nb::none()
#define CALL_SIGNATURE                                                                                                 \
    "*, timeout: float | None = None, target: str | None = None, metadata: collections.abc.Mapping[str, str | bytes] " \
    "| "                                                                                                               \
    "None = None, trace: str | None = None, baggage: str | None = None, into: Region | None = None"
