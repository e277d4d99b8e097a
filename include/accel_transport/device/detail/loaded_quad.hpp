// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/mlx5/fences.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

/// Loads of 16 bytes, several of which are under way together.
namespace accel::device::detail {

/// One piece, as it is read.
struct alignas(16) loaded_quad {
    std::uint32_t words[4];
};
ACCEL_HOST_DEVICE inline void load_quad(const loaded_quad* from, loaded_quad& out) noexcept {
#if defined(__CUDA_ARCH__)
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out.words[0]), "=r"(out.words[1]), "=r"(out.words[2]), "=r"(out.words[3])
                 : "l"(from)
                 : "memory");
#else
    for (int i = 0; i < 4; ++i) out.words[i] = mlx5::load_whole(from->words + i);
#endif
}

/// One load of global memory that somebody else may be writing.
template <class Word>
ACCEL_HOST_DEVICE inline Word load_far(const Word* from) noexcept {
#if defined(__CUDA_ARCH__)
    Word out = 0;
    if constexpr (sizeof out == sizeof(std::uint64_t))
        asm volatile("ld.volatile.global.u64 %0, [%1];" : "=l"(out) : "l"(from) : "memory");
    else
        asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(out) : "l"(from) : "memory");
    return out;
#else
    return mlx5::load_whole(from);
#endif
}

/// Reads in pieces, all of which are under way together. Once: a client can change its header at any time.
template <class Layout>
ACCEL_HOST_DEVICE inline void load_at_once(const void* from, Layout& out) noexcept {
    static_assert(sizeof out % sizeof(loaded_quad) == 0);
    loaded_quad pieces[sizeof out / sizeof(loaded_quad)];
    for (std::size_t i = 0; i < sizeof out / sizeof(loaded_quad); ++i)
        load_quad(static_cast<const loaded_quad*>(from) + i, pieces[i]);
    __builtin_memcpy(static_cast<void*>(&out), pieces, sizeof out);
}

/// The value is needed from here on, on whatever path: a compiler does not put its load behind a branch that needs it,
/// so that loads in a row are under way together.
template <class Word>
ACCEL_HOST_DEVICE_INLINE void need_now(Word& value) noexcept {
    static_assert(std::is_trivially_copyable_v<Word> && sizeof value % sizeof(std::uint32_t) == 0);
#if defined(__CUDA_ARCH__)
    std::uint32_t words[sizeof value / sizeof(std::uint32_t)];
    __builtin_memcpy(words, &value, sizeof value);
    for (std::uint32_t& word : words) asm volatile("" : "+r"(word));
    __builtin_memcpy(static_cast<void*>(&value), words, sizeof value);
#endif
}

}  // namespace accel::device::detail
