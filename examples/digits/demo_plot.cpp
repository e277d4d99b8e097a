// SPDX-License-Identifier: Apache-2.0
#include "digits/demo_plot.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>

#include <fmt/format.h>

namespace accel::examples::digits {
namespace {

constexpr double bar_height = 22;
constexpr double row_height = 32;
constexpr double text_margin = 10;
constexpr double left_margin = 110;
constexpr double right_margin = 90;
constexpr double bar_width = 600;
constexpr double line_height = 18;
constexpr double legend_step = 128;  ///< the longest name, "preprocessing", in the widest of the common fonts
/// Colour-blind safe (Okabe and Ito), in the order of `stages`.
constexpr std::array<const char*, stages.size()> colours{"#56b4e9", "#f0e442", "#cc79a7",
                                                         "#e69f00", "#009e73", "#0072b2"};

double sum(const digits_row& row) {
    double total = 0;
    for (const double stage_us : row.stages_us) total += stage_us;
    return total;
}

std::string text_at(double x, double y, std::string_view text) {
    return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", x, y, text);
}

std::string rectangle(double x, double y, double width, double height, std::string_view colour) {
    return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>\n", x, y,
                       width, height, colour);
}

std::string bar(const digits_row& row, double y, double microseconds_per_pixel) {
    std::string out = text_at(text_margin, y + bar_height * 0.7, row.scheme);
    double x = left_margin;
    for (std::size_t i = 0; i < stages.size(); ++i) {
        const double width = row.stages_us[i] / microseconds_per_pixel;
        out += rectangle(x, y, width, bar_height, colours[i]);
        x += width;
    }
    return out + text_at(x + 6, y + bar_height * 0.7, fmt::format("{:.0f} µs", sum(row)));
}

std::string legend(double y) {
    std::string out;
    double x = text_margin;
    for (std::size_t i = 0; i < stages.size(); ++i) {
        out += rectangle(x, y, 12, 12, colours[i]) + text_at(x + 16, y + 11, stages[i].first);
        x += legend_step;
    }
    return out;
}

}  // namespace

std::string plot_svg(const std::vector<digits_row>& rows) {
    std::string body;
    double y = 14;
    for (const std::string_view input : {"raw", "tensor"}) {
        double longest = 0;
        for (const digits_row& row : rows)
            if (row.input == input) longest = std::max(longest, sum(row));
        if (longest <= 0) continue;
        body += text_at(text_margin, y + line_height, fmt::format("{} input: median of each stage", input));
        y += line_height + 10;
        for (const digits_row& row : rows) {
            if (row.input != input) continue;
            body += bar(row, y, longest / bar_width);
            y += row_height;
        }
    }
    body += legend(y + 8);
    const double width = left_margin + bar_width + right_margin;
    const double height = y + 34;
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
        "height=\"{1:.0f}\" "
        "font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" "
        "fill=\"white\"/>\n{2}</svg>\n",
        width, height, body);
}

bool write_plot(const std::string& path, const std::vector<digits_row>& rows) {
    std::ofstream file(path);
    file << plot_svg(rows);
    file.close();
    if (!file) fmt::print(stderr, "cannot write {}: choose a path that this user may write to\n", path);
    return file.good();
}

}  // namespace accel::examples::digits
