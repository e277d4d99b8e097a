// SPDX-License-Identifier: Apache-2.0
// A GPU-resident client: the kernel below writes a request, posts it to the NIC itself and reads the response, whole or
// part by part, as its server sends it (docs/parts.md).
//   gpu_client gpu://HOST:7000?insecure=true "hello there"
#include <accel_transport/accel_transport.hpp>
#include <accel_transport/device/client.hpp>
#include <accel_transport/gpu_channel.hpp>

#include <cstdio>
#include <cstring>

namespace device = accel::device;

struct message {
    char text[256];
    std::uint64_t length;
    accel::status outcome;
};

/// One block makes one call; `line` is the request, and becomes the response, as far as it fits.
__global__ void ask(const __grid_constant__ device::channel_ref channel, message* line) {
    __shared__ device::call_ref call;
    __shared__ device::arrival_ref part;
    accel::status found = device::begin<device::block_scope>(channel, call);
    if (found == accel::status::ok) {
        for (auto i = threadIdx.x; i < line->length; i += blockDim.x)
            call.request[i] = static_cast<std::byte>(line->text[i]);
        found = device::submit<device::block_scope>(channel, call, line->length, {.parts = 4});
    }
    std::uint64_t length = 0;
    for (bool more = found == accel::status::ok; more;) {
        found = device::wait<device::block_scope>(channel, call, part);
        more = part.more;
        for (std::uint64_t i = threadIdx.x; i < part.response_bytes && length + i < sizeof line->text; i += blockDim.x)
            line->text[length + i] = static_cast<char>(part.response[i]);
        length += part.response_bytes;
        (void)device::release<device::block_scope>(channel, part);  // the server may send one more
    }
    if (threadIdx.x != 0) return;
    line->outcome = found;
    line->length = length < sizeof line->text ? length : sizeof line->text;
}

int fail(const char* why) {
    std::fprintf(stderr, "gpu_client: %s\n", why);
    return 1;
}

int main(int argc, char** argv) {
    if (argc < 2) return fail("usage: gpu_client gpu://HOST:PORT?insecure=true [TEXT]");
    auto context = accel::context::open();
    if (!context) return fail(context.error().message.c_str());
    auto channel = accel::gpu_channel::connect(*context, argv[1]);
    if (!channel) return fail(channel.error().message.c_str());

    cudaSetDevice(channel->memory().ordinal);
    message* line = nullptr;
    if (const auto code = cudaMallocHost(&line, sizeof *line); code != cudaSuccess)
        return fail(cudaGetErrorString(code));
    std::snprintf(line->text, sizeof line->text, "%s", argc > 2 ? argv[2] : "hello");
    line->length = std::strlen(line->text);
    cudaStream_t stream = nullptr;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    ask<<<1, 64, 0, stream>>>(channel->ref(), line);
    if (const auto code = cudaStreamSynchronize(stream); code != cudaSuccess) return fail(cudaGetErrorString(code));
    if (line->outcome != accel::status::ok) return fail(to_string(line->outcome).data());
    std::printf("%.*s\n", static_cast<int>(line->length), line->text);
    return channel->close(stream, std::chrono::seconds{5}) == accel::status::ok ? 0 : 1;
}
