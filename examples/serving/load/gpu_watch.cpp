// SPDX-License-Identifier: Apache-2.0
#include "serving/load/gpu_watch.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>

#include <dlfcn.h>

namespace accel::examples::serving {
namespace {

/// Source: NVML API reference; the functions that are used, with their types.
struct nvml_memory {
    unsigned long long total, free, used;
};
struct nvml_utilisation {
    unsigned int gpu, memory;
};
using nvml_device = void*;

class nvml_library {
  public:
    nvml_library() : handle_(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
        if (handle_ == nullptr) return;
        find(start, "nvmlInit_v2");
        find(stop, "nvmlShutdown");
        find(device_of, "nvmlDeviceGetHandleByIndex_v2");
        find(memory_of, "nvmlDeviceGetMemoryInfo");
        find(utilisation_of, "nvmlDeviceGetUtilizationRates");
        usable_ = start && stop && device_of && memory_of && utilisation_of && start() == 0;
    }
    nvml_library(const nvml_library&) = delete;
    nvml_library& operator=(const nvml_library&) = delete;
    ~nvml_library() {
        if (usable_) (void)stop();
        if (handle_ != nullptr) (void)::dlclose(handle_);
    }
    [[nodiscard]] bool usable() const noexcept { return usable_; }

    int (*start)() = nullptr;
    int (*stop)() = nullptr;
    int (*device_of)(unsigned int, nvml_device*) = nullptr;
    int (*memory_of)(nvml_device, nvml_memory*) = nullptr;
    int (*utilisation_of)(nvml_device, nvml_utilisation*) = nullptr;

  private:
    template <class Function>
    void find(Function& out, const char* name) {
        out = reinterpret_cast<Function>(::dlsym(handle_, name));
    }

    void* handle_;
    bool usable_ = false;
};

class nvml_watch final : public gpu_watch {
  public:
    nvml_watch(std::unique_ptr<nvml_library> library, nvml_device device)
        : library_(std::move(library)), device_(device) {
        look();
        thread_ = std::jthread{[this](const std::stop_token& stop) { watch(stop); }};
    }

    gpu_use seen() const override {
        const std::lock_guard lock(mutex_);
        gpu_use out{memory_bytes_, std::nullopt};
        if (looks_ > 0) out.utilisation = utilisation_ / looks_;
        return out;
    }

  private:
    void watch(const std::stop_token& stop) {
        std::mutex unused;
        std::condition_variable_any never;
        while (!stop.stop_requested()) {
            std::unique_lock lock(unused);
            (void)never.wait_for(lock, stop, std::chrono::milliseconds{100}, [] { return false; });
            look();
        }
    }
    void look() {
        nvml_memory memory{};
        nvml_utilisation used{};
        const bool known = library_->memory_of(device_, &memory) == 0;
        const bool busy = library_->utilisation_of(device_, &used) == 0;
        const std::lock_guard lock(mutex_);
        if (known) memory_bytes_ = std::max<std::uint64_t>(memory_bytes_, memory.used);
        if (!busy) return;
        utilisation_ += used.gpu;
        ++looks_;
    }

    std::unique_ptr<nvml_library> library_;
    nvml_device device_;
    mutable std::mutex mutex_;
    std::uint64_t memory_bytes_ = 0;
    double utilisation_ = 0;
    unsigned looks_ = 0;
    std::jthread thread_;  ///< last: it uses the others
};

}  // namespace

std::unique_ptr<gpu_watch> gpu_watch::start(int gpu) {
    if (gpu < 0) return nullptr;
    auto library = std::make_unique<nvml_library>();
    nvml_device device = nullptr;
    if (!library->usable() || library->device_of(static_cast<unsigned>(gpu), &device) != 0) return nullptr;
    return std::make_unique<nvml_watch>(std::move(library), device);
}

}  // namespace accel::examples::serving
