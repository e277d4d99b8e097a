// SPDX-License-Identifier: Apache-2.0
// In the place of CUDA's functions that make host memory known to a GPU. As the real ones, they refuse ordinary memory
// that is said to be IoMemory.
#include <cstddef>
#include <cstdint>
#include <cstring>

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
int cuGetProcAddress(const char* name, void** found, int version, std::uint64_t flags);
int cuGetProcAddress_v2(const char* name, void** found, int version, std::uint64_t flags, int* status);
}

namespace {

/// As the driver: the name without a version means the form that the version of CUDA had.
void* find_function(const char* name, int version) {
    if (std::strcmp(name, "cuMemHostRegister") == 0) return reinterpret_cast<void*>(&cuMemHostRegister_v2);
    if (std::strcmp(name, "cuGetProcAddress") != 0) return nullptr;
    return version >= 12000 ? reinterpret_cast<void*>(&cuGetProcAddress_v2)
                            : reinterpret_cast<void*>(&cuGetProcAddress);
}

}  // namespace

extern "C" {
int cuGetProcAddress(const char* name, void** found, int version, std::uint64_t) {
    *found = find_function(name, version);
    return *found == nullptr ? 500 : 0;
}
int cuGetProcAddress_v2(const char* name, void** found, int version, std::uint64_t flags, int* status) {
    if (status != nullptr) *status = 0;
    return cuGetProcAddress(name, found, version, flags);
}
}
