// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/model_server/model_spec.hpp"
#include "serving/model_server/served_model.hpp"

#include <accel_transport/options.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace accel::examples::serving {

inline constexpr const char* program_name = "model_server";

enum class execution : std::uint8_t { host, gpu, gpu_resident };

/// `--streams`: a number, or one for each client.
struct stream_choice {
    std::uint32_t number = 0;  ///< 0: left out
    bool per_client = false;
};
[[nodiscard]] std::optional<stream_choice> parse_streams(std::string_view text);

/// What the command line says.
struct settings {
    std::vector<std::string> uris;
    std::vector<std::string> models;  ///< NAME[=SPEC]
    std::vector<std::string> shapes;  ///< files that describe further models
    execution on = execution::host;
    std::int16_t gpu = 0;
    bool resident_raw = false;  ///< GPU-resident: requests are raw images, else tensors
    bool graphs = true;         ///< on a GPU: see `model_place`
    stream_choice streams;
    std::uint32_t priority_streams = 2;
    std::uint32_t contexts = 1;
    std::size_t max_batch = 1;
    std::chrono::nanoseconds max_wait = std::chrono::milliseconds{2};
    std::uint32_t warm_up = 0;
    synthetic_options synthetic;
    std::string metrics;
    bool control = false;
    bool json = false;
};

/// Reads the command line. The exit status where the program is to end now: after `--help`, say.
[[nodiscard]] std::optional<int> read_command_line(int argc, char** argv, settings& out);
/// What does not go together, in a sentence; empty: all does.
[[nodiscard]] std::string contradiction_in(const settings& chosen);
/// The specs of `models`, each name once.
[[nodiscard]] result<std::vector<model_spec>> specs_of(const settings& chosen);

[[nodiscard]] model_place place_of(const settings& chosen);
[[nodiscard]] serving_options serving_of(const settings& chosen);
[[nodiscard]] server_options options_of(const settings& chosen);

}  // namespace accel::examples::serving
