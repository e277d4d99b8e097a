// SPDX-License-Identifier: Apache-2.0
#include "shim/real.hpp"

namespace accel::softnic {
namespace {

template <class Function>
void look_up(Function& out, const char* name) noexcept {
    out = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

[[gnu::constructor]] void find_at_load() {
    (void)libc();
}

}  // namespace

const libc_functions& libc() noexcept {
    static const libc_functions found = [] {
        libc_functions all{};
#define SOFTNIC_FIND(name) look_up(all.name, #name);
        SOFTNIC_LIBC_FUNCTIONS(SOFTNIC_FIND)
#undef SOFTNIC_FIND
        return all;
    }();
    return found;
}

}  // namespace accel::softnic
