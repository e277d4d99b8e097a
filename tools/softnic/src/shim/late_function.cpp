// SPDX-License-Identifier: Apache-2.0
#include "shim/late_function.hpp"

#include <cstddef>
#include <cstring>
#include <string>

#include <dlfcn.h>
#include <link.h>

namespace accel::softnic {
namespace {

struct search {
    const char* library;
    std::string path;
};

int visit(dl_phdr_info* loaded, std::size_t, void* wanted) {
    auto& of = *static_cast<search*>(wanted);
    if (loaded->dlpi_name == nullptr) return 0;
    const char* const slash = std::strrchr(loaded->dlpi_name, '/');
    const char* const file = slash == nullptr ? loaded->dlpi_name : slash + 1;
    if (std::strncmp(file, of.library, std::strlen(of.library)) != 0) return 0;
    of.path = loaded->dlpi_name;
    return 1;
}

void* find_in_loaded(const char* library, const char* name) {
    search wanted{library, {}};
    if (::dl_iterate_phdr(visit, &wanted) == 0) return nullptr;
    void* const loaded = ::dlopen(wanted.path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (loaded == nullptr) return nullptr;
    void* const found = ::dlsym(loaded, name);
    ::dlclose(loaded);
    return found;
}

}  // namespace

void* late_function::find() {
    void* found = found_.load();
    if (found != nullptr) return found;
    found = ::dlsym(RTLD_NEXT, name_);
    if (found == nullptr) found = find_in_loaded(library_, name_);
    if (found != nullptr) found_.store(found);
    return found;
}

}  // namespace accel::softnic
