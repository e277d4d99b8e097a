// SPDX-License-Identifier: Apache-2.0
// Random sequences of everything that channels, handlers and servers do. Clients differ in slots, sizes, targets, and
// how they wait; requests are in flight behind requests; what comes out for each is compared with a plan. In the end
// all is given back.
#include "random_client.hpp"

#include <cstdlib>
#include <list>
#include <thread>

namespace accel::tests {
namespace {

class random_calls : public on_every_backend {};

/// A server, as its seed wants it.
class random_world {
  public:
    random_world(const backend_case& backend, std::uint64_t seed, std::uint32_t workers)
        : options_(serving(seed, workers)),
          scheme_(backend.scheme),
          in_order_(workers < 2 && !handlers_on_gpu()),
          handlers_(ctx_, backend.scheme, backend.network, in_order_) {
        listen(backend.listen_uri());
    }
    ~random_world() {
        rest();
        server_.reset();
    }
    random_world(const random_world&) = delete;
    random_world& operator=(const random_world&) = delete;

    [[nodiscard]] context& ctx() { return ctx_; }
    [[nodiscard]] const std::string& uri() const { return uri_; }
    [[nodiscard]] random_server& handlers() { return handlers_; }
    [[nodiscard]] server& served() { return *server_; }
    /// One worker takes the requests of a channel, and answers them, in the order of their submission.
    [[nodiscard]] bool in_order() const { return in_order_; }
    [[nodiscard]] const std::string& scheme() const { return scheme_; }
    [[nodiscard]] bool has_limit() const { return options_.max_exchanges == few; }
    /// Where the application drives it: nobody does from now on.
    void rest() {
        over_ = true;
        if (driver_.joinable()) driver_.join();
    }
    void go_on() {
        over_ = false;
        if (options_.workers > 0) return;
        driver_ = std::thread([this] {
            while (!over_)
                if (server_->poll() == 0) std::this_thread::yield();
        });
    }
    void stop() {
        rest();
        server_->stop();
    }
    void listen(const std::string& uri) {
        server_.reset();
        auto made = server::listen(ctx_, {uri}, handlers_.services(), options_);
        if (!made) throw std::runtime_error("listen on " + uri + ": " + made.error().message);
        server_.emplace(std::move(*made));
        uri_ = server_->endpoints().at(0);
        requests_before_ = handlers_.requests();
        handlers_.begin_sessions();
        go_on();
    }
    /// Nothing is left of a server that has stopped.
    void expect_ended() {
        EXPECT_EQ(server_->statistics().sessions, 0U);
        EXPECT_EQ(server_->statistics().requests, handlers_.requests() - requests_before_);
        server_.reset();
        EXPECT_EQ(sum_of({"accel_exchanges_open", "accel_sessions", "accel_servers", "accel_slot_memory_bytes"}), 0);
    }
    /// Once its clients are gone and their calls are answered.
    void expect_all_returned() {
        EXPECT_TRUE(eventually([this] {
            handlers_.drop_shelved();
            const server_statistics now = server_->statistics();
            return now.sessions == 0 && now.memory_bytes == 0 && now.gpu_memory_bytes == 0 && sum_of(of_calls) == 0 &&
                   now.requests == handlers_.requests() - requests_before_;
        })) << server_->statistics().sessions
            << " sessions, " << server_->statistics().memory_bytes << " bytes, " << sum_of(of_calls)
            << " calls, exchanges, channels and sessions, " << server_->statistics().requests << " requests";
        EXPECT_LE(server_->statistics().sessions_lost, handlers_.channels_left());
        EXPECT_TRUE(handlers_.all_leases_ended());
    }

  private:
    static constexpr std::uint32_t few = 6;
    static constexpr std::initializer_list<const char*> of_calls{"accel_calls_in_flight", "accel_exchanges_open",
                                                                 "accel_channels", "accel_sessions"};
    [[nodiscard]] double sum_of(std::initializer_list<const char*> gauges) const {
        const metrics_snapshot now = ctx_.metrics();
        double sum = 0;
        for (const char* each : gauges) sum += now.sum(each);
        return sum;
    }

