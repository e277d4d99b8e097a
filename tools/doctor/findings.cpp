// SPDX-License-Identifier: Apache-2.0
#include "doctor/findings.hpp"

#include "report/program.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#ifdef ACCEL_ZMQ
#include <zmq.h>
#endif

namespace accel::doctor {
namespace {

#ifdef ACCEL_ZMQ
std::string zmq_version_text() {
    int major = 0, minor = 0, patch = 0;
    zmq_version(&major, &minor, &patch);
    return fmt::format("{}.{}.{}", major, minor, patch);
}
bool zmq_has_curve() {
    return zmq_has("curve") == 1;
}
#else
std::string zmq_version_text() {
    return {};
}
bool zmq_has_curve() {
    return false;
}
#endif

std::string kernel_text() {
    utsname names{};
    if (uname(&names) != 0) return "unknown";
    return fmt::format("{} {} {}", names.sysname, names.release, names.machine);
}

unsigned usable_cores() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 0;
    return static_cast<unsigned>(CPU_COUNT(&set));
}

std::uint64_t memory_size() {
    struct sysinfo info {};
    if (sysinfo(&info) != 0) return 0;
    return std::uint64_t{info.totalram} * info.mem_unit;
}

limit soft_limit(decltype(RLIMIT_NOFILE) which) {
    rlimit value{};
    if (getrlimit(which, &value) != 0) return 0;
    return value.rlim_cur == RLIM_INFINITY ? limit{} : limit{value.rlim_cur};
}

std::vector<std::string> ranking(const std::vector<scheme_report>& schemes) {
    std::vector<std::string> names;
    for (const scheme_report& each : schemes)
        if (each.usable && each.scheme != "local" && each.scheme != "shm") names.push_back(each.scheme);
    return names;
}

std::vector<std::string> advice_for(const findings& found) {
    constexpr std::uint64_t few_files = 4096;
    constexpr std::uint64_t little_locked_memory = 64 << 20;
    std::vector<std::string> advice;
    const bool has_zmq = std::ranges::find(found.auto_ranking, "zmq") != found.auto_ranking.end();
    if (has_zmq && !found.libzmq_curve) {
        advice.emplace_back(
            "libzmq has no CURVE: install one built with libsodium, or zmq works with insecure=true only");
    }
    if (found.cores == 1)
        advice.emplace_back("one core: with poll=busy at both ends on one host, each end delays the other; use block");
    if (found.open_files && *found.open_files < few_files) {
        advice.push_back(fmt::format("at most {} open files: a server with many sessions needs more (ulimit -n)",
                                     *found.open_files));
    }
    if (found.locked_memory_bytes && *found.locked_memory_bytes < little_locked_memory) {
        advice.push_back(
            fmt::format("{} KiB of locked memory: rdma pins its slots, 16 MiB per session by default; allow more "
                        "(ulimit -l unlimited; systemd: LimitMEMLOCK=infinity; docker: --ulimit memlock=-1), or ask "
                        "for smaller slots",
                        *found.locked_memory_bytes >> 10));
    }
    return advice;
}

}  // namespace

result<findings> examine() {
    auto ctx = context::open();
    if (!ctx) return ctx.error();
    findings found;
    found.version = report::version_text();
    found.libzmq_version = zmq_version_text();
    found.libzmq_curve = zmq_has_curve();
    found.kernel = kernel_text();
    found.cores = usable_cores();
    found.memory_bytes = memory_size();
    found.locked_memory_bytes = soft_limit(RLIMIT_MEMLOCK);
    found.open_files = soft_limit(RLIMIT_NOFILE);
    found.schemes = ctx->schemes();
    found.auto_ranking = ranking(found.schemes);
    found.advice = advice_for(found);
    return found;
}

}  // namespace accel::doctor
