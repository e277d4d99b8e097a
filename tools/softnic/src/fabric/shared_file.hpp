// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace accel::softnic {

/// Makes the file `bytes` long; it takes memory where it is written. False and EFBIG instead of the signal SIGXFSZ,
/// which would end the program, where the limit of files' sizes (`ulimit -f`) is lower.
[[nodiscard]] bool set_length(int file, std::size_t bytes);

/// Takes the memory of these bytes now: later, a write where none is left would end the program (SIGBUS).
[[nodiscard]] bool take_memory(int file, std::size_t offset, std::size_t bytes);

/// What errno means for shared memory, and what helps.
[[nodiscard]] std::string shared_memory_trouble(int number);

}  // namespace accel::softnic
