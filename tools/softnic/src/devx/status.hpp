// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace accel::softnic::devx {

/// Statuses of a command, as the firmware returns them.
enum class status : std::uint8_t {
    ok = 0,
    bad_operation = 0x02,
    bad_parameter = 0x03,
    bad_resource = 0x05,
    resource_busy = 0x06,
    limit_exceeded = 0x08,
    bad_resource_state = 0x09,
    bad_index = 0x0a,
    no_resources = 0x0f,
    bad_input_length = 0x50,
    bad_output_length = 0x51,
    bad_qp_state = 0x10,
};

/// Why a command was refused. The firmware's syndromes are not documented; these are softnic's own.
enum class reason : std::uint32_t {
    none = 0,
    unknown_opcode = 0x5f0001,
    input_too_short,
    output_too_short,
    unknown_capability,
    no_such_umem,
    outside_umem,
    no_such_uar,
    no_such_domain,
    no_such_completion_queue,
    no_such_receive_queue,
    bad_queue_size,
    not_modelled,
    wrong_state,
    bad_attribute,
    no_such_index,
    not_ethernet,
    nothing_left,
    umem_is_read_only,
    no_such_key,
};

[[nodiscard]] std::string_view to_string(status what);
[[nodiscard]] std::string_view to_string(reason why);

/// How a command ended.
struct result {
    devx::status status = devx::status::ok;
    devx::reason reason = devx::reason::none;

    [[nodiscard]] bool good() const { return status == devx::status::ok; }
};

}  // namespace accel::softnic::devx
