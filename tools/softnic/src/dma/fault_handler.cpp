// SPDX-License-Identifier: Apache-2.0
#include "dma/fault_handler.hpp"

#include "dma/guarded.hpp"

#include <atomic>
#include <cstdint>
#include <mutex>

#include <ucontext.h>

extern "C" {
extern const char softnic_guarded_begin[];
extern const char softnic_guarded_end[];
extern const char softnic_guarded_fixup[];
}

namespace accel::softnic::fault_handler {
namespace {

std::atomic<sigaction_function> real_sigaction{&::sigaction};
std::atomic<bool> installed{false};

struct program_action {
    std::mutex mutex;
    struct sigaction wish {};
};

program_action& action_of(int signal_number) {
    static program_action& segv = *new program_action;  // never destroyed: faults may come during exit
    static program_action& bus = *new program_action;
    return signal_number == SIGSEGV ? segv : bus;
}

bool resume_after_guarded_fault(ucontext_t& context) {
    auto& instruction = context.uc_mcontext.gregs[REG_RIP];
    const auto at = static_cast<std::uintptr_t>(instruction);
    if (at < reinterpret_cast<std::uintptr_t>(softnic_guarded_begin) ||
        at >= reinterpret_cast<std::uintptr_t>(softnic_guarded_end))
        return false;
    instruction = static_cast<greg_t>(reinterpret_cast<std::uintptr_t>(softnic_guarded_fixup));
    return true;
}

/// Returning from here with the default action installed repeats the fault, and lets it kill the process.
void restore_default(int signal_number) {
    struct sigaction fallback {};
    fallback.sa_handler = SIG_DFL;
    real_sigaction.load()(signal_number, &fallback, nullptr);
}

void hand_to_program(int signal_number, siginfo_t* info, void* context) {
    const struct sigaction wish = action_of(signal_number).wish;  // no lock: this is a signal handler
    if ((wish.sa_flags & SA_SIGINFO) != 0 && wish.sa_sigaction != nullptr)
        wish.sa_sigaction(signal_number, info, context);
    else if (wish.sa_handler == SIG_DFL || wish.sa_handler == SIG_IGN)
        restore_default(signal_number);
    else
        wish.sa_handler(signal_number);
}

void on_fault(int signal_number, siginfo_t* info, void* context) {
    if (!resume_after_guarded_fault(*static_cast<ucontext_t*>(context))) hand_to_program(signal_number, info, context);
}

void install_for(int signal_number) {
    struct sigaction mine {};
    mine.sa_sigaction = &on_fault;
    mine.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigemptyset(&mine.sa_mask);
    real_sigaction.load()(signal_number, &mine, &action_of(signal_number).wish);
}

}  // namespace

void use_sigaction(sigaction_function real) {
    real_sigaction = real;
}

bool owns(int signal_number) {
    return installed && (signal_number == SIGSEGV || signal_number == SIGBUS);
}

int exchange_program_action(int signal_number, const struct sigaction* wish, struct sigaction* previous) {
    auto& action = action_of(signal_number);
    const std::lock_guard lock(action.mutex);
    const struct sigaction before = action.wish;
    if (wish != nullptr) action.wish = *wish;
    if (previous != nullptr) *previous = before;
    return 0;
}

}  // namespace accel::softnic::fault_handler

void accel::softnic::guarded::install_fault_handler() {
    static std::once_flag once;
    std::call_once(once, [] {
        fault_handler::install_for(SIGSEGV);
        fault_handler::install_for(SIGBUS);
        fault_handler::installed = true;
    });
}
