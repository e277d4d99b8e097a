// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/access/file_watch.hpp"

#include <utility>

#include <sys/stat.h>

namespace accel::examples::serving::access {
namespace {

std::string stamp_of(const std::string& path) {
    struct stat about {};
    if (stat(path.c_str(), &about) != 0) return "- ";
    std::string out;
    for (const auto part : {static_cast<long long>(about.st_dev), static_cast<long long>(about.st_ino),
                            static_cast<long long>(about.st_size), static_cast<long long>(about.st_mtim.tv_sec),
                            static_cast<long long>(about.st_mtim.tv_nsec), static_cast<long long>(about.st_ctim.tv_sec),
                            static_cast<long long>(about.st_ctim.tv_nsec)})
        out += std::to_string(part) + ' ';
    return out;
}

}  // namespace

file_watch::file_watch(std::vector<std::string> paths) : paths_(std::move(paths)) {
    note_reading();
}

bool file_watch::changed() {
    const std::string now = stamps();
    const bool rested = now == std::exchange(seen_, now);
    return rested && now != read_;
}

void file_watch::note_reading() {
    read_ = seen_ = stamps();
}

std::string file_watch::stamps() const {
    std::string out;
    for (const std::string& each : paths_) out += stamp_of(each);
    return out;
}

}  // namespace accel::examples::serving::access
