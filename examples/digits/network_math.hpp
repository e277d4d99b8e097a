// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "digits/portable.hpp"

#include <cmath>
#include <cstddef>

/// The arithmetic of the network: plain loops over plain pointers, no state, no allocation. A function does
/// one pixel or a few outputs ("lanes"), so that a host loop and a device thread call the same code and get
/// the same bits. Images are [row][column][channel]; weights lie output-last: [3][3][input][output] or
/// [input][output].
namespace accel::examples::digits {

/// `Lanes` channels of one pixel of a 3x3 convolution with zero padding, then ReLU. `weights`, `bias` and
/// `out` begin at the first of these channels.
template <int Size, int Inputs, int Outputs, int Lanes>
ACCEL_HOST_DEVICE inline void convolve_lanes(const float* image, const float* weights, const float* bias, int row,
                                             int column, float* out) noexcept {
    float sums[std::size_t{Lanes}];
    for (int o = 0; o < Lanes; ++o) sums[o] = bias[o];
    for (int tap = 0; tap < 9; ++tap) {
        const int y = row + tap / 3 - 1;
        const int x = column + tap % 3 - 1;
        if (y < 0 || y >= Size || x < 0 || x >= Size) continue;
        const float* pixel = image + (y * Size + x) * Inputs;
        const float* tap_weights = weights + tap * Inputs * Outputs;
        for (int i = 0; i < Inputs; ++i)
            for (int o = 0; o < Lanes; ++o) sums[o] += pixel[i] * tap_weights[i * Outputs + o];
    }
    for (int o = 0; o < Lanes; ++o) out[o] = sums[o] > 0.0f ? sums[o] : 0.0f;
}

/// One value of a 2x2 maximum pooling of a Size x Size image.
template <int Size, int Channels>
ACCEL_HOST_DEVICE inline float pooled_value(const float* image, int row, int column, int channel) noexcept {
    const float* upper = image + (2 * row * Size + 2 * column) * Channels + channel;
    const float* lower = upper + Size * Channels;
    const float up = upper[0] > upper[Channels] ? upper[0] : upper[Channels];
    const float down = lower[0] > lower[Channels] ? lower[0] : lower[Channels];
    return up > down ? up : down;
}

/// Outputs first .. first + Lanes - 1 of a dense layer, without activation.
template <int Inputs, int Outputs, int Lanes>
ACCEL_HOST_DEVICE inline void dense_lanes(const float* inputs, const float* weights, const float* bias, int first,
                                          float* outputs) noexcept {
    float sums[std::size_t{Lanes}];
    for (int o = 0; o < Lanes; ++o) sums[o] = bias[first + o];
    for (int i = 0; i < Inputs; ++i)
        for (int o = 0; o < Lanes; ++o) sums[o] += inputs[i] * weights[i * Outputs + first + o];
    for (int o = 0; o < Lanes; ++o) outputs[first + o] = sums[o];
}

ACCEL_HOST_DEVICE inline float rectified(float value) noexcept {
    return value > 0.0f ? value : 0.0f;
}

/// e to the power of x, for x of at most 0: rounded from a result in double precision, which is not a math
/// library's, as those differ in the last bit.
ACCEL_HOST_DEVICE inline float exponential(float x) noexcept {
    if (!(x > -104.0f)) return x <= -104.0f ? 0.0f : x;  // NaN stays what it is
    constexpr double log2_of_e = 1.4426950408889634;
    constexpr double ln2 = 0.69314718055994531;
    const int whole = static_cast<int>(x * log2_of_e - 0.5);
    const double rest = x - whole * ln2;
    // Taylor's series; what is left out is below 1e-11.
    double sum = 1.0 / 362880;
    sum = sum * rest + 1.0 / 40320;
    sum = sum * rest + 1.0 / 5040;
    sum = sum * rest + 1.0 / 720;
    sum = sum * rest + 1.0 / 120;
    sum = sum * rest + 1.0 / 24;
    sum = sum * rest + 1.0 / 6;
    sum = sum * rest + 0.5;
    sum = (sum * rest + 1.0) * rest + 1.0;
    return static_cast<float>(std::ldexp(sum, whole));
}

/// Turns logits into probabilities in two steps: e to the power of each, relative to the largest …
template <int Count>
ACCEL_HOST_DEVICE inline float unscaled_probability(const float* logits, int which) noexcept {
    float largest = logits[0];
    for (int i = 1; i < Count; ++i) largest = logits[i] > largest ? logits[i] : largest;
    return exponential(logits[which] - largest);
}

/// … divided by the sum of all.
template <int Count>
ACCEL_HOST_DEVICE inline float sum_of(const float* values) noexcept {
    float total = 0.0f;
    for (int i = 0; i < Count; ++i) total += values[i];
    return total;
}

/// The index of the largest; the first where several are equal.
template <int Count>
ACCEL_HOST_DEVICE inline int index_of_largest(const float* values) noexcept {
    int best = 0;
    for (int i = 1; i < Count; ++i) best = values[i] > values[best] ? i : best;
    return best;
}

/// What the network takes as an input; NaN is none.
ACCEL_HOST_DEVICE inline bool is_tensor_value(float value) noexcept {
    return value >= 0.0f && value <= 1.0f;
}

}  // namespace accel::examples::digits
