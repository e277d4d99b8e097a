// SPDX-License-Identifier: Apache-2.0
#include "core/nearest_names.hpp"

#include <accel_transport/target.hpp>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace accel::core {
namespace {

/// A name that differs in more letters is not spelt like the other. Few, because a client may ask often.
constexpr std::size_t unlike = 4;

}  // namespace

std::size_t edit_distance(std::string_view one, std::string_view other, std::size_t most) {
    const auto same_start = std::ranges::mismatch(one, other).in1 - one.begin();
    one.remove_prefix(static_cast<std::size_t>(same_start));
    other.remove_prefix(static_cast<std::size_t>(same_start));
    while (!one.empty() && !other.empty() && one.back() == other.back()) {
        one.remove_suffix(1);
        other.remove_suffix(1);
    }
    if (one.size() > other.size()) std::swap(one, other);
    if (other.size() - one.size() >= most) return most;
    // Wagner and Fischer, one row at a time.
    if (one.size() > max_target_bytes) return most;
    std::array<std::size_t, max_target_bytes + 1> room{};
    const std::span row(room.data(), one.size() + 1);
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = i;
    for (std::size_t j = 0; j < other.size(); ++j) {
        std::size_t diagonal = std::exchange(row[0], j + 1);
        std::size_t least = row[0];
        for (std::size_t i = 1; i < row.size(); ++i) {
            const std::size_t replaced = diagonal + (one[i - 1] == other[j] ? 0U : 1U);
            diagonal = row[i];
            row[i] = std::min({replaced, row[i] + 1, row[i - 1] + 1});
            least = std::min(least, row[i]);
        }
        if (least >= most) return most;
    }
    return std::min(row.back(), most);
}

std::string list_names(std::span<const std::string_view> names, std::size_t room, std::string_view wanted) {
    if (names.empty()) return "it has none";
    std::vector<std::pair<std::size_t, std::string_view>> ranked;
    ranked.reserve(names.size());
    for (const std::string_view each : names)
        ranked.emplace_back(wanted.empty() ? 0 : edit_distance(wanted, each, unlike), each);
    std::ranges::stable_sort(ranked, {}, &std::pair<std::size_t, std::string_view>::first);
    std::string out = "it has ";
    std::size_t listed = 0;
    for (const auto& [distance, name] : ranked) {
        const bool last = listed + 1 == ranked.size();
        const std::string_view before = listed == 0 ? "" : last ? " and " : ", ";
        constexpr std::size_t rest = std::string_view{" and 1024 others"}.size();
        if (listed > 0 && out.size() + before.size() + name.size() + (last ? 0 : rest) > room) break;
        out += fmt::format("{}{}", before, name);
        ++listed;
    }
    if (listed < ranked.size()) out += fmt::format(" and {} others", ranked.size() - listed);
    return out;
}

}  // namespace accel::core
