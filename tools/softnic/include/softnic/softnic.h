/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SOFTNIC_SOFTNIC_H
#define SOFTNIC_SOFTNIC_H

#include <stddef.h>
#include <stdint.h>

/*
 * For tests and plugins that know they run under softnic. The functions are weak: without softnic they are
 * null, so test one before use (`if (softnic_progress) ...`), and link against nothing.
 */

#ifdef __cplusplus
extern "C" {
#endif

#ifndef SOFTNIC_API
#define SOFTNIC_API __attribute__((weak))
#endif

/** One round of the device. Returns 1 if something moved, 0 if not, -1 before the first device is opened. */
SOFTNIC_API int softnic_progress(void);

/** Adds fault rules (`softnic help faults`). Returns 0, or -1 and a sentence in problem (may be NULL). */
SOFTNIC_API int softnic_fault_add(const char* rules, char* problem, size_t problem_size);
SOFTNIC_API void softnic_fault_clear(void);
/** How often rules have fired since the start. */
SOFTNIC_API uint64_t softnic_fault_count(void);

/** Strict mode on (1) or off (0). */
SOFTNIC_API void softnic_strict(int on);

/** Writes the trace to a file ("-": stderr), or stops it (NULL). Returns 0 or -1. */
SOFTNIC_API int softnic_trace(const char* path);

/** A counter by name: doorbells wqes cqes packets_sent packets_received packets_dropped retransmissions
 * timeouts naks_sent late_wqes timed_messages late_messages, lateness_ns: by which all timed messages together came
 * behind their time on the link, and device_cpu_ns: CPU time that the emulation has taken in this process. 0 for an
 * unknown name. */
SOFTNIC_API uint64_t softnic_counter(const char* name);

/**
 * Memory that only you can reach (of a GPU, say). Functions return 0, or -1 when the memory cannot be
 * reached: the work request then completes with a protection error. They are called with a lock held, from
 * any thread: do not call verbs. Those marked "or NULL" may be left out.
 */
struct softnic_dma_ops {
    /** 1 if [address, address + size) is yours; `space` comes back in later calls. 0: it is not. A negative
     * errno value: it is yours, but cannot be registered. Or NULL. */
    int (*claim_range)(void* self, uint64_t address, uint64_t size, uint64_t* space);
    /** The same for `size` bytes at `offset` of a dma-buf, which work requests will call `iova`. Addresses
     * are then offsets into the buffer. Or NULL. */
    int (*claim_dmabuf)(void* self, int descriptor, uint64_t offset, uint64_t size, uint64_t iova,
                        uint64_t* space);
    int (*read)(void* self, uint64_t space, void* to, uint64_t from, size_t size);
    /** Ascending; visible before any later write of the device, also one by another plugin. With flush():
     * before flush() returns, and in the order of these calls. */
    int (*write)(void* self, uint64_t space, uint64_t to, const void* from, size_t size);
    /** Atomics on 8 aligned bytes; or NULL: they are refused. */
    int (*fetch_add)(void* self, uint64_t space, uint64_t at, uint64_t add, uint64_t* previous);
    int (*compare_swap)(void* self, uint64_t space, uint64_t at, uint64_t expected, uint64_t desired,
                        uint64_t* previous);
    /** Waits until nothing reads or writes the memory any more. -1: a write since the last call was lost. Or
     * NULL. */
    int (*flush)(void* self, uint64_t space);
    /** read() of a part of message `message`, of which `following` more bytes lie behind: they may be fetched
     * ahead, and kept for this message only. No number comes twice. Or NULL. */
    int (*read_part)(void* self, uint64_t space, void* to, uint64_t from, size_t size, uint64_t message,
                     uint64_t following);
    /** write() that nothing waits for, over a modelled link. `how`: 0: of a message that still arrives, in any order
     * with others of these; 1: behind all before it; 2: as 1, and it is due. Returns 1; 0: not now, because a last
     * piece would wait for it, but not if it is due; -1. `mark` names what was written so far. This and the next
     * three: all, or NULL. */
    int (*write_early)(void* self, uint64_t space, uint64_t to, const void* from, size_t size, int how,
                       uint64_t* mark);
    /** A message's last piece, behind what `after` names (~0: all so far) and in front of other early writes. -1: it
     * was not written. Begins at state_of() of a last piece. */
    int (*write_last)(void* self, uint64_t space, uint64_t to, const void* from, size_t size, uint64_t after,
                      uint64_t* mark);
    /** Called until it is not 0, and does not wait. 1: what `mark` names is in memory; -1: it is lost. */
    int (*state_of)(void* self, uint64_t space, uint64_t mark);
    /** 1: early and last writes to both spaces are done in the order of the calls. */
    int (*keeps_order)(void* self, uint64_t space, uint64_t other);
    /** No call with this space will follow. Or NULL. */
    void (*release)(void* self, uint64_t space);
};

/** The table and self must live as long as the process. Returns 0, or -1 before the first device is opened.
 */
SOFTNIC_API int softnic_dma_register(const struct softnic_dma_ops* ops, void* self);

#ifdef __cplusplus
}
#endif

#endif
