// SPDX-License-Identifier: Apache-2.0
#include "serving/model_server/request_check.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

namespace accel::examples::serving {
namespace {

constexpr data_type pixel_type{type_code::unsigned_integer, 8, 1};

std::string_view kind_of(type_code code) noexcept {
    switch (code) {
        case type_code::signed_integer:
            return "int";
        case type_code::unsigned_integer:
            return "uint";
        case type_code::floating:
            return "float";
        case type_code::bfloat:
            return "bfloat";
        case type_code::complex:
            return "complex";
        case type_code::boolean:
            return "bool";
        default:
            return "type";
    }
}

/// Text of a fixed size; what does not fit is left out.
class short_text {
  public:
    template <class... Values>
    void add(fmt::format_string<Values...> format, Values&&... values) noexcept {
        const auto left = static_cast<std::size_t>(std::end(bytes_) - end_);
        end_ = std::min(fmt::format_to_n(end_, left, format, std::forward<Values>(values)...).out, std::end(bytes_));
    }
    void add_type(const data_type& type) noexcept {
        add("{}{}", kind_of(type.code), unsigned{type.bits});
        if (type.lanes != 1) add("x{}", unsigned{type.lanes});
    }
    void add_shape(const tensor& one) noexcept {
        if (one.rank == 0) add("scalar");
        for (std::uint32_t i = 0; i < one.rank; ++i) add("{}{}", i == 0 ? "" : "x", one.shape[i]);
    }
    void add_tensor(const tensor& one) noexcept {
        add_type(one.type);
        add(" ");
        add_shape(one);
    }
    [[nodiscard]] std::string_view text() const noexcept { return {bytes_, static_cast<std::size_t>(end_ - bytes_)}; }

  private:
    char bytes_[240];
    char* end_ = bytes_;
};

}  // namespace

void refusal::set(status code, std::string_view text) noexcept {
    code_ = code;
    length_ = std::min(text.size(), text_.size());
    std::copy_n(text.data(), length_, text_.data());
}

request_check::request_check(const model_shapes& shapes)
    : shapes_(shapes),
      images_(image_bytes(shapes.image) > 0),
      inputs_(shapes.inputs),
      outputs_(shapes.outputs),
      input_bytes_(payload_bytes(shapes.inputs)),
      output_bytes_(payload_bytes(shapes.outputs)) {
    if (images_) image_ = {pixel_type, 3, 0, {shapes.image.height, shapes.image.width, 3}};
    place_from_zero(inputs_);
    place_from_zero(outputs_);
}

bool request_check::look(const request_parts& request, request_form& out, refusal& why) const noexcept {
    if (!is_described(request, why)) return false;
    const bool raw = images_ && request.tensors[0].type == pixel_type && inputs_[0].type != pixel_type;
    if (!has_count(request.tensors.size(), raw, why)) return false;
    if (raw) {
        if (!is_like(request.tensors[0], image_, 0, why)) return false;
    } else {
        for (std::size_t i = 0; i < inputs_.size(); ++i)
            if (!is_like(request.tensors[i], inputs_[i], i, why)) return false;
        if (!lies_rightly(request, why)) return false;
    }
    if (!has_room(request, why)) return false;
    out = {raw, request.tensors[0].offset, raw ? image_bytes(shapes_.image) : input_bytes_};
    return true;
}

bool request_check::is_described(const request_parts& request, refusal& why) const noexcept {
    if (request.described == status::ok && !request.tensors.empty()) return true;
    short_text text;
    if (request.described == status::peer_lost) {
        text.add("the client has disconnected");
        why.set(status::peer_lost, text.text());
        return false;
    }
    text.add("the request describes no tensors: '{}' takes ", shapes_.name);
    text.add_tensor(inputs_[0]);
    if (inputs_.size() > 1) text.add(" and {} more", inputs_.size() - 1);
    if (images_) {
        text.add(", or an image of ");
        text.add_tensor(image_);
    }
    why.set(status::invalid_argument, text.text());
    return false;
}

bool request_check::has_count(std::size_t count, bool raw, refusal& why) const noexcept {
    const std::size_t wanted = raw ? 1 : inputs_.size();
    if (count == wanted) return true;
    short_text text;
    text.add("'{}' takes {} {}{}, but the request has {}", shapes_.name, wanted, raw ? "image" : "tensor",
             wanted == 1 ? "" : "s", count);
    why.set(status::invalid_argument, text.text());
    return false;
}

bool request_check::is_like(const tensor& given, const tensor& wanted, std::size_t index, refusal& why) const noexcept {
    short_text text;
    text.add("tensor {} ", index);
    if (!(given.type == wanted.type)) {
        text.add("is ");
        text.add_type(given.type);
        text.add(": '{}' takes ", shapes_.name);
        text.add_type(wanted.type);
        if (images_) text.add(", or uint8 as a raw image");
    } else if (given.rank != wanted.rank) {
        text.add("has {} dimensions: '{}' takes {}, as in ", given.rank, shapes_.name, wanted.rank);
        text.add_shape(wanted);
    } else if (!std::equal(given.shape, given.shape + given.rank, wanted.shape)) {
        text.add("has the shape ");
        text.add_shape(given);
        text.add(": '{}' takes ", shapes_.name);
        text.add_shape(wanted);
    } else {
        return true;
    }
    why.set(status::invalid_argument, text.text());
    return false;
}

bool request_check::lies_rightly(const request_parts& request, refusal& why) const noexcept {
    const std::size_t first = request.tensors[0].offset;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
        if (request.tensors[i].offset == first + inputs_[i].offset) continue;
        short_text text;
        text.add("tensor {} is at {}: '{}' takes its tensors consecutively, this one at {}", i,
                 request.tensors[i].offset, shapes_.name, first + inputs_[i].offset);
        why.set(status::invalid_argument, text.text());
        return false;
    }
    // Memory that a client of the same process lends lies as the client has aligned it.
    constexpr std::uintptr_t alignment = 8;
    if (reinterpret_cast<std::uintptr_t>(request.payload + first) % alignment == 0) return true;
    why.set(status::invalid_argument, "the tensors are at an unaligned address: align them to 8 bytes");
    return false;
}

bool request_check::has_room(const request_parts& request, refusal& why) const noexcept {
    if (request.response_room >= output_bytes_) return true;
    short_text text;
    text.add("the answer of '{}' has {} bytes, but the call has room for {}: connect with response_bytes={}",
             shapes_.name, output_bytes_, request.response_room, output_bytes_);
    why.set(status::message_too_large, text.text());
    return false;
}

}  // namespace accel::examples::serving
