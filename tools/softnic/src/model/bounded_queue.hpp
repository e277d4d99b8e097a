// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

namespace accel::softnic {

/// First in, first out, at most N; without the heap, which a program may count its use of.
template <class T, std::size_t N>
class bounded_queue {
  public:
    [[nodiscard]] bool empty() const { return size_ == 0; }
    [[nodiscard]] bool full() const { return size_ == N; }
    [[nodiscard]] std::size_t size() const { return size_; }
    [[nodiscard]] T& operator[](std::size_t at) { return items_[(first_ + at) % N]; }
    [[nodiscard]] const T& operator[](std::size_t at) const { return items_[(first_ + at) % N]; }
    [[nodiscard]] T& front() { return (*this)[0]; }
    [[nodiscard]] T& back() { return (*this)[size_ - 1]; }

    /// Only while not full().
    void push_back(const T& item) {
        (*this)[size_] = item;
        ++size_;
    }
    void pop_front() {
        first_ = (first_ + 1) % N;
        --size_;
    }
    void clear() { size_ = 0; }

  private:
    std::array<T, N> items_{};
    std::size_t first_ = 0;
    std::size_t size_ = 0;
};

}  // namespace accel::softnic
