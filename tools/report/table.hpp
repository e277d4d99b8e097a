// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace accel::report {

/// Text in columns, as wide as their widest cell: words to the left, figures to the right.
class table {
  public:
    enum class align : unsigned char { left, right };
    struct column {
        std::string title;
        align side = align::right;
    };

    explicit table(std::vector<column> columns) : columns_(std::move(columns)) {}

    /// Missing cells stay empty; surplus ones are dropped.
    void add_row(std::vector<std::string> cells);
    /// Title line, a rule, a line for each row; every line ends in '\n'.
    [[nodiscard]] std::string text() const;

  private:
    [[nodiscard]] std::vector<std::size_t> widths() const;

    std::vector<column> columns_;
    std::vector<std::vector<std::string>> rows_;
};

}  // namespace accel::report
