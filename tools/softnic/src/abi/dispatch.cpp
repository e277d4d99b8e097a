// SPDX-License-Identifier: Apache-2.0
#include "abi/dispatch.hpp"

#include "engine/runner.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <system_error>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>

namespace accel::softnic {
namespace {

const method_row* find_method(std::uint16_t object, std::uint16_t method) {
    for (const auto rows : {context_methods(), device_methods(), memory_methods(), cq_methods(), qp_methods(),
                            srq_methods(), uar_methods(), devx_methods(), event_methods()}) {
        for (const method_row& row : rows)
            if (row.object == object && row.method == method) return &row;
    }
    return nullptr;
}

const write_row* find_write(std::uint64_t number) {
    for (const auto rows : {device_writes(), memory_writes(), cq_writes(), qp_writes(), srq_writes()}) {
        for (const write_row& row : rows)
            if (row.number == number) return &row;
    }
    return nullptr;
}

/// As the kernel: a mandatory attribute that this method does not know means the program needs more than we
/// can do.
bool knows_all(const command& request, const method_row& row) {
    return std::all_of(request.attributes().begin(), request.attributes().end(), [&](const ib_uverbs_attr& given) {
        if ((given.flags & UVERBS_ATTR_F_MANDATORY) == 0) return true;
        return std::any_of(row.attributes.begin(), row.attributes.end(),
                           [&](const attribute_rule& rule) { return rule.id == given.attr_id; });
    });
}

int check_attributes(const command& request, const method_row& row) {
    if (!knows_all(request, row)) return EPROTONOSUPPORT;
    for (const attribute_rule& rule : row.attributes) {
        if (!request.has(rule.id)) {
            if (rule.mandatory) return EINVAL;
        } else if (request.in_size(rule.id) < rule.min_bytes) {
            return EINVAL;
        }
    }
    return 0;
}

int invoke_write(context& target, command& request) {
    // libibverbs asks with nothing at all whether this method exists.
    if (!request.has(UVERBS_ATTR_CORE_IN) && !request.has(UVERBS_ATTR_CORE_OUT)) return ENOSPC;
    const write_row* row = find_write(request.in<std::uint64_t>(UVERBS_ATTR_WRITE_CMD));
    if (row == nullptr) return EOPNOTSUPP;
    if (request.in_size(UVERBS_ATTR_CORE_IN) < row->min_in_bytes) return EINVAL;
    return row->run(target, request);
}

int run(context& target, command& request) {
    if (request.object() == UVERBS_OBJECT_DEVICE && request.method() == UVERBS_METHOD_INVOKE_WRITE)
        return invoke_write(target, request);
    const method_row* row = find_method(request.object(), request.method());
    if (row == nullptr) return EPROTONOSUPPORT;
    if (const int problem = check_attributes(request, *row); problem != 0) return problem;
    return row->run(target, request);
}

std::string describe(command& request) {
    if (request.object() == UVERBS_OBJECT_DEVICE && request.method() == UVERBS_METHOD_INVOKE_WRITE) {
        const auto number = request.in<std::uint64_t>(UVERBS_ATTR_WRITE_CMD);
        const write_row* row = find_write(number);
        return row != nullptr ? std::string(row->name) : fmt::format("write command {:#x}", number);
    }
    const method_row* row = find_method(request.object(), request.method());
    return row != nullptr ? std::string(row->name)
                          : fmt::format("object {:#x} method {:#x}", request.object(), request.method());
}

}  // namespace

int dispatch(context& target, ib_uverbs_ioctl_hdr* header) {
    const model_guard guard(target.adapter());
    command request;
    if (const int problem = request.load(header); problem != 0) return problem;
    int result = 0;
    try {
        result = run(target, request);
    } catch (const std::bad_alloc&) {
        result = ENOMEM;
    } catch (const std::system_error& error) {
        result = error.code().value();
    }
    if (result == 0 && request.faulted()) result = EFAULT;
    hca& state = target.adapter().state;
    if (state.log.on()) state.log.line(state.now, state.node(), 0, "ioctl", "{} = {}", describe(request), result);
    return result != 0 ? result : request.store();
}

}  // namespace accel::softnic
