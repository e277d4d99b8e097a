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
#include <random>
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

template <class Content>
failure failure_of(std::span<const std::byte> file) {
    const loaded<Content> result = Content::load(file);
    EXPECT_EQ(result.value.has_value(), result.error == failure::none);
    return result.error;
}

TEST(digits_accuracy, preprocessed_tensors_are_recognised) {
    EXPECT_EQ(test_images().size(), 500u);
    EXPECT_GE(accuracy([](std::size_t i) { return tensor_of(test_images()[i]); }), min_accuracy);
}

TEST(digits_accuracy, raw_frames_are_recognised_whatever_their_seed) {
    const auto seed_of = [](std::size_t i) { return i % 2 == 0 ? i : 1'000'003 * (i + 1); };
    EXPECT_GE(accuracy([&](std::size_t i) { return preprocessed(frame_of(i, seed_of(i))); }), min_accuracy);
}

TEST(digits_scores, scores_equal_those_of_the_training_script) {
    const auto bytes = embedded_reference_scores();
    std::istringstream lines(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    int compared = 0;
    std::size_t index = 0;
    for (char comma = 0; lines >> index; ++compared) {
        const score_array scores = scores_of(tensor_of(test_images()[index]));
        float total = 0;
        for (const float score : scores) {
            float expected = -1;
            ASSERT_TRUE(lines >> comma >> expected);
            EXPECT_NEAR(score, expected, 1e-5) << "image " << index;
            EXPECT_GE(score, 0.0f);
            total += score;
        }
        EXPECT_NEAR(total, 1.0f, 1e-5) << "they are probabilities";
    }
    EXPECT_EQ(compared, 16);
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

TEST(digits_tensors, tensors_of_another_size_or_with_values_out_of_range_are_refused) {
    const std::vector<float> values(tensor_values + 1);
    for (const std::size_t size : {std::size_t{0}, tensor_values - 1, tensor_values + 1}) {
        score_array scores{};
        EXPECT_EQ(trained_network().classify(std::span(values).first(size), scores), failure::tensor_size_wrong);
    }
    constexpr float infinity = std::numeric_limits<float>::infinity();
    for (const float bad : {-0.1f, 1.1f, infinity, -infinity, std::nanf("")}) {
        for (const std::size_t at : {std::size_t{0}, tensor_values - 1}) {
            tensor_array tensor{};
            tensor[at] = bad;
            score_array scores{};
            EXPECT_EQ(trained_network().classify(tensor, scores), failure::tensor_value_out_of_range) << bad;
            EXPECT_EQ(scores, score_array{});
        }
    }
}

TEST(digits_frames, frames_of_another_size_or_without_a_digit_are_refused) {
    std::vector<std::byte> bytes(frame_bytes + 1);
    tensor_array tensor{};
    for (const std::size_t size : {std::size_t{0}, frame_bytes - 1, frame_bytes + 1}) {
        EXPECT_EQ(preprocess(std::span(bytes).first(size), tensor), failure::frame_size_wrong);
        EXPECT_EQ(draw_frame(test_images()[0], 0, std::span(bytes).first(size)), failure::frame_size_wrong);
    }
    EXPECT_EQ(preprocess(std::vector<std::byte>(frame_bytes), tensor), failure::frame_blank);
    EXPECT_EQ(preprocess(std::vector<std::byte>(frame_bytes, std::byte{200}), tensor), failure::frame_blank);
}

/// `scores_of` checks that every value of the tensor is in range.
TEST(digits_frames, marks_at_every_edge_and_random_bytes_give_a_tensor_in_range_or_a_refusal) {
    for (const std::size_t top : {std::size_t{0}, frame_height / 2, frame_height - 4}) {
        for (const std::size_t left : {std::size_t{0}, frame_width / 2, frame_width - 4}) {
            std::vector<std::byte> frame(frame_bytes);
            for (std::size_t row = top; row < top + 4; ++row)
                std::memset(&frame[row * frame_row_bytes + left * frame_channels], 255, 4 * frame_channels);
            scores_of(preprocessed(frame));
        }
    }
    std::minstd_rand random(1);
    for (int round = 0; round < 5; ++round) {
        std::vector<std::byte> frame(frame_bytes);
        for (std::byte& byte : frame) byte = static_cast<std::byte>(random() >> 8);
        tensor_array tensor{};
        if (preprocess(frame, tensor) == failure::none) scores_of(tensor);
    }
}

/// Truncated, and with one bit flipped: at each byte of the header, and at many bytes after it.
template <class Content>
void expect_damage_is_noticed(std::span<const std::byte> file) {
    file_bytes flipped = copy_of(file);
    for (std::size_t at = 0; at < file.size(); at += at < 200 ? 1 : 997) {
        EXPECT_NE(failure_of<Content>(file.first(at)), failure::none) << at;
        flipped[at] ^= std::byte{0x10};
        EXPECT_NE(failure_of<Content>(flipped), failure::none) << at;
        flipped[at] ^= std::byte{0x10};
    }
    EXPECT_NE(failure_of<Content>(file.first(file.size() - 1)), failure::none);
    EXPECT_EQ(failure_of<Content>(flipped), failure::none);
}

TEST(digits_files, truncated_or_corrupt_weights_and_images_are_refused) {
    expect_damage_is_noticed<network>(embedded_weights());
    expect_damage_is_noticed<dataset>(embedded_test_images());
}

/// Under a valid checksum.
TEST(digits_files, a_wrong_field_or_length_is_named) {
    const auto weights = embedded_weights();
    const auto of_weights = [&](std::size_t offset, std::uint32_t value) {
        return failure_of<network>(with_u32(weights, offset, value));
    };
    EXPECT_EQ(of_weights(0, 0), failure::magic_unknown);
    EXPECT_EQ(of_weights(8, 2), failure::version_unknown);
    for (std::size_t offset = 12; offset < 16 + 8 * 16; offset += 4)
        EXPECT_EQ(of_weights(offset, 0x7FFFFFFF), failure::shape_unexpected) << offset;
    EXPECT_EQ(of_weights(144, 0x7FC00000), failure::weight_not_finite);
    EXPECT_EQ(of_weights(weights.size() - 8, 0xFF800000), failure::weight_not_finite);

    const auto images = embedded_test_images();
    const auto of_images = [&](std::size_t offset, std::uint32_t value) {
        return failure_of<dataset>(with_u32(images, offset, value));
    };
    EXPECT_EQ(of_images(0, 0), failure::magic_unknown);
    EXPECT_EQ(of_images(8, 9), failure::version_unknown);
    EXPECT_EQ(of_images(12, 0), failure::shape_unexpected);
    EXPECT_EQ(of_images(12, 0xFFFFFFFF), failure::shape_unexpected);
    EXPECT_EQ(of_images(12, 499), failure::file_too_long);
    EXPECT_EQ(of_images(12, 501), failure::file_truncated);
    for (const std::size_t offset : {16u, 20u, 24u})
        EXPECT_EQ(of_images(offset, 9), failure::shape_unexpected) << offset;
    EXPECT_EQ(of_images(28, 17), failure::pixel_out_of_range);
    file_bytes mislabelled = copy_of(images);
    mislabelled[28 + tensor_values] = std::byte{10};
    seal(mislabelled);
    EXPECT_EQ(failure_of<dataset>(mislabelled), failure::label_out_of_range);

    const auto resized = [](std::span<const std::byte> file, std::size_t size) {
        file_bytes changed = copy_of(file);
        changed.resize(size);
        seal(changed);
        return changed;
    };
    EXPECT_EQ(failure_of<network>(resized(weights, weights.size() + 4)), failure::file_too_long);
    EXPECT_EQ(failure_of<network>(resized(weights, weights.size() - 4)), failure::file_truncated);
    EXPECT_EQ(failure_of<dataset>(resized(images, 24)), failure::file_truncated);
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