    static server_options serving(std::uint64_t seed, std::uint32_t workers) {
        server_options options = calm_server();
        options.workers = workers;
        options.poll = std::array{poll_mode::adaptive, poll_mode::block, poll_mode::busy}.at(mix(seed) % 3);
        options.peer_timeout = until_hung();
        options.drain_timeout = 5ms;
        if (seed % 4 == 1 && workers < 2) options.max_exchanges = few;
        return options;
    }
    context ctx_ = quiet_context(true);
    server_options options_;
    std::string scheme_;
    bool in_order_;
    random_server handlers_;
    std::optional<server> server_;
    std::string uri_;
    std::size_t requests_before_ = 0;
    std::atomic<bool> over_{false};
    std::thread driver_;
};

/// Several clients of one thread.
class random_clients {
  public:
    random_clients(random_world& at, std::uint64_t seed, std::uint64_t thread, bool reconnect = false)
        : world_(at), draw_(seed), seed_(seed), thread_(thread), reconnect_(reconnect) {
        for (int i = 0; i < 3; ++i) come();
    }
    void run(int steps) {
        for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) {
            SCOPED_TRACE(::testing::Message() << "seed " << seed_ << ", thread " << thread_ << ", step " << i);
            step();
        }
    }
    /// Answers all, and reads all.
    void finish() {
        for (random_client& each : clients_) finish(each);
    }
    void finish(random_client& one) {
        while (one.open_calls() > 0) {
            answer_all();
            one.release_all(draw_);
            const bool alone = one.needs_this_thread();
            const bool came = one.wait(alone ? 1ms : until_hung());
            if (!came && !alone) return ADD_FAILURE() << one.open_calls() << " calls of " << one.owner() << " hang";
        }
        one.release_all(draw_);
        // Requests of calls that were cancelled may arrive only now.
        EXPECT_TRUE(eventually([&] {
            answer_all();
            one.poll(draw_);
            return one.raw()->statistics().quarantined == 0;
        })) << one.owner();
    }
    void expect_idle() {
        for (random_client& each : clients_) {
            SCOPED_TRACE(::testing::Message() << "seed " << seed_ << ", client " << each.owner());
            each.expect_idle();
        }
    }
    void close_all() {
        while (!clients_.empty()) {
            const auto who = some_client();
            world_.handlers().leave(who->owner());
            who->close(draw_);
            clients_.erase(who);
        }
    }
    /// With calls in flight.
    void destroy_all() {
        while (!clients_.empty()) destroy(some_client());
    }
    /// What is left in handlers' hands can still be read, and goes nowhere.
    void answer_in_vain() {
        while (auto one = world_.handlers().take(thread_, draw_(1'000))) {
            EXPECT_TRUE(one->open.cancelled()) << one->of;
            // Without its worker, no server can copy what its client takes back.
            const bool in_slots = one->of.by == carried::in_slot && one->of.into == carried::in_slot;
            if (ending_ && world_.scheme() == "local" && !in_slots) continue;
            EXPECT_TRUE(matches(one->open.request(), one->of.number)) << one->of;
            const bool silent = one->of.how == way_to_answer::by_drop;
            const status said = world_.handlers().answer(std::move(one->open), one->of);
            EXPECT_TRUE(silent || said == status::peer_lost) << to_string(said) << " for " << one->of;
        }
    }
    void server_ends() {
        for (random_client& each : clients_) {
            each.server_ends();
            world_.handlers().leave(each.owner());
        }
        ending_ = true;
    }
    /// The server has ended, and its clients hear of it. They keep some answers.
    void expect_ended() {
        for (random_client& each : clients_) {
            while (each.open_calls() > 0)
                if (!each.wait(until_hung())) return ADD_FAILURE() << each.open_calls() << " calls hang";
            for (std::uint64_t n = draw_(8); n > 0; --n) each.release(draw_);
            if (reconnect_) continue;
            EXPECT_TRUE(eventually([&] {
                (void)each.wait(1ms);
                return !each.raw()->connected();
            }));
            const auto call = each.raw().begin();
            const status said = call.code();
            EXPECT_TRUE(said == status::closed || said == status::peer_lost) << to_string(said);
        }
    }
    void expect_reconnected() {
        for (random_client& each : clients_) {
            EXPECT_TRUE(eventually([&] {
                (void)each.wait(1ms);
                return each.raw()->connected();
            }));
            EXPECT_EQ(each.raw()->statistics().reconnects, 1U);
            EXPECT_EQ(each.raw()->take_event(), channel_event::lost);
            EXPECT_EQ(each.raw()->take_event(), channel_event::reconnected);
            EXPECT_EQ(each.raw()->take_event(), channel_event::none);
            each.begins_anew(new_owner());
        }
        ending_ = false;
    }
    void answer_all() {
        for (std::size_t left = world_.handlers().shelved(thread_); left > 0; --left) answer_one();
    }
    /// One of so many times.
    [[nodiscard]] bool chance(std::uint64_t times) { return draw_(times) == 0; }
    [[nodiscard]] std::size_t shelved() { return world_.handlers().shelved(thread_); }

  private:
    using place = std::list<random_client>::iterator;

    place some_client() { return std::next(clients_.begin(), static_cast<std::ptrdiff_t>(draw_(clients_.size()))); }
    [[nodiscard]] std::uint64_t new_owner() { return thread_ * random_server::channels_of_a_thread + next_owner_++; }
    void come() {
        random_client& made =
            clients_.emplace_back(world_.ctx(), world_.uri(), draw_(client_kinds.size()), new_owner(), reconnect_);
        made.is_held = [this](std::uint64_t number) { return world_.handlers().has_shelved(number); };
        made.was_seen = [this](std::uint64_t number) { return world_.handlers().has_seen(number); };
        made.server_has_limit = world_.has_limit();
        made.in_order = world_.in_order();
        made.knows_unseen = world_.scheme() != "zmq";
    }
    void destroy(place who) {
        world_.handlers().leave(who->owner());
        who->destroy();
        clients_.erase(who);
    }
    void step() {
        random_client& who = *some_client();
        switch (draw_(20)) {
            case 0:
            case 1:
            case 2:
            case 3:
            case 4:
                for (std::uint64_t n = 1 + draw_(std::max<std::uint64_t>(1, who.kind().slots / 4)); n > 0; --n) {
                    who.begin();
                    who.submit(draw_);
                }
                return;
            case 5:
                return who.begin();
            case 6:
            case 7:
                return who.submit(draw_);
            case 8:
            case 9:
                return who.poll(draw_);
            case 10:
                return static_cast<void>(who.wait(std::chrono::microseconds{1 + draw_(200)}));
            case 11:
            case 12:
                return who.release(draw_);
            case 13:
                return who.cancel(draw_);
            case 14:
            case 15:
                return answer_all();
            case 16:
                return who.use_wrong_ids();
            case 17:
                return who.call(draw_);
            case 18:
                return draw_(4) == 0 ? who.resolve() : who.move();
            default:
                return come_and_go();
        }
    }
    void come_and_go() {
        const auto who = some_client();
        if (draw_(3) != 0 || ending_) return;
        if (draw_(2) == 0) {
            destroy(who);
        } else {
            world_.handlers().leave(who->owner());
            who->close(draw_);
            clients_.erase(who);
        }
        come();
    }
    void answer_one() {
        auto one = world_.handlers().take(thread_, draw_(1'000));
        if (!one) return;
        const plan p = one->of;
        EXPECT_TRUE(matches(one->open.request(), p.number)) << p;
        expect_cancelled_or_not(one->open, p);
        if (world_.handlers().send_part(*one)) return world_.handlers().put_back(std::move(*one));
        if (p.how == way_to_answer::by_drop && draw_(2) == 0) {
            // The first is abandoned, as the second takes its place.
            if (auto second = world_.handlers().take(thread_, draw_(1'000))) {
                one->open = std::move(second->open);
                second->open = std::move(one->open);
                return world_.handlers().put_back(std::move(*second));
            }
        }
        world_.handlers().expect_sent(p, world_.handlers().answer(std::move(one->open), p));
    }
    void expect_cancelled_or_not(const exchange& open, const plan& p) {
        const auto of = std::ranges::find(clients_, p.owner(), &random_client::owner);
        if (of == clients_.end() || of->has_cancelled(p.number)) {
            EXPECT_TRUE(eventually([&] { return open.cancelled(); })) << p;
            if (draw_(4) == 0) {
                EXPECT_TRUE(eventually([&] { return open.stop_token().stop_requested(); })) << p;
            }
        } else if (p.timeout == 0ns && !ending_) {
            EXPECT_FALSE(open.cancelled()) << p;
            EXPECT_FALSE(draw_(4) == 0 && open.stop_token().stop_requested()) << p;
        }
    }

    random_world& world_;
    drawing draw_;
    std::uint64_t seed_;
    std::uint64_t thread_;
    bool reconnect_;
    bool ending_ = false;
    std::uint64_t next_owner_ = 1;
    std::list<random_client> clients_;
};

// How a sequence ends.

void answer_and_close(random_world& world, random_clients& clients) {
    clients.finish();
    clients.expect_idle();
    clients.close_all();
    world.expect_all_returned();
}

void leave_with_calls_in_flight(random_world& world, random_clients& clients) {
    clients.destroy_all();
    EXPECT_TRUE(eventually([&] { return world.served().statistics().sessions == 0; }));
    clients.answer_in_vain();
    world.expect_all_returned();
}

void stop_with_calls_in_flight(random_world& world, random_clients& clients) {
    clients.server_ends();
    std::jthread stopper([&] { world.stop(); });
    clients.run(20);
    stopper.join();
    // Over `local` a client waits for a second if a handler has its memory, and the server's worker has ended.
    const bool waits = clients.chance(4);
    if (waits) clients.expect_ended();
    clients.answer_in_vain();
    if (!waits) clients.expect_ended();
    world.expect_ended();
    clients.destroy_all();
    EXPECT_TRUE(world.handlers().all_leases_ended());
}

void drain_with_calls_in_flight(random_world& world, random_clients& clients) {
    clients.server_ends();
    world.rest();
    const bool held = clients.shelved() > 0;
    const auto start = std::chrono::steady_clock::now();
    const bool late = world.served().drain(1ms) == status::timed_out;
    EXPECT_TRUE(late || !held) << "there are open exchanges";
    EXPECT_TRUE(!late || std::chrono::steady_clock::now() - start >= 1ms);
    world.go_on();
    EXPECT_EQ(channel::connect(world.ctx(), world.uri(), calm_client()).code(), status::overloaded);
    clients.run(20);
    clients.finish();
    world.rest();
    EXPECT_TRUE(eventually([&] {
        clients.answer_all();
        return world.served().drain(1ms) == status::ok;
    }));
    world.go_on();
    clients.expect_ended();
    clients.close_all();
    world.expect_all_returned();
}

void restart(random_world& world, random_clients& clients) {
    clients.server_ends();
    world.stop();
    clients.answer_in_vain();
    clients.expect_ended();
    world.expect_ended();
    world.listen(world.uri());
    clients.expect_reconnected();
    clients.run(50);
    clients.finish();
    clients.expect_idle();
    clients.close_all();
    world.expect_all_returned();
}

TEST_P(random_calls, each_call_comes_out_as_planned_and_all_is_returned) {
    constexpr std::array ends{answer_and_close, leave_with_calls_in_flight, stop_with_calls_in_flight,
                              drain_with_calls_in_flight, restart};
    constexpr std::uint64_t warm_up = 5;
    std::size_t descriptors = 0;
    const char* const more = std::getenv("ACCEL_TEST_SEEDS");
    const std::uint64_t seeds = more == nullptr ? 10 : std::stoull(more);
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        if (seed == warm_up) descriptors = open_descriptors();
        const auto end = ends.at(seed % ends.size());
        random_world world(GetParam(), seed, static_cast<std::uint32_t>(mix(seed) % 3));
        random_clients clients(world, seed, 0, end == restart);
        clients.run(150);
        end(world, clients);
        if (HasFailure()) return;
    }
    EXPECT_TRUE(eventually([&] { return open_descriptors() <= descriptors; }))
        << open_descriptors() << " descriptors, " << descriptors << " before";
}

TEST_P(random_calls, several_threads_with_clients_of_their_own_disturb_nobody) {
    random_world world(GetParam(), 0, 2);
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < 3; ++t)
        threads.emplace_back([&world, t] {
            random_clients clients(world, 1'000 + t, t);
            clients.run(effort(1'000));
            clients.finish();
            clients.expect_idle();
            clients.close_all();
        });
    for (std::thread& t : threads) t.join();
    world.expect_all_returned();
}

ACCEL_INSTANTIATE(random_calls, all_backends);

}  // namespace
}  // namespace accel::tests
