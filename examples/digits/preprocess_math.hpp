// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "digits/frame.hpp"
#include "digits/portable.hpp"

#include <cmath>

/// The arithmetic of the preprocessing, for host loops and device threads alike. Everything after the first
/// step is on a grid of cells, the means of 4x4 pixels, row by row.
namespace accel::examples::digits {

inline constexpr int cell_pixels = 4;
inline constexpr int grid_rows = static_cast<int>(frame_height) / cell_pixels;
inline constexpr int grid_columns = static_cast<int>(frame_width) / cell_pixels;
inline constexpr int grid_cells = grid_rows * grid_columns;
inline constexpr int corner_cells = 8;
inline constexpr float ink_threshold = 0.25f;  ///< of the strongest ink
inline constexpr float faintest_ink = 20.0f;

/// Rec. 601 luma, in 256ths.
inline constexpr unsigned red_weight = 77;
inline constexpr unsigned green_weight = 150;
inline constexpr unsigned blue_weight = 29;

/// The grey of a cell, given the sum of all its bytes, each times its colour's weight.
ACCEL_HOST_DEVICE inline float cell_grey(unsigned weighted_sum) noexcept {
    constexpr float scale = 1.0f / (256 * cell_pixels * cell_pixels);
    return static_cast<float>(static_cast<int>(weighted_sum)) * scale;
}

ACCEL_HOST_DEVICE inline float corner_mean(const float* grid, int first_row, int first_column) noexcept {
    float sum = 0;
    for (int row = 0; row < corner_cells; ++row)
        for (int column = 0; column < corner_cells; ++column)
            sum += grid[(first_row + row) * grid_columns + first_column + column];
    return sum / (corner_cells * corner_cells);
}

/// The mean of corner 0 … 3: upper left, upper right, lower left, lower right.
ACCEL_HOST_DEVICE inline float nth_corner_mean(const float* grid, int n) noexcept {
    return corner_mean(grid, n < 2 ? 0 : grid_rows - corner_cells, n % 2 == 0 ? 0 : grid_columns - corner_cells);
}

/// How far `cell` lies from the first corner's centre (0) to the last one's (1).
ACCEL_HOST_DEVICE inline float along(int cell, int cells) noexcept {
    constexpr float centre = (corner_cells - 1) / 2.0f;
    return (static_cast<float>(cell) - centre) / static_cast<float>(cells - corner_cells);
}

/// The page without its digit, level between the means of the four corners: one row of it.
struct page_row {
    float left, rise;

    [[nodiscard]] ACCEL_HOST_DEVICE float at(float along_columns) const noexcept { return left + rise * along_columns; }
};

ACCEL_HOST_DEVICE inline page_row nth_page_row(const float* corners, int row) noexcept {
    const float down = along(row, grid_rows);
    const float left = corners[0] + (corners[2] - corners[0]) * down;
    const float right = corners[1] + (corners[3] - corners[1]) * down;
    return {left, right - left};
}

/// How much ink a cell holds: its distance from the page.
ACCEL_HOST_DEVICE inline float ink_of(float grey, float page) noexcept {
    return std::fabs(grey - page);
}

struct interval {
    float start, length;
};

/// Cells `first` … `end` - 1, widened on both sides to `length`.
ACCEL_HOST_DEVICE inline interval widened(int first, int end, float length) noexcept {
    return {static_cast<float>(first) + (static_cast<float>(end - first) - length) / 2, length};
}

/// One eighth of an interval, and the whole cells of the grid that it touches.
struct eighth {
    float start, end;
    int first_cell, end_cell;

    [[nodiscard]] ACCEL_HOST_DEVICE float covers(int cell) const noexcept {
        const auto cell_start = static_cast<float>(cell);
        const float cell_end = cell_start + 1;
        return (cell_end < end ? cell_end : end) - (start < cell_start ? cell_start : start);
    }
};

ACCEL_HOST_DEVICE inline int clamped_cell(float cell, int cells) noexcept {
    const auto limit = static_cast<float>(cells);
    return static_cast<int>(cell < 0.0f ? 0.0f : limit < cell ? limit : cell);
}

ACCEL_HOST_DEVICE inline eighth nth_eighth(interval whole, int n, int cells) noexcept {
    const float start = whole.start + whole.length * static_cast<float>(n) / image_side;
    const float end = whole.start + whole.length * static_cast<float>(n + 1) / image_side;
    return {start, end, clamped_cell(std::floor(start), cells), clamped_cell(std::ceil(end), cells)};
}

/// The sum of `amount(cell)` over the cells of an eighth, each as far as it is covered.
template <class Amount>
ACCEL_HOST_DEVICE inline float covered_sum(const eighth& part, const Amount& amount) noexcept {
    float total = 0;
    for (int cell = part.first_cell; cell < part.end_cell; ++cell) total += amount(cell) * part.covers(cell);
    return total;
}

}  // namespace accel::examples::digits
