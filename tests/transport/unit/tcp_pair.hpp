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
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

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

inline std::size_t open_descriptors() {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
    return count;
}

inline std::shared_ptr<core::slot_memory> make_slots(std::uint32_t count, std::size_t capacity) {
    auto made = core::slot_memory::create(count, capacity);
    EXPECT_TRUE(made.ok());
    return std::move(made).value();
}

/// Who the two ends are, and what they want of encryption. Null: no keys.
struct world_security {
    std::shared_ptr<const core::security_identity> server;
    std::shared_ptr<const core::security_identity> client;
};

inline world_security with_keys(encryption at_server, encryption at_client) {
    const core::testing::key_folder keys;
    security_options server = keys.server();
    security_options client = keys.client();
    server.encrypt = at_server;
    client.encrypt = at_client;
    auto loaded = core::live_security::of_server(server);
    auto opened = core::load_client_security(client);
    EXPECT_TRUE(loaded.ok() && opened.ok());
    return {(*loaded)->current(), *opened};
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

/// Stands for the control plane: takes data connections in and passes them on, on a thread of its own.
class front_door {
  public:
    front_door(const std::string& host, core::poller& behind, std::shared_ptr<const core::security_identity> security)
        : behind_(behind), security_(std::move(security)) {
        auto opened = core::listener::open(host, 0);
        EXPECT_TRUE(opened.ok());
        door_.emplace(std::move(*opened));
        thread_ = std::thread([this] { run(); });
    }
    ~front_door() {
        stopping_ = true;
        wake_.set();
        thread_.join();
    }
    [[nodiscard]] std::uint16_t port() const { return door_->port(); }

  private:
    struct half_open {
        core::unique_fd socket;
        std::vector<std::byte> bytes;
        std::shared_ptr<core::tls_stream> tls;
    };

    void run() {
        std::vector<half_open> waiting;
        while (!stopping_) {
            std::vector<pollfd> items{{wake_.fd(), POLLIN, 0}, {door_->fd(), POLLIN, 0}};
            for (const half_open& each : waiting) items.push_back({each.socket.get(), POLLIN, 0});
            ::poll(items.data(), items.size(), 1000);
            for (half_open& each : waiting) read(each);
            std::erase_if(waiting, [](const half_open& each) { return !each.socket.open(); });
            core::unique_fd socket;
            while (door_->accept(socket) == core::listener::outcome::accepted)
                waiting.push_back({std::move(socket), {}, {}});
        }
    }
    /// False: the connection is of no use.
    [[nodiscard]] bool shake_hands(half_open& with) {
        if (with.tls == nullptr) {
            auto made = core::tls_stream::accept(security_->keys, with.socket.get());
            EXPECT_TRUE(made.ok());
            with.tls = std::make_shared<core::tls_stream>(std::move(*made));
        }
        const core::tls_outcome outcome = with.tls->handshake();
        return outcome == core::tls_outcome::done || outcome == core::tls_outcome::wants_read;
    }
    [[nodiscard]] bool greets_with_tls(const half_open& from) const {
        std::byte first{};
        return security_ != nullptr && from.bytes.empty() &&
               ::recv(from.socket.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT) == 1 && first == core::tls_first_byte;
    }
    /// How many bytes came; 0: none for now; negative: there will be none.
    [[nodiscard]] static ssize_t read_some(half_open& from, std::span<std::byte> room) {
        if (from.tls == nullptr) {
            const ssize_t got = ::recv(from.socket.get(), room.data(), room.size(), MSG_DONTWAIT);
            return got > 0 ? got : (got < 0 ? 0 : -1);
        }
        std::size_t count = 0;
        const core::tls_outcome outcome = from.tls->read(room, count);
        const bool later = outcome == core::tls_outcome::wants_read;
        return outcome == core::tls_outcome::done || later ? static_cast<ssize_t>(count) : -1;
    }
    /// Not one byte behind the preamble.
    void read(half_open& from) {
        if ((from.tls != nullptr || greets_with_tls(from)) && !shake_hands(from)) return from.socket.reset();
        std::array<std::byte, sizeof(core::data_preamble)> room;
        const ssize_t got = read_some(from, std::span(room).first(room.size() - from.bytes.size()));
        if (got < 0) return from.socket.reset();
        from.bytes.insert(from.bytes.end(), room.begin(), room.begin() + got);
        if (from.bytes.size() < room.size()) return;
        std::string why;
        const auto shown = core::read_data_preamble(from.bytes, why);
        core::data_connection made{std::move(from.socket), std::move(from.tls), 0, {}};
        if (!shown) {
            core::answer_data(made, status::unauthorized, "no");
            return;
        }
        made.session_id = shown->session_id;
        made.token = shown->token;
        if (const auto taken = behind_.take_connection(made); !taken) core::answer_data(made, taken.code(), "no");
    }

    core::poller& behind_;
    std::shared_ptr<const core::security_identity> security_;
    std::optional<core::listener> door_;
    core::wake_signal wake_;
    std::atomic<bool> stopping_{false};
    std::thread thread_;
};

/// A server's poller and links, and clients (one poller each) connected to it.
class tcp_world {
  public:
    explicit tcp_world(const std::string& host = "127.0.0.1", const world_security& security = usual_security())
        : host_(host),
          security_(security),
          server_poller(make_poller(core::link_role::server, host, security.server)),
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
