// SPDX-License-Identifier: Apache-2.0
#include "array_input.hpp"

#include "answer.hpp"

#include "dlpack.hpp"
#include "errors.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

namespace accel::python {

namespace {

/// From here on another thread may run while bytes are copied.
constexpr std::size_t long_copy = 256 << 10;

/// The type of a buffer's elements; nothing: structures, text, dates, other byte orders.
std::optional<data_type> type_of(const Py_buffer& buffer) {
    std::string_view format = buffer.format == nullptr ? "B" : buffer.format;
    const bool swapped = format.starts_with('>') || format.starts_with('!');
    if (!format.empty() && std::string_view("@=<>!|^").find(format.front()) != std::string_view::npos)
        format.remove_prefix(1);
    if (swapped && buffer.itemsize > 1) return std::nullopt;
    const bool complex = format.starts_with('Z');
    if (complex) format.remove_prefix(1);
    if (format.size() != 1 || buffer.itemsize <= 0 || buffer.itemsize > 16) return std::nullopt;
    const auto is_one_of = [&](std::string_view codes) { return codes.find(format.front()) != std::string_view::npos; };
    data_type type;
    type.bits = static_cast<std::uint8_t>(buffer.itemsize * 8);
    if (complex && is_one_of("fd"))
        type.code = type_code::complex;
    else if (complex)
        return std::nullopt;
    else if (is_one_of("bhilqn"))
        type.code = type_code::signed_integer;
    else if (is_one_of("BHILQNc"))
        type.code = type_code::unsigned_integer;
    else if (is_one_of("efd"))
        type.code = type_code::floating;
    else if (is_one_of("?"))
        type.code = type_code::boolean;
    else
        return std::nullopt;
    return type;
}

std::uint32_t extent(std::int64_t size) {
    if (size < 0 || size > 0xffff'ffff) raise(status::invalid_argument, "a tensor's size is above 4,294,967,295");
    return static_cast<std::uint32_t>(size);
}

void check_rank(std::int64_t rank) {
    if (rank < 0 || rank > static_cast<std::int64_t>(max_tensor_rank))
        raise(status::invalid_argument, "a tensor has at most 8 dimensions: reshape it");
}

bool is_row_major(const dlpack::tensor& one) {
    if (one.strides == nullptr || std::count(one.shape, one.shape + one.rank, 0) != 0) return true;
    std::int64_t step = 1;
    for (std::int32_t i = one.rank - 1; i >= 0; --i) {
        if (one.shape[i] != 1 && one.strides[i] != step) return false;
        step *= one.shape[i];
    }
    return true;
}

bool has_dlpack(nb::handle object) {
    return nb::hasattr(object.type(), "__dlpack__");
}

template <class Managed>
void drop(void* managed) {
    auto* const own = static_cast<Managed*>(managed);
    if (own->deleter != nullptr) own->deleter(own);
}

}  // namespace

source::~source() {
    if (drop_ != nullptr) drop_(managed_);
    if (has_buffer_) PyBuffer_Release(&buffer_);
}

void source::take_bytes(nb::handle object) {
    if (PyBytes_Check(object.ptr())) {  // by far the most frequent
        held_ = nb::borrow(object);
        data_ = reinterpret_cast<const std::byte*>(PyBytes_AsString(object.ptr()));
        size_ = static_cast<std::size_t>(PyBytes_Size(object.ptr()));
        return;
    }
    if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_FULL_RO) != 0) {
        PyErr_Clear();
        raise(status::invalid_argument,
              "data is bytes, a tensor (numpy, PyTorch, anything with __dlpack__), a list of tensors, or a Region");
    }
    has_buffer_ = true;
    contiguous_ = PyBuffer_IsContiguous(&buffer_, 'C') != 0;
    data_ = static_cast<const std::byte*>(buffer_.buf);
    size_ = static_cast<std::size_t>(buffer_.len);
}

void source::take_tensor(nb::handle object) {
    if (!has_dlpack(object)) raise(status::invalid_argument, "each of several tensors has __dlpack__, as numpy's have");
    if (!take_buffer(object)) take_capsule(object);
    if (size_bytes(description_) != size_) raise(status::invalid_argument, "a tensor's type is not one that is sent");
}

