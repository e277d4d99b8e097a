// SPDX-License-Identifier: Apache-2.0
#include "serving/models/image.hpp"

namespace accel::examples::serving {
image_preprocessor::image_preprocessor(const image_size& from, const image_size& to) : from_(from), to_(to) {
    const auto columns = static_cast<int>(from.width);
    const float step = step_of(columns, static_cast<int>(to.width));
    columns_.reserve(to.width);
    for (int i = 0; i < static_cast<int>(to.width); ++i) columns_.push_back(pair_at(i, step, columns));
}

void image_preprocessor::run(std::span<const std::byte> image, std::span<std::byte> tensor) const noexcept {
    const auto* const bytes = reinterpret_cast<const unsigned char*>(image.data());
    auto* const out = reinterpret_cast<float*>(tensor.data());
    for (int row = 0; row < static_cast<int>(to_.height); ++row)
        fill_row(bytes, row, out + static_cast<std::size_t>(row) * to_.width);
}

void image_preprocessor::fill_row(const unsigned char* image, int row, float* red) const noexcept {
    const auto rows = static_cast<int>(from_.height);
    const pixel_pair down = pair_at(row, step_of(rows, static_cast<int>(to_.height)), rows);
    const std::size_t plane = std::size_t{to_.height} * to_.width;
    for (int channel = 0; channel < image_channels; ++channel) {
        float* out = red + static_cast<std::size_t>(channel) * plane;
        for (const pixel_pair& across : columns_)
            *out++ = normalised(bilinear(image, static_cast<int>(from_.width), down, across, channel), channel);
    }
}

bool takes_images(const model_shapes& shapes) noexcept {
    if (image_bytes(shapes.image) == 0 || shapes.inputs.size() != 1) return false;
    const tensor& in = shapes.inputs[0];
    return in.type == data_type{} && in.rank == 4 && in.shape[0] == 1 && in.shape[1] == image_channels &&
           in.shape[2] > 0 && in.shape[3] > 0;
}

image_size tensor_image(const model_shapes& shapes) noexcept {
    return {shapes.inputs[0].shape[2], shapes.inputs[0].shape[3]};
}

}  // namespace accel::examples::serving
