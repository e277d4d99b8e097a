// SPDX-License-Identifier: Apache-2.0
// Slots of a server on a real GPU, into which a client in another process writes by itself. Skipped without a GPU whose
// memory processes can share.
#include "conformance/payload.hpp"
#include "gpu/gpu_bytes.hpp"
#include "patience.hpp"
#include "staging/accelerator.hpp"

#include <accel_transport/accel_transport.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <functional>
#include <iostream>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace accel::tests {
namespace {

using bytes = std::vector<std::byte>;

constexpr std::size_t most = std::size_t{5} << 20;  // more than two pieces of a copy
/// A request of one byte is never answered.
constexpr std::size_t to_be_held = 1;

/// Both ends know it before either exists.
std::string name_for_test() {
    return "shm://shared-slots-" + std::to_string(::getpid());
}

/// Another process, forked before this one uses the GPU. It ends when this one does.
class other_process {
  public:
    /// `work` gets a descriptor to write to and one to read from.
    explicit other_process(const std::function<int(int, int)>& work) {
        std::array<int, 2> up{};
        std::array<int, 2> down{};
        if (::pipe(up.data()) != 0 || ::pipe(down.data()) != 0) return;
        child_ = ::fork();
        if (child_ == 0) {
            ::close(up[0]);
            ::close(down[1]);
            ::_exit(work(up[1], down[0]));
        }
        ::close(up[1]);
        ::close(down[0]);
        heard_ = up[0];
        tell_ = down[1];
    }
    ~other_process() {
        ::close(tell_);
        ::close(heard_);
        kill();
    }
    other_process(const other_process&) = delete;
    other_process& operator=(const other_process&) = delete;

    /// The next byte that it writes; 0: it has ended.
    [[nodiscard]] char hear() const {
        char said = 0;
        return ::read(heard_, &said, 1) == 1 ? said : '\0';
    }
    void kill() {
        if (child_ <= 0) return;
        ::kill(child_, SIGKILL);
        ::waitpid(std::exchange(child_, 0), nullptr, 0);
    }

  private:
    pid_t child_ = -1;
    int heard_ = -1;
    int tell_ = -1;
};

void say(int to, char what) {
    if (::write(to, &what, 1) != 1) ::_exit(3);
}

void wait_for_end(int from) {
    char ignored = 0;
    while (::read(from, &ignored, 1) > 0) {
    }
}

bool is_on_gpu(const void* memory) {
    cudaPointerAttributes found{};
    return cudaPointerGetAttributes(&found, memory) == cudaSuccess && found.type == cudaMemoryTypeDevice;
}

/// Answers with the request's bytes, from GPU memory to GPU memory.
class echo_server {
  public:
    explicit echo_server(const std::string& uri) {
        server_options options;
        options.memory = memory_kind::cuda(0);
        options.max_request_bytes = options.max_response_bytes = most;
        options.peer_timeout = patience(2s);
        options.drain_timeout = 0s;
        server_.emplace(server::listen(
            ctx_, {uri}, [this](exchange one) { serve(std::move(one)); }, options));
    }
    [[nodiscard]] result<server>& get() { return *server_; }

  private:
    void serve(exchange one) {
        if (one.request().size() == to_be_held) {
            const std::lock_guard lock(mutex_);
            held_.push_back(std::move(one));
            return;
        }
        if (!is_on_gpu(one.request().data()) || !is_on_gpu(one.response().data())) {
            (void)one.fail(status::application_error, 1, "the handler's bytes are not on the GPU");
            return;
        }
        const std::size_t length = std::min(one.request().size(), one.response().size());
        copy_bytes(one.stream(), one.response().data(), one.request().data(), length);
        (void)one.reply(length);
    }

    std::mutex mutex_;
    std::vector<exchange> held_;
    context ctx_ = context::open({.log = log_level::off}).value();
    std::optional<result<server>> server_;
};

int be_server(const std::string& uri, int to, int from) {
    if (gpu_count() == 0) return 1;
    echo_server served(uri);
    if (!served.get()) std::cerr << "server: " << served.get().error().message << '\n';
    say(to, served.get() ? 'y' : 'n');
    wait_for_end(from);
    return 0;
}

channel_options options_for_test() {
    channel_options options;
    options.slots = 4;
    options.request_bytes = options.response_bytes = most;
    options.peer_timeout = patience(2s);
    options.call_timeout = patience(20s);
    return options;
}

completion next(channel& from) {
    std::array<completion, 1> one;
    EXPECT_EQ(from.wait(one, patience(25s)), 1U);
    return std::move(one[0]);
}

/// A client with memory of a GPU, and of the host.
struct gpu_client {
    explicit gpu_client(const std::string& uri, std::int16_t gpu = 0) {
        auto allocated = ctx.allocate(2 * most, memory_kind::cuda(gpu));
        if (!allocated) return;
        on_gpu.emplace(std::move(*allocated));
        on_host.emplace(ctx.allocate(2 * most).value());
        auto made = channel::connect(ctx, uri, options_for_test());
        if (made)
            line.emplace(std::move(*made));
        else
            std::cerr << "client: " << made.error().message << '\n';
    }

