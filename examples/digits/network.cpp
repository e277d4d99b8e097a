// SPDX-License-Identifier: Apache-2.0
#include "digits/network.hpp"

#include "digits/checked_file.hpp"
#include "digits/network_math.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace accel::examples::digits {
namespace {

using shape = network_shape;
using dimensions = std::array<std::uint32_t, 4>;

constexpr std::string_view weights_magic = "ADWEIGHT";
constexpr std::uint32_t weights_version = 1;

constexpr std::array<dimensions, 8> expected_dimensions{{
    {3, 3, 1, shape::conv1_channels},
    {shape::conv1_channels, 1, 1, 1},
    {3, 3, shape::conv1_channels, shape::conv2_channels},
    {shape::conv2_channels, 1, 1, 1},
    {shape::pooled_values, shape::hidden_values, 1, 1},
    {shape::hidden_values, 1, 1, 1},
    {shape::hidden_values, shape::classes, 1, 1},
    {shape::classes, 1, 1, 1},
}};

constexpr std::size_t header_bytes = magic_bytes + 4 + 4 + sizeof(expected_dimensions);
constexpr std::size_t file_bytes = header_bytes + sizeof(network_parameters) + checksum_bytes;

static_assert(std::is_trivially_copyable_v<network_parameters>);

failure check_dimensions(byte_reader& reader) {
    if (reader.take_u32() != expected_dimensions.size()) return failure::shape_unexpected;
    for (const dimensions& expected : expected_dimensions) {
        for (const std::uint32_t extent : expected)
            if (reader.take_u32() != extent) return failure::shape_unexpected;
    }
    return failure::none;
}

bool read_finite(byte_reader& reader, std::span<float> values) {
    for (float& value : values) {
        value = reader.take_float();
        if (!std::isfinite(value)) return false;
    }
    return true;
}

bool read_parameters(byte_reader& reader, network_parameters& p) {
    return read_finite(reader, p.conv1_weights) && read_finite(reader, p.conv1_bias) &&
           read_finite(reader, p.conv2_weights) && read_finite(reader, p.conv2_bias) &&
           read_finite(reader, p.hidden_weights) && read_finite(reader, p.hidden_bias) &&
           read_finite(reader, p.output_weights) && read_finite(reader, p.output_bias);
}

template <int Inputs, int Outputs>
void convolve(const float* image, const float* weights, const float* bias, float* out) {
    for (int row = 0; row < image_side; ++row) {
        for (int column = 0; column < image_side; ++column) {
            float* pixel = out + (row * image_side + column) * Outputs;
            convolve_lanes<image_side, Inputs, Outputs, Outputs>(image, weights, bias, row, column, pixel);
        }
    }
}

void pool(const float* image, float* out) {
    constexpr int channels = shape::conv2_channels;
    for (int row = 0; row < shape::pooled_side; ++row) {
        for (int column = 0; column < shape::pooled_side; ++column)
            for (int c = 0; c < channels; ++c) *out++ = pooled_value<image_side, channels>(image, row, column, c);
    }
}

template <int Inputs, int Outputs>
void dense(const float* inputs, const float* weights, const float* bias, float* out) {
    dense_lanes<Inputs, Outputs, Outputs>(inputs, weights, bias, 0, out);
}

void softmax(const float* logits, std::span<float, class_count> scores) {
    for (int i = 0; i < shape::classes; ++i)
        scores[static_cast<std::size_t>(i)] = unscaled_probability<shape::classes>(logits, i);
    const float total = sum_of<shape::classes>(scores.data());
    for (float& score : scores) score /= total;
}

}  // namespace

loaded<network> network::load(std::span<const std::byte> file) noexcept {
    if (const failure why = check_envelope(file, weights_magic, weights_version); why != failure::none)
        return {{}, why};
    if (const failure why = check_length(file.size(), file_bytes); why != failure::none) return {{}, why};

    byte_reader reader(file.subspan(magic_bytes + sizeof(weights_version)));
    if (const failure why = check_dimensions(reader); why != failure::none) return {{}, why};
    loaded<network> result{network{}, failure::none};
    if (!read_parameters(reader, result.value->parameters_)) return {{}, failure::weight_not_finite};
    return result;
}

failure network::classify(std::span<const float> tensor, std::span<float, class_count> scores) const noexcept {
    if (tensor.size() != tensor_values) return failure::tensor_size_wrong;
    if (!std::ranges::all_of(tensor, is_tensor_value)) return failure::tensor_value_out_of_range;

    float conv1[tensor_values * shape::conv1_channels];
    float conv2[tensor_values * shape::conv2_channels];
    float pooled[shape::pooled_values];
    float hidden[shape::hidden_values];
    const network_parameters& p = parameters_;
    convolve<1, shape::conv1_channels>(tensor.data(), p.conv1_weights, p.conv1_bias, conv1);
    convolve<shape::conv1_channels, shape::conv2_channels>(conv1, p.conv2_weights, p.conv2_bias, conv2);
    pool(conv2, pooled);
    dense<shape::pooled_values, shape::hidden_values>(pooled, p.hidden_weights, p.hidden_bias, hidden);
    for (float& value : hidden) value = rectified(value);
    float logits[shape::classes];
    dense<shape::hidden_values, shape::classes>(hidden, p.output_weights, p.output_bias, logits);
    softmax(logits, scores);
    return failure::none;
}

int best_class(std::span<const float, class_count> scores) noexcept {
    return index_of_largest<shape::classes>(scores.data());
}

}  // namespace accel::examples::digits
