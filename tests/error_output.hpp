// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdio>
#include <string>

#include <unistd.h>

namespace accel::tests {

/// Takes what this process and those it starts write to standard error, as long as it lives.
class error_output {
  public:
    error_output() : file_(std::tmpfile()), before_(::dup(STDERR_FILENO)) { ::dup2(::fileno(file_), STDERR_FILENO); }
    error_output(const error_output&) = delete;
    error_output& operator=(const error_output&) = delete;
    ~error_output() {
        ::dup2(before_, STDERR_FILENO);
        ::close(before_);
        static_cast<void>(std::fclose(file_));
    }
    /// By now.
    [[nodiscard]] std::string text() const {
        std::string out;
        std::array<char, 1024> part;
        for (ssize_t count = 1; count > 0;) {
            count = ::pread(::fileno(file_), part.data(), part.size(), static_cast<off_t>(out.size()));
            if (count > 0) out.append(part.data(), static_cast<std::size_t>(count));
        }
        return out;
    }
    /// How often it has this word.
    [[nodiscard]] int count(const std::string& word) const {
        const std::string all = text();
        int out = 0;
        for (auto at = all.find(word); at != all.npos; at = all.find(word, at + 1)) ++out;
        return out;
    }

  private:
    std::FILE* file_;
    int before_;
};

}  // namespace accel::tests
