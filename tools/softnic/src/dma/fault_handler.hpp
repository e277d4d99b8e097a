// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>

/// The process-wide SIGSEGV and SIGBUS handler behind accel::softnic::guarded. What the program itself wants
/// done with these signals is kept here and honoured for every fault that is not the device's.
namespace accel::softnic::fault_handler {

using sigaction_function = int (*)(int, const struct sigaction*, struct sigaction*);

/// The preload library passes libc's own sigaction here before anything else; otherwise the visible one is
/// used.
void use_sigaction(sigaction_function real);

/// True for the signals that the device shares with the program, once the handler is installed.
[[nodiscard]] bool owns(int signal_number);

/// sigaction() for an owned signal: swaps the program's wish, leaves the device's handler in place.
int exchange_program_action(int signal_number, const struct sigaction* wish, struct sigaction* previous);

}  // namespace accel::softnic::fault_handler
