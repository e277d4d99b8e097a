// SPDX-License-Identifier: Apache-2.0
#include "digits/preprocess.hpp"

#include "digits/preprocess_math.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace accel::examples::digits {
namespace {

using grid = std::array<float, grid_cells>;

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

/// The grey of one cell: four RGB column sums, each over four rows.
float grey_of(const std::uint16_t* sums) {
    const unsigned red = 0u + sums[0] + sums[3] + sums[6] + sums[9];
    const unsigned green = 0u + sums[1] + sums[4] + sums[7] + sums[10];
    const unsigned blue = 0u + sums[2] + sums[5] + sums[8] + sums[11];
    return cell_grey(red_weight * red + green_weight * green + blue_weight * blue);
}

void make_grey(std::span<const std::byte, frame_bytes> frame, grid& grey) {
    constexpr std::size_t band_bytes = cell_pixels * frame_row_bytes;
    float* cell = grey.data();
    for (std::size_t row = 0; row < grid_rows; ++row) {
        const auto band = frame.subspan(row * band_bytes).first<band_bytes>();
        const column_sums sums = add_four_rows(band);
        for (std::size_t column = 0; column < grid_columns; ++column)
            *cell++ = grey_of(&sums[column * cell_pixels * frame_channels]);
    }
}

/// The most ink seen in every row and column of the grid.
struct profiles {
    std::array<float, grid_rows> rows{};
    std::array<float, grid_columns> columns{};
};

/// Replaces every cell's grey by its distance from the page.
profiles measure_ink(grid& cells) {
    float corners[4];
    for (int n = 0; n < 4; ++n) corners[n] = nth_corner_mean(cells.data(), n);
    profiles most;
    float* row_cells = cells.data();
    for (int row = 0; row < grid_rows; ++row, row_cells += grid_columns) {
        const page_row page = nth_page_row(corners, row);
        float max_in_row = 0;
        for (int column = 0; column < grid_columns; ++column) {
            const float ink = ink_of(row_cells[column], page.at(along(column, grid_columns)));
            row_cells[column] = ink;
            float& max_in_column = most.columns[static_cast<std::size_t>(column)];
            max_in_row = std::max(max_in_row, ink);
            max_in_column = std::max(max_in_column, ink);
        }
        most.rows[static_cast<std::size_t>(row)] = max_in_row;
    }
    return most;
}

/// Of cells that hold at least a threshold: the first, and the one behind the last. There is one.
struct marked {
    int first, end;

    marked(std::span<const float> profile, float threshold) noexcept {
        const auto is_marked = [threshold](float ink) { return ink >= threshold; };
        first = static_cast<int>(std::ranges::find_if(profile, is_marked) - profile.begin());
        end = static_cast<int>(std::find_if(profile.rbegin(), profile.rend(), is_marked).base() - profile.begin());
    }
};

float ink_within(const grid& ink, const eighth& rows, const eighth& columns) {
    return covered_sum(rows, [&](int row) {
        const float* cells = ink.data() + row * grid_columns;
        return covered_sum(columns, [cells](int column) { return cells[column]; });
    });
}

void resize(const grid& ink, interval rows, interval columns, std::span<float, tensor_values> tensor) {
    for (int i = 0; i < static_cast<int>(tensor_values); ++i) {
        tensor[static_cast<std::size_t>(i)] = ink_within(ink, nth_eighth(rows, i / image_side, grid_rows),
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

    const marked rows(most.rows, peak * ink_threshold);
    const marked columns(most.columns, peak * ink_threshold);
    const auto side = static_cast<float>(std::max(rows.end - rows.first, columns.end - columns.first));
    resize(cells, widened(rows.first, rows.end, side), widened(columns.first, columns.end, side), tensor);
    return failure::none;
}

}  // namespace accel::examples::digits
