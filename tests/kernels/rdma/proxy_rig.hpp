// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/proxy/proxy.hpp"
#include "patience.hpp"
#include "verbs/device.hpp"
#include "verbs/domain.hpp"
#include "verbs/queues.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

/// A proxy engine, what a kernel has of it, and peers.
namespace accel::verbs {

using tests::eventually;
using tests::patience;
using namespace std::chrono_literals;

template <class Value>
Value must(result<Value> outcome) {
    if (!outcome) throw std::runtime_error(outcome.error().message);
    return std::move(outcome).value();
}
inline void must(const result<void>& outcome) {
    if (!outcome) throw std::runtime_error(outcome.error().message);
}

/// A word and a ring, each on pages of its own, so that a GPU's driver can pin them.
template <class Entry>
class shared_ring {
  public:
    explicit shared_ring(std::uint32_t count)
        : count_(count), block_(static_cast<std::byte*>(std::aligned_alloc(page, size_bytes())), &std::free) {
        std::memset(block_.get(), 0, size_bytes());
    }
    [[nodiscard]] std::uint32_t* word() const { return reinterpret_cast<std::uint32_t*>(block_.get()); }
    [[nodiscard]] Entry* entries() const { return reinterpret_cast<Entry*>(block_.get() + page); }
    [[nodiscard]] std::uint32_t count() const { return count_; }
    [[nodiscard]] std::size_t size_bytes() const { return page + (count_ * sizeof(Entry) + page - 1) / page * page; }

  private:
    static constexpr std::size_t page = 4096;
    std::uint32_t count_;
    std::unique_ptr<std::byte, decltype(&std::free)> block_;
};

/// What a kernel has of all its queue pairs.
struct proxy_taker {
    explicit proxy_taker(std::uint32_t count) : ring(count) {}
    [[nodiscard]] gpu::proxy_completion_ring memory() const { return {{ring.entries(), ring.count()}, ring.word(), 0}; }
    [[nodiscard]] proxy::completion_queue_ref ref() {
        return {ring.entries(), ring.count(), ring.word(), &state, &first_failure};
    }
    shared_ring<proxy::completion_entry> ring;
    proxy::completion_queue_state state;
    std::uint64_t first_failure = 0;
};

/// A queue pair whose sends go by the proxy, and its peer.
struct proxy_session {
    explicit proxy_session(std::uint32_t count) : ring(count) {}
    [[nodiscard]] gpu::proxy_send_ring memory() const {
        return {{ring.entries(), ring.count()}, ring.word(), first, name};
    }
    [[nodiscard]] proxy::send_queue_ref ref() {
        return {ring.entries(), ring.count(), name.value_or(pair->number()), &state, ring.word()};
    }
    [[nodiscard]] std::uint32_t released_now() const { return mlx5::load_flag(ring.word()); }
    std::uint32_t first = 0xffff'fff0;  // soon to wrap
    std::optional<std::uint32_t> name;
    shared_ring<proxy::send_descriptor> ring;
    proxy::send_queue_state state{first, first};
    std::optional<queue_pair> pair;

    std::unique_ptr<completion_queue> peer_completions;
    std::optional<queue_pair> peer;
    empty_receives peer_receives;
};

/// One service: its engine, its kernel's end, its sessions with their peers.
class proxied_service {
  public:
    static constexpr std::uint32_t depth = 64;
    static constexpr std::uint32_t memory_bytes = 1U << 20;

    proxied_service() { registered_ = must(domain_->register_memory(memory_, access::peer_writes)); }
    ~proxied_service() {
        if (engine_)
            for (const auto& each : sessions_) engine_->remove(*each->pair);
        sessions_.clear();
    }
    proxied_service(const proxied_service&) = delete;
    proxied_service& operator=(const proxied_service&) = delete;
    void make_engine(const gpu::proxy_options& options = {}, std::uint32_t completions = 256) {
        taker_ = std::make_unique<proxy_taker>(completions);
        engine_ = must(gpu::proxy_engine::create(device_, taker_->memory(), options));
    }
    proxy_session& connect(std::uint32_t descriptors = 16, std::uint32_t peer_receives = depth,
                           std::optional<std::uint32_t> name = std::nullopt) {
        auto made = std::make_unique<proxy_session>(descriptors);
        made->name = name;
        made->peer_completions = must(completion_queue::create(device_, 4 * depth, nullptr));
        made->peer.emplace(must(queue_pair::create(device_, domain_->get(), made->peer_completions->get(), nullptr,
                                                   {depth, depth, 0}, nullptr)));
        made->pair.emplace(must(queue_pair::create(device_, domain_->get(), engine_->completions(), engine_->receives(),
                                                   {depth, 0, 0}, nullptr)));
        endpoint one;
        endpoint other;
        made->pair->describe(one);
        made->peer->describe(other);
        must(made->pair->connect(other, {}));
        must(made->peer->connect(one, {}));
        if (made->peer->post_receives(peer_receives, made->peer_receives) != peer_receives)
            throw std::runtime_error("no receives");
        must(engine_->add(*made->pair, made->memory()));
        sessions_.push_back(std::move(made));
        return *sessions_.back();
    }
    /// In the order that a service has to keep.
    void disconnect(proxy_session& which) {
        engine_->remove(*which.pair);
        proxy::discard_completions(taker_->ref(), which.pair->number());
        std::erase_if(sessions_, [&](const auto& each) { return each.get() == &which; });
    }

