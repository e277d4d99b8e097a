// SPDX-License-Identifier: Apache-2.0
/// The preprocessing as one kernel: all blocks make the grid of grey cells; the last of them to be done with
/// it does the rest, on one multiprocessor, as every further step needs the whole grid.
#include "digits/gpu_scratch.cuh"
#include "digits/gpu_words.cuh"

#include <cuda_runtime.h>

namespace accel::examples::digits {
namespace {

constexpr int rows_a_block = 4;
constexpr int threads = rows_a_block * grid_columns;
constexpr int blocks = grid_rows / rows_a_block;
constexpr int rows_a_thread = grid_rows / rows_a_block;
constexpr unsigned whole_warp = 0xFFFFFFFF;
static_assert(grid_rows % rows_a_block == 0 && grid_columns % 32 == 0 && threads <= 1024);
static_assert(threads >= grid_rows + 4 * 32 && threads >= grid_columns);

/// What the threads of the last block share. Amounts of ink are not negative: as bits they compare as
/// numbers.
struct shared_state {
    float corners[4];
    page_row page[grid_rows];
    float along_columns[grid_columns];
    unsigned max_in_row[grid_rows];
    unsigned max_in_column[grid_columns];
    unsigned peak;
    int first_row, end_row, first_column, end_column;
    float row_sums[grid_rows][image_side];  ///< of every eighth of the columns
    unsigned max_in_tensor;
};

__device__ unsigned warp_maximum(unsigned value) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    return __reduce_max_sync(whole_warp, value);
#else
    for (int distance = 16; distance > 0; distance /= 2)
        value = max(value, __shfl_xor_sync(whole_warp, value, distance));
    return value;
#endif
}

__device__ constexpr unsigned packed(unsigned first, unsigned second, unsigned third, unsigned fourth) {
    return first | second << 8 | third << 16 | fourth << 24;
}

/// The grey of the cell whose first byte this is: its twelve words, byte by byte times the colours' weights.
template <bool Aligned>
__device__ float read_cell(const unsigned char* bytes) {
    constexpr unsigned r = red_weight;
    constexpr unsigned g = green_weight;
    constexpr unsigned b = blue_weight;
    unsigned words[cell_pixels][3];
#pragma unroll
    for (int row = 0; row < cell_pixels; ++row) {
#pragma unroll
        for (int i = 0; i < 3; ++i)
            words[row][i] = load_word<Aligned>(bytes + row * static_cast<int>(frame_row_bytes) + 4 * i);
    }
    unsigned sum = 0;
#pragma unroll
    for (int row = 0; row < cell_pixels; ++row) {
        sum = __dp4a(words[row][0], packed(r, g, b, r), sum);
        sum = __dp4a(words[row][1], packed(g, b, r, g), sum);
        sum = __dp4a(words[row][2], packed(b, r, g, b), sum);
    }
    return cell_grey(sum);
}

/// True in the last block to come here; it sees what all blocks wrote before.
__device__ bool is_last_block(gpu_scratch& scratch) {
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(&scratch.blocks_done, 1u) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    return last;
}

/// Step by step what measure_ink() does on the host. Every thread has one column of every fourth row.
__device__ void measure_ink(const float* grey, shared_state& s) {
    const int t = static_cast<int>(threadIdx.x);
    const int column = t % grid_columns;
    const int first_row = t / grid_columns;
    float own[rows_a_thread];
#pragma unroll
    for (int i = 0; i < rows_a_thread; ++i) own[i] = grey[(first_row + i * rows_a_block) * grid_columns + column];

    if (t < grid_rows) s.max_in_row[t] = 0;
    if (t < grid_columns) {
        s.max_in_column[t] = 0;
        s.along_columns[t] = along(t, grid_columns);
    }
    // Four warps of their own sum up a corner each.
    const int corner = (t - grid_rows) / 32;
    if (t >= grid_rows && (t - grid_rows) % 32 == 0 && corner < 4) s.corners[corner] = nth_corner_mean(grey, corner);
    __syncthreads();
    if (t < grid_rows) s.page[t] = nth_page_row(s.corners, t);
    __syncthreads();

    unsigned max_in_column = 0;
#pragma unroll
    for (int i = 0; i < rows_a_thread; ++i) {
        const int row = first_row + i * rows_a_block;
        const unsigned ink = __float_as_uint(ink_of(own[i], s.page[row].at(s.along_columns[column])));
        max_in_column = max(max_in_column, ink);
        const unsigned most = warp_maximum(ink);
        if (t % 32 == 0) atomicMax(&s.max_in_row[row], most);
    }
    atomicMax(&s.max_in_column[column], max_in_column);
    __syncthreads();
}

__device__ float find_peak(shared_state& s) {
    const int t = static_cast<int>(threadIdx.x);
    if (t < 32) {
        unsigned most = 0;
        for (int row = t; row < grid_rows; row += 32) most = max(most, s.max_in_row[row]);
        most = warp_maximum(most);
        if (t == 0) {
            s.peak = most;
            s.first_row = grid_rows;
            s.first_column = grid_columns;
            s.end_row = s.end_column = 0;
            s.max_in_tensor = 0;
        }
    }
    __syncthreads();
    return __uint_as_float(s.peak);
}

__device__ void find_box(shared_state& s, float threshold) {
    const int t = static_cast<int>(threadIdx.x);
    if (t < grid_rows && __uint_as_float(s.max_in_row[t]) >= threshold) {
        atomicMin(&s.first_row, t);
        atomicMax(&s.end_row, t + 1);
    }
    if (t < grid_columns && __uint_as_float(s.max_in_column[t]) >= threshold) {
        atomicMin(&s.first_column, t);
        atomicMax(&s.end_column, t + 1);
    }
    __syncthreads();
}

/// The host's resize(), where the sum over a row of cells is one thread's and is made once.
__device__ void resize(const float* grey, shared_state& s, float* tensor) {
    const int t = static_cast<int>(threadIdx.x);
    const auto side = static_cast<float>(max(s.end_row - s.first_row, s.end_column - s.first_column));
    const interval rows = widened(s.first_row, s.end_row, side);
    const interval columns = widened(s.first_column, s.end_column, side);
    const int first = nth_eighth(rows, 0, grid_rows).first_cell;
    const int end = nth_eighth(rows, image_side - 1, grid_rows).end_cell;
    for (int task = t; task < (end - first) * image_side; task += threads) {
        const int row = first + task / image_side;
        const page_row page = s.page[row];
        const float* cells = grey + row * grid_columns;
        s.row_sums[row][task % image_side] =
            covered_sum(nth_eighth(columns, task % image_side, grid_columns),
                        [&](int column) { return ink_of(cells[column], page.at(s.along_columns[column])); });
    }
    __syncthreads();
    float value = 0;
    if (t < static_cast<int>(tensor_values)) {
        value = covered_sum(nth_eighth(rows, t / image_side, grid_rows),
                            [&](int row) { return s.row_sums[row][t % image_side]; });
        atomicMax(&s.max_in_tensor, __float_as_uint(value));
    }
    __syncthreads();
    if (t < static_cast<int>(tensor_values)) tensor[t] = value / __uint_as_float(s.max_in_tensor);
}

__global__ void __launch_bounds__(threads)
    preprocess_kernel(const unsigned char* __restrict__ frame, gpu_scratch* scratch) {
    __shared__ shared_state s;
    const int row = static_cast<int>(blockIdx.x) * rows_a_block + static_cast<int>(threadIdx.x) / grid_columns;
    const int column = static_cast<int>(threadIdx.x) % grid_columns;
    const unsigned char* cell = frame + row * cell_pixels * static_cast<int>(frame_row_bytes) +
                                column * cell_pixels * static_cast<int>(frame_channels);
    scratch->grey[row * grid_columns + column] = holds_words(frame) ? read_cell<true>(cell) : read_cell<false>(cell);
    if (!is_last_block(*scratch)) return;

    measure_ink(scratch->grey, s);
    const float peak = find_peak(s);
    const bool blank = peak < faintest_ink;
    if (!blank) {
        find_box(s, peak * ink_threshold);
        resize(scratch->grey, s, scratch->tensor);
    }
    if (threadIdx.x == 0) {
        scratch->refused = blank ? failure::frame_blank : failure::none;
        scratch->blocks_done = 0;
    }
}

}  // namespace

void launch_preprocess(CUstream_st* stream, const std::byte* frame, gpu_scratch* scratch) noexcept {
    preprocess_kernel<<<blocks, threads, 0, stream>>>(reinterpret_cast<const unsigned char*>(frame), scratch);
}

int load_preprocess() noexcept {
    cudaFuncAttributes loaded{};
    return cudaFuncGetAttributes(&loaded, preprocess_kernel);
}

}  // namespace accel::examples::digits
