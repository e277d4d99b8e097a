// SPDX-License-Identifier: Apache-2.0
// The compiled copy kernel, as bytes for the driver.
asm(R"(
    .section .rodata
    .balign 16
    .hidden softnic_copy_image
    .globl softnic_copy_image
softnic_copy_image:
    .incbin ")" SOFTNIC_COPY_IMAGE R"("
    .byte 0
    .text
)");
