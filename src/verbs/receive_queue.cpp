#include "verbs/receive_queue.hpp"

#include "verbs/failure.hpp"
#include "verbs/mlx5_driver.hpp"

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
    std::uint32_t got = std::min(depth, wanted.attr.max_wr);
    mlx5::shared_receive_queue_ref direct;
    if (on->driver() != nullptr) {
        auto located = on->driver()->locate(*srq);
        if (!located) return located.error();
        direct = *located;
        got = std::min(got, mlx5::write_empty_receives(direct));
    }
    return std::unique_ptr<receive_queue>(new receive_queue(std::move(*owner), std::move(srq), got, direct));
}

std::uint32_t receive_queue::post_by_verbs(std::uint32_t count, empty_receives& chain) noexcept {
    return chain.post(count, [this](ibv_recv_wr* first, ibv_recv_wr** failed) {
        return ibv_post_srq_recv(srq_.get(), first, failed);
    });
}

}  // namespace accel::verbs
