// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/oip/request_fields.hpp"

#include "serving/doors/oip/checks.hpp"
#include "serving/doors/oip/json_text.hpp"
#include "serving/doors/oip/refusal.hpp"

#include <cstdint>
#include <utility>

namespace accel::examples::serving::oip {
namespace {

using nlohmann::json;

error wrong_field(const char* sentence) {
    return refusal(status::invalid_argument, sentence);
}

/// A sequence's number or name; stock clients say 0 or "" where they mean none.
bool is_of_sequence(const json& parameters) {
    const json* id = member(parameters, "sequence_id");
    const bool unnamed = id == nullptr || (id->is_string() && id->get_ref<const std::string&>().empty());
    if (!unnamed && *id != 0) return true;
    const auto is_set = [&](const char* name) {
        const json* flag = member(parameters, name);
        return flag != nullptr && *flag != false;
    };
    return is_set("sequence_start") || is_set("sequence_end");
}

/// The parameter "timeout", in microseconds.
result<std::chrono::nanoseconds> read_timeout(const json& parameters) {
    const json* timeout = member(parameters, "timeout");
    if (timeout == nullptr) return std::chrono::nanoseconds{};
    if (!timeout->is_number_unsigned() || timeout->get<std::uint64_t>() > longest_timeout_us) return bad_timeout();
    return std::chrono::nanoseconds{std::chrono::microseconds{timeout->get<std::int64_t>()}};
}

}  // namespace

result<std::string> read_id(const json& document) {
    const json* id = member(document, "id");
    if (id == nullptr) return std::string{};
    if (!id->is_string() || id->get_ref<const std::string&>().size() > max_id_bytes)
        return wrong_field("the id is not a string of at most 256 bytes");
    return id->get<std::string>();
}

result<std::chrono::nanoseconds> read_parameters(const json& document) {
    const json* parameters = member(document, "parameters");
    if (parameters == nullptr) return std::chrono::nanoseconds{};
    if (!parameters->is_object()) return wrong_field("the parameters are not an object");
    if (is_of_sequence(*parameters)) return no_sequences();
    const json* priority = member(*parameters, "priority");
    if (priority != nullptr && !priority->is_number_unsigned()) return bad_priority();
    return read_timeout(*parameters);
}

}  // namespace accel::examples::serving::oip
