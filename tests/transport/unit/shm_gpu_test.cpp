// SPDX-License-Identifier: Apache-2.0
// Slots of a server on a GPU that its client writes to by itself, with a stand-in for a GPU at each end.
#include "conformance/payload.hpp"
#include "core/context_state.hpp"
#include "core/internals.hpp"
#include "gpu/fake_gpu.hpp"
#include "patience.hpp"

#include <accel_transport/accel_transport.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

namespace accel::tests {
namespace {

using fakes = std::shared_ptr<fake_accelerator>;
using byte_list = std::vector<std::byte>;

constexpr std::size_t slot_bytes = std::size_t{3} << 20;  // two pieces of a copy
constexpr std::size_t straight = std::size_t{64} << 10;   // from here on the host's memory goes straight, too
constexpr memory_kind first_gpu = memory_kind::cuda(0);

context context_with(const fakes& gpus) {
    auto made = context::open({.log = log_level::off}).value();
    core::internals::state_of(made)->replace_devices(gpus);
    return made;
}

std::string new_name() {
    static std::atomic<int> number{0};
    return "shm://shm-gpu-" + std::to_string(::getpid()) + "-" + std::to_string(++number);
}

/// Server and client, as in two processes: neither's GPU knows the other's memory.
class shm_gpu : public ::testing::TestWithParam<poll_mode> {
  protected:
    /// On the server's GPU: the response is the request's bytes, whatever memory that is.
    void serve() {
        server_options options;
        options.memory = first_gpu;
        options.max_request_bytes = options.max_response_bytes = slot_bytes;
        options.drain_timeout = 0s;
        server_.reset();
        server_.emplace(server::listen(
                            server_context_, {uri_}, [this](exchange one) { answer(std::move(one)); }, options)
                            .value());
    }
    void answer(exchange one) {
        auto& gpu = server_gpus_->device();
        EXPECT_TRUE(gpu.holds(one.response().data(), 1));
        EXPECT_TRUE(one.request().empty() || gpu.holds(one.request().data(), one.request().size()));
        const std::span<const std::byte> from = one.request();
        const std::span<std::byte> to = one.response();
        const std::size_t length = std::min(from.size(), to.size());
        if (fails_) {
            (void)one.fail(status::application_error, 7, "it does not want to");
            return;
        }
        fake_stream::of(one.stream()).launch([=] {
            if (length > 0) std::memcpy(to.data(), from.data(), length);
        });
        (void)one.reply(length);
    }
    /// `ordinal`: of the client's GPU that it has used before it connects; none: -1.
    void connect(std::int16_t ordinal = 0, channel_options options = {}) {
        if (ordinal >= 0) on_gpu_.emplace(client_context_.allocate(2 * slot_bytes, memory_kind::cuda(ordinal)).value());
        options.slots = 4;
        options.request_bytes = options.response_bytes = slot_bytes;
        options.call_timeout = patience(30s);
        options.poll = GetParam();
        line_.emplace(channel::connect(client_context_, uri_, options).value());
    }
    void SetUp() override { serve(); }
    void TearDown() override {
        client_gpus_->device().held = false;
        server_gpus_->device().held = false;
    }

    enum class place : std::uint8_t { slot, host, gpu };
    [[nodiscard]] region& memory_of(place where) { return where == place::gpu ? *on_gpu_ : on_host_; }
    call_id begin(place from, std::size_t length, std::uint64_t seed) {
        const auto call = line_->begin();
        EXPECT_EQ(call.code(), status::ok);
        const std::span<std::byte> room =
            from == place::slot ? call->request.first(length) : memory_of(from).whole().bytes().first(length);
        fill(room, seed);
        return call->id;
    }
    void submit(call_id id, place from, place to, std::size_t length, std::chrono::nanoseconds timeout = 0s) {
        submit_options options;
        options.timeout = timeout;
        if (to != place::slot) options.response_into = memory_of(to).part(slot_bytes, slot_bytes).value();
        const status done = from == place::slot ? line_->submit(id, length, options)
                                                : line_->submit(id, memory_of(from).part(0, length).value(), options);
        ASSERT_EQ(done, status::ok) << to_string(done);
    }
    completion next() {
        std::array<completion, 1> one;
        EXPECT_EQ(line_->wait(one, patience(30s)), 1U);
        return std::move(one[0]);
    }
    /// One call from here to there. Its timeline tells what was copied over the host's slots.
    std::chrono::nanoseconds call(place from, place to, std::size_t length) {
        const std::uint64_t seed = ++seed_;
        submit(begin(from, length, seed), from, to, length);
        completion got = next();
        EXPECT_EQ(got.status, status::ok) << to_string(got.status);
        EXPECT_EQ(got.response.size(), length);
        EXPECT_TRUE(to == place::slot || got.response.data() == memory_of(to).data() + slot_bytes);
        EXPECT_TRUE(matches(got.response, seed)) << length << " bytes";
        return got.timeline.copy;
    }

