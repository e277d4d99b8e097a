// SPDX-License-Identifier: Apache-2.0
#include "verbs/device.hpp"

#include "core/fork_guard.hpp"
#include "core/log.hpp"
#include "core/net/descriptor_error.hpp"
#include "core/net/socket.hpp"
#include "verbs/failure.hpp"
#include "verbs/loaded_library.hpp"
#include "verbs/mlx5_driver.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <mutex>
#include <span>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace accel::verbs {
namespace {

struct fork_support {
    std::mutex mutex;
    bool asked_for = false;
};
constinit core::per_process<fork_support> fork_supports;

/// Kernels before 5.12 share pinned pages with a child: the parent's next write goes to a copy, while the
/// device still reads and writes the page that is now the child's. libibverbs then keeps registered pages
/// from children (madvise, MADV_DONTFORK), if it is asked to before the first registration of the process.
/// Kernels that copy for the child say so, from 5.13 on (`IBV_FORK_UNNEEDED`, ibv_is_fork_initialized(3)).
/// There it is not asked: before version 51 it would do all that nevertheless.
void ask_for_fork_support() {
    fork_support& own = fork_supports.get();
    const std::lock_guard lock(own.mutex);
    if (std::exchange(own.asked_for, true) || ibv_is_fork_initialized() != IBV_FORK_DISABLED) return;
    if (const int failed = ibv_fork_init(); failed != 0) {
        core::log().info("this process must not fork while it uses RDMA devices: ibv_fork_init: {}",
                         std::strerror(failed));
    }
}

struct list_destroyer {
    void operator()(ibv_device** list) const noexcept { ibv_free_device_list(list); }
};

/// All devices by name, so that "the first" is the same one in every process.
struct device_list {
    std::unique_ptr<ibv_device*, list_destroyer> owner;
    std::span<ibv_device*> devices;

