#include "verbs/queue_pair.hpp"

#include <array>
#include <cerrno>

/// Posting to a queue pair that is driven directly.
namespace accel::verbs {
namespace {

/// All but the operation and the ranges.
void take_rest(const ibv_send_wr& from, mlx5::work_request& to) noexcept {
    to.flags =
        static_cast<std::uint8_t>(((from.send_flags & IBV_SEND_SIGNALED) != 0 ? mlx5::flag_signalled : 0) |
                                  ((from.send_flags & IBV_SEND_FENCE) != 0 ? mlx5::flag_fence : 0));
    to.carries_bytes = (from.send_flags & IBV_SEND_INLINE) != 0;
    to.immediate = mlx5::be32{from.imm_data};
    to.remote_address = from.wr.rdma.remote_addr;
    to.remote_key = from.wr.rdma.rkey;
}

mlx5::local_range range_of(const ibv_sge& segment) noexcept {
    return {segment.addr, segment.length, segment.lkey};
}

/// False: an operation that no queue pair of ours is asked for.
bool translate(const ibv_send_wr& from, mlx5::work_request& to) noexcept {
    switch (from.opcode) {
        case IBV_WR_RDMA_WRITE_WITH_IMM:
            to.operation = mlx5::opcode::write_immediate;
            break;
        case IBV_WR_RDMA_WRITE:
            to.operation = mlx5::opcode::write;
            break;
        case IBV_WR_RDMA_READ:
            to.operation = mlx5::opcode::read;
            break;
        case IBV_WR_SEND:
            to.operation = mlx5::opcode::send;
            break;
        case IBV_WR_SEND_WITH_IMM:
            to.operation = mlx5::opcode::send_immediate;
            break;
        default:
            return false;
    }
    take_rest(from, to);
    return true;
}

}  // namespace

int queue_pair::post_directly(ibv_send_wr* chain, ibv_send_wr** failed) noexcept {
    const bool usual =
        chain->next == nullptr && chain->opcode == IBV_WR_RDMA_WRITE_WITH_IMM && chain->num_sge == 1;
    if (!usual) [[unlikely]]
        return post_chain(chain, failed);
    // A message in one piece. What is known of it here is not looked at again.
    const mlx5::send_queue_ref& queue = direct_->at.sends;
    const mlx5::local_range range = range_of(*chain->sg_list);
    mlx5::work_request request;
    request.operation = mlx5::opcode::write_immediate;
    request.ranges = 1;
    request.first = &range;
    take_rest(*chain, request);
    const std::uint32_t block = queue.state->reserved & (queue.wqebbs - 1);
    if (mlx5::post(queue, request) != status::ok) [[unlikely]] {
        *failed = chain;
        return ENOMEM;
    }
    direct_->ids[block] = chain->wr_id;
    return 0;
}

/// Requests are written one behind the other; one doorbell tells of all.
[[gnu::noinline]] int queue_pair::post_chain(ibv_send_wr* chain, ibv_send_wr** failed) noexcept {
    const mlx5::send_queue_ref queue = direct_->at.sends;
    std::array<mlx5::local_range, send_segments> ranges;
    std::uint32_t last = 0;
    bool any = false;
    int error = 0;
    for (ibv_send_wr* each = chain; each != nullptr; each = each->next) {
        mlx5::work_request request;
        const auto count = static_cast<std::uint32_t>(each->num_sge);
        bool sane = count <= ranges.size() && translate(*each, request);
        for (std::uint32_t i = 0; sane && i < count; ++i) {
            ranges[i] = range_of(each->sg_list[i]);
        }
        request.ranges = count;
        request.first = ranges.data();
        const mlx5::request_size size = sane ? mlx5::size_of(request) : mlx5::request_size{};
        sane = sane && size.ds <= mlx5::max_ds;
        if (!sane || mlx5::reserve(queue, mlx5::wqebbs_of(size.ds), last) != status::ok) [[unlikely]] {
            *failed = each;
            error = sane ? ENOMEM : EINVAL;
            break;
        }
        mlx5::fill(queue, last, request, size);
        direct_->ids[last & (queue.wqebbs - 1)] = each->wr_id;
        any = true;
    }
    if (!any) return error;
    mlx5::publish(queue, queue.state->reserved);
    mlx5::ring(queue, last);
    return error;
}

bool queue_pair::take_sent_directly(const work_completion& completion, std::uint64_t& id) noexcept {
    const mlx5::send_queue_ref& queue = direct_->at.sends;
    id = direct_->ids[completion.counter & (queue.wqebbs - 1)];
    return mlx5::release(queue, completion.counter);
}

std::uint32_t queue_pair::post_receives(std::uint32_t count, empty_receives& chain) noexcept {
    if (direct_ != nullptr) {
        mlx5::post_empty(direct_->at.receives, count);
        return count;
    }
    return chain.post(count, [this](ibv_recv_wr* first, ibv_recv_wr** failed) {
        return ibv_post_recv(handle_.get(), first, failed);
    });
}

}  // namespace accel::verbs
