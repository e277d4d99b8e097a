// SPDX-License-Identifier: Apache-2.0
// Memory of another process's GPU, as a door's client registers it. Skipped without a GPU.
#include "serving/doors/shared_memory/call_regions.hpp"
#include "serving/doors/shared_memory/region_table.hpp"

#include <accel_transport/accel_transport.hpp>

#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace accel::examples::serving::shared_memory {
namespace {

constexpr std::size_t tensor_bytes = 1 << 20;
constexpr std::size_t region_bytes = 2 * tensor_bytes;

/// What the other process has to say.
struct client_memory {
    bool usable = false;
    cudaIpcMemHandle_t handle{};
};

/// The other process: GPU memory whose first half is full of sevens. It ends with 0 when its second half is full of
/// `wanted` once it is told to look.
int be_client(int to_parent, int from_parent, unsigned char wanted) {
    client_memory said;
    void* memory = nullptr;
    int count = 0;
    said.usable =
        cudaGetDeviceCount(&count) == cudaSuccess && count > 0 && cudaMalloc(&memory, region_bytes) == cudaSuccess &&
        cudaMemset(memory, 0, region_bytes) == cudaSuccess && cudaMemset(memory, 7, tensor_bytes) == cudaSuccess &&
        cudaDeviceSynchronize() == cudaSuccess && cudaIpcGetMemHandle(&said.handle, memory) == cudaSuccess;
    char go = 0;
    if (write(to_parent, &said, sizeof said) != sizeof said || !said.usable) return 2;
    if (read(from_parent, &go, 1) != 1) return 3;
    std::vector<unsigned char> seen(tensor_bytes);
    if (cudaMemcpy(seen.data(), static_cast<char*>(memory) + tensor_bytes, seen.size(), cudaMemcpyDefault) !=
        cudaSuccess)
        return 4;
    for (const unsigned char each : seen)
        if (each != wanted) return 5;
    return 0;
}

class other_process {
  public:
    /// Before this process uses CUDA.
    explicit other_process(unsigned char wanted) {
        std::signal(SIGPIPE, SIG_IGN);  // the child may have ended before it is told to look
        int up[2];
        int down[2];
        if (pipe(up) != 0 || pipe(down) != 0) return;
        child_ = fork();
        if (child_ == 0) _exit(be_client(up[1], down[0], wanted));
        close(up[1]);
        close(down[0]);
        go_ = down[1];
        if (read(up[0], &said_, sizeof said_) != sizeof said_) said_.usable = false;
        close(up[0]);
    }
    other_process(const other_process&) = delete;
    other_process& operator=(const other_process&) = delete;
    ~other_process() { static_cast<void>(verdict()); }

    [[nodiscard]] bool usable() const { return said_.usable; }
    [[nodiscard]] std::string handle() const {
        return {reinterpret_cast<const char*>(&said_.handle), sizeof said_.handle};
    }
    /// Its exit status after it has looked.
    int verdict() {
        if (child_ <= 0) return -1;
        const bool told = write(go_, "g", 1) == 1;
        close(go_);
        int state = 0;
        waitpid(child_, &state, 0);
        child_ = 0;
        return told && WIFEXITED(state) ? WEXITSTATUS(state) : -1;
    }

  private:
    pid_t child_ = -1;
    int go_ = -1;
    client_memory said_;
};

description gpu_memory_of(const char* name, std::string handle, std::uint64_t bytes, std::int64_t device = 0) {
    description out;
    out.name = name;
    out.handle = std::move(handle);
    out.device = device;
    out.bytes = bytes;
    return out;
}

oip::model_description bytes_model() {
    const std::string shape = "\"shape\":[" + std::to_string(tensor_bytes) + "]}]";
    return oip::read_description(R"({"name":"m","inputs":[{"name":"x","datatype":"UINT8",)" + shape +
                                 R"(,"outputs":[{"name":"y","datatype":"UINT8",)" + shape + "}")
        .value();
}

/// A server that adds one to each byte.
result<server> adding_server(context& ctx) {
    return server::listen(ctx, {std::string_view{"tcp://127.0.0.1:0?insecure=true"}}, [](exchange to) {
        const auto in = to.request();
        const auto out = to.response();
        for (std::size_t i = 0; i < in.size(); ++i)
            out[i] = static_cast<std::byte>(std::to_integer<unsigned>(in[i]) + 1);
        static_cast<void>(to.reply(in.size()));
    });
}

completion answer_of(channel& line) {
    std::array<completion, 1> out{};
    EXPECT_EQ(line.wait(out, std::chrono::seconds{20}), 1U);
    return std::move(out.front());
}

struct rig {
    context ctx = context::open().value();
    oip::model_description model = bytes_model();
    std::shared_ptr<region_table> table;
    std::vector<oip::region_input> inputs{{0, {"g", 0, tensor_bytes}}};
    std::vector<oip::output_choice> outputs{{0, true, oip::region_part{"g", tensor_bytes, tensor_bytes}}};

