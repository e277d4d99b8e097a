// SPDX-License-Identifier: Apache-2.0
// Queues made by DevX in the memory of a GPU: work requests, records and completions are there. Run under `softnic run`
// on a machine with a CUDA GPU; exit status 77 without one.
#include "devx_in_memory.hpp"
#include "gpu_rig.cuh"

#include <cstdio>

#include <gtest/gtest.h>

namespace {

namespace st = accel::softnic::testing;
namespace gpu = accel::softnic::testing::gpu;

/// Memory of the GPU, which the host reaches by copies.
class copied {
  public:
    [[nodiscard]] std::uint64_t address() const { return memory_.address(); }
    void put(std::size_t offset, const void* from, std::size_t size) const {
        EXPECT_EQ(cudaMemcpy(memory_.at(offset), from, size, cudaMemcpyHostToDevice), cudaSuccess);
    }
    void get(std::size_t offset, void* to, std::size_t size) const {
        EXPECT_EQ(cudaMemcpy(to, memory_.at(offset), size, cudaMemcpyDeviceToHost), cudaSuccess);
    }

  private:
    gpu::buffer memory_{1 << 16};
};

TEST(gpu_devx, work_requests_records_and_completions_are_in_memory_of_the_gpu) {
    copied queues;
    copied data;
    st::devx_in_memory<copied> pair(queues, data);
    pair.write_many(100);
}

}  // namespace

int main(int count, char** arguments) {
    ::testing::InitGoogleTest(&count, arguments);
    if (const char* why = gpu::missing()) {
        std::printf("skipped: %s\n", why);
        return 77;
    }
    return RUN_ALL_TESTS();
}
