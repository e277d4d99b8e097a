// SPDX-License-Identifier: Apache-2.0
/// The digits service's kernels against the same arithmetic on the host: equal to the last bit.
#include "digits/dataset.hpp"
#include "digits/embedded.hpp"
#include "digits/frame.hpp"
#include "digits/preprocess.hpp"
#include "digits_rig.hpp"

#include <bit>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <thread>
#include <vector>

namespace accel::tests {
namespace {

using namespace examples::digits;

const dataset& test_images() {
    static const loaded<dataset> images = dataset::load(embedded_test_images());
    return images.value.value();
}

std::vector<std::byte> frame_of(std::size_t index, std::uint64_t seed) {
    std::vector<std::byte> frame(frame_bytes);
    EXPECT_EQ(draw_frame(test_images()[index], seed, frame), failure::none);
    return frame;
}

tensor_array tensor_of(std::size_t index) {
    tensor_array tensor{};
    to_tensor(test_images()[index], tensor);
    return tensor;
}

/// What the host says of it.
digit_answer expected_of(const tensor_array& tensor) {
    digit_answer answer;
    const failure why = host_network().classify(tensor, answer.scores);
    answer.label = why == failure::none ? static_cast<std::uint32_t>(best_class(answer.scores)) : label_of(why);
    return answer;
}

void expect_equal_bits(std::span<const float> seen, std::span<const float> expected) {
    ASSERT_EQ(seen.size(), expected.size());
    for (std::size_t i = 0; i < seen.size(); ++i) {
        EXPECT_EQ(std::bit_cast<std::uint32_t>(seen[i]), std::bit_cast<std::uint32_t>(expected[i]))
            << i << ": " << seen[i] << ", not " << expected[i];
    }
}

void expect_equal(const digit_answer& seen, const digit_answer& expected) {
    EXPECT_EQ(seen.label, expected.label);
    expect_equal_bits(seen.scores, expected.scores);
}

class digits_gpu : public testing::Test {
  protected:
    void SetUp() override {
        std::string why;
        rig = digits_rig::make(why);
        if (rig == nullptr) GTEST_SKIP() << why;
    }
    /// A frame on the GPU and on the host; the host's tensor.
    void compare(std::span<const std::byte> frame, std::size_t misplaced = 0) {
        tensor_array tensor{};
        const failure why = preprocess(frame, tensor);
        const gpu_outcome seen = rig->frame(frame, misplaced);
        if (why != failure::none) {
            expect_equal(seen.answer, {.label = label_of(why), .scores = {}});
            return;
        }
        expect_equal_bits(seen.tensor, tensor);
        expect_equal(seen.answer, expected_of(tensor));
    }

    std::unique_ptr<digits_rig> rig;
};

TEST_F(digits_gpu, every_tensor_gets_the_answer_of_the_host) {
    for (std::size_t i = 0; i < test_images().size() && !HasFailure(); ++i) {
        SCOPED_TRACE(i);
        expect_equal(rig->tensor(tensor_of(i)), expected_of(tensor_of(i)));
    }
}

TEST_F(digits_gpu, every_frame_gets_the_answer_of_the_host) {
    std::size_t right = 0;
    for (std::size_t i = 0; i < test_images().size() && !HasFailure(); ++i) {
        SCOPED_TRACE(i);
        const auto frame = frame_of(i, i);
        compare(frame);
        if (rig->frame(frame).answer.label == static_cast<std::uint32_t>(test_images()[i].label)) ++right;
    }
    EXPECT_GE(right * 100, test_images().size() * 97);
}

TEST_F(digits_gpu, takes_requests_and_answers_of_any_alignment) {
    for (const std::size_t misplaced : {1u, 2u, 3u, 4u, 8u, 13u}) {
        SCOPED_TRACE(misplaced);
        compare(frame_of(misplaced, misplaced), misplaced);
        expect_equal(rig->tensor(tensor_of(misplaced), misplaced), expected_of(tensor_of(misplaced)));
    }
}

TEST_F(digits_gpu, refuses_blank_frames_and_goes_on) {
    compare(std::vector<std::byte>(frame_bytes));
    compare(std::vector<std::byte>(frame_bytes, std::byte{200}));
    compare(frame_of(1, 1));
}

TEST_F(digits_gpu, refuses_values_out_of_range_and_goes_on) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    for (const float bad : {-0.1f, 1.1f, infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
        tensor_array tensor = tensor_of(0);
        tensor.back() = bad;
        EXPECT_EQ(rig->tensor(tensor).label, label_of(failure::tensor_value_out_of_range));
        expect_equal(rig->tensor(tensor), expected_of(tensor));
    }
    expect_equal(rig->tensor(tensor_of(0)), expected_of(tensor_of(0)));
}

TEST_F(digits_gpu, survives_marks_at_every_edge_and_random_bytes) {
    for (const std::size_t row : {std::size_t{0}, frame_height / 2, frame_height - 4}) {
        for (const std::size_t column : {std::size_t{0}, frame_width / 2, frame_width - 4}) {
            std::vector<std::byte> frame(frame_bytes);
            for (std::size_t y = row; y < row + 4; ++y)
                for (std::size_t x = 0; x < 4 * frame_channels; ++x)
                    frame[y * frame_row_bytes + column * frame_channels + x] = std::byte{255};
            compare(frame);
        }
    }
    std::uint32_t state = 1;
    for (int i = 0; i < 20; ++i) {
        std::vector<std::byte> frame(frame_bytes);
        for (std::byte& byte : frame) {
            state = state * 1664525u + 1013904223u;
            byte = static_cast<std::byte>(state >> 24);
        }
        compare(frame);
    }
}

TEST_F(digits_gpu, scratch_memory_is_limited_to_the_announced_streams) {
    // Only their addresses matter here.
    std::array<int, 2> others{};
    auto* const second = reinterpret_cast<CUstream_st*>(&others[0]);
    auto* const third = reinterpret_cast<CUstream_st*>(&others[1]);
    gpu_scratch* const first = rig->network().scratch_for(rig->stream());
    ASSERT_NE(first, nullptr);
    EXPECT_EQ(rig->network().scratch_for(rig->stream()), first);
    EXPECT_NE(rig->network().scratch_for(second), nullptr);
    EXPECT_NE(rig->network().scratch_for(second), first);
    EXPECT_EQ(rig->network().scratch_for(third), nullptr);
}

TEST_F(digits_gpu, preprocessing_and_inference_times_are_measured) {
    const auto [preprocessing, inference] = rig->measure(frame_of(0, 0), 200);
    std::printf("preprocessing %.1f us, inference %.1f us (medians of 200, by events)\n",
                static_cast<double>(preprocessing), static_cast<double>(inference));
    EXPECT_GT(preprocessing, 0);
    EXPECT_GT(inference, 0);
}

}  // namespace
}  // namespace accel::tests
