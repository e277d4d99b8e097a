// SPDX-License-Identifier: Apache-2.0
// Events of objects made by mlx5dv_devx_*, read from mlx5dv_devx_* channels. Runs under `softnic run`.
#include "devx_rig.hpp"

#include <cerrno>
#include <set>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace {

namespace st = accel::softnic::testing;
namespace prm = accel::softnic::devx;

constexpr std::uint16_t event_completion = 0x00;
constexpr auto with_data = static_cast<mlx5dv_devx_create_event_channel_flags>(0);

struct destroy_channel {
    void operator()(mlx5dv_devx_event_channel* of) const { mlx5dv_devx_destroy_event_channel(of); }
};
using channel_owner = std::unique_ptr<mlx5dv_devx_event_channel, destroy_channel>;

/// One event as it is read: the cookie, and the element of the device's event queue.
struct seen_event {
    std::uint64_t cookie;
    std::array<std::uint8_t, 64> element;

    [[nodiscard]] std::uint16_t type() const { return element[1]; }
    [[nodiscard]] std::uint32_t number(std::size_t place = 56) const {
        std::uint32_t value = 0;
        std::memcpy(&value, element.data() + place, sizeof value);
        return be32toh(value);
    }
};

struct devx_events : ::testing::Test, st::devx_ground {
    channel_owner channel = make_channel(with_data);
    st::devx_cq cq{context.get(), uar->page_id};
    st::devx_cq other_cq{context.get(), uar->page_id};
    st::devx_qp qp{context.get(), domain, *uar, cq, cq};
    st::devx_qp other{context.get(), domain, *uar, other_cq, other_cq};

    devx_events() {
        qp.connect(other.number(), 1);
        other.connect(qp.number(), 1);
    }
    channel_owner make_channel(mlx5dv_devx_create_event_channel_flags flags) const {
        return channel_owner(st::required(mlx5dv_devx_create_event_channel(context.get(), flags), "event channel"));
    }
    static int subscribe(const channel_owner& on, mlx5dv_devx_obj* to, std::uint16_t event, std::uint64_t cookie) {
        return mlx5dv_devx_subscribe_devx_event(on.get(), to, sizeof event, &event, cookie);
    }
    static bool is_readable(const channel_owner& of) {
        pollfd entry{of->fd, POLLIN, 0};
        return ::poll(&entry, 1, 0) == 1 && entry.revents == POLLIN;
    }
    /// Waits for it in the read.
    static seen_event read(const channel_owner& from) {
        seen_event seen{};
        const auto size =
            mlx5dv_devx_get_event(from.get(), reinterpret_cast<mlx5dv_devx_async_event_hdr*>(&seen), sizeof seen);
        EXPECT_EQ(size, static_cast<ssize_t>(sizeof seen)) << errno;
        return seen;
    }
    void write_from(st::devx_qp& whom, st::devx_cq& completes) {
        whom.post(write(0, 64));
        whom.ring();
        EXPECT_EQ(st::next_completion(completes).op_own >> 4, MLX5_CQE_REQ);
    }
};

TEST_F(devx_events, an_armed_queue_reports_one_completion_event_with_its_cookie) {
    ASSERT_EQ(subscribe(channel, cq.get(), event_completion, 0x1111), 0);
    ASSERT_EQ(subscribe(channel, other_cq.get(), event_completion, 0x2222), 0);
    EXPECT_FALSE(is_readable(channel));
    for (int round = 0; round < 20; ++round) {
        cq.arm(*uar);
        other_cq.arm(*uar);
        write_from(qp, cq);
        write_from(other, other_cq);
        std::set<std::uint64_t> cookies;
        for (int each = 0; each < 2; ++each) {
            const seen_event seen = read(channel);
            EXPECT_EQ(seen.type(), event_completion);
            EXPECT_EQ(seen.number(), seen.cookie == 0x1111 ? cq.number() : other_cq.number());
            cookies.insert(seen.cookie);
        }
        EXPECT_EQ(cookies, (std::set<std::uint64_t>{0x1111, 0x2222}));
        write_from(qp, cq);
        EXPECT_FALSE(is_readable(channel)) << "not armed again";
    }
}

TEST_F(devx_events, a_non_blocking_channel_is_waited_for_with_epoll) {
    ASSERT_EQ(::fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
    const int set = ::epoll_create1(EPOLL_CLOEXEC);
    epoll_event wish{};
    wish.events = EPOLLIN;
    ASSERT_EQ(::epoll_ctl(set, EPOLL_CTL_ADD, channel->fd, &wish), 0);
    ASSERT_EQ(subscribe(channel, cq.get(), event_completion, 1), 0);
    epoll_event found{};
    EXPECT_EQ(::epoll_wait(set, &found, 1, 0), 0);
    seen_event seen{};
    auto* header = reinterpret_cast<mlx5dv_devx_async_event_hdr*>(&seen);
    EXPECT_EQ(mlx5dv_devx_get_event(channel.get(), header, sizeof seen), -1);
    EXPECT_EQ(errno, EAGAIN);
    cq.arm(*uar);
    write_from(qp, cq);
    EXPECT_TRUE(st::wait_until([&] { return ::epoll_wait(set, &found, 1, 0) == 1; }));
    EXPECT_EQ(mlx5dv_devx_get_event(channel.get(), header, 71), -1) << "no room for the event";
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(mlx5dv_devx_get_event(channel.get(), header, sizeof seen), static_cast<ssize_t>(sizeof seen));
    EXPECT_EQ(mlx5dv_devx_get_event(channel.get(), header, sizeof seen), -1);
    EXPECT_EQ(::epoll_wait(set, &found, 1, 0), 0);
    ::close(set);
}

TEST_F(devx_events, an_eventfd_is_signalled_though_the_program_closed_its_own) {
    const int signal = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    const int kept = ::dup(signal);
    ASSERT_EQ(mlx5dv_devx_subscribe_devx_event_fd(channel.get(), signal, cq.get(), event_completion), 0);
    ::close(signal);
    for (int each = 0; each < 3; ++each) {
        cq.arm(*uar);
        write_from(qp, cq);
    }
    std::uint64_t count = 0;
    EXPECT_TRUE(st::wait_until([&] {
        std::uint64_t more = 0;
        if (::read(kept, &more, sizeof more) == static_cast<ssize_t>(sizeof more)) count += more;
        return count == 3;
    }));
    EXPECT_FALSE(is_readable(channel));
    ::close(kept);
}

}  // namespace
