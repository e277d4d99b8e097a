// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "abi/command.hpp"
#include "abi/context.hpp"

#include <cstdint>
#include <span>
#include <string_view>

struct ib_uverbs_ioctl_hdr;

namespace accel::softnic {

/// What a method requires of one attribute.
struct attribute_rule {
    std::uint16_t id;
    bool mandatory;
    std::uint16_t min_bytes;  ///< for inputs that are read whatever their length; 0: any
};

using handler = int (*)(context&, command&);

/// One ioctl method: object, method, name for the trace, what it requires, who does it.
struct method_row {
    std::uint16_t object;
    std::uint16_t method;
    std::string_view name;
    std::span<const attribute_rule> attributes;
    handler run;
};

/// One legacy command, as INVOKE_WRITE carries it.
struct write_row {
    std::uint32_t number;
    std::string_view name;
    std::uint16_t min_in_bytes;
    handler run;
};

// Each part of the ABI contributes its rows.
[[nodiscard]] std::span<const method_row> context_methods();
[[nodiscard]] std::span<const method_row> device_methods();
[[nodiscard]] std::span<const method_row> memory_methods();
[[nodiscard]] std::span<const method_row> cq_methods();
[[nodiscard]] std::span<const method_row> qp_methods();
[[nodiscard]] std::span<const method_row> srq_methods();
[[nodiscard]] std::span<const method_row> uar_methods();
[[nodiscard]] std::span<const method_row> devx_methods();
[[nodiscard]] std::span<const method_row> event_methods();
[[nodiscard]] std::span<const write_row> device_writes();
[[nodiscard]] std::span<const write_row> memory_writes();
[[nodiscard]] std::span<const write_row> cq_writes();
[[nodiscard]] std::span<const write_row> qp_writes();
[[nodiscard]] std::span<const write_row> srq_writes();

/// Carries out one ioctl of the program. 0 or an errno value. Holds the nic's mutex meanwhile.
int dispatch(context& target, ib_uverbs_ioctl_hdr* header);

}  // namespace accel::softnic
