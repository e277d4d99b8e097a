// SPDX-License-Identifier: Apache-2.0
// Dynamically connected transport between two processes, by mlx5dv alone: one initiator writes, reads, adds and sends
// to two targets of another process in turns, and every byte is compared. Runs under `softnic run`.
#include "peer_line.hpp"
#include "verbs_pair.hpp"

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

#include <arpa/inet.h>
#include <infiniband/mlx5dv.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

namespace st = accel::softnic::testing;
using st::line;
using st::require;
using st::wait_for;

constexpr std::size_t memory_bytes = 1 << 20;
constexpr std::size_t counter_at = memory_bytes - 64;  ///< what atomics add to
constexpr std::uint32_t message_bytes = 9000;
constexpr std::uint32_t rounds = 120;
constexpr std::array<std::uint64_t, 2> access_keys{0x1122334455667788, 0xfedcba9876543210};
constexpr int receive_access = IBV_ACCESS_LOCAL_WRITE;
constexpr int all_access =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

std::uint8_t pattern(std::uint64_t seed, std::size_t at) {
    return static_cast<std::uint8_t>(seed * 131 + at * 7 + (at >> 8));
}
void fill(std::uint8_t* to, std::size_t size, std::uint64_t seed) {
    for (std::size_t at = 0; at < size; ++at) to[at] = pattern(seed, at);
}
bool matches(const std::uint8_t* data, std::size_t size, std::uint64_t seed) {
    for (std::size_t at = 0; at < size; ++at)
        if (data[at] != pattern(seed, at)) return false;
    return true;
}
std::size_t place_of(std::uint32_t round) {
    return std::size_t{round} * 7919 % (memory_bytes / 2);
}
std::uint32_t length_of(std::uint32_t round) {
    return 1 + round * 2377 % 40'000;
}

/// What the initiator has to know.
struct invitation {
    std::array<std::uint32_t, 2> targets;
    std::uint32_t rkey;
    std::uint16_t lid;
    ibv_gid gid;
    std::uint64_t address;
};

enum class request : std::uint32_t { check_write, fill, check_sends, counter, stop };
struct order {
    request what;
    std::uint32_t round;
};

/// Both ends: a device, memory, a completion queue.
struct side {
    st::context_owner context = st::open_device();
    st::pd_owner pd{ibv_alloc_pd(context.get())};
    std::vector<std::uint8_t> memory = std::vector<std::uint8_t>(memory_bytes);
    st::mr_owner region{ibv_reg_mr(pd.get(), memory.data(), memory.size(), all_access)};
    st::cq_owner cq{ibv_create_cq(context.get(), 512, nullptr, nullptr, 0)};
    ibv_port_attr port{};
    std::uint8_t gid_index = 0;
    ibv_gid gid{};

    side() {
        require(ibv_query_port(context.get(), 1, &port) == 0, "no port");
        gid_index = ethernet() ? 3 : 0;
        require(ibv_query_gid(context.get(), 1, gid_index, &gid) == 0, "no GID");
    }
    [[nodiscard]] bool ethernet() const { return port.link_layer == IBV_LINK_LAYER_ETHERNET; }
    [[nodiscard]] ibv_ah_attr address_of(std::uint16_t lid, const ibv_gid& to) const {
        ibv_ah_attr out{};
        out.port_num = 1;
        out.dlid = lid;
        out.is_global = ethernet() ? 1 : 0;
        out.grh.dgid = to;
        out.grh.sgid_index = gid_index;
        out.grh.hop_limit = 64;
        return out;
    }
};

ibv_qp* make_dynamic(side& of, mlx5dv_dc_type type, std::uint64_t access_key, ibv_srq* srq) {
    ibv_qp_init_attr_ex init{};
    init.qp_type = IBV_QPT_DRIVER;
    init.send_cq = init.recv_cq = of.cq.get();
    init.srq = srq;
    init.pd = of.pd.get();
    init.comp_mask = IBV_QP_INIT_ATTR_PD;
    mlx5dv_qp_init_attr own{};
    own.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
    own.dc_init_attr.dc_type = type;
    if (type == MLX5DV_DCTYPE_DCI) {
        init.cap = {128, 0, 2, 0, 64};
        init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        init.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_SEND_WITH_IMM |
                              IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    } else {
        own.dc_init_attr.dct_access_key = access_key;
    }
    return st::required(mlx5dv_create_qp(of.context.get(), &init, &own), "dynamically connected queue pair");
}

