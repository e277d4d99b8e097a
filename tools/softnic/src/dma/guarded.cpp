// SPDX-License-Identifier: Apache-2.0
#include "dma/guarded.hpp"

#if !defined(__x86_64__)
#error "softnic's fault-safe memory access is written for x86-64"
#endif

// Leaf functions without a stack frame: at every instruction in the range, "return 0 to the caller" is a
// `ret` away. That is what the fault handler makes of a fault between softnic_guarded_begin and
// softnic_guarded_end.
asm(R"(
    .text
    .p2align 4
    .hidden softnic_guarded_begin, softnic_guarded_end, softnic_guarded_fixup
    .hidden softnic_guarded_copy, softnic_guarded_load32, softnic_guarded_exchange64
    .hidden softnic_guarded_fetch_add64, softnic_guarded_compare_swap64
    .globl softnic_guarded_begin, softnic_guarded_end, softnic_guarded_fixup
    .globl softnic_guarded_copy, softnic_guarded_load32, softnic_guarded_exchange64
    .globl softnic_guarded_fetch_add64, softnic_guarded_compare_swap64
softnic_guarded_begin:
    .type softnic_guarded_copy, @function
softnic_guarded_copy:
    movq %rdx, %rcx
    cmpq $256, %rdx
    jae 5f
    shrq $3, %rcx
    jz 2f
1:  movq (%rsi), %rax
    movq %rax, (%rdi)
    addq $8, %rsi
    addq $8, %rdi
    decq %rcx
    jnz 1b
2:  testl $4, %edx
    jz 3f
    movl (%rsi), %eax
    movl %eax, (%rdi)
    addq $4, %rsi
    addq $4, %rdi
3:  testl $2, %edx
    jz 4f
    movzwl (%rsi), %eax
    movw %ax, (%rdi)
    addq $2, %rsi
    addq $2, %rdi
4:  testl $1, %edx
    jz 6f
    movzbl (%rsi), %eax
    movb %al, (%rdi)
    jmp 6f
5:  rep movsb
6:  movl $1, %eax
    ret
    .type softnic_guarded_load32, @function
softnic_guarded_load32:
    movl (%rdi), %eax
    movl %eax, (%rsi)
    movl $1, %eax
    ret
    .type softnic_guarded_exchange64, @function
softnic_guarded_exchange64:
    xchgq %rsi, (%rdi)
    movq %rsi, (%rdx)
    movl $1, %eax
    ret
    .type softnic_guarded_fetch_add64, @function
softnic_guarded_fetch_add64:
    lock xaddq %rsi, (%rdi)
    movq %rsi, (%rdx)
    movl $1, %eax
    ret
    .type softnic_guarded_compare_swap64, @function
softnic_guarded_compare_swap64:
    movq %rsi, %rax
    movq %rdx, %r8
    lock cmpxchgq %r8, (%rdi)
    movq %rax, (%rcx)
    movl $1, %eax
    ret
softnic_guarded_end:
    .type softnic_guarded_fixup, @function
softnic_guarded_fixup:
    xorl %eax, %eax
    ret
)");

extern "C" {
int softnic_guarded_copy(void* to, const void* from, std::size_t size);
int softnic_guarded_load32(const void* from, std::uint32_t* value);
int softnic_guarded_exchange64(void* at, std::uint64_t desired, std::uint64_t* previous);
int softnic_guarded_fetch_add64(void* at, std::uint64_t add, std::uint64_t* previous);
int softnic_guarded_compare_swap64(void* at, std::uint64_t expected, std::uint64_t desired, std::uint64_t* previous);
}

namespace accel::softnic::guarded {

bool copy(void* to, const void* from, std::size_t size_bytes) {
    return softnic_guarded_copy(to, from, size_bytes) != 0;
}

bool load32(const void* from, std::uint32_t& value) {
    return softnic_guarded_load32(from, &value) != 0;
}

bool exchange64(void* at, std::uint64_t desired, std::uint64_t& previous) {
    return softnic_guarded_exchange64(at, desired, &previous) != 0;
}

bool fetch_add64(void* at, std::uint64_t add, std::uint64_t& previous) {
    return softnic_guarded_fetch_add64(at, add, &previous) != 0;
}

bool compare_swap64(void* at, std::uint64_t expected, std::uint64_t desired, std::uint64_t& previous) {
    return softnic_guarded_compare_swap64(at, expected, desired, &previous) != 0;
}

}  // namespace accel::softnic::guarded
