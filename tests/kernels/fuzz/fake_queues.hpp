// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fuzz_target.hpp"

#include <accel_transport/detail/mlx5/receive_queue.hpp>
#include <accel_transport/device/detail/engine.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

/// An RDMA device's queues in plain memory, of either engine, with the adapter's (or the proxy's) part of
/// them in the fuzzer's hands.
namespace accel::tests {

/// A work request as the adapter finds it.
struct posted_request {
    mlx5::opcode operation{};
    std::uint32_t queue_pair = 0;
    std::uint32_t immediate = 0;
    mlx5::local_range from;
    std::uint64_t remote_address = 0;
    std::uint32_t remote_key = 0;
    std::uint16_t number = 0;  ///< as its completion tells it
    bool signalled = false;    ///< wants a completion; `engine::direct`
};

/// Completions on their way to whoever takes them.
class fake_completions {
  public:
    explicit fake_completions(device::detail::engine by) : by_(by) {
        for (mlx5::completion_entry& each : entries_) each.owner_kind = 0xf1;
        proxy::clear(quads_.data(), count);
    }
    [[nodiscard]] device::detail::completion_port port(mlx5::completion_queue_state& direct,
                                                       proxy::completion_queue_state& proxied) {
        device::detail::completion_port out;
        out.by = by_;
        out.direct.entries = reinterpret_cast<std::byte*>(entries_.data());
        out.direct.count = count;
        out.direct.entry_bytes = sizeof(mlx5::completion_entry);
        out.direct.doorbell_record = record_;
        out.direct.state = &direct;
        out.proxied = {quads_.data(), count, &consumed_, &proxied, &first_failure_};
        return out;
    }
    [[nodiscard]] std::uint32_t room() const {
        const std::uint32_t taken =
            by_ == device::detail::engine::direct ? mlx5::from_be(mlx5::load_whole(&record_[0])) : consumed_;
        require(told_ - taken <= count, "what is given back was taken before");
        return count - (told_ - taken);
    }
    void tell(const mlx5::completion& what) {
        if (by_ == device::detail::engine::proxy) return proxy::tell(quads_.data(), count, told_++, what);
        mlx5::completion_entry entry{};
        const bool failed = what.failure != mlx5::syndrome::none;
        entry.immediate = what.immediate;
        entry.length = mlx5::to_be32(what.length);
        entry.opcode_queue =
            mlx5::to_be32(static_cast<std::uint32_t>(what.operation) << 24 | (what.queue_pair & 0xff'ffffU));
        entry.counter = mlx5::to_be16(what.counter);
        entry.owner_kind =
            static_cast<std::uint8_t>(static_cast<unsigned>(what.kind) << 4 | ((told_ & count) != 0 ? 1U : 0U));
        if (failed) reinterpret_cast<mlx5::error_entry&>(entry).syndrome = static_cast<std::uint8_t>(what.failure);
        entries_[told_++ & (count - 1)] = entry;
    }

    static constexpr std::uint32_t count = 32;

  private:
    device::detail::engine by_;
    std::vector<mlx5::completion_entry> entries_ = std::vector<mlx5::completion_entry>(count);
    mlx5::be32 record_[2]{};
    std::vector<proxy::completion_entry> quads_ = std::vector<proxy::completion_entry>(count);
    std::uint32_t consumed_ = 0;
    std::uint64_t first_failure_ = 0;
    std::uint32_t told_ = 0;
};

/// A shared receive queue. The adapter goes along its chain.
class fake_receives {
  public:
    fake_receives() {
        ref_ = {ring_.data(), stride, 0, count - 1, &record_, 0};
        for (std::uint16_t i = 0; i + 1U < count; ++i)
            link_of(i).next = mlx5::to_be16(static_cast<std::uint16_t>(i + 1));
        mlx5::post_empty(ref_, mlx5::write_empty_receives(ref_));
    }
    [[nodiscard]] const mlx5::shared_receive_queue_ref& located() const { return ref_; }
    [[nodiscard]] std::uint32_t left() const {
        const std::uint32_t left = mlx5::from_be(mlx5::load_whole(&record_)) - used_;
        require(left < count, "no more receives are posted than there are");
        return left;
    }
    /// The next one: a message uses it up.
    [[nodiscard]] std::uint16_t use() {
        const std::uint16_t index = next_;
        next_ = mlx5::from_be(link_of(index).next);
        require(next_ < count, "the chain leads from receive to receive");
        ++used_;
        return index;
    }

  private:
    static constexpr std::uint16_t count = 32;
    static constexpr std::uint32_t stride = 32;
    [[nodiscard]] mlx5::next_segment& link_of(std::uint16_t index) {
        return *reinterpret_cast<mlx5::next_segment*>(ring_.data() + std::size_t{index} * stride);
    }
    std::vector<std::byte> ring_ = std::vector<std::byte>(count * stride);
    mlx5::be32 record_{};
    mlx5::shared_receive_queue_ref ref_;
    std::uint16_t next_ = 0;
    std::uint32_t used_ = 0;
};

/// One connection's sends.
class fake_sends {
  public:
    fake_sends(device::detail::engine by, std::uint32_t name) : by_(by), name_(name) { restart(); }
    [[nodiscard]] device::detail::send_port port() {
        device::detail::send_port out;
        out.by = by_;
        out.direct.queue = {ring_.data(), count, name_, &record_, &doorbell_, nullptr};
        out.direct.state = &state_;
        out.direct.ready_requests = whole_.data();
        out.proxied = {descriptors_.data(), count, name_, &proxied_state_, &released_};
        return out;
    }
    /// The queue pair is made anew.
    void restart() {
        record_ = {};
        done_ = told_ = released_ = 0;
        proxy::clear(descriptors_.data(), count);
    }
    /// Does what has been posted; `visit` sees each, and tells of it.
    template <class Visit>
    void perform(Visit&& visit) {
        posted_request next;
        while (read(next)) {
            next.number = static_cast<std::uint16_t>(done_);
            visit(next);
            ++done_;
        }
        released_ = done_;
    }
    /// The same, and tells of the last by a completion.
    template <class Visit>
    void work(fake_completions& to, Visit&& visit) {
        perform(visit);
        if (by_ != device::detail::engine::direct || done_ == told_ || to.room() == 0) return;
        told_ = done_;
        mlx5::completion told;
        told.kind = mlx5::entry_kind::request;
        told.queue_pair = name_;
        told.counter = static_cast<std::uint16_t>(done_ - 1);
        told.operation = mlx5::opcode::write_immediate;
        to.tell(told);
    }

    static constexpr std::uint32_t count = 16;
    proxy::answer_way answers;  ///< of the connection

  private:
    [[nodiscard]] bool read(posted_request& out) const {
        return by_ == device::detail::engine::direct ? read_block(out) : read_descriptor(out);
    }
    [[nodiscard]] bool read_descriptor(posted_request& out) const {
        proxy::request found;
        if (!proxy::read(descriptors_.data(), count, done_, found)) return false;
        if (found.is_answer) require(proxy::complete(answers, name_, found), "an answer lies in a slot of its session");
        require(found.known_bits_only, "what has no meaning is 0");
        out = {static_cast<mlx5::opcode>(found.operation),
               found.queue_pair,
               mlx5::from_be(found.immediate),
               found.from,
               found.remote_address,
               found.remote_key,
               0,
               false};
        return true;
    }
    /// Requests of one range take one block.
    [[nodiscard]] bool read_block(posted_request& out) const {
        const auto left = static_cast<std::uint16_t>(mlx5::from_be(record_) - done_);
        if (left == 0) return false;
        require(left <= count, "the record counts what the ring holds");
        const std::byte* const at = ring_.data() + std::size_t{done_ & (count - 1)} * mlx5::wqebb_bytes;
        mlx5::control_segment control;
        mlx5::remote_segment remote;
        mlx5::data_segment local;
        std::memcpy(&control, at, sizeof control);
        std::memcpy(&remote, at + sizeof control, sizeof remote);
        std::memcpy(&local, at + sizeof control + sizeof remote, sizeof local);
        const std::uint32_t units = mlx5::from_be(control.qpn_ds);
        require((units & mlx5::max_ds) == 3, "it has one range");
        out = {static_cast<mlx5::opcode>(mlx5::from_be(control.opmod_idx_opcode) & 0xffU),
               units >> 8,
               mlx5::from_be(control.immediate),
               {mlx5::from_be(local.address), mlx5::from_be(local.length), mlx5::from_be(local.key)},
               mlx5::from_be(remote.address),
               mlx5::from_be(remote.key),
               0,
               (control.flags & mlx5::flag_signalled) != 0};
        return true;
    }

    device::detail::engine by_;
    std::uint32_t name_;
    std::vector<std::byte> ring_ = std::vector<std::byte>(std::size_t{count} * mlx5::wqebb_bytes);
    std::vector<mlx5::ready_request> whole_ = std::vector<mlx5::ready_request>(count);
    mlx5::shared_send_queue_state state_;
    mlx5::be32 record_{};
    std::uint64_t doorbell_ = 0;
    std::vector<proxy::send_descriptor> descriptors_ = std::vector<proxy::send_descriptor>(count);
    proxy::send_queue_state proxied_state_;
    std::uint32_t released_ = 0;
    std::uint32_t done_ = 0;
    std::uint32_t told_ = 0;  ///< of those, by completions
};

}  // namespace accel::tests
