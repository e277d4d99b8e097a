// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>
#include <accel_transport/tensor.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <span>
#include <type_traits>
#include <version>
#if defined(__cpp_lib_mdspan)
#include <mdspan>
#endif

/// Tensors whose elements have a C++ type (docs/tensors.md). For programs of the host.
namespace accel {

namespace detail {
template <class Type, class... Others>
concept one_of = (std::same_as<Type, Others> || ...);
template <class Type>
concept numeric_integer = std::integral<Type> && !one_of<Type, bool, char, wchar_t, char8_t, char16_t, char32_t>;
}  // namespace detail

/// The `data_type` of a C++ type, as `value`. Specialise it for other types, such as a library's fp16 or bf16:
/// `template <> struct accel::element_type<half> { static constexpr accel::data_type value{…}; };`
template <class Element>
struct element_type {};
/// Signed and unsigned integers.
template <detail::numeric_integer Element>
struct element_type<Element> {
    static constexpr data_type value{
        std::signed_integral<Element> ? type_code::signed_integer : type_code::unsigned_integer, sizeof(Element) * 8,
        1};
};
/// Floating-point numbers.
template <detail::one_of<float, double> Element>
struct element_type<Element> {
    static constexpr data_type value{type_code::floating, sizeof(Element) * 8, 1};
};
/// Booleans: one byte, 0 or 1.
template <>
struct element_type<bool> {
    static constexpr data_type value{type_code::boolean, 8, 1};
};

/// A type with an `element_type` of its size.
template <class Element>
concept tensor_element = std::is_trivially_copyable_v<Element> && requires {
    requires element_type<std::remove_cv_t<Element>>::value.bits* element_type<std::remove_cv_t<Element>>::value
            .lanes == sizeof(Element) * 8;
};

/// A tensor of this type and shape at offset 0, for `place_tensors`. With more than `max_tensor_rank` sizes it is not
/// valid.
template <tensor_element Element>
[[nodiscard]] constexpr tensor tensor_of(std::span<const std::uint32_t> shape) noexcept {
    tensor out;
    out.type = element_type<std::remove_cv_t<Element>>::value;
    out.rank = static_cast<std::uint32_t>(shape.size());
    std::copy_n(shape.begin(), std::min<std::size_t>(shape.size(), max_tensor_rank), out.shape);
    return out;
}
template <tensor_element Element>
[[nodiscard]] constexpr tensor tensor_of(std::initializer_list<std::uint32_t> shape) noexcept {
    return tensor_of<Element>(std::span{shape.begin(), shape.size()});
}

/// A shape and the elements of a tensor of that shape: row-major, without gaps. Does not own the elements.
template <tensor_element Element>
class tensor_view {
  public:
    using payload = std::conditional_t<std::is_const_v<Element>, std::span<const std::byte>, std::span<std::byte>>;

    /// Without elements.
    tensor_view() noexcept = default;
    /// Ends the process with a message unless `elements` has exactly the number that the shape says.
    tensor_view(std::span<const std::uint32_t> shape, std::span<Element> elements) noexcept
        : elements_(elements), description_(tensor_of<Element>(shape)) {
        if (!detail::is_sane(description_) || size_bytes(description_) != elements.size_bytes()) end_misshapen();
    }
    tensor_view(std::initializer_list<std::uint32_t> shape, std::span<Element> elements) noexcept
        : tensor_view(std::span{shape.begin(), shape.size()}, elements) {}
    /// The elements of a tensor in a message, in place. Booleans are read as `std::uint8_t`, because a peer may send
    /// any bytes.
    /// `invalid_argument`: the tensor has another type, or is not within `bytes`.
    /// `unsupported`: the memory is not aligned for `Element`, as memory lent over `local` may be; copy it.
    [[nodiscard]] static result<tensor_view, status> from(const tensor& one, payload bytes) noexcept
        requires(!std::same_as<std::remove_cv_t<Element>, bool>) {
        if (!has_type(one.type) || !lies_within(one, bytes.size())) return status::invalid_argument;
        const payload own = bytes_of(one, bytes);
        if (reinterpret_cast<std::uintptr_t>(own.data()) % alignof(Element) != 0) return status::unsupported;
        tensor_view out;
        out.elements_ = {reinterpret_cast<Element*>(own.data()), own.size() / sizeof(Element)};
        out.description_ = one;
        return out;
    }

    [[nodiscard]] std::span<const std::uint32_t> shape() const noexcept {
        return {description_.shape, description_.rank};
    }
    [[nodiscard]] std::span<Element> elements() const noexcept { return elements_; }
    /// For `submit_options::tensors` and `exchange::describe`. After `from`, with the offset in that message; else 0.
    [[nodiscard]] const tensor& description() const noexcept { return description_; }
#if defined(__cpp_lib_mdspan)
    /// `invalid_argument`: the shape has not `Rank` sizes.
    template <std::size_t Rank>
    requires(Rank > 0)
        [[nodiscard]] result<std::mdspan<Element, std::dextents<std::uint32_t, Rank>>, status> mdspan() const noexcept {
        if (description_.rank != Rank) return status::invalid_argument;
        return std::mdspan<Element, std::dextents<std::uint32_t, Rank>>(
            elements_.data(), std::span<const std::uint32_t, Rank>{description_.shape, Rank});
    }
#endif

  private:
    [[nodiscard]] static constexpr bool has_type(const data_type& type) noexcept {
        using plain = std::remove_cv_t<Element>;
        if (type == element_type<plain>::value) return true;
        return std::same_as<plain, std::uint8_t> && type == element_type<bool>::value;
    }
    [[noreturn]] static void end_misshapen() noexcept {
        std::fputs("accel: a tensor_view needs as many elements as its shape says\n", stderr);
        std::abort();
    }
    std::span<Element> elements_;
    tensor description_{element_type<std::remove_cv_t<Element>>::value, 1, 0, {}};
};

/// Tensors in a payload of `length` bytes.
template <std::size_t Count>
struct packed_tensors {
    std::array<tensor, Count> list{};
    std::size_t length = 0;
};

/// Copies tensors into a payload, placed by `place_tensors`: `list` describes them, `length` is for `submit` or
/// `reply`. `message_too_large`: `room` is too small.
template <tensor_element... Elements>
requires(sizeof...(Elements) > 0 && sizeof...(Elements) <= max_tensors)
    [[nodiscard]] result<packed_tensors<sizeof...(Elements)>, status> pack_tensors(
        std::span<std::byte> room, const tensor_view<Elements>&... views) noexcept {
    packed_tensors<sizeof...(Elements)> out{{views.description()...}, 0};
    out.length = place_tensors(out.list);
    if (out.length > room.size()) return status::message_too_large;
    std::size_t next = 0;
    const auto copy = [&](std::span<const std::byte> from) {
        const std::span<std::byte> to = bytes_of(out.list[next++], room);
        if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
    };
    (copy(std::as_bytes(views.elements())), ...);
    return out;
}

}  // namespace accel
