// SPDX-License-Identifier: Apache-2.0
// DevX event channels, and what a program subscribes to on them. The checks are those of the kernel's driver.
#include "abi/dispatch.hpp"

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>
#include <unistd.h>

namespace accel::softnic {
namespace {

constexpr std::size_t max_events_at_once = 16;

int create_event_channel(context& target, command& request) {
    constexpr std::uint64_t known = MLX5_IB_UAPI_DEVX_CR_EV_CH_FLAGS_OMIT_DATA;
    const auto flags = request.in<std::uint64_t>(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS);
    if ((flags & ~known) != 0) return EINVAL;
    auto channel = std::make_shared<event_channel>(flags != 0);
    request.out_descriptor(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE, channel->descriptor());
    target.devx_space.channels[channel->descriptor()] = std::move(channel);
    return 0;
}

/// Numbers that the driver knows: of events of objects, path migration and other kinds of queue included, or of the
/// device itself.
bool is_event(std::uint16_t number, bool of_object) {
    constexpr std::uint16_t of_objects[]{0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x07, 0x10,
                                         0x11, 0x12, 0x13, 0x14, 0x18, 0x1c, 0x1d};
    if (!of_object) return number == static_cast<std::uint16_t>(device_event::port_change);
    return std::find(std::begin(of_objects), std::end(of_objects), number) != std::end(of_objects);
}

int read_events(command& request, bool of_object, std::vector<std::uint16_t>& events) {
    const std::size_t size = request.in_size(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST);
    if (size % sizeof(std::uint16_t) != 0 || size / sizeof(std::uint16_t) > max_events_at_once) return EINVAL;
    events.resize(size / sizeof(std::uint16_t));
    request.in_bytes(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST, std::as_writable_bytes(std::span(events)));
    if (request.faulted()) return EFAULT;
    const bool all =
        std::all_of(events.begin(), events.end(), [&](auto number) { return is_event(number, of_object); });
    return all ? 0 : EINVAL;
}

/// Of an object made by DevX, or of the device.
int find_subscribers(context& target, command& request, std::shared_ptr<event_subscribers>& found) {
    auto& space = target.devx_space;
    if (!request.has(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE)) {
        if (!space.subscribers) {
            space.subscribers = std::make_shared<event_subscribers>();
            target.adapter().state.listeners.push_back({target.device_index(), nullptr, space.subscribers});
        }
        found = space.subscribers;
        return 0;
    }
    const auto object = space.objects.find(request.handle(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE));
    if (object == space.objects.end()) return ENOENT;
    found = object->second.subscribers;
    return 0;
}

bool is_eventfd(int descriptor) {
    char target[64]{};
    const std::string link = fmt::format("/proc/self/fd/{}", descriptor);
    return ::readlink(link.c_str(), target, sizeof target - 1) > 0 &&
           std::string_view(target).starts_with("anon_inode:[eventfd]");
}

/// A duplicate of the program's descriptor, so that it may close its own. -1: none is wanted.
int duplicate_eventfd(command& request, int& duplicate) {
    duplicate = -1;
    if (!request.has(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM)) return 0;
    if (request.has(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE)) return EINVAL;
    const auto given = static_cast<int>(request.in<std::uint32_t>(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM));
    duplicate = ::fcntl(given, F_DUPFD_CLOEXEC, 0);
    if (duplicate < 0) return errno;
    if (is_eventfd(duplicate)) return 0;
    ::close(duplicate);
    return EINVAL;
}

int subscribe(context& target, command& request) {
    auto& space = target.devx_space;
    if (!space.enabled) return EINVAL;
    const auto channel = space.channels.find(request.descriptor(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE));
    if (channel == space.channels.end()) return EBADF;
    std::vector<std::uint16_t> events;
    const bool of_object = request.has(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE);
    if (const int problem = read_events(request, of_object, events); problem != 0) return problem;
    std::shared_ptr<event_subscribers> whose;
    if (const int problem = find_subscribers(target, request, whose); problem != 0) return problem;
    const auto cookie = request.in<std::uint64_t>(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE);
    std::vector<std::shared_ptr<event_subscription>> wishes;
    for (const std::uint16_t number : events) {
        auto wish = std::make_shared<event_subscription>(static_cast<device_event>(number), channel->second, cookie);
        if (const int problem = duplicate_eventfd(request, wish->eventfd); problem != 0) return problem;
        wishes.push_back(std::move(wish));
    }
    for (auto& wish : wishes) whose->add(std::move(wish));
    return 0;
}

constexpr attribute_rule channel_rules[]{{MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE, true, 0},
                                         {MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS, true, 4}};
constexpr attribute_rule subscribe_rules[]{{MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE, true, 0},
                                           {MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE, false, 0},
                                           {MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST, true, 2},
                                           {MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM, false, 4},
                                           {MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE, false, 8}};

constexpr method_row event_method_rows[]{
    {MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC, "DEVX_ASYNC_EVENT_FD_ALLOC",
     channel_rules, create_event_channel},
    {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT, "DEVX_SUBSCRIBE_EVENT", subscribe_rules, subscribe},
};

}  // namespace

std::span<const method_row> event_methods() {
    return event_method_rows;
}

}  // namespace accel::softnic
