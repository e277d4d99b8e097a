// SPDX-License-Identifier: Apache-2.0
#include "devx/status.hpp"

#include <algorithm>
#include <array>

namespace accel::softnic::devx {
namespace {

template <class Value>
struct named {
    Value value;
    std::string_view name;
};
template <class Value>
named(Value, const char*) -> named<Value>;

constexpr std::array status_names{
    named{status::ok, "OK"},
    named{status::bad_operation, "BAD_OP"},
    named{status::bad_parameter, "BAD_PARAM"},
    named{status::bad_resource, "BAD_RES"},
    named{status::resource_busy, "RES_BUSY"},
    named{status::limit_exceeded, "LIM_ERR"},
    named{status::bad_resource_state, "BAD_RES_STATE"},
    named{status::bad_index, "IX_ERR"},
    named{status::no_resources, "NO_RES_ERR"},
    named{status::bad_input_length, "BAD_INP_LEN"},
    named{status::bad_output_length, "BAD_OUTP_LEN"},
    named{status::bad_qp_state, "BAD_QP_STATE_ERR"},
};

constexpr std::array reason_names{
    named{reason::none, ""},
    named{reason::unknown_opcode, "softnic does not have this command"},
    named{reason::input_too_short, "the input is shorter than the command"},
    named{reason::output_too_short, "the output is shorter than the answer"},
    named{reason::unknown_capability, "softnic does not have this group of capabilities"},
    named{reason::no_such_umem, "this context has no umem with this number"},
    named{reason::outside_umem, "the queue, record or range is not inside its umem"},
    named{reason::no_such_uar, "this context has no doorbell page with this number"},
    named{reason::no_such_domain, "this context has no protection domain with this number"},
    named{reason::no_such_completion_queue, "this context has no completion queue with this number"},
    named{reason::no_such_receive_queue, "this context has no shared receive queue with this number"},
    named{reason::bad_queue_size, "the queue is larger than the device allows"},
    named{reason::not_modelled, "softnic does not have what the command's context asks for"},
    named{reason::wrong_state, "the queue pair is in another state"},
    named{reason::bad_attribute, "a value of the context is not valid in this step"},
    named{reason::no_such_index, "the table has no such entry"},
    named{reason::not_ethernet, "the port is not an Ethernet port"},
    named{reason::nothing_left, "no number is left"},
    named{reason::umem_is_read_only, "the umem was registered without local write"},
    named{reason::no_such_key, "this protection domain has no key with this number"},
};

template <class Names, class Value>
std::string_view look_up(const Names& names, Value value) {
    const auto found = std::find_if(names.begin(), names.end(), [&](const auto& row) { return row.value == value; });
    return found == names.end() ? "?" : found->name;
}

}  // namespace

std::string_view to_string(status what) {
    return look_up(status_names, what);
}
std::string_view to_string(reason why) {
    return look_up(reason_names, why);
}

}  // namespace accel::softnic::devx
