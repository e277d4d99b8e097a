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
/// The same for calls of the libraries that this scheme uses, with keys. Of those that concern an object only those
/// count whose object is new.
[[nodiscard]] std::span<const failure> library_failures(std::string_view scheme) noexcept;

enum class whose { calling_threads, other_threads };

/// The n-th such call from now on fails, once; 0: the next one. `how`: one of these. `of`: the calling
/// thread's, or those of all others.
void fail_call(const failure& how, std::size_t number, whose of);
/// No call fails any more. True: one has.
bool stop_failing_calls() noexcept;

/// For what stands in front of a call. True: this one fails, with errno. `concerns`: a descriptor; -1 is none.
bool is_failing(std::string_view call, const void* caller, int concerns = -1) noexcept;
void forget_objects() noexcept;

}  // namespace accel::faults
