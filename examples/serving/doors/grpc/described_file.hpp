// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace accel::examples::serving::wire {

/// A field. `type` as in a .proto: "int64", "repeated string", "map<string, InferParameter>"; "oneof bool" is in the
/// message's oneof. Messages and enumerations are named within the package.
struct described_field {
    std::uint32_t number;
    std::string_view name;
    std::string_view type;
};

/// A message. "A.B" is nested in A.
struct described_message {
    std::string_view name;
    std::vector<described_field> fields;
    std::string_view oneof{};  ///< the name of its only oneof
};

/// An enumeration, with values from 0 on. "A.B" is nested in A.
struct described_enum {
    std::string_view name;
    std::vector<std::string_view> values;
};

struct described_method {
    std::string_view name;
    std::string_view request;
    std::string_view response;
    bool client_streams = false;
    bool server_streams = false;
};

/// What a .proto (proto3) with one service declares.
struct described_file {
    std::string name;
    std::string package;
    std::string_view service;
    std::vector<described_method> methods;
    std::vector<described_message> messages;
    std::vector<described_enum> enums{};

    [[nodiscard]] std::string full_name(std::string_view of) const { return package + '.' + std::string{of}; }
};

/// As a FileDescriptorProto of protobuf's descriptor.proto.
[[nodiscard]] std::string descriptor_message(const described_file& file);

enum class symbol_kind : std::uint8_t { message, other };
/// Full names of the file's service, methods, messages, fields, oneofs, enumerations and their values.
[[nodiscard]] std::map<std::string, symbol_kind, std::less<>> symbols_of(const described_file& file);

}  // namespace accel::examples::serving::wire
