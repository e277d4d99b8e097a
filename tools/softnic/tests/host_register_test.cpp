// SPDX-License-Identifier: Apache-2.0
// Doorbell pages that a program wants to map into a GPU. This program has functions in the place of CUDA's, in a
// library that the preloaded one finds behind itself. Run under `softnic run`.
#include "verbs_pair.hpp"

#include <vector>

#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>

// fake_host_register.cpp
extern "C" {
int cudaHostRegister(void* at, std::size_t size, unsigned flags);
int cuMemHostRegister_v2(void* at, std::size_t size, unsigned flags);
extern unsigned last_flags;
}

namespace {

namespace st = accel::softnic::testing;

constexpr unsigned portable = 1;
constexpr unsigned io_memory = 4;

TEST(host_register, takes_doorbell_pages_without_the_flag_for_io_memory) {
    const st::context_owner context = st::open_device();
    mlx5dv_devx_uar* const page = mlx5dv_devx_alloc_uar(context.get(), MLX5DV_UAR_ALLOC_TYPE_NC);
    ASSERT_NE(page, nullptr);
    EXPECT_EQ(cudaHostRegister(page->base_addr, 4096, portable | io_memory), 0);
    EXPECT_EQ(last_flags, portable);
    EXPECT_EQ(cuMemHostRegister_v2(page->base_addr, 4096, portable | io_memory), 0);
    EXPECT_EQ(last_flags, portable);
    mlx5dv_devx_free_uar(page);
}

TEST(host_register, leaves_the_flags_of_other_memory_alone) {
    std::vector<char> memory(8192);
    EXPECT_NE(cudaHostRegister(memory.data(), 4096, io_memory), 0);
    EXPECT_EQ(last_flags, io_memory);
    EXPECT_EQ(cuMemHostRegister_v2(memory.data(), 4096, portable), 0);
    EXPECT_EQ(last_flags, portable);
}

}  // namespace
