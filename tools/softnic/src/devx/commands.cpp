// SPDX-License-Identifier: Apache-2.0
#include "devx/commands.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace accel::softnic::devx {
namespace {

const command_row* find_row(std::uint16_t code) {
    for (const auto rows : {general_commands(), key_commands(), cq_commands(), qp_commands(), qp_state_commands(),
                            target_commands(), receive_commands()}) {
        for (const command_row& row : rows)
            if (static_cast<std::uint16_t>(row.opcode) == code) return &row;
    }
    return nullptr;
}

// What the driver lets through, beyond the commands that softnic has.
constexpr std::uint16_t passed_general[]{0x101, 0x10a, 0x750, 0x752, 0x754, 0x762,
                                         0x76f, 0x770, 0x773, 0x822, 0x824, 0x826};
constexpr std::uint16_t passed_create[]{0x600, 0x700, 0x705, 0x717, 0x771, 0x782, 0x806, 0x80e,
                                        0x816, 0x827, 0x829, 0x900, 0x904, 0x908, 0x912, 0x916,
                                        0x930, 0x933, 0x936, 0x939, 0x93d, 0x940, 0xa00};
constexpr std::uint16_t passed_modify[]{0x506};
constexpr std::uint16_t passed_query[]{0x201};
constexpr std::uint16_t general_begin = 0xb00;
constexpr std::uint16_t general_end = 0xd00;

std::span<const std::uint16_t> passed_by(command_class kind) {
    switch (kind) {
        case command_class::general:
            return passed_general;
        case command_class::create:
            return passed_create;
        case command_class::modify:
            return passed_modify;
        case command_class::query:
            return passed_query;
    }
    return {};
}

result check_and_run(call& what, command_class kind) {
    const command_row* row = find_row(static_cast<std::uint16_t>(what.in.get(header::opcode)));
    if (row == nullptr || row->kind != kind) return {status::bad_operation, reason::unknown_opcode};
    if (what.in.size() < row->in_bytes) return {status::bad_input_length, reason::input_too_short};
    if (what.out.size() < row->out_bytes) return {status::bad_output_length, reason::output_too_short};
    return row->run(what);
}

}  // namespace

bool driver_passes(std::uint16_t code, command_class kind) {
    if (const command_row* row = find_row(code)) return row->kind == kind;
    if (kind == command_class::general && code >= general_begin && code < general_end) return true;
    const auto list = passed_by(kind);
    return std::find(list.begin(), list.end(), code) != list.end();
}

std::string name_of(std::uint16_t code) {
    const command_row* row = find_row(code);
    return row != nullptr ? std::string(row->name) : fmt::format("command {:#x}", code);
}

result execute(call& what, command_class kind) {
    const result ended = check_and_run(what, kind);
    if (!ended.good()) what.out.clear();
    what.out.set(header::status, static_cast<std::uint8_t>(ended.status));
    what.out.set(header::syndrome, static_cast<std::uint32_t>(ended.reason));
    return ended;
}

result find_place(const context& owner, std::uint32_t number, std::uint64_t offset, std::uint64_t size_bytes,
                  std::uint64_t alignment, place& out) {
    const auto found = owner.devx_space.umems.find(number);
    if (found == owner.devx_space.umems.end()) return {status::bad_resource, reason::no_such_umem};
    const umem& memory = *found->second;
    if (!memory.contains(offset, size_bytes)) return {status::bad_parameter, reason::outside_umem};
    if ((memory.address + offset) % alignment != 0) return {status::bad_parameter, reason::bad_attribute};
    out = {found->second, memory.address + offset};
    return {};
}

bool has_uar(const context& owner, std::uint32_t page) {
    return std::any_of(owner.uars.begin(), owner.uars.end(),
                       [page](const auto& entry) { return entry.second == page; });
}

std::shared_ptr<completion_queue> find_cq(const context& owner, std::uint32_t number) {
    const auto found = std::find_if(owner.cqs.begin(), owner.cqs.end(),
                                    [number](const auto& entry) { return entry.second->number() == number; });
    return found == owner.cqs.end() ? nullptr : found->second;
}

std::shared_ptr<shared_receive_queue> find_srq(const context& owner, std::uint32_t number) {
    const auto found = std::find_if(owner.srqs.begin(), owner.srqs.end(),
                                    [number](const auto& entry) { return entry.second->who().number == number; });
    return found == owner.srqs.end() ? nullptr : found->second;
}

}  // namespace accel::softnic::devx
