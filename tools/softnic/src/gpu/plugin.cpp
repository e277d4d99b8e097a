// SPDX-License-Identifier: Apache-2.0
// libsoftnic_cuda.so: memory of CUDA GPUs, as a DMA plugin.
#include "gpu/plugin.hpp"

#include "gpu/worker.cuh"
#include "softnic/softnic.h"

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include <unistd.h>

namespace {

namespace gpu = accel::softnic::gpu;

/// What a region's `space` is: addresses of the region plus `base` are addresses of the GPU.
struct view {
    gpu::copy_engine& engine;
    std::uint64_t base;
};

class plugin {
  public:
    plugin(const gpu::driver& calls, const softnic_cuda_options& options) : calls_(calls), options_(options) {}

    int claim_range(std::uint64_t address, std::uint64_t size, std::uint64_t& space) {
        gpu::gpu_range where;
        if (!gpu::find_gpu_range(calls_, address, size, where)) return 0;
        return options_.peer_memory ? make_view(where, 0, space) : -EFAULT;
    }

    /// A dma-buf does not say whose it is. By convention `iova` is the address of what was exported: taken,
    /// if all of the buffer up to the end of the region is memory of a GPU there.
    int claim_dmabuf(int descriptor, std::uint64_t offset, std::uint64_t size, std::uint64_t iova,
                     std::uint64_t& space) {
        gpu::gpu_range where;
        if (iova < offset || !is_dmabuf(descriptor, offset + size)) return 0;
        if (!gpu::find_gpu_range(calls_, iova - offset, offset + size, where)) return 0;
        return make_view(where, iova - offset, space);
    }

    void stop() {
        if (::getpid() != process_) return;
        for (auto& [key, each] : workers_) each->stop();
    }

  private:
    static bool is_dmabuf(int descriptor, std::uint64_t end) {
        char link[40] = "/proc/self/fd/";
        char target[16]{};
        std::snprintf(link + std::strlen(link), sizeof link - std::strlen(link), "%d", descriptor);
        if (::readlink(link, target, sizeof target - 1) <= 0 || std::strncmp(target, "/dmabuf:", 8) != 0) return false;
        const off_t size = ::lseek(descriptor, 0, SEEK_END);
        return size >= 0 && end <= static_cast<std::uint64_t>(size);
    }

    int make_view(const gpu::gpu_range& where, std::uint64_t base, std::uint64_t& space) {
        auto& found = workers_[{where.device, where.context}];
        if (found != nullptr && found->broken()) {
            found->stop();
            static_cast<void>(found.release());  // regions may still refer to it
        }
        if (found == nullptr) found = gpu::worker::start(calls_, where, options_, neighbours_of(where.device));
        if (found == nullptr) return -EIO;
        space = reinterpret_cast<std::uint64_t>(new view{found->engine(), base});
        return 1;
    }

    /// The GPU's name is that of its place, which is the same in all processes.
    gpu::neighbours& neighbours_of(int ordinal) {
        auto& found = neighbours_[ordinal];
        if (found == nullptr) {
            CUdevice device = 0;
            std::array<char, 32> name{"unknown"};
            if (calls_.cuDeviceGet(&device, ordinal) == CUDA_SUCCESS)
                calls_.cuDeviceGetPCIBusId(name.data(), static_cast<int>(name.size()), device);
            found = std::make_unique<gpu::neighbours>(name.data());
        }
        return *found;
    }

    const gpu::driver& calls_;
    softnic_cuda_options options_;
    pid_t process_ = ::getpid();
    std::map<int, std::unique_ptr<gpu::neighbours>> neighbours_;  ///< of a GPU
    std::map<std::pair<int, CUcontext>, std::unique_ptr<gpu::worker>> workers_;
};

plugin* only = nullptr;  ///< never destroyed

view& view_of(std::uint64_t space) {
    return *reinterpret_cast<view*>(space);
}

int as_status(bool done) {
    return done ? 0 : -1;
}

softnic_dma_ops make_operations() {
    softnic_dma_ops made{};
    made.claim_range = [](void* self, std::uint64_t address, std::uint64_t size, std::uint64_t* space) {
        return static_cast<plugin*>(self)->claim_range(address, size, *space);
    };
    made.claim_dmabuf = [](void* self, int descriptor, std::uint64_t offset, std::uint64_t size, std::uint64_t iova,
                           std::uint64_t* space) {
        return static_cast<plugin*>(self)->claim_dmabuf(descriptor, offset, size, iova, *space);
    };
    made.read = [](void*, std::uint64_t space, void* to, std::uint64_t from, std::size_t size) {
        return as_status(view_of(space).engine.read(to, view_of(space).base + from, size));
    };
    made.write = [](void*, std::uint64_t space, std::uint64_t to, const void* from, std::size_t size) {
        return as_status(view_of(space).engine.write(view_of(space).base + to, from, size));
    };
    made.fetch_add = [](void*, std::uint64_t space, std::uint64_t at, std::uint64_t add, std::uint64_t* previous) {
        return as_status(view_of(space).engine.fetch_add(view_of(space).base + at, add, *previous));
    };
    made.compare_swap = [](void*, std::uint64_t space, std::uint64_t at, std::uint64_t expected, std::uint64_t desired,
                           std::uint64_t* previous) {
        return as_status(view_of(space).engine.compare_swap(view_of(space).base + at, expected, desired, *previous));
    };
    made.flush = [](void*, std::uint64_t space) { return as_status(view_of(space).engine.flush()); };
    made.read_part = [](void*, std::uint64_t space, void* to, std::uint64_t from, std::size_t size,
                        std::uint64_t message, std::uint64_t following) {
        return as_status(view_of(space).engine.read_part(to, view_of(space).base + from, size, message, following));
    };
    made.write_early = [](void*, std::uint64_t space, std::uint64_t to, const void* from, std::size_t size, int how,
                          std::uint64_t* mark) {
        const auto done = view_of(space).engine.write_early(view_of(space).base + to, from, size,
                                                            static_cast<gpu::copy_engine::order>(how), *mark);
        return done == gpu::copy_engine::start::later ? 0 : done == gpu::copy_engine::start::begun ? 1 : -1;
    };
    made.write_last = [](void*, std::uint64_t space, std::uint64_t to, const void* from, std::size_t size,
                         std::uint64_t after, std::uint64_t* mark) {
        return as_status(view_of(space).engine.write_last(view_of(space).base + to, from, size, after, *mark));
    };
    made.state_of = [](void*, std::uint64_t space, std::uint64_t mark) {
        const auto state = view_of(space).engine.state_of(mark);
        return state == gpu::copy_engine::state::under_way ? 0 : state == gpu::copy_engine::state::in_memory ? 1 : -1;
    };
    made.keeps_order = [](void*, std::uint64_t space, std::uint64_t other) {
        return static_cast<int>(&view_of(space).engine == &view_of(other).engine);
    };
    made.release = [](void*, std::uint64_t space) { delete &view_of(space); };
    return made;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const softnic_dma_ops* softnic_cuda_open(
    const softnic_cuda_options* options, void** self) {
    const gpu::driver* calls = gpu::driver::get();
    if (calls == nullptr) return nullptr;
    static const softnic_dma_ops operations = make_operations();
    only = new plugin(*calls, *options);
    *self = only;
    // Registered after CUDA's own, and so run before them.
    std::atexit([] { only->stop(); });
    return &operations;
}
