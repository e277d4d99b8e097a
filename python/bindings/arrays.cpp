// SPDX-License-Identifier: Apache-2.0
#include "arrays.hpp"

#include "dlpack.hpp"
#include "errors.hpp"

#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

namespace accel::python {

namespace {

/// By type code. The first have their bits behind them.
constexpr std::array<const char*, 18> type_names{"int",
                                                 "uint",
                                                 "float",
                                                 "opaque",
                                                 "bfloat",
                                                 "complex",
                                                 "bool",
                                                 "float8_e3m4",
                                                 "float8_e4m3",
                                                 "float8_e4m3b11fnuz",
                                                 "float8_e4m3fn",
                                                 "float8_e4m3fnuz",
                                                 "float8_e5m2",
                                                 "float8_e5m2fnuz",
                                                 "float8_e8m0fnu",
                                                 "float6_e2m3fn",
                                                 "float6_e3m2fn",
                                                 "float4_e2m1fn"};
constexpr std::size_t sized_names = 6;

/// The code of the struct module; null: the buffer protocol has no such type.
const char* format_of(const data_type& type) noexcept {
    if (type.lanes != 1) return nullptr;
    static constexpr std::array<const char*, 4> integers{"b", "h", "i", "q"};
    static constexpr std::array<const char*, 4> naturals{"B", "H", "I", "Q"};
    const auto by_size = [&](const std::array<const char*, 4>& codes) -> const char* {
        switch (type.bits) {
            case 8:
                return codes[0];
            case 16:
                return codes[1];
            case 32:
                return codes[2];
            case 64:
                return codes[3];
            default:
                return nullptr;
        }
    };
    switch (type.code) {
        case type_code::signed_integer:
            return by_size(integers);
        case type_code::unsigned_integer:
            return by_size(naturals);
        case type_code::floating:
            return type.bits == 16 ? "e" : type.bits == 32 ? "f" : type.bits == 64 ? "d" : nullptr;
        case type_code::complex:
            return type.bits == 64 ? "Zf" : type.bits == 128 ? "Zd" : nullptr;
        case type_code::boolean:
            return type.bits == 8 ? "?" : nullptr;
        default:
            return nullptr;
    }
}

void set_strides(array& item) noexcept {
    // Without elements, a peer's other sizes have no limit together.
    const bool empty = item.elements() == 0;
    std::int64_t step = 1;
    for (int i = item.rank - 1; i >= 0; --i) {
        const auto at = static_cast<std::size_t>(i);
        item.strides[at] = step;
        step *= empty ? 1 : item.shape[at];
    }
}

/// What a capsule owns, of either kind.
template <class Managed>
struct exported {
    Managed head;
    array content;
};

template <class Managed>
nb::object capsule_of(const array& from, const char* name) {
    auto made = std::make_unique<exported<Managed>>();
    made->content = from;
    array& own = made->content;
    made->head.content = {own.data,
                          {own.where.where == memory_kind::type::cuda ? dlpack::cuda : dlpack::cpu, own.where.ordinal},
                          own.rank,
                          own.type,
                          own.shape.data(),
                          own.strides.data(),
                          0};
    made->head.context = made.get();
    // The consumer may call it on any thread, without the GIL.
    made->head.deleter = [](Managed* self) { delete static_cast<exported<Managed>*>(self->context); };
    if constexpr (std::is_same_v<Managed, dlpack::managed_versioned>)
        if (own.read_only) made->head.flags = dlpack::read_only;
    PyObject* const capsule = PyCapsule_New(&made->head, name, [](PyObject* self) {
        const char* const own_name = PyCapsule_GetName(self);
        if (own_name == nullptr || std::strncmp(own_name, "used", 4) == 0) return;  // a consumer has taken it
        auto* const head = static_cast<Managed*>(PyCapsule_GetPointer(self, own_name));
        if (head != nullptr) head->deleter(head);
    });
    if (capsule == nullptr) throw nb::python_error();
    static_cast<void>(made.release());
    return nb::steal(capsule);
}

std::pair<int, int> device_of(const array& self) noexcept {
    return {self.where.where == memory_kind::type::cuda ? dlpack::cuda : dlpack::cpu, self.where.ordinal};
}

nb::object export_dlpack(const array& self, nb::handle stream, std::optional<std::pair<int, int>> max_version,
                         std::optional<std::pair<int, int>> device, std::optional<bool> copy) {
    if (copy.value_or(false))
        throw nb::buffer_error("these tensors are given without a copy: copy the tensor that you make of this one");
    if (device && *device != device_of(self))
        throw nb::buffer_error("these tensors are given where they are: move the tensor that you make of this one");
    if (self.where.where == memory_kind::type::host && !stream.is_none())
        throw nb::buffer_error("a tensor on the host has no stream: leave stream=None");
    if (max_version && max_version->first >= 1)
        return capsule_of<dlpack::managed_versioned>(self, dlpack::capsule_versioned);
    if (self.read_only)
        throw nb::buffer_error(
            "this tensor is read-only, which DLPack says from version 1 on: ask with "
            "max_version=(1, 0), as numpy 2.1 and PyTorch 2.9 do, or use the buffer protocol");
    return capsule_of<dlpack::managed>(self, dlpack::capsule);
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) noexcept {
    if (!nb::inst_ready(self)) {
        view->obj = nullptr;
        PyErr_SetString(PyExc_BufferError, "this tensor was not made by the library");
        return -1;
    }
    return fill_buffer(self, *nb::inst_ptr<array>(self), view, flags);
}

PyType_Slot array_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&get_buffer)}, {0, nullptr}};

