// SPDX-License-Identifier: Apache-2.0
// load_copies MODULE COUNT: loads so many copies of a module, and uses each. The program has started by then, so what
// they need for each thread cannot be set aside beforehand.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <dlfcn.h>
#include <unistd.h>

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    const std::filesystem::path copy =
        std::filesystem::temp_directory_path() / ("accel_module_" + std::to_string(::getpid()) + ".so");
    const int count = std::atoi(argv[2]);
    for (int i = 0; i < count; ++i) {
        std::filesystem::copy_file(argv[1], copy);
        void* const loaded = ::dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
        std::filesystem::remove(copy);
        using use = int (*)();
        const auto use_it = loaded == nullptr ? nullptr : reinterpret_cast<use>(::dlsym(loaded, "use_library"));
        if (use_it == nullptr || use_it() != 0) {
            const char* const why = ::dlerror();
            std::printf("%d copies were loaded and used, then: %s\n", i, why != nullptr ? why : "use_library failed");
            return 1;
        }
    }
    std::printf("%d copies were loaded and used\n", count);
    return 0;
}
