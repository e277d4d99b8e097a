// SPDX-License-Identifier: Apache-2.0
#include "digits/digits_inputs.hpp"

#include "digits/embedded.hpp"
#include "digits/frame.hpp"

#include <array>
#include <cstring>
#include <string>
#include <utility>

namespace accel::examples::digits {
namespace {

void write_tensor(const digit_image& image, std::span<std::byte> out) {
    std::array<float, tensor_values> tensor;
    to_tensor(image, tensor);
    std::memcpy(out.data(), tensor.data(), tensor_bytes);
}

error refused(failure why) {
    return {status::invalid_argument, 0, std::string{describe(why)}};
}

}  // namespace

std::string_view to_string(input_form form) noexcept {
    return form == input_form::raw ? "raw" : "tensor";
}

std::size_t request_bytes(input_form form) noexcept {
    return form == input_form::raw ? frame_bytes : tensor_bytes;
}

result<digit_inputs> digit_inputs::make(context& ctx, input_form form, std::size_t first, std::size_t count) {
    const auto images = dataset::load(embedded_test_images());
    if (!images.value) return refused(images.error);
    const std::size_t bytes = request_bytes(form);
    auto memory = ctx.allocate(bytes * count);
    if (!memory) return memory.error();
    digit_inputs made{std::move(memory).value()};
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t index = (first + i) % images.value->size();
        const digit_image image = (*images.value)[index];
        auto room = made.memory_.part(i * bytes, bytes);
        if (!room) return room.error();
        if (form == input_form::tensor)
            write_tensor(image, room->bytes());
        else if (const failure why = draw_frame(image, index, room->bytes()); why != failure::none)
            return refused(why);
        made.requests_.push_back(*room);
        made.labels_.push_back(image.label);
    }
    return made;
}

}  // namespace accel::examples::digits
