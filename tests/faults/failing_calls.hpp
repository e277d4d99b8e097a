// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

/// System calls that fail, one at a time. Only those count that the library itself makes, and of calls that concern a
/// descriptor only those that concern one that is new: whatever was open before goes on.
namespace accel::faults {

/// A system call, and an errno that it may have.
struct failure {
    std::string_view call;
    int number = 0;
};
[[nodiscard]] std::span<const failure> all_failures() noexcept;

enum class whose { calling_threads, other_threads };

/// The n-th such call from now on fails, once; 0: the next one. `how`: one of `all_failures`. `of`: the calling
/// thread's, or those of all others.
void fail_call(const failure& how, std::size_t number, whose of);
/// No call fails any more. True: one has.
bool stop_failing_calls() noexcept;

}  // namespace accel::faults
