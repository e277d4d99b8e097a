// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "abi/context.hpp"
#include "devx/layout.hpp"
#include "devx/status.hpp"
#include "dma/queue_memory.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

/// The commands that a program may send to the firmware, and what they do to the device model.
namespace accel::softnic::devx {

/// Which of the driver's four methods a command may come by.
enum class command_class : std::uint8_t { general, create, modify, query };

/// One command on its way.
struct call {
    context& owner;
    const mailbox_in& in;
    mailbox_out& out;
    std::uint32_t handle = 0;  ///< of the object: the new one for a creation
    object made;               ///< filled by creations

    [[nodiscard]] std::uint32_t number() const { return in.get32(header::object); }
    [[nodiscard]] queue_pair* find_queue_pair() const { return owner.own_device().find_queue_pair(number()); }
};

using command_handler = result (*)(call&);

/// One command: its sizes are checked before it runs.
struct command_row {
    devx::opcode opcode;
    command_class kind;
    std::string_view name;
    std::uint16_t in_bytes;
    std::uint16_t out_bytes;
    command_handler run;
};

// Each part contributes its rows.
[[nodiscard]] std::span<const command_row> general_commands();
[[nodiscard]] std::span<const command_row> key_commands();
[[nodiscard]] std::span<const command_row> cq_commands();
[[nodiscard]] std::span<const command_row> qp_commands();
[[nodiscard]] std::span<const command_row> qp_state_commands();
[[nodiscard]] std::span<const command_row> target_commands();
[[nodiscard]] std::span<const command_row> receive_commands();

/// Does the kernel's driver pass this opcode on to the firmware by this method?
[[nodiscard]] bool driver_passes(std::uint16_t code, command_class kind);
/// For the trace: the name, or the number of an unknown command.
[[nodiscard]] std::string name_of(std::uint16_t code);

/// What the firmware does: runs the command, fills in the answer with its status and syndrome.
result execute(call& what, command_class kind);

/// Memory inside a umem of the program.
struct place {
    std::shared_ptr<umem> memory;
    std::uint64_t address = 0;

    [[nodiscard]] queue_memory at(std::uint64_t offset = 0) const { return {address + offset, memory->engine}; }
};
/// `size_bytes` at `offset` of umem `number`, aligned to `alignment`.
[[nodiscard]] result find_place(const context& owner, std::uint32_t number, std::uint64_t offset,
                                std::uint64_t size_bytes, std::uint64_t alignment, place& out);
[[nodiscard]] bool has_uar(const context& owner, std::uint32_t page);
/// A completion queue of this context, by number. Null when there is none.
[[nodiscard]] std::shared_ptr<completion_queue> find_cq(const context& owner, std::uint32_t number);
/// A shared receive queue of this context, by number. Null when there is none.
[[nodiscard]] std::shared_ptr<shared_receive_queue> find_srq(const context& owner, std::uint32_t number);

/// How queues and doorbell records stand in memory.
inline constexpr std::uint64_t queue_alignment = 64;
inline constexpr std::uint64_t record_alignment = 8;
inline constexpr std::uint64_t record_bytes = 8;
/// Event queues: one for each completion vector.
inline constexpr std::uint32_t first_event_queue = 8;

}  // namespace accel::softnic::devx
