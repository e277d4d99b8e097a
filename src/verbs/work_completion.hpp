#pragma once

#include <cstdint>

#include <infiniband/verbs.h>

namespace accel::verbs {

enum class completed : std::uint8_t {
    sent,      ///< a send; also one that failed
    arrived,   ///< a write with immediate data, of a peer
    received,  ///< what else used up a receive, well or not
};

/// What a completion queue tells, by either way of asking it.
struct work_completion {
    std::uint64_t id = 0;  ///< of a send that went well, asked of libibverbs: its work request's
    std::uint32_t queue_pair = 0;
    std::uint32_t immediate = 0;  ///< with `arrived`
    std::uint16_t counter = 0;    ///< read from the queue itself: which send, or which shared receive
    completed kind = completed::sent;
    ibv_wc_status status = IBV_WC_SUCCESS;
};

}  // namespace accel::verbs
