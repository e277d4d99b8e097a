// SPDX-License-Identifier: Apache-2.0
// The copy kernel: one block that serves one lane for as long as there is work, and a little longer.
#include "gpu/job.hpp"

namespace {

using namespace accel::softnic::gpu;

constexpr unsigned loads_in_flight = 4;
constexpr unsigned whole_warp = 0xffffffff;

__device__ unsigned long long nanoseconds() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

/// Volatile, and .cv below: the host or another GPU may have changed it.
template <class T>
__device__ void move(char* to, const char* from) {
    *reinterpret_cast<volatile T*>(to) = *reinterpret_cast<const volatile T*>(from);
}

/// Few bytes, by one thread, each aligned word whole. Both addresses are the same modulo 16.
__device__ void move_words(char* to, const char* from, unsigned size) {
    while (size != 0) {
        const auto at = reinterpret_cast<unsigned long long>(to);
        unsigned step = 8;
        while (step > size || (at & (step - 1)) != 0) step /= 2;
        switch (step) {
            case 8:
                move<unsigned long long>(to, from);
                break;
            case 4:
                move<unsigned>(to, from);
                break;
            case 2:
                move<unsigned short>(to, from);
                break;
            default:
                move<unsigned char>(to, from);
        }
        to += step;
        from += step;
        size -= step;
    }
}

__device__ void move_vectors(char* to, const char* from, unsigned count) {
    auto* out = reinterpret_cast<uint4*>(to);
    const auto* in = reinterpret_cast<const uint4*>(from);
    unsigned at = threadIdx.x;
    for (; at + (loads_in_flight - 1) * blockDim.x < count; at += loads_in_flight * blockDim.x) {
        uint4 held[loads_in_flight];
#pragma unroll
        for (unsigned part = 0; part < loads_in_flight; ++part) held[part] = __ldcv(in + at + part * blockDim.x);
#pragma unroll
        for (unsigned part = 0; part < loads_in_flight; ++part) out[at + part * blockDim.x] = held[part];
    }
    for (; at < count; at += blockDim.x) out[at] = __ldcv(in + at);
}

/// By the whole block. `flag_last`: the last word of up to 8 bytes goes behind all others, as programs poll
/// it.
__device__ void copy(char* to, const char* from, unsigned size, bool flag_last) {
    const auto start = reinterpret_cast<unsigned long long>(to);
    const unsigned long long last_word = (start + size - 1) & ~7ull;
    const unsigned long long tail = last_word > start ? last_word : start;
    const unsigned body = static_cast<unsigned>(tail - start);
    const unsigned to_vectors = static_cast<unsigned>(-start & 15);
    const unsigned head = to_vectors < body ? to_vectors : body;
    const unsigned vectors = (body - head) / 16;
    const unsigned rest = head + vectors * 16;
    if (threadIdx.x == 32) move_words(to, from, head);
    if (threadIdx.x == 64) move_words(to + rest, from + rest, body - rest);
    move_vectors(to + head, from + head, vectors);
    if (flag_last && body != 0) {
        __syncthreads();
        if (threadIdx.x == 0) __threadfence_system();
    }
    if (threadIdx.x == 0) move_words(to + body, from + body, size - body);
}

__device__ unsigned long long pair_of(const unsigned* words) {
    return words[0] | static_cast<unsigned long long>(words[1]) << 32;
}

/// Again each time, which a weak load such as ld.cv need not: the compiler may take it out of a loop.
__device__ uint4 look_at(const uint4* at) {
    uint4 seen;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(seen.x), "=r"(seen.y), "=r"(seen.z), "=r"(seen.w)
                 : "l"(at)
                 : "memory");
    return seen;
}

/// Waits for job `number`, with the first warp. False: nothing has come for too long.
__device__ bool await(const lane_memory* lane, unsigned number, unsigned long long until, unsigned* content) {
    const unsigned quad = threadIdx.x % quad_words;
    const auto* line = reinterpret_cast<const uint4*>(lane->ring[(number - 1) % lane_depth]);
    while (true) {
        const uint4 seen = look_at(line + quad);
        if (__all_sync(whole_warp, seen.x == number)) {
            if (threadIdx.x < line_words / quad_words) {
                content[quad * 3] = seen.y;
                content[quad * 3 + 1] = seen.z;
                content[quad * 3 + 2] = seen.w;
            }
            __threadfence_system();  // what the job points to was written before it
            return true;
        }
        if (__any_sync(whole_warp, nanoseconds() > until)) return false;
    }
}

__device__ void serve(lane_memory* lane, const unsigned* content, char* payload) {
    const auto what = static_cast<action>(content[0] & 7);
    const unsigned size = content[0] >> 4;
    auto* memory = reinterpret_cast<char*>(pair_of(content + 1));
    auto* host = reinterpret_cast<char*>(pair_of(content + 3));
    if (what == action::write && (content[0] & 8) != 0) {
        char* aligned = payload + (reinterpret_cast<unsigned long long>(memory) & 15);
        if (threadIdx.x < size) aligned[threadIdx.x] = reinterpret_cast<const char*>(content + 3)[threadIdx.x];
        __syncthreads();
        if (threadIdx.x != 0) return;
        const auto start = reinterpret_cast<unsigned long long>(memory);
        const unsigned long long last_word = (start + size - 1) & ~7ull;
        const unsigned body = last_word > start ? static_cast<unsigned>(last_word - start) : 0;
        move_words(memory, aligned, body);
        if (body != 0) __threadfence_system();
        move_words(memory + body, aligned + body, size - body);
    } else if (what == action::write) {
        copy(memory, host, size, true);
    } else if (what == action::read) {
        copy(host, memory, size, false);
    } else if (threadIdx.x == 0) {
        auto* word = reinterpret_cast<unsigned long long*>(memory);
        const unsigned long long before = what == action::fetch_add
                                              ? atomicAdd_system(word, pair_of(content + 3))
                                              : atomicCAS_system(word, pair_of(content + 5), pair_of(content + 3));
        *reinterpret_cast<volatile unsigned long long*>(&lane->previous) = before;
    }
}

}  // namespace

/// Begins with job `number`. Leaves after `idle_ns` without work, and after `stay_ns` in any case: who waits
/// for the device to become idle shall not wait for ever.
extern "C" __global__ void __launch_bounds__(1024)
    softnic_copy(lane_memory* lane, unsigned number, unsigned service, unsigned long long idle_ns,
                 unsigned long long stay_ns) {
    __shared__ unsigned content[content_words];
    __shared__ alignas(16) char payload[inline_bytes + 16];
    __shared__ bool working;
    const unsigned long long start = nanoseconds();
    while (true) {
        if (threadIdx.x < 32) {
            const bool found = await(lane, number, nanoseconds() + idle_ns, content);
            if (threadIdx.x == 0) working = found;
        }
        __syncthreads();
        if (!working) break;
        serve(lane, content, payload);
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence_system();
            *static_cast<volatile unsigned*>(&lane->done) = number;
            working = nanoseconds() - start < stay_ns;
        }
        ++number;
        __syncthreads();
        if (!working) break;
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        __threadfence_system();
        *static_cast<volatile unsigned*>(&lane->left) = service;
    }
}
