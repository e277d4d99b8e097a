// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lifetime.hpp"

#include <accel_transport/memory.hpp>
#include <accel_transport/tensor.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <nanobind/nanobind.h>

/// Memory of the library as Python sees it: the buffer protocol and DLPack.
namespace accel::python {

/// A tensor in memory of the library: a Python object. Row-major, without gaps.
struct array {
    std::byte* data = nullptr;
    data_type type{type_code::unsigned_integer, 8, 1};
    int rank = 1;
    std::array<std::int64_t, max_tensor_rank> shape{};
    std::array<std::int64_t, max_tensor_rank> strides{};  ///< in elements
    std::array<Py_ssize_t, 2 * max_tensor_rank> buffer_sizes{};
    bool read_only = true;
    memory_kind where{};
    pin kept;

    [[nodiscard]] std::size_t elements() const noexcept;
    [[nodiscard]] std::size_t item_bits() const noexcept { return std::size_t{type.bits} * type.lanes; }
    [[nodiscard]] std::size_t item_bytes() const noexcept { return (item_bits() + 7) / 8; }
    [[nodiscard]] std::size_t size_bytes() const noexcept { return (elements() * item_bits() + 7) / 8; }
};

/// All these bytes, as an array of uint8.
[[nodiscard]] array bytes_array(std::span<std::byte> bytes, bool read_only, memory_kind where, pin kept);
/// One tensor of a payload, within which the library has seen it.
[[nodiscard]] array tensor_array(const tensor& one, std::span<std::byte> payload, bool read_only, memory_kind where,
                                 pin kept);
/// A `memoryview` of bytes on the host.
[[nodiscard]] nb::object view_of(array bytes);
/// Answers `getbuffer` for memory on the host; sets an exception and returns -1 otherwise. `item` owns its sizes.
[[nodiscard]] int fill_buffer(PyObject* exporter, array& item, Py_buffer* view, int flags) noexcept;
/// "float32", "bfloat16": numpy's names where numpy has the type.
[[nodiscard]] nb::str name_of(const data_type& type);

/// The type of such a name, of numpy's or PyTorch's type with that name, or of `bool`, `int` and `float`.
/// `invalid_argument`: another.
[[nodiscard]] data_type type_named(nb::handle name);
/// One tensor of this shape and type at its place in a payload, and the payload's length.
[[nodiscard]] std::pair<tensor, std::size_t> place_one(nb::handle shape, nb::handle type);

void add_arrays(nb::module_& module);

}  // namespace accel::python
