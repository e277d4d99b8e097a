// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/gpu_graph.hpp>
#include <accel_transport/server.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace accel::bench {

struct network_choice {
    std::string name = "digits";
    bool half = false;  ///< torch's networks only
    std::int16_t gpu = 0;

    [[nodiscard]] std::string text() const { return half ? name + " half" : name; }
};

/// A network that is served on a GPU, by a handler on the host or recorded.
class network {
  public:
    virtual ~network() = default;
    [[nodiscard]] virtual std::size_t input_bytes() const = 0;
    [[nodiscard]] virtual std::size_t output_bytes() const = 0;
    /// `replays`: the handler launches one CUDA graph instead of one kernel after another. Null where there
    /// is no such handler.
    [[nodiscard]] virtual handler on_host(bool replays) = 0;
    [[nodiscard]] virtual gpu_graph::recorder recorder() = 0;
};

/// digits (a tensor), digits_raw (a frame, preprocessed there); with LibTorch resnet50 and mobilenet_v3, of
/// random weights. `unsupported` where this build has no such network. May block.
[[nodiscard]] result<std::unique_ptr<network>> load_network(const network_choice& choice);
[[nodiscard]] result<std::unique_ptr<network>> load_torch_network(const network_choice& choice);
/// What this build has.
[[nodiscard]] std::vector<std::string> network_names();
[[nodiscard]] bool has_torch() noexcept;

/// Requests of a network: so many that an answer to the wrong one shows.
inline constexpr std::size_t input_count = 4;
[[nodiscard]] std::vector<std::byte> make_input(const network_choice& choice, std::size_t number, std::size_t bytes);
/// What the host computes for it; empty where the host has no such network.
[[nodiscard]] std::vector<std::byte> answer_of_host(const network_choice& choice, std::span<const std::byte> input);
/// How far two answers are apart: 0 where they are the same bytes, else, of logits, the greatest difference
/// as a part of the greatest value; 1 where they are no such thing.
[[nodiscard]] double distance(const network_choice& choice, std::span<const std::byte> answer,
                              std::span<const std::byte> expected);

}  // namespace accel::bench
