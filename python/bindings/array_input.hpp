// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "context.hpp"

#include <accel_transport/tensor.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <nanobind/nanobind.h>

/// What Python gives to be sent: bytes, tensors, or registered memory.
namespace accel::python {

/// The memory of one object, held as long as this lives.
class source {
  public:
    source() = default;
    source(const source&) = delete;
    source& operator=(const source&) = delete;
    ~source();
    /// Any object with the buffer protocol, as bytes.
    void take_bytes(nb::handle object);
    /// An object with `__dlpack__`: by its buffer where it has one, else by DLPack.
    void take_tensor(nb::handle object);
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] const tensor& description() const noexcept { return description_; }
    /// Its bytes follow one another, so that copying them needs nothing of Python.
    [[nodiscard]] bool is_plain() const noexcept { return contiguous_; }
    [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }
    void copy_to(std::span<std::byte> room) const;
    /// Some of it lies in `room`.
    [[nodiscard]] bool touches(std::span<const std::byte> room) const noexcept;

  private:
    bool take_buffer(nb::handle object);
    void take_capsule(nb::handle object);
    const std::byte* data_ = nullptr;
    std::size_t size_ = 0;
    tensor description_;
    Py_buffer buffer_{};
    bool has_buffer_ = false;
    bool contiguous_ = true;
    nb::object held_;  ///< a `bytes`, or the capsule
    void (*drop_)(void* managed) = nullptr;
    void* managed_ = nullptr;
};

/// A payload: one object's bytes, the tensors of one or several objects, or lent memory.
class payload_input {
  public:
    /// `invalid_argument`: none of these, or a tensor that cannot be sent.
    explicit payload_input(nb::handle data);
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] std::span<const tensor> tensors() const noexcept { return tensors_; }
    [[nodiscard]] const lent_memory* lent() const noexcept { return lent_; }
    /// The payload where it is, if it is in one piece.
    [[nodiscard]] std::optional<std::span<const std::byte>> bytes() const noexcept;
    /// Copies the payload to the start of `room`, which has `size()` bytes and may have some of it. Lets go of the GIL
    /// for long ones.
    void copy_to(std::span<std::byte> room) const;

    // As a part of a message, which has no description: bytes, or the elements of one tensor.
    /// `invalid_argument`: several tensors.
    [[nodiscard]] std::size_t part_size() const;
    [[nodiscard]] std::optional<std::span<const std::byte>> part_bytes() const noexcept;
    void copy_part_to(std::span<std::byte> room) const;

  private:
    void add_tensor(nb::handle object);
    void copy_pieces_to(std::span<std::byte> room) const;
    std::size_t size_ = 0;
    source bytes_;
    std::vector<std::unique_ptr<source>> sources_;
    std::vector<tensor> tensors_;
    const lent_memory* lent_ = nullptr;
};

}  // namespace accel::python