    [[nodiscard]] result<void> open(const other_process& client) {
        auto made = region_table::open(ctx, {.cuda = true}, true);
        if (!made) return made.error();
        table = std::move(made).value();
        return table->add(memory::cuda, gpu_memory_of("g", client.handle(), region_bytes));
    }
    [[nodiscard]] call_regions regions() const { return call_regions::open(table, inputs, outputs, model).value(); }
};

#define NEED_GPU(client) \
    if (!(client).usable()) GTEST_SKIP() << "there is no GPU whose memory can be shared"

TEST(cuda_regions, a_call_reads_and_writes_another_process_s_memory_in_place) {
    other_process client{8};
    NEED_GPU(client);
    rig one;
    const auto opened = one.open(client);
    ASSERT_TRUE(opened) << opened.error().message;
    auto behind = adding_server(one.ctx);
    ASSERT_TRUE(behind) << behind.error().message;
    auto line = channel::connect(one.ctx, behind->endpoints().front() + "?insecure=true",
                                 {.request_bytes = tensor_bytes, .response_bytes = tensor_bytes});
    ASSERT_TRUE(line) << line.error().message;
    auto regions = one.regions();
    submit_options options;
    options.response_into = regions.place_of_response(one.model);
    EXPECT_TRUE(regions.answers_in_place());
    const auto lent = regions.lend(std::array{one.model.inputs.front().what}, line->scheme());
    ASSERT_EQ(lent.size(), 1U);
    const auto call = line->begin();
    ASSERT_EQ(call.code(), status::ok);
    ASSERT_EQ(line->submit(call->id, lent.front(), options), status::ok);
    completion answer = answer_of(line.value());
    EXPECT_EQ(answer.status, status::ok);
    EXPECT_EQ(answer.response.size(), tensor_bytes);
    answer.release();
    EXPECT_EQ(one.table->copied(), 0U);
    EXPECT_EQ(client.verdict(), 0) << "the answer lies in the other process's memory";
}

TEST(cuda_regions, payloads_that_cannot_be_lent_are_copied) {
    other_process client{9};
    NEED_GPU(client);
    rig one;
    ASSERT_TRUE(one.open(client));
    auto regions = one.regions();
    std::vector<std::byte> payload(tensor_bytes);
    const std::array placed{one.model.inputs.front().what};
    ASSERT_TRUE(regions.copy_in(placed, payload));
    EXPECT_EQ(payload, std::vector<std::byte>(tensor_bytes, std::byte{7}));
    const std::vector<std::byte> answer(tensor_bytes, std::byte{9});
    ASSERT_TRUE(regions.copy_out(one.model, placed, answer));
    EXPECT_EQ(client.verdict(), 0);
}

TEST(cuda_regions, a_region_outlives_its_name_and_its_owner) {
    other_process client{0};
    NEED_GPU(client);
    rig one;
    ASSERT_TRUE(one.open(client));
    auto regions = one.regions();
    one.table->remove(memory::cuda, "g");
    EXPECT_EQ(client.verdict(), 0);
    std::vector<std::byte> payload(tensor_bytes);
    static_cast<void>(regions.copy_in(std::array{one.model.inputs.front().what}, payload));
    regions.clear();
    EXPECT_EQ(one.table->taken().regions, 0U);
}

TEST(cuda_regions, handles_and_sizes_that_are_wrong_are_refused) {
    other_process client{0};
    NEED_GPU(client);
    rig one;
    ASSERT_TRUE(one.open(client));
    const auto refused = [&](std::string handle, std::uint64_t bytes, std::int64_t device = 0) {
        return one.table->add(memory::cuda, gpu_memory_of("other", std::move(handle), bytes, device)).code();
    };
    EXPECT_EQ(refused(std::string(63, 'x'), 1), status::invalid_argument);
    EXPECT_EQ(refused(std::string(64, '\0'), 1), status::invalid_argument);
    EXPECT_EQ(refused(client.handle(), 1, 99), status::invalid_argument);
    EXPECT_EQ(refused(client.handle(), 1, -1), status::invalid_argument);
    EXPECT_NE(refused(client.handle(), region_bytes + (std::size_t{64} << 20)), status::ok);
    EXPECT_EQ(refused(client.handle(), region_bytes), status::ok) << "the same memory twice";
}

}  // namespace
}  // namespace accel::examples::serving::shared_memory
