// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu_kernels.hpp"
#include "verbs_pair.hpp"

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <unistd.h>

/// GPU memory and its registration, for programs that run under softnic.
namespace accel::softnic::testing::gpu {

enum class way { dmabuf, peer };

inline constexpr int all_access =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

/// Why nothing here can run, or null.
inline const char* missing() {
    int count = 0;
    const cudaError_t result = cudaGetDeviceCount(&count);
    if (result != cudaSuccess) return cudaGetErrorString(result);
    return count == 0 ? "there is no GPU" : nullptr;
}

inline bool setting_is(const char* name, std::string_view value) {
    const char* found = std::getenv(name);
    return found != nullptr && value == found;
}

/// A dma-buf over whole pages, or -1.
inline int export_dmabuf(void* memory, std::size_t size) {
    using exporter = int(void*, unsigned long long, std::size_t, int, unsigned long long);
    void* driver = ::dlopen("libcuda.so.1", RTLD_LAZY);
    auto* call =
        driver == nullptr ? nullptr : reinterpret_cast<exporter*>(::dlsym(driver, "cuMemGetHandleForAddressRange"));
    int descriptor = -1;
    constexpr int kind_dmabuf = 1;
    if (call == nullptr || call(&descriptor, reinterpret_cast<unsigned long long>(memory), size, kind_dmabuf, 0) != 0)
        return -1;
    return descriptor;
}

class buffer {
  public:
    explicit buffer(std::size_t size) : size_(size) {
        void* memory = nullptr;
        if (cudaMalloc(&memory, size) != cudaSuccess) throw std::runtime_error("no GPU memory");
        memory_ = static_cast<std::byte*>(memory);
    }
    ~buffer() {
        mr_.reset();
        cudaFree(memory_);
    }
    buffer(const buffer&) = delete;
    buffer& operator=(const buffer&) = delete;

    ibv_mr* enrol(ibv_pd* pd, way how) {
        if (how == way::peer) {
            mr_.reset(ibv_reg_mr(pd, memory_, size_, all_access));
        } else {
            const int file = export_dmabuf(memory_, size_);
            mr_.reset(ibv_reg_dmabuf_mr(pd, 0, size_, address(), file, all_access));
            const int problem = errno;
            if (file >= 0) ::close(file);
            errno = problem;
        }
        return mr_.get();
    }
    [[nodiscard]] std::byte* at(std::size_t offset) const { return memory_ + offset; }
    [[nodiscard]] std::uint64_t address(std::size_t offset = 0) const {
        return reinterpret_cast<std::uint64_t>(memory_ + offset);
    }
    [[nodiscard]] std::size_t size() const { return size_; }
    [[nodiscard]] ibv_mr* mr() const { return mr_.get(); }

  private:
    std::size_t size_;
    std::byte* memory_ = nullptr;
    mr_owner mr_;
};

/// The next completion, or one with an invalid status after `patience`.
inline ibv_wc wait(ibv_cq* on, std::chrono::milliseconds patience = std::chrono::seconds(20)) {
    ibv_wc out{};
    const auto until = std::chrono::steady_clock::now() + patience;
    while (std::chrono::steady_clock::now() < until)
        if (ibv_poll_cq(on, 1, &out) == 1) return out;
    out.status = IBV_WC_GENERAL_ERR;
    out.wr_id = ~0ull;
    return out;
}

inline ibv_send_wr request(ibv_wr_opcode opcode, ibv_sge& piece, std::uint64_t remote, std::uint32_t rkey) {
    ibv_send_wr out{};
    out.sg_list = &piece;
    out.num_sge = 1;
    out.opcode = opcode;
    out.send_flags = IBV_SEND_SIGNALED;
    out.wr.rdma.remote_addr = remote;
    out.wr.rdma.rkey = rkey;
    return out;
}

inline void post(ibv_qp* on, ibv_send_wr& what) {
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(on, &what, &bad) != 0) throw std::runtime_error("post refused");
}

inline void post_receive(ibv_qp* on, ibv_sge* pieces, int count) {
    ibv_recv_wr what{0, nullptr, pieces, count};
    ibv_recv_wr* bad = nullptr;
    if (ibv_post_recv(on, &what, &bad) != 0) throw std::runtime_error("receive refused");
}

}  // namespace accel::softnic::testing::gpu
