// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "conformance/verbs_way.hpp"
#include "core/backend.hpp"
#include "core/context_state.hpp"
#include "core/protocol.hpp"
#include "patience.hpp"

#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

/// Both ends of rdma links in one thread, below the core, on whatever RDMA device there is.
namespace accel::rdma::testing {

using core::event_kind;
using core::link_event;
using core::message_kind;
using core::slot_header;
using tests::eventually;
using tests::patience;
using namespace std::chrono_literals;

inline constexpr core::link_geometry small{4, 4096, 4096};

inline std::shared_ptr<core::slot_memory> make_slots(std::uint32_t count, std::size_t capacity) {
    return core::slot_memory::create(count, capacity).value();
}

inline std::vector<std::byte> pattern(std::size_t size, unsigned seed) {
    std::vector<std::byte> out(size);
    for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<std::byte>((i * 7 + seed * 31 + i / 251) & 0xff);
    return out;
}

class rdma_test : public ::testing::Test {
  protected:
    struct pair {
        std::unique_ptr<core::poller> client_events;
        std::unique_ptr<core::link> client;
        std::unique_ptr<core::link> server;

        pair() = default;
        pair(pair&&) = default;
        pair& operator=(pair&&) = default;
        ~pair() {
            client.reset();
            server.reset();
        }
    };

    [[nodiscard]] std::unique_ptr<core::poller> open_poller(core::link_role role, const verbs_options& options = {}) {
        core::poller_options wanted;
        wanted.role = role;
        wanted.host = "127.0.0.1";
        wanted.verbs = options;
        wanted.verbs.direct = options.direct && tests::drives_directly();
        auto opened = backend->open_poller(wanted);
        if (!opened) throw std::runtime_error(opened.error().message);
        return std::move(*opened);
    }
    void listen() { server_events = open_poller(core::link_role::server); }

    [[nodiscard]] static core::link_config config_of(core::link_role role, core::link_geometry shape,
                                                     void* owner = nullptr) {
        core::link_config config;
        config.role = role;
        config.geometry = shape;
        config.owner = owner;
        const bool server = role == core::link_role::server;
        config.send = make_slots(shape.slots, server ? shape.response_bytes : shape.request_bytes);
        config.receive = make_slots(shape.slots, server ? shape.request_bytes : shape.response_bytes);
        return config;
    }
    /// A server's link to the peer that `description` is of.
    [[nodiscard]] result<std::unique_ptr<core::link>> accept(const core::link_description& description,
                                                             core::link_geometry shape, void* owner = nullptr) {
        auto link = server_events->open_link(config_of(core::link_role::server, shape, owner));
        if (!link) return link.error();
        if (auto attached = (*link)->attach({1, {}, {}, description}, core::never); !attached) return attached.error();
        (*link)->activate();
        return std::move(*link);
    }
    [[nodiscard]] pair connect(core::link_geometry shape = small, const verbs_options& options = {}) {
        pair made;
        made.client_events = open_poller(core::link_role::client, options);
        made.client = made.client_events->open_link(config_of(core::link_role::client, shape)).value();
        made.server = accept(made.client->describe(), shape).value();
        const auto attached =
            made.client->attach({1, {}, "127.0.0.1", made.server->describe()}, core::deadline_after(patience(5s)));
        if (!attached) throw std::runtime_error(attached.error().message);
        made.client->activate();
        return made;
    }

    static slot_header& header_in(core::link& link, message_kind kind, std::uint32_t slot, std::size_t length) {
        auto& header = *new (link.send().header(slot)) slot_header;
        header.kind = kind;
        header.slot = slot;
        header.generation = 1;
        header.length = length;
        header.response_room = kind == message_kind::request ? 4096 : 0;
        return header;
    }
    /// Writes header and payload into the slot and hands it over.
    static status send(core::link& link, message_kind kind, std::uint32_t slot, std::span<const std::byte> payload,
                       const slice& into = {}) {
        header_in(link, kind, slot, payload.size());
        std::byte* to = link.send().payload(slot);
        std::copy(payload.begin(), payload.end(), to);
        if (into.empty()) return link.deliver_plain(slot, {to, payload.size()});
        return link.deliver({slot, {to, payload.size()}, nullptr, into});
    }
    static status send_lent(core::link& link, message_kind kind, std::uint32_t slot, const slice& payload) {
        header_in(link, kind, slot, payload.size());
        return link.deliver({slot, payload.bytes(), payload.region(), {}});
    }

    /// The next event; throws if there is none in time.
    [[nodiscard]] static link_event next(core::poller& events, core::nanoseconds bound = patience(5s)) {
        std::array<link_event, 16> some;
        if (!eventually(
                bound, [&] { return events.poll(std::span{some}.first(1)) > 0; }, 50us))
            throw std::runtime_error("no event");
        return some[0];
    }
    [[nodiscard]] static bool silent(core::poller& events) {
        std::array<link_event, 16> some;
        return !tests::within(100ms, [&] { return events.poll(some) > 0; });
    }
    static void expect_payload(const link_event& event, std::span<const std::byte> wanted) {
        ASSERT_EQ(event.kind, event_kind::arrived) << to_string(event.reason);
        ASSERT_EQ(event.payload.size(), wanted.size());
        EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), event.payload.begin()));
    }

    std::shared_ptr<core::context_state> context = std::make_shared<core::context_state>();
    core::backend* backend = context->find_backend("rdma");
    std::unique_ptr<core::poller> server_events;
};

}  // namespace accel::rdma::testing
