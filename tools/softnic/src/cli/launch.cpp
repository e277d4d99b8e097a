// SPDX-License-Identifier: Apache-2.0
#include "cli/launch.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>
#include <unistd.h>

namespace accel::softnic::cli {
namespace {

namespace fs = std::filesystem;

constexpr int cannot_execute = 126;

void set(const char* name, const std::optional<std::string>& value) {
    if (value) ::setenv(name, value->c_str(), 1);
}

std::string joined(const std::vector<std::string>& parts) {
    std::string all;
    for (const auto& part : parts) all += (all.empty() ? "" : ";") + part;
    return all;
}

}  // namespace

std::string find_library() {
    std::error_code error;
    const fs::path self = fs::read_symlink("/proc/self/exe", error);
    const fs::path here = self.parent_path();
    for (const auto& candidate : {here / "libsoftnic.so", here / "../lib/libsoftnic.so",
                                  here / "../lib/x86_64-linux-gnu/libsoftnic.so", here / "../lib64/libsoftnic.so"})
        if (fs::exists(candidate, error)) return fs::canonical(candidate, error);
    return {};
}

void set_environment(const launch_options& options, const std::string& library) {
    const char* before = std::getenv("LD_PRELOAD");
    const bool nested = before != nullptr && std::strstr(before, "libsoftnic.so") != nullptr;
    if (!nested) {
        const std::string preload =
            before == nullptr || *before == '\0' ? library : std::string(before) + ":" + library;
        ::setenv("LD_PRELOAD", preload.c_str(), 1);
    }
    set("SOFTNIC_FABRIC", options.fabric);
    set("SOFTNIC_DEVICES", options.devices);
    set("SOFTNIC_MODE", options.mode);
    set("SOFTNIC_LINK", options.link);
    set("SOFTNIC_TRACE", options.trace);
    set("SOFTNIC_SEED", options.seed);
    set("SOFTNIC_CUDA_DMA", options.cuda_dma);
    if (options.cuda_stay_ms) {
        set("SOFTNIC_CUDA_STAY_MS", std::to_string(*options.cuda_stay_ms));
        set("SOFTNIC_CUDA_IDLE_US", std::to_string(*options.cuda_stay_ms * 1000));
    }
    if (!options.faults.empty()) ::setenv("SOFTNIC_FAULTS", joined(options.faults).c_str(), 1);
    if (options.strict) ::setenv("SOFTNIC_STRICT", "1", 1);
    if (options.without_peer_memory) ::setenv("SOFTNIC_PEER_MEMORY", "0", 1);
    if (options.without_dmabuf) ::setenv("SOFTNIC_DMABUF", "0", 1);
}

int launch(const launch_options& options) {
    const std::string library = find_library();
    if (library.empty()) {
        fmt::print(stderr, "softnic: libsoftnic.so is neither beside this program nor in ../lib\n");
        return cannot_execute;
    }
    set_environment(options, library);
    std::vector<char*> arguments;
    for (const auto& word : options.program) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    ::execvp(arguments[0], arguments.data());
    fmt::print(stderr, "softnic: {}: {}\n", options.program[0], std::strerror(errno));
    return cannot_execute;
}

}  // namespace accel::softnic::cli
