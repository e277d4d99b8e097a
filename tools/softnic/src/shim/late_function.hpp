// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

namespace accel::softnic {

/// A function of a library that may be loaded later, and by a plugin: the libraries of those (RTLD_LOCAL) are not among
/// the ones that RTLD_NEXT searches. `library` is how the file's name begins. Looked for at each call until found.
class late_function {
  public:
    constexpr late_function(const char* library, const char* name) : library_(library), name_(name) {}
    /// Null while no such library is there.
    [[nodiscard]] void* find();

  private:
    const char* library_;
    const char* name_;
    std::atomic<void*> found_{nullptr};
};

}  // namespace accel::softnic
