// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/host_device.hpp>

#include <cstdint>

#if defined(__CUDACC_VER_MAJOR__) && (__CUDACC_VER_MAJOR__ > 12 || __CUDACC_VER_MINOR__ >= 3)
#define ACCEL_CUDA_HAS_B128 1
#else
#define ACCEL_CUDA_HAS_B128 0
#endif

/// Words and quads that a GPU and threads of the host exchange through memory that both reach.
namespace accel::proxy {

/// 12 bytes of content and the mark that says which time round the ring they belong to.
struct alignas(16) tagged_quad {
    std::uint32_t content[3];
    std::uint32_t tag;
};
static_assert(sizeof(tagged_quad) == 16);

/// The tag of entry `number` of a ring, numbers being free-running. Fresh memory, all 0, holds no entry.
[[nodiscard]] ACCEL_HOST_DEVICE inline std::uint32_t tag_of(std::uint32_t number) noexcept {
    return number + 1;
}

/// Content and tag become visible together, so no fence stands between them. A GPU stores 16 bytes at once:
/// .b128 is one access by definition, .v4 (before CUDA 12.3) by what the hardware makes of it. The host
/// stores the tag last, as a release, for want of a portable store of 16 bytes: a reader that loads all 16 at
/// once, or the tag first, finds the content no older than the tag.
ACCEL_HOST_DEVICE inline void store_quad(tagged_quad* where, const tagged_quad& quad) noexcept {
#if defined(__CUDA_ARCH__) && ACCEL_CUDA_HAS_B128
    const std::uint64_t low = (std::uint64_t{quad.content[1]} << 32) | quad.content[0];
    const std::uint64_t high = (std::uint64_t{quad.tag} << 32) | quad.content[2];
    asm volatile("{ .reg .b128 whole; mov.b128 whole, {%1, %2}; st.relaxed.sys.global.b128 [%0], whole; }"
                 :
                 : "l"(where), "l"(low), "l"(high)
                 : "memory");
#elif defined(__CUDA_ARCH__)
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(where), "r"(quad.content[0]), "r"(quad.content[1]), "r"(quad.content[2]), "r"(quad.tag)
                 : "memory");
#else
    for (int i = 0; i < 3; ++i) __atomic_store_n(&where->content[i], quad.content[i], __ATOMIC_RELAXED);
    __atomic_store_n(&where->tag, quad.tag, __ATOMIC_RELEASE);
#endif
}

/// False: the quad does not have `tag`, and `out` is not to be used. What its writer had stored before the
/// quad is seen by the host after a `true`; a GPU needs `order_quad_before_rest` for that.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool load_quad(const tagged_quad* where, std::uint32_t tag,
                                                      tagged_quad& out) noexcept {
#if defined(__CUDA_ARCH__) && ACCEL_CUDA_HAS_B128
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    asm volatile("{ .reg .b128 whole; ld.relaxed.sys.global.b128 whole, [%2]; mov.b128 {%0, %1}, whole; }"
                 : "=l"(low), "=l"(high)
                 : "l"(where)
                 : "memory");
    out.content[0] = static_cast<std::uint32_t>(low);
    out.content[1] = static_cast<std::uint32_t>(low >> 32);
    out.content[2] = static_cast<std::uint32_t>(high);
    out.tag = static_cast<std::uint32_t>(high >> 32);
    return out.tag == tag;
#elif defined(__CUDA_ARCH__)
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out.content[0]), "=r"(out.content[1]), "=r"(out.content[2]), "=r"(out.tag)
                 : "l"(where)
                 : "memory");
    return out.tag == tag;
#else
    out.tag = __atomic_load_n(&where->tag, __ATOMIC_ACQUIRE);
    if (out.tag != tag) return false;
    for (int i = 0; i < 3; ++i) out.content[i] = __atomic_load_n(&where->content[i], __ATOMIC_RELAXED);
    return true;
#endif
}

/// After a quad was read: loads from here on see what its writer stored before the quad.
ACCEL_HOST_DEVICE inline void order_quad_before_rest() noexcept {
#if defined(__CUDA_ARCH__)
    asm volatile("fence.acq_rel.sys;" ::: "memory");
#endif
}
/// Release: whoever sees the quads that this thread stores next sees its earlier stores as well, and what it had seen.
/// On the host each quad does that by itself.
ACCEL_HOST_DEVICE inline void order_rest_before_quad() noexcept {
#if defined(__CUDA_ARCH__)
    asm volatile("fence.acq_rel.sys;" ::: "memory");
#endif
}

}  // namespace accel::proxy
