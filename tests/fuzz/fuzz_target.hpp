// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>

/// What libFuzzer, or the replay of a corpus, calls for each input. Must return 0.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace accel::tests {

/// Ends the process where a parser broke its promise, so that the fuzzer keeps the input.
inline void require(bool holds, const char* promise) {
    if (holds) return;
    std::fprintf(stderr, "broken promise: %s\n", promise);
    std::abort();
}

/// Takes an input apart from its front; zeros after its end.
class input_reader {
  public:
    input_reader(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}
    [[nodiscard]] std::uint8_t byte() {
        if (rest_.empty()) return 0;
        const std::uint8_t first = rest_.front();
        rest_ = rest_.subspan(1);
        return first;
    }
    [[nodiscard]] std::span<const std::uint8_t> bytes(std::size_t count) {
        const auto front = rest_.first(count < rest_.size() ? count : rest_.size());
        rest_ = rest_.subspan(front.size());
        return front;
    }
    [[nodiscard]] std::span<const std::uint8_t> rest() const { return rest_; }
    [[nodiscard]] bool empty() const { return rest_.empty(); }

  private:
    std::span<const std::uint8_t> rest_;
};

}  // namespace accel::tests
