// SPDX-License-Identifier: Apache-2.0
// Thousands of calls with random payloads that both ends check byte by byte, at every depth, by every way in
// and out.
#include "rig.hpp"

#include <atomic>
#include <thread>
#include <vector>

namespace accel::tests {
namespace {

class random_calls : public on_every_backend {};

constexpr std::uint32_t slot_count = 8;
constexpr std::size_t max_bytes = 48 << 10;

/// What a call looks like follows from its number, so that the server can check it without being told.
struct plan {
    std::size_t request;
    std::size_t response;
    bool lent;
    bool directed;
    explicit plan(std::uint64_t id)
        : request(length(mix(id))),
          response(length(mix(id + 1))),
          lent(mix(id + 2) % 2 == 0),
          directed(mix(id + 3) % 2 == 0) {}
    static std::size_t length(std::uint64_t random) {
        const std::size_t ranges[] = {1, 64, 1024, 8192, max_bytes};
        return (random >> 8) % (ranges[random % 5] + 1);
    }
};

struct checking_server {
    std::atomic<unsigned> wrong{0};
    handler service() {
        return [this](exchange one) {
            const std::uint64_t id = one.trace_id();
            const plan p(id);
            if (one.request().size() != p.request || !matches(one.request(), id)) ++wrong;
            fill(one.response().first(p.response), ~id);
            if (one.reply(p.response) != status::ok) ++wrong;
        };
    }
};

channel_options wide_client() {
    channel_options options = calm_client();
    options.slots = slot_count;
    options.request_bytes = options.response_bytes = max_bytes;
    return options;
}

/// One client that keeps up to `depth` calls in flight.
class random_client {
  public:
    random_client(rig& r, std::uint64_t first_id)
        : client_(r.connect(wide_client())),
          memory_(r.ctx().allocate(2 * slot_count * max_bytes).value()),
          next_id_(first_id) {}

    void run(unsigned depth, int calls) {
        int sent = 0;
        for (int done = 0; done < calls;) {
            for (; sent < calls && client_.open_calls() < depth; ++sent) send();
            completion out[4];
            const std::size_t count = client_.wait(out, patience(10s));
            ASSERT_GT(count, 0U);
            for (std::size_t i = 0; i < count; ++i) check(out[i]);
            done += static_cast<int>(count);
        }
    }
    checked_channel& channel() { return client_; }

  private:
    slice piece(std::uint32_t index, std::size_t length) { return memory_.part(index * max_bytes, length).value(); }
    void send() {
        const std::uint64_t id = next_id_++;
        const plan p(id);
        call_view call;
        ASSERT_EQ(client_.begin(call), status::ok);
        submit_options options{.tag = ~id, .trace_id = id};
        if (p.directed) options.response_into = piece(call.id.slot, max_bytes);
        if (p.lent) {
            const slice payload = piece(slot_count + call.id.slot, p.request);
            fill(payload.bytes(), id);
            ASSERT_EQ(client_.submit(call.id, payload, options), status::ok);
        } else {
            fill(call.request.first(p.request), id);
            ASSERT_EQ(client_.submit(call.id, p.request, options), status::ok);
        }
    }
    void check(const completion& c) {
        const plan p(c.trace_id);
        ASSERT_EQ(c.status, status::ok);
        ASSERT_EQ(c.response.size(), p.response);
        ASSERT_TRUE(matches(c.response, ~c.trace_id)) << "differs at " << first_difference(c.response, ~c.trace_id);
        if (p.directed && p.response > 0) {
            ASSERT_EQ(c.response.data(), piece(c.id.slot, max_bytes).data());
        }
        ASSERT_EQ(client_.release(c.id), status::ok);
    }

    checked_channel client_;
    region memory_;
    std::uint64_t next_id_;
};

TEST_P(random_calls, random_calls_arrive_whole_at_every_depth) {
    checking_server other_end;
    rig r(GetParam(), other_end.service());
    random_client client(r, 1000);
    for (unsigned depth = 1; depth <= slot_count; ++depth) {
        client.run(depth, effort(1500));
        if (HasFatalFailure()) return;
    }
    EXPECT_EQ(other_end.wrong, 0U);
    EXPECT_TRUE(client.channel().all_slots_free());
    EXPECT_EQ(client.channel()->statistics().stale, 0U);
}

TEST_P(random_calls, random_calls_of_several_threads_arrive_whole_at_two_workers) {
    checking_server other_end;
    server_options options = calm_server();
    options.workers = 2;
    rig r(GetParam(), other_end.service(), options);
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < 4; ++t)
        threads.emplace_back([&r, t] {
            random_client client(r, (t + 1) << 32);
            client.run(slot_count, effort(1000));
        });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(other_end.wrong, 0U);
}

ACCEL_INSTANTIATE(random_calls, all_backends);

}  // namespace
}  // namespace accel::tests
