// SPDX-License-Identifier: Apache-2.0
// Any bytes as a sequence of ioctls. Each command: object, method, count, then attributes; data words may
// point into a scratch area that the fuzzer also fills, so that it gets behind the pointers. The object bytes
// 0xff to 0xfd are DevX: what its commands need, one command, and something about events.
#include "abi/dispatch.hpp"
#include "devx/layout.hpp"
#include "dma/guarded.hpp"
#include "ioctl_builder.hpp"

#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {

using namespace accel::softnic;

class reader {
  public:
    reader(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
    template <class T>
    T take() {
        T value{};
        const std::size_t size = std::min(sizeof value, left_);
        if (size > 0) std::memcpy(&value, data_, size);
        data_ += size;
        left_ -= size;
        return value;
    }
    [[nodiscard]] bool empty() const { return left_ == 0; }
    [[nodiscard]] const std::uint8_t* at() const { return data_; }
    [[nodiscard]] std::size_t left() const { return left_; }

  private:
    const std::uint8_t* data_;
    std::size_t left_;
};

constexpr std::size_t scratch_bytes = 4096;
alignas(64) std::uint8_t scratch[2 * scratch_bytes];

/// The high bit of the first byte of an attribute says "pointer into scratch".
void add_attribute(reader& from, testing::ioctl_builder& command) {
    const auto shape = from.take<std::uint8_t>();
    const auto id = static_cast<std::uint16_t>((shape & 0x0f) | ((shape & 0x10) != 0 ? 1 << 12 : 0));
    const auto length = static_cast<std::uint16_t>(from.take<std::uint8_t>() * ((shape & 0x20) != 0 ? 8 : 1));
    std::uint64_t data = from.take<std::uint16_t>();
    if ((shape & 0x80) != 0) data = reinterpret_cast<std::uint64_t>(scratch + data % scratch_bytes);
    command.raw(id, length, data, (shape & 0x40) != 0 ? UVERBS_ATTR_F_MANDATORY : 0);
}

// ---- DevX: a mailbox of any length around a command that softnic has, with some fields changed

/// Memory that is registered as a umem in every context, so that queues and records can be made.
constexpr std::size_t umem_bytes = 16384;
alignas(4096) std::uint8_t umem_memory[umem_bytes];

constexpr std::uint16_t commands[]{0x100, 0x200, 0x400, 0x402, 0x403, 0x500, 0x502, 0x503, 0x504,
                                   0x505, 0x506, 0x507, 0x50a, 0x50b, 0x50e, 0x717, 0x760, 0x800,
                                   0x710, 0x712, 0x713, 0x714, 0x842, 0x90c, 0x90d, 0x90f};

struct devx_method {
    std::uint16_t object;
    std::uint16_t method;
    std::uint16_t in;
    std::uint16_t out;
};
constexpr devx_method devx_methods_by_class[]{
    {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER, MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN,
     MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN,
     MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_QUERY, MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN,
     MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT},
};

/// A handle or number that exists, if there is one: counted back from the newest.
std::uint32_t recent(context& target, std::uint8_t back) {
    const std::uint32_t newest = target.next_handle() - 1;
    return newest > back ? newest - back : newest;
}

/// The numbers that a context needs to be good: domain, doorbell page, queue, memory.
void fill_context(std::span<std::byte> in, context& target) {
    devx::mailbox_out to(in);
    const std::uint32_t uar = target.uars.empty() ? 0 : target.uars.begin()->second;
    const std::uint32_t pd = target.pds.empty() ? 0 : target.pds.begin()->first;
    const std::uint32_t cq = target.cqs.empty() ? 0 : target.cqs.begin()->second->number();
    const std::uint32_t srq = target.srqs.empty() ? 0 : target.srqs.begin()->second->who().number;
    const auto receives = [](devx::field of) { return of.at(devx::rmpc::queue).at(devx::create_rmp::context); };
    const std::uint32_t umem = target.devx_space.umems.empty() ? 0 : target.devx_space.umems.begin()->first;
    switch (devx::mailbox_in(in).get(devx::header::opcode)) {
        case 0x400:
            to.set(devx::cqc::uar_page.at(devx::create_cq::context), uar);
            to.set(devx::cqc::c_eqn.at(devx::create_cq::context), 8);
            to.set(devx::cqc::dbr_umem_id.at(devx::create_cq::context), umem);
            to.set(devx::create_cq::umem_id, umem);
            break;
        case 0x500:
            to.set(devx::qpc::uar_page.at(devx::create_qp::context), uar);
            to.set(devx::qpc::pd.at(devx::create_qp::context), pd);
            to.set(devx::qpc::cqn_snd.at(devx::create_qp::context), cq);
            to.set(devx::qpc::cqn_rcv.at(devx::create_qp::context), cq);
            to.set(devx::qpc::dbr_umem_id.at(devx::create_qp::context), umem);
            to.set(devx::create_qp::wq_umem_id, umem);
            break;
        case 0x200:
            to.set(devx::mkc::access_mode_1_0.at(devx::create_mkey::context), 1);
            to.set(devx::mkc::pd.at(devx::create_mkey::context), pd);
            to.set(devx::create_mkey::umem_id, umem);
            break;
        case 0x710:
            to.set(devx::dctc::pd.at(devx::create_dct::context), pd);
            to.set(devx::dctc::cqn.at(devx::create_dct::context), cq);
            to.set(devx::dctc::srqn_xrqn.at(devx::create_dct::context), srq);
            to.set(devx::dctc::port.at(devx::create_dct::context), 1);
            to.set(devx::dctc::mtu.at(devx::create_dct::context), 3);
            break;
        case 0x90c:
            to.set(devx::rmpc::state.at(devx::create_rmp::context), 1);
            to.set(receives(devx::wq::pd), pd);
            to.set(receives(devx::wq::log_wq_stride), 5);
            to.set(receives(devx::wq::dbr_umem_id), umem);
            to.set(receives(devx::wq::wq_umem_id), umem);
            break;
        case 0x90d:
        case 0x90f:
            to.set(devx::header::object, srq);
            break;
        default:
            if (!target.qps.empty()) to.set(devx::header::object, target.qps.begin()->second);
    }
}

void run_devx(reader& from, context& target) {
    const devx_method& how = devx_methods_by_class[from.take<std::uint8_t>() % 4];
    std::vector<std::byte> in(from.take<std::uint16_t>() % 600);
    std::vector<std::byte> out(from.take<std::uint16_t>() % 600);
    devx::mailbox_out mailbox(in);
    mailbox.set(devx::header::opcode, commands[from.take<std::uint8_t>() % std::size(commands)]);
    fill_context(in, target);
    for (int changes = from.take<std::uint8_t>() % 8; changes > 0; --changes) {
        const std::uint32_t word = from.take<std::uint8_t>();
        mailbox.set({word * 32, 32}, from.take<std::uint32_t>());
    }
    const std::uint8_t back = from.take<std::uint8_t>();
    const std::uint32_t handle = target.qps.empty() || back > 8 ? recent(target, back) : target.qps.begin()->first;
    testing::ioctl_builder command(how.object, how.method);
    if (how.object == MLX5_IB_OBJECT_DEVX_OBJ) command.handle(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, handle);
    command.raw(how.in, static_cast<std::uint16_t>(in.size()), reinterpret_cast<std::uint64_t>(in.data()));
    command.raw(how.out, static_cast<std::uint16_t>(out.size()), reinterpret_cast<std::uint64_t>(out.data()));
    dispatch(target, command.get());
}

/// Opens a channel, subscribes to something on it, raises it, reads, or closes.
void run_events(reader& from, context& target) {
    auto& space = target.devx_space;
    const int channel = space.channels.empty() ? from.take<std::uint8_t>() : space.channels.begin()->first;
    const std::uint8_t what = from.take<std::uint8_t>();
    if (what % 4 == 0) {
        testing::ioctl_builder open(MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC);
        open.handle(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE);
        open.in(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS, std::uint32_t{what} >> 6);
        dispatch(target, open.get());
    } else if (what % 4 == 1) {
        static const int signal = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        const std::uint8_t back = from.take<std::uint8_t>();
        const std::uint64_t events = from.take<std::uint64_t>();
        testing::ioctl_builder subscribe(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT);
        subscribe.handle(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE, static_cast<std::uint64_t>(channel));
        subscribe.raw(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST, what >> 5, events);
        const std::uint32_t made = space.objects.empty() ? 0 : space.objects.begin()->first;
        if ((what & 4) != 0)
            subscribe.handle(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE, back == 0 ? made : recent(target, back));
        if ((what & 8) != 0) subscribe.in(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM, static_cast<std::uint32_t>(signal));
        if ((what & 16) != 0) subscribe.in(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE, events);
        dispatch(target, subscribe.get());
    } else if (what % 4 == 2) {
        for (const auto& [handle, object] : space.objects)
            object.subscribers->raise({static_cast<device_event>(what >> 2), handle});
        std::byte room[event_channel::event_bytes];
        if (const auto found = target.find_event_channel(channel))
            static_cast<void>(found->read(std::span(room).first(what % sizeof room)));
    } else if (target.forget_descriptor(channel)) {
        ::close(channel);
    }
}

/// What most DevX commands need: a umem, a doorbell page, a domain.
void prepare_devx(context& target) {
    target.devx_space.enabled = true;
    auto memory = std::make_shared<devx::umem>();
    memory->address = reinterpret_cast<std::uint64_t>(umem_memory);
    memory->length = umem_bytes;
    memory->access = 1;
    target.devx_space.umems[target.next_handle()] = std::move(memory);
    target.pds[target.next_handle()] = true;
    target.uars[target.next_handle()] = target.adapter().add_uar(target.command_file()).number();
}

void run_one(reader& from, context& target) {
    constexpr std::uint8_t devx_events = 0xfd;
    constexpr std::uint8_t devx_step = 0xfe;
    constexpr std::uint8_t devx_start = 0xff;
    const auto object = from.take<std::uint8_t>();
    if (object == devx_start) return prepare_devx(target);
    if (object == devx_step) return run_devx(from, target);
    if (object == devx_events) return run_events(from, target);
    const auto method = from.take<std::uint8_t>();
    const auto own = [](std::uint8_t value) {
        return static_cast<std::uint16_t>((value & 0x0f) | ((value & 0x80) != 0 ? 1 << 12 : 0) |
                                          ((value & 0x10) != 0 ? 16 : 0));
    };
    testing::ioctl_builder command(own(object), own(method));
    for (int count = from.take<std::uint8_t>() % 20; count > 0; --count) add_attribute(from, command);
    dispatch(target, command.get());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    guarded::install_fault_handler();
    static nic& adapter = *new nic(settings{}, fabric::create_private());
    const int file = ::memfd_create("uverbs", MFD_CLOEXEC);
    {
        context target(adapter, 0, file);
        reader from(data, size);
        std::memset(scratch, 0, sizeof scratch);
        const std::size_t seeded = std::min<std::size_t>(from.left(), scratch_bytes);
        if (seeded > 0) std::memcpy(scratch, from.at(), seeded);
        for (int count = 0; count < 16 && !from.empty(); ++count) run_one(from, target);
        static std::uint64_t now = 0;
        adapter.progress(now += 1000);
        for (const auto* pipes : {&target.channels, &target.asynchronous_pipes})
            for (const auto& [descriptor, pipe] : *pipes) ::close(descriptor);
        for (const auto& [descriptor, channel] : target.devx_space.channels) ::close(descriptor);
    }
    ::close(file);
    return 0;
}
