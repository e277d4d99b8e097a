#include "verbs/receive_queue.hpp"

#include "verbs/failure.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace accel::verbs {

result<std::unique_ptr<receive_queue>> receive_queue::create(const std::shared_ptr<device>& on,
                                                             std::uint32_t depth) {
    auto owner = domain::create(on);
    if (!owner) return owner.error();
    ibv_srq_init_attr wanted{};
    wanted.attr.max_wr = std::min<std::uint32_t>(depth, static_cast<std::uint32_t>(on->limits().max_srq_wr));
    wanted.attr.max_sge = 1;
    srq_handle srq(ibv_create_srq((*owner)->get(), &wanted));
    if (!srq) return verb_failed("no shared receive queue", errno);
    const std::uint32_t got = std::min(depth, wanted.attr.max_wr);
    return std::unique_ptr<receive_queue>(new receive_queue(std::move(*owner), std::move(srq), got));
}

}  // namespace accel::verbs
