// SPDX-License-Identifier: Apache-2.0
#include "perf/histogram_file.hpp"

#include <filesystem>
#include <fstream>

#include <fmt/format.h>

namespace accel::perf {

std::string histogram_path(const std::string& path, const std::vector<outcome>& all, std::size_t place) {
    if (all.size() == 1) return path;
    const outcome& one = all[place];
    const std::string size = one.what.mix.empty() ? std::to_string(one.what.request_bytes) : "mix";
    const std::filesystem::path given{path};
    const std::string name = fmt::format("{}-{}-{}-{}{}", given.stem().string(), place + 1, one.seen.scheme, size,
                                         given.extension().string());
    return (given.parent_path() / name).string();
}

bool write_histograms(const std::string& path, const std::vector<outcome>& all) {
    for (std::size_t i = 0; i < all.size(); ++i) {
        const std::string one = histogram_path(path, all, i);
        std::ofstream file(one);
        file << all[i].seen.latency.percentiles_text();
        file.close();
        if (file) continue;
        fmt::print(stderr, "cannot write {}: choose a path that this user may write to\n", one);
        return false;
    }
    return true;
}

}  // namespace accel::perf
