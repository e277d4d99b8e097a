// SPDX-License-Identifier: Apache-2.0
// Memory keys over umems, and protection domains.
#include "devx/commands.hpp"

#include <utility>

#include <infiniband/verbs.h>

namespace accel::softnic::devx {
namespace {

constexpr std::uint32_t access_mode_mtt = 1;
constexpr std::uint32_t access_mode_ksm = 3;

field key_field(field of) {
    return of.at(create_mkey::context);
}

std::uint32_t key_access(const mailbox_in& in) {
    const auto bit = [&](field of, std::uint32_t value) { return in.flag(key_field(of)) ? value : 0; };
    return bit(mkc::lw, access::local_write) | bit(mkc::rw, access::remote_write) | bit(mkc::rr, access::remote_read) |
           bit(mkc::a, access::remote_atomic);
}

std::uint32_t access_mode(const mailbox_in& in) {
    return in.get32(key_field(mkc::access_mode_1_0)) | in.get32(key_field(mkc::access_mode_4_2)) << 2;
}

/// Keys of all memory, and keys that a work request fills in, are not there.
result check_key_mode(const mailbox_in& in) {
    const std::uint32_t mode = access_mode(in);
    const bool known = mode == access_mode_mtt || mode == access_mode_ksm;
    const bool plain = known && !in.flag(key_field(mkc::free)) && !in.flag(key_field(mkc::length64));
    return plain ? result{} : result{status::bad_parameter, reason::not_modelled};
}

/// What keys of both kinds say of themselves.
result describe_range(const call& what, memory_region& region) {
    const auto get = [&](field of) { return what.in.get(key_field(of)); };
    region.pd = static_cast<std::uint32_t>(get(mkc::pd));
    region.iova = get(mkc::start_addr);
    region.length = get(mkc::len);
    region.access = key_access(what.in);
    if (!what.owner.pds.contains(region.pd)) return {status::bad_resource, reason::no_such_domain};
    if (region.length == 0 || region.iova + region.length < region.iova)
        return {status::bad_parameter, reason::bad_attribute};
    return {};
}

result place_key(call& what, memory_region& region) {
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

/// Entry `index` of a key made of others.
field entry_field(field of, std::uint32_t index) {
    return of.at(create_mkey::entries + index * klm::bytes * 8);
}

/// Pieces of one size behind one another in one region make the new key an alias of it, at other addresses. Nothing
/// else is there.
result find_pieces(const call& what, memory_region& region) {
    const std::uint32_t count = what.in.get32(key_field(mkc::translations_octword_size));
    if (count == 0 || count > (what.in.size() - create_mkey::in_bytes) / klm::bytes)
        return {status::bad_input_length, reason::input_too_short};
    const std::uint64_t piece = std::uint64_t{1} << what.in.get32(key_field(mkc::log_entity_size));
    if (region.length > count * piece) return {status::bad_parameter, reason::bad_attribute};
    const std::uint32_t key = what.in.get32(entry_field(klm::mkey, 0));
    const std::uint64_t begin = what.in.get(entry_field(klm::address, 0));
    for (std::uint32_t at = 1; at < count; ++at) {
        const bool follows = what.in.get32(entry_field(klm::mkey, at)) == key &&
                             what.in.get(entry_field(klm::address, at)) == begin + at * piece;
        if (!follows) return {status::bad_parameter, reason::not_modelled};
    }
    const memory_region* behind = what.owner.own_device().regions.find(key);
    if (behind == nullptr || behind->pd != region.pd) return {status::bad_resource, reason::no_such_key};
    if (behind->is_window() || behind->is_alias()) return {status::bad_parameter, reason::not_modelled};
    region.target = key;
    region.shift = begin - region.iova;
    region.engine = behind->engine;
    return {};
}

result make_key(call& what) {
    if (const result refused = check_key_mode(what.in); !refused.good()) return refused;
    memory_region region;
    if (const result refused = describe_range(what, region); !refused.good()) return refused;
    const bool of_others = access_mode(what.in) == access_mode_ksm;
    const result refused = of_others ? find_pieces(what, region) : place_key(what, region);
    if (!refused.good()) return refused;
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
