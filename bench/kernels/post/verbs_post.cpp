// SPDX-License-Identifier: Apache-2.0
#include "verbs_post.hpp"

#include "batch.hpp"
#include "verbs/device.hpp"
#include "verbs/domain.hpp"
#include "verbs/mlx5_driver.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

namespace accel::bench {
namespace {

using clock = std::chrono::steady_clock;
constexpr std::chrono::seconds patience{5};
constexpr std::uint32_t depth = 1024;
/// Timed together: reading the clock takes as long as posting. Each rings.
constexpr std::uint32_t calls_at_once = 7;
static_assert(calls_at_once * max_posted < depth);
constexpr unsigned access_bits = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

error failed(const char* what) {
    return {status::system_error, errno, std::string{what} + " failed"};
}

bool bring_up(ibv_qp& pair, const ibv_qp& peer, const verbs::port_address& port) {
    ibv_qp_attr wanted{};
    wanted.qp_state = IBV_QPS_INIT;
    wanted.port_num = port.number;
    wanted.qp_access_flags = access_bits;
    if (ibv_modify_qp(&pair, &wanted, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0)
        return false;
    wanted.qp_state = IBV_QPS_RTR;
    wanted.path_mtu = port.mtu;
    wanted.dest_qp_num = peer.qp_num;
    wanted.max_dest_rd_atomic = 1;
    wanted.min_rnr_timer = 12;
    wanted.ah_attr.port_num = port.number;
    wanted.ah_attr.dlid = port.lid;
    wanted.ah_attr.is_global = port.ethernet ? 1 : 0;
    wanted.ah_attr.grh.dgid = port.gid;
    wanted.ah_attr.grh.sgid_index = port.gid_index;
    wanted.ah_attr.grh.hop_limit = 1;
    if (ibv_modify_qp(&pair, &wanted,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0)
        return false;
    wanted.qp_state = IBV_QPS_RTS;
    wanted.timeout = 14;
    wanted.retry_cnt = 6;
    wanted.rnr_retry = 7;
    wanted.max_rd_atomic = 1;
    return ibv_modify_qp(&pair, &wanted,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                             IBV_QP_MAX_QP_RD_ATOMIC) == 0;
}

/// One way of posting: a pair that posts, and one that is written to.
struct way {
    verbs::cq_handle completions;
    verbs::cq_handle others;
    verbs::qp_handle pair;
    verbs::qp_handle other;

    [[nodiscard]] result<void> open(ibv_context& context, ibv_pd& domain, const verbs::port_address& port) {
        completions.reset(ibv_create_cq(&context, depth, nullptr, nullptr, 0));
        others.reset(ibv_create_cq(&context, 16, nullptr, nullptr, 0));
        if (!completions || !others) return failed("ibv_create_cq");
        for (auto [out, queue] : {std::pair{&pair, completions.get()}, std::pair{&other, others.get()}}) {
            ibv_qp_init_attr wanted{};
            wanted.send_cq = wanted.recv_cq = queue;
            wanted.qp_type = IBV_QPT_RC;
            wanted.cap = {depth, 1, 1, 1, 0};
            out->reset(ibv_create_qp(&domain, &wanted));
            if (!*out) return failed("ibv_create_qp");
        }
        if (!bring_up(*pair, *other, port) || !bring_up(*other, *pair, port)) return failed("ibv_modify_qp");
        return {};
    }
};

/// Nanoseconds a request of `call`, which posts `batch` and asks for one completion; `take` takes one.
template <class Call, class Take>
result<double> time_calls(std::uint32_t batch, std::uint64_t requests, Call call, Take take) {
    clock::duration spent{};
    std::uint64_t posted = 0;
    while (posted < requests) {
        const auto begin = clock::now();
        bool good = true;
        for (std::uint32_t i = 0; i < calls_at_once && good; ++i) good = call();
        spent += clock::now() - begin;
        for (std::uint32_t taken = 0; taken < calls_at_once && good;)
            if (take(good))
                ++taken;
            else
                good = clock::now() - begin < patience;
        if (!good) return error{status::system_error, 0, "a request failed, or its completion did not come"};
        posted += std::uint64_t{calls_at_once} * batch;
    }
    return std::chrono::duration<double, std::nano>(spent).count() / static_cast<double>(posted);
}

class device_post final : public verbs_post {
  public:
    [[nodiscard]] result<void> open_on(const std::string& name) {
        verbs_options wanted;
        wanted.device = name;
        auto opened = verbs::device::open(wanted, {});
        if (!opened) return opened.error();
        device_ = *opened;
        auto made = verbs::domain::create(device_);
        if (!made) return made.error();
        domain_ = *made;
        registered_.reset(ibv_reg_mr(domain_->get(), memory_.data(), memory_.size(), access_bits));
        if (!registered_) return failed("ibv_reg_mr");
        for (std::size_t i = 0; i < max_posted_bytes; ++i) memory_[i] = static_cast<std::byte>(i * 13 + 7);
        for (way* each : {&stock_, &own_, &gpu_})
            if (auto done = each->open(device_->context(), *domain_->get(), device_->port()); !done)
                return done.error();
        return {};
    }
    [[nodiscard]] std::string describe() const override { return device_->describe(); }
    [[nodiscard]] bool is_emulated() const noexcept override { return !device_->emulation().empty(); }
    [[nodiscard]] result<double> stock_post_ns(std::uint32_t batch, std::uint32_t payload_bytes,
                                               std::uint64_t requests) override;
    [[nodiscard]] result<double> own_post_ns(std::uint32_t batch, std::uint32_t payload_bytes,
                                             std::uint64_t requests) override;
    [[nodiscard]] result<stock_queues> queues() override;
    void clear() override { std::memset(memory_.data() + max_posted_bytes, 0, max_posted_bytes); }
    [[nodiscard]] bool has_arrived(std::uint32_t payload_bytes) const override {
        // The completion says that the peer has it, not that it is in memory yet.
        const auto until = clock::now() + std::chrono::milliseconds{100};
        bool same = false;
        while (!same && clock::now() < until) same = std::memcmp(memory_.data(), target(), payload_bytes) == 0;
        return same;
    }

  private:
    [[nodiscard]] const std::byte* target() const { return memory_.data() + max_posted_bytes; }
    [[nodiscard]] std::uint64_t local() const { return reinterpret_cast<std::uintptr_t>(memory_.data()); }
    [[nodiscard]] std::uint64_t remote() const { return local() + max_posted_bytes; }
    [[nodiscard]] result<stock_queues> locate(way& on);

    std::vector<std::byte> memory_ = std::vector<std::byte>(2 * max_posted_bytes);
    std::shared_ptr<verbs::device> device_;
    std::shared_ptr<verbs::domain> domain_;
    verbs::region_handle registered_;
    way stock_;
    way own_;
    way gpu_;
    std::optional<stock_queues> located_;
    mlx5::send_queue_state sends_state_;
    mlx5::completion_queue_state completions_state_;
};

result<stock_queues> device_post::locate(way& on) {
    auto driver = verbs::mlx5_driver::of(device_->context());
    if (!driver) return driver.error();
    auto sends = (*driver)->locate(*on.pair);
    if (!sends) return sends.error();
    auto completions = (*driver)->locate(*on.completions);
    if (!completions) return completions.error();
    return stock_queues{sends->sends, *completions, local(), remote(), registered_->lkey, registered_->rkey};
}

result<stock_queues> device_post::queues() {
    return locate(gpu_);
}

result<double> device_post::stock_post_ns(std::uint32_t batch, std::uint32_t payload_bytes, std::uint64_t requests) {
    if (batch == 0 || batch > max_posted) return failed("a batch of so many");
    ibv_sge range{local(), payload_bytes, registered_->lkey};
    std::array<ibv_send_wr, max_posted> chain{};
    for (std::uint32_t i = 0; i < batch; ++i) {
        chain[i].sg_list = &range;
        chain[i].num_sge = 1;
        chain[i].opcode = IBV_WR_RDMA_WRITE;
        chain[i].send_flags = i + 1 == batch ? IBV_SEND_SIGNALED : 0;
        chain[i].next = i + 1 == batch ? nullptr : &chain[i + 1];
        chain[i].wr.rdma.remote_addr = remote();
        chain[i].wr.rdma.rkey = registered_->rkey;
    }
    const auto call = [&] {
        ibv_send_wr* refused = nullptr;
        return ibv_post_send(stock_.pair.get(), chain.data(), &refused) == 0;
    };
    const auto take = [&](bool& good) {
        ibv_wc done{};
        const int got = ibv_poll_cq(stock_.completions.get(), 1, &done);
        good = got >= 0 && done.status == IBV_WC_SUCCESS;
        return got != 0;
    };
    return time_calls(batch, requests, call, take);
}

result<double> device_post::own_post_ns(std::uint32_t batch, std::uint32_t payload_bytes, std::uint64_t requests) {
    if (batch == 0 || batch > max_posted) return failed("a batch of so many");
    if (!located_) {
        auto located = locate(own_);
        if (!located) return located.error();
        located_ = *located;
        located_->sends.state = &sends_state_;
        located_->completions.state = &completions_state_;
    }
    const mlx5::local_range range{local(), payload_bytes, registered_->lkey};
    std::array<mlx5::work_request, max_posted> all{};
    for (mlx5::work_request& each : all) {
        each.ranges = 1;
        each.first = &range;
        each.remote_address = remote();
        each.remote_key = registered_->rkey;
    }
    all[batch - 1].flags = mlx5::flag_signalled;
    const auto call = [&] { return post<thread_scope>(located_->sends, all.data(), batch) == status::ok; };
    const auto take = [&](bool& good) {
        mlx5::completion done;
        if (!mlx5::take(located_->completions, done)) return false;
        mlx5::publish_taken(located_->completions);
        good = done.failure == mlx5::syndrome::none && mlx5::release(located_->sends, done.counter);
        return true;
    };
    return time_calls(batch, requests, call, take);
}

}  // namespace

result<std::unique_ptr<verbs_post>> verbs_post::open(const std::string& device) {
    auto made = std::make_unique<device_post>();
    if (auto done = made->open_on(device); !done) return done.error();
    return std::unique_ptr<verbs_post>(std::move(made));
}

}  // namespace accel::bench
