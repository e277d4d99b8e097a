// SPDX-License-Identifier: Apache-2.0
#include "kernels/queues/devx_queue_pair.hpp"

#include "kernels/queues/devx_command.hpp"
#include "verbs/failure.hpp"
#include "verbs/handles.hpp"
#include "verbs/mlx5_library.hpp"
#include "verbs/path.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#if __has_include(<infiniband/mlx5dv.h>)
#include <infiniband/mlx5dv.h>
#define ACCEL_HAS_DEVX 1
#else
#define ACCEL_HAS_DEVX 0
#endif

namespace accel::gpu {

#if ACCEL_HAS_DEVX
/// The functions of libmlx5 for DevX (rdma-core 23), and for dma-bufs (rdma-core 43), which may be missing.
struct devx::functions {
    decltype(&::mlx5dv_init_obj) init_object = nullptr;
    decltype(&::mlx5dv_devx_umem_reg) register_memory = nullptr;
    decltype(&::mlx5dv_devx_umem_reg_ex) register_memory_ex = nullptr;
    decltype(&::mlx5dv_devx_umem_dereg) release_memory = nullptr;
    decltype(&::mlx5dv_devx_alloc_uar) allocate_page = nullptr;
    decltype(&::mlx5dv_devx_free_uar) free_page = nullptr;
    decltype(&::mlx5dv_devx_query_eqn) query_event_queue = nullptr;
    decltype(&::mlx5dv_devx_obj_create) create = nullptr;
    decltype(&::mlx5dv_devx_obj_modify) modify = nullptr;
    decltype(&::mlx5dv_devx_obj_destroy) destroy = nullptr;

