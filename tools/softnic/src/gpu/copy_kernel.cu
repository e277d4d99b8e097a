// SPDX-License-Identifier: Apache-2.0
// The copy kernel: one block that serves one lane for as long as there is work, and a little longer.
#include "gpu/job.hpp"

namespace {

using namespace accel::softnic::gpu;

constexpr unsigned loads_in_flight = 4;
constexpr unsigned whole_warp = 0xffffffff;
constexpr unsigned block = 1024;
/// That the host, which looks, takes to let a kernel begin. Longer it must not wait: what the host waits for may be the
/// end of this kernel.
constexpr unsigned long long longest_leave_ns = 1'100'000;
// Threads that move the ends of a copy, counted from the last one of a team, in warps that few copies need for what is
// between: who loads twice waits twice for PCIe.
constexpr unsigned moves_head = 96;
constexpr unsigned moves_rest = 64;
constexpr unsigned moves_last = 32;

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

/// By `team` threads, of which this is number `member`.
__device__ void move_vectors(char* to, const char* from, unsigned count, unsigned member, unsigned team) {
    auto* out = reinterpret_cast<uint4*>(to);
    const auto* in = reinterpret_cast<const uint4*>(from);
    unsigned at = member;
    for (; at + (loads_in_flight - 1) * team < count; at += loads_in_flight * team) {
        uint4 held[loads_in_flight];
#pragma unroll
        for (unsigned part = 0; part < loads_in_flight; ++part) held[part] = __ldcv(in + at + part * team);
#pragma unroll
        for (unsigned part = 0; part < loads_in_flight; ++part) out[at + part * team] = held[part];
    }
    for (; at < count; at += team) out[at] = __ldcv(in + at);
}

/// By `team` threads. `kept`: 32 bytes for the last word of up to 8 bytes, which is loaded with the others and goes
/// behind them, as programs poll it, and then all threads of the block are the team; null: it goes with them.
__device__ void copy(char* to, const char* from, unsigned size, char* kept, unsigned member, unsigned team) {
    const auto start = reinterpret_cast<unsigned long long>(to);
    const unsigned long long last_word = (start + size - 1) & ~7ull;
    const unsigned long long tail = last_word > start ? last_word : start;
    const unsigned body = static_cast<unsigned>(tail - start);
    const unsigned to_vectors = static_cast<unsigned>(-start & 15);
    const unsigned head = to_vectors < body ? to_vectors : body;
    const unsigned vectors = (body - head) / 16;
    const unsigned rest = head + vectors * 16;
    char* const last = kept != nullptr ? kept + (tail & 15) : to + body;
    if (member == team - moves_head) move_words(to, from, head);
    if (member == team - moves_rest) move_words(to + rest, from + rest, body - rest);
    if (member == team - moves_last) move_words(last, from + body, size - body);
    move_vectors(to + head, from + head, vectors, member, team);
    if (kept == nullptr) return;
    __syncthreads();
    if (threadIdx.x != 0) return;
    __threadfence_system();  // behind what jobs before it wrote, too
    move_words(to + body, last, size - body);
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

/// How many jobs one look finds: a warp reads as many lines at once.
constexpr unsigned jobs_at_once = 8;
static_assert(jobs_at_once * line_words / quad_words == 32 && jobs_at_once <= lane_depth);

/// Waits for job `number`, with the first warp. How many there are from there on; 0: nothing has come for too long.
__device__ unsigned await(const lane_memory* lane, unsigned number, unsigned long long until,
                          unsigned (*content)[content_words]) {
    const unsigned job = threadIdx.x / quad_words;
    const unsigned quad = threadIdx.x % quad_words;
    const auto* line = reinterpret_cast<const uint4*>(lane->ring[(number + job - 1) % lane_depth]);
    while (true) {
        const uint4 seen = look_at(line + quad);
        const unsigned missing = ~__ballot_sync(whole_warp, seen.x == number + job);
        const unsigned found = missing == 0 ? jobs_at_once : (__ffs(missing) - 1) / quad_words;
        if (found != 0) {
            content[job][quad * 3] = seen.y;
            content[job][quad * 3 + 1] = seen.z;
            content[job][quad * 3 + 2] = seen.w;
            __threadfence_system();  // what the jobs point to was written before them
            return found;
        }
        if (__any_sync(whole_warp, nanoseconds() > until)) return 0;
    }
}

__device__ void serve(lane_memory* lane, const unsigned* content, char* payload) {
    const auto what = static_cast<action>(content[0] & 7);
    const unsigned size = content[0] >> size_shift;
    auto* memory = reinterpret_cast<char*>(pair_of(content + 1));
    auto* host = reinterpret_cast<char*>(pair_of(content + 3));
    if (what == action::write && (content[0] & in_line_bit) != 0) {
        char* aligned = payload + (reinterpret_cast<unsigned long long>(memory) & 15);
        if (threadIdx.x < size) aligned[threadIdx.x] = reinterpret_cast<const char*>(content + 3)[threadIdx.x];
        __syncthreads();
        if (threadIdx.x != 0) return;
        const auto start = reinterpret_cast<unsigned long long>(memory);
        const unsigned long long last_word = (start + size - 1) & ~7ull;
        const unsigned body = last_word > start ? static_cast<unsigned>(last_word - start) : 0;
        move_words(memory, aligned, body);
        __threadfence_system();
        move_words(memory + body, aligned + body, size - body);
    } else if (what == action::write) {
        copy(memory, host, size, payload, threadIdx.x, block);
    } else if (what == action::read) {
        copy(host, memory, size, nullptr, threadIdx.x, block);
    } else if (threadIdx.x == 0) {
        auto* word = reinterpret_cast<unsigned long long*>(memory);
        const unsigned long long before = what == action::fetch_add
                                              ? atomicAdd_system(word, pair_of(content + 3))
                                              : atomicCAS_system(word, pair_of(content + 5), pair_of(content + 3));
        *reinterpret_cast<volatile unsigned long long*>(&lane->previous) = before;
    }
}

/// How many loose jobs there are at the start of these.
__device__ unsigned loose_at_start(const unsigned (*content)[content_words], unsigned count) {
    unsigned found = 0;
    while (found < count && (content[found][0] & loose_bit) != 0) ++found;
    return found;
}

/// So many loose jobs beside each other, by the whole block.
__device__ void serve_loose(const unsigned (*content)[content_words], unsigned count) {
    unsigned teams = 1;
    while (teams < count) teams *= 2;
    const unsigned team = block / teams;
    const unsigned job = threadIdx.x / team;
    if (job >= count) return;
    const unsigned* const mine = content[job];
    copy(reinterpret_cast<char*>(pair_of(mine + 1)), reinterpret_cast<const char*>(pair_of(mine + 3)),
         mine[0] >> size_shift, nullptr, threadIdx.x % team, team);
}

/// Tells the host that it is here, and waits for its leave: until then the host does the jobs. By one thread. False: it
/// has not come for too long.
__device__ bool begin(lane_memory* lane, unsigned service, unsigned long long until, unsigned* number) {
    *static_cast<volatile unsigned*>(&lane->begun) = service;
    while (*static_cast<volatile unsigned*>(&lane->granted) != service)
        if (nanoseconds() > until) return false;
    __threadfence_system();
    *number = *static_cast<volatile unsigned*>(&lane->first);
    return true;
}

}  // namespace

/// Leaves after `idle_ns` without work, and after `stay_ns` in any case: who waits
/// for the device to become idle shall not wait for ever.
extern "C" __global__ void __launch_bounds__(block)
    softnic_copy(lane_memory* lane, unsigned service, unsigned long long idle_ns, unsigned long long stay_ns) {
    __shared__ unsigned content[jobs_at_once][content_words];
    __shared__ alignas(16) char payload[inline_bytes + 16];
    __shared__ unsigned found;
    __shared__ unsigned first;
    __shared__ bool stays;
    const unsigned long long start = nanoseconds();
    if (threadIdx.x == 0) stays = begin(lane, service, start + longest_leave_ns, &first);
    __syncthreads();
    unsigned number = first;
    while (stays) {
        if (threadIdx.x < 32) {
            const unsigned count = await(lane, number, nanoseconds() + idle_ns, content);
            if (threadIdx.x == 0) found = count;
        }
        __syncthreads();
        const unsigned count = found;
        if (count == 0) break;
        for (unsigned job = 0; job < count;) {
            const unsigned loose = loose_at_start(content + job, count - job);
            if (loose != 0)
                serve_loose(content + job, loose);
            else
                serve(lane, content[job], payload);
            job += loose != 0 ? loose : 1;
            __syncthreads();
        }
        number += count;
        if (threadIdx.x == 0) {
            __threadfence_system();
            *static_cast<volatile unsigned*>(&lane->done) = number - 1;
            stays = nanoseconds() - start < stay_ns;
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        __threadfence_system();
        *static_cast<volatile unsigned*>(&lane->left) = service;
    }
}