void modify(ibv_qp* qp, ibv_qp_attr& attr, int mask, const char* what) {
    require(ibv_modify_qp(qp, &attr, mask) == 0, what);
}

// ---- the target's process

class target_process : side {
  public:
    explicit target_process(line to) : line_(to) {}

    int run() {
        invite();
        for (;;) {
            const auto next = line_.hear<order>();
            if (next.what == request::stop) return 0;
            line_.say(obey(next));
        }
    }

  private:
    void make_ready(ibv_qp* dct) const {
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_INIT;
        attr.port_num = 1;
        attr.qp_access_flags = all_access;
        modify(dct, attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "DCT: INIT refused");
        attr.qp_state = IBV_QPS_RTR;
        attr.path_mtu = IBV_MTU_1024;
        attr.min_rnr_timer = 1;
        attr.ah_attr = address_of(0, {});
        modify(dct, attr, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU, "DCT: RTR refused");
        require(dct->qp_num != 0, "the target has no number");
    }
    void post_receive(std::uint64_t slot) {
        ibv_sge piece{reinterpret_cast<std::uint64_t>(receives_.data()) + slot * message_bytes, message_bytes,
                      receives_region_->lkey};
        ibv_recv_wr what{slot, nullptr, &piece, 1};
        ibv_recv_wr* bad = nullptr;
        require(ibv_post_srq_recv(srq_.get(), &what, &bad) == 0, "cannot post a receive");
    }
    void invite() {
        invitation out{};
        for (std::size_t at = 0; at < 2; ++at) {
            targets_[at].reset(make_dynamic(*this, MLX5DV_DCTYPE_DCT, access_keys[at], srq_.get()));
            make_ready(targets_[at].get());
            out.targets[at] = targets_[at]->qp_num;
        }
        require(out.targets[0] != out.targets[1], "two targets have one number");
        out.rkey = region->rkey;
        out.lid = port.lid;
        out.gid = gid;
        out.address = reinterpret_cast<std::uint64_t>(memory.data());
        line_.say(out);
    }
    std::uint64_t obey(order next) {
        switch (next.what) {
            case request::check_write:
                return comes(next.round) ? 1 : 0;
            case request::fill:
                fill(memory.data(), memory_bytes / 2 + 40'000, next.round);
                return 1;
            case request::check_sends:
                return check_sends(next.round);
            case request::counter: {
                std::uint64_t value = 0;
                std::memcpy(&value, memory.data() + counter_at, sizeof value);
                return value;
            }
            case request::stop:
                break;
        }
        return 0;
    }
    /// A completion at the initiator does not say that this processor sees the data already.
    [[nodiscard]] bool comes(std::uint32_t round) const {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
        while (!matches(memory.data() + place_of(round), length_of(round), round))
            if (std::chrono::steady_clock::now() > deadline) return false;
        return true;
    }
    /// Receives come late at first: the initiator has to wait for them.
    std::uint64_t check_sends(std::uint32_t count) {
        ::usleep(20'000);
        std::uint64_t good = 0;
        for (std::uint32_t at = 0; at < count; ++at) {
            post_receive(at % slots);
            const ibv_wc wc = wait_for(cq.get());
            const std::uint32_t length = 1 + at * 733 % message_bytes;
            const bool same = matches(receives_.data() + wc.wr_id * message_bytes, length, at);
            const bool right = wc.status == IBV_WC_SUCCESS && wc.byte_len == length && ntohl(wc.imm_data) == at &&
                               wc.qp_num == targets_[at % 2]->qp_num;
            good += same && right ? 1 : 0;
        }
        return good;
    }

    static constexpr std::uint32_t slots = 16;
    line line_;
    std::vector<std::uint8_t> receives_ = std::vector<std::uint8_t>(slots * message_bytes);
    st::mr_owner receives_region_{ibv_reg_mr(pd.get(), receives_.data(), receives_.size(), receive_access)};
    st::srq_owner srq_ = [this] {
        ibv_srq_init_attr init{};
        init.attr = {64, 1, 0};
        return st::srq_owner(st::required(ibv_create_srq(pd.get(), &init), "SRQ"));
    }();
    std::array<st::qp_owner, 2> targets_;
};

// ---- the initiator's process

class initiator_process : side {
  public:
    explicit initiator_process(line to) : line_(to), there_(line_.hear<invitation>()) {
        ibv_ah_attr to_there = address_of(there_.lid, there_.gid);
        address_.reset(st::required(ibv_create_ah(pd.get(), &to_there), "address"));
        make_ready();
    }

    void run() {
        write_to_both();
        read_from_both();
        add_to_one();
        send_to_both();
        fail_and_go_on(access_keys[0] + 1, there_.targets[0], IBV_WC_REM_ACCESS_ERR, "a wrong key is refused");
        fail_and_go_on(access_keys[0], 0xfff0, IBV_WC_RETRY_EXC_ERR, "nobody answers for a target that is not there");
        write_round(7, 0);
        require(wait_for(cq.get()).status == IBV_WC_SUCCESS && ask(request::check_write, 7) == 1,
                "the target serves on after errors of its peers");
        line_.say(order{request::stop, 0});
    }

  private:
    using ah_owner = st::owned<ibv_ah, ibv_destroy_ah>;

    void make_ready() {
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_INIT;
        attr.port_num = 1;
        modify(qp_.get(), attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT, "DCI: INIT refused");
        attr.qp_state = IBV_QPS_RTR;
        attr.path_mtu = IBV_MTU_1024;
        modify(qp_.get(), attr, IBV_QP_STATE | IBV_QP_PATH_MTU, "DCI: RTR refused");
        attr.qp_state = IBV_QPS_RTS;
        attr.timeout = 14;
        attr.retry_cnt = 7;
        attr.rnr_retry = 7;
        attr.max_rd_atomic = 8;
        modify(qp_.get(), attr,
               IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                   IBV_QP_MAX_QP_RD_ATOMIC,
               "DCI: RTS refused");
    }
    std::uint64_t ask(request what, std::uint32_t round) {
        line_.say(order{what, round});
        return line_.hear<std::uint64_t>();
    }
    /// Between `begin` and `end` stands what the message does.
    void begin(std::uint64_t id) {
        ibv_wr_start(ex_);
        ex_->wr_id = id;
        ex_->wr_flags = IBV_SEND_SIGNALED;
    }
    void end(std::size_t target, std::size_t offset, std::uint32_t length) {
        end_to(there_.targets[target], access_keys[target], offset, length);
    }
    void end_to(std::uint32_t number, std::uint64_t access_key, std::size_t offset, std::uint32_t length) {
        mlx5dv_wr_set_dc_addr(dv_, address_.get(), number, access_key);
        ibv_wr_set_sge(ex_, region->lkey, reinterpret_cast<std::uint64_t>(memory.data()) + offset, length);
        require(ibv_wr_complete(ex_) == 0, "cannot post");
    }
    void write_round(std::uint32_t round, std::size_t target) {
        fill(memory.data() + place_of(round), length_of(round), round);
        begin(round);
        ibv_wr_rdma_write(ex_, there_.rkey, there_.address + place_of(round));
        end(target, place_of(round), length_of(round));
    }
    void write_to_both() {
        for (std::uint32_t round = 0; round < rounds; ++round) {
            write_round(round, round % 2);
            const ibv_wc wc = wait_for(cq.get());
            require(wc.status == IBV_WC_SUCCESS && wc.wr_id == round, "a write failed");
            require(ask(request::check_write, round) == 1, "a write left wrong bytes");
        }
    }
    /// Several on their way at once, to one target and the other.
    void read_from_both() {
        constexpr std::uint32_t batch = 6;
        for (std::uint32_t round = 0; round < rounds; round += batch) {
            require(ask(request::fill, round) == 1, "the target cannot fill its memory");
            std::memset(memory.data(), 0, memory.size());
            for (std::uint32_t at = 0; at < batch; ++at) {
                begin(at);
                ibv_wr_rdma_read(ex_, there_.rkey, there_.address + std::uint64_t{at} * 40'000);
                end(at / 2 % 2, std::size_t{at} * 40'000, length_of(round + at));
            }
            for (std::uint32_t at = 0; at < batch; ++at) {
                const ibv_wc wc = wait_for(cq.get());
                require(wc.status == IBV_WC_SUCCESS && wc.wr_id == at, "a read failed");
                for (std::size_t byte = 0; byte < length_of(round + at); ++byte) {
                    const std::size_t where = std::size_t{at} * 40'000 + byte;
                    require(memory[where] == pattern(round, where), "a read brought wrong bytes");
                }
            }
        }
    }
    void add_to_one() {
        std::uint64_t expected = ask(request::counter, 0);
        for (std::uint32_t round = 0; round < rounds; ++round) {
            begin(round);
            ibv_wr_atomic_fetch_add(ex_, there_.rkey, there_.address + counter_at, round);
            end(round % 2, 0, sizeof expected);
            require(wait_for(cq.get()).status == IBV_WC_SUCCESS, "an atomic failed");
            std::uint64_t before = 0;
            std::memcpy(&before, memory.data(), sizeof before);
            require(before == expected, "an atomic was done twice, or not");
            expected += round;
        }
        require(ask(request::counter, 0) == expected, "atomics got lost");
    }
    void expect_sent() {
        const ibv_wc wc = wait_for(cq.get());
        if (wc.status != IBV_WC_SUCCESS) std::fprintf(stderr, "dc_program: %s\n", ibv_wc_status_str(wc.status));
        require(wc.status == IBV_WC_SUCCESS, "a send failed");
    }
    void send_to_both() {
        constexpr std::uint32_t window = 8;
        line_.say(order{request::check_sends, rounds});
        for (std::uint32_t round = 0; round < rounds; ++round) {
            const std::size_t offset = std::size_t{round % window} * message_bytes;
            if (round >= window) expect_sent();
            const std::uint32_t length = 1 + round * 733 % message_bytes;
            fill(memory.data() + offset, length, round);
            begin(round);
            ibv_wr_send_imm(ex_, htonl(round));
            end(round % 2, offset, length);
        }
        for (std::uint32_t at = 0; at < window; ++at) expect_sent();
        require(line_.hear<std::uint64_t>() == rounds, "sends brought wrong bytes");
    }
    void fail_and_go_on(std::uint64_t access_key, std::uint32_t number, ibv_wc_status expected, const char* what) {
        begin(1);
        ibv_wr_rdma_write(ex_, there_.rkey, there_.address);
        end_to(number, access_key, 0, 64);
        begin(2);
        ibv_wr_rdma_write(ex_, there_.rkey, there_.address);
        end(1, 0, 64);
        const ibv_wc first = wait_for(cq.get());
        if (first.status != expected) std::fprintf(stderr, "dc_program: %s\n", ibv_wc_status_str(first.status));
        require(first.status == expected, what);
        require(wait_for(cq.get()).status == IBV_WC_WR_FLUSH_ERR, "what is behind an error is flushed");
        ibv_qp_attr attr{};
        ibv_qp_init_attr init{};
        require(ibv_query_qp(qp_.get(), &attr, IBV_QP_STATE, &init) == 0 && attr.qp_state == IBV_QPS_ERR,
                "the initiator is in the error state");
        attr.qp_state = IBV_QPS_RESET;
        modify(qp_.get(), attr, IBV_QP_STATE, "DCI: RESET refused");
        make_ready();
    }

    line line_;
    invitation there_;
    st::qp_owner qp_{make_dynamic(*this, MLX5DV_DCTYPE_DCI, 0, nullptr)};
    ibv_qp_ex* ex_ = ibv_qp_to_qp_ex(qp_.get());
    mlx5dv_qp_ex* dv_ = mlx5dv_qp_ex_from_ibv_qp_ex(ex_);
    ah_owner address_;
};

}  // namespace

int main() {
    std::array<int, 2> ends{};
    require(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0, "no sockets");
    const pid_t child = ::fork();  // before any device is open
    ::close(ends[child == 0 ? 0 : 1]);
    if (child == 0) return target_process(line(ends[1])).run();
    initiator_process(line(ends[0])).run();
    int status = 0;
    ::waitpid(child, &status, 0);
    require(status == 0, "the target failed");
    std::puts("dc_program: writes, reads, atomics and sends compared");
    return 0;
}
