// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/models/table.hpp"

#include <accel_transport/detail/host_device.hpp>

/// The arithmetic that makes a network's input out of a raw image, for host loops and device threads alike: bilinear
/// resize as `torch.nn.functional.interpolate(mode="bilinear", align_corners=False)` of the bytes as floats, then
/// (value / 255 - mean) / deviation with ImageNet's means and deviations. Both processors give the same bits where a
/// product and a sum stay two operations (-ffp-contract=off, -fmad=false).
namespace accel::examples::serving {

inline constexpr int image_channels = 3;

/// How many pixels of the image one step in the output is.
ACCEL_HOST_DEVICE inline float step_of(int from, int to) noexcept {
    return static_cast<float>(from) / static_cast<float>(to);
}

/// The two pixels along one axis that an output pixel lies between, and the part of each; they sum to 1.
struct pixel_pair {
    int first, second;
    float part_of_first, part_of_second;
};

/// `size`: pixels of the image along this axis.
ACCEL_HOST_DEVICE inline pixel_pair pair_at(int output, float step, int size) noexcept {
    const float at = step * (static_cast<float>(output) + 0.5f) - 0.5f;
    const float source = at < 0.0f ? 0.0f : at;
    const int whole = static_cast<int>(source);
    const int first = whole < size - 1 ? whole : size - 1;
    const float rest = source - static_cast<float>(first);
    return {first, first < size - 1 ? first + 1 : first, 1.0f - rest, rest};
}

/// One channel between four pixels of an image of `width` pixels a row, bytes interleaved.
ACCEL_HOST_DEVICE inline float bilinear(const unsigned char* image, int width, const pixel_pair& rows,
                                        const pixel_pair& columns, int channel) noexcept {
    const auto at = [&](int row, int column) {
        return static_cast<float>(image[(row * width + column) * image_channels + channel]);
    };
    const float above =
        columns.part_of_first * at(rows.first, columns.first) + columns.part_of_second * at(rows.first, columns.second);
    const float below = columns.part_of_first * at(rows.second, columns.first) +
                        columns.part_of_second * at(rows.second, columns.second);
    return rows.part_of_first * above + rows.part_of_second * below;
}

/// A value of 0 to 255 as the networks take it.
ACCEL_HOST_DEVICE inline float normalised(float value, int channel) noexcept {
    constexpr float factors[image_channels] = {static_cast<float>(1 / (255 * 0.229)),
                                               static_cast<float>(1 / (255 * 0.224)),
                                               static_cast<float>(1 / (255 * 0.225))};
    constexpr float shifts[image_channels] = {static_cast<float>(0.485 / 0.229), static_cast<float>(0.456 / 0.224),
                                              static_cast<float>(0.406 / 0.225)};
    return value * factors[channel] - shifts[channel];
}

/// One output pixel's channel. `image` is `from`; the output has `to`'s size and is planar: channel, row, column.
ACCEL_HOST_DEVICE inline float input_value(const unsigned char* image, const image_size& from, const image_size& to,
                                           int channel, int row, int column) noexcept {
    const auto rows = static_cast<int>(from.height);
    const auto columns = static_cast<int>(from.width);
    const pixel_pair down = pair_at(row, step_of(rows, static_cast<int>(to.height)), rows);
    const pixel_pair across = pair_at(column, step_of(columns, static_cast<int>(to.width)), columns);
    return normalised(bilinear(image, columns, down, across, channel), channel);
}

}  // namespace accel::examples::serving
