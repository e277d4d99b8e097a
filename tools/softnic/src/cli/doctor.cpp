// SPDX-License-Identifier: Apache-2.0
#include "cli/launch.hpp"
#include "fabric/segment.hpp"
#include "fabric/shared_file.hpp"
#include "gpu/plugin.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace accel::softnic::cli {
namespace {

/// Two processes with a device take 2 MiB.
constexpr std::size_t shared_bytes = std::size_t{8} << 20;

/// One finding. Returns `good` so that findings can be added up.
bool report(bool good, const std::string& what, const std::string& otherwise) {
    fmt::print("[{}] {}\n", good ? " ok " : "FAIL", good ? what : otherwise);
    return good;
}

/// As programs take it.
bool check_shared_memory() {
    const std::string name = fmt::format("/softnic-{}-doctor-{}", ::getuid(), ::getpid());
    const int file = ::shm_open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    const bool good = file >= 0 && set_length(file, segment_bytes) && take_memory(file, 0, shared_bytes);
    const int failed = errno;
    if (file >= 0) ::close(file);
    ::shm_unlink(name.c_str());
    return report(good, fmt::format("/dev/shm has {} MiB", shared_bytes >> 20),
                  failed == ENOSPC ? fmt::format("/dev/shm has less than {} MiB free, and processes exchange packets "
                                                 "through files there (docker: --shm-size)",
                                                 shared_bytes >> 20)
                                   : shared_memory_trouble(failed));
}

bool check_library(const char* name, const char* package) {
    void* handle = ::dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    return report(handle != nullptr, fmt::format("{} can be loaded", name),
                  fmt::format("{} is missing: install {}", name, package));
}

bool check_preload(const std::string& library) {
    return report(!library.empty(), fmt::format("preload library: {}", library),
                  "libsoftnic.so is neither beside this program nor in ../lib");
}

void describe_machine() {
    const unsigned cores = std::thread::hardware_concurrency();
    fmt::print("[info] {} cores: use --mode {}\n", cores,
               cores >= 4 ? "spin for latency, otherwise adaptive" : "adaptive");
    std::error_code ignored;
    if (std::filesystem::exists("/sys/class/infiniband", ignored))
        fmt::print("[info] the OS has RDMA devices of its own; under softnic, programs see only softnic's devices\n");
}

/// GPU memory is an extra: without it the rest runs.
void describe_gpu_memory(const std::string& library) {
    std::error_code ignored;
    const auto plugin = std::filesystem::path(library).parent_path() / softnic_cuda_library;
    if (!std::filesystem::exists(plugin, ignored)) {
        fmt::print("[info] GPU memory cannot be registered: {} was not built (it needs a CUDA toolkit)\n",
                   softnic_cuda_library);
    } else if (::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) == nullptr) {
        fmt::print("[info] GPU memory cannot be registered: there is no CUDA driver here\n");
    } else {
        fmt::print("[info] GPU memory can be registered: {}\n", plugin.string());
    }
}

/// In a child under softnic: do the stock libraries find the device?
bool check_device(const std::string& library) {
    const pid_t child = ::fork();
    if (child == 0) {
        set_environment({}, library);
        ::setenv("SOFTNIC_FABRIC", fmt::format("doctor-{}", ::getppid()).c_str(), 1);
        ::execl("/proc/self/exe", "softnic", "doctor", "--probe", nullptr);
        ::_exit(1);
    }
    int status = 1;
    ::waitpid(child, &status, 0);
    ::shm_unlink(fmt::format("/softnic-{}-doctor-{}", ::getuid(), ::getpid()).c_str());
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

int doctor() {
    const std::string library = find_library();
    bool good = check_preload(library);
    good &= check_shared_memory();
    good &= check_library("libibverbs.so.1", "libibverbs1");
    good &= check_library("libmlx5.so.1", "ibverbs-providers");
    describe_machine();
    describe_gpu_memory(library);
    std::fflush(stdout);  // the probe prints too
    if (good) good = check_device(library);
    fmt::print("{}\n", good ? "softnic can run programs here" : "softnic cannot run programs here");
    std::fflush(stdout);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

/// Through dlopen: the launcher itself must start where libibverbs is missing.
int doctor_probe() {
    void* verbs = ::dlopen("libibverbs.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (verbs == nullptr) return EXIT_FAILURE;
    const auto list = reinterpret_cast<ibv_device** (*)(int*)>(::dlsym(verbs, "ibv_get_device_list"));
    const auto open = reinterpret_cast<ibv_context* (*)(ibv_device*)>(::dlsym(verbs, "ibv_open_device"));
    const auto name = reinterpret_cast<const char* (*)(ibv_device*)>(::dlsym(verbs, "ibv_get_device_name"));
    if (list == nullptr || open == nullptr || name == nullptr) return EXIT_FAILURE;
    int count = 0;
    ibv_device** devices = list(&count);
    bool good = report(devices != nullptr && count > 0, fmt::format("libibverbs finds {} device(s)", count),
                       "libibverbs finds no device");
    for (int at = 0; at < count; ++at) {
        good &= report(open(devices[at]) != nullptr, fmt::format("libmlx5 opens {}", name(devices[at])),
                       fmt::format("{} cannot be opened", name(devices[at])));
    }
    std::fflush(stdout);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace accel::softnic::cli