nb::tuple shape_of(const array& self) {
    nb::list sizes;
    for (int i = 0; i < self.rank; ++i) sizes.append(self.shape[static_cast<std::size_t>(i)]);
    return nb::tuple(sizes);
}

}  // namespace

std::size_t array::elements() const noexcept {
    std::size_t all = 1;
    for (int i = 0; i < rank; ++i) all *= static_cast<std::size_t>(shape[static_cast<std::size_t>(i)]);
    return all;
}

array bytes_array(std::span<std::byte> bytes, bool read_only, memory_kind where, pin kept) {
    array made;
    made.data = bytes.data();
    made.shape[0] = static_cast<std::int64_t>(bytes.size());
    made.read_only = read_only;
    made.where = where;
    made.kept = std::move(kept);
    set_strides(made);
    return made;
}

array tensor_array(const tensor& one, std::span<std::byte> payload, bool read_only, memory_kind where, pin kept) {
    array made;
    made.data = payload.data() + one.offset;
    made.type = one.type;
    made.rank = static_cast<int>(one.rank);
    for (std::uint32_t i = 0; i < one.rank; ++i) made.shape[i] = one.shape[i];
    made.read_only = read_only;
    made.where = where;
    made.kept = std::move(kept);
    set_strides(made);
    return made;
}

nb::object view_of(array bytes) {
    const nb::object held = nb::cast(std::move(bytes));
    PyObject* const view = PyMemoryView_FromObject(held.ptr());
    if (view == nullptr) throw nb::python_error();
    return nb::steal(view);
}

int fill_buffer(PyObject* exporter, array& item, Py_buffer* view, int flags) noexcept {
    view->obj = nullptr;
    if (item.where.where != memory_kind::type::host) {
        PyErr_SetString(PyExc_BufferError, "this memory is on a GPU: take it with DLPack");
        return -1;
    }
    const char* const format = format_of(item.type);
    if (format == nullptr) {
        PyErr_SetString(PyExc_BufferError, "the buffer protocol has no such type: take the tensor with DLPack");
        return -1;
    }
    if ((flags & PyBUF_WRITABLE) == PyBUF_WRITABLE && item.read_only) {
        PyErr_SetString(PyExc_BufferError, "this memory is read-only: it belongs to a message of the peer");
        return -1;
    }
    if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && item.rank > 1) {
        PyErr_SetString(PyExc_BufferError, "this tensor is row-major: ask for C order");
        return -1;
    }
    const auto rank = static_cast<std::size_t>(item.rank);
    for (std::size_t i = 0; i < rank; ++i) {
        item.buffer_sizes[i] = static_cast<Py_ssize_t>(item.shape[i]);
        item.buffer_sizes[max_tensor_rank + i] =
            static_cast<Py_ssize_t>(item.strides[i]) * static_cast<Py_ssize_t>(item.item_bytes());
    }
    view->buf = item.data;
    view->len = static_cast<Py_ssize_t>(item.size_bytes());
    view->readonly = item.read_only ? 1 : 0;
    view->itemsize = static_cast<Py_ssize_t>(item.item_bytes());
    view->format = (flags & PyBUF_FORMAT) == PyBUF_FORMAT ? const_cast<char*>(format) : nullptr;
    view->ndim = item.rank;
    view->shape = (flags & PyBUF_ND) == PyBUF_ND ? item.buffer_sizes.data() : nullptr;
    view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? item.buffer_sizes.data() + max_tensor_rank : nullptr;
    view->suboffsets = nullptr;
    view->internal = nullptr;
    Py_INCREF(exporter);
    view->obj = exporter;
    return 0;
}

