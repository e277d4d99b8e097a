// SPDX-License-Identifier: Apache-2.0
#include "digits/checked_file.hpp"
#include "digits/dataset.hpp"
#include "digits/embedded.hpp"
#include "digits/frame.hpp"
#include "digits/network.hpp"
#include "digits/preprocess.hpp"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace accel::examples::digits {
namespace {

using tensor_array = std::array<float, tensor_values>;
using score_array = std::array<float, class_count>;
using file_bytes = std::vector<std::byte>;

constexpr double min_accuracy = 0.97;

const network& trained_network() {
    static const loaded<network> trained = network::load(embedded_weights());
    return trained.value.value();
}

const dataset& test_images() {
    static const loaded<dataset> images = dataset::load(embedded_test_images());
    return images.value.value();
}

score_array scores_of(const tensor_array& tensor) {
    score_array scores{};
    EXPECT_EQ(trained_network().classify(tensor, scores), failure::none);
    return scores;
}

tensor_array tensor_of(const digit_image& image) {
    tensor_array tensor{};
    to_tensor(image, tensor);
    return tensor;
}

std::vector<std::byte> frame_of(std::size_t index, std::uint64_t seed) {
    std::vector<std::byte> frame(frame_bytes);
    EXPECT_EQ(draw_frame(test_images()[index], seed, frame), failure::none);
    return frame;
}

tensor_array preprocessed(std::span<const std::byte> frame) {
    tensor_array tensor{};
    EXPECT_EQ(preprocess(frame, tensor), failure::none);
    return tensor;
}

template <class MakeTensor>
double accuracy(MakeTensor make_tensor) {
    std::size_t right = 0;
    for (std::size_t i = 0; i < test_images().size(); ++i)
        if (best_class(scores_of(make_tensor(i))) == test_images()[i].label) ++right;
    std::printf("%zu of %zu right\n", right, test_images().size());
    return static_cast<double>(right) / static_cast<double>(test_images().size());
}

file_bytes copy_of(std::span<const std::byte> file) {
    return {file.begin(), file.end()};
}

void put_u32(file_bytes& file, std::size_t offset, std::uint32_t value) {
    for (std::size_t i = 0; i < 4; ++i) file[offset + i] = static_cast<std::byte>(value >> (8 * i));
}

/// Makes the checksum right again, so that the field behind it is what gets refused.
void seal(file_bytes& file) {
    const std::size_t body = file.size() - checksum_bytes;
    put_u32(file, body, crc32(std::span(file).first(body)));
}

file_bytes with_u32(std::span<const std::byte> file, std::size_t offset, std::uint32_t value) {
    file_bytes changed = copy_of(file);
    put_u32(changed, offset, value);
    seal(changed);
    return changed;
}

failure weights_failure(std::span<const std::byte> file) {
    const loaded<network> result = network::load(file);
    EXPECT_EQ(result.value.has_value(), result.error == failure::none);
    return result.error;
}

failure images_failure(std::span<const std::byte> file) {
    const loaded<dataset> result = dataset::load(file);
    EXPECT_EQ(result.value.has_value(), result.error == failure::none);
    return result.error;
}

TEST(digits_accuracy, preprocessed_tensors_are_recognised) {
    EXPECT_EQ(test_images().size(), 500u);
    EXPECT_GE(accuracy([](std::size_t i) { return tensor_of(test_images()[i]); }), min_accuracy);
}

TEST(digits_accuracy, raw_frames_are_recognised) {
    EXPECT_GE(accuracy([](std::size_t i) { return preprocessed(frame_of(i, i)); }), min_accuracy);
}

TEST(digits_accuracy, raw_frames_drawn_with_another_seed_are_recognised) {
    EXPECT_GE(accuracy([](std::size_t i) { return preprocessed(frame_of(i, 1'000'003 * (i + 1))); }), min_accuracy);
}

TEST(digits_scores, scores_equal_those_of_the_training_script) {
    const auto bytes = embedded_reference_scores();
    std::istringstream lines(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    int compared = 0;
    std::size_t index = 0;
    for (char comma = 0; lines >> index; ++compared) {
        const score_array scores = scores_of(tensor_of(test_images()[index]));
        for (const float score : scores) {
            float expected = -1;
            ASSERT_TRUE(lines >> comma >> expected);
            EXPECT_NEAR(score, expected, 1e-5) << "image " << index;
        }
    }
    EXPECT_EQ(compared, 16);
}

TEST(digits_scores, scores_are_probabilities) {
    const score_array scores = scores_of(tensor_array{});
    float total = 0;
    for (const float score : scores) {
        EXPECT_GE(score, 0.0f);
        total += score;
    }
    EXPECT_NEAR(total, 1.0f, 1e-5);
}

TEST(digits_scores, the_best_class_is_the_first_of_the_largest) {
    score_array scores{};
    EXPECT_EQ(best_class(scores), 0);
    scores[4] = scores[7] = 0.5f;
    EXPECT_EQ(best_class(scores), 4);
}

TEST(digits_determinism, equal_seeds_give_equal_frames_tensors_and_scores) {
    const auto frame = frame_of(3, 42);
    EXPECT_EQ(frame, frame_of(3, 42));
    EXPECT_NE(frame, frame_of(3, 43));
    EXPECT_EQ(preprocessed(frame), preprocessed(frame));
    EXPECT_EQ(scores_of(preprocessed(frame)), scores_of(preprocessed(frame)));
}

TEST(digits_determinism, threads_share_one_network) {
    const auto all_scores = [](std::vector<score_array>& into) {
        for (std::size_t i = 0; i < 100; ++i) into.push_back(scores_of(tensor_of(test_images()[i])));
    };
    std::vector<score_array> here;
    std::vector<score_array> there;
    std::thread other(all_scores, std::ref(there));
    all_scores(here);
    other.join();
    EXPECT_EQ(here, there);
}

TEST(digits_tensors, tensors_of_another_size_are_refused) {
    const std::vector<float> values(tensor_values + 1);
    score_array scores{};
    for (const std::size_t size : {std::size_t{0}, tensor_values - 1, tensor_values + 1}) {
        EXPECT_EQ(trained_network().classify(std::span(values).first(size), scores), failure::tensor_size_wrong);
    }
}

TEST(digits_tensors, tensors_with_values_out_of_range_are_refused) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    for (const float bad : {-0.1f, 1.1f, infinity, -infinity, std::nanf("")}) {
        tensor_array tensor{};
        tensor.back() = bad;
        score_array scores{};
        EXPECT_EQ(trained_network().classify(tensor, scores), failure::tensor_value_out_of_range);
        EXPECT_EQ(scores, score_array{});
    }
}

TEST(digits_frames, frames_of_another_size_are_refused) {
    std::vector<std::byte> bytes(frame_bytes + 1);
    tensor_array tensor{};
    for (const std::size_t size : {std::size_t{0}, frame_bytes - 1, frame_bytes + 1}) {
        EXPECT_EQ(preprocess(std::span(bytes).first(size), tensor), failure::frame_size_wrong);
        EXPECT_EQ(draw_frame(test_images()[0], 0, std::span(bytes).first(size)), failure::frame_size_wrong);
    }
}

TEST(digits_frames, rejects_frames_without_a_digit) {
    tensor_array tensor{};
    EXPECT_EQ(preprocess(std::vector<std::byte>(frame_bytes), tensor), failure::frame_blank);
    EXPECT_EQ(preprocess(std::vector<std::byte>(frame_bytes, std::byte{200}), tensor), failure::frame_blank);
}

TEST(digits_frames, a_frame_with_a_single_mark_gives_a_tensor_in_range) {
    const std::size_t last_pixel = frame_width * frame_height - 1;
    const std::size_t last_column = frame_width - 1;
    for (const std::size_t pixel : {std::size_t{0}, last_column, last_pixel - last_column, last_pixel, last_pixel / 2,
                                    frame_width / 2, last_pixel - frame_width / 2}) {
        std::vector<std::byte> frame(frame_bytes, std::byte{0});
        for (std::size_t row = pixel / frame_width & ~3u; row < (pixel / frame_width & ~3u) + 4; ++row) {
            const std::size_t column = pixel % frame_width & ~3u;
            std::memset(&frame[row * frame_row_bytes + column * frame_channels], 255, 4 * frame_channels);
        }
        const tensor_array tensor = preprocessed(frame);
        scores_of(tensor);
    }
}

TEST(digits_frames, a_random_frame_gives_a_tensor_in_range_or_a_refusal) {
    std::vector<std::byte> frame(frame_bytes);
    std::uint32_t state = 1;
    for (std::byte& byte : frame) {
        state = state * 1664525u + 1013904223u;
        byte = static_cast<std::byte>(state >> 24);
    }
    tensor_array tensor{};
    if (preprocess(frame, tensor) == failure::none) scores_of(tensor);
}

TEST(digits_weights, truncated_weights_are_refused) {
    const auto file = embedded_weights();
    for (std::size_t size = 0; size < file.size(); size += size < 200 ? 1 : 997) {
        EXPECT_NE(weights_failure(file.first(size)), failure::none) << size;
    }
    EXPECT_NE(weights_failure(file.first(file.size() - 1)), failure::none);
}

TEST(digits_weights, weights_with_a_flipped_bit_are_refused) {
    file_bytes file = copy_of(embedded_weights());
    for (std::size_t i = 0; i < file.size(); i += i < 200 ? 1 : 997) {
        file[i] ^= std::byte{0x10};
        EXPECT_NE(weights_failure(file), failure::none) << i;
        file[i] ^= std::byte{0x10};
    }
    EXPECT_EQ(weights_failure(file), failure::none);
}

TEST(digits_weights, a_wrong_field_is_named) {
    const auto file = embedded_weights();
    EXPECT_EQ(weights_failure(with_u32(file, 0, 0)), failure::magic_unknown);
    EXPECT_EQ(weights_failure(with_u32(file, 8, 2)), failure::version_unknown);
    for (std::size_t offset = 12; offset < 16 + 8 * 16; offset += 4) {
        EXPECT_EQ(weights_failure(with_u32(file, offset, 0x7FFFFFFF)), failure::shape_unexpected) << offset;
    }
    EXPECT_EQ(weights_failure(with_u32(file, 144, 0x7FC00000)), failure::weight_not_finite);
    EXPECT_EQ(weights_failure(with_u32(file, file.size() - 8, 0xFF800000)), failure::weight_not_finite);
}

TEST(digits_weights, weights_of_another_length_are_refused_despite_a_valid_checksum) {
    file_bytes file = copy_of(embedded_weights());
    file.resize(file.size() + 4);
    seal(file);
    EXPECT_EQ(weights_failure(file), failure::file_too_long);
    file.resize(file.size() - 8);
    seal(file);
    EXPECT_EQ(weights_failure(file), failure::file_truncated);
}

TEST(digits_images, truncated_or_corrupt_images_are_refused) {
    const auto file = embedded_test_images();
    for (std::size_t size = 0; size < file.size(); size += size < 200 ? 1 : 997) {
        EXPECT_NE(images_failure(file.first(size)), failure::none) << size;
    }
    file_bytes flipped = copy_of(file);
    flipped[5000] ^= std::byte{1};
    EXPECT_EQ(images_failure(flipped), failure::checksum_mismatch);
}

TEST(digits_images, a_wrong_field_is_named) {
    const auto file = embedded_test_images();
    EXPECT_EQ(images_failure(with_u32(file, 0, 0)), failure::magic_unknown);
    EXPECT_EQ(images_failure(with_u32(file, 8, 9)), failure::version_unknown);
    EXPECT_EQ(images_failure(with_u32(file, 12, 0)), failure::shape_unexpected);
    EXPECT_EQ(images_failure(with_u32(file, 12, 0xFFFFFFFF)), failure::shape_unexpected);
    EXPECT_EQ(images_failure(with_u32(file, 12, 499)), failure::file_too_long);
    EXPECT_EQ(images_failure(with_u32(file, 12, 501)), failure::file_truncated);
    for (const std::size_t offset : {16u, 20u, 24u}) {
        EXPECT_EQ(images_failure(with_u32(file, offset, 9)), failure::shape_unexpected) << offset;
    }
    EXPECT_EQ(images_failure(with_u32(file, 28, 17)), failure::pixel_out_of_range);
    file_bytes mislabelled = copy_of(file);
    mislabelled[28 + tensor_values] = std::byte{10};
    seal(mislabelled);
    EXPECT_EQ(images_failure(mislabelled), failure::label_out_of_range);
}

TEST(digits_images, a_truncated_header_with_a_valid_checksum_is_refused) {
    file_bytes file = copy_of(embedded_test_images().first(24));
    seal(file);
    EXPECT_EQ(images_failure(file), failure::file_truncated);
}

TEST(digits_failures, each_failure_has_a_sentence) {
    EXPECT_TRUE(describe(failure::none).empty());
    for (int i = 1; i <= static_cast<int>(failure::frame_blank); ++i) {
        const auto sentence = describe(static_cast<failure>(i));
        EXPECT_NE(sentence, "Unknown failure.");
        EXPECT_EQ(sentence.back(), '.');
    }
}

TEST(digits_checksum, the_checksum_equals_that_of_zlib) {
    EXPECT_EQ(crc32(std::as_bytes(std::span("123456789", 9))), 0xCBF43926u);
}

}  // namespace
}  // namespace accel::examples::digits
