// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/oip/object_reader.hpp"

#include "serving/doors/oip/json_text.hpp"
#include "serving/doors/oip/refusal.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace accel::examples::serving::oip::file {
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
    const auto far = [&](const entry& each) {
        return each.name.find(name) == std::string_view::npos ? distance(name, each.name) : 0;
    };
    return std::ranges::min_element(known, {}, far)->name;
}

/// Finds an object with two equal keys, of which a parser would keep only one.
class twin_finder {
  public:
    bool operator()(int, json::parse_event_t event, const json& parsed) {
        if (event == json::parse_event_t::object_start) open_.emplace_back();
        if (event == json::parse_event_t::object_end) open_.pop_back();
        if (event == json::parse_event_t::key && !open_.back().insert(parsed.get<std::string>()).second)
            twin_ = parsed.get<std::string>();
        return true;
    }
    [[nodiscard]] const std::string& twin() const { return twin_; }

  private:
    std::vector<std::set<std::string>> open_;
    std::string twin_;
};

}  // namespace

place place::of(std::string_view name) const {
    return {file, key.empty() ? std::string{name} : key + '.' + std::string{name}};
}

place place::of(std::size_t index) const {
    return {file, key + '[' + std::to_string(index) + ']'};
}

error wrong(const place& at, std::string_view what) {
    const std::string key = at.key.empty() ? "" : at.key + ": ";
    return oip::refusal(status::invalid_argument, at.file + ": " + key + std::string{what});
}

result<std::string> read_text(const std::string& path) {
    constexpr std::size_t longest = std::size_t{1} << 20;
    std::ifstream from(path, std::ios::binary);
    std::string text(longest + 1, '\0');
    from.read(text.data(), static_cast<std::streamsize>(text.size()));  // of a folder: fails, and does not throw
    if (!from.is_open() || from.bad()) return wrong({path, {}}, "cannot be read");
    text.resize(static_cast<std::size_t>(from.gcount()));
    if (text.size() > longest) return wrong({path, {}}, "is longer than 1 MiB");
    return text;
}

result<json> parse(std::string_view text, const place& at) {
    if (nesting_of(text) > max_json_depth) return wrong(at, "it is nested deeper than 16 levels");
    twin_finder twins;
    try {
        json out = json::parse(text, std::ref(twins), true, true);
        if (!twins.twin().empty()) return wrong(at.of(twins.twin()), "this key occurs twice in one object");
        return out;
    } catch (const json::exception& failure) {         // a parse_error, or an out_of_range: 1e999
        const std::string_view what = failure.what();  // "[its name] parse error at line 1, column 2: …"
        return wrong(at, what.substr(std::min(what.find("] ") + 2, what.size())));
    }
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

entry anything(std::string_view name) {
    return {name, [](const json&, const place&) -> result<void> { return {}; }};
}

}  // namespace accel::examples::serving::oip::file
