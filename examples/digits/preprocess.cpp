#include "digits/preprocess.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

namespace accel::examples::digits {
namespace {

/// All work after the first pass is on cells: the means of 4x4 pixels.
constexpr std::size_t cell_pixels = 4;
constexpr std::size_t grid_rows = frame_height / cell_pixels;
constexpr std::size_t grid_columns = frame_width / cell_pixels;
constexpr std::size_t corner_cells = 8;
constexpr float ink_threshold = 0.25f;
constexpr float faintest_ink = 20.0f;

using grid_row = std::array<float, grid_columns>;
using grid = std::array<grid_row, grid_rows>;

/// The sums of four rows, byte column by byte column.
using column_sums = std::array<std::uint16_t, frame_row_bytes>;

column_sums add_four_rows(std::span<const std::byte, cell_pixels * frame_row_bytes> rows) {
    column_sums sums;
    const std::byte* bytes = rows.data();
    for (std::size_t i = 0; i < frame_row_bytes; ++i) {
        sums[i] = static_cast<std::uint16_t>(std::to_integer<unsigned>(bytes[i]) +
                                             std::to_integer<unsigned>(bytes[i + frame_row_bytes]) +
                                             std::to_integer<unsigned>(bytes[i + 2 * frame_row_bytes]) +
                                             std::to_integer<unsigned>(bytes[i + 3 * frame_row_bytes]));
    }
    return sums;
}

/// Rec. 601 luma (weights in 256ths) of one cell: four RGB column sums, each over four rows.
float cell_grey(const std::uint16_t* sums) {
    const unsigned red = 0u + sums[0] + sums[3] + sums[6] + sums[9];
    const unsigned green = 0u + sums[1] + sums[4] + sums[7] + sums[10];
    const unsigned blue = 0u + sums[2] + sums[5] + sums[8] + sums[11];
    constexpr float scale = 1.0f / (256 * cell_pixels * cell_pixels);
    return static_cast<float>(77 * red + 150 * green + 29 * blue) * scale;
}

void make_grey(std::span<const std::byte, frame_bytes> frame, grid& grey) {
    constexpr std::size_t band_bytes = cell_pixels * frame_row_bytes;
    for (std::size_t row = 0; row < grid_rows; ++row) {
        const auto band = frame.subspan(row * band_bytes).first<band_bytes>();
        const column_sums sums = add_four_rows(band);
        for (std::size_t column = 0; column < grid_columns; ++column) {
            grey[row][column] = cell_grey(&sums[column * cell_pixels * frame_channels]);
        }
    }
}

float corner_mean(const grid& grey, std::size_t first_row, std::size_t first_column) {
    float sum = 0;
    for (std::size_t row = 0; row < corner_cells; ++row) {
        for (std::size_t column = 0; column < corner_cells; ++column) {
            sum += grey[first_row + row][first_column + column];
        }
    }
    return sum / (corner_cells * corner_cells);
}

/// The page without its digit: level between the means of the four corners.
struct page {
    float upper_left, upper_right, lower_left, lower_right;
};

page measure_page(const grid& grey) {
    constexpr std::size_t last_row = grid_rows - corner_cells;
    constexpr std::size_t last_column = grid_columns - corner_cells;
    return {corner_mean(grey, 0, 0), corner_mean(grey, 0, last_column), corner_mean(grey, last_row, 0),
            corner_mean(grey, last_row, last_column)};
}

/// How far `cell` lies from the first corner's centre (0) to the last one's (1).
float along(std::size_t cell, std::size_t cells) {
    constexpr float centre = (corner_cells - 1) / 2.0f;
    return (static_cast<float>(cell) - centre) / static_cast<float>(cells - corner_cells);
}

/// The most ink seen in every row and column of the grid.
struct profiles {
    std::array<float, grid_rows> rows{};
    std::array<float, grid_columns> columns{};
};

/// Replaces every cell's grey by its distance from the page.
profiles measure_ink(grid& cells) {
    const page p = measure_page(cells);
    profiles most;
    for (std::size_t row = 0; row < grid_rows; ++row) {
        const float down = along(row, grid_rows);
        const float left = p.upper_left + (p.lower_left - p.upper_left) * down;
        const float right = p.upper_right + (p.lower_right - p.upper_right) * down;
        for (std::size_t column = 0; column < grid_columns; ++column) {
            const float level = left + (right - left) * along(column, grid_columns);
            const float ink = std::abs(cells[row][column] - level);
            cells[row][column] = ink;
            most.rows[row] = std::max(most.rows[row], ink);
            most.columns[column] = std::max(most.columns[column], ink);
        }
    }
    return most;
}

struct interval {
    float start, length;
};

/// From the first to the last cell that holds at least `threshold`; there is one.
interval marked_interval(std::span<const float> profile, float threshold) {
    const auto is_marked = [threshold](float ink) { return ink >= threshold; };
    const auto first = std::ranges::find_if(profile, is_marked);
    const auto last = std::find_if(profile.rbegin(), profile.rend(), is_marked).base();
    return {static_cast<float>(first - profile.begin()), static_cast<float>(last - first)};
}

interval widened(interval narrow, float length) {
    return {narrow.start + (narrow.length - length) / 2, length};
}

/// One eighth of an interval, and the whole cells of the grid that it touches.
struct eighth {
    float start, end;
    std::size_t first_cell, end_cell;

    float covers(std::size_t cell) const {
        const auto cell_start = static_cast<float>(cell);
        return std::min(end, cell_start + 1) - std::max(start, cell_start);
    }
};

eighth nth_eighth(interval whole, std::size_t n, std::size_t cells) {
    const float start = whole.start + whole.length * static_cast<float>(n) / image_side;
    const float end = whole.start + whole.length * static_cast<float>(n + 1) / image_side;
    const float limit = static_cast<float>(cells);
    return {start, end, static_cast<std::size_t>(std::clamp(std::floor(start), 0.0f, limit)),
            static_cast<std::size_t>(std::clamp(std::ceil(end), 0.0f, limit))};
}

float ink_within(const grid& ink, const eighth& rows, const eighth& columns) {
    float total = 0;
    for (std::size_t row = rows.first_cell; row < rows.end_cell; ++row) {
        float row_total = 0;
        for (std::size_t column = columns.first_cell; column < columns.end_cell; ++column) {
            row_total += ink[row][column] * columns.covers(column);
        }
        total += row_total * rows.covers(row);
    }
    return total;
}

void resize(const grid& ink, interval rows, interval columns, std::span<float, tensor_values> tensor) {
    for (std::size_t i = 0; i < tensor_values; ++i) {
        tensor[i] = ink_within(ink, nth_eighth(rows, i / image_side, grid_rows),
                               nth_eighth(columns, i % image_side, grid_columns));
    }
    const float most = std::ranges::max(tensor);
    for (float& value : tensor) value /= most;
}

}  // namespace

failure preprocess(std::span<const std::byte> frame, std::span<float, tensor_values> tensor) noexcept {
    if (frame.size() != frame_bytes) return failure::frame_size_wrong;

    grid cells;
    make_grey(frame.first<frame_bytes>(), cells);
    const profiles most = measure_ink(cells);
    const float peak = std::ranges::max(most.rows);
    if (peak < faintest_ink) return failure::frame_blank;

    const interval rows = marked_interval(most.rows, peak * ink_threshold);
    const interval columns = marked_interval(most.columns, peak * ink_threshold);
    const float side = std::max(rows.length, columns.length);
    resize(cells, widened(rows, side), widened(columns, side), tensor);
    return failure::none;
}

}  // namespace accel::examples::digits
