// SPDX-License-Identifier: Apache-2.0
// The gRPC door, asked with frames of HTTP/2 that are made by hand: what no stock client sends, and without one.
#include "grpc_requests.hpp"
#include "sanitizers.hpp"
#include "serving/doors/clients/infer_talk.hpp"
#include "serving/doors/clients/line.hpp"
#include "serving/doors/coding/deflater.hpp"
#include "serving/doors/grpc/writer.hpp"

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

namespace accel::examples::serving::doors::tests {
namespace {

using namespace std::chrono_literals;
/// Those whose call has ended with `deadline_exceeded` within 20 s are taken away, until so many are left.
void wait_for_ends(std::vector<std::unique_ptr<grpc_client>>& slow, std::size_t left) {
    const auto until = std::chrono::steady_clock::now() + 20s;
    while (slow.size() > left && std::chrono::steady_clock::now() < until)
        std::erase_if(slow, [](const auto& each) {
            if (!each->finish(50ms)) return false;
            EXPECT_EQ(each->wire().code(), deadline_exceeded);
            return true;
        });
}

/// zlib's format.
std::string deflated(std::string_view plain) {
    std::string out;
    coding::deflater packer{coding::content_coding::deflate};
    EXPECT_TRUE(packer.add(std::as_bytes(std::span{plain}), out) && packer.finish(out));
    return out;
}

/// A configuration with these limits.
class limits_file {
  public:
    explicit limits_file(std::string_view limits)
        : path_(std::filesystem::temp_directory_path() / ("accel_door_limits-" + std::to_string(::getpid()))) {
        std::ofstream(path_) << R"({"limits": )" << limits << "}";
    }
    limits_file(const limits_file&) = delete;
    limits_file& operator=(const limits_file&) = delete;
    ~limits_file() { std::filesystem::remove(path_); }
    [[nodiscard]] std::string path() const { return path_.string(); }