nb::str name_of(const data_type& type) {
    const auto code = static_cast<std::size_t>(type.code);
    std::string name = code < type_names.size() ? type_names[code] : "type" + std::to_string(code) + "_";
    const bool with_bits = code < sized_names || code >= type_names.size();
    if (with_bits && type.code != type_code::boolean) name += std::to_string(type.bits);
    if (type.lanes != 1) name += "x" + std::to_string(type.lanes);
    return nb::str(name.c_str());
}

data_type type_named(nb::handle name) {
    const nb::str text(nb::hasattr(name, "__name__") ? nb::object(name.attr("__name__")) : nb::borrow(name));
    std::string_view wanted = text.c_str();
    if (const auto dot = wanted.rfind('.'); dot != std::string_view::npos) wanted.remove_prefix(dot + 1);
    if (wanted == "bool") return {type_code::boolean, 8, 1};
    for (std::size_t code = 0; code < type_names.size(); ++code) {
        const std::string_view stem = type_names[code];
        if (static_cast<type_code>(code) == type_code::opaque_handle || !wanted.starts_with(stem)) continue;
        const std::string_view bits = wanted.substr(stem.size());
        const auto found = static_cast<type_code>(code);
        if (code < sized_names)
            for (const auto& [digits, number] : {std::pair{"8", 8}, {"16", 16}, {"32", 32}, {"64", 64}, {"128", 128}})
                if (bits == digits) return {found, static_cast<std::uint8_t>(number), 1};
        if (code > sized_names && bits.empty() && stem.starts_with("float8")) return {found, 8, 1};
    }
    raise(status::invalid_argument, "dtype is a name such as float32, or numpy's or PyTorch's type of that name");
}

std::pair<tensor, std::size_t> place_one(nb::handle shape, nb::handle type) {
    tensor one;
    one.type = type_named(type);
    const nb::tuple sizes(PyLong_Check(shape.ptr()) ? nb::make_tuple(nb::borrow(shape)) : nb::tuple(nb::borrow(shape)));
    if (sizes.size() > max_tensor_rank) raise(status::invalid_argument, "a tensor has at most 8 dimensions");
    one.rank = static_cast<std::uint32_t>(sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        const long long size = PyLong_AsLongLong(nb::object(sizes[i]).ptr());
        if (size == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
        if (size < 0 || size > 0xffff'ffff) raise(status::invalid_argument, "a tensor's size is 0 to 4,294,967,295");
        one.shape[i] = static_cast<std::uint32_t>(size);
    }
    const std::size_t length = place_tensors(std::span(&one, 1));
    if (length == 0) raise(status::invalid_argument, "the tensor is too large");
    return {one, length};
}

void add_arrays(nb::module_& module) {
    nb::class_<array>(
        module, "Tensor", nb::type_slots(array_slots),
        "A tensor in memory of the library, for DLPack (`numpy.from_dlpack`, `torch.from_dlpack`) and the "
        "buffer protocol, without a copy. Row-major. It keeps its slot, exchange or region as long as it "
        "lives, and so do arrays made of it.")
        .def_prop_ro("shape", &shape_of, nb::sig("def shape(self) -> tuple[int, ...]"))
        .def_prop_ro(
            "dtype", [](const array& self) { return name_of(self.type); },
            "The element's type by numpy's name, such as float32; also bfloat16 and the float8 types.")
        .def_prop_ro("nbytes", [](const array& self) { return self.size_bytes(); })
        .def_prop_ro("readonly", [](const array& self) { return self.read_only; })
        .def(
            "__dlpack__", &export_dlpack, nb::kw_only(), nb::arg("stream") = nb::none(),
            nb::arg("max_version") = nb::none(), nb::arg("dl_device") = nb::none(), nb::arg("copy") = nb::none(),
            nb::sig(
                "def __dlpack__(self, *, stream: object = None, max_version: tuple[int, int] | None = None, "
                "dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> typing_extensions.CapsuleType"))
        .def("__dlpack_device__", &device_of)
        .def("__repr__", [](const array& self) {
            return nb::str("Tensor(shape={}, dtype={})").format(shape_of(self), name_of(self.type));
        });
}

}  // namespace accel::python
