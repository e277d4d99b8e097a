// SPDX-License-Identifier: Apache-2.0
#include "shim/cuda_plugin.hpp"

#include "engine/device_cpu.hpp"
#include "gpu/plugin.hpp"
#include "shim/foreign_plugin.hpp"

#include <string>

#include <dlfcn.h>
#include <fmt/format.h>

namespace accel::softnic {
namespace {

/// The file beside this library.
std::string find_library() {
    Dl_info info{};
    if (::dladdr(reinterpret_cast<const void*>(&make_cuda_plugin), &info) == 0) return softnic_cuda_library;
    const std::string self = info.dli_fname;
    const std::size_t slash = self.rfind('/');
    return slash == std::string::npos ? softnic_cuda_library : self.substr(0, slash + 1) + softnic_cuda_library;
}

class cuda_plugin final : public dma_plugin {
  public:
    explicit cuda_plugin(const settings& chosen)
        : options_{chosen.cuda == cuda_dma::memcpy, chosen.peer_memory,     chosen.cuda_idle_us, chosen.cuda_stay_ms,
                   chosen.cuda_timeout_ms,          &count_as_device_thread} {}

    dma_claim claim_range(std::uint64_t address, std::uint64_t size_bytes) override {
        return load() ? loaded_->claim_range(address, size_bytes) : dma_claim{};
    }
    dma_claim claim_dmabuf(const dmabuf_range& range) override {
        return load() ? loaded_->claim_dmabuf(range) : dma_claim{};
    }

  private:
    bool load() {
        if (loaded_ != nullptr || failed_) return loaded_ != nullptr;
        void* driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
        if (driver == nullptr) return false;  // not yet, at least
        ::dlclose(driver);
        const std::string path = find_library();
        void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        auto* open = library == nullptr
                         ? nullptr
                         : reinterpret_cast<softnic_cuda_open_function*>(::dlsym(library, softnic_cuda_entry));
        void* self = nullptr;
        const softnic_dma_ops* operations = open == nullptr ? nullptr : open(&options_, &self);
        failed_ = operations == nullptr;
        if (failed_) {
            const char* why = open == nullptr ? ::dlerror() : "the CUDA driver lacks functions";
            fmt::print(stderr, "softnic: GPU memory cannot be registered: {}\n", why == nullptr ? path : why);
            return false;
        }
        loaded_ = make_foreign_plugin(*operations, self);
        return true;
    }

    softnic_cuda_options options_;
    std::shared_ptr<dma_plugin> loaded_;
    bool failed_ = false;
};

}  // namespace

std::shared_ptr<dma_plugin> make_cuda_plugin(const settings& chosen) {
    return std::make_shared<cuda_plugin>(chosen);
}

}  // namespace accel::softnic
