// SPDX-License-Identifier: Apache-2.0
// In the place of CUDA's functions that make host memory known to a GPU. As the real ones, they refuse ordinary memory
// that is said to be IoMemory.
#include <cstddef>

extern "C" {
extern unsigned last_flags;
unsigned last_flags = 0;

int cudaHostRegister(void*, std::size_t, unsigned flags) {
    last_flags = flags;
    return (flags & 4) != 0 ? 1 : 0;
}
int cuMemHostRegister_v2(void*, std::size_t, unsigned flags) {
    last_flags = flags;
    return (flags & 4) != 0 ? 1 : 0;
}
}
