// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/shared_memory/documents.hpp"

#include "serving/doors/oip/json_text.hpp"
#include "serving/doors/oip/refusal.hpp"
#include "serving/doors/shared_memory/base64.hpp"

#include <utility>

namespace accel::examples::serving::shared_memory {
namespace {

using nlohmann::json;

error lacking(const char* what) {
    return oip::refusal(status::invalid_argument, std::string{"the registration needs "} + what);
}

bool read_number(const json& from, const char* name, std::uint64_t& to) {
    const json* value = oip::member(from, name);
    if (value == nullptr || !value->is_number_unsigned()) return false;
    to = value->get<std::uint64_t>();
    return true;
}

result<description> read_system(const json& from, description out) {
    const json* key = oip::member(from, "key");
    if (key == nullptr || !key->is_string()) return lacking("a key: the name of the shared memory object");
    out.key = key->get<std::string>();
    if (from.contains("offset") && !read_number(from, "offset", out.offset)) return lacking("a whole number as offset");
    return out;
}

result<description> read_cuda(const json& from, description out) {
    const json* handle = oip::member(from, "raw_handle");
    const json* text = handle == nullptr ? nullptr : oip::member(*handle, "b64");
    if (text == nullptr || !text->is_string()) return lacking("raw_handle: {\"b64\": …}");
    auto decoded = from_base64(text->get_ref<const std::string&>());
    if (!decoded) return lacking("a raw_handle in base64");
    std::uint64_t device = 0;
    if (!read_number(from, "device_id", device) || !std::in_range<std::int64_t>(device))
        return lacking("a device_id: a whole number");
    out.handle = *std::move(decoded);
    out.device = static_cast<std::int64_t>(device);
    return out;
}

json status_of(memory kind, const description& one) {
    json out{{"name", one.name}, {"byte_size", one.bytes}};
    if (kind == memory::cuda) {
        out["device_id"] = one.device;
        return out;
    }
    out["key"] = one.key;
    out["offset"] = one.offset;
    return out;
}

}  // namespace

result<description> read_registration(memory kind, const std::string& name, std::string_view body) {
    const auto from = oip::parse_object(body);
    if (!from) return from.error();
    description out;
    out.name = name;
    if (!read_number(from.value(), "byte_size", out.bytes)) return lacking("a byte_size: a whole number");
    return kind == memory::system ? read_system(from.value(), std::move(out)) : read_cuda(from.value(), std::move(out));
}

std::string status_document(memory kind, std::span<const description> regions) {
    json out = json::array();
    for (const description& each : regions) out.push_back(status_of(kind, each));
    return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace accel::examples::serving::shared_memory