    device_list() {
        int count = 0;
        owner.reset(ibv_get_device_list(&count));
        if (owner) devices = {owner.get(), static_cast<std::size_t>(count)};
        std::sort(devices.begin(), devices.end(), [](ibv_device* a, ibv_device* b) {
            return ::strverscmp(ibv_get_device_name(a), ibv_get_device_name(b)) < 0;
        });
    }
};

/// The value of `device=`: "mlx5_0" or "mlx5_0:2".
struct wanted_device {
    std::string name;
    std::uint8_t port = 0;  ///< 0: the first that is active
};

result<wanted_device> parse_wanted(const std::string& text) {
    wanted_device out;
    const auto colon = text.find(':');
    out.name = text.substr(0, colon);
    if (colon == std::string::npos) return out;
    const char* end = text.data() + text.size();
    const auto [stop, failure] = std::from_chars(text.data() + colon + 1, end, out.port);
    if (failure != std::errc{} || stop != end || out.port == 0) {
        return error{status::invalid_argument, 0,
                     fmt::format("option device: '{}' is not a valid value: expected NAME or NAME:PORT, such as "
                                 "mlx5_0:1",
                                 text)};
    }
    return out;
}

/// Why a device cannot carry this library's protocol whatever its port does; empty if it can.
std::string_view unfit(const ibv_device& candidate) noexcept {
    if (candidate.transport_type == IBV_TRANSPORT_IWARP)
        return "it is an iWARP device, which has no write with immediate data";
    if (candidate.transport_type != IBV_TRANSPORT_IB) return "it has no reliable connections as InfiniBand has";
    return {};
}

/// Reads one of the device's attributes in sysfs; empty if it has no such attribute.
std::string read_attribute(const ibv_device& of, const char* name) {
    const int fd = ::open(fmt::format("{}/{}", of.ibdev_path, name).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return {};
    std::array<char, 64> text{};
    const ssize_t got = ::read(fd, text.data(), text.size());
    ::close(fd);
    return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
}

std::string_view emulation_of(const ibv_device& of) {
    if (read_attribute(of, "board_id").starts_with("SOFTNIC")) return "emulated by softnic";
    // The OS's software devices name the network interface they stand on.
    if (!read_attribute(of, "parent").empty()) return "in software (by the OS, over a network interface)";
    return {};
}

/// libibverbs reads folders and files, and takes those that it cannot open for missing.
/// 0, or errno.
int try_to_list_devices() {
    std::array<core::unique_fd, 4> trial;
    for (core::unique_fd& each : trial) {
        each = core::unique_fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
        if (core::is_shortage(each.failure())) return each.failure();
    }
    return 0;
}

result<std::shared_ptr<device>> open_port(ibv_device& candidate, const wanted_device& which,
                                          const verbs_options& wanted, const std::string& near_host) {
    if (const auto reason = unfit(candidate); !reason.empty())
        return error{status::unsupported, 0, std::string{reason}};
    context_handle context(ibv_open_device(&candidate));
    if (!context) {
        const int failed = errno;
        if (core::is_shortage(failed)) return core::no_descriptor("for the RDMA device", failed);
        return error{
            status::unsupported, failed,
            fmt::format("it cannot be opened ({}); check the permissions of /dev/infiniband", std::strerror(failed))};
    }
    ibv_device_attr limits{};
    if (const int failed = ibv_query_device(context.get(), &limits); failed != 0)
        return verb_failed("it does not report its limits", failed);
    std::string reasons;
    std::optional<port_address> best;
    for (std::uint8_t number = 1; number <= limits.phys_port_cnt; ++number) {
        if (which.port != 0 && which.port != number) continue;
        auto port = examine_port(*context, number, wanted, near_host);
        if (port.code() == status::invalid_argument) return port.error();
        if (!port)
            reasons += (reasons.empty() ? "" : ", ") + port.error().message;
        else if (!best || (port->holds_host && !best->holds_host))
            best = *port;
    }
    if (!best) {
        if (reasons.empty()) reasons = fmt::format("it has no port {}", which.port);
        return error{status::unsupported, 0, reasons};
    }
    const mlx5_driver* driver = nullptr;
    if (auto found = mlx5_driver::of(*context); wanted.direct && found) driver = *found;
    auto made = std::make_shared<device>(std::move(context), *best, limits, driver);
    if (const int failed = made->events().failure(); failed != 0)
        return core::no_descriptor("for the RDMA device", failed);
    return made;
}

}  // namespace

device::device(context_handle context, const port_address& port, const ibv_device_attr& limits,
               const mlx5_driver* driver)
    : context_(std::move(context)),
      port_(port),
      limits_(limits),
      emulation_(emulation_of(*context_->device)),
      driver_(driver),
      events_(std::in_place, *context_) {}

result<std::shared_ptr<device>> device::open(const verbs_options& wanted, const std::string& near_host) {
    auto which = parse_wanted(wanted.device);
    if (!which) return which.error();
    if (!has_library())
        return error{status::unsupported, 0, "libibverbs.so.1 is not installed (Debian's package libibverbs1)"};
    ask_for_fork_support();
    const device_list list;
    if (list.devices.empty()) {
        if (const int failed = try_to_list_devices(); failed != 0)
            return core::no_descriptor("for the RDMA device", failed);
        return error{status::unsupported, errno,
                     "this machine has no RDMA device (ibv_devices lists none); tools/softnic emulates one"};
    }
    std::string reasons;
    std::shared_ptr<device> best;
    for (ibv_device* candidate : list.devices) {
        const std::string name = ibv_get_device_name(candidate);
        if (!which->name.empty() && which->name != name) continue;
        auto opened = open_port(*candidate, *which, wanted, near_host);
        if (opened.code() == status::invalid_argument || opened.code() == status::system_error) return opened.error();
        if (!opened)
            reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", name, opened.error().message);
        else if (!best || ((*opened)->port().holds_host && !best->port().holds_host))
            best = std::move(*opened);
    }
    if (best) return best;
    if (reasons.empty()) reasons = fmt::format("there is no RDMA device '{}'; ibv_devices lists them", which->name);
    return error{status::unsupported, 0, reasons};
}

std::string device::describe() const {
    return fmt::format("{} port {}, {} at {} (GID {}), MTU {}{}{}, queues driven {}", name(), port_.number,
                       port_.ethernet ? "RoCE" : fmt::format("InfiniBand LID {}", port_.lid), to_text(port_.gid),
                       port_.gid_index, mtu_bytes(port_.mtu), emulation_.empty() ? "" : ", ", emulation_,
                       driver_ != nullptr ? "directly" : "by libibverbs");
}

}  // namespace accel::verbs