    [[nodiscard]] std::byte* at(std::size_t offset) { return memory_.data() + offset; }
    [[nodiscard]] std::uint64_t address(std::size_t offset) { return reinterpret_cast<std::uintptr_t>(at(offset)); }
    [[nodiscard]] mlx5::local_range range(std::size_t offset, std::uint32_t length) {
        return {address(offset), length, registered_->lkey};
    }
    /// A write with immediate data of `from` to the other end at `offset`.
    [[nodiscard]] mlx5::work_request write(const mlx5::local_range& from, std::size_t offset, std::uint32_t immediate,
                                           bool signalled) {
        mlx5::work_request out;
        out.operation = mlx5::opcode::write_immediate;
        out.flags = signalled ? mlx5::flag_signalled : std::uint8_t{0};
        out.immediate = mlx5::to_be32(immediate);
        out.ranges = 1;
        out.first = &from;
        out.remote_address = address(offset);
        out.remote_key = registered_->rkey;
        return out;
    }
    /// What has arrived at the peer; its receives are posted anew.
    static std::vector<std::uint32_t> arrivals_at(proxy_session& session) {
        std::array<mlx5::completion, 16> some;
        std::vector<std::uint32_t> out;
        const int got = session.peer_completions->poll(some);
        if (got < 0) throw std::runtime_error("the peer's completion queue has failed");
        for (const mlx5::completion& each : std::span{some}.first(static_cast<std::size_t>(got))) {
            if (each.kind == mlx5::entry_kind::write_immediate) {
                out.push_back(mlx5::from_be(each.immediate));
                if (session.peer->post_receives(1, session.peer_receives) != 1) throw std::runtime_error("no receive");
            } else if (each.kind == mlx5::entry_kind::request) {
                (void)session.peer->take_sent(each);
            }
        }
        return out;
    }
    /// The peer writes to the proxy's end. False: its queue is full.
    [[nodiscard]] bool write_back(proxy_session& session, const mlx5::local_range& from, std::size_t offset,
                                  std::uint32_t immediate) {
        if (!session.peer->credits().has_room(1)) return false;
        const auto request = write(from, offset, immediate, true);
        return session.peer->post(std::span{&request, 1}) == 1;
    }
    /// Waits for `count` arrivals at the peer.
    static std::vector<std::uint32_t> wait_for_arrivals(proxy_session& session, std::size_t count) {
        std::vector<std::uint32_t> all;
        (void)eventually(
            patience(5s),
            [&] {
                for (const std::uint32_t each : arrivals_at(session)) all.push_back(each);
                return all.size() >= count;
            },
            50us);
        return all;
    }
    /// The next completion of a queue pair that there still is, if one comes in time.
    [[nodiscard]] std::optional<mlx5::completion> next(tests::nanoseconds bound = tests::until_hung()) {
        mlx5::completion out;
        const auto ref = taker_->ref();
        if (!tests::within(
                bound, [&] { return proxy::take(ref, out) && out.queue_pair != mlx5::no_queue_pair; }, 50us))
            return std::nullopt;
        proxy::publish_taken(ref);
        return out;
    }
    void expect_sound(proxy_session& session, std::uint32_t mark) {
        const auto from = range(0, 64);
        ASSERT_EQ(proxy::post(session.ref(), write(from, 4096, mark, true)), status::ok);
        EXPECT_EQ(wait_for_arrivals(session, 1), std::vector{mark});
        const auto sent = next();
        ASSERT_TRUE(sent);
        EXPECT_EQ(sent->queue_pair, session.pair->number());
        EXPECT_EQ(sent->kind, mlx5::entry_kind::request);
    }

    static verbs_options wanted() {
        verbs_options out;
        out.direct = false;
        return out;
    }
    shared_ring<std::byte> block_{memory_bytes};
    std::span<std::byte> memory_{block_.entries(), memory_bytes};
    std::shared_ptr<device> device_ = must(device::open(wanted(), {}));
    std::shared_ptr<domain> domain_ = must(domain::create(device_));
    region_handle registered_;
    std::unique_ptr<proxy_taker> taker_;
    std::unique_ptr<gpu::proxy_engine> engine_;
    std::vector<std::unique_ptr<proxy_session>> sessions_;
};

class proxy_rig : public ::testing::Test, protected proxied_service {};

}  // namespace accel::verbs
