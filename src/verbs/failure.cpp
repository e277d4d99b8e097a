#include "verbs/failure.hpp"

#include <cerrno>
#include <cstring>
#include <string>

#include <fmt/format.h>
#include <sys/resource.h>

namespace accel::verbs {
namespace {

std::string locked_memory_limit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "unlimited";
    return fmt::format("{} KiB", limit.rlim_cur / 1024);
}

}  // namespace

error verb_failed(std::string_view what, int native) {
    const bool memory = native == ENOMEM;
    return {memory ? status::out_of_memory : status::system_error, native,
            fmt::format("{}: {}{}", what, std::strerror(native),
                        memory ? " (the device or the limit of locked memory is exhausted)" : "")};
}

error registration_failed(std::size_t size_bytes, int native) {
    if (native != ENOMEM && native != EAGAIN) {
        return {
            status::system_error, native,
            fmt::format("cannot register {} bytes with the device: {}", size_bytes, std::strerror(native))};
    }
    return {
        status::out_of_memory, native,
        fmt::format("cannot register {} bytes with the device: the limit of locked memory is {}; raise it "
                    "with 'ulimit -l unlimited' (systemd: LimitMEMLOCK=infinity, docker: --ulimit "
                    "memlock=-1)",
                    size_bytes, locked_memory_limit())};
}

status meaning(ibv_wc_status native) noexcept {
    switch (native) {
        case IBV_WC_SUCCESS:
            return status::ok;
        case IBV_WC_RETRY_EXC_ERR:      // nobody acknowledges
        case IBV_WC_RNR_RETRY_EXC_ERR:  // the peer posts no receives
        case IBV_WC_WR_FLUSH_ERR:       // the queue pair had failed before
        case IBV_WC_REM_ABORT_ERR:
            return status::peer_lost;
        case IBV_WC_REM_ACCESS_ERR:  // the peer does not allow what it asked us to do
        case IBV_WC_REM_INV_REQ_ERR:
        case IBV_WC_REM_OP_ERR:
        case IBV_WC_LOC_ACCESS_ERR:  // the peer's request was not allowed
        case IBV_WC_BAD_RESP_ERR:
            return status::protocol_error;
        default:
            return status::system_error;
    }
}

}  // namespace accel::verbs
