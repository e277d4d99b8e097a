// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/zmq/description.hpp"
#include "backends/zmq/message.hpp"
#include "core/control/security.hpp"
#include "core/registry.hpp"
#include "unit/control_fixture.hpp"

#include <cstring>
#include <random>

#include <poll.h>

/// Both ends of zmq links in one thread, below the core.
namespace accel::zmq::testing {

using core::event_kind;
using core::link_event;
using core::message_kind;
using core::slot_header;
using core::testing::log_capture;
using core::testing::open_descriptors;
using core::testing::patience;
using tests::eventually;
using namespace std::chrono_literals;

inline std::vector<std::byte> random_bytes(std::size_t size, std::uint32_t seed) {
    std::vector<std::byte> out(size);
    std::minstd_rand generator(seed + 1);
    for (std::size_t i = 0; i < size; i += 4) {
        const auto word = static_cast<std::uint32_t>(generator());
        std::memcpy(out.data() + i, &word, std::min<std::size_t>(4, size - i));
    }
    return out;
}

inline std::shared_ptr<core::slot_memory> make_slots(std::uint32_t count, std::size_t capacity) {
    auto made = core::slot_memory::create(count, capacity);
    EXPECT_TRUE(made.ok());
    return made.ok() ? *made : nullptr;
}

/// The server's poller, and links that are opened as the core does it.
class zmq_test : public ::testing::Test {
  protected:
    struct pair {
        std::unique_ptr<core::poller> client_events;
        std::unique_ptr<core::link> client;
        std::unique_ptr<core::link> server;
        core::session_token token{};

        pair() = default;
        pair(pair&&) = default;
        pair& operator=(pair&&) = default;
        ~pair() {
            client.reset();
            server.reset();
        }
    };

    [[nodiscard]] static std::shared_ptr<const core::security_identity> security(bool insecure) {
        auto made = std::make_shared<core::security_identity>();
        made->options.insecure = insecure;
        return made;
    }

    /// With `insecure` by PLAIN, else by CURVE.
    void listen(bool insecure = true) {
        plain = insecure;
        core::poller_options options;
        options.role = core::link_role::server;
        options.host = "127.0.0.1";
        options.security = security(insecure);
        options.max_request_bytes = largest_request;
        auto opened = backend->open_poller(options);
        ASSERT_TRUE(opened.ok()) << opened.error().message;
        server_events = std::move(*opened);
    }

    [[nodiscard]] std::unique_ptr<core::link> open_server_link(core::link_geometry geometry,
                                                               const core::session_token& token, void* owner,
                                                               const core::link_description& client) {
        core::link_config config;
        config.role = core::link_role::server;
        config.geometry = geometry;
        config.owner = owner;
        config.receive = make_slots(geometry.slots, geometry.request_bytes);
        config.send = make_slots(geometry.slots, geometry.response_bytes);
        config.token = token;
        auto link = server_events->open_link(config);
        EXPECT_TRUE(link.ok());
        EXPECT_TRUE((*link)->attach({0, token, {}, client}, core::never).ok());
        return std::move(*link);
    }
    /// For a client without keys.
    [[nodiscard]] std::unique_ptr<core::link> open_server_link(core::link_geometry geometry,
                                                               const core::session_token& token, void* owner) {
        return open_server_link(geometry, token, owner, encode(client_description{}));
    }

    /// A client's poller and link; not attached.
    [[nodiscard]] pair open_client(core::link_geometry geometry) {
        pair made;
        core::poller_options options;
        options.security = security(plain);
        auto events = backend->open_poller(options);
        EXPECT_TRUE(events.ok());
        made.client_events = std::move(*events);
        core::link_config config;
        config.geometry = geometry;
        config.send = make_slots(geometry.slots, geometry.request_bytes);
        config.receive = make_slots(geometry.slots, geometry.response_bytes);
        auto link = made.client_events->open_link(config);
        EXPECT_TRUE(link.ok());
        made.client = std::move(*link);
        return made;
    }
    [[nodiscard]] static result<void> attach(const pair& both, const core::link_description& server,
                                             core::nanoseconds within = patience) {
        return both.client->attach({0, both.token, "127.0.0.1", server, 0, "127.0.0.1"}, core::deadline_after(within));
    }

    [[nodiscard]] pair open(core::link_geometry geometry, std::uint8_t number = 1, void* owner = nullptr) {
        pair made = open_client(geometry);
        made.token.fill(std::byte{number});
        made.server = open_server_link(geometry, made.token, owner, made.client->describe());
        made.server->activate();
        auto attached = attach(made, made.server->describe());
        EXPECT_TRUE(attached.ok()) << attached.error().message;
        made.client->activate();
        return made;
    }

    /// Writes header and payload into the slot and hands it over.
    static status send(core::link& link, message_kind kind, std::uint32_t slot, std::span<const std::byte> payload,
                       std::uint32_t generation = 1) {
        slot_header header;
        header.kind = kind;
        header.slot = slot;
        header.generation = generation;
        header.length = payload.size();
        std::memcpy(link.send().header(slot), &header, sizeof header);
        std::byte* to = link.send().payload(slot);
        if (!payload.empty()) std::memcpy(to, payload.data(), payload.size());
        return link.deliver({slot, {to, payload.size()}, nullptr, {}});
    }
    static status send_lent(core::link& link, message_kind kind, std::uint32_t slot, const slice& payload,
                            std::uint32_t generation = 1) {
        slot_header header;
        header.kind = kind;
        header.slot = slot;
        header.generation = generation;
        header.length = payload.size();
        std::memcpy(link.send().header(slot), &header, sizeof header);
        return link.deliver({slot, payload.bytes(), payload.region(), {}});
    }

    /// The next event; fails the test if there is none in time.
    [[nodiscard]] static link_event next(core::poller& events) {
        std::array<link_event, 16> some;
        std::size_t count = 0;
        EXPECT_TRUE(eventually([&] { return (count = events.poll(std::span{some}.first(1))) > 0; }));
        return some[0];
    }
    /// Whether nothing comes for a while.
    [[nodiscard]] static bool silent(core::poller& events) {
        std::array<link_event, 16> some;
        return !tests::within(100ms, [&] { return events.poll(some) > 0; });
    }
    static void expect_payload(const link_event& event, std::span<const std::byte> wanted) {
        ASSERT_EQ(event.kind, event_kind::arrived) << to_string(event.reason);
        ASSERT_EQ(event.header.length, wanted.size());
        ASSERT_EQ(event.payload.size(), wanted.size());
        EXPECT_TRUE(wanted.empty() || std::memcmp(event.payload.data(), wanted.data(), wanted.size()) == 0);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(event.payload.data()) % 8, 0U);
    }

    std::unique_ptr<core::backend> backend = make_backend();
    bool plain = true;
    std::size_t largest_request = 0;  ///< that may be granted; set before `listen`
    std::unique_ptr<core::poller> server_events;
};

}  // namespace accel::zmq::testing