bool source::take_buffer(nb::handle object) {
    if (PyObject_CheckBuffer(object.ptr()) == 0) return false;
    if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_FULL_RO) != 0) {
        PyErr_Clear();
        return false;
    }
    has_buffer_ = true;
    const auto type = type_of(buffer_);
    if (!type || buffer_.suboffsets != nullptr)
        raise(status::invalid_argument, std::string("a tensor of the buffer type '") +
                                            (buffer_.format == nullptr ? "" : buffer_.format) +
                                            "' cannot be sent: convert it to numbers of this machine's byte order");
    check_rank(buffer_.ndim);
    description_.type = *type;
    description_.rank = static_cast<std::uint32_t>(buffer_.ndim);
    for (int i = 0; i < buffer_.ndim; ++i) description_.shape[i] = extent(buffer_.shape[i]);
    contiguous_ = PyBuffer_IsContiguous(&buffer_, 'C') != 0;
    data_ = static_cast<const std::byte*>(buffer_.buf);
    size_ = static_cast<std::size_t>(buffer_.len);
    return true;
}

void source::take_capsule(nb::handle object) {
    PyObject* capsule = nullptr;
    {
        const nb::object method = object.attr("__dlpack__");
        nb::dict named;
        named["max_version"] = nb::make_tuple(1, 1);
        capsule = PyObject_Call(method.ptr(), nb::tuple().ptr(), named.ptr());
        if (capsule == nullptr && PyErr_ExceptionMatches(PyExc_TypeError) != 0) {  // from before versions
            PyErr_Clear();
            capsule = PyObject_CallNoArgs(method.ptr());
        }
        if (capsule == nullptr && PyErr_ExceptionMatches(PyExc_BufferError) != 0) {
            PyErr_Clear();
            raise(status::invalid_argument,
                  "the tensor cannot be given by DLPack: convert it to numbers of this "
                  "machine's byte order, on the host");
        }
        if (capsule == nullptr) throw nb::python_error();
    }
    held_ = nb::steal(capsule);
    const dlpack::tensor* content = nullptr;
    if (PyCapsule_IsValid(capsule, dlpack::capsule_versioned) != 0) {
        auto* const managed =
            static_cast<dlpack::managed_versioned*>(PyCapsule_GetPointer(capsule, dlpack::capsule_versioned));
        PyCapsule_SetName(capsule, dlpack::used_capsule_versioned);
        managed_ = managed;
        drop_ = &drop<dlpack::managed_versioned>;
        if (managed->major != 1) raise(status::unsupported, "the tensor's version of DLPack is not 1");
        content = &managed->content;
        if ((managed->flags & dlpack::padded) != 0 && content->type.bits * content->type.lanes % 8 != 0)
            raise(status::unsupported, "elements of less than a byte are sent packed: this tensor has a byte for each");
    } else if (PyCapsule_IsValid(capsule, dlpack::capsule) != 0) {
        auto* const managed = static_cast<dlpack::managed*>(PyCapsule_GetPointer(capsule, dlpack::capsule));
        PyCapsule_SetName(capsule, dlpack::used_capsule);
        managed_ = managed;
        drop_ = &drop<dlpack::managed>;
        content = &managed->content;
    } else {
        raise(status::invalid_argument, "__dlpack__ gave no tensor");
    }
    if (content->device.type != dlpack::cpu && content->device.type != dlpack::cuda_host)
        raise(status::unsupported, "a tensor on a GPU cannot be sent yet: move it to the host with .cpu()");
    check_rank(content->rank);
    if (!is_row_major(*content)) raise(status::invalid_argument, "a tensor has gaps: make it contiguous first");
    description_.type = content->type;
    description_.rank = static_cast<std::uint32_t>(content->rank);
    for (std::int32_t i = 0; i < content->rank; ++i) description_.shape[i] = extent(content->shape[i]);
    if (!detail::is_sane(description_)) raise(status::invalid_argument, "a tensor's type is not one that is sent");
    data_ = static_cast<const std::byte*>(content->data) + content->byte_offset;
    size_ = size_bytes(description_);
}

void source::copy_to(std::span<std::byte> room) const {
    if (size_ == 0) return;
    if (contiguous_)
        std::memmove(room.data(), data_, size_);  // a handler may answer with a part of its own room
    else if (PyBuffer_ToContiguous(room.data(), const_cast<Py_buffer*>(&buffer_), buffer_.len, 'C') != 0)
        throw nb::python_error();
}