    std::string uri_ = new_name();
    fakes server_gpus_ = std::make_shared<fake_accelerator>();
    fakes client_gpus_ = std::make_shared<fake_accelerator>();
    context server_context_ = context_with(server_gpus_);
    context client_context_ = context_with(client_gpus_);
    std::atomic<bool> fails_{false};
    region on_host_ = client_context_.allocate(2 * slot_bytes).value();
    std::optional<region> on_gpu_;
    std::optional<server> server_;
    std::optional<channel> line_;
    std::uint64_t seed_ = 0;
};

TEST_P(shm_gpu, payloads_of_every_place_and_length_arrive) {
    connect();
    for (const std::size_t length : {std::size_t{0}, std::size_t{1}, std::size_t{4096}, straight, slot_bytes})
        for (const place from : {place::slot, place::host, place::gpu})
            for (const place to : {place::slot, place::host, place::gpu}) (void)call(from, to, length);
}

TEST_P(shm_gpu, payloads_from_gpu_to_gpu_avoid_the_host) {
    connect();
    EXPECT_EQ(call(place::gpu, place::gpu, 64).count(), 0);
    EXPECT_EQ(call(place::gpu, place::gpu, slot_bytes).count(), 0);
    EXPECT_EQ(call(place::slot, place::gpu, straight).count(), 0);
    EXPECT_GT(call(place::slot, place::gpu, 64).count(), 0) << "a short request takes less time over the host";
}

TEST_P(shm_gpu, a_client_that_reaches_no_slots_or_memory_that_cannot_be_shared_goes_over_the_host) {
    connect(-1);
    EXPECT_EQ(client_gpus_->opened().size(), 0U);
    EXPECT_GT(call(place::slot, place::slot, slot_bytes).count(), 0);
    line_.reset();
    client_gpus_->device(1).reaches_peers = false;
    connect(1);
    EXPECT_GT(call(place::gpu, place::gpu, slot_bytes).count(), 0) << "another GPU";
    line_.reset();
    client_gpus_->device(1).reaches_peers = true;
    connect(1);
    EXPECT_EQ(call(place::gpu, place::gpu, slot_bytes).count(), 0) << "another GPU that reaches the slots";
    line_.reset();
    server_gpus_->device().shares = false;
    serve();
    connect();
    EXPECT_GT(call(place::gpu, place::gpu, slot_bytes).count(), 0) << "not shared";
}

TEST_P(shm_gpu, the_text_of_a_failure_is_on_the_host) {
    connect();
    fails_ = true;
    for (const place to : {place::slot, place::gpu}) {
        submit(begin(place::gpu, 64, 1), place::gpu, to, 64);
        const completion got = next();
        EXPECT_EQ(got.status, status::application_error);
        EXPECT_EQ(got.code, 7U);
        const std::string text(reinterpret_cast<const char*>(got.response.data()), got.response.size());
        EXPECT_EQ(text, "it does not want to");
        EXPECT_FALSE(client_gpus_->device().holds(got.response.data(), 1));
    }
    fails_ = false;
    (void)call(place::gpu, place::gpu, slot_bytes);
}

/// Those of the host alone go over the host's slots. One on the GPU takes all others along, straight into the server's
/// slot there.
TEST_P(shm_gpu, many_ranges_of_one_memory_or_of_both_are_one_request) {
    connect();
    constexpr std::size_t each = 4096;
    constexpr std::size_t count = slot_bytes / each;
    fill(on_gpu_->whole().bytes(), 1);
    fill(on_host_.whole().bytes(), 2);
    const region answers = client_context_.allocate(slot_bytes, first_gpu).value();
    for (const std::size_t on_gpu : {std::size_t{0}, std::size_t{1}, count / 3, count - 1, count}) {
        std::vector<slice> ranges;
        byte_list wanted;
        for (std::size_t i = 0; i < count; ++i) {
            const bool there = (i + 1) * on_gpu / count > i * on_gpu / count;
            ranges.push_back(memory_of(there ? place::gpu : place::host).part(i * each * 2, each).value());
            wanted.insert(wanted.end(), ranges.back().bytes().begin(), ranges.back().bytes().end());
        }
        const auto call = line_->begin();
        ASSERT_EQ(call.code(), status::ok);
        ASSERT_EQ(line_->submit(call->id, ranges, {.response_into = answers.whole()}), status::ok);
        const completion got = next();
        ASSERT_EQ(got.status, status::ok) << to_string(got.status);
        EXPECT_TRUE(std::ranges::equal(got.response, wanted)) << on_gpu << " on the GPU";
        EXPECT_EQ(got.timeline.copy > 0ns, on_gpu == 0) << on_gpu << " on the GPU";
    }
    line_.reset();
}

/// Its memory is the application's again when the GPU has let go of it, and not before.
TEST_P(shm_gpu, a_call_that_ends_during_its_copy_completes_after_the_copy) {
    connect();
    auto& gpu = client_gpus_->device();
    gpu.held = true;
    submit(begin(place::gpu, slot_bytes, 1), place::gpu, place::gpu, slot_bytes, 20ms);
    std::array<completion, 1> one;
    EXPECT_EQ(line_->wait(one, 200ms), 0U);
    gpu.held = false;
    EXPECT_EQ(next().status, status::timed_out);
    for (int i = 0; i < 5; ++i) (void)call(place::gpu, place::gpu, slot_bytes);
}

TEST_P(shm_gpu, a_lost_server_ends_calls_after_their_copies) {
    connect();
    auto& gpu = client_gpus_->device();
    (void)call(place::gpu, place::gpu, slot_bytes);
    gpu.held = true;
    submit(begin(place::gpu, slot_bytes, 1), place::gpu, place::gpu, slot_bytes);
    server_.reset();
    std::array<completion, 1> one;
    EXPECT_EQ(line_->wait(one, 100ms), 0U) << "the GPU still reads what was lent";
    gpu.held = false;
    const status how = next().status;
    EXPECT_TRUE(how == status::closed || how == status::peer_lost) << to_string(how);
    EXPECT_TRUE(eventually(patience(10s), [&] { return server_gpus_->device().allocated() == 0; }));
}

TEST_P(shm_gpu, a_closed_channel_leaves_nothing_mapped) {
    connect();
    (void)call(place::gpu, place::gpu, slot_bytes);
    EXPECT_GT(client_gpus_->device().allocated(), 2 * slot_bytes);
    line_.reset();
    EXPECT_EQ(client_gpus_->device().allocated(), 2 * slot_bytes) << "the client's own region";
    EXPECT_TRUE(eventually(patience(10s), [&] { return server_gpus_->device().allocated() == 0; }));
    EXPECT_EQ(client_gpus_->pins, 0);
}

TEST_P(shm_gpu, a_failed_gpu_of_the_client_ends_its_session) {
    connect();
    auto& gpu = client_gpus_->device();
    gpu.held = true;
    submit(begin(place::gpu, slot_bytes, 1), place::gpu, place::slot, slot_bytes);
    gpu.failed = true;
    const status how = next().status;
    EXPECT_TRUE(how == status::device_lost || how == status::peer_lost) << to_string(how);
}

TEST_P(shm_gpu, a_reconnected_channel_maps_the_new_slots) {
    channel_options options;
    options.reconnect = true;
    options.backoff_min = 1ms;
    connect(0, options);
    (void)call(place::gpu, place::gpu, slot_bytes);
    serve();
    EXPECT_TRUE(eventually(patience(20s), [&] {
        std::array<completion, 1> one;
        (void)line_->poll(one);
        return line_->connected() && line_->statistics().reconnects > 0;
    }));
    EXPECT_EQ(call(place::gpu, place::gpu, slot_bytes).count(), 0);
}

INSTANTIATE_TEST_SUITE_P(waits, shm_gpu, ::testing::Values(poll_mode::busy, poll_mode::block),
                         [](const auto& mode) { return mode.param == poll_mode::busy ? "busy" : "asleep"; });

}  // namespace
}  // namespace accel::tests
