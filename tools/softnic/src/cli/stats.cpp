// SPDX-License-Identifier: Apache-2.0
#include "cli/launch.hpp"
#include "fabric/fabric.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace accel::softnic::cli {
namespace {

const segment_header* map_header(const std::string& path) {
    const int file = ::shm_open(path.c_str(), O_RDONLY | O_CLOEXEC, 0);
    if (file < 0) return nullptr;
    struct stat status {};
    void* mapping = MAP_FAILED;
    if (::fstat(file, &status) == 0 && static_cast<std::size_t>(status.st_size) == segment_bytes)
        mapping = ::mmap(nullptr, sizeof(segment_header), PROT_READ, MAP_SHARED, file, 0);
    ::close(file);
    const auto* header = static_cast<const segment_header*>(mapping == MAP_FAILED ? nullptr : mapping);
    return header != nullptr && header->magic == segment_magic && header->version == segment_version ? header : nullptr;
}

double seconds(const std::atomic<std::uint64_t>& nanoseconds) {
    return static_cast<double>(nanoseconds.load(std::memory_order_relaxed)) / 1e9;
}

void print_node(int number, const node_record& node) {
    const std::uint64_t timed = node.timed_messages.load(std::memory_order_relaxed);
    const std::uint64_t late = node.late_messages.load(std::memory_order_relaxed);
    const double share = timed == 0 ? 0 : 100 * static_cast<double>(late) / static_cast<double>(timed);
    fmt::print("{:>4} {:>9} {:>14} {:>14} {:>7.2f} {:>14.6f} {:>14.3f} {:>14.3f}\n", number, node.process.load(), timed,
               late, share, seconds(node.lateness_ns), seconds(node.threads_ns), seconds(node.helped_ns));
}

}  // namespace

int stats(const std::string& name) {
    const segment_header* const header = map_header(fabric::file_name(name));
    if (header == nullptr) {
        fmt::print(stderr, "softnic: no process is in the fabric \"{}\"\n", name);
        return 1;
    }
    fmt::print("{:>4} {:>9} {:>14} {:>14} {:>7} {:>14} {:>14} {:>14}\n", "node", "process", "link messages",
               "late messages", "late %", "behind link s", "device CPU s", "in calls s");
    for (int number = 0; number < max_nodes; ++number) {
        const node_record& node = header->nodes[static_cast<std::size_t>(number)];
        if (node.state == static_cast<std::uint32_t>(node_state::alive)) print_node(number, node);
    }
    return 0;
}

}  // namespace accel::softnic::cli
