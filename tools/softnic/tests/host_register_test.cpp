// SPDX-License-Identifier: Apache-2.0
// Doorbell pages that a program wants to map into a GPU. This program has functions in the place of CUDA's, in a
// library that the preloaded one finds behind itself. Run under `softnic run`.
#include "verbs_pair.hpp"

#include <cstdint>
#include <vector>

#include <dlfcn.h>
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

using register_function = int(void* at, std::size_t size, unsigned flags);
using get_by_name_v2 = int(const char* name, void** found, int version, std::uint64_t flags, int* status);
using get_by_name = int(const char* name, void** found, int version, std::uint64_t flags);

/// The library that holds the stand-ins, as a static CUDA runtime opens the driver's.
void* open_driver() {
    return dlopen("libsoftnic_fake_host_register.so", RTLD_NOW | RTLD_NOLOAD);
}

template <class Function>
Function* look_up(void* library, const char* name) {
    return reinterpret_cast<Function*>(dlsym(library, name));
}

void expect_takes_doorbell_page(register_function* function) {
    const st::context_owner context = st::open_device();
    mlx5dv_devx_uar* const page = mlx5dv_devx_alloc_uar(context.get(), MLX5DV_UAR_ALLOC_TYPE_NC);
    ASSERT_NE(page, nullptr);
    ASSERT_NE(function, nullptr);
    last_flags = ~0u;
    EXPECT_EQ(function(page->reg_addr, 8, portable | io_memory), 0);
    EXPECT_EQ(last_flags, portable);
    std::vector<char> memory(8192);
    EXPECT_NE(function(memory.data(), 4096, io_memory), 0);
    mlx5dv_devx_free_uar(page);
}

/// By its name, or through the lookups of the driver, of this version and of older ones.
TEST(host_register, the_function_is_found_by_each_way_there_is) {
    void* const driver = open_driver();
    ASSERT_NE(driver, nullptr);
    expect_takes_doorbell_page(look_up<register_function>(driver, "cuMemHostRegister_v2"));
    auto* const find = look_up<get_by_name_v2>(driver, "cuGetProcAddress_v2");
    auto* const find_old = look_up<get_by_name>(driver, "cuGetProcAddress");
    ASSERT_TRUE(find != nullptr && find_old != nullptr);
    void* found = nullptr;
    int status = -1;
    ASSERT_EQ(find("cuMemHostRegister", &found, 13000, 0, &status), 0);
    EXPECT_EQ(status, 0);
    expect_takes_doorbell_page(reinterpret_cast<register_function*>(found));
    ASSERT_EQ(find("cuGetProcAddress", &found, 13000, 0, &status), 0);
    ASSERT_EQ(reinterpret_cast<get_by_name_v2*>(found)("cuMemHostRegister", &found, 13000, 0, nullptr), 0);
    expect_takes_doorbell_page(reinterpret_cast<register_function*>(found));
    ASSERT_EQ(find_old("cuMemHostRegister", &found, 11040, 0), 0);
    expect_takes_doorbell_page(reinterpret_cast<register_function*>(found));
    EXPECT_NE(find_old("cuNothing", &found, 11040, 0), 0);
}

TEST(symbol_lookup, the_lookup_answers_as_the_c_library_does) {
    EXPECT_EQ(dlsym(RTLD_DEFAULT, "there_is_no_such_function"), nullptr);
    EXPECT_NE(dlerror(), nullptr);
    EXPECT_NE(dlsym(RTLD_DEFAULT, "printf"), nullptr);
    // Looked up for this program: what comes behind it, not what comes behind the preloaded library.
    EXPECT_EQ(dlsym(RTLD_NEXT, "main"), nullptr);
    EXPECT_EQ(dlsym(RTLD_NEXT, "ioctl"), dlsym(RTLD_DEFAULT, "ioctl"));
}

TEST(host_register, leaves_the_flags_of_other_memory_alone) {
    std::vector<char> memory(8192);
    EXPECT_NE(cudaHostRegister(memory.data(), 4096, io_memory), 0);
    EXPECT_EQ(last_flags, io_memory);
    EXPECT_EQ(cuMemHostRegister_v2(memory.data(), 4096, portable), 0);
    EXPECT_EQ(last_flags, portable);
}

}  // namespace
