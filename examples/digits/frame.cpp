// SPDX-License-Identifier: Apache-2.0
#include "digits/frame.hpp"

#include <algorithm>
#include <array>

namespace accel::examples::digits {
namespace {

constexpr float width_pixels = static_cast<float>(frame_width);
constexpr float height_pixels = static_cast<float>(frame_height);
constexpr float margin_pixels = 40.0f;

/// SplitMix64 (Steele, Lea, Flood 2014): one state word, any seed will do.
class random_source {
  public:
    explicit random_source(std::uint64_t seed) : state_(seed) {}

    std::uint64_t bits() {
        state_ += 0x9E3779B97F4A7C15u;
        std::uint64_t value = state_;
        value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
        value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
        return value ^ (value >> 31);
    }

    float between(float low, float high) { return low + (high - low) * (static_cast<float>(bits() >> 40) * 0x1p-24f); }

  private:
    std::uint64_t state_;
};

using colour = std::array<float, frame_channels>;

struct scene {
    float top, left, height, width;
    colour paper, ink;
    float light_down, light_right;
};

colour tinted(float grey, random_source& random) {
    return {grey + random.between(-10, 10), grey + random.between(-10, 10), grey + random.between(-10, 10)};
}

scene choose_scene(random_source& random) {
    scene s{};
    s.height = random.between(160, 360);
    s.width = s.height * random.between(0.9f, 1.1f);
    s.top = random.between(margin_pixels, height_pixels - margin_pixels - s.height);
    s.left = random.between(margin_pixels, width_pixels - margin_pixels - s.width);
    const bool chalk_on_board = (random.bits() & 1u) != 0;
    s.paper = tinted(chalk_on_board ? random.between(25, 70) : random.between(170, 235), random);
    s.ink = tinted(chalk_on_board ? random.between(190, 240) : random.between(20, 80), random);
    s.light_down = random.between(-20, 20);
    s.light_right = random.between(-20, 20);
    return s;
}

/// The image with a border of zeros, so that interpolation fades out at its edge.
constexpr std::size_t padded_side = image_side + 2;
using padded_row = std::array<float, padded_side>;
using padded_image = std::array<padded_row, padded_side>;

padded_image with_border(const digit_image& image) {
    padded_image padded{};
    for (std::size_t i = 0; i < tensor_values; ++i) {
        const float cover = static_cast<float>(std::to_integer<int>(image.pixels[i])) / brightest_pixel;
        padded[i / image_side + 1][i % image_side + 1] = cover;
    }
    return padded;
}

/// Between which two padded pixels a frame coordinate lies, and how far towards the second.
struct interpolation {
    std::size_t first;
    float towards_second;
};

interpolation locate(std::size_t pixel, float start, float length) {
    const float place = (static_cast<float>(pixel) + 0.5f - start) * image_side / length + 0.5f;
    const float inside = std::clamp(place, 0.0f, static_cast<float>(padded_side - 1));
    const std::size_t first = std::min(static_cast<std::size_t>(inside), padded_side - 2);
    return {first, inside - static_cast<float>(first)};
}

padded_row blend_rows(const padded_image& image, interpolation at) {
    padded_row blended{};
    for (std::size_t i = 0; i < padded_side; ++i) {
        const float upper = image[at.first][i];
        blended[i] = upper + (image[at.first + 1][i] - upper) * at.towards_second;
    }
    return blended;
}

/// Triangular noise of at most 12 grey levels either way, from 16 random bits.
float noise(std::uint64_t random_bits) {
    const auto sum = static_cast<int>((random_bits & 0xFFu) + ((random_bits >> 8) & 0xFFu));
    return static_cast<float>(sum - 255) * (12.0f / 255.0f);
}

std::byte to_byte(float level) {
    return static_cast<std::byte>(static_cast<int>(std::clamp(level, 0.0f, 255.0f) + 0.5f));
}

void draw_pixel(const scene& s, float cover, float light, std::uint64_t random_bits, std::byte* pixel) {
    for (std::size_t c = 0; c < frame_channels; ++c) {
        const float level = s.paper[c] + (s.ink[c] - s.paper[c]) * cover + light;
        pixel[c] = to_byte(level + noise(random_bits >> (16 * c)));
    }
}

/// How bright the light falls at a pixel, `range` grey levels from one edge of the frame to the other.
float light_at(float range, std::size_t pixel, float extent) {
    return range * ((static_cast<float>(pixel) + 0.5f) / extent - 0.5f);
}

}  // namespace

failure draw_frame(const digit_image& image, std::uint64_t seed, std::span<std::byte> frame) noexcept {
    if (frame.size() != frame_bytes) return failure::frame_size_wrong;

    random_source random(seed);
    const scene s = choose_scene(random);
    const padded_image padded = with_border(image);
    std::array<interpolation, frame_width> columns{};
    for (std::size_t x = 0; x < frame_width; ++x) columns[x] = locate(x, s.left, s.width);

    std::byte* pixel = frame.data();
    for (std::size_t y = 0; y < frame_height; ++y) {
        const padded_row row = blend_rows(padded, locate(y, s.top, s.height));
        const float row_light = light_at(s.light_down, y, height_pixels);
        for (std::size_t x = 0; x < frame_width; ++x, pixel += frame_channels) {
            const float before = row[columns[x].first];
            const float cover = before + (row[columns[x].first + 1] - before) * columns[x].towards_second;
            const float light = row_light + light_at(s.light_right, x, width_pixels);
            draw_pixel(s, cover, light, random.bits(), pixel);
        }
    }
    return failure::none;
}

}  // namespace accel::examples::digits
