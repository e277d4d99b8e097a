// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/tcp/poller.hpp"
#include "backends/tcp/wire.hpp"
#include "control_fixture.hpp"
#include "core/backend.hpp"
#include "core/clock.hpp"
#include "core/control/data_preamble.hpp"
#include "core/control/listener.hpp"
#include "core/control/security.hpp"
#include "core/net/socket.hpp"
#include "core/tls/tls_stream.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

/// Both ends of tcp links in one thread, below the core.
namespace accel::tcp::testing {

using core::event_kind;
using core::link_event;
using core::message_kind;
using core::slot_header;
using namespace std::chrono_literals;

inline constexpr auto patience = 20s;

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
    return std::move(made).value();
}

/// Who the two ends are, and what they want of encryption. Null: no keys.
struct world_security {
    std::shared_ptr<core::live_security> server;
    std::shared_ptr<const core::security_identity> client;
    std::shared_ptr<core::testing::key_folder> files;
};

inline world_security with_keys(encryption at_server, encryption at_client) {
    auto keys = std::make_shared<core::testing::key_folder>();
    security_options server = keys->server();
    security_options client = keys->client();
    server.encrypt = at_server;
    client.encrypt = at_client;
    auto loaded = core::live_security::of_server(server);
    auto opened = core::load_client_security(client);
    EXPECT_TRUE(loaded.ok() && opened.ok());
    return {*loaded, *opened, keys};
}

/// With `ACCEL_TEST_ENCRYPT` every link that does not say otherwise is encrypted.
inline world_security usual_security() {
    static const world_security usual = std::getenv("ACCEL_TEST_ENCRYPT") == nullptr
                                            ? world_security{}
                                            : with_keys(encryption::required, encryption::required);
    return usual;
}

inline std::unique_ptr<core::poller> make_poller(core::link_role role, const std::string& host = "127.0.0.1",
                                                 const std::shared_ptr<const core::security_identity>& security = {}) {
    core::poller_options options;
    options.role = role;
    options.host = host;
    options.security = security;
    auto made = tcp_poller::open(options);
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
    return made.ok() ? std::move(made).value() : nullptr;
}

/// One end: its link, and what it has seen.
struct end {
    std::unique_ptr<core::poller> events;  ///< a client's own; outlives the link
    std::unique_ptr<core::link> path;
    std::vector<link_event> arrived;
    std::vector<std::uint32_t> released;
    std::vector<status> lost;
};

/// A region's address serves as a mark only; nothing reads through it.
inline const core::region_state* some_region() {
    static const int mark = 0;
    return reinterpret_cast<const core::region_state*>(&mark);
}

/// As every client's link describes itself.
inline core::link_description client_words(bool encrypted = false) {
    client_wish wish;
    wish.flags = encrypted ? client_wish::encrypted : 0;
    core::link_description out(sizeof wish);
    std::memcpy(out.data(), &wish, sizeof wish);
    return out;
}

struct pair_options {
    std::uint32_t slots = 8;
    std::size_t request_bytes = 1 << 20;
    std::size_t response_bytes = 1 << 20;
    bool zerocopy = false;
};

inline core::link_config make_config(core::link_role role, const pair_options& options, std::uint64_t session,
                                     end& owner) {
    core::link_config config;
    config.role = role;
    config.geometry = {options.slots, options.request_bytes, options.response_bytes};
    config.owner = &owner;
    const bool server = role == core::link_role::server;
    config.send = make_slots(options.slots, server ? options.response_bytes : options.request_bytes);
    config.receive = make_slots(options.slots, server ? options.request_bytes : options.response_bytes);
    config.session_id = server ? session : 0;
    if (server) config.token.fill(std::byte{0x5a});
    config.zerocopy = options.zerocopy;
    return config;
}

/// Stands for a server: its control plane takes data connections in, which this passes on.
class front_door : public core::testing::fake_host {
  public:
    front_door(const std::string& host, core::poller& behind, std::shared_ptr<core::live_security> security)
        : behind_(behind) {
        if (security == nullptr) security = core::live_security::of_server(core::testing::insecure()).value();
        auto opened = core::control_server::listen(host, 0, std::move(security), 1h, *this);
        EXPECT_TRUE(opened.ok());
        server_ = std::move(*opened);
    }
    std::optional<core::session_token> token_of(std::uint64_t) const override {
        core::session_token all{};
        all.fill(std::byte{0x5a});
        return all;
    }
    result<void> take_connection(core::data_connection& made, const core::client_identity&) override {
        return behind_.take_connection(made);
    }
    [[nodiscard]] std::uint16_t port() const { return server_->port(); }

