// SPDX-License-Identifier: Apache-2.0
#include "gpu/driver.cuh"

#include <dlfcn.h>

namespace accel::softnic::gpu {
namespace {

/// cuda.h names some calls by macros that add a version: the name is taken after they have been replaced.
#define SOFTNIC_TEXT_OF(name) #name
#define SOFTNIC_NAME_OF(name) SOFTNIC_TEXT_OF(name)

bool resolve(void* library, driver& calls) {
    bool complete = true;
#define SOFTNIC_DRIVER_RESOLVE(name)                                                              \
    calls.name = reinterpret_cast<decltype(calls.name)>(::dlsym(library, SOFTNIC_NAME_OF(name))); \
    complete = complete && calls.name != nullptr;
    SOFTNIC_DRIVER_CALLS(SOFTNIC_DRIVER_RESOLVE)
#undef SOFTNIC_DRIVER_RESOLVE
    return complete;
}

struct one_allocation {
    gpu_range where;
    std::uint64_t end = 0;
};

bool find_allocation(const driver& calls, std::uint64_t address, one_allocation& found) {
    unsigned type = 0;
    unsigned managed = 0;
    CUdeviceptr start = 0;
    std::size_t size = 0;
    CUpointer_attribute wanted[]{CU_POINTER_ATTRIBUTE_MEMORY_TYPE,      CU_POINTER_ATTRIBUTE_CONTEXT,
                                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,   CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                 CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void* values[]{&type, &found.where.context, &found.where.device, &managed, &start, &size};
    if (calls.cuPointerGetAttributes(6, wanted, values, address) != CUDA_SUCCESS) return false;
    found.end = start + size;
    return type == CU_MEMORYTYPE_DEVICE && managed == 0 && found.where.device >= 0 && address >= start &&
           address < found.end;
}

}  // namespace

const driver* driver::get() {
    static driver calls;
    static const bool complete = [] {
        void* library = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
        return library != nullptr && resolve(library, calls);
    }();
    return complete ? &calls : nullptr;
}

std::string driver::name_of(CUresult result) const {
    const char* name = nullptr;
    const bool known = cuGetErrorName(result, &name) == CUDA_SUCCESS && name != nullptr;
    return known ? name : "error " + std::to_string(static_cast<int>(result));
}

/// A range of addresses may be mapped piece by piece.
bool find_gpu_range(const driver& calls, std::uint64_t address, std::uint64_t size, gpu_range& found) {
    constexpr int max_pieces = 1 << 16;
    const std::uint64_t end = address + size;
    if (size == 0 || end < address) return false;
    one_allocation piece;
    for (int count = 0; address < end; ++count, address = piece.end) {
        if (count == max_pieces || !find_allocation(calls, address, piece)) return false;
        if (count != 0 && piece.where.device != found.device) return false;
        found = piece.where;
    }
    return true;
}

}  // namespace accel::softnic::gpu