  private:
    std::filesystem::path path_;
};
TEST(grpc_door, a_client_that_is_made_by_hand_gets_answers) {
    const door_rig door;
    grpc_client one{door.grpc()};
    for (const char* name : {"ServerLive", "ServerReady"}) {
        EXPECT_EQ(one.call(method(name), {}), ok) << name;
        EXPECT_EQ(one.wire().message(), "\x08\x01") << name;
    }
    EXPECT_EQ(one.call(method("ModelReady"),
                       "\x0a\x06"
                       "double"),
              ok);
    EXPECT_EQ(one.wire().message(), "\x08\x01");
    for (const char* what : {"",
                             "\x0a\x06"
                             "double"}) {
        EXPECT_EQ(one.call("/grpc.health.v1.Health/Check", what), ok);
        EXPECT_EQ(one.wire().message(), "\x08\x01");
    }
    EXPECT_EQ(one.call(method("ServerMetadata"), {}), ok);
    EXPECT_NE(one.wire().message().find("accel_transport"), std::string_view::npos);
    for (int i = 0; i < 100; ++i) {
        const auto value = static_cast<float>(i);
        ASSERT_EQ(one.infer("double", value), ok) << one.wire().sentence();
        ASSERT_TRUE(one.has_twice(value)) << i;
    }
}

TEST(grpc_door, mistakes_get_a_status_code_and_a_sentence) {
    const door_rig door;
    grpc_client one{door.grpc()};
    // `echo` lets gRPC read a longer message than `double` may have.
    wire::writer unknown;
    unknown.entry(15, std::string(100'000, 'x'));
    const std::string longer = infer_request{}.message() + unknown.take();
    const std::string double_model =
        "\x0a\x06"
        "double";
    std::string empty_inputs = double_model;
    for (int i = 0; i < 100; ++i) empty_inputs += std::string{"\x2a\0", 2};
    const struct {
        int code;
        const char* word;
        std::string method;
        std::string message;
    } mistakes[] = {
        {invalid_argument, "FP32", infer, infer_request{.type = "INT32"}.message()},
        {invalid_argument, "shape", infer, infer_request{.shape = {4}}.message()},
        {invalid_argument, "negative", infer, infer_request{.shape = {std::uint64_t{1} << 63}}.message()},
        {invalid_argument, "", infer, infer_request{.shape = {~std::uint64_t{7}}}.message()},
        {invalid_argument, "", infer, infer_request{.shape = {std::uint64_t{1} << 62, 8}}.message()},
        {invalid_argument, "bytes", infer, infer_request{.bytes = 31}.message()},
        {invalid_argument, "no input", infer, infer_request{.name = "z"}.message()},
        {not_found, "no version", infer, infer_request{.version = "2"}.message()},
        {not_found, "no model", infer, infer_request{.model = "nobody"}.message()},
        {invalid_argument, "", infer, infer_request{}.message() + std::string(40, '\x0b')},
        {invalid_argument, "", infer, std::string{"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"}},
        {not_found, "no model", infer, {}},
        {not_found, "", "/grpc.health.v1.Health/Check", "\x0a\x06nobody"},
        {invalid_argument, "", infer, double_model + '\x0b'},
        {invalid_argument, "more than 64 inputs", infer, empty_inputs},
        {resource_exhausted, "longer than", infer, longer},
        {resource_exhausted, "longer than", method("ModelReady"), longer},
        {internal, "on fire", infer, infer_request{.model = "failing"}.message()},
        {internal, "not the outputs", infer, infer_request{.model = "short"}.message()},
        {unimplemented, "no such method", method("RepositoryIndex"), {}},
        {resource_exhausted, "", infer, infer_request{.bytes = 1 << 20}.message()},
    };
    for (const auto& each : mistakes) {
        EXPECT_EQ(one.call(each.method, each.message), each.code) << each.word << one.wire().sentence();
        EXPECT_NE(one.wire().sentence().find(each.word), std::string::npos) << one.wire().sentence();
    }
    EXPECT_EQ(one.infer("double", 1), ok);
}

TEST(grpc_door, clients_without_a_token_get_only_the_health) {
    const auto file = std::filesystem::temp_directory_path() / ("accel_door_tokens-" + std::to_string(::getpid()));
    std::ofstream(file) << "0123456789abcdef\n";
    std::filesystem::permissions(file, std::filesystem::perms::owner_read);
    const door_rig door({"--tokens", file.string()});
    std::filesystem::remove(file);
    grpc_client one{door.grpc()};
    for (const char* name :
         {"ServerMetadata", "ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics", "ModelInfer",
          "ModelStreamInfer", "SystemSharedMemoryStatus", "SystemSharedMemoryRegister", "SystemSharedMemoryUnregister",
          "CudaSharedMemoryStatus", "CudaSharedMemoryRegister", "CudaSharedMemoryUnregister"}) {
        EXPECT_EQ(one.call(method(name), {}), unauthenticated) << name;
        EXPECT_NE(one.wire().sentence().find("a token is required"), std::string::npos) << one.wire().sentence();
    }
    for (const char* version : {"v1", "v1alpha"}) {
        const std::string path = std::string{"/grpc.reflection."} + version + ".ServerReflection/ServerReflectionInfo";
        EXPECT_EQ(one.call(path, {}), unauthenticated) << version;
    }
    for (const char* name : {"ServerLive", "ServerReady"}) EXPECT_EQ(one.call(method(name), {}), ok) << name;
    EXPECT_EQ(one.call("/grpc.health.v1.Health/Check", {}), ok);
}

TEST(grpc_door, a_truncated_message_is_refused) {
    const door_rig door;
    grpc_client one{door.grpc()};
    const std::string whole = infer_request{}.message();
    const auto length = static_cast<std::uint32_t>(whole.size());
    for (const std::string& body : {prefix(length) + whole.substr(1), prefix(length + 1) + whole, prefix(length),
                                    std::string{"\0\0", 2}, std::string{}}) {
        one.wire().open(infer);
        one.wire().send(body, true);
        ASSERT_TRUE(one.finish()) << body.size();
        EXPECT_NE(one.wire().code().value_or(ok), ok) << body.size();
    }
    EXPECT_EQ(one.infer("double", 2), ok);
    EXPECT_TRUE(one.has_twice(2));
}

/// More of them than there are slots.
TEST(grpc_door, slow_bodies_hold_no_slot_and_end_in_time) {
    const door_rig door{{"--body-timeout", "1s"}};
    const std::string message = infer_request{}.message();
    std::vector<std::unique_ptr<grpc_client>> slow;
    for (int i = 0; i < 40; ++i) {
        slow.push_back(std::make_unique<grpc_client>(door.grpc()));
        slow.back()->wire().open(infer);
        if (i % 4 > 0) slow.back()->wire().send(framed(message).substr(0, begun_bytes), false);  // others are silent
        ASSERT_TRUE(slow.back()->flush());
    }
    grpc_client other{door.grpc()};
    EXPECT_EQ(other.infer("double", 3), ok);
    for (const auto& each : slow) {
        ASSERT_TRUE(each->finish(10s));
        EXPECT_EQ(each->wire().code(), deadline_exceeded);
        EXPECT_NE(each->wire().sentence().find("in time"), std::string::npos) << each->wire().sentence();
    }
}

TEST(grpc_door, slow_messages_leave_half_of_the_calls_to_others) {
    constexpr std::size_t calls = 8;
    const door_rig door{{"--max-calls", std::to_string(calls), "--body-grace", "500ms", "--body-rate", "0",
                         "--body-timeout", "100s", "--max-connections", "100"}};
    std::vector<std::unique_ptr<grpc_client>> slow;
    for (std::size_t i = 0; i < calls; ++i) slow.push_back(slow_client(door, infer));
    // Which calls are the oldest is gRPC's to say: it takes up connections at the same time in any order.
    wait_for_ends(slow, calls / 2);
    ASSERT_EQ(slow.size(), calls / 2);
    grpc_client other{door.grpc()};
    for (int i = 0; i < 50; ++i) ASSERT_EQ(infer_when_free(other, "double"), ok) << other.wire().sentence();
    for (const auto& each : slow) {
        each->wire().send(framed(infer_request{}.message()).substr(begun_bytes), true);
        ASSERT_TRUE(each->finish()) << "the others may go on";
        EXPECT_EQ(each->wire().code(), ok) << each->wire().sentence();
    }
}

/// Whether they wait between two messages or within the first one.
TEST(grpc_door, streams_that_wait_for_a_message_leave_half_of_the_calls_to_others) {
    constexpr std::size_t calls = 8;
    const door_rig door{{"--max-calls", std::to_string(calls), "--body-grace", "500ms", "--max-connections", "100"}};
    const std::string path = method("ModelStreamInfer");
    std::vector<std::unique_ptr<grpc_client>> idle;
    std::vector<std::unique_ptr<grpc_client>> slow;
    for (std::size_t i = 0; i < calls / 2; ++i) {
        idle.push_back(std::make_unique<grpc_client>(door.grpc()));
        idle.back()->wire().open(path);
        ASSERT_TRUE(ask_in_stream(*idle.back())) << idle.back()->wire().sentence();
    }
    for (std::size_t i = 0; i < calls / 2; ++i) slow.push_back(slow_client(door, path));
    wait_for_ends(slow, 0);
    ASSERT_TRUE(slow.empty()) << "those that have sent no message end first";
    grpc_client other{door.grpc()};
    for (int i = 0; i < 50; ++i) ASSERT_EQ(infer_when_free(other, "double"), ok) << other.wire().sentence();
    for (const auto& each : idle) EXPECT_TRUE(ask_in_stream(*each)) << "the others may go on";
}

TEST(grpc_door, inflated_messages_share_a_memory_limit) {
    const std::string packed = deflated(infer_request{}.message());
    const limits_file none{R"({"json_memory": 1024})"};
    const door_rig tight{{"--config", none.path()}};
    grpc_client one{tight.grpc()};
    EXPECT_EQ(one.call(infer, packed), resource_exhausted);
    EXPECT_NE(one.wire().sentence().find("compressed"), std::string::npos) << one.wire().sentence();
    EXPECT_EQ(one.call(infer, infer_request{}.message()), ok) << "others need none of it";
    const limits_file some{R"({"json_memory": 20000})"};
    const door_rig door{{"--config", some.path()}};
    grpc_client other{door.grpc()};
    for (int i = 0; i < 20; ++i) ASSERT_EQ(other.call(infer, packed), ok) << i << ": " << other.wire().sentence();
}

TEST(grpc_door, the_timeout_of_a_message_depends_on_its_length) {
    const door_rig door{{"--body-grace", "100ms", "--body-rate", "100000", "--body-timeout", "100s"}};
    grpc_client one{door.grpc()};
    one.wire().open(infer);
    one.wire().send(prefix(100) + "abc", false);
    ASSERT_TRUE(one.finish());
    EXPECT_EQ(one.wire().code(), deadline_exceeded);
}

TEST(grpc_door, requests_of_a_model_are_bounded_until_their_clients_have_the_answers) {
    const door_rig door{{"--model-requests", "1"}};
    grpc_client first{door.grpc()};
    grpc_client other{door.grpc()};
    for (int round = 0; round < 2; ++round) {
        first.ask("held", 5);
        ASSERT_TRUE(first.flush());
        ASSERT_EQ(other.infer("caught", 1), ok) << "the server has it";
        for (int i = 0; i < 3; ++i) EXPECT_EQ(other.infer("held", 1), resource_exhausted);
        ASSERT_EQ(other.infer("release", 1), ok) << "another model has room of its own";
        ASSERT_TRUE(first.finish());
        EXPECT_TRUE(first.has_twice(5)) << first.wire().sentence();
        for (int i = 0; i < 500; ++i) ASSERT_EQ(other.infer("double", 1), ok) << i << ": " << other.wire().sentence();
    }
}

TEST(grpc_door, clients_that_leave_in_mid_message_leave_nothing_behind) {
    const door_rig door;
    const std::string message = infer_request{}.message();
    for (int i = 0; i < 40; ++i) {
        grpc_client one{door.grpc()};
        one.wire().open(infer);
        one.wire().send(prefix(static_cast<std::uint32_t>(message.size())) + message.substr(0, 20), false);
        ASSERT_TRUE(one.flush());
        if (i % 2 == 0) continue;  // closes the connection
        one.wire().reset();
        ASSERT_TRUE(one.flush());
        EXPECT_EQ(one.infer("double", 4), ok);
        EXPECT_TRUE(one.has_twice(4));
    }
}

/// `large` has four slots.
TEST(grpc_door, slow_readers_hold_no_slot_and_end_in_time) {
    const door_rig door{{"--write-timeout", "2s"}};
    std::vector<std::unique_ptr<grpc_client>> slow;
    for (int i = 0; i < 6; ++i) {
        slow.push_back(
            std::make_unique<grpc_client>(door.grpc(), clients::grpc_flow{.window = 1000, .renewed = false}));
        slow.back()->ask("large", 5);
        ASSERT_TRUE(slow.back()->flush());
    }
    grpc_client other{door.grpc()};
    for (int i = 0; i < 6; ++i) EXPECT_EQ(other.infer("large", 6), ok) << other.wire().sentence();
    EXPECT_EQ(clients::only_output(other.wire().message()).size(), std::size_t{4} << 20);
    for (const auto& each : slow) EXPECT_FALSE(each->finish(1ms)) << "its answer does not fit its window";
    for (const auto& each : slow) EXPECT_TRUE(each->finish(10s)) << "the door waits no longer";
    EXPECT_EQ(other.infer("large", 7), ok) << other.wire().sentence();
}

TEST(grpc_door, refuses_calls_beyond_max_calls) {
    const door_rig door{{"--max-calls", "2", "--body-timeout", "2s"}};
    grpc_client first{door.grpc()};
    grpc_client second{door.grpc()};
    grpc_client third{door.grpc()};
    for (grpc_client* each : {&first, &second}) {
        each->wire().open(infer);
        ASSERT_TRUE(each->flush());
    }
    std::optional<int> code;
    for (int i = 0; i < 100 && code != resource_exhausted; ++i) code = third.infer("double", 7);
    EXPECT_EQ(code, resource_exhausted);
    EXPECT_NE(third.wire().sentence().find("too many calls"), std::string::npos) << third.wire().sentence();
    ASSERT_TRUE(first.finish(10s) && second.finish(10s));
    // The door hears of their end a little later than they do.
    for (const auto end = std::chrono::steady_clock::now() + 10s; code != ok && std::chrono::steady_clock::now() < end;)
        code = third.infer("double", 8);
    EXPECT_EQ(code, ok) << "the others have ended";
}
TEST(grpc_door, a_drain_ends_at_its_timeout) {
    door_rig door{{"--drain-timeout", "1s", "--body-timeout", "60s"}};
    grpc_client one{door.grpc()};
    ASSERT_EQ(one.infer("double", 10), ok);
    one.wire().open(infer);
    ASSERT_TRUE(one.flush());
    grpc_client other{door.grpc()};
    ASSERT_EQ(other.infer("double", 10), ok) << "the door knows of the first call as well";
    const auto took = door.end();
    ASSERT_TRUE(took.has_value()) << "it ends well";
    EXPECT_GE(*took, 900ms) << "it waits for the call that is open";
    EXPECT_LE(*took, 10s);
}

}  // namespace
}  // namespace accel::examples::serving::doors::tests
