// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/configuration/object_reader.hpp"

#include "report/durations.hpp"
#include "serving/doors/oip/refusal.hpp"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <utility>
#include <vector>

namespace accel::examples::serving::doors::configuration {
namespace {

using nlohmann::json;

/// How many letters are to be added, left out or changed to come from `a` to `b`.
std::size_t distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < a.size(); ++i) {
        std::size_t diagonal = std::exchange(row[0], i + 1);
        for (std::size_t k = 0; k < b.size(); ++k) {
            const std::size_t changed = diagonal + (a[i] == b[k] ? 0 : 1);
            diagonal = row[k + 1];
            row[k + 1] = std::min({changed, row[k] + 1, row[k + 1] + 1});
        }
    }
    return row.back();
}

std::string_view nearest(std::string_view name, std::span<const entry> known) {
    constexpr std::size_t longest = 64;  // of a name that is compared
    name = name.substr(0, longest);
    const auto far = [&](const entry& each) { return distance(name, each.name); };
    return std::ranges::min_element(known, {}, far)->name;
}

}  // namespace

place place::of(std::string_view name) const {
    return {file, key.empty() ? std::string{name} : key + '.' + std::string{name}};
}

error wrong(const place& at, std::string_view what) {
    const std::string key = at.key.empty() ? "" : at.key + ": ";
    return oip::refusal(status::invalid_argument, at.file + ": " + key + std::string{what});
}

result<void> read_object(const json& from, const place& at, std::span<const entry> known) {
    if (!from.is_object()) return wrong(at, "write an object: {\"key\": value, …}");
    for (const auto& [key, value] : from.items()) {
        const auto found = std::ranges::find(known, std::string_view{key}, &entry::name);
        if (found == known.end())
            return wrong(at.of(key),
                         "this key is unknown; the nearest known key is '" + std::string{nearest(key, known)} + "'");
        if (auto read = found->read(value, at.of(key)); !read) return read;
    }
    return {};
}

entry text(std::string_view name, std::string& to, std::string_view what) {
    return {name, [&to, what = std::string{what}](const json& from, const place& at) -> result<void> {
                if (!from.is_string() || from.get_ref<const std::string&>().empty()) return wrong(at, what);
                to = from.get<std::string>();
                return {};
            }};
}

entry path(std::string_view name, std::string& to) {
    return {name, [&to](const json& from, const place& at) -> result<void> {
                if (!from.is_string() || from.get_ref<const std::string&>().empty())
                    return wrong(at, "write the path of a file, in quotes");
                to = (std::filesystem::path{at.file}.parent_path() / from.get<std::string>()).string();
                return {};
            }};
}

entry flag(std::string_view name, bool& to) {
    return {name, [&to](const json& from, const place& at) -> result<void> {
                if (!from.is_boolean()) return wrong(at, "write true or false");
                to = from.get<bool>();
                return {};
            }};
}

entry number(std::string_view name, std::size_t& to, std::size_t least, std::size_t most) {
    return {name, [&to, least, most](const json& from, const place& at) -> result<void> {
                if (!from.is_number_unsigned() || from.get<std::size_t>() < least || from.get<std::size_t>() > most)
                    return wrong(at,
                                 "write a whole number from " + std::to_string(least) + " to " + std::to_string(most));
                to = from.get<std::size_t>();
                return {};
            }};
}

entry duration(std::string_view name, std::chrono::milliseconds& to) {
    return {name, [&to](const json& from, const place& at) -> result<void> {
                const auto read =
                    from.is_string() ? report::parse_duration(from.get_ref<const std::string&>()) : std::nullopt;
                if (!read) return wrong(at, "write a duration in quotes: \"500ms\" or \"10s\"");
                to = std::chrono::duration_cast<std::chrono::milliseconds>(*read);
                return {};
            }};
}

entry anything(std::string_view name) {
    return {name, [](const json&, const place&) -> result<void> { return {}; }};
}

}  // namespace accel::examples::serving::doors::configuration