bool source::touches(std::span<const std::byte> room) const noexcept {
    if (size_ == 0) return false;
    auto low = reinterpret_cast<std::uintptr_t>(data_);
    std::uintptr_t high = low + size_;
    if (!contiguous_) {
        high = low + static_cast<std::uintptr_t>(buffer_.itemsize);
        for (int i = 0; i < buffer_.ndim; ++i) {
            const Py_ssize_t reach = (buffer_.shape[i] - 1) * buffer_.strides[i];
            (reach < 0 ? low : high) += static_cast<std::uintptr_t>(reach);
        }
    }
    const auto begin = reinterpret_cast<std::uintptr_t>(room.data());
    return low < begin + room.size() && begin < high;
}

payload_input::payload_input(nb::handle data) {
    if (PyBytes_Check(data.ptr())) {
        bytes_.take_bytes(data);
    } else if (nb::isinstance<lent_memory>(data)) {
        lent_ = nb::inst_ptr<lent_memory>(data);
        size_ = lent_->range.size();
        return;
    } else if (PyList_Check(data.ptr()) || PyTuple_Check(data.ptr())) {
        for (const nb::handle each : data) add_tensor(each);
        if (tensors_.empty()) raise(status::invalid_argument, "a list of tensors has at least one");
    } else if (nb::isinstance<response>(data)) {
        // A message that is passed on, as it was described.
        const nb::list all = nb::borrow<nb::list>(data.attr("tensors"));
        if (all.size() == 0) bytes_.take_bytes(data.attr("data"));
        for (const nb::handle each : all) add_tensor(each);
    } else if (has_dlpack(data)) {
        add_tensor(data);
    } else {
        bytes_.take_bytes(data);
    }
    if (tensors_.empty()) {
        size_ = bytes_.size();
        return;
    }
    size_ = place_tensors(std::span(tensors_));
    if (size_ == 0) raise(status::invalid_argument, "at most 64 tensors are sent at once, each of numbers");
}

void payload_input::add_tensor(nb::handle object) {
    sources_.push_back(std::make_unique<source>());
    sources_.back()->take_tensor(object);
    tensors_.push_back(sources_.back()->description());
}

std::optional<std::span<const std::byte>> payload_input::bytes() const noexcept {
    if (lent_ != nullptr) {
        if (lent_->of->whole.kind() != memory_kind::host()) return std::nullopt;
        return lent_->range.bytes();
    }
    if (!tensors_.empty() || !bytes_.is_plain()) return std::nullopt;
    return bytes_.bytes();
}

std::size_t payload_input::part_size() const {
    if (lent_ != nullptr && !bytes()) raise(status::unsupported, "a Region on a GPU is lent by Channel.call alone");
    if (sources_.size() > 1) raise(status::invalid_argument, "a part is bytes or one tensor");
    return sources_.empty() ? size_ : sources_.front()->size();
}

std::optional<std::span<const std::byte>> payload_input::part_bytes() const noexcept {
    if (sources_.empty()) return bytes();
    return sources_.front()->is_plain() ? std::optional(sources_.front()->bytes()) : std::nullopt;
}

void payload_input::copy_part_to(std::span<std::byte> room) const {
    if (const auto plain = part_bytes())
        std::memmove(room.data(), plain->data(), plain->size());
    else
        (sources_.empty() ? bytes_ : *sources_.front()).copy_to(room);
}

void payload_input::copy_to(std::span<std::byte> room) const {
    if (lent_ != nullptr) raise(status::unsupported, "a Region on a GPU is lent by Channel.call alone");
    bool plain = bytes_.is_plain();
    bool overlaps = bytes_.touches(room);
    for (const auto& one : sources_) {
        plain = plain && one->is_plain();
        overlaps = overlaps || one->touches(room);
    }
    if (overlaps && (!plain || sources_.size() > 1)) {  // one piece would write over another, or over itself
        std::vector<std::byte> packed(size_);
        copy_pieces_to(packed);
        std::memcpy(room.data(), packed.data(), size_);
        return;
    }
    if (!plain || size_ < long_copy) return copy_pieces_to(room);
    const unlocked meanwhile;
    copy_pieces_to(room);
}

void payload_input::copy_pieces_to(std::span<std::byte> room) const {
    if (tensors_.empty()) return bytes_.copy_to(room);
    std::size_t end = 0;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
        sources_[i]->copy_to(room.subspan(tensors_[i].offset, sources_[i]->size()));
        // The gaps would have bytes of earlier messages.
        std::memset(room.data() + end, 0, tensors_[i].offset - end);
        end = tensors_[i].offset + sources_[i]->size();
    }
}

}  // namespace accel::python
