// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/grpc/described_file.hpp"

#include "serving/doors/grpc/writer.hpp"

#include <algorithm>
#include <cctype>
#include <optional>

namespace accel::examples::serving::wire {
namespace {

// Numbers of the fields and of the types: protobuf's descriptor.proto.

constexpr std::uint64_t label_optional = 1;
constexpr std::uint64_t label_repeated = 3;
constexpr std::uint64_t type_message = 11;
constexpr std::uint64_t type_enum = 14;

std::optional<std::uint64_t> scalar_type(std::string_view name) {
    constexpr struct {
        std::string_view name;
        std::uint64_t number;
    } types[] = {{"double", 1}, {"float", 2},  {"int64", 3},  {"uint64", 4}, {"int32", 5},
                 {"bool", 8},   {"string", 9}, {"bytes", 12}, {"uint32", 13}};
    for (const auto& each : types)
        if (each.name == name) return each.number;
    return std::nullopt;
}

/// Takes `word` off the front of a type.
bool take_word(std::string_view& type, std::string_view word) {
    if (!type.starts_with(word)) return false;
    type.remove_prefix(word.size());
    return true;
}

/// Whether "A.B" is declared in "A"; the package is "".
bool is_nested(std::string_view name, std::string_view in) {
    const std::size_t dot = name.rfind('.');
    return dot == std::string_view::npos ? in.empty() : name.substr(0, dot) == in;
}

std::string_view last_name(std::string_view name) {
    return name.substr(name.rfind('.') + 1);
}

/// A map is a repeated message like this. Names of the protocol's maps are one word.
std::string entry_name(const described_field& map) {
    std::string out = std::string{map.name} + "Entry";
    out.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(out.front())));
    return out;
}

std::optional<described_message> map_entry(const described_field& from) {
    std::string_view type = from.type;
    if (!take_word(type, "map<string, ")) return std::nullopt;
    type.remove_suffix(1);
    return described_message{{}, {{1, "key", "string"}, {2, "value", type}}};
}

class file_writer {
  public:
    explicit file_writer(const described_file& file) : file_(file) {}

    [[nodiscard]] std::string write() const {
        writer out;
        out.text(1, file_.name);
        out.text(2, file_.package);
        for (const auto& each : file_.messages)
            if (is_nested(each.name, {})) out.message(4, message(each, last_name(each.name), false));
        put_enums(out, 5, {});
        out.message(6, service());
        out.text(12, "proto3");
        return out.take();
    }

  private:
    [[nodiscard]] std::string type_name(std::string_view type) const { return '.' + file_.full_name(type); }

    [[nodiscard]] bool is_enum(std::string_view type) const {
        return std::ranges::find(file_.enums, type, &described_enum::name) != file_.enums.end();
    }

    [[nodiscard]] writer field(const described_field& from, std::string_view message) const {
        std::string_view type = from.type;
        const bool in_oneof = take_word(type, "oneof ");
        const bool map = map_entry(from).has_value();
        const bool repeated = take_word(type, "repeated ") || map;
        const auto scalar = map ? std::nullopt : scalar_type(type);
        writer out;
        out.text(1, from.name);
        out.number(3, from.number);
        out.number(4, repeated ? label_repeated : label_optional);
        out.number(5, scalar.value_or(is_enum(type) ? type_enum : type_message));
        if (map)
            out.text(6, type_name(message) + '.' + entry_name(from));
        else if (!scalar)
            out.text(6, type_name(type));
        if (in_oneof) out.present(9, 0);
        return out;
    }

    [[nodiscard]] writer message(const described_message& from, std::string_view name, bool is_map_entry) const {
        writer out;
        out.text(1, name);
        for (const auto& each : from.fields) out.message(2, field(each, from.name));
        for (const auto& each : from.fields)
            if (const auto entry = map_entry(each)) out.message(3, message(*entry, entry_name(each), true));
        for (const auto& each : file_.messages)
            if (!from.name.empty() && is_nested(each.name, from.name))
                out.message(3, message(each, last_name(each.name), false));
        if (!from.name.empty()) put_enums(out, 4, from.name);
        writer options;
        options.number(7, 1);
        if (is_map_entry) out.message(7, options);
        writer oneof;
        oneof.text(1, from.oneof);
        if (!from.oneof.empty()) out.message(8, oneof);
        return out;
    }

    void put_enums(writer& to, std::uint32_t field, std::string_view in) const {
        for (const auto& each : file_.enums)
            if (is_nested(each.name, in)) to.message(field, enumeration(each));
    }

    [[nodiscard]] static writer enumeration(const described_enum& from) {
        writer out;
        out.text(1, last_name(from.name));
        for (std::uint64_t i = 0; i < from.values.size(); ++i) {
            writer value;
            value.text(1, from.values[i]);
            value.present(2, i);
            out.message(2, value);
        }
        return out;
    }

    [[nodiscard]] writer service() const {
        writer out;
        out.text(1, file_.service);
        for (const auto& each : file_.methods) {
            writer method;
            method.text(1, each.name);
            method.text(2, type_name(each.request));
            method.text(3, type_name(each.response));
            method.number(5, each.client_streams ? 1 : 0);
            method.number(6, each.server_streams ? 1 : 0);
            out.message(2, method);
        }
        return out;
    }

    const described_file& file_;
};

}  // namespace

std::string descriptor_message(const described_file& file) {
    return file_writer{file}.write();
}

std::map<std::string, symbol_kind, std::less<>> symbols_of(const described_file& file) {
    std::map<std::string, symbol_kind, std::less<>> out;
    const auto add = [&out](const std::string& scope, std::string_view name, symbol_kind kind = symbol_kind::other) {
        return out.emplace(scope + '.' + std::string{name}, kind).first->first;
    };
    const std::string service = add(file.package, file.service);
    for (const auto& each : file.methods) add(service, each.name);
    for (const auto& one : file.messages) {
        const std::string message = add(file.package, one.name, symbol_kind::message);
        if (!one.oneof.empty()) add(message, one.oneof);
        for (const auto& each : one.fields) {
            add(message, each.name);
            if (map_entry(each)) add(message, entry_name(each), symbol_kind::message);
        }
    }
    for (const auto& one : file.enums) {
        const std::string name = add(file.package, one.name);
        // Values belong to the scope around their enumeration.
        for (const std::string_view each : one.values) add(name.substr(0, name.rfind('.')), each);
    }
    return out;
}

}  // namespace accel::examples::serving::wire
