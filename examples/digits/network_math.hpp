#pragma once

#include <cmath>
#include <cstddef>

/// The arithmetic of the network: plain loops over plain pointers, no state, no allocation. A function does
/// one pixel or a few outputs ("lanes"), so that a host loop and a device thread call the same code. Images
/// are [row][column][channel]; weights lie output-last: [3][3][input][output] or [input][output].
namespace accel::examples::digits {

/// One pixel of a 3x3 convolution with zero padding, then ReLU; writes all `Outputs` channels of that pixel.
template <int Size, int Inputs, int Outputs>
inline void convolve_pixel(const float* image, const float* weights, const float* bias, int row, int column,
                           float* pixel_out) noexcept {
    float sums[std::size_t{Outputs}];
    for (int o = 0; o < Outputs; ++o) sums[o] = bias[o];
    for (int tap = 0; tap < 9; ++tap) {
        const int y = row + tap / 3 - 1;
        const int x = column + tap % 3 - 1;
        if (y < 0 || y >= Size || x < 0 || x >= Size) continue;
        const float* pixel = image + (y * Size + x) * Inputs;
        const float* tap_weights = weights + tap * Inputs * Outputs;
        for (int i = 0; i < Inputs; ++i) {
            for (int o = 0; o < Outputs; ++o) sums[o] += pixel[i] * tap_weights[i * Outputs + o];
        }
    }
    for (int o = 0; o < Outputs; ++o) pixel_out[o] = sums[o] > 0.0f ? sums[o] : 0.0f;
}

/// One pixel of a 2x2 maximum pooling of a Size x Size image; writes all `Channels` of that pixel.
template <int Size, int Channels>
inline void pool_pixel(const float* image, int row, int column, float* pixel_out) noexcept {
    const float* upper = image + (2 * row * Size + 2 * column) * Channels;
    const float* lower = upper + Size * Channels;
    for (int c = 0; c < Channels; ++c) {
        const float up = upper[c] > upper[Channels + c] ? upper[c] : upper[Channels + c];
        const float down = lower[c] > lower[Channels + c] ? lower[c] : lower[Channels + c];
        pixel_out[c] = up > down ? up : down;
    }
}

/// Outputs first .. first + Lanes - 1 of a dense layer, without activation.
template <int Inputs, int Outputs, int Lanes>
inline void dense_lanes(const float* inputs, const float* weights, const float* bias, int first,
                        float* outputs) noexcept {
    float sums[std::size_t{Lanes}];
    for (int o = 0; o < Lanes; ++o) sums[o] = bias[first + o];
    for (int i = 0; i < Inputs; ++i) {
        for (int o = 0; o < Lanes; ++o) sums[o] += inputs[i] * weights[i * Outputs + first + o];
    }
    for (int o = 0; o < Lanes; ++o) outputs[first + o] = sums[o];
}

template <int Count>
inline void rectify(float* values) noexcept {
    for (int i = 0; i < Count; ++i) values[i] = values[i] > 0.0f ? values[i] : 0.0f;
}

/// Turns logits into probabilities, in place.
template <int Count>
inline void softmax(float* values) noexcept {
    float largest = values[0];
    for (int i = 1; i < Count; ++i) largest = values[i] > largest ? values[i] : largest;
    float total = 0.0f;
    for (int i = 0; i < Count; ++i) {
        values[i] = std::exp(values[i] - largest);
        total += values[i];
    }
    for (int i = 0; i < Count; ++i) values[i] /= total;
}

}  // namespace accel::examples::digits
