// SPDX-License-Identifier: Apache-2.0
#include "kernels/queues/queue_set.hpp"

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace accel::gpu {
namespace {

class exclusive_queues : public queue_set {
  public:
    exclusive_queues(std::shared_ptr<verbs::device> on, std::string where) noexcept
        : device_(std::move(on)), where_(std::move(where)) {}

    [[nodiscard]] queue_depths depths() const noexcept override { return {}; }
    [[nodiscard]] device::detail::completion_port completion_port() const override { return {}; }
    [[nodiscard]] std::string where() const override { return where_; }
    [[nodiscard]] bool discard(session_queue& queue) noexcept override {
        queue.devx.reset();
        queue.queue_pair.reset();
        queue.completions.reset();
        return true;
    }
    [[nodiscard]] result<void> open(session_queue&) override { return {}; }
    [[nodiscard]] result<void> close(session_queue& queue) override { return queue.end().reset(); }
    [[nodiscard]] result<void> start(kernel_memory&) override { return {}; }

    [[nodiscard]] int event_fd() const noexcept override { return -1; }
    [[nodiscard]] bool arm() noexcept override { return false; }
    void disarm() noexcept override {}

  protected:
    std::shared_ptr<verbs::device> device_;

  private:
    std::string where_;
};

/// By libibverbs, in the host's memory.
class queues_on_host final : public exclusive_queues {
  public:
    using exclusive_queues::exclusive_queues;
    [[nodiscard]] result<void> prepare(session_queue& queue, kernel_memory& memory) override;
};

/// By DevX, in the kernels' memory.
class queues_with_kernels final : public exclusive_queues {
  public:
    /// One queue pair, to see whether there can be any.
    struct trial {
        std::shared_ptr<verbs::domain> domain;
        std::unique_ptr<devx_queue_pair> queue;
    };
    [[nodiscard]] static result<trial> try_one(const std::shared_ptr<verbs::device>& on, kernel_memory& memory);

    queues_with_kernels(std::shared_ptr<verbs::device> on, std::string where, trial first) noexcept
        : exclusive_queues(std::move(on), std::move(where)), first_(std::move(first)) {}
    [[nodiscard]] mlx5::queue_place place() const noexcept override { return mlx5::queue_place::gpu; }
    [[nodiscard]] result<void> prepare(session_queue& queue, kernel_memory& memory) override;

  private:
    trial first_;  ///< its doorbell page is mapped
};

/// A GPU exports its memory in pieces of so many bytes.
constexpr std::size_t piece_bytes = 64 << 10;

result<std::unique_ptr<devx_queue_pair>> make_with_kernels(const std::shared_ptr<verbs::device>& on, ibv_pd& domain,
                                                           kernel_memory& memory, std::uint32_t sends) {
    const std::size_t bytes = devx_queue_pair::memory_bytes(sends);
    auto block = memory.allocate(bytes + piece_bytes);
    if (!block) return block.error();
    void* at = *block;
    std::size_t room = bytes + piece_bytes;
    const std::span<std::byte> whole{static_cast<std::byte*>(std::align(piece_bytes, bytes, at, room)), bytes};
    if (auto written = memory.upload(whole.data(), devx_queue_pair::initial_memory(sends)); !written)
        return written.error();
    auto made = devx_queue_pair::create(on, domain, {whole, memory.gpu()}, sends);
    if (!made) return made.error();
    auto mapped = memory.share_registers((*made)->sends().doorbell, sizeof(std::uint64_t));
    if (!mapped) return mapped.error();
    return made;
}

result<queues_with_kernels::trial> queues_with_kernels::try_one(const std::shared_ptr<verbs::device>& on,
                                                                kernel_memory& memory) {
    auto domain = verbs::domain::create(on);
    if (!domain) return domain.error();
    auto queue = make_with_kernels(on, *(*domain)->get(), memory, 1);
    if (!queue) return queue.error();
    return trial{std::move(*domain), std::move(*queue)};
}

result<void> queues_with_kernels::prepare(session_queue& queue, kernel_memory& memory) {
    auto made = make_with_kernels(device_, *queue.domain->get(), memory, queue.sends);
    if (!made) return made.error();
    queue.devx = std::move(*made);
    queue.port.by = device::detail::engine::direct;
    queue.port.direct.queue = queue.devx->sends();
    return {};
}

result<void> queues_on_host::prepare(session_queue& queue, kernel_memory& memory) {
    verbs::queue_sizes wanted;
    wanted.send = std::min(queue.sends, static_cast<std::uint32_t>(device_->limits().max_qp_wr));
    // When a queue pair fails, unsignalled requests complete too.
    auto completions = verbs::completion_queue::create(device_, wanted.send, queue.listener);
    if (!completions) return completions.error();
    queue.completions = std::move(*completions);
    auto made = verbs::queue_pair::create(device_, queue.domain->get(), queue.completions->get(), nullptr, wanted,
                                          queue.listener);
    if (!made) return made.error();
    queue.sends = wanted.send;
    queue.queue_pair.emplace(std::move(*made));
    queue.port.by = device::detail::engine::direct;
    queue.port.direct.queue = queue.queue_pair->located()->sends;
    queue.port.direct.queue.state = nullptr;
    const mlx5::completion_queue_ref& at = queue.completions->located();
    if (auto entries = memory.share(at.entries, std::size_t{at.count} * at.entry_bytes); !entries) return entries;
    if (auto record = memory.share(at.doorbell_record, 2 * sizeof(mlx5::be32)); !record) return record;
    return share_sends(memory, queue.port.direct.queue);
}

}  // namespace

result<std::unique_ptr<queue_set>> make_exclusive_queues(std::shared_ptr<verbs::device> on, queue_location wanted,
                                                         kernel_memory& memory) {
    const auto on_host = [&](std::string why) {
        return std::unique_ptr<queue_set>(new queues_on_host(on, std::move(why)));
    };
    if (wanted == queue_location::host) return on_host("queues on the host: queues=host");
    // A thread of the host, in a kernel's place, has no memory of its own.
    if (wanted == queue_location::automatic && memory.gpu() == nullptr) return on_host({});
    auto trial = queues_with_kernels::try_one(on, memory);
    if (trial) {
        const std::string_view whose =
            memory.gpu() != nullptr ? std::string_view{memory.gpu()->name()} : "this process";
        return std::unique_ptr<queue_set>(new queues_with_kernels(
            on, fmt::format("queues in the memory of {}, made with DevX", whose), std::move(*trial)));
    }
    if (wanted == queue_location::automatic)
        return on_host(fmt::format("queues on the host: {}", trial.error().message));
    return error{status::unsupported, trial.error().native, fmt::format("gpu: queues=gpu: {}", trial.error().message)};
}

}  // namespace accel::gpu
