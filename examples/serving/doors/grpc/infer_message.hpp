// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/grpc/cursor.hpp"

#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace accel::examples::serving::wire {

inline constexpr std::size_t max_name_bytes = 256;
inline constexpr std::size_t max_entries = 64;  ///< of each list of a request

/// A parameter of a request, a tensor or an output (InferParameter).
struct parameter {
    std::string name;
    std::uint32_t kind = 0;   ///< the number of the field that is set, the last one wins; 0: none
    std::uint64_t value = 0;  ///< of bool_param, int64_param and uint64_param
    std::string text{};       ///< of string_param, up to `max_name_bytes`; longer ones are left out
};

/// `parameter::kind`.
inline constexpr std::uint32_t bool_param = 1;
inline constexpr std::uint32_t int64_param = 2;
inline constexpr std::uint32_t string_param = 3;
inline constexpr std::uint32_t uint64_param = 5;

/// Puts a map's entry into the list; one of this name is replaced. False: the entry is malformed, or one too many.
/// Entries with longer names than `max_name_bytes` mean nothing to a door and are left out.
[[nodiscard]] bool add_parameter(std::vector<parameter>& to, const cursor& entry);
[[nodiscard]] const parameter* find_parameter(std::span<const parameter> list, std::string_view name) noexcept;

/// A ModelInferRequest: its parts, and where they lie. Nothing of a tensor has been read.
struct infer_message {
    std::string model;
    std::string version;
    std::string id;
    std::vector<parameter> parameters;
    std::vector<cursor> inputs;   ///< InferInputTensor
    std::vector<cursor> outputs;  ///< InferRequestedOutputTensor
    std::vector<cursor> raw;      ///< raw_input_contents
};

/// Reads a message that lies in `slices`, which have to outlive the result. `invalid_argument`: it is malformed, or has
/// longer names or lists than a door takes.
[[nodiscard]] result<infer_message> read_infer_message(std::span<const slice> slices);

/// "the message is no protobuf of the protocol".
[[nodiscard]] error malformed_message();

}  // namespace accel::examples::serving::wire
