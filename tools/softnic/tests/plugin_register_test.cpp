// SPDX-License-Identifier: Apache-2.0
// Doorbell pages, mapped by a program whose plugins brought CUDA's libraries along (dlopen, RTLD_LOCAL): UCX's modules,
// Python's. Run under `softnic run`, with the folder of stand-ins for these libraries as argument.
#include "verbs_pair.hpp"

#include <cstddef>
#include <string>

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>

// The preloaded library has them.
extern "C" {
[[gnu::weak]] int cudaHostRegister(void* at, std::size_t size, unsigned flags);
[[gnu::weak]] int cuMemHostRegister_v2(void* at, std::size_t size, unsigned flags);
}

namespace {

namespace st = accel::softnic::testing;

constexpr unsigned portable = 1;
constexpr unsigned io_memory = 4;
constexpr int not_supported = 801;

std::string folder;

using register_function = int(void* at, std::size_t size, unsigned flags);

void expect_finds(register_function* function, const std::string& library) {
    const st::context_owner context = st::open_device();
    mlx5dv_devx_uar* const page = mlx5dv_devx_alloc_uar(context.get(), MLX5DV_UAR_ALLOC_TYPE_NC);
    ASSERT_NE(page, nullptr);
    ASSERT_NE(function, nullptr);
    EXPECT_EQ(function(page->reg_addr, 256, portable | io_memory), not_supported) << "nothing is loaded yet";
    void* const loaded = dlopen((folder + "/" + library).c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(loaded, nullptr) << dlerror();
    EXPECT_EQ(function(page->reg_addr, 256, portable | io_memory), 0);
    EXPECT_EQ(*static_cast<unsigned*>(dlsym(loaded, "last_flags")), portable);
    mlx5dv_devx_free_uar(page);
}

TEST(plugin_register, finds_the_driver) {
    expect_finds(cuMemHostRegister_v2, "libcuda.so");
}

TEST(plugin_register, finds_the_runtime) {
    expect_finds(cudaHostRegister, "libcudart.so");
}

}  // namespace

int main(int count, char** arguments) {
    ::testing::InitGoogleTest(&count, arguments);
    if (count < 2) return 2;
    folder = arguments[1];
    return RUN_ALL_TESTS();
}
