// SPDX-License-Identifier: Apache-2.0
#include "cuda/shared_memory.hpp"

#include "cuda/driver.hpp"

#include <bit>
#include <cstdint>

#include <cuda.h>
#include <fcntl.h>
#include <fmt/format.h>

namespace accel::cuda::shared_memory {
namespace {

/// The driver's calls; null where it is older than them.
struct driver_calls {
    decltype(&::cuDeviceGetAttribute) attribute = find<decltype(&::cuDeviceGetAttribute)>("cuDeviceGetAttribute");
    decltype(&::cuMemGetAllocationGranularity) granularity =
        find<decltype(&::cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity");
    decltype(&::cuMemCreate) create = find<decltype(&::cuMemCreate)>("cuMemCreate");
    decltype(&::cuMemRelease) release = find<decltype(&::cuMemRelease)>("cuMemRelease");
    decltype(&::cuDeviceCanAccessPeer) reaches = find<decltype(&::cuDeviceCanAccessPeer)>("cuDeviceCanAccessPeer");
    decltype(&::cuMemAddressReserve) reserve = find<decltype(&::cuMemAddressReserve)>("cuMemAddressReserve");
    decltype(&::cuMemAddressFree) free = find<decltype(&::cuMemAddressFree)>("cuMemAddressFree");
    decltype(&::cuMemMap) map = find<decltype(&::cuMemMap)>("cuMemMap");
    decltype(&::cuMemUnmap) unmap = find<decltype(&::cuMemUnmap)>("cuMemUnmap");
    decltype(&::cuMemSetAccess) set_access = find<decltype(&::cuMemSetAccess)>("cuMemSetAccess");
    decltype(&::cuMemRetainAllocationHandle) retain =
        find<decltype(&::cuMemRetainAllocationHandle)>("cuMemRetainAllocationHandle");
    decltype(&::cuMemExportToShareableHandle) export_handle =
        find<decltype(&::cuMemExportToShareableHandle)>("cuMemExportToShareableHandle");
    decltype(&::cuMemImportFromShareableHandle) import_handle =
        find<decltype(&::cuMemImportFromShareableHandle)>("cuMemImportFromShareableHandle");
    decltype(&::cuMemGetAllocationPropertiesFromHandle) properties =
        find<decltype(&::cuMemGetAllocationPropertiesFromHandle)>("cuMemGetAllocationPropertiesFromHandle");

    [[nodiscard]] bool complete() const noexcept {
        return attribute != nullptr && granularity != nullptr && create != nullptr && release != nullptr &&
               reserve != nullptr && free != nullptr && map != nullptr && unmap != nullptr && set_access != nullptr &&
               reaches != nullptr && retain != nullptr && export_handle != nullptr && import_handle != nullptr &&
               properties != nullptr;
    }

  private:
    template <class Call>
    [[nodiscard]] static Call find(const char* name) noexcept {
        return reinterpret_cast<Call>(find_entry_point(name));
    }
};

const driver_calls& driver() noexcept {
    static const driver_calls calls;
    return calls;
}

error refused(const char* what, CUresult code) {
    const status meaning = code == CUDA_ERROR_OUT_OF_MEMORY ? status::out_of_memory : status::system_error;
    return {meaning, static_cast<int>(code), fmt::format("{} (CUresult {})", what, static_cast<int>(code))};
}

CUmemAllocationProp shareable_memory_of(int ordinal) noexcept {
    CUmemAllocationProp wanted{};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    wanted.location.id = ordinal;
    wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return wanted;
}

/// Whether the device shares memory by descriptors, and in which steps.
result<std::size_t> granularity_of(int ordinal) {
    const error cannot{status::unsupported, 0, "this GPU cannot share memory with other processes"};
    if (!driver().complete()) return cannot;
    for (const CUdevice_attribute each : {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                                          CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED}) {
        int able = 0;
        if (driver().attribute(&able, each, ordinal) != CUDA_SUCCESS || able == 0) return cannot;
    }
    const CUmemAllocationProp wanted = shareable_memory_of(ordinal);
    std::size_t step = 0;
    const CUresult code = driver().granularity(&step, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (code != CUDA_SUCCESS || step == 0)
        return refused(
            "the CUDA driver does not report the granularity of its "
            "memory",
            code);
    return step;
}

/// One of the process's references to an allocation. A mapping is another.
class handle {
  public:
    explicit handle(CUmemGenericAllocationHandle owned) noexcept : owned_(owned) {}
    ~handle() { (void)driver().release(owned_); }
    handle(const handle&) = delete;
    handle& operator=(const handle&) = delete;
    [[nodiscard]] CUmemGenericAllocationHandle get() const noexcept { return owned_; }

  private:
    CUmemGenericAllocationHandle owned_;
};

/// The driver refuses more bytes than the allocation has.
result<mapping> map_all(int ordinal, const handle& memory, std::size_t bytes) {
    CUdeviceptr at = 0;
    if (const CUresult code = driver().reserve(&at, bytes, 0, 0, 0); code != CUDA_SUCCESS)
        return refused("the CUDA driver cannot reserve addresses", code);
    if (const CUresult code = driver().map(at, bytes, 0, memory.get(), 0); code != CUDA_SUCCESS) {
        (void)driver().free(at, bytes);
        return refused("the CUDA driver cannot map this memory", code);
    }
    CUmemAccessDesc access{};
    access.location = shareable_memory_of(ordinal).location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    const mapping made{std::bit_cast<std::byte*>(at), bytes};
    const CUresult code = driver().set_access(at, bytes, &access, 1);
    if (code == CUDA_SUCCESS) return made;
    unmap(made.data, made.bytes);
    return refused("the CUDA driver does not allow access to this memory", code);
}

bool may_map(int ordinal, const CUmemAllocationProp& of, core::shared_of whose) noexcept {
    if (of.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return false;
    if (whose == core::shared_of::device) return of.location.id == ordinal;
    int able = 0;
    return of.location.id != ordinal && driver().reaches(&able, ordinal, of.location.id) == CUDA_SUCCESS && able != 0;
}

std::size_t whole_steps(std::size_t bytes, std::size_t step) noexcept {
    return (bytes + step - 1) / step * step;
}

}  // namespace

result<mapping> create(int ordinal, std::size_t bytes) {
    const auto step = granularity_of(ordinal);
    if (!step) return step.error();
    const std::size_t size = whole_steps(bytes, step.value());
    const CUmemAllocationProp wanted = shareable_memory_of(ordinal);
    CUmemGenericAllocationHandle made{};
    if (const CUresult code = driver().create(&made, size, &wanted, 0); code != CUDA_SUCCESS)
        return refused(fmt::format("the GPU does not have {} bytes of memory to share", size).c_str(), code);
    const handle owned(made);
    return map_all(ordinal, owned, size);
}

result<core::unique_fd> export_descriptor(const std::byte* data) {
    if (!driver().complete()) return error{status::unsupported, 0, "this GPU cannot share memory with other processes"};
    CUmemGenericAllocationHandle found{};
    if (const CUresult code = driver().retain(&found, const_cast<std::byte*>(data)); code != CUDA_SUCCESS)
        return error{status::unsupported, static_cast<int>(code), "this memory was not made to be shared"};
    const handle owned(found);
    int fd = -1;
    const CUresult code = driver().export_handle(&fd, owned.get(), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (code != CUDA_SUCCESS || fd < 0)
        return refused("the CUDA driver cannot export a descriptor of this memory", code);
    core::unique_fd made(fd);
    (void)::fcntl(fd, F_SETFD, FD_CLOEXEC);
    return made;
}

result<mapping> map(int ordinal, int fd, std::size_t bytes, core::shared_of whose) {
    if (const auto able = granularity_of(ordinal); !able) return able.error();
    CUmemGenericAllocationHandle found{};
    auto* const named = std::bit_cast<void*>(std::intptr_t{fd});
    const CUresult code = driver().import_handle(&found, named, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (code != CUDA_SUCCESS) return refused("the passed memory is not GPU memory that this process can map", code);
    const handle owned(found);
    CUmemAllocationProp of{};
    const bool known = driver().properties(&of, owned.get()) == CUDA_SUCCESS;
    if (!known || !may_map(ordinal, of, whose))
        return error{status::unsupported, 0, "the passed memory is on a GPU that this one does not reach directly"};
    const auto step = granularity_of(of.location.id);
    if (!step) return step.error();
    return map_all(ordinal, owned, whole_steps(bytes, step.value()));
}

void unmap(std::byte* data, std::size_t bytes) noexcept {
    const auto at = std::bit_cast<CUdeviceptr>(data);
    (void)driver().unmap(at, bytes);
    (void)driver().free(at, bytes);
}

}  // namespace accel::cuda::shared_memory
