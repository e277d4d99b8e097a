// SPDX-License-Identifier: Apache-2.0
#include "error_output.hpp"
#include "model_rig.hpp"
#include "report/child_process.hpp"
#include "report/temporary_keys.hpp"
#include "serving/model_server/output.hpp"

#include <csignal>
#include <optional>

namespace accel::tests {
namespace {

using report::child_process;
using std::chrono::milliseconds;

/// For a process to start or to end.
const milliseconds start_patience = std::chrono::duration_cast<milliseconds>(patience(30s));

std::string any_port() {
    return "tcp://" + own_loopback() + ":0?insecure=true";
}

/// The program with these arguments, ready.
struct started_server {
    child_process process;
    ready_line ready;
};

started_server start(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), ACCEL_TEST_MODEL_SERVER);
    arguments.emplace_back("--json");
    started_server out{std::move(child_process::start(arguments)).value(), {}};
    const auto line = out.process.read_line(start_patience);
    const auto ready = line ? read_ready(*line) : std::nullopt;
    EXPECT_TRUE(ready) << line.value_or("no line");
    if (ready) out.ready = *ready;
    return out;
}

std::optional<summary> end(started_server& server, int& status) {
    (void)::kill(server.process.id(), SIGTERM);
    std::optional<summary> seen;
    while (const auto line = server.process.read_line(start_patience))
        if (auto read = read_summary(*line)) seen = std::move(read);
    status = server.process.stop(start_patience);
    return seen;
}

channel connect_to(context& ctx, const std::string& endpoint) {
    channel_options options;
    options.slots = 16;
    options.security.insecure = true;
    return std::move(channel::connect(ctx, endpoint, options)).value();
}

TEST(model_server, a_server_serves_and_counts_until_sigterm) {
    context ctx = context::open({.log = log_level::off}).value();
    started_server server = start({any_port(), any_port(), "--model", "digits", "--model", "resnet50", "--warm-up", "3",
                                   "--synthetic-gflops", "100000"});
    EXPECT_EQ(server.ready.endpoints.size(), 2U);
    EXPECT_EQ(server.ready.models.size(), 2U);
    const auto described = inputs_of(*find_model("digits"));
    for (const std::string& each : server.ready.endpoints) {
        auto to = connect_to(ctx, each);
        for (int i = 0; i < 5; ++i)
            EXPECT_EQ(ask(to, to.resolve("digits").value(), bytes(256), described).code, status::ok);
        EXPECT_EQ(ask(to, target_of("digits"), bytes(256), {}).code, status::invalid_argument);
    }
    int status_code = -1;
    const auto seen = end(server, status_code);
    EXPECT_EQ(status_code, 0);
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen->requests, 12U);
    EXPECT_EQ(seen->errors, 2U);
    EXPECT_GT(seen->rss_mib, 1);
}

TEST(model_server, a_server_answers_pending_requests_at_sigterm) {
    context ctx = context::open({.log = log_level::off}).value();
    // 200 ms for each inference.
    started_server server = start({any_port() + "&drain_timeout=20s", "--model", "digits=synthetic",
                                   "--synthetic-gflops", "0.0015", "--streams", "1"});
    auto to = connect_to(ctx, server.ready.endpoints.at(0));
    const auto described = inputs_of(*find_model("digits"));
    for (int i = 0; i < 3; ++i) (void)begin_call(to, target_of("digits"), bytes(256), described);
    // A mistake is answered at once, and requests are taken in their order: with its answer the server has the others.
    (void)begin_call(to, target_of("digits"), bytes(256), {});
    int answered = 0;
    while (end_call(to).code == status::ok) ++answered;
    (void)::kill(server.process.id(), SIGTERM);
    for (; answered < 3; ++answered) EXPECT_EQ(end_call(to).code, status::ok);
    int status_code = -1;
    const auto seen = end(server, status_code);
    EXPECT_EQ(status_code, 0);
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen->requests, 4U);
}

/// The processes whose parent is this one, by /proc.
std::vector<pid_t> children_of(pid_t parent) {
    const std::string path = "/proc/" + std::to_string(parent) + "/task/" + std::to_string(parent) + "/children";
    std::vector<pid_t> out;
    if (std::FILE* const file = std::fopen(path.c_str(), "r"); file != nullptr) {
        for (int each = 0; std::fscanf(file, "%d", &each) == 1;) out.push_back(each);
        (void)std::fclose(file);
    }
    return out;
}

status ask_digits(channel& to) {
    return ask(to, target_of("digits"), bytes(256), inputs_of(*find_model("digits"))).code;
}

TEST(model_server, a_server_reloads_its_keys_at_sighup) {
    context ctx = context::open({.log = log_level::off}).value();
    const auto keys = report::temporary_keys::make().value();
    const error_output said;
    started_server server = start({"tcp://" + own_loopback() + ":0" + keys.server_options(), "--model", "digits"});
    (void)::kill(server.process.id(), SIGHUP);
    EXPECT_TRUE(eventually([&] { return said.count("SIGHUP: read the keys") == 1; })) << said.text();
    auto to = channel::connect(ctx, server.ready.endpoints.at(0) + keys.client_options()).value();
    EXPECT_EQ(ask_digits(to), status::ok);
    int status_code = -1;
    EXPECT_EQ(end(server, status_code).value().requests, 1U);
    EXPECT_EQ(status_code, 0);
}

TEST(model_server, a_server_passes_sighup_on_to_its_processes_and_adds_up_their_counts) {
    context ctx = context::open({.log = log_level::off}).value();
    const error_output said;
    started_server server = start({any_port(), "--model", "digits", "--contexts", "2"});
    ASSERT_EQ(server.ready.endpoints.size(), 2U);
    (void)::kill(server.process.id(), SIGHUP);
    EXPECT_TRUE(eventually([&] { return said.count("SIGHUP: no URI has keys") == 2; })) << said.text();
    for (const std::string& each : server.ready.endpoints) {
        auto to = connect_to(ctx, each);
        EXPECT_EQ(ask_digits(to), status::ok);
    }
    int status_code = -1;
    const auto seen = end(server, status_code);
    EXPECT_EQ(status_code, 0);
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen->requests, 2U);
}

TEST(model_server, a_server_fails_when_one_of_its_processes_dies) {
    started_server server = start({any_port(), "--model", "digits", "--contexts", "2"});
    const auto processes = children_of(server.process.id());
    ASSERT_EQ(processes.size(), 2U);
    (void)::kill(processes[0], SIGKILL);
    EXPECT_EQ(server.process.wait(start_patience), 1);
    EXPECT_TRUE(eventually(patience(20s), [&] { return ::kill(processes[1], 0) != 0; }));
}

TEST(model_server, a_server_that_does_not_start_says_why) {
    for (const std::vector<std::string>& wrong : std::vector<std::vector<std::string>>{
             {any_port(), "--model", "alexnet"},
             {any_port(), "--model", "resnet50=none.pt"},
             {"nothing://here", "--model", "digits"},
             {any_port(), "--model", "digits", "--on", "gpu-resident", "--warm-up", "1"}}) {
        std::vector<std::string> arguments = wrong;
        arguments.insert(arguments.begin(), ACCEL_TEST_MODEL_SERVER);
        auto process = std::move(child_process::start(arguments)).value();
        EXPECT_EQ(process.wait(start_patience), 1) << wrong.back();
    }
}

}  // namespace
}  // namespace accel::tests
