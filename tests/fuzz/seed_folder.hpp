// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <vector>

/// Seeds of the fuzz targets.
namespace accel::tests {

using bytes = std::vector<std::uint8_t>;

class seed_folder {
  public:
    seed_folder(const std::filesystem::path& top, const std::string& subject) : path_(top / subject) {
        std::filesystem::create_directories(path_);
    }
    void add(const std::string& name, const bytes& content) const {
        std::ofstream(path_ / name, std::ios::binary)
            .write(reinterpret_cast<const char*>(content.data()), static_cast<std::streamsize>(content.size()));
    }
    void add(const std::string& name, const std::string& text) const { add(name, bytes(text.begin(), text.end())); }

  private:
    std::filesystem::path path_;
};

template <class Layout>
void append(bytes& to, const Layout& value) {
    const std::size_t at = to.size();
    to.resize(at + sizeof value);
    std::memcpy(to.data() + at, &value, sizeof value);
}

inline void append_all(bytes& to, const bytes& more) {
    to.insert(to.end(), more.begin(), more.end());
}

/// Steps, one behind the other.
inline bytes joined(std::initializer_list<bytes> steps) {
    bytes all;
    for (const bytes& step : steps) append_all(all, step);
    return all;
}

/// Writes the seeds of a house, of each target into its folder in `top`.
void write_seeds(const std::filesystem::path& top);

}  // namespace accel::tests
