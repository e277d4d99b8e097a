// SPDX-License-Identifier: Apache-2.0
#include "digits/dataset.hpp"
#include "digits/digit_answer.hpp"
#include "digits/embedded.hpp"
#include "digits/frame.hpp"
#include "digits/preprocess.hpp"
#include "networks.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>

namespace accel::bench {
namespace {

namespace digits = examples::digits;

using tensor = std::array<float, digits::tensor_values>;

bool is_digits(const network_choice& choice) {
    return choice.name.starts_with("digits");
}

std::vector<std::byte> digits_input(bool raw, std::size_t number, std::size_t bytes) {
    std::vector<std::byte> out(bytes);
    const auto images = digits::dataset::load(digits::embedded_test_images());
    const std::size_t index = number * 37 % images.value->size();
    const digits::digit_image image = (*images.value)[index];
    if (raw) {
        (void)digits::draw_frame(image, index, out);
        return out;
    }
    tensor values{};
    digits::to_tensor(image, values);
    std::memcpy(out.data(), values.data(), std::min(bytes, sizeof values));
    return out;
}

/// Numbers of 0 … 1; in half precision of 0.5 … 1, whose bits are simple. Each image has half the values of
/// the one before, so that their logits are far apart.
std::vector<std::byte> image_input(bool half, std::size_t number, std::size_t bytes) {
    std::vector<std::byte> out(bytes);
    std::mt19937 random{static_cast<std::mt19937::result_type>(number)};
    if (half) {
        for (std::size_t at = 0; at + 2 <= bytes; at += 2) {
            const auto bits = static_cast<std::uint16_t>((0x3800U - number * 0x400U) | (random() & 0x3ffU));
            std::memcpy(out.data() + at, &bits, sizeof bits);
        }
        return out;
    }
    for (std::size_t at = 0; at + 4 <= bytes; at += 4) {
        const float value = static_cast<float>(random() >> 8U) / static_cast<float>(1U << (24U + number));
        std::memcpy(out.data() + at, &value, sizeof value);
    }
    return out;
}

float from_half(std::uint16_t bits) {
    const int exponent = (bits >> 10U) & 0x1f;
    const auto mantissa = static_cast<float>(bits & 0x3ffU);
    float value = exponent == 0    ? std::ldexp(mantissa, -24)
                  : exponent == 31 ? std::nanf("")
                                   : std::ldexp(mantissa + 1024, exponent - 25);
    return (bits & 0x8000U) != 0 ? -value : value;
}

float logit(bool half, std::span<const std::byte> answer, std::size_t index) {
    if (half) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, answer.data() + index * sizeof bits, sizeof bits);
        return from_half(bits);
    }
    float value = 0;
    std::memcpy(&value, answer.data() + index * sizeof value, sizeof value);
    return value;
}

}  // namespace

std::vector<std::byte> make_input(const network_choice& choice, std::size_t number, std::size_t bytes) {
    if (is_digits(choice)) return digits_input(choice.name == "digits_raw", number, bytes);
    return image_input(choice.half, number, bytes);
}

std::vector<std::byte> answer_of_host(const network_choice& choice, std::span<const std::byte> input) {
    if (!is_digits(choice)) return {};
    const auto model = digits::network::load(digits::embedded_weights());
    tensor values{};
    digits::failure why = digits::failure::none;
    if (choice.name == "digits_raw")
        why = digits::preprocess(input, values);
    else
        std::memcpy(values.data(), input.data(), std::min(input.size(), sizeof values));
    digits::digit_answer answer;
    if (why == digits::failure::none) why = model.value->classify(values, answer.scores);
    answer.label = why == digits::failure::none ? static_cast<std::uint32_t>(digits::best_class(answer.scores))
                                                : digits::label_of(why);
    std::vector<std::byte> out(sizeof answer);
    std::memcpy(out.data(), &answer, sizeof answer);
    return out;
}

double distance(const network_choice& choice, std::span<const std::byte> answer, std::span<const std::byte> expected) {
    if (answer.size() != expected.size() || answer.empty()) return 1;
    const bool same = std::equal(answer.begin(), answer.end(), expected.begin());
    if (is_digits(choice)) return same ? 0 : 1;
    const std::size_t count = answer.size() / (choice.half ? 2 : 4);
    double greatest = 0;
    double apart = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const double seen = logit(choice.half, answer, i);
        const double wanted = logit(choice.half, expected, i);
        if (!std::isfinite(seen) || !std::isfinite(wanted)) return 1;
        greatest = std::max(greatest, std::abs(wanted));
        apart = std::max(apart, std::abs(seen - wanted));
    }
    return greatest > 0 ? apart / greatest : 1;
}

}  // namespace accel::bench
