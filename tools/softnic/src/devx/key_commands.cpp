// SPDX-License-Identifier: Apache-2.0
// Memory keys over umems, and protection domains.
#include "devx/commands.hpp"

#include <utility>

#include <infiniband/verbs.h>

namespace accel::softnic::devx {
namespace {

constexpr std::uint32_t access_mode_mtt = 1;

field key_field(field of) {
    return of.at(create_mkey::context);
}

std::uint32_t key_access(const mailbox_in& in) {
    const auto bit = [&](field of, std::uint32_t value) { return in.flag(key_field(of)) ? value : 0; };
    return bit(mkc::lw, access::local_write) | bit(mkc::rw, access::remote_write) | bit(mkc::rr, access::remote_read) |
           bit(mkc::a, access::remote_atomic);
}

/// Keys made of other keys, keys of all memory, and keys that a work request fills in are not there.
result check_key_mode(const mailbox_in& in) {
    const std::uint32_t mode = in.get32(key_field(mkc::access_mode_1_0)) | in.get32(key_field(mkc::access_mode_4_2))
                                                                               << 2;
    const bool plain = mode == access_mode_mtt && !in.flag(key_field(mkc::free)) && !in.flag(key_field(mkc::length64));
    return plain ? result{} : result{status::bad_parameter, reason::not_modelled};
}

result place_key(call& what, memory_region& region) {
    const auto get = [&](field of) { return what.in.get(key_field(of)); };
    region.pd = static_cast<std::uint32_t>(get(mkc::pd));
    region.iova = get(mkc::start_addr);
    region.length = get(mkc::len);
    region.access = key_access(what.in);
    if (!what.owner.pds.contains(region.pd)) return {status::bad_resource, reason::no_such_domain};
    if (region.length == 0 || region.iova + region.length < region.iova)
        return {status::bad_parameter, reason::bad_attribute};
    place where;
    const result found = find_place(what.owner, what.in.get32(create_mkey::umem_id),
                                    what.in.get(create_mkey::umem_offset), region.length, 1, where);
    if (!found.good()) return found;
    constexpr std::uint32_t writes = access::local_write | access::remote_write | access::remote_atomic;
    if ((region.access & writes) != 0 && (where.memory->access & IBV_ACCESS_LOCAL_WRITE) == 0)
        return {status::bad_parameter, reason::umem_is_read_only};
    region.base = where.address;
    region.engine = where.memory->engine;
    what.made.memory = {where.memory};
    return {};
}

result make_key(call& what) {
    if (const result refused = check_key_mode(what.in); !refused.good()) return refused;
    memory_region region;
    if (const result refused = place_key(what, region); !refused.good()) return refused;
    const auto variant = static_cast<std::uint8_t>(what.in.get(key_field(mkc::mkey_7_0)));
    const std::uint32_t key = what.owner.own_device().regions.add(std::move(region), variant).key;
    what.out.set(header::object, key >> 8);
    what.owner.regions[what.handle] = key;
    what.made.kind = object_kind::key;
    return {};
}

result allocate_domain(call& what) {
    what.owner.pds[what.handle] = true;
    what.out.set(header::object, what.handle);
    what.made.kind = object_kind::domain;
    return {};
}

constexpr command_row key_rows[]{
    {opcode::create_mkey, command_class::create, "CREATE_MKEY", create_mkey::in_bytes, header::bytes, make_key},
    {opcode::alloc_pd, command_class::create, "ALLOC_PD", header::bytes, header::bytes, allocate_domain},
};

}  // namespace

std::span<const command_row> key_commands() {
    return key_rows;
}

}  // namespace accel::softnic::devx
