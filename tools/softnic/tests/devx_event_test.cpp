// SPDX-License-Identifier: Apache-2.0
// DevX event channels, and subscriptions: what is delivered, and what is refused.
#include "devx_fixture.hpp"
#include "model/event_channel.hpp"
#include "transport/completions.hpp"
#include "transport/wire.hpp"

#include <array>
#include <functional>
#include <optional>

#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/mlx5_user_ioctl_verbs.h>
#include <sys/eventfd.h>

namespace accel::softnic {
namespace {

using testing::devx_exchange;
using testing::devx_fixture;
using testing::ioctl_builder;

constexpr std::uint16_t event_completion = 0x00;
constexpr std::uint16_t event_port_change = 0x09;

bool is_readable(int descriptor) {
    pollfd entry{descriptor, POLLIN, 0};
    return ::poll(&entry, 1, 0) == 1;
}

/// What a program passes; absent values are left out.
struct wish {
    int channel = -1;
    std::optional<std::uint32_t> object;
    std::vector<std::uint16_t> events = {event_completion};
    std::optional<std::uint64_t> cookie;
    std::optional<std::uint32_t> eventfd;
};

struct devx_channels : devx_fixture {
    devx_exchange queue = cq_command();
    std::vector<int> opened;

    devx_channels() { EXPECT_EQ(create(queue), 0); }
    ~devx_channels() override {
        for (const int each : opened) ::close(each);
    }
    int open_channel(std::uint32_t flags, int& descriptor) {
        ioctl_builder command(MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC);
        command.handle(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE)
            .in(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS, flags);
        const int result = call(command);
        if (result != 0) return result;
        descriptor = static_cast<int>(command.result(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE));
        opened.push_back(descriptor);
        return 0;
    }
    int channel_with(std::uint32_t flags) {
        int descriptor = -1;
        EXPECT_EQ(open_channel(flags, descriptor), 0);
        return descriptor;
    }
    int subscribe(const wish& what) {
        ioctl_builder command(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT);
        command.handle(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE, static_cast<std::uint64_t>(what.channel));
        if (what.object) command.handle(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE, *what.object);
        const std::size_t size = what.events.size() * sizeof(std::uint16_t);
        std::uint64_t data = 0;
        if (size > sizeof data)
            data = reinterpret_cast<std::uint64_t>(what.events.data());
        else
            std::memcpy(&data, what.events.data(), size);
        command.raw(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST, static_cast<std::uint16_t>(size), data);
        if (what.cookie) command.in(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE, *what.cookie);
        if (what.eventfd) command.in(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM, *what.eventfd);
        return call(command);
    }
    [[nodiscard]] wish about_queue(int channel, std::uint64_t cookie) const {
        return {channel, queue.handle, {event_completion}, cookie, std::nullopt};
    }
    /// An event of the queue's number.
    void raise(device_event what) {
        target.devx_space.objects.at(queue.handle).subscribers->raise({what, queue.object()});
    }
    struct seen {
        ssize_t result = 0;
        std::uint64_t cookie = 0;
        std::array<std::byte, 64> element{};
    };
    seen read(int channel, std::size_t room = event_channel::event_bytes) {
        std::array<std::byte, event_channel::event_bytes> bytes{};
        seen out;
        out.result = target.find_event_channel(channel)->read(std::span(bytes).first(room));
        std::memcpy(&out.cookie, bytes.data(), sizeof out.cookie);
        std::memcpy(out.element.data(), bytes.data() + sizeof out.cookie, out.element.size());
        return out;
    }
};

TEST_F(devx_channels, an_event_comes_with_the_cookie_of_each_subscription) {
    const int channel = channel_with(0);
    ASSERT_EQ(subscribe(about_queue(channel, 11)), 0);
    ASSERT_EQ(subscribe(about_queue(channel, 22)), 0);
    EXPECT_EQ(read(channel).result, -EAGAIN);
    EXPECT_FALSE(is_readable(channel));
    raise(device_event::completion);
    raise(device_event::completion_queue_error);  // nobody asked
    EXPECT_TRUE(is_readable(channel));
    const seen first = read(channel);
    EXPECT_EQ(first.result, 72);
    EXPECT_EQ(first.cookie, 11u);
    EXPECT_EQ(first.element[1], std::byte{0});
    EXPECT_EQ(first.element[59], static_cast<std::byte>(queue.object()));
    EXPECT_TRUE(is_readable(channel));
    EXPECT_EQ(read(channel).cookie, 22u);
    EXPECT_FALSE(is_readable(channel));
    EXPECT_EQ(read(channel).result, -EAGAIN);
}

TEST_F(devx_channels, an_event_stays_until_there_is_room_for_it) {
    const int channel = channel_with(0);
    ASSERT_EQ(subscribe(about_queue(channel, 11)), 0);
    raise(device_event::completion);
    EXPECT_EQ(read(channel, 71).result, -EINVAL);
    EXPECT_EQ(read(channel, 0).result, -EINVAL);
    EXPECT_EQ(read(channel).result, 72);
    const int terse = channel_with(MLX5_IB_UAPI_DEVX_CR_EV_CH_FLAGS_OMIT_DATA);
    ASSERT_EQ(subscribe(about_queue(terse, 33)), 0);
    raise(device_event::completion);
    raise(device_event::completion);
    EXPECT_EQ(read(terse, 7).result, -EINVAL);
    EXPECT_EQ(read(terse, 8).result, 8);
    EXPECT_EQ(read(terse).result, -EAGAIN) << "two have become one";
    raise(device_event::completion);
    EXPECT_EQ(read(terse).cookie, 33u);
}

TEST_F(devx_channels, unread_events_are_lost_and_that_is_logged_once) {
    const int channel = channel_with(0);
    ASSERT_EQ(subscribe(about_queue(channel, 1)), 0);
    for (std::size_t count = 0; count < event_channel::max_waiting + 5; ++count) raise(device_event::completion);
    EXPECT_EQ(read(channel).result, -EOVERFLOW);
    for (std::size_t count = 0; count < event_channel::max_waiting; ++count) ASSERT_EQ(read(channel).result, 72);
    EXPECT_EQ(read(channel).result, -EAGAIN);
    EXPECT_FALSE(is_readable(channel));
}

TEST_F(devx_channels, events_outlive_their_object_but_not_the_channel_or_the_device) {
    const int channel = channel_with(MLX5_IB_UAPI_DEVX_CR_EV_CH_FLAGS_OMIT_DATA);
    const int closed = channel_with(0);
    ASSERT_EQ(subscribe(about_queue(channel, 5)), 0);
    ASSERT_EQ(subscribe(about_queue(closed, 6)), 0);
    const auto kept = target.find_event_channel(closed);
    raise(device_event::completion);
    EXPECT_EQ(destroy(queue.handle), 0);
    EXPECT_EQ(read(channel).cookie, 5u);
    EXPECT_TRUE(target.forget_descriptor(closed));
    EXPECT_FALSE(target.forget_descriptor(closed));
    EXPECT_EQ(target.find_event_channel(closed), nullptr);
    std::array<std::byte, event_channel::event_bytes> bytes{};
    EXPECT_EQ(kept->read(bytes), -EAGAIN);
    const auto last = target.find_event_channel(channel);
    last->abandon();
    EXPECT_EQ(last->read(bytes), -EIO);
    EXPECT_TRUE(is_readable(channel)) << "who waits for it hears that the device is gone";
}

TEST_F(devx_channels, an_invalid_subscription_changes_nothing) {
    const int channel = channel_with(0);
    const auto refused = [&](auto change) {
        wish what = about_queue(channel, 1);
        change(what);
        return subscribe(what);
    };
    EXPECT_EQ(refused([](wish& what) { what.channel = 9999; }), EBADF);
    EXPECT_EQ(refused([&](wish& what) { what.channel = file; }), EBADF) << "open, but not a channel";
    EXPECT_EQ(refused([](wish& what) { what.object = 9999; }), ENOENT);
    EXPECT_EQ(refused([&](wish& what) { what.object = umem; }), ENOENT) << "not an object that commands made";
    EXPECT_EQ(refused([](wish& what) { what.events = {event_completion, 0x66}; }), EINVAL);
    EXPECT_EQ(refused([](wish& what) { what.events = {0xffff}; }), EINVAL);
    EXPECT_EQ(refused([](wish& what) { what.events.assign(17, event_completion); }), EINVAL);
    EXPECT_EQ(refused([](wish& what) { what.events.clear(); }), EINVAL);
    EXPECT_EQ(refused([](wish& what) { what.events = {event_port_change}; }), EINVAL)
        << "of the device, not of an object";
    EXPECT_EQ(refused([](wish& what) { what.object.reset(); }), EINVAL) << "of an object, not of the device";
    EXPECT_EQ(refused([](wish& what) { what.eventfd = 0; }), EINVAL) << "cookie and eventfd";
    const auto with_eventfd = [&](std::uint32_t descriptor) {
        return refused([&](wish& what) {
            what.cookie.reset();
            what.eventfd = descriptor;
        });
    };
    EXPECT_EQ(with_eventfd(9999), EBADF);
    EXPECT_EQ(with_eventfd(static_cast<std::uint32_t>(file)), EINVAL) << "not an eventfd";
    EXPECT_TRUE(target.devx_space.objects.at(queue.handle).subscribers->empty());
    EXPECT_EQ(refused([](wish& what) { what.events.assign(16, event_completion); }), 0);
    target.devx_space.enabled = false;
    EXPECT_EQ(refused([](wish&) {}), EINVAL);
    int descriptor = -1;
    EXPECT_EQ(open_channel(2, descriptor), EINVAL) << "an unknown flag";
}

TEST_F(devx_channels, an_eventfd_counts_and_a_full_one_blocks_nothing) {
    const int channel = channel_with(0);
    const int signal = ::eventfd(0, EFD_CLOEXEC);
    wish what{channel, queue.handle, {event_completion}, std::nullopt, static_cast<std::uint32_t>(signal)};
    ASSERT_EQ(subscribe(what), 0);
    raise(device_event::completion);
    raise(device_event::completion);
    std::uint64_t count = 0;
    ASSERT_EQ(::read(signal, &count, sizeof count), static_cast<ssize_t>(sizeof count));
    EXPECT_EQ(count, 2u);
    EXPECT_EQ(read(channel).result, -EAGAIN);
    const std::uint64_t full = ~std::uint64_t{0} - 1;
    ASSERT_EQ(::write(signal, &full, sizeof full), static_cast<ssize_t>(sizeof full));
    raise(device_event::completion);
    EXPECT_TRUE(target.forget_descriptor(channel));
    ASSERT_EQ(::read(signal, &count, sizeof count), static_cast<ssize_t>(sizeof count));
    raise(device_event::completion);
    EXPECT_FALSE(is_readable(signal)) << "the subscription went with its channel";
    ::close(signal);
}

TEST_F(devx_channels, ports_going_down_and_up_are_events_of_the_device) {
    const int channel = channel_with(0);
    wish what{channel, std::nullopt, {event_port_change}, 77, std::nullopt};
    ASSERT_EQ(subscribe(what), 0);
    wire::set_port(on.adapter.state, {0, 1}, false, 0);
    wire::set_port(on.adapter.state, {0, 1}, true, 0);
    const seen down = read(channel);
    EXPECT_EQ(down.cookie, 77u);
    EXPECT_EQ(down.element[1], std::byte{event_port_change});
    EXPECT_EQ(down.element[3], std::byte{1}) << "down";
    EXPECT_EQ(down.element[40], std::byte{0x10}) << "port 1";
    EXPECT_EQ(read(channel).element[3], std::byte{4}) << "active";
}

/// What an element of the device's event queue says: the event, and the number of who had it.
TEST_F(devx_channels, what_happens_to_an_object_is_an_event_of_its_subscribers) {
    auto pair = qp_command(queue.object());
    ASSERT_EQ(create(pair), 0);
    queue_pair& qp = *target.own_device().find_queue_pair(pair.object());
    completion_queue& of_qp = *target.cqs.at(queue.handle);
    receive_queue_options ring;
    ring.doorbell_record = std::uint64_t{4096};  // not mapped
    ring.entries = 4;
    ring.stride_shift = 5;
    shared_receive_queue receives({9, pd, 0, 1, nullptr, qp.options.subscribers}, ring);
    receive_request out;
    const auto raised = [&](int event) {
        return [&qp, event] { completions::raise_event(qp, static_cast<std::uint32_t>(event)); };
    };
    struct row {
        std::uint8_t event;
        std::uint32_t number;
        std::function<void()> happens;
        std::size_t place = 59;
    };
    const int channel = channel_with(0);
    for (const auto& [event, number, happens, place] :
         {row{0x02, qp.number, raised(IBV_EVENT_COMM_EST)}, row{0x03, qp.number, raised(IBV_EVENT_SQ_DRAINED)},
          row{0x13, qp.number, raised(IBV_EVENT_QP_LAST_WQE_REACHED)}, row{0x05, qp.number, raised(IBV_EVENT_QP_FATAL)},
          row{0x10, qp.number, raised(IBV_EVENT_QP_REQ_ERR)}, row{0x11, qp.number, raised(IBV_EVENT_QP_ACCESS_ERR)},
          row{0x12, 9, [&] { EXPECT_EQ(receives.take(out), take_status::unreachable); }},
          row{0x04, of_qp.number(), [&] { of_qp.fail(); }, 35}}) {
        SCOPED_TRACE(int{event});
        const std::uint32_t handle = event == 0x04 ? queue.handle : pair.handle;
        ASSERT_EQ(subscribe({channel, handle, {event}, event, std::nullopt}), 0);
        happens();
        const seen one = read(channel);
        EXPECT_EQ(one.result, 72);
        EXPECT_EQ(one.cookie, event);
        EXPECT_EQ(one.element[1], std::byte{event});
        EXPECT_EQ(one.element[place], static_cast<std::byte>(number));
        if (event != 0x04 && event != 0x12) continue;
        happens();
        EXPECT_EQ(read(channel).result, -EAGAIN) << "told once";
    }
}

}  // namespace
}  // namespace accel::softnic
