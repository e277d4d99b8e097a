// SPDX-License-Identifier: Apache-2.0
// Zero heap allocations a call in steady state, at both ends together, on every thread but the control plane's.
#include "counting_allocator.hpp"
#include "rig.hpp"

#include <array>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

namespace accel::tests {
namespace {

constexpr int warm_up_calls = 2000;
constexpr int measured_calls = 6000;
/// Beside busy programs, calls of spinning ends take milliseconds: after `long_enough`, as many are enough.
constexpr int fewer_calls = 1000;
constexpr auto long_enough = 2s;

struct alloc_case {
    const char* scheme;
    poll_mode poll;
};

class allocations : public ::testing::TestWithParam<alloc_case> {
  protected:
    static backend_case backend() {
        for (const backend_case& row : all_backends())
            if (row.scheme == GetParam().scheme) return row;
        throw std::runtime_error("not in backends.def");
    }
    static server_options at_server() {
        server_options options = calm_server();
        options.poll = GetParam().poll;
        return options;
    }
    static channel_options at_client() {
        channel_options options = calm_client();
        options.poll = GetParam().poll;
        return options;
    }
    /// `round` makes eight calls.
    static std::uint64_t allocated_by(const std::function<void()>& round) {
        repeat(round, warm_up_calls);
        const allocation_trap trap;
        const std::uint64_t before = heap_allocations();
        repeat(round, measured_calls);
        return heap_allocations() - before;
    }
    static void repeat(const std::function<void()>& round, int calls) {
        const auto start = std::chrono::steady_clock::now();
        for (int made = 0; made < calls; made += 8) {
            if (made >= fewer_calls && std::chrono::steady_clock::now() - start > long_enough) return;
            round();
        }
    }
};

/// Eight calls in flight together, without the account of `checked_channel`, which allocates.
void eight_calls(channel& client, std::size_t length, slice lent, slice directed) {
    for (int i = 0; i < 8; ++i) {
        const auto call = client.begin();
        ASSERT_EQ(call.code(), status::ok);
        submit_options options;
        options.response_into = directed;
        const status sent =
            lent.empty() ? client.submit(call->id, length, options) : client.submit(call->id, lent, options);
        ASSERT_EQ(sent, status::ok);
    }
    for (int done = 0; done < 8;) {
        completion out[8];
        const std::size_t count = client.wait(out, until_hung());
        ASSERT_GT(count, 0U);
        for (std::size_t i = 0; i < count; ++i) {
            ASSERT_EQ(out[i].status, status::ok);
            out[i].release();
        }
        done += static_cast<int>(count);
    }
}

/// Sends a call and waits for all that it is answered with, which `meanwhile` may change.
void one_call(channel& client, const submit_options& options, const std::function<void(call_id)>& meanwhile = {}) {
    completion out;
    call_id id;
    status sent = status::again;
    while (sent == status::again) {
        auto call = client.begin();
        for (; call.code() == status::again; call = client.begin())
            ASSERT_EQ(client.wait({&out, 1}, 100us), 0U);  // late answers are on their way
        id = call->id;
        sent = client.submit(id, 100, options);
        if (sent == status::ok) break;
        ASSERT_EQ(client.release(id), status::ok);
        ASSERT_EQ(client.wait({&out, 1}, 100us), 0U);  // room of the last call is on its way back
    }
    ASSERT_EQ(sent, status::ok);
    if (meanwhile) meanwhile(id);
    do {
        ASSERT_EQ(client.wait({&out, 1}, until_hung()), 1U);
        out.release();
    } while (out.more);
}

void fail_with_text(exchange one) {
    (void)one.fail(status::application_error, 3, "no");
}
void send_six_parts(exchange one) {
    for (int i = 0; i < 6; ++i) {
        EXPECT_FALSE(one.part().empty());
        EXPECT_EQ(one.send(100), status::ok);
    }
    (void)one.reply(0);
}

/// Takes the parts of one request at a time as they come, on the worker's thread, and then answers.
struct part_taker : exchange::part_waiter {
    part_taker() : part_waiter{[](part_waiter& self) noexcept { static_cast<part_taker&>(self).go_on(); }} {}
    void go_on() noexcept {
        while (one->continues()) {
            if (!one->await_request_part(*this)) return;
            EXPECT_TRUE(one->receive());
        }
        (void)one->reply(0);
    }
    std::optional<exchange> one;
};
[[nodiscard]] handler takes_parts() {
    return [taker = std::make_shared<part_taker>()](exchange one) {
        taker->one.emplace(std::move(one));
        taker->go_on();
    };
}
void send_request_in_parts(channel& client) {
    one_call(client, {.continues = true}, [&](call_id id) {
        for (int i = 0; i < 6; ++i) {
            auto part = client.begin_part(id);
            for (; part.code() == status::again; part = client.begin_part(id)) (void)client.wait({}, 100us);
            ASSERT_EQ(part.code(), status::ok);
            ASSERT_EQ(client.submit_part(part->id, 100, {.last = i == 5}), status::ok);
        }
    });
}

TEST_P(allocations, calls_of_every_kind_allocate_nothing) {
    struct kind {
        const char* what;
        handler service;
        std::function<void(channel&, slice)> round;
    };
    const kind all[] = {
        {"no bytes", echo, [](auto& client, auto) { eight_calls(client, 0, {}, {}); }},
        {"short payloads", echo, [](auto& client, auto) { eight_calls(client, 64, {}, {}); }},
        {"long payloads", echo, [](auto& client, auto) { eight_calls(client, 5'000, {}, {}); }},
        {"very long payloads", echo, [](auto& client, auto) { eight_calls(client, 60'000, {}, {}); }},
        {"lent payloads", echo, [](auto& client, auto memory) { eight_calls(client, 0, memory, {}); }},
        // All eight answers go to the same place; only allocations are of interest.
        {"response targets", echo, [](auto& client, auto memory) { eight_calls(client, 100, {}, memory); }},
        {"calls that end early", echo,
         [](auto& client, auto) {
             for (int i = 0; i < 8; ++i) one_call(client, {}, [&](call_id id) { (void)client.cancel(id); });
         }},
        {"failures", fail_with_text,
         [](auto& client, auto) {
             for (int i = 0; i < 8; ++i) one_call(client, {});
         }},
        {"responses in parts", send_six_parts, [](auto& client, auto) { one_call(client, {.parts = 6}); }},
        {"requests in parts", takes_parts(), [](auto& client, auto) { send_request_in_parts(client); }},
    };
    for (const kind& each : all) {
        rig r(backend(), each.service, at_server());
        auto client = r.connect(at_client());
        auto memory = r.ctx().allocate(60'000);
        ASSERT_TRUE(memory);
        EXPECT_EQ(allocated_by([&] { each.round(client.raw(), memory->whole()); }), 0U) << each.what;
    }
}

/// Serves requests and polls the channel behind it, with the request's memory lent and the response written in place.
class forwarding_thread {
  public:
    forwarding_thread(rig& behind, const backend_case& on, const channel_options& options)
        : behind_(behind.try_connect(options).value()),
          front_(server::listen(
                     behind.ctx(), std::vector{on.listen_uri()}, [this](exchange one) { take(std::move(one)); },
                     without_workers())
                     .value()),
          thread_([this] {
              while (!stop_) step();
          }) {}
    ~forwarding_thread() {
        stop_ = true;
        thread_.join();
    }
    forwarding_thread(const forwarding_thread&) = delete;
    forwarding_thread& operator=(const forwarding_thread&) = delete;
    [[nodiscard]] std::string uri() const { return front_.endpoints().at(0); }

  private:
    static server_options without_workers() {
        server_options options = calm_server();
        options.workers = 0;
        return options;
    }
    void take(exchange one) {
        const auto call = behind_.begin();
        ASSERT_EQ(call.code(), status::ok);
        const auto request = one.request_slice();
        ASSERT_EQ(request.code(), status::ok);
        const auto room = one.response_slice();
        ASSERT_EQ(room.code(), status::ok);
        submit_options options;
        options.response_into = *room;
        options.tag = call->id.slot;
        ASSERT_EQ(behind_.submit(call->id, *request, options), status::ok);
        kept_.at(call->id.slot).emplace(std::move(one));
    }
    void step() {
        std::array<completion, 8> out;
        const std::size_t got = behind_.poll(out);
        for (std::size_t i = 0; i < got; ++i) {
            (void)kept_.at(out[i].tag)->reply(out[i].response.size());
            kept_.at(out[i].tag).reset();
            out[i].release();
        }
        if (got + front_.poll() == 0) std::this_thread::yield();
    }

    channel behind_;
    std::array<std::optional<exchange>, 8> kept_;
    server front_;
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

TEST_P(allocations, forwarded_calls_allocate_nothing) {
    if (backend().scheme == "local") GTEST_SKIP() << "its requests are the client's memory";
    rig r(backend(), echo, at_server());
    const forwarding_thread between(r, backend(), at_client());
    auto client = channel::connect(r.ctx(), between.uri(), at_client());
    ASSERT_TRUE(client) << client.error().message;
    for (const std::size_t length : {64U, 60'000U})
        EXPECT_EQ(allocated_by([&] { eight_calls(*client, length, {}, {}); }), 0U) << length << " bytes";
}

/// With everything on: they are counted, by target, and carry their trace.
TEST_P(allocations, counted_and_traced_calls_allocate_nothing) {
    context ctx = quiet_context(true);
    auto serving = server::listen(ctx, {backend().listen_uri()}, service_table{{{"model", echo}}, echo}, at_server());
    ASSERT_TRUE(serving.ok()) << serving.error().message;
    auto made = channel::connect(ctx, serving->endpoints().front(), at_client());
    ASSERT_TRUE(made.ok()) << made.error().message;
    const trace_context trace = *trace_context::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    const auto counted = [&] {
        for (int i = 0; i < 8; ++i) {
            const auto call = made->begin();
            ASSERT_EQ(call.code(), status::ok);
            submit_options options;
            if (i % 2 == 0) options.trace = trace;
            if (i % 4 < 2) options.target = target_of("model");
            if (i % 4 == 3) options.target = target_of("nobody");
            ASSERT_EQ(made->submit(call->id, 100, options), status::ok);
            completion out;
            ASSERT_EQ(made->wait({&out, 1}, until_hung()), 1U);
        }
    };
    EXPECT_EQ(allocated_by(counted), 0U);
    EXPECT_GT(ctx.metrics().sum("accel_calls_total"), 0);
}

TEST_P(allocations, calls_of_a_pool_allocate_nothing_whichever_host_gets_them) {
    rig first(backend(), echo, at_server());
    const rig second(backend(), echo, at_server());
    const std::string both = first.uri() + "," + second.uri().substr(second.uri().find("://") + 3);
    for (const auto how : {pool_balance::round_robin, pool_balance::least_loaded, pool_balance::sticky}) {
        auto pool = channel_pool::open(first.ctx(), both, at_client(), {.balance = how});
        ASSERT_TRUE(pool) << pool.error().message;
        const std::array<std::byte, 64> request{};
        std::array<int, 8> numbers{};
        const auto calls = [&] {
            for (int& number : numbers) {
                submit_options options;
                options.balance_key = {reinterpret_cast<const char*>(&number), sizeof(number)};
                ++number;
                ASSERT_TRUE(pool->call(request, options));
            }
        };
        EXPECT_EQ(allocated_by(calls), 0U) << "balance " << static_cast<int>(how);
        EXPECT_EQ(pool->statistics().channels, 2U);
    }
}

// A channel with reconnect=true tries again and again while its server is away.
TEST_P(allocations, another_connection_allocates_no_long_aligned_block) {
    rig r(backend(), echo, at_server());
    (void)r.connect(at_client());
    const std::uint64_t before = long_aligned_allocations();
    for (int i = 0; i < 10; ++i) (void)r.connect(at_client());
    EXPECT_EQ(long_aligned_allocations() - before, 0U);
}

INSTANTIATE_TEST_SUITE_P(
    backends, allocations,
    ::testing::Values(alloc_case{"local", poll_mode::adaptive}, alloc_case{"local", poll_mode::block},
                      alloc_case{"shm", poll_mode::adaptive}, alloc_case{"shm", poll_mode::block},
                      alloc_case{"rdma", poll_mode::adaptive}, alloc_case{"rdma", poll_mode::block},
                      alloc_case{"tcp", poll_mode::adaptive}, alloc_case{"tcp", poll_mode::block}),
    [](const auto& row) {
        return std::string(row.param.scheme) + (row.param.poll == poll_mode::block ? "_asleep" : "_spinning");
    });

/// Keeps the compiler from leaving an allocation out that is not used.
template <class Pointer>
Pointer kept(Pointer pointer) {
    Pointer volatile seen = pointer;
    return seen;
}

TEST(counting, sees_every_way_to_allocate) {
    const auto counted = [](const std::function<void()>& allocate) {
        const std::uint64_t before = heap_allocations();
        allocate();
        return heap_allocations() - before;
    };
    EXPECT_EQ(counted([] { delete kept(new int); }), 1U);
    EXPECT_EQ(counted([] { delete[] kept(new char[100]); }), 1U);
    EXPECT_EQ(counted([] { std::free(kept(std::malloc(10))); }), 1U);
    EXPECT_EQ(counted([] { std::free(kept(std::calloc(2, 5))); }), 1U);
    EXPECT_EQ(counted([] { std::free(kept(std::aligned_alloc(64, 64))); }), 1U);
    EXPECT_EQ(counted([] { std::free(kept(std::realloc(kept(std::malloc(10)), 1000))); }), 2U);
    EXPECT_EQ(counted([] { std::thread([] { std::free(kept(std::malloc(10))); }).join(); }) > 0, true)
        << "other threads";
    const std::uint64_t before = long_aligned_allocations();
    struct alignas(4096) pages {
        std::byte bytes[64 << 10];
    };
    delete kept(new pages);
    std::free(kept(std::malloc(sizeof(pages))));
    EXPECT_EQ(long_aligned_allocations() - before, 1U);
}

}  // namespace
}  // namespace accel::tests
