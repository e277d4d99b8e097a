// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <cstdint>
#include <string_view>
#include <utility>

#include <nanobind/nanobind.h>

namespace accel::python {

namespace nb = nanobind;

/// Throws the exception of this status (accel_transport/_errors.py). Holds the GIL, as all functions here.
[[noreturn]] void raise(status code, std::string_view message = {}, std::uint32_t handlers_code = 0, int native = 0);
[[noreturn]] void raise(const error& failure);

inline void check(status code, std::string_view message = {}) {
    if (code != status::ok) raise(code, message);
}
inline void check(const result<void>& done) {
    if (!done) raise(done.error());
}

template <class Value>
[[nodiscard]] Value take(result<Value>&& made) {
    if (!made) raise(made.error());
    return std::move(*made);
}

/// The exception object of this status, for futures; not raised.
[[nodiscard]] nb::object exception_of(status code, std::string_view message, std::uint32_t handlers_code);

}  // namespace accel::python
