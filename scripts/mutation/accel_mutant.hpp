// SPDX-License-Identifier: Apache-2.0
// `./run mutate --random` puts this into the sources that it changes.
#pragma once
#include <cstdlib>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/// Which mutant a process runs (ACCEL_MUTANT), and which it reaches: a byte for each in the file ACCEL_MUTANTS_REACHED.
namespace accel_mutants {

inline int chosen = 0;
inline volatile char* reached = nullptr;
inline long count = 0;

inline void map_reached(const char* path) noexcept {
    const int file = ::open(path, O_RDWR | O_CLOEXEC);
    struct stat about {};
    if (file < 0) return;
    if (::fstat(file, &about) == 0) {
        void* const bytes =
            ::mmap(nullptr, static_cast<std::size_t>(about.st_size), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (bytes != MAP_FAILED) {
            count = about.st_size;
            reached = static_cast<volatile char*>(bytes);
        }
    }
    ::close(file);
}

/// Before a program's own code: a test may limit memory and descriptors later.
[[gnu::constructor(101)]] inline void begin() noexcept {
    if (const char* number = std::getenv("ACCEL_MUTANT")) chosen = std::atoi(number);
    if (const char* path = std::getenv("ACCEL_MUTANTS_REACHED"); path != nullptr && reached == nullptr)
        map_reached(path);
}

inline bool meets(int number) noexcept {
    if (reached != nullptr && number < count) reached[number] = 1;
    return chosen == number;
}

}  // namespace accel_mutants

#ifdef __CUDA_ARCH__
#define accel_mutant(number) false
#else
/// Whether this mutant is the chosen one. What the compiler computes has none.
#define accel_mutant(number) (!__builtin_is_constant_evaluated() && accel_mutants::meets(number))
#endif
