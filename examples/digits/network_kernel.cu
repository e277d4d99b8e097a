// SPDX-License-Identifier: Apache-2.0
/// The network as one kernel of one block, all in shared memory. The dense layers' weights arrive while the
/// convolutions are at work.
#include "digits/digit_answer.hpp"
#include "digits/gpu_scratch.cuh"
#include "digits/gpu_words.cuh"
#include "digits/network_math.hpp"

#include <cstddef>

#include <cuda_pipeline.h>
#include <cuda_runtime.h>

namespace accel::examples::digits {
namespace {

using shape = network_shape;
constexpr int threads = 256;
constexpr int lanes = 4;  ///< channels of a pixel that a thread computes
constexpr int pixels = image_side * image_side;
constexpr int answer_words = static_cast<int>(sizeof(digit_answer) / sizeof(std::uint32_t));
/// The convolutions' weights come first.
constexpr std::size_t early_bytes = offsetof(network_parameters, hidden_weights);

static_assert(early_bytes % 16 == 0 && offsetof(network_parameters, conv2_weights) % 16 == 0);
static_assert(pixels * shape::conv2_channels / lanes == threads && shape::pooled_values == threads);
static_assert(shape::hidden_values == 32 && answer_words <= 32, "they are one warp's");

struct shared_state {
    gpu_parameters weights;
    alignas(16) float tensor[tensor_values];
    alignas(16) float conv1[pixels * shape::conv1_channels];
    alignas(16) float conv2[pixels * shape::conv2_channels];
    alignas(16) float pooled[shape::pooled_values];
    float hidden[shape::hidden_values];
    float logits[shape::classes];
    float scores[shape::classes];
};
static_assert(sizeof(shared_state) <= 48 * 1024);

__device__ void fetch(gpu_parameters& to, const gpu_parameters& from, std::size_t begin, std::size_t end) {
    for (std::size_t at = begin + threadIdx.x * std::size_t{16}; at < end; at += std::size_t{threads} * 16)
        __pipeline_memcpy_async(reinterpret_cast<char*>(&to) + at, reinterpret_cast<const char*>(&from) + at, 16);
    __pipeline_commit();
}

/// A thread for every `lanes` channels of every pixel.
template <int Inputs, int Outputs>
__device__ void convolve(const float* image, const float* weights, const float* bias, float* out) {
    constexpr int groups = Outputs / lanes;
    const int t = static_cast<int>(threadIdx.x);
    if (t >= pixels * groups) return;
    const int pixel = t / groups;
    const int first = t % groups * lanes;
    // All four begin at a multiple of 16 bytes: whole vectors are read.
    convolve_lanes<image_side, Inputs, Outputs, lanes>(
        image, static_cast<const float*>(__builtin_assume_aligned(weights + first, 16)),
        static_cast<const float*>(__builtin_assume_aligned(bias + first, 16)), pixel / image_side, pixel % image_side,
        static_cast<float*>(__builtin_assume_aligned(out + pixel * Outputs + first, 16)));
}

__device__ void pool(const float* image, float* out) {
    constexpr int channels = shape::conv2_channels;
    const int t = static_cast<int>(threadIdx.x);
    const int pixel = t / channels;
    out[t] =
        pooled_value<image_side, channels>(image, pixel / shape::pooled_side, pixel % shape::pooled_side, t % channels);
}

/// Word `t` of the whole answer, whose first is the label.
__device__ void put_word(unsigned char* answer, answer_form form, int t, std::uint32_t word) {
    const int first = form == answer_form::scores ? 1 : 0;
    if (t >= first && t < answer_words) store_word(answer + 4 * (t - first), word);
}

__device__ void refuse(failure why, unsigned char* answer, answer_form form) {
    const int t = static_cast<int>(threadIdx.x);
    put_word(answer, form, t, t == 0 ? label_of(why) : 0);
}

/// The dense layers, the probabilities and the answer: one warp's work.
__device__ void finish(shared_state& s, unsigned char* answer, answer_form form) {
    const int t = static_cast<int>(threadIdx.x);
    const network_parameters& p = s.weights.network;
    dense_lanes<shape::pooled_values, shape::hidden_values, 1>(s.pooled, p.hidden_weights, p.hidden_bias, t, s.hidden);
    s.hidden[t] = rectified(s.hidden[t]);
    __syncwarp();
    if (t < shape::classes)
        dense_lanes<shape::hidden_values, shape::classes, 1>(s.hidden, p.output_weights, p.output_bias, t, s.logits);
    __syncwarp();
    if (t < shape::classes) s.scores[t] = unscaled_probability<shape::classes>(s.logits, t);
    __syncwarp();
    const float total = sum_of<shape::classes>(s.scores);
    __syncwarp();
    if (t < shape::classes) s.scores[t] /= total;
    __syncwarp();
    if (t >= answer_words) return;
    put_word(answer, form, t,
             t == 0 ? static_cast<std::uint32_t>(index_of_largest<shape::classes>(s.scores))
                    : __float_as_uint(s.scores[t - 1]));
}

__global__ void __launch_bounds__(threads)
    network_kernel(const gpu_parameters* __restrict__ parameters, const unsigned char* tensor, const failure* refused,
                   unsigned char* answer, answer_form form) {
    __shared__ shared_state s;
    const int t = static_cast<int>(threadIdx.x);
    const network_parameters& p = s.weights.network;
    fetch(s.weights, *parameters, 0, early_bytes);
    fetch(s.weights, *parameters, early_bytes, sizeof(gpu_parameters));
    bool good = true;
    if (t < static_cast<int>(tensor_values)) {
        s.tensor[t] = __uint_as_float(load_word(tensor + 4 * t));
        good = is_tensor_value(s.tensor[t]);
    }
    failure why = refused == nullptr ? failure::none : *refused;
    __pipeline_wait_prior(1);
    if (__syncthreads_and(good) == 0 && why == failure::none) why = failure::tensor_value_out_of_range;
    if (why != failure::none) {
        __pipeline_wait_prior(0);
        refuse(why, answer, form);
        return;
    }
    convolve<1, shape::conv1_channels>(s.tensor, p.conv1_weights, p.conv1_bias, s.conv1);
    __syncthreads();
    convolve<shape::conv1_channels, shape::conv2_channels>(s.conv1, p.conv2_weights, p.conv2_bias, s.conv2);
    __syncthreads();
    pool(s.conv2, s.pooled);
    __pipeline_wait_prior(0);
    __syncthreads();
    if (t < 32) finish(s, answer, form);
}

}  // namespace

void launch_network(CUstream_st* stream, const gpu_parameters* parameters, const std::byte* tensor,
                    const failure* refused, std::byte* answer, answer_form form) noexcept {
    network_kernel<<<1, threads, 0, stream>>>(parameters, reinterpret_cast<const unsigned char*>(tensor), refused,
                                              reinterpret_cast<unsigned char*>(answer), form);
}

int load_network() noexcept {
    cudaFuncAttributes loaded{};
    return cudaFuncGetAttributes(&loaded, network_kernel);
}

}  // namespace accel::examples::digits
