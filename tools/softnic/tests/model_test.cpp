// SPDX-License-Identifier: Apache-2.0
#include "dma/guarded.hpp"
#include "model/window.hpp"
#include "rig.hpp"

#include <map>

#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <unistd.h>

namespace accel::softnic {
namespace {

using testing::rig;
using testing::seen_completion;
using testing::test_cq;

// ---- keys

constexpr std::uint32_t all_rights = 0xf;
constexpr std::uint32_t writes = access::remote_write | access::remote_atomic;

/// A key as the model knows it.
struct known_key {
    memory_region is;
    std::uint32_t windows = 0;
};

/// Regions, windows on them and keys made of others, of two domains, used by two queue pairs.
class key_world {
  public:
    explicit key_world(std::uint64_t seed) : random_(seed) {}
    void run(int rounds) {
        for (int round = 0; round < rounds && !::testing::Test::HasFatalFailure(); ++round) {
            SCOPED_TRACE(fmt::format("round {}", round));
            switch (pick(12)) {
                case 0:
                case 1:
                    add_region();
                    break;
                case 2:
                    add_window();
                    break;
                case 3:
                    add_alias();
                    break;
                case 4:
                    remove();
                    break;
                case 5:
                case 6:
                    change_window();
                    break;
                case 7:
                    invalidate();
                    break;
                default:
                    use();
            }
            ASSERT_EQ(table_.size(), keys_.size());
        }
    }

  private:
    std::uint32_t pick(std::uint32_t below) { return static_cast<std::uint32_t>(random_() % below); }
    region_table::user somebody() { return {.pd = 1 + pick(2), .qpn = 7 + pick(2)}; }
    std::uint64_t pick64(std::uint32_t below) { return pick(below); }
    /// One that is there, was there, or never was.
    std::uint32_t any_key() {
        if (pick(8) == 0 && !stale_.empty()) return stale_[pick(static_cast<std::uint32_t>(stale_.size()))];
        if (keys_.empty()) return 0;
        const std::uint32_t live = std::next(keys_.begin(), pick(static_cast<std::uint32_t>(keys_.size())))->first;
        return pick(8) == 0 ? live ^ (1u << pick(16)) : live;
    }
    /// Mostly one that is like this.
    template <class Wanted>
    std::uint32_t likely_key(Wanted wanted) {
        std::vector<std::uint32_t> fitting;
        for (const auto& [key, known] : keys_)
            if (wanted(known.is)) fitting.push_back(key);
        const auto count = static_cast<std::uint32_t>(fitting.size());
        return count == 0 || pick(4) == 0 ? any_key() : fitting[pick(count)];
    }
    /// Mostly somebody of the key's domain.
    region_table::user likely_user(std::uint32_t key) {
        const auto found = keys_.find(key);
        region_table::user by = somebody();
        if (found != keys_.end() && pick(4) != 0) by.pd = found->second.is.pd;
        return by;
    }
    void keep(memory_region made) {
        const bool chosen = pick(4) == 0;
        const std::uint32_t key = chosen ? table_.add(made, 0x77).key : table_.add(made).key;
        ASSERT_NE(key, static_cast<std::uint32_t>(MLX5_INVALID_LKEY));
        ASSERT_FALSE(keys_.contains(key)) << "two with one key";
        if (!chosen) {
            ASSERT_TRUE(std::find(stale_.begin(), stale_.end(), key) == stale_.end()) << "a key comes back too soon";
        }
        made.key = key;
        keys_[key] = {std::move(made)};
    }

    void add_region() {
        memory_region made;
        made.pd = 1 + pick(2);
        made.iova = pick(10) == 0 ? ~0ull - 99 : 0x1000 + pick(100);
        made.length = 1 + pick(99);
        made.base = 0x70000 + pick(1000);
        made.access = pick(32);
        made.engine = host_dma();
        keep(std::move(made));
    }
    void add_window() {
        memory_region made;
        made.pd = 1 + pick(2);
        made.window = pick(2) == 0 ? window_type::type_1 : window_type::type_2;
        keep(std::move(made));
    }
    void add_alias() {
        const auto behind = keys_.find(any_key());
        if (behind == keys_.end() || behind->second.is.is_window() || behind->second.is.is_alias()) return;
        memory_region made = behind->second.is;
        made.target = behind->first;
        made.shift = 0x40 - pick64(0x80);
        made.iova -= made.shift;
        made.length += pick(3);
        if (made.iova + made.length < made.iova) return;
        made.access &= pick(16);
        made.base = 0;
        made.invalidated = false;
        keep(std::move(made));
    }
    void remove() {
        const std::uint32_t key = any_key();
        const auto found = keys_.find(key);
        if (found == keys_.end()) {
            ASSERT_FALSE(table_.remove(key));
            return;
        }
        if (found->second.windows != 0) return;  // nobody does that
        if (found->second.is.is_window()) {
            window::unbind(table_, *table_.find(key));
            unbind(found->second.is);
        }
        ASSERT_TRUE(table_.remove(key));
        keys_.erase(found);
        stale_.push_back(key);
        if (stale_.size() > 60) stale_.erase(stale_.begin());
    }
    void invalidate() {
        const auto found = keys_.find(any_key());
        if (found == keys_.end() || found->second.is.is_window()) return;
        table_.find(found->first)->invalidated = found->second.is.invalidated = true;
    }

