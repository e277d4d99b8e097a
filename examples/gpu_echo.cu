// SPDX-License-Identifier: Apache-2.0
// A GPU-resident service: the kernel below waits for requests, and posts the responses to the NIC
// itself.
//   gpu_echo gpu://0.0.0.0:7000?insecure=true
//   hello_client rdma://HOST:7000?insecure=true "hello there"
#include <accel_transport/accel_transport.hpp>
#include <accel_transport/device/service.hpp>
#include <accel_transport/gpu_service.hpp>

#include <cstdio>

namespace device = accel::device;

/// One block for one request at a time; its threads turn the letters into capitals.
__global__ void shout(device::service_ref service) {
    __shared__ device::exchange_ref exchange;
    for (;;) {
        const accel::status found = device::wait<device::block_scope>(service, exchange, 1'000'000'000);
        if (found == accel::status::timed_out) continue;
        if (found != accel::status::ok) return;
        const std::uint64_t length = min(exchange.request_bytes, exchange.response_room);
        for (std::uint64_t i = threadIdx.x; i < length; i += blockDim.x) {
            const auto letter = static_cast<char>(exchange.request[i]);
            const bool small = letter >= 'a' && letter <= 'z';
            exchange.response[i] = static_cast<std::byte>(small ? letter - 'a' + 'A' : letter);
        }
        (void)device::reply<device::block_scope>(service, exchange, length);
    }
}

int fail(const char* why) {
    std::fprintf(stderr, "gpu_echo: %s\n", why);
    return 1;
}

int main(int argc, char** argv) {
    auto context = accel::context::open();
    if (!context) return fail(context.error().message.c_str());
    auto service = accel::gpu_service::listen(*context, argc > 1 ? argv[1] : "gpu://127.0.0.1:0?insecure=true");
    if (!service) return fail(service.error().message.c_str());

    cudaSetDevice(service->memory().ordinal);
    cudaStream_t stream = nullptr;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    shout<<<8, 128, 0, stream>>>(service->ref());
    if (const auto code = cudaGetLastError(); code != cudaSuccess) return fail(cudaGetErrorString(code));

    std::printf("serving %s; end it with the Enter key\n", service->endpoint().c_str());
    std::fflush(stdout);
    std::getchar();
    const accel::status ended = service->stop(stream, std::chrono::seconds{5});
    std::printf("%llu requests\n", static_cast<unsigned long long>(service->statistics().replies));
    return ended == accel::status::ok ? 0 : 1;
}
