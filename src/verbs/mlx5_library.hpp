// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>

namespace accel::verbs {

/// A function of libmlx5; null where it is not loaded, or older. Nothing links with it: libibverbs has loaded
/// it, under another name of the same file, if there is such a device.
template <class Function>
[[nodiscard]] Function* mlx5_function(const char* name) noexcept {
    void* const library = ::dlopen("libmlx5.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (library == nullptr) return nullptr;
    // It stays loaded for as long as its devices are open.
    ::dlclose(library);
    return reinterpret_cast<Function*>(::dlsym(library, name));
}

}  // namespace accel::verbs