    void unbind(memory_region& window) {
        if (const auto target = keys_.find(window.target); target != keys_.end()) --target->second.windows;
        window.target = window.qpn = window.access = 0;
        window.length = 0;
    }
    /// A bind, or with no length the end of one.
    void change_window() {
        window_request what;
        what.key = likely_key([](const memory_region& each) { return each.is_window(); });
        const auto by = likely_user(what.key);
        what.variant = static_cast<std::uint8_t>(pick(256));
        what.lkey = likely_key(
            [&](const memory_region& each) { return each.pd == by.pd && (each.access & access::bind_window) != 0; });
        if (const auto target = keys_.find(what.lkey); target != keys_.end()) {
            what.address = target->second.is.iova + pick(3);
            what.length = pick(3) == 0 ? 0 : target->second.is.length + 2 - pick(8);
        }
        what.access = pick(16) & access::remote;
        const auto found = std::find_if(keys_.begin(), keys_.end(),
                                        [&](const auto& each) { return each.first >> 8 == what.key >> 8; });
        const bool allowed = found != keys_.end() && may_change(found->second.is, what, by);
        const std::uint32_t next = (what.key & ~0xffu) | what.variant;
        ASSERT_EQ(window::change(table_, by, what) == window::outcome::done, allowed);
        if (!allowed) return;
        known_key changed = std::move(found->second);
        keys_.erase(found);
        unbind(changed.is);
        if (what.length != 0) {
            ++keys_.at(what.lkey).windows;
            changed.is.target = what.lkey;
            changed.is.qpn = by.qpn;
            changed.is.iova = what.address;
            changed.is.length = what.length;
            changed.is.access = what.access;
        }
        changed.is.key = next;
        keys_[next] = std::move(changed);
    }
    bool may_change(const memory_region& window, const window_request& what, region_table::user by) {
        if (!window.is_window() || window.pd != by.pd) return false;
        const bool second = window.window == window_type::type_2;
        if (what.length == 0) return !second || (window.target != 0 && window.qpn == by.qpn);
        const std::uint32_t local = (what.access & writes) != 0 ? access::local_write : 0;
        std::uint64_t byte = 0;
        return !(second && window.target != 0) &&
               judge(what.lkey, by, what.address, what.length, access::bind_window | local, byte) == access_check::ok;
    }

