// SPDX-License-Identifier: Apache-2.0
/// Preprocessing of raw images on the host against what torchvision makes of them
/// (image_reference.py).
#include "serving/models/image.hpp"

#include "images.hpp"

#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

namespace accel::tests {
namespace {

using namespace examples::serving;

struct image_sample {
    std::size_t place;
    float value;
};

struct image_reference {
    image_size from, to;
    double total;  ///< of all values' amounts
    std::array<image_sample, 9> samples;
};

const std::vector<image_reference> image_references = {
    {{500, 546},
     {224, 224},
     110771.4093,
     {{{0, 0.635541f},
       {1, -1.367511f},
       {30105, 0.150537f},
       {50176, 0.355076f},
       {75264, -0.126337f},
       {100352, -0.261596f},
       {120422, 0.431257f},
       {150526, 0.398180f},
       {150527, 0.856499f}}}},
    {{500, 546},
     {416, 416},
     382174.2567,
     {{{0, -0.240063f},
       {1, -0.519611f},
       {103833, 1.118222f},
       {173056, 1.385963f},
       {259584, 0.799065f},
       {346112, 1.804365f},
       {415334, 1.000579f},
       {519166, 0.012735f},
       {519167, -0.514144f}}}},
    {{500, 546},
     {520, 520},
     596628.6090,
     {{{0, -0.600223f},
       {1, 0.298827f},
       {162240, 0.592161f},
       {270400, 1.762868f},
       {405600, 0.794415f},
       {540800, 2.417778f},
       {648960, 0.265274f},
       {811198, 0.194242f},
       {811199, -0.716839f}}}},
    {{7, 5},
     {3, 4},
     26.5634,
     {{{0, -1.066872f},
       {1, -0.051517f},
       {7, 0.626338f},
       {12, -0.589927f},
       {18, 0.800420f},
       {24, -1.396311f},
       {28, 1.032157f},
       {34, 0.009644f},
       {35, 1.771446f}}}},
    {{31, 17},
     {64, 53},
     7770.1909,
     {{{0, 0.365185f},
       {1, 0.365185f},
       {2035, 0.315341f},
       {3392, 0.397759f},
       {5088, -1.127675f},
       {6784, -1.351285f},
       {8140, 1.207076f},
       {10174, 1.263094f},
       {10175, 1.263094f}}}},
    {{1, 1},
     {2, 3},
     9.6168,
     {{{0, -0.987670f},
       {1, -0.987670f},
       {3, -0.987670f},
       {6, 0.170168f},
       {9, 0.170168f},
       {12, -0.444967f},
       {14, -0.444967f},
       {16, -0.444967f},
       {17, -0.444967f}}}},
    {{480, 640},
     {33, 57},
     4101.3204,
     {{{0, 1.334748f},
       {1, 1.184531f},
       {1128, 0.572735f},
       {1881, -0.804500f},
       {2821, 0.126401f},
       {3762, 1.749798f},
       {4514, 0.853453f},
       {5641, 0.300734f},
       {5642, -0.542492f}}}},
};

std::vector<float> preprocessed(const image_reference& of) {
    std::vector<float> values(std::size_t{3} * of.to.height * of.to.width);
    image_preprocessor(of.from, of.to)
        .run(noise_image(of.from, of.from.height + of.from.width), std::as_writable_bytes(std::span(values)));
    return values;
}

TEST(serving_image, preprocessing_equals_that_of_torchvision) {
    for (const image_reference& each : image_references) {
        SCOPED_TRACE(testing::Message() << each.from.height << "x" << each.from.width << " to " << each.to.height);
        const std::vector<float> values = preprocessed(each);
        double total = 0;
        for (const float value : values) total += std::abs(value);
        EXPECT_NEAR(total / static_cast<double>(values.size()), each.total / static_cast<double>(values.size()), 1e-4);
        for (const auto& [place, value] : each.samples) EXPECT_NEAR(values.at(place), value, 1e-3) << place;
    }
}

TEST(serving_image, keeps_the_pixels_where_sizes_are_equal) {
    const image_size size{9, 13};
    const auto image = noise_image(size, 1);
    std::vector<float> values(std::size_t{3} * size.height * size.width);
    image_preprocessor(size, size).run(image, std::as_writable_bytes(std::span(values)));
    for (std::size_t pixel = 0; pixel < std::size_t{size.height} * size.width; ++pixel)
        for (std::size_t channel = 0; channel < 3; ++channel)
            EXPECT_EQ(values[channel * size.height * size.width + pixel],
                      normalised(static_cast<float>(image[pixel * 3 + channel]), static_cast<int>(channel)));
}

}  // namespace
}  // namespace accel::tests
