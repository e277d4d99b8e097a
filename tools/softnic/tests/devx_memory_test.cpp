// SPDX-License-Identifier: Apache-2.0
// Queues, records and keys in umems that the processor cannot reach. A memory behind an engine of its own stands for a
// GPU's: it is late, and may lose writes. Also umems of a dma-buf, for which a memfd stands.
#include "devx_fixture.hpp"
#include "hidden_memory.hpp"
#include "transport/requester.hpp"

#include <endian.h>
#include <infiniband/mlx5dv.h>

namespace accel::softnic {
namespace {

using testing::devx_exchange;
using testing::devx_fixture;
using testing::hidden_memory;

class hidden_plugin final : public dma_plugin {
  public:
    explicit hidden_plugin(std::shared_ptr<hidden_memory> memory) : memory_(std::move(memory)) {}

    dma_claim claim_range(std::uint64_t address, std::uint64_t) override {
        const auto start = reinterpret_cast<std::uint64_t>(memory_->address());
        const bool mine = address >= start && address < start + memory_->bytes().size();
        return mine ? dma_claim{memory_, 0} : dma_claim{};
    }
    dma_claim claim_dmabuf(const dmabuf_range&) override { return {}; }

  private:
    std::shared_ptr<hidden_memory> memory_;
};

/// Two queue pairs. Queues, records and the bytes that they move are where `device` points: in memory that is not
/// what the fixture's `memory` is. The second queue pair's places are behind the first's.
struct devx_memory : devx_fixture {
    static constexpr std::size_t between = 4096;
    static constexpr std::size_t data_place = 40 * 1024;
    std::shared_ptr<hidden_memory> hidden = std::make_shared<hidden_memory>(memory_bytes);
    std::uint8_t* device = hidden->bytes().data();
    devx_exchange queue = cq_command();
    devx_exchange pair[2]{qp_command(0), qp_command(0)};
    devx_exchange key{devx::opcode::create_mkey};

    void make_queues(std::uint64_t first_address) {
        std::memset(device, 0xf0, cq_record);
        std::memset(device + cq_record, 0, memory_bytes - cq_record);
        queue = cq_command();
        queue.set(devx::cqc::oi.at(devx::create_cq::context), 1);
        ASSERT_EQ(create(queue), 0);
        for (std::size_t index = 0; index < 2; ++index) {
            pair[index] = qp_command(queue.object());
            pair[index].set(devx::create_qp::wq_umem_offset, qp_place + index * between);
            pair[index].set(devx::qpc::dbr_addr.at(devx::create_qp::context), qp_record + index * 64);
            ASSERT_EQ(create(pair[index]), 0);
        }
        for (std::size_t index = 0; index < 2; ++index)
            testing::connect(on.adapter, qp(index), pair[1 - index].object());
        make_key(first_address);
    }
    void make_key(std::uint64_t first_address) {
        key = devx_exchange(devx::opcode::create_mkey);
        const auto put = [&](devx::field of, std::uint64_t value) {
            key.set(of.at(devx::create_mkey::context), value);
        };
        put(devx::mkc::access_mode_1_0, 1);
        for (const devx::field right : {devx::mkc::lr, devx::mkc::lw, devx::mkc::rr, devx::mkc::rw}) put(right, 1);
        put(devx::mkc::pd, pd);
        put(devx::mkc::start_addr, first_address);
        put(devx::mkc::len, memory_bytes);
        key.set(devx::create_mkey::umem_id, umem);
        ASSERT_EQ(create(key), 0);
        base = first_address;
    }
    queue_pair& qp(std::size_t index) { return *on.adapter.state.devices[0].find_queue_pair(pair[index].object()); }
    [[nodiscard]] std::uint32_t key_number() const { return key.object() << 8; }

