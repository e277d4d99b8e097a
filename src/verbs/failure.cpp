// SPDX-License-Identifier: Apache-2.0
#include "verbs/failure.hpp"

#include <algorithm>
#include <array>
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

/// A failed work request: as libibverbs says it, as an mlx5 adapter does, and what it means for its link.
struct failure_row {
    ibv_wc_status native;
    mlx5::syndrome syndrome;
    status means;
};
constexpr std::array failures{
    failure_row{IBV_WC_LOC_LEN_ERR, mlx5::syndrome::local_length, status::system_error},
    failure_row{IBV_WC_LOC_QP_OP_ERR, mlx5::syndrome::local_queue_pair, status::system_error},
    failure_row{IBV_WC_LOC_PROT_ERR, mlx5::syndrome::local_protection, status::system_error},
    // The queue pair had failed before.
    failure_row{IBV_WC_WR_FLUSH_ERR, mlx5::syndrome::flushed, status::peer_lost},
    failure_row{IBV_WC_MW_BIND_ERR, mlx5::syndrome::window_bind, status::system_error},
    failure_row{IBV_WC_BAD_RESP_ERR, mlx5::syndrome::bad_response, status::protocol_error},
    // The peer's request was not allowed.
    failure_row{IBV_WC_LOC_ACCESS_ERR, mlx5::syndrome::local_access, status::protocol_error},
    // The peer does not allow what it asked this end to do.
    failure_row{IBV_WC_REM_INV_REQ_ERR, mlx5::syndrome::remote_invalid_request, status::protocol_error},
    failure_row{IBV_WC_REM_ACCESS_ERR, mlx5::syndrome::remote_access, status::protocol_error},
    failure_row{IBV_WC_REM_OP_ERR, mlx5::syndrome::remote_operation, status::protocol_error},
    // Nobody acknowledges.
    failure_row{IBV_WC_RETRY_EXC_ERR, mlx5::syndrome::retries_exceeded, status::peer_lost},
    // The peer posts no receives.
    failure_row{IBV_WC_RNR_RETRY_EXC_ERR, mlx5::syndrome::receiver_not_ready, status::peer_lost},
    failure_row{IBV_WC_REM_ABORT_ERR, mlx5::syndrome::remote_aborted, status::peer_lost},
};
/// The row for failures that the other side has no word for.
constexpr failure_row unknown{IBV_WC_GENERAL_ERR, mlx5::syndrome::local_queue_pair, status::system_error};

template <class Word>
const failure_row& row_of(Word word, Word failure_row::*column) noexcept {
    const auto* const found =
        std::find_if(failures.begin(), failures.end(), [&](const failure_row& each) { return each.*column == word; });
    return found == failures.end() ? unknown : *found;
}

}  // namespace

error verb_failed(std::string_view what, int native) {
    const bool memory = native == ENOMEM;
    return {memory ? status::out_of_memory : status::system_error, native,
            fmt::format("{}: {}{}", what, std::strerror(native),
                        memory ? " (the device is exhausted, or the limit of locked memory)" : "")};
}

error registration_failed(std::size_t size_bytes, int native) {
    if (native != ENOMEM && native != EAGAIN) {
        return {status::system_error, native,
                fmt::format("cannot register {} bytes with the device: {}", size_bytes, std::strerror(native))};
    }
    return {status::out_of_memory, native,
            fmt::format("cannot register {} bytes with the device: the limit of locked memory is {}; raise it with "
                        "'ulimit -l unlimited' (systemd: LimitMEMLOCK=infinity, docker: --ulimit memlock=-1)",
                        size_bytes, locked_memory_limit())};
}

mlx5::syndrome syndrome_of(ibv_wc_status native) noexcept {
    return row_of(native, &failure_row::native).syndrome;
}

ibv_wc_status native_of(mlx5::syndrome failure) noexcept {
    return row_of(failure, &failure_row::syndrome).native;
}

status meaning(mlx5::syndrome failure) noexcept {
    return row_of(failure, &failure_row::syndrome).means;
}

}  // namespace accel::verbs
