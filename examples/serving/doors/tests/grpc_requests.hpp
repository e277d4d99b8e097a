// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "door_rig.hpp"
#include "serving/doors/clients/infer_talk.hpp"
#include "serving/doors/grpc/writer.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

/// Requests to the gRPC door, framed by hand.
namespace accel::examples::serving::doors::tests {

using namespace std::chrono_literals;

// Codes of gRPC.
inline constexpr int ok = 0;
inline constexpr int invalid_argument = 3;
inline constexpr int deadline_exceeded = 4;
inline constexpr int not_found = 5;
inline constexpr int resource_exhausted = 8;
inline constexpr int unimplemented = 12;
inline constexpr int internal = 13;
inline constexpr int unavailable = 14;
inline constexpr int unauthenticated = 16;

inline const std::string infer{clients::infer_path};
inline constexpr std::size_t begun_bytes = 25;  // of a message that does not go on

[[nodiscard]] inline std::string method(std::string_view name) {
    return std::string{service} + std::string{name};
}

/// A ModelInferRequest of `double`, of which everything can be another.
struct infer_request {
    std::string name = "x";
    std::string type = "FP32";
    std::vector<std::uint64_t> shape{8};
    std::size_t bytes = 32;
    std::string version{};
    std::string model = "double";

    [[nodiscard]] std::string message() const {
        wire::writer input;
        input.text(1, name);
        input.text(2, type);
        input.packed(3, shape);
        wire::writer out;
        out.text(1, model);
        out.text(2, version);
        out.message(5, input);
        out.entry(7, std::string(bytes, '\0'));
        return out.take();
    }
};

/// The five bytes before a message, which say its length.
[[nodiscard]] inline std::string prefix(std::uint32_t length) {
    std::string out(1, '\0');
    for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>((length >> shift) & 0xff);
    return out;
}

[[nodiscard]] inline std::string framed(const std::string& message) {
    return prefix(static_cast<std::uint32_t>(message.size())) + message;
}

/// Opens a call and sends the begin of a message.
[[nodiscard]] inline std::unique_ptr<grpc_client> slow_client(const door_rig& door, const std::string& path) {
    auto out = std::make_unique<grpc_client>(door.grpc());
    out->wire().open(path);
    out->wire().send(framed(infer_request{}.message()).substr(0, begun_bytes), false);
    EXPECT_TRUE(out->flush());
    return out;
}

/// Sends a request over its stream, and has the answer.
[[nodiscard]] inline bool ask_in_stream(grpc_client& one) {
    const std::size_t before = one.wire().body().size();
    one.wire().send(framed(infer_request{}.message()), false);
    if (!one.flush()) return false;
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (one.wire().body().size() == before && std::chrono::steady_clock::now() < deadline)
        if (one.finish(20ms)) return false;
    return one.wire().body().size() > before;
}

/// gRPC tells the door that a call has ended a moment after it has told the client.
[[nodiscard]] inline std::optional<int> infer_when_free(grpc_client& one, const char* model,
                                                        std::chrono::seconds patience = 20s) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    std::optional<int> code = resource_exhausted;
    while (code == resource_exhausted && std::chrono::steady_clock::now() < deadline) {
        one.ask(model, 3);
        code = one.finish(patience) ? std::optional{one.wire().code()} : std::nullopt;
    }
    return code;
}

}  // namespace accel::examples::serving::doors::tests