    /// A write by the first queue pair from data_place to 4096 behind it.
    void post_write(std::uint16_t index, std::uint32_t size) {
        constexpr std::size_t receive_bytes = (1 << 2) << 6;
        std::uint8_t* slot = device + qp_place + receive_bytes + (index % 16) * 64;
        mlx5_wqe_ctrl_seg control{};
        control.opmod_idx_opcode = htobe32(std::uint32_t{index} << 8 | MLX5_OPCODE_RDMA_WRITE);
        control.qpn_ds = htobe32(pair[0].object() << 8 | 3);
        control.fm_ce_se = MLX5_WQE_CTRL_CQ_UPDATE;
        const mlx5_wqe_raddr_seg remote{htobe64(base + data_place + 4096), htobe32(key_number()), 0};
        const mlx5_wqe_data_seg data{htobe32(size), htobe32(key_number()), htobe64(base + data_place)};
        std::memcpy(slot, &control, 16);
        std::memcpy(slot + 16, &remote, 16);
        std::memcpy(slot + 32, &data, 16);
        const std::uint32_t produced = htobe32(index + 1u);
        std::memcpy(device + qp_record + MLX5_SND_DBR * 4, &produced, 4);
        requester::on_doorbell(on.adapter.state, qp(0));
    }
    [[nodiscard]] mlx5_cqe64 completion_at(std::size_t place) const {
        mlx5_cqe64 out;
        std::memcpy(&out, device + cq_place + place * 64, sizeof out);
        return out;
    }
    void expect_writes_arrive() {
        for (std::uint16_t index = 0; index < 40; ++index) {
            for (std::size_t at = 0; at < 2000; ++at) device[data_place + at] = static_cast<std::uint8_t>(at + index);
            post_write(index, 2000);
            ASSERT_TRUE(on.settle());
            const mlx5_cqe64 done = completion_at(index % 16);
            ASSERT_EQ(done.op_own, index / 16 % 2) << "opcode REQ, and the owner bit of this turn";
            ASSERT_EQ(be16toh(done.wqe_counter), index);
            ASSERT_EQ(std::memcmp(device + data_place, device + data_place + 4096, 2000), 0);
        }
    }
    std::uint64_t base = 0;
};

struct devx_hidden : devx_memory {
    devx_hidden() {
        on.adapter.state.dma.add(std::make_shared<hidden_plugin>(hidden));
        EXPECT_EQ(register_umem(hidden->address(), memory_bytes, 1, umem), 0);
    }
    [[nodiscard]] std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(hidden->address()); }
};

TEST_F(devx_hidden, queues_records_and_keys_work_in_memory_that_only_an_engine_reaches) {
    for (const bool strict : {false, true}) {
        on.adapter.state.config.strict = strict;
        make_queues(address());
        expect_writes_arrive();
        EXPECT_EQ(hidden->waiting(), 0u) << "who polls for a completion must see it";
    }
    EXPECT_EQ(on.adapter.state.count.late_wqes, 0u);
}

TEST_F(devx_hidden, queues_that_cannot_be_read_or_written_any_more_fail_their_queue_pair) {
    for (bool* fails : {&hidden->refuse_reads, &hidden->lose_writes}) {
        make_queues(address());
        *fails = true;
        post_write(0, 8);
        static_cast<void>(on.settle(1'000'000));
        EXPECT_EQ(qp(0).state, qp_state::error);
        *fails = false;
    }
}

struct devx_dmabuf : devx_memory {
    static constexpr std::size_t skipped = 8192;
    int buffer = ::memfd_create("buffer", MFD_CLOEXEC);
    std::uint8_t* mapping = nullptr;

    devx_dmabuf() {
        EXPECT_EQ(::ftruncate(buffer, skipped + memory_bytes), 0);
        mapping = static_cast<std::uint8_t*>(
            ::mmap(nullptr, skipped + memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, buffer, 0));
        device = mapping + skipped;
    }
    ~devx_dmabuf() override {
        ::munmap(mapping, skipped + memory_bytes);
        ::close(buffer);
    }
};

TEST_F(devx_dmabuf, queues_records_and_keys_work_in_a_dma_buf) {
    ASSERT_EQ(register_dmabuf(buffer, skipped, memory_bytes, umem), 0);
    make_queues(1 << 20);
    expect_writes_arrive();
}

TEST_F(devx_dmabuf, a_umem_beyond_the_end_of_its_dma_buf_is_refused) {
    EXPECT_NE(register_dmabuf(buffer, skipped + 4096, memory_bytes, umem), 0);
    on.adapter.state.config.dmabuf = false;
    EXPECT_EQ(register_dmabuf(buffer, skipped, memory_bytes, umem), EOPNOTSUPP);
}

}  // namespace
}  // namespace accel::softnic
