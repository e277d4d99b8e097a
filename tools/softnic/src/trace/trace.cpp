// SPDX-License-Identifier: Apache-2.0
#include "trace/trace.hpp"

#include <sys/stat.h>
#include <unistd.h>

namespace accel::softnic {

trace::~trace() {
    stop();
}

bool trace::start(const std::string& path) {
    stop();
    if (path == "-") {
        out_ = stderr;
        return true;
    }
    struct stat status {};
    const bool directory = ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
    const auto file = directory ? fmt::format("{}/softnic-{}.trace", path, ::getpid()) : path;
    out_ = std::fopen(file.c_str(), "ae");
    if (out_ != nullptr) std::setvbuf(out_, buffer_.data(), _IOLBF, buffer_.size());
    return out_ != nullptr;
}

void trace::stop() {
    if (out_ != nullptr && out_ != stderr) std::fclose(out_);
    out_ = nullptr;
}

void trace::write(std::uint64_t now_ns, int node, std::uint32_t qpn, std::string_view what,
                  const std::string& details) {
    const auto line = fmt::format("{:>14.3f} n{} qp {:#06x} {:<10} {}\n", static_cast<double>(now_ns) / 1e3, node, qpn,
                                  what, details);
    std::fwrite(line.data(), 1, line.size(), out_);
}

}  // namespace accel::softnic
