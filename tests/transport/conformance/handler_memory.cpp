// SPDX-License-Identifier: Apache-2.0
#include "handler_memory.hpp"

#include "core/context_state.hpp"
#include "core/internals.hpp"
#include "gpu/fake_gpu.hpp"
#include "gpu_harness.hpp"
#include "payload.hpp"

#include <cstdlib>
#include <string_view>

#if ACCEL_TEST_CUDA
#include <cuda_runtime_api.h>
#endif

namespace accel::tests {
namespace {

std::string_view wanted() {
    const char* text = std::getenv("ACCEL_TEST_MEMORY");
    return text == nullptr || *text == '\0' ? "host" : text;
}

const std::shared_ptr<fake_accelerator>& fake() {
    static const auto all = std::make_shared<fake_accelerator>();
    return all;
}

void use_fake() {
    elsewhere.holds = [](const std::byte* bytes) { return fake()->device().holds(bytes, 1); };
    const auto settled_copy = [](std::byte* to, const std::byte* from, std::size_t bytes) {
        while (fake()->device().at_work > 0) std::this_thread::yield();
        if (bytes > 0) std::memcpy(to, from, bytes);
    };
    elsewhere.read = elsewhere.write = settled_copy;
}

#if ACCEL_TEST_CUDA
void use_cuda() {
    elsewhere.holds = [](const std::byte* bytes) {
        cudaPointerAttributes found{};
        return cudaPointerGetAttributes(&found, bytes) == cudaSuccess && found.type == cudaMemoryTypeDevice;
    };
    const auto settled_copy = [](std::byte* to, const std::byte* from, std::size_t bytes) {
        (void)cudaDeviceSynchronize();
        if (cudaMemcpy(to, from, bytes, cudaMemcpyDefault) != cudaSuccess) std::abort();
        // From pageable memory it may return before the bytes are there.
        (void)cudaDeviceSynchronize();
    };
    elsewhere.read = elsewhere.write = settled_copy;
}
#endif

memory_kind wanted_kind() {
    if (wanted().starts_with("cuda:"))
        return memory_kind::cuda(static_cast<std::int16_t>(std::atoi(wanted().substr(5).data())));
    return wanted() == "fake" ? memory_kind::cuda(0) : memory_kind::host();
}

}  // namespace

std::string missing_handler_memory() {
    if (!wanted().starts_with("cuda:")) return {};
#if ACCEL_TEST_CUDA
    auto opened = context::open({.log = log_level::off});
    const auto device = core::internals::state_of(*opened)->devices()->open(wanted_kind());
    return device ? std::string{} : device.error().message;
#else
    return "this build is without CUDA";
#endif
}

bool handlers_on_gpu() {
    return wanted_kind() != memory_kind::host();
}

void prepare(context& made) {
#if ACCEL_TEST_HARNESS
    core::internals::state_of(made)->replace_backend(make_harness_backend(*core::internals::state_of(made)));
#endif
    if (wanted() != "fake") return;
    core::internals::state_of(made)->replace_devices(fake());
    static const bool once = (use_fake(), true);
    (void)once;
}

void prepare(server_options& options) {
    options.memory = wanted_kind();
    if (options.memory == memory_kind::host()) return;
    options.streams = 128;
#if ACCEL_TEST_CUDA
    if (wanted() != "fake") use_cuda();
#endif
}

}  // namespace accel::tests