    [[nodiscard]] bool complete() const noexcept {
        return init_object != nullptr && register_memory != nullptr && release_memory != nullptr &&
               allocate_page != nullptr && free_page != nullptr && query_event_queue != nullptr && create != nullptr &&
               modify != nullptr && destroy != nullptr;
    }
};
#else
struct devx::functions {};
#endif

namespace {

constexpr std::size_t page_bytes = 4096;
/// The records' page: the queue pair's first, then the completion queue's, each in a cache line of its own.
constexpr std::size_t completion_record_offset = 64;
/// The adapter asks for an acknowledgement once in 2^8 packets, as Linux's driver has it.
constexpr std::uint8_t log_ack_request_frequency = 8;
constexpr std::uint8_t log_max_message = 30;
constexpr std::uint32_t no_user_index = 0xff'ffff;

std::uint32_t log_size_for(std::uint32_t sends) noexcept {
    return static_cast<std::uint32_t>(std::bit_width(std::bit_ceil(std::max(sends, 1U))) - 1);
}
std::size_t whole_pages(std::size_t bytes) noexcept {
    return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}
/// The bytes of the send queue, and of the completion queue: WQEBBs and completions have 64 bytes each.
std::size_t ring_bytes(std::uint32_t log_size) noexcept {
    return whole_pages(std::size_t{mlx5::wqebb_bytes} << log_size);
}
std::size_t records_offset(std::uint32_t log_size) noexcept {
    return 2 * ring_bytes(log_size);
}

}  // namespace

std::size_t devx_queue_pair::memory_bytes(std::uint32_t sends) noexcept {
    return records_offset(log_size_for(sends)) + page_bytes;
}

/// Entries that the adapter has not written yet have an owner of their own.
std::vector<std::byte> devx_queue_pair::initial_memory(std::uint32_t sends) {
    constexpr std::byte invalid{0xf0};
    const std::uint32_t log_size = log_size_for(sends);
    std::vector<std::byte> out(memory_bytes(sends));
    const std::size_t first = ring_bytes(log_size);
    for (std::size_t i = 0; i < std::size_t{1} << log_size; ++i)
        out[first + i * sizeof(mlx5::completion_entry) + offsetof(mlx5::completion_entry, owner_kind)] = invalid;
    return out;
}

#if ACCEL_HAS_DEVX
namespace {

/// Null: libmlx5 is not loaded, or older.
const devx::functions* loaded_functions() noexcept {
    static const devx::functions found = [] {
        devx::functions out;
        const auto find = [](auto& function, const char* name) {
            function = verbs::mlx5_function<std::remove_pointer_t<std::remove_reference_t<decltype(function)>>>(name);
        };
        find(out.init_object, "mlx5dv_init_obj");
        find(out.register_memory, "mlx5dv_devx_umem_reg");
        find(out.register_memory_ex, "mlx5dv_devx_umem_reg_ex");
        find(out.release_memory, "mlx5dv_devx_umem_dereg");
        find(out.allocate_page, "mlx5dv_devx_alloc_uar");
        find(out.free_page, "mlx5dv_devx_free_uar");
        find(out.query_event_queue, "mlx5dv_devx_query_eqn");
        find(out.create, "mlx5dv_devx_obj_create");
        find(out.modify, "mlx5dv_devx_obj_modify");
        find(out.destroy, "mlx5dv_devx_obj_destroy");
        return out;
    }();
    return found.complete() ? &found : nullptr;
}

error no_devx(std::string_view what, int native, std::string_view detail = {}) {
    return {status::unsupported, native, fmt::format("{}: {}{}", what, std::strerror(native), detail)};
}

/// Null, with errno: not taken.
mlx5dv_devx_umem* import_dma_buf(const devx::functions& with, ibv_context& on, const core::dma_buf& from,
                                 std::size_t bytes) noexcept {
    mlx5dv_devx_umem_in wanted{};
    // NOLINTNEXTLINE(performance-no-int-to-ptr): of a dma-buf it is an offset
    wanted.addr = reinterpret_cast<void*>(from.offset);
    wanted.size = bytes;
    wanted.access = IBV_ACCESS_LOCAL_WRITE;
    wanted.pgsz_bitmap = page_bytes;
    wanted.comp_mask = MLX5DV_UMEM_MASK_DMABUF;
    wanted.dmabuf_fd = from.fd;
    return with.register_memory_ex(&on, &wanted);
}

}  // namespace

void devx_queue_pair::remover::operator()(mlx5dv_devx_umem* memory) const noexcept {
    (void)with->release_memory(memory);
}
void devx_queue_pair::remover::operator()(mlx5dv_devx_uar* page) const noexcept {
    with->free_page(page);
}
void devx_queue_pair::remover::operator()(mlx5dv_devx_obj* object) const noexcept {
    (void)with->destroy(object);
}

result<std::unique_ptr<devx_queue_pair>> devx_queue_pair::create(std::shared_ptr<verbs::device> on, ibv_pd& domain,
                                                                 const queue_memory& memory, std::uint32_t sends) {
    const devx::functions* const with = loaded_functions();
    if (with == nullptr) return error{status::unsupported, 0, "libmlx5 has no DevX; use rdma-core 23 or later"};
    auto psn = verbs::random_psn();
    if (!psn) return psn.error();
    std::unique_ptr<devx_queue_pair> made(new devx_queue_pair(std::move(on), domain, *with, *psn));
    made->log_size_ = log_size_for(sends);
    if (auto done = made->take_memory(memory); !done) return done.error();
    if (auto done = made->take_doorbell_page(); !done) return done.error();
    made->locate(memory.bytes);
    if (auto done = made->make_completion_queue(); !done) return done.error();
    if (auto done = made->make_queue_pair(); !done) return done.error();
    return made;
}

devx_queue_pair::devx_queue_pair(std::shared_ptr<verbs::device> on, ibv_pd& domain, const devx::functions& with,
                                 std::uint32_t first_psn) noexcept
    : device_(std::move(on)),
      domain_(&domain),
      with_(&with),
      first_psn_(first_psn),
      memory_(nullptr, {&with}),
      page_(nullptr, {&with}),
      completion_queue_(nullptr, {&with}),
      queue_pair_(nullptr, {&with}) {}

/// A GPU's memory goes as a dma-buf, else as peer memory.
result<void> devx_queue_pair::take_memory(const queue_memory& memory) {
    ibv_context& context = device_->context();
    if (memory.gpu != nullptr && with_->register_memory_ex != nullptr) {
        if (auto exported = memory.gpu->export_memory(memory.bytes.data(), memory.bytes.size())) {
            memory_.reset(import_dma_buf(*with_, context, *exported, memory.bytes.size()));
            ::close(exported->fd);
        }
    }
    if (!memory_)
        memory_.reset(
            with_->register_memory(&context, memory.bytes.data(), memory.bytes.size(), IBV_ACCESS_LOCAL_WRITE));
    if (memory_) return {};
    return no_devx(fmt::format("{} does not accept queues in {}", device_->name(),
                               memory.gpu != nullptr ? memory.gpu->name() : "the host's memory"),
                   errno);
}

/// Not combined where there is such a page: a GPU writes whole doorbells.
result<void> devx_queue_pair::take_doorbell_page() {
    page_.reset(with_->allocate_page(&device_->context(), MLX5DV_UAR_ALLOC_TYPE_NC));
    if (!page_) page_.reset(with_->allocate_page(&device_->context(), MLX5DV_UAR_ALLOC_TYPE_BF));
    if (page_) return {};
    return no_devx(fmt::format("{} has no doorbell page left", device_->name()), errno);
}

void devx_queue_pair::locate(std::span<std::byte> memory) noexcept {
    std::byte* const records = memory.data() + records_offset(log_size_);
    sends_.ring = memory.data();
    sends_.wqebbs = 1U << log_size_;
    sends_.doorbell_record = reinterpret_cast<mlx5::be32*>(records) + MLX5_SND_DBR;
    sends_.doorbell = static_cast<std::uint64_t*>(page_->reg_addr);
    completions_.entries = memory.data() + ring_bytes(log_size_);
    completions_.count = 1U << log_size_;
    completions_.entry_bytes = sizeof(mlx5::completion_entry);
    completions_.doorbell_record = reinterpret_cast<mlx5::be32*>(records + completion_record_offset);
}

result<void> devx_queue_pair::make_completion_queue() {
    std::uint32_t events = 0;
    if (const int failed = with_->query_event_queue(&device_->context(), 0, &events); failed != 0)
        return no_devx(fmt::format("{} reports no event queue", device_->name()), failed);
    devx::command command(devx::opcode::create_cq);
    const auto put = [&](devx::field where, std::uint64_t value) {
        command.set(where.in(devx::create_cq::context), value);
    };
    put(devx::cqc::log_cq_size, log_size_);
    put(devx::cqc::uar_page, page_->page_id);
    put(devx::cqc::c_eqn, events);
    put(devx::cqc::dbr_umem_id, memory_->umem_id);
    put(devx::cqc::dbr_addr, records_offset(log_size_) + completion_record_offset);
    command.set(devx::create_cq::umem_id, memory_->umem_id);
    command.set(devx::create_cq::umem_offset, ring_bytes(log_size_));
    completion_queue_.reset(
        with_->create(&device_->context(), command.in(), command.bytes(), command.out(), command.bytes()));
    if (!completion_queue_) return no_devx("cannot make a completion queue with DevX", errno, command.refusal());
    completions_.number = command.get(devx::header::object);
    return {};
}

result<void> devx_queue_pair::make_queue_pair() {
    mlx5dv_pd found{};
    mlx5dv_obj wanted{};
    wanted.pd.in = domain_;
    wanted.pd.out = &found;
    if (const int failed = with_->init_object(&wanted, MLX5DV_OBJ_PD); failed != 0)
        return no_devx("the driver does not report the domain's number", failed);
    devx::command command(devx::opcode::create_qp);
    const auto put = [&](devx::field where, std::uint64_t value) { command.set(where.in(devx::qpc::start), value); };
    put(devx::qpc::pm_state, devx::qpc::migrated);
    put(devx::qpc::pd, found.pdn);
    put(devx::qpc::uar_page, page_->page_id);
    put(devx::qpc::user_index, no_user_index);
    put(devx::qpc::log_sq_size, log_size_);
    put(devx::qpc::rq_type, devx::qpc::no_receive_queue);
    put(devx::qpc::cqn_snd, completions_.number);
    put(devx::qpc::cqn_rcv, completions_.number);
    put(devx::qpc::dbr_umem_id, memory_->umem_id);
    put(devx::qpc::dbr_addr, records_offset(log_size_));
    command.set(devx::create_qp::wq_umem_id, memory_->umem_id);
    queue_pair_.reset(
        with_->create(&device_->context(), command.in(), command.bytes(), command.out(), command.bytes()));
    if (!queue_pair_) return no_devx("cannot make a queue pair with DevX", errno, command.refusal());
    sends_.queue_pair = command.get(devx::header::object);
    return {};
}

void devx_queue_pair::describe(verbs::endpoint& out) const noexcept {
    describe_port(*device_, out);
    out.queue_pair = number();
    out.first_psn = first_psn_;
}

result<void> devx_queue_pair::connect(const verbs::endpoint& peer, const verbs_options& options) {
    if (auto good = check_layer(*device_, peer); !good) return good;
    is_reset_ = false;
    if (auto done = to_init(); !done) return done;
    if (auto done = to_ready_to_receive(peer); !done) return done;
    return to_ready_to_send(options);
}

result<void> devx_queue_pair::reset() {
    auto psn = verbs::random_psn();
    if (!psn) return psn.error();
    if (!is_reset_) {
        devx::command quiet(devx::opcode::qp_2err);
        if (auto done = modify(quiet, "quiet"); !done) return done;
    }
    devx::command anew(devx::opcode::qp_2rst);
    if (auto done = modify(anew, "new"); !done) return done;
    is_reset_ = true;
    first_psn_ = *psn;
    return {};
}

result<void> devx_queue_pair::modify(devx::command& step, std::string_view what) {
    step.set(devx::header::object, number());
    const int failed = with_->modify(queue_pair_.get(), step.in(), step.bytes(), step.out(), step.bytes());
    if (failed == 0) return {};
    return verbs::verb_failed(fmt::format("the queue pair does not become {}{}", what, step.refusal()), failed);
}

result<void> devx_queue_pair::to_init() {
    devx::command step(devx::opcode::rst2init_qp);
    step.set(devx::qpc::pm_state.in(devx::qpc::start), devx::qpc::migrated);
    step.set(devx::qpc::rwe.in(devx::qpc::start), 1);
    step.set(devx::ads::vhca_port_num.in(devx::qpc::primary_address_path).in(devx::qpc::start), device_->port().number);
    return modify(step, "INIT");
}

result<void> devx_queue_pair::to_ready_to_receive(const verbs::endpoint& peer) {
    devx::command step(devx::opcode::init2rtr_qp);
    const auto put = [&](devx::field where, std::uint64_t value) { step.set(where.in(devx::qpc::start), value); };
    put(devx::qpc::mtu, std::min<std::uint32_t>(device_->port().mtu, peer.mtu));
    put(devx::qpc::log_msg_max, log_max_message);
    put(devx::qpc::remote_qpn, peer.queue_pair);
    put(devx::qpc::next_rcv_psn, peer.first_psn);
    put(devx::qpc::min_rnr_nak, verbs::rnr_timer_640_us);
    if (auto found = put_path(peer, step); !found) return found;
    return modify(step, "ready to receive");
}

/// libmlx5 finds the peer's Ethernet address, and chooses the UDP port, for an address handle.
result<void> devx_queue_pair::put_path(const verbs::endpoint& peer, devx::command& step) const {
    ibv_ah_attr attributes = path_to(*device_, peer);
    const std::unique_ptr<ibv_ah, verbs::destroyer<&ibv_destroy_ah>> address(ibv_create_ah(domain_, &attributes));
    if (!address) return verbs::verb_failed("the peer's address is not found", errno);
    mlx5dv_ah found{};
    mlx5dv_obj wanted{};
    wanted.ah.in = address.get();
    wanted.ah.out = &found;
    if (const int failed = with_->init_object(&wanted, MLX5DV_OBJ_AH); failed != 0)
        return verbs::verb_failed("the driver does not report the peer's address", failed);
    const auto path = [](devx::field where) { return where.in(devx::qpc::primary_address_path).in(devx::qpc::start); };
    step.set(path(devx::ads::vhca_port_num), attributes.port_num);
    step.set(path(devx::ads::rlid), mlx5::from_be(mlx5::be16{found.av->rlid}));
    if (attributes.is_global == 0) return {};
    step.set(path(devx::ads::grh), device_->port().ethernet ? 0 : 1);
    step.set(path(devx::ads::src_addr_index), attributes.grh.sgid_index);
    step.set(path(devx::ads::hop_limit), attributes.grh.hop_limit);
    step.set_bytes(path(devx::ads::rgid_rip), attributes.grh.dgid.raw);
    if (device_->port().ethernet) step.set_bytes(path(devx::ads::rmac), found.av->rmac);
    return {};
}

result<void> devx_queue_pair::to_ready_to_send(const verbs_options& options) {
    devx::command step(devx::opcode::rtr2rts_qp);
    const auto put = [&](devx::field where, std::uint64_t value) { step.set(where.in(devx::qpc::start), value); };
    put(devx::qpc::log_ack_req_freq, log_ack_request_frequency);
    put(devx::qpc::retry_count, options.ack_retries);
    put(devx::qpc::rnr_retry, verbs::rnr_retries_without_end);
    put(devx::qpc::next_send_psn, first_psn_);
    put(devx::ads::ack_timeout.in(devx::qpc::primary_address_path), verbs::timeout_exponent(options.ack_timeout));
    return modify(step, "ready to send");
}
#else
result<std::unique_ptr<devx_queue_pair>> devx_queue_pair::create(std::shared_ptr<verbs::device>, ibv_pd&,
                                                                 const queue_memory&, std::uint32_t) {
    return error{status::unsupported, 0, "built without infiniband/mlx5dv.h"};
}
void devx_queue_pair::remover::operator()(mlx5dv_devx_umem*) const noexcept {}
void devx_queue_pair::remover::operator()(mlx5dv_devx_uar*) const noexcept {}
void devx_queue_pair::remover::operator()(mlx5dv_devx_obj*) const noexcept {}
void devx_queue_pair::describe(verbs::endpoint&) const noexcept {}
result<void> devx_queue_pair::connect(const verbs::endpoint&, const verbs_options&) {
    return error{status::unsupported, 0, "built without infiniband/mlx5dv.h"};
}
result<void> devx_queue_pair::reset() {
    return {};
}
#endif

}  // namespace accel::gpu
