// SPDX-License-Identifier: Apache-2.0
/// libibverbs for a module that must load on machines without it: its functions under their own names, each of which
/// calls the one of the library that is there. Posting and polling go through the device's own table instead. Without
/// the library the list of devices is empty, so nothing else is called; a function that an older library lacks is
/// unsupported.
#include "verbs/loaded_library.hpp"

#include <cerrno>

#include <dlfcn.h>
#include <infiniband/verbs.h>

// The header makes inline functions of these.
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

namespace accel::verbs {
namespace {

/// It is never unloaded: devices and their drivers may be in use until the process ends.
void* library() noexcept {
    static void* const handle = ::dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    return handle;
}

template <class Function>
Function* function_of_library(const char* name) noexcept {
    return library() == nullptr ? nullptr : reinterpret_cast<Function*>(::dlsym(library(), name));
}

template <class Value>
Value unsupported(Value value) noexcept {
    errno = EOPNOTSUPP;
    return value;
}

}  // namespace

bool has_library() noexcept {
    return library() != nullptr;
}

}  // namespace accel::verbs

// NOLINTBEGIN(cppcoreguidelines-macro-usage, bugprone-macro-parentheses)
#define ACCEL_FORWARD(Result, name, parameters, arguments, otherwise)                                   \
    extern "C" Result name parameters {                                                                 \
        static const auto function = accel::verbs::function_of_library<Result parameters>(#name);       \
        return function != nullptr ? function arguments : accel::verbs::unsupported<Result>(otherwise); \
    }
#define ACCEL_FORWARD_VOID(name, parameters, arguments)                                         \
    extern "C" void name parameters {                                                           \
        static const auto function = accel::verbs::function_of_library<void parameters>(#name); \
        if (function != nullptr) function arguments;                                            \
    }
// NOLINTEND(cppcoreguidelines-macro-usage, bugprone-macro-parentheses)

ACCEL_FORWARD(ibv_device**, ibv_get_device_list, (int* count), (count), nullptr)
ACCEL_FORWARD_VOID(ibv_free_device_list, (ibv_device * *list), (list))
ACCEL_FORWARD(const char*, ibv_get_device_name, (ibv_device * device), (device), "")
ACCEL_FORWARD(ibv_fork_status, ibv_is_fork_initialized, (), (), IBV_FORK_UNNEEDED)
ACCEL_FORWARD(int, ibv_fork_init, (), (), EOPNOTSUPP)
ACCEL_FORWARD(ibv_context*, ibv_open_device, (ibv_device * device), (device), nullptr)
ACCEL_FORWARD(int, ibv_close_device, (ibv_context * context), (context), EOPNOTSUPP)
ACCEL_FORWARD(int, ibv_query_device, (ibv_context * context, ibv_device_attr* found), (context, found), EOPNOTSUPP)
ACCEL_FORWARD(int, ibv_query_port, (ibv_context * context, uint8_t port, _compat_ibv_port_attr* found),
              (context, port, found), EOPNOTSUPP)
ACCEL_FORWARD(int, _ibv_query_gid_ex,
              (ibv_context * context, uint32_t port, uint32_t index, ibv_gid_entry* found, uint32_t flags,
               size_t entry_size),
              (context, port, index, found, flags, entry_size), EOPNOTSUPP)
ACCEL_FORWARD(int, ibv_get_async_event, (ibv_context * context, ibv_async_event* event), (context, event), -1)
ACCEL_FORWARD_VOID(ibv_ack_async_event, (ibv_async_event * event), (event))
ACCEL_FORWARD(ibv_pd*, ibv_alloc_pd, (ibv_context * context), (context), nullptr)
ACCEL_FORWARD(int, ibv_dealloc_pd, (ibv_pd * domain), (domain), EOPNOTSUPP)
ACCEL_FORWARD(ibv_mr*, ibv_reg_mr, (ibv_pd * domain, void* address, size_t length, int access),
              (domain, address, length, access), nullptr)
ACCEL_FORWARD(ibv_mr*, ibv_reg_mr_iova2,
              (ibv_pd * domain, void* address, size_t length, uint64_t iova, unsigned int access),
              (domain, address, length, iova, access), nullptr)
ACCEL_FORWARD(ibv_mr*, ibv_reg_dmabuf_mr,
              (ibv_pd * domain, uint64_t offset, size_t length, uint64_t iova, int fd, int access),
              (domain, offset, length, iova, fd, access), nullptr)
ACCEL_FORWARD(int, ibv_dereg_mr, (ibv_mr * region), (region), EOPNOTSUPP)
ACCEL_FORWARD(ibv_comp_channel*, ibv_create_comp_channel, (ibv_context * context), (context), nullptr)
ACCEL_FORWARD(int, ibv_destroy_comp_channel, (ibv_comp_channel * channel), (channel), EOPNOTSUPP)
ACCEL_FORWARD(ibv_cq*, ibv_create_cq,
              (ibv_context * context, int entries, void* user, ibv_comp_channel* channel, int vector),
              (context, entries, user, channel, vector), nullptr)
ACCEL_FORWARD(int, ibv_destroy_cq, (ibv_cq * queue), (queue), EOPNOTSUPP)
ACCEL_FORWARD(int, ibv_get_cq_event, (ibv_comp_channel * channel, ibv_cq** queue, void** user), (channel, queue, user),
              -1)
ACCEL_FORWARD_VOID(ibv_ack_cq_events, (ibv_cq * queue, unsigned int count), (queue, count))
ACCEL_FORWARD(ibv_srq*, ibv_create_srq, (ibv_pd * domain, ibv_srq_init_attr* wanted), (domain, wanted), nullptr)
ACCEL_FORWARD(int, ibv_destroy_srq, (ibv_srq * queue), (queue), EOPNOTSUPP)
ACCEL_FORWARD(ibv_qp*, ibv_create_qp, (ibv_pd * domain, ibv_qp_init_attr* wanted), (domain, wanted), nullptr)
ACCEL_FORWARD(int, ibv_modify_qp, (ibv_qp * pair, ibv_qp_attr* wanted, int mask), (pair, wanted, mask), EOPNOTSUPP)
ACCEL_FORWARD(int, ibv_destroy_qp, (ibv_qp * pair), (pair), EOPNOTSUPP)
ACCEL_FORWARD(ibv_ah*, ibv_create_ah, (ibv_pd * domain, ibv_ah_attr* wanted), (domain, wanted), nullptr)
ACCEL_FORWARD(int, ibv_destroy_ah, (ibv_ah * handle), (handle), EOPNOTSUPP)
ACCEL_FORWARD(const char*, ibv_port_state_str, (ibv_port_state state), (state), "unknown")
ACCEL_FORWARD(const char*, ibv_wc_status_str, (ibv_wc_status status), (status), "unknown")
