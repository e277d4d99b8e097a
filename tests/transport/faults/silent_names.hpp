// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

/// A name server whose answers the test decides. Its names end in `.test`.
namespace accel::faults {

enum class name_answer {
    loopback,   ///< where the servers of tests listen
    both,       ///< ::1, then `loopback`
    silence,    ///< none before `speak`, and then `try_again`
    try_again,  ///< EAI_AGAIN
    unknown,    ///< EAI_NONAME
};

/// What it says of this name, before others have an answer `unknown`. `first`: so many times EAI_AGAIN before it.
void answer_name(const std::string& name, name_answer answer, std::size_t first = 0);
/// Nobody is kept waiting any more, and no name has an answer. Returns when nobody waits.
void speak();
/// How many threads wait for an answer now.
[[nodiscard]] std::size_t waiting_for_names();
/// The most of them at once, since `speak`.
[[nodiscard]] std::size_t most_waiting_for_names();

}  // namespace accel::faults
