// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/grpc/region_messages.hpp"

#include "serving/doors/grpc/fields.hpp"
#include "serving/doors/grpc/infer_message.hpp"
#include "serving/doors/grpc/writer.hpp"
#include "serving/doors/oip/refusal.hpp"

namespace accel::examples::serving::wire {
namespace {

using shared_memory::description;
using shared_memory::memory;

/// Field 2 is the key or the handle. False: a text is too long.
bool keep_field(memory kind, const field& one, description& to) {
    if (one.is(1, form::bytes)) return read_text(one.bytes, max_name_bytes, to.name);
    if (one.is(2, form::bytes))
        return read_text(one.bytes, max_name_bytes, kind == memory::system ? to.key : to.handle);
    if (one.is(4, form::varint)) to.bytes = one.value;
    if (!one.is(3, form::varint)) return true;
    if (kind == memory::system)
        to.offset = one.value;
    else
        to.device = static_cast<std::int64_t>(one.value);
    return true;
}

writer status_of(memory kind, const description& one) {
    writer out;
    out.text(1, one.name);
    if (kind == memory::system) {
        out.text(2, one.key);
        out.number(3, one.offset);
        out.number(4, one.bytes);
    } else {
        out.number(2, static_cast<std::uint64_t>(one.device));
        out.number(3, one.bytes);
    }
    return out;
}

}  // namespace

result<description> read_region_message(memory kind, std::span<const slice> slices) {
    description out;
    field_walk fields{cursor{slices}};
    field one;
    while (fields.next(one))
        if (!keep_field(kind, one, out))
            return oip::refusal(status::invalid_argument, "a name, a key or a raw_handle is longer than 256 bytes");
    if (fields.malformed()) return malformed_message();
    return out;
}

std::string region_status_message(memory kind, std::span<const description> regions) {
    writer out;
    for (const description& each : regions) {
        writer entry;
        entry.text(1, each.name);
        entry.message(2, status_of(kind, each));
        out.message(1, entry);
    }
    return out.take();
}

}  // namespace accel::examples::serving::wire