  private:
    core::poller& behind_;
    std::unique_ptr<core::control_server> server_;
};

/// A server's poller and links, and clients (one poller each) connected to it.
class tcp_world {
  public:
    explicit tcp_world(const std::string& host = "127.0.0.1", const world_security& security = usual_security())
        : host_(host),
          security_(security),
          server_poller(
              make_poller(core::link_role::server, host, security.server ? security.server->current() : nullptr)),
          door(host, *server_poller, security.server) {}

    struct connection {
        std::unique_ptr<end> client = std::make_unique<end>();
        std::unique_ptr<end> server = std::make_unique<end>();
    };

    /// A server's link that waits for its client.
    std::unique_ptr<end> open_server(const pair_options& options, std::uint64_t session) {
        auto made = std::make_unique<end>();
        auto link = server_poller->open_link(make_config(core::link_role::server, options, session, *made));
        EXPECT_TRUE(link.ok());
        made->path = std::move(link).value();
        const bool encrypted = security_.client != nullptr && security_.client->encrypts();
        EXPECT_TRUE(made->path->attach({session, {}, {}, client_words(encrypted)}, core::never).ok());
        made->path->activate();
        return made;
    }

    /// `through`: the port that it is reached by; 0: its own.
    connection connect(const pair_options& options = {}, std::uint16_t through = 0) {
        connection made;
        const std::uint64_t session = ++sessions_;
        made.server = open_server(options, session);
        made.client->events = make_poller(core::link_role::client, {}, security_.client);
        auto link =
            made.client->events->open_link(make_config(core::link_role::client, options, session, *made.client));
        EXPECT_TRUE(link.ok());
        made.client->path = std::move(link).value();
        core::link_grant grant{session, {}, host_, {}, through == 0 ? door.port() : through, host_};
        grant.token.fill(std::byte{0x5a});
        auto attached = made.client->path->attach(grant, core::deadline_after(5s));
        EXPECT_TRUE(attached.ok()) << (attached.ok() ? "" : attached.error().message);
        made.client->path->activate();
        return made;
    }

    static void take(core::poller& poller) {
        std::array<link_event, 16> events;
        const std::size_t count = poller.poll(events);
        for (std::size_t i = 0; i < count; ++i) {
            end& owner = *static_cast<end*>(events[i].owner);
            switch (events[i].kind) {
                case event_kind::arrived:
                    owner.arrived.push_back(events[i]);
                    break;
                case event_kind::buffer_released:
                    owner.released.push_back(events[i].header.slot);
                    break;
                case event_kind::lost:
                    owner.lost.push_back(events[i].reason);
                    break;
            }
        }
    }

    /// Polls both ends until `done`, or the test fails.
    template <class Done>
    void run(std::initializer_list<connection*> connections, Done done) {
        const core::nanoseconds deadline = core::deadline_after(patience);
        while (!done()) {
            ASSERT_LT(core::now(), deadline) << "nothing happened in time";
            take(*server_poller);
            for (connection* c : connections) take(*c->client->events);
        }
    }

    void run_for(connection& c, std::chrono::milliseconds time) {
        const core::nanoseconds deadline = core::deadline_after(time);
        run({&c}, [&] { return core::now() >= deadline; });
    }

  private:
    std::string host_;
    world_security security_;
    std::uint64_t sessions_ = 0;

  public:
    std::unique_ptr<core::poller> server_poller;
    front_door door;
};

/// Writes the header and, where the payload is not lent, the payload into the slot, and delivers it.
inline status send_message(core::link& path, message_kind kind, std::uint32_t slot, std::uint32_t generation,
                           std::span<const std::byte> payload, const core::region_state* lent = nullptr,
                           slice into = {}) {
    slot_header h;
    h.kind = kind;
    h.slot = slot;
    h.generation = generation;
    h.length = payload.size();
    std::memcpy(path.send().header(slot), &h, sizeof h);
    if (lent == nullptr) {
        if (!payload.empty()) std::memcpy(path.send().payload(slot), payload.data(), payload.size());
        payload = {path.send().payload(slot), payload.size()};
    }
    return path.deliver({slot, payload, lent, into});
}

inline bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

}  // namespace accel::tcp::testing