    /// Around the ends of what the key covers.
    void use() {
        const bool through = pick(2) == 0;
        const std::uint32_t key = likely_key([&](const memory_region& each) { return (each.target != 0) == through; });
        const auto by = likely_user(key);
        const auto found = keys_.find(key);
        std::uint64_t at = found == keys_.end() ? 0x1000 : found->second.is.iova;
        const std::uint64_t length = found == keys_.end() ? 1 : found->second.is.length;
        std::uint64_t size = pick(4);
        if (pick(2) == 0) at += length - size;
        if (pick(4) == 0) size = length;
        at += 1 - pick64(3);
        if (pick(20) == 0) size = ~0ull - pick(3);
        std::uint32_t needed = pick(4) == 0 ? pick(16) : 1u << pick(4);
        if (found != keys_.end() && pick(3) == 0) needed = found->second.is.access & pick(16);
        std::uint64_t byte = 0;
        const access_check expected = judge(key, by, at, size, needed, byte);
        const auto seen = table_.check(key, by, at, size, needed);
        ASSERT_EQ(static_cast<int>(seen.status), static_cast<int>(expected))
            << std::hex << key << " at " << at << " " << size << " for " << needed;
        ASSERT_EQ(seen.region != nullptr, expected == access_check::ok);
        if (seen.region != nullptr) {
            ASSERT_EQ(seen.region->engine_address(at), byte) << "another byte";
        }
    }
    access_check judge(std::uint32_t key, region_table::user by, std::uint64_t at, std::uint64_t size,
                       std::uint32_t needed, std::uint64_t& byte) {
        using enum access_check;
        __extension__ typedef unsigned __int128 wide;  // NOLINT(modernize-use-using)
        const auto found = keys_.find(key);
        if (found == keys_.end()) return bad_key;
        const memory_region& region = found->second.is;
        const bool remote = (needed & access::remote) != 0;
        if (region.invalidated && remote) return bad_key;
        if (region.pd != by.pd) return wrong_domain;
        if ((needed & ~region.access) != 0) return denied;
        if (at < region.iova || wide{at} + size > wide{region.iova} + region.length) return out_of_bounds;
        byte = region.base + (at - region.iova);
        if (region.is_alias()) {
            const auto behind = keys_.find(region.target);
            if (behind == keys_.end() || behind->second.is.is_window() || behind->second.is.is_alias()) return bad_key;
            return judge(region.target, by, at + region.shift, size, needed, byte);
        }
        if (!region.is_window()) return ok;
        if (region.target == 0 || !remote) return bad_key;
        if (region.window == window_type::type_2 && region.qpn != by.qpn) return wrong_domain;
        const memory_region& behind = keys_.at(region.target).is;
        byte = behind.base + (at - behind.iova);
        return ok;
    }

    std::mt19937_64 random_;
    region_table table_;
    std::map<std::uint32_t, known_key> keys_;
    std::vector<std::uint32_t> stale_;
};

TEST(keys, a_key_opens_what_it_was_made_for_and_no_more) {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        SCOPED_TRACE(fmt::format("seed {}", seed));
        key_world(seed).run(2000);
        if (::testing::Test::HasFailure()) return;
    }
}

// ---- completion queues

struct queues : ::testing::Test {
    rig on;
    std::shared_ptr<event_pipe> channel = std::make_shared<event_pipe>(event_pipe::kind::completion);
    std::shared_ptr<event_pipe> asynchronous = std::make_shared<event_pipe>(event_pipe::kind::asynchronous);

    ~queues() override {
        ::close(channel->read_descriptor());
        ::close(asynchronous->read_descriptor());
    }
    static completion some(std::uint16_t index, bool solicited = false) {
        completion what;
        what.wqe_counter = index;
        what.solicited = solicited;
        return what;
    }
};

/// What was put, and the wish of the program.
class queue_world {
  public:
    queue_world(queues& on, std::uint64_t seed)
        : on_(on),
          random_(seed),
          entries_(1u << (1 + pick(4))),
          cq_(on.on.adapter, entries_, on.channel, on.asynchronous) {}
    void run(int rounds) {
        for (int round = 0; round < rounds && !::testing::Test::HasFatalFailure(); ++round) {
            SCOPED_TRACE(fmt::format("round {}", round));
            switch (pick(3)) {
                case 0:
                    put();
                    break;
                case 1:
                    for (std::uint32_t count = pick(4); count > 0; --count) poll();
                    break;
                default:
                    arm(pick(2) == 0);
            }
            ASSERT_EQ(on_.channel->take_back(cq_.queue->user_handle()), due() ? 1u : 0u);
        }
    }
    /// Until it is full, and on.
    void overrun() {
        while (produced() - consumed_ < entries_) put();
        EXPECT_FALSE(on_.asynchronous->readable());
        for (int count = 0; count < 3; ++count)
            EXPECT_EQ(cq_.queue->put(queues::some(0), MLX5_CQE_REQ, 0), completion_queue::outcome::overrun);
        for (std::uint32_t count = entries_; count > 0; --count) poll();
        EXPECT_EQ(cq_.queue->put(queues::some(0), MLX5_CQE_REQ, 0), completion_queue::outcome::overrun) << "for good";
        EXPECT_EQ(cq_.queue->asynchronous_events_reported(), 0u) << "one event, which was not read";
        EXPECT_FALSE(on_.asynchronous->readable());
        on_.channel->take_back(cq_.queue->user_handle());
    }

  private:
    std::uint32_t pick(std::uint32_t below) { return static_cast<std::uint32_t>(random_() % below); }
    [[nodiscard]] std::uint32_t produced() const { return static_cast<std::uint32_t>(asks_.size()); }

