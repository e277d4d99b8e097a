// SPDX-License-Identifier: Apache-2.0
// Stands in front of the C library's pthread_create, for this program and the libraries that it loads.
#include "faults/few_threads.hpp"

#include <atomic>
#include <cerrno>
#include <limits>
#include <memory>

#include <dlfcn.h>
#include <pthread.h>

namespace accel::faults {
namespace {

constexpr long all = std::numeric_limits<long>::max() / 2;
std::atomic<long> left{all};
std::atomic<bool> forbidden{false};
std::atomic<std::size_t> refused{0};

struct body {
    void* (*run)(void*);
    void* argument;
};

/// Its place is free once it has ended.
void* run_counted(void* given) {
    const std::unique_ptr<body> own(static_cast<body*>(given));
    void* const said = own->run(own->argument);
    ++left;
    return said;
}

}  // namespace

void allow_more_threads(std::size_t count) noexcept {
    refused = 0;
    left = static_cast<long>(count);
    forbidden = count == 0;
}
void allow_all_threads() noexcept {
    left = all;
    forbidden = false;
}
std::size_t refused_threads() noexcept {
    return refused;
}

}  // namespace accel::faults

extern "C" __attribute__((visibility("default"))) int pthread_create(pthread_t* made, const pthread_attr_t* attributes,
                                                                     void* (*run)(void*), void* argument) {
    using namespace accel::faults;
    using create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
    static const auto real = reinterpret_cast<create>(::dlsym(RTLD_NEXT, "pthread_create"));
    if (forbidden) {
        ++refused;
        return EAGAIN;
    }
    if (--left < 0) {
        ++left;
        ++refused;
        return EAGAIN;
    }
    auto counted = std::make_unique<body>(body{run, argument});
    const int failed = real(made, attributes, run_counted, counted.get());
    if (failed == 0)
        (void)counted.release();
    else
        ++left;
    return failed;
}
