// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

/// Reads files of JSON, whose keys are all known. Errors say file, key and what is right.
namespace accel::examples::serving::oip::file {

/// Where a value stands.
struct place {
    std::string file;
    std::string key;  ///< "limits.connections"; empty: the whole file

    [[nodiscard]] place of(std::string_view name) const;
    [[nodiscard]] place of(std::size_t index) const;
};

[[nodiscard]] error wrong(const place& at, std::string_view what);

/// The text of a file, up to 1 MiB. `invalid_argument` names the file.
[[nodiscard]] result<std::string> read_text(const std::string& path);

/// JSON with comments. Refuses two equal keys in one object, and deep nesting.
[[nodiscard]] result<nlohmann::json> parse(std::string_view text, const place& at);

/// A key that an object may have, and what becomes of its value.
struct entry {
    std::string_view name;
    std::function<result<void>(const nlohmann::json&, const place&)> read;
};

/// Refuses a key that is not among `known`, and names the nearest one that is.
[[nodiscard]] result<void> read_object(const nlohmann::json& from, const place& at, std::span<const entry> known);

// Entries for values that go to `to`, which has to outlive them.
[[nodiscard]] entry text(std::string_view name, std::string& to, std::string_view what);
/// A path: one that is relative begins at the folder of the file.
[[nodiscard]] entry path(std::string_view name, std::string& to);
[[nodiscard]] entry flag(std::string_view name, bool& to);
[[nodiscard]] entry number(std::string_view name, std::size_t& to, std::size_t least, std::size_t most);
/// A value that nobody reads.
[[nodiscard]] entry anything(std::string_view name);

}  // namespace accel::examples::serving::oip::file