    void put() {
        if (produced() - consumed_ == entries_) return;
        completion what = queues::some(static_cast<std::uint16_t>(produced()), pick(4) == 0);
        if (pick(6) == 0) what.error = syndrome::flushed;
        const bool failed = what.error != syndrome::none;
        asks_.push_back(what.solicited || failed);
        ASSERT_EQ(cq_.queue->put(what, failed ? MLX5_CQE_RESP_ERR : MLX5_CQE_RESP_SEND, 0),
                  completion_queue::outcome::written);
    }
    void poll() {
        seen_completion seen;
        ASSERT_EQ(cq_.poll(seen), consumed_ < produced());
        if (consumed_ == produced()) return;
        ASSERT_EQ(seen.index, static_cast<std::uint16_t>(consumed_++));
    }
    void arm(bool solicited_only) {
        cq_.arm(solicited_only, armed_);
        armed_ = true;
        only_solicited_ = solicited_only;
        from_ = consumed_;
    }
    /// One event for each arm: about what was not read when it was armed, and no event told of.
    bool due() {
        const std::uint32_t first = std::max(from_, told_);
        bool any = false;
        for (std::uint32_t at = first; at < produced(); ++at) any = any || !only_solicited_ || asks_[at];
        if (!armed_ || !any) return false;
        armed_ = false;
        told_ = produced();
        return true;
    }

    queues& on_;
    std::mt19937_64 random_;
    std::uint32_t entries_;
    test_cq cq_;
    std::vector<bool> asks_;  ///< of each completion: is it solicited, or an error?
    std::uint32_t consumed_ = 0, from_ = 0, told_ = 0;
    bool armed_ = false, only_solicited_ = false;
};

TEST_F(queues, a_queue_keeps_its_order_notifies_once_for_each_arm_and_fails_for_good_when_it_is_full) {
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
        SCOPED_TRACE(fmt::format("seed {}", seed));
        queue_world one(*this, seed);
        one.run(300);
        if (!HasFailure()) one.overrun();
        if (HasFailure()) return;
    }
}

TEST_F(queues, destroy_reports_the_events_that_were_read) {
    test_cq cq(on.adapter, 16, channel);
    test_cq other(on.adapter, 16, channel);
    seen_completion seen;
    for (std::uint16_t round = 0; round < 3; ++round) {
        cq.arm(false);
        cq.queue->put(some(round), MLX5_CQE_REQ, 0);
        cq.poll(seen);
    }
    other.arm(false);
    other.queue->put(some(0), MLX5_CQE_REQ, 0);
    std::uint64_t event = 0;
    ASSERT_EQ(::read(channel->read_descriptor(), &event, 8), 8);
    EXPECT_EQ(cq.queue->completion_events_reported(), 1u) << "three sent, one read";
    ASSERT_EQ(::read(channel->read_descriptor(), &event, 8), 8);
    EXPECT_EQ(event, other.queue->user_handle()) << "the other queue's event is still there";
}

TEST_F(queues, resize_marks_the_end_of_the_old_buffer) {
    test_cq cq(on.adapter, 4);
    cq.queue->put(some(1), MLX5_CQE_REQ, 0);
    std::vector<std::byte> bigger(64 * 64, std::byte{0xf0});
    EXPECT_FALSE(cq.queue->resize(reinterpret_cast<std::uint64_t>(bigger.data()), 1)) << "the unread one does not fit";
    ASSERT_TRUE(cq.queue->resize(reinterpret_cast<std::uint64_t>(bigger.data()), 64));
    cq.queue->put(some(2), MLX5_CQE_REQ, 0);
    seen_completion seen;
    ASSERT_TRUE(cq.poll(seen));
    ASSERT_TRUE(cq.poll(seen));
    EXPECT_EQ(seen.kind, MLX5_CQE_RESIZE_CQ);
    EXPECT_EQ(static_cast<unsigned>(bigger[2 * 64 + 63]) >> 4, 0u) << "goes on at the next index of the new one";
}

TEST_F(queues, an_unmapped_buffer_is_an_error_not_a_crash) {
    guarded::install_fault_handler();
    completion_queue_options options;
    options.buffer = 4096;
    options.doorbell_record = 8192;
    options.entries = 4;
    options.asynchronous = asynchronous;
    completion_queue lost(77, options);
    EXPECT_NE(lost.put(some(0), MLX5_CQE_REQ, 0), completion_queue::outcome::written);
    EXPECT_TRUE(asynchronous->readable());
}

}  // namespace
}  // namespace accel::softnic
