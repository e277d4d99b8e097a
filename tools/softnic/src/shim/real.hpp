// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>

#define SOFTNIC_EXPORT extern "C" __attribute__((visibility("default")))

/// The next definition of a function that this library replaces: libc's, or that of a library preloaded
/// behind us.
#define SOFTNIC_REAL(name)                                                                         \
    ([] {                                                                                          \
        static const auto function = reinterpret_cast<decltype(&::name)>(dlsym(RTLD_NEXT, #name)); \
        return function;                                                                           \
    }())
