// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/host_device.hpp>

#include <cstdint>

/// Fences between a program (or kernel) and an adapter that reads and writes the same memory, named by what
/// they order. x86-64 keeps stores to memory in order, and loads; what it does not order are stores to memory
/// and to a doorbell page, which is mapped write-combining. A GPU orders nothing by itself: each fence is one
/// of system scope, cumulative (what other threads stored, and this one knows of by a barrier, is ordered
/// too), and costs a way to the host and back if stores to its memory are under way.
namespace accel::mlx5 {

/// Where the ring and the doorbell record of a queue lie that a GPU drives.
enum class queue_place : std::uint8_t { host, gpu };

#if defined(__CUDA_ARCH__)
/// With a strong access on its other side this is a release or an acquire pattern, all that is needed. What
/// `__threadfence_system` does, a sequentially consistent fence, is more.
__device__ inline void order_for_system() noexcept {
    asm volatile("fence.acq_rel.sys;" ::: "memory");
}
/// Enough where ring, record and message all lie in this GPU's memory: the GPU's L2 cache, which this fence
/// reaches, is where the adapter's reads of that memory are served. No way to the host and back.
__device__ inline void order_for_gpu() noexcept {
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
}
#endif

ACCEL_HOST_DEVICE inline void order_stores_to_memory() noexcept {
#if defined(__CUDA_ARCH__)
    order_for_system();
#elif defined(__x86_64__)
    asm volatile("" ::: "memory");
#elif defined(__aarch64__)
    asm volatile("dmb oshst" ::: "memory");
#else
    __sync_synchronize();
#endif
}

ACCEL_HOST_DEVICE inline void order_stores_to_device() noexcept {
#if defined(__CUDA_ARCH__)
    order_for_system();
#elif defined(__x86_64__)
    asm volatile("sfence" ::: "memory");
#elif defined(__aarch64__)
    asm volatile("dsb st" ::: "memory");
#else
    __sync_synchronize();
#endif
}

ACCEL_HOST_DEVICE inline void order_loads() noexcept {
#if defined(__CUDA_ARCH__)
    order_for_system();
#elif defined(__x86_64__)
    asm volatile("" ::: "memory");
#elif defined(__aarch64__)
    asm volatile("dmb oshld" ::: "memory");
#else
    __sync_synchronize();
#endif
}

/// A work request is whole in memory before the doorbell record counts it.
template <queue_place Place = queue_place::host>
ACCEL_HOST_DEVICE inline void order_wqe_before_doorbell_record() noexcept {
#if defined(__CUDA_ARCH__)
    if constexpr (Place == queue_place::gpu) return order_for_gpu();
#endif
    order_stores_to_memory();
}
/// A receive is whole in memory before the doorbell record counts it.
ACCEL_HOST_DEVICE inline void order_receive_before_doorbell_record() noexcept {
    order_stores_to_memory();
}
/// The doorbell record is in memory before the doorbell rings: they are different destinations.
template <queue_place Place = queue_place::host>
ACCEL_HOST_DEVICE inline void order_doorbell_record_before_doorbell() noexcept {
#if defined(__CUDA_ARCH__)
    if constexpr (Place == queue_place::gpu) return order_for_gpu();
#endif
    order_stores_to_device();
}
/// The doorbell leaves the processor now, and before the next one.
ACCEL_HOST_DEVICE inline void flush_doorbell() noexcept {
#if !defined(__CUDA_ARCH__)
    order_stores_to_device();
#endif
}
/// A completion is read after the byte that says whose it is.
ACCEL_HOST_DEVICE inline void order_owner_before_completion() noexcept {
    order_loads();
}
/// Loads after a flag, of a slot or in a completion, see what the adapter wrote before the flag.
ACCEL_HOST_DEVICE inline void order_flag_before_payload() noexcept {
    order_loads();
}
/// A completion has been read before its place is given back.
ACCEL_HOST_DEVICE inline void order_completion_before_consumer_record() noexcept {
#if defined(__CUDA_ARCH__)
    order_for_system();
#elif defined(__x86_64__)
    asm volatile("" ::: "memory");
#else
    __sync_synchronize();
#endif
}

/// One store that the adapter sees whole.
template <class Word>
ACCEL_HOST_DEVICE inline void store_whole(Word* where, Word value) noexcept {
#if defined(__CUDA_ARCH__)
    *const_cast<volatile Word*>(where) = value;
#else
    __atomic_store(where, &value, __ATOMIC_RELAXED);
#endif
}
/// A flag that the adapter, or the host, writes last: what it wrote before is read after it.
template <class Word>
ACCEL_HOST_DEVICE inline Word load_flag(const Word* where) noexcept {
#if defined(__CUDA_ARCH__)
    static_assert(sizeof(Word) == 1 || sizeof(Word) == 4);
    std::uint32_t value = 0;
    if constexpr (sizeof(Word) == 1)
        asm volatile("ld.acquire.sys.u8 %0, [%1];" : "=r"(value) : "l"(where) : "memory");
    else
        asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(where) : "memory");
    return static_cast<Word>(value);
#else
    Word value;
    __atomic_load(where, &value, __ATOMIC_ACQUIRE);
    return value;
#endif
}
/// A doorbell, after the work requests and messages that were written before, wherever they lie (`order_for_gpu` says
/// what `gpu` asks for).
template <queue_place Place>
ACCEL_HOST_DEVICE inline void store_doorbell(std::uint64_t* doorbell, std::uint64_t value) noexcept {
#if defined(__CUDA_ARCH__)
    if constexpr (Place == queue_place::gpu)
        asm volatile("st.release.gpu.global.u64 [%0], %1;" : : "l"(doorbell), "l"(value) : "memory");
    else
        asm volatile("st.release.sys.global.u64 [%0], %1;" : : "l"(doorbell), "l"(value) : "memory");
#else
    order_stores_to_device();
    store_whole(doorbell, value);
    flush_doorbell();
#endif
}
/// The other way: what was written before is read after it, by the adapter or the host.
template <class Word>
ACCEL_HOST_DEVICE inline void store_flag(Word* where, Word value) noexcept {
#if defined(__CUDA_ARCH__)
    static_assert(sizeof(Word) == 4);
    asm volatile("st.release.sys.u32 [%0], %1;" : : "l"(where), "r"(value) : "memory");
#else
    __atomic_store(where, &value, __ATOMIC_RELEASE);
#endif
}
/// One load of what the adapter may be writing.
template <class Word>
ACCEL_HOST_DEVICE inline Word load_whole(const Word* where) noexcept {
#if defined(__CUDA_ARCH__)
    return *const_cast<const volatile Word*>(where);
#else
    Word value;
    __atomic_load(where, &value, __ATOMIC_RELAXED);
    return value;
#endif
}

}  // namespace accel::mlx5
