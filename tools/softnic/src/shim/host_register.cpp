// SPDX-License-Identifier: Apache-2.0
// How programs map doorbell pages into a GPU. They ask for IoMemory, as a page of an adapter needs. The driver refuses
// it for ours, which are pages of ordinary memory, and takes them without.
#include "shim/host_register.hpp"

#include "shim/late_function.hpp"
#include "shim/real.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

// CUDA's headers are not needed to build softnic.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" {
int cudaHostRegister(void* at, std::size_t size, unsigned flags);
int cuMemHostRegister_v2(void* at, std::size_t size, unsigned flags);
}
// NOLINTEND(readability-identifier-naming)

namespace {

constexpr unsigned io_memory = 4;        ///< cudaHostRegisterIoMemory, CU_MEMHOSTREGISTER_IOMEMORY
constexpr int cuda_not_supported = 801;  ///< cudaErrorNotSupported, CUDA_ERROR_NOT_SUPPORTED

bool is_page_of_command_file(std::uint64_t address) {
    FILE* maps = std::fopen("/proc/self/maps", "re");
    if (maps == nullptr) return false;
    char line[512];
    bool ours = false;
    while (std::fgets(line, sizeof line, maps) != nullptr) {
        unsigned long long start = 0;
        unsigned long long end = 0;
        if (std::sscanf(line, "%llx-%llx", &start, &end) != 2 || address < start || address >= end) continue;
        ours = std::strstr(line, "/memfd:softnic-uverbs") != nullptr;
        break;
    }
    std::fclose(maps);
    return ours;
}

using register_function = int(void* at, std::size_t size, unsigned flags);

int register_with(register_function* real, void* at, std::size_t size, unsigned flags) {
    if (real == nullptr) return cuda_not_supported;
    const bool ours = (flags & io_memory) != 0 && is_page_of_command_file(reinterpret_cast<std::uint64_t>(at));
    return real(at, size, ours ? flags & ~io_memory : flags);
}

accel::softnic::late_function runtimes{"libcudart", "cudaHostRegister"};
accel::softnic::late_function drivers{"libcuda.so", "cuMemHostRegister_v2"};

std::atomic<register_function*> found_by_name{nullptr};

int register_by_name(void* at, std::size_t size, unsigned flags) {
    return register_with(found_by_name.load(), at, size, flags);
}

}  // namespace

void* accel::softnic::stand_in_for_host_register(void* real) {
    // A program may also have found the exported one below, which goes on to the driver by itself.
    if (real == reinterpret_cast<void*>(&cuMemHostRegister_v2)) return real;
    found_by_name.store(reinterpret_cast<register_function*>(real));
    return reinterpret_cast<void*>(&register_by_name);
}

SOFTNIC_EXPORT int cudaHostRegister(void* at, std::size_t size, unsigned flags) {
    return register_with(reinterpret_cast<register_function*>(runtimes.find()), at, size, flags);
}
SOFTNIC_EXPORT int cuMemHostRegister_v2(void* at, std::size_t size, unsigned flags) {
    return register_with(reinterpret_cast<register_function*>(drivers.find()), at, size, flags);
}
