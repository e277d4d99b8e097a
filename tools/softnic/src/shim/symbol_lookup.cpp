// SPDX-License-Identifier: Apache-2.0
// Programs with CUDA's static runtime find the driver's functions by name: dlsym() in the driver's library gives
// cuGetProcAddress, and that the rest. So both answer with our cuMemHostRegister (host_register.cpp). All else is
// passed on as it came.
#include "shim/host_register.hpp"
#include "shim/real.hpp"

#include <atomic>
#include <cstdint>
#include <cstring>

#include <dlfcn.h>

namespace accel::softnic {
namespace {

using get_by_name = int(const char* name, void** found, int version, std::uint64_t flags);
using get_by_name_v2 = int(const char* name, void** found, int version, std::uint64_t flags, int* status);

std::atomic<get_by_name*> real_get_by_name{nullptr};
std::atomic<get_by_name_v2*> real_get_by_name_v2{nullptr};

constexpr int not_found = 500;               ///< CUDA_ERROR_NOT_FOUND
constexpr int first_version_of_v2 = 12'000;  ///< the call's second form is what CUDA 12 and later mean by the name

bool same(const char* left, const char* right) {
    return std::strcmp(left, right) == 0;
}

void* stand_in(const char* name, int version, void* real);

int our_get_by_name(const char* name, void** found, int version, std::uint64_t flags) {
    get_by_name* const real = real_get_by_name.load();
    if (real == nullptr) return not_found;
    const int answer = real(name, found, version, flags);
    if (answer == 0 && name != nullptr && found != nullptr) *found = stand_in(name, version, *found);
    return answer;
}

int our_get_by_name_v2(const char* name, void** found, int version, std::uint64_t flags, int* status) {
    get_by_name_v2* const real = real_get_by_name_v2.load();
    if (real == nullptr) return not_found;
    const int answer = real(name, found, version, flags, status);
    if (answer == 0 && name != nullptr && found != nullptr) *found = stand_in(name, version, *found);
    return answer;
}

template <class Function>
void* remember(std::atomic<Function*>& where, void* real, Function* ours) {
    where.store(reinterpret_cast<Function*>(real));
    return reinterpret_cast<void*>(ours);
}

/// What to answer in place of `real`: the same, for all but three names.
void* stand_in(const char* name, int version, void* real) {
    if (real == nullptr || std::strncmp(name, "cu", 2) != 0) return real;
    if (same(name, "cuMemHostRegister") || same(name, "cuMemHostRegister_v2")) return stand_in_for_host_register(real);
    const bool either = same(name, "cuGetProcAddress");
    if (same(name, "cuGetProcAddress_v2") || (either && version >= first_version_of_v2))
        return remember(real_get_by_name_v2, real, our_get_by_name_v2);
    return either ? remember(real_get_by_name, real, our_get_by_name) : real;
}

using lookup = void*(void* library, const char* name);

lookup* real_lookup() {
    // What is looked up first, before any version, is the same function in all of them.
    static const auto function = reinterpret_cast<lookup*>(::dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"));
    return function;
}

}  // namespace

// Called by the entry below, and nobody else.
extern "C" __attribute__((visibility("hidden"), used)) lookup* softnic_real_lookup() {
    return real_lookup();
}

/// Null: the caller is to get what dlsym() says.
extern "C" __attribute__((visibility("hidden"), used)) void* softnic_stand_in(void* library, const char* name) {
    if (name == nullptr || std::strncmp(name, "cuGetProcAddress", 16) != 0) {
        if (name == nullptr || std::strncmp(name, "cuMemHostRegister", 17) != 0) return nullptr;
    }
    void* const real = real_lookup()(library, name);
    // By dlsym(), the name without a version is the first form.
    return stand_in(name, 0, real);
}

}  // namespace accel::softnic

// dlsym(RTLD_NEXT, …) looks at who calls: the real one has to see the caller's return address, so this jumps.
asm(R"(
    .text
    .globl dlsym
    .type dlsym, @function
dlsym:
    .cfi_startproc
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    call softnic_stand_in
    testq %rax, %rax
    jnz 1f
    call softnic_real_lookup
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    jmp *%rax
1:
    .cfi_adjust_cfa_offset 24
    addq $24, %rsp
    .cfi_adjust_cfa_offset -24
    ret
    .cfi_endproc
    .size dlsym, .-dlsym
)");
