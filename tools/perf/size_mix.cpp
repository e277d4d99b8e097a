// SPDX-License-Identifier: Apache-2.0
#include "perf/size_mix.hpp"

#include "report/sizes.hpp"

#include <algorithm>
#include <charconv>

namespace accel::perf {
namespace {

constexpr std::size_t max_parts = 64;
constexpr std::uint32_t max_weight = 1'000'000;

std::optional<size_mix::part> parse_part(std::string_view text) {
    const std::size_t colon = text.find(':');
    if (colon == std::string_view::npos) return std::nullopt;
    const auto bytes = parse_size(text.substr(0, colon));
    const std::string_view weight = text.substr(colon + 1);
    size_mix::part out;
    const auto [end, failure] = std::from_chars(weight.data(), weight.data() + weight.size(), out.weight);
    const bool good = failure == std::errc{} && end == weight.data() + weight.size();
    if (!bytes || !good || out.weight == 0 || out.weight > max_weight) return std::nullopt;
    out.bytes = bytes.value();
    return out;
}

}  // namespace

std::optional<size_mix> size_mix::parse(std::string_view text) {
    size_mix out;
    for (;;) {
        const std::size_t comma = text.find(',');
        const auto one = parse_part(text.substr(0, comma));
        if (!one || out.parts_.size() == max_parts) return std::nullopt;
        out.parts_.push_back(*one);
        out.total_ += one->weight;
        if (comma == std::string_view::npos) return out;
        text.remove_prefix(comma + 1);
    }
}

std::size_t size_mix::longest() const noexcept {
    std::size_t most = 0;
    for (const part& each : parts_) most = std::max(most, each.bytes);
    return most;
}

double size_mix::mean_bytes() const noexcept {
    double sum = 0;
    for (const part& each : parts_) sum += static_cast<double>(each.bytes) * each.weight;
    return total_ == 0 ? 0 : sum / static_cast<double>(total_);
}

std::size_t size_mix::choose(std::mt19937_64& random) const noexcept {
    std::uint64_t place = random() % total_;
    for (const part& each : parts_) {
        if (place < each.weight) return each.bytes;
        place -= each.weight;
    }
    return parts_.back().bytes;
}

}  // namespace accel::perf
