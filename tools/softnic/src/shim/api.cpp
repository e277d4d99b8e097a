// SPDX-License-Identifier: Apache-2.0
// The C API.
#define SOFTNIC_API __attribute__((visibility("default")))
#include "shim/foreign_plugin.hpp"
#include "shim/installation.hpp"
#include "softnic/softnic.h"

#include <cstring>
#include <string_view>
#include <utility>

namespace {

using accel::softnic::counters;
using accel::softnic::installation;
using accel::softnic::model_guard;
using accel::softnic::nic;

constexpr std::pair<std::string_view, std::uint64_t counters::*> counter_names[]{
    {"doorbells", &counters::doorbells},
    {"wqes", &counters::wqes},
    {"cqes", &counters::cqes},
    {"packets_sent", &counters::packets_sent},
    {"packets_received", &counters::packets_received},
    {"packets_dropped", &counters::packets_dropped},
    {"retransmissions", &counters::retransmissions},
    {"timeouts", &counters::timeouts},
    {"naks_sent", &counters::naks_sent},
    {"late_wqes", &counters::late_wqes},
    {"timed_messages", &counters::timed_messages},
    {"late_messages", &counters::late_messages},
    {"lateness_ns", &counters::lateness_ns},
};

nic* adapter() {
    installation& mine = installation::get();
    return mine.driver() == nullptr ? nullptr : mine.adapter();
}

}  // namespace

int softnic_progress(void) {
    auto* driver = installation::get().driver();
    return driver == nullptr ? -1 : static_cast<int>(driver->step());
}

int softnic_fault_add(const char* rules, char* problem, size_t problem_size) {
    nic* target = adapter();
    std::string sentence = "no device is open";
    if (target != nullptr) {
        const auto parsed = accel::softnic::parse_fault_rules(rules, sentence);
        if (parsed) {
            const model_guard guard(*target);
            for (const auto& rule : *parsed) target->state.faults.add(rule);
            return 0;
        }
    }
    if (problem != nullptr && problem_size > 0) {
        const std::size_t size = std::min(sentence.size(), problem_size - 1);
        std::memcpy(problem, sentence.data(), size);
        problem[size] = '\0';
    }
    return -1;
}

void softnic_fault_clear(void) {
    if (nic* target = adapter()) {
        const model_guard guard(*target);
        target->state.faults.clear();
    }
}

uint64_t softnic_fault_count(void) {
    nic* target = adapter();
    if (target == nullptr) return 0;
    const model_guard guard(*target);
    return target->state.faults.fired();
}

void softnic_strict(int on) {
    if (nic* target = adapter()) {
        const model_guard guard(*target);
        target->state.config.strict = on != 0;
    }
}

int softnic_trace(const char* path) {
    nic* target = adapter();
    if (target == nullptr) return -1;
    const model_guard guard(*target);
    if (path != nullptr) return target->state.log.start(path) ? 0 : -1;
    target->state.log.stop();
    return 0;
}

uint64_t softnic_counter(const char* name) {
    nic* target = adapter();
    if (target == nullptr) return 0;
    if (std::string_view(name) == "device_cpu_ns") return installation::get().driver()->cpu_ns();
    const model_guard guard(*target);
    for (const auto& [word, member] : counter_names)
        if (word == name) return target->state.count.*member;
    return 0;
}

int softnic_dma_register(const softnic_dma_ops* ops, void* self) {
    nic* target = adapter();
    if (target == nullptr || ops == nullptr) return -1;
    const model_guard guard(*target);
    target->state.dma.add(accel::softnic::make_foreign_plugin(*ops, self));
    return 0;
}