    context ctx = context::open({.log = log_level::warning}).value();
    std::optional<region> on_gpu;
    std::optional<region> on_host;
    std::optional<channel> line;
};

/// False: this machine has no GPU whose memory can be shared. Asked in a process of its own.
bool can_share() {
    const pid_t child = ::fork();
    if (child == 0) {
        const auto gpus = core::make_accelerator();
        auto opened = gpus->open(memory_kind::cuda(0));
        ::_exit(opened && (*opened)->allocate_shareable(1).ok() ? 0 : 1);
    }
    int ended = 0;
    return ::waitpid(child, &ended, 0) == child && WIFEXITED(ended) && WEXITSTATUS(ended) == 0;
}

#define NEED_SHARING() \
    if (!can_share()) GTEST_SKIP() << "there is no GPU whose memory can be shared"

enum class place : std::uint8_t { slot, host, gpu };

/// One call. True: the response is the request.
bool echoes(gpu_client& client, std::size_t length, place from, place to, std::uint64_t seed,
            std::chrono::nanoseconds& copied) {
    bytes sent(length);
    fill(sent, seed);
    const auto call = client.line->begin();
    if (!call) return false;
    region& source = from == place::gpu ? *client.on_gpu : *client.on_host;
    region& target = to == place::gpu ? *client.on_gpu : *client.on_host;
    copy_bytes(nullptr, from == place::slot ? call->request.data() : source.data(), sent.data(), length);
    submit_options options;
    if (to != place::slot) options.response_into = target.part(most, length).value();
    const status submitted = from == place::slot
                                 ? client.line->submit(call->id, length, options)
                                 : client.line->submit(call->id, source.part(0, length).value(), options);
    EXPECT_EQ(submitted, status::ok);
    completion got = next(*client.line);
    EXPECT_EQ(got.status, status::ok) << to_string(got.status);
    EXPECT_EQ(got.response.size(), length);
    if (got.status != status::ok || got.response.size() != length) return false;
    EXPECT_TRUE(to == place::slot || got.response.data() == target.data() + most);
    bytes back(length);
    copy_bytes(nullptr, back.data(), got.response.data(), length);
    copied = got.timeline.copy;
    return back == sent;
}

void expect_every_place(gpu_client& client) {
    std::uint64_t seed = 0;
    for (const std::size_t length : {std::size_t{64}, std::size_t{4096}, std::size_t{1} << 20, most})
        for (const place from : {place::slot, place::host, place::gpu})
            for (const place to : {place::slot, place::host, place::gpu})
                for (int round = 0; round < 3; ++round) {
                    std::chrono::nanoseconds copied{};
                    EXPECT_TRUE(echoes(client, length, from, to, ++seed, copied))
                        << length << " bytes from " << static_cast<int>(from) << " to " << static_cast<int>(to);
                    // Neither end has copied anything over the host.
                    EXPECT_TRUE(from != place::gpu || to != place::gpu || copied.count() == 0) << length << " bytes";
                }
}

TEST(shared_slots_gpu, payloads_of_every_place_arrive_in_the_servers_slots_and_come_back) {
    NEED_SHARING();
    const std::string uri = name_for_test();
    other_process server([&](int to, int from) { return be_server(uri, to, from); });
    ASSERT_EQ(server.hear(), 'y');
    gpu_client client(uri);
    ASSERT_TRUE(client.line);
    expect_every_place(client);
}

TEST(shared_slots_gpu, payloads_cross_from_and_to_another_gpu_that_reaches_the_slots) {
    NEED_SHARING();
    const std::string uri = name_for_test();
    other_process server([&](int to, int from) { return be_server(uri, to, from); });
    ASSERT_EQ(server.hear(), 'y');
    int reaches = 0;
    if (gpu_count() < 2 || cudaDeviceCanAccessPeer(&reaches, 1, 0) != cudaSuccess || reaches == 0)
        GTEST_SKIP() << "there are no two GPUs of which one reaches the other";
    gpu_client client(uri, 1);
    ASSERT_TRUE(client.line);
    expect_every_place(client);
}

TEST(shared_slots_gpu, many_ranges_of_the_gpu_are_one_request) {
    NEED_SHARING();
    const std::string uri = name_for_test();
    other_process server([&](int to, int from) { return be_server(uri, to, from); });
    ASSERT_EQ(server.hear(), 'y');
    gpu_client client(uri);
    ASSERT_TRUE(client.line);
    constexpr std::size_t page = 8192;
    constexpr std::size_t pages = 300;
    bytes all(2 * most);
    fill(all, 1);
    copy_bytes(nullptr, client.on_gpu->data(), all.data(), all.size());
    std::vector<slice> ranges;
    bytes wanted;
    for (std::size_t i = 0; i < pages; ++i) {
        const std::size_t at = (i * 7 % pages) * 2 * page;
        ranges.push_back(client.on_gpu->part(at, page).value());
        wanted.insert(wanted.end(), all.begin() + static_cast<std::ptrdiff_t>(at),
                      all.begin() + static_cast<std::ptrdiff_t>(at + page));
    }
    const auto call = client.line->begin();
    ASSERT_EQ(call.code(), status::ok);
    ASSERT_EQ(client.line->submit(call->id, ranges), status::ok);
    const completion got = next(*client.line);
    ASSERT_EQ(got.status, status::ok) << to_string(got.status);
    EXPECT_TRUE(std::equal(got.response.begin(), got.response.end(), wanted.begin(), wanted.end()));
}

TEST(shared_slots_gpu, killed_server_is_a_lost_peer_and_the_clients_memory_stays_good) {
    NEED_SHARING();
    const std::string uri = name_for_test();
    other_process server([&](int to, int from) { return be_server(uri, to, from); });
    ASSERT_EQ(server.hear(), 'y');
    gpu_client client(uri);
    ASSERT_TRUE(client.line);
    std::chrono::nanoseconds copied{};
    ASSERT_TRUE(echoes(client, most, place::gpu, place::gpu, 1, copied));
    for (const std::size_t length : {to_be_held, to_be_held}) {
        const auto call = client.line->begin();
        ASSERT_EQ(call.code(), status::ok);
        submit_options options;
        options.response_into = client.on_gpu->part(most, most).value();
        ASSERT_EQ(client.line->submit(call->id, client.on_gpu->part(0, length).value(), options), status::ok);
    }
    std::this_thread::sleep_for(100ms);
    const auto killed = std::chrono::steady_clock::now();
    server.kill();
    for (int i = 0; i < 2; ++i) EXPECT_EQ(next(*client.line).status, status::peer_lost);
    EXPECT_LT(std::chrono::steady_clock::now() - killed, patience(10s));
    bytes there(most);
    copy_bytes(nullptr, there.data(), client.on_gpu->data(), most);
    EXPECT_TRUE(matches(there, 1));
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

int be_client(const std::string& uri, int to, int from) {
    char go = 0;
    if (::read(from, &go, 1) != 1) return 1;
    gpu_client client(uri);
    std::chrono::nanoseconds copied{};
    if (!client.line || !echoes(client, most, place::gpu, place::gpu, 1, copied)) {
        say(to, 'n');
        return 2;
    }
    say(to, 'y');
    wait_for_end(from);
    return 0;
}

TEST(shared_slots_gpu, killed_client_leaves_no_memory_behind) {
    NEED_SHARING();
    const std::string uri = name_for_test();
    std::array<int, 2> go{};
    ASSERT_EQ(::pipe(go.data()), 0);
    other_process client([&](int to, int) { return be_client(uri, to, go[0]); });
    echo_server served(uri);
    ASSERT_TRUE(served.get()) << served.get().error().message;
    std::size_t all = 0;
    std::size_t before = 0;
    ASSERT_EQ(cudaMemGetInfo(&before, &all), cudaSuccess);
    say(go[1], 'g');
    ASSERT_EQ(client.hear(), 'y');
    EXPECT_GT(served.get()->statistics().gpu_memory_bytes, most);
    client.kill();
    EXPECT_TRUE(eventually(patience(10s), [&] {
        const server_statistics now = served.get()->statistics();
        return now.sessions == 0 && now.gpu_memory_bytes == 0;
    }));
    // Others may use the GPU at the same time; the slots alone are 40 MiB.
    EXPECT_TRUE(eventually(patience(10s), [&] {
        std::size_t now = 0;
        return cudaMemGetInfo(&now, &all) == cudaSuccess && now + 4 * most >= before;
    }));
}

/// The accelerator's own contract, as a hostile peer meets it.
TEST(shared_slots_gpu, only_shared_gpu_memory_of_the_right_size_is_mapped) {
    NEED_SHARING();
    const auto gpus = core::make_accelerator();
    core::accelerator_device& gpu = *gpus->open(memory_kind::cuda(0)).value();
    constexpr std::size_t size = std::size_t{4} << 20;
    std::byte* const owned = gpu.allocate_shareable(size).value();
    auto passed = gpu.share(owned);
    ASSERT_TRUE(passed) << passed.error().message;
    EXPECT_FALSE(gpu.map_shared(passed->get(), 2 * size, core::shared_of::device));
    EXPECT_FALSE(gpu.map_shared(0, size, core::shared_of::device));
    std::array<int, 2> other{};
    ASSERT_EQ(::pipe(other.data()), 0);
    EXPECT_FALSE(gpu.map_shared(other[0], size, core::shared_of::device));
    EXPECT_FALSE(gpu.map_shared(-1, size, core::shared_of::device));
    std::byte* const not_shared = gpu.allocate(size).value();
    EXPECT_FALSE(gpu.share(not_shared));
    gpu.release(not_shared);

    std::byte* const mapped = gpu.map_shared(passed->get(), size, core::shared_of::device).value();
    bytes there(size);
    fill(there, 3);
    copy_bytes(nullptr, owned, there.data(), size);
    gpu.release(owned);
    passed->reset();
    bytes seen(size);
    copy_bytes(nullptr, seen.data(), mapped, size);
    EXPECT_EQ(seen, there) << "what is mapped lives on without its owner";
    gpu.release(mapped);
    EXPECT_EQ(gpu.allocated(), 0U);
}

}  // namespace
}  // namespace accel::tests
