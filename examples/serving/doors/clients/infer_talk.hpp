// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/clients/grpc_wire.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace accel::examples::serving::doors::clients {

/// A model with one input `x` and one output `y`, both a vector of floats.
struct vector_model {
    std::string name;
    std::size_t size = 0;  ///< numbers of either
};

/// One client's inferences over one connection, a request after the other, without a socket.
class infer_talk {
  public:
    infer_talk() = default;
    infer_talk(const infer_talk&) = delete;
    infer_talk& operator=(const infer_talk&) = delete;
    virtual ~infer_talk() = default;

    /// Begins a request; `elements` holds the input.
    virtual void ask(std::span<const std::byte> elements) = 0;
    /// Gives the request up, without ending the connection. False: this protocol cannot.
    [[nodiscard]] virtual bool give_up() = 0;

    [[nodiscard]] virtual std::string_view unsent() const = 0;
    virtual void sent(std::size_t count) = 0;
    /// False: the connection is of no use any more.
    [[nodiscard]] virtual bool take(std::string_view arrived) = 0;

    [[nodiscard]] virtual bool ended() const = 0;
    /// The output's elements; empty: it was an error.
    [[nodiscard]] virtual std::string_view elements() const = 0;
    /// What the answer says, for people.
    [[nodiscard]] virtual std::string complaint() const = 0;
};

/// Over HTTP/1.1, with binary tensors both ways.
[[nodiscard]] std::unique_ptr<infer_talk> http_talk(const vector_model& to);
/// Over gRPC, with raw contents.
[[nodiscard]] std::unique_ptr<infer_talk> grpc_talk(const vector_model& to, grpc_flow flow = {});

inline constexpr std::string_view infer_path = "/inference.GRPCInferenceService/ModelInfer";

/// A ModelInferRequest.
[[nodiscard]] std::string infer_message(const vector_model& to, std::span<const std::byte> elements);
/// The elements of the only tensor of a ModelInferResponse; empty: it has none.
[[nodiscard]] std::string_view only_output(std::string_view message);

}  // namespace accel::examples::serving::doors::clients
