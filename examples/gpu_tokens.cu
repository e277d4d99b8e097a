// SPDX-License-Identifier: Apache-2.0
// A GPU-resident service that streams: the kernel below sends each word of a prompt backwards, as a part of its own,
// and posts each part to the NIC itself (docs/parts.md). Its clients ask for parts, as gpu_client.cu and tokens.cpp do.
//   gpu_tokens gpu://0.0.0.0:7000?insecure=true
//   gpu_client gpu://HOST:7000?insecure=true "olleh dlrow"
#include <accel_transport/accel_transport.hpp>
#include <accel_transport/device/service.hpp>
#include <accel_transport/gpu_service.hpp>

#include <cstdio>

namespace device = accel::device;
using block = device::block_scope;

struct word {
    std::uint64_t begin;
    std::uint64_t end;
};

/// The first word from `at` on. A single thread looks for it: the client may rewrite its request meanwhile, and all
/// threads of the block have to see the same word.
__device__ word find_word(const device::exchange_ref& exchange, std::uint64_t at) {
    const auto is_space = [&](std::uint64_t i) { return exchange.request[i] == std::byte{' '}; };
    while (at < exchange.request_bytes && is_space(at)) ++at;
    word found{at, at};
    while (found.end < exchange.request_bytes && !is_space(found.end)) ++found.end;
    return found;
}

/// The word backwards, and a space, as the next part. Waits until the client has read enough, or wants no more.
__device__ accel::status send_word(const device::service_ref& service, const device::exchange_ref& exchange,
                                   device::part_ref& part, const word& next) {
    accel::status found = accel::status::again;
    while (found == accel::status::again && !device::cancelled<block>(service, exchange))
        found = device::next_part<block>(service, exchange, part);
    if (found != accel::status::ok) return found;
    const std::uint64_t length = next.end - next.begin;
    if (length >= part.room) return accel::status::message_too_large;
    for (std::uint64_t i = threadIdx.x; i < length; i += blockDim.x) part.bytes[i] = exchange.request[next.end - 1 - i];
    if (threadIdx.x == 0) part.bytes[length] = std::byte{' '};
    return device::send<block>(service, exchange, length + 1);
}

/// One block for one request at a time.
__global__ void generate(device::service_ref service) {
    __shared__ device::exchange_ref exchange;
    __shared__ device::part_ref part;
    __shared__ word next;
    for (;;) {
        const accel::status found = device::wait<block>(service, exchange, 1'000'000'000);
        if (found == accel::status::timed_out) continue;
        if (found != accel::status::ok) return;
        if (!device::in_parts(exchange)) {
            (void)device::fail<block>(service, exchange, accel::status::invalid_argument);
            continue;
        }
        if (threadIdx.x == 0) next = find_word(exchange, 0);
        __syncthreads();
        while (next.begin < next.end && send_word(service, exchange, part, next) == accel::status::ok) {
            if (threadIdx.x == 0) next = find_word(exchange, next.end);
            __syncthreads();
        }
        (void)device::reply<block>(service, exchange, 0);
    }
}

int fail(const char* why) {
    std::fprintf(stderr, "gpu_tokens: %s\n", why);
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
    generate<<<8, 64, 0, stream>>>(service->ref());
    if (const auto code = cudaGetLastError(); code != cudaSuccess) return fail(cudaGetErrorString(code));

    std::printf("serving %s; end it with the Enter key\n", service->endpoint().c_str());
    std::fflush(stdout);
    std::getchar();
    return service->stop(stream, std::chrono::seconds{5}) == accel::status::ok ? 0 : 1;
}
