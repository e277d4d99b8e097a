// SPDX-License-Identifier: Apache-2.0
#include "report/table.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace accel::report {
namespace {

constexpr std::string_view gap = "  ";

void trim_right(std::string& line) {
    line.erase(line.find_last_not_of(' ') + 1);
}

}  // namespace

void table::add_row(std::vector<std::string> cells) {
    cells.resize(columns_.size());
    rows_.push_back(std::move(cells));
}

std::vector<std::size_t> table::widths() const {
    std::vector<std::size_t> widths;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
        std::size_t width = columns_[i].title.size();
        for (const auto& row : rows_) width = std::max(width, row[i].size());
        widths.push_back(width);
    }
    return widths;
}

std::string table::text() const {
    const std::vector<std::size_t> width = widths();
    std::string all;
    const auto add_line = [&](const auto& cell_of) {
        std::string line;
        for (std::size_t i = 0; i < columns_.size(); ++i) {
            if (i != 0) line += gap;
            const bool left = columns_[i].side == align::left;
            line += left ? fmt::format("{:<{}}", cell_of(i), width[i]) : fmt::format("{:>{}}", cell_of(i), width[i]);
        }
        trim_right(line);
        all += line + '\n';
    };
    add_line([&](std::size_t i) { return columns_[i].title; });
    add_line([&](std::size_t i) { return std::string(width[i], '-'); });
    for (const auto& row : rows_) add_line([&](std::size_t i) { return row[i]; });
    return all;
}

}  // namespace accel::report
