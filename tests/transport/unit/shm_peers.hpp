// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/shm/poller.hpp"
#include "core/control/data_preamble.hpp"
#include "core/net/unix_socket.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/// Peers of a link of shm that are whatever a test makes of them: they have the descriptors, and no code of ours. Used
/// by tests and by a fuzz target, and so without GoogleTest.
namespace accel::shm::testing {

inline constexpr core::link_geometry geometry{4, 1000, 2000};
inline constexpr std::uint64_t session_id = 7;

inline core::session_token make_token(int first) {
    core::session_token token{};
    token[0] = std::byte(first);
    return token;
}

inline core::link_config make_config(core::link_role role) {
    core::link_config out;
    out.role = role;
    out.geometry = geometry;
    out.session_id = session_id;
    out.token = make_token(1);
    if (role == core::link_role::server) return out;
    out.send = std::move(*core::slot_memory::create(geometry.slots, geometry.request_bytes));
    out.receive = std::move(*core::slot_memory::create(geometry.slots, geometry.response_bytes));
    return out;
}

inline core::unique_fd connect_data(core::unique_fd& server_end) {
    std::array<int, 2> ends{-1, -1};
    (void)::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data());
    server_end = core::unique_fd(ends[1]);
    return core::unique_fd(ends[0]);
}

/// What a peer writes into the segment that it fills.
class scribbler {
  public:
    scribbler() = default;
    scribbler(std::byte* base, std::size_t capacity) : base_(base), layout_(geometry.slots, capacity) {}
    [[nodiscard]] std::span<std::byte> all() const { return {base_, layout_.bytes}; }
    [[nodiscard]] segment_head& head() const { return *reinterpret_cast<segment_head*>(base_); }
    [[nodiscard]] std::byte* header(std::uint32_t slot) const {
        return base_ + layout_.slots_at + slot * layout_.stride + core::extension_room;
    }
    /// Announces a slot, or what is none.
    void announce(std::uint32_t slot) {
        const std::uint32_t at = pushed_++ & (layout_.entries - 1);
        const std::uint64_t entry = std::uint64_t{pushed_} << 32 | slot;
        reinterpret_cast<lane_entry*>(base_ + segment_layout::lane_at)[at].store(entry);
    }
    void write_header(std::uint32_t slot, const core::slot_header& header) const {
        std::memcpy(this->header(slot), &header, sizeof header);
    }

  private:
    std::byte* base_ = nullptr;
    segment_layout layout_{geometry.slots, 0};
    std::uint32_t pushed_ = 0;
};

/// What a peer does by.
struct peer_hands {
    scribbler* writes = nullptr;
    sleep_word* sleep = nullptr;
    core::unique_fd* socket = nullptr;
};

/// A link under test, with its poller.
struct tested_link {
    /// `gpus`: its context's, if it has any.
    explicit tested_link(core::link_role role, const std::shared_ptr<core::accelerator>& gpus = {})
        : config(make_config(role)) {
        core::poller_options options;
        options.role = role;
        if (auto opened = shm_poller::open(options, gpus)) events = std::move(*opened);
        if (auto made = events->open_link(config)) path = std::move(*made);
    }
    /// `notice`: looks at the socket too.
    std::vector<core::link_event> poll(bool notice = false) {
        if (notice && events->arm()) events->disarm();
        std::array<core::link_event, 16> out;
        const std::size_t count = events->poll(out);
        return {out.begin(), out.begin() + static_cast<std::ptrdiff_t>(count)};
    }

    core::link_config config;
    std::unique_ptr<core::poller> events;
    std::unique_ptr<core::link> path;
};

/// Why the link was lost, if it tells this and nothing else.
inline std::optional<status> only_loss(tested_link& link) {
    std::vector<core::link_event> seen = link.poll();
    if (seen.empty()) seen = link.poll();
    const bool lost = seen.size() == 1 && seen[0].kind == core::event_kind::lost;
    return lost && link.poll().empty() ? std::optional{seen[0].reason} : std::nullopt;
}

/// A server's link, and its client.
struct hostile_client : tested_link {
    /// `gpus`: the server shares slots on the first of them.
    explicit hostile_client(const std::shared_ptr<core::accelerator>& gpus = {})
        : tested_link(core::link_role::server, gpus) {
        core::link_grant grant;
        grant.description.resize(sizeof(client_wish));
        grant.description[0] = std::byte{1};
        grant.description[1] = std::byte(gpus != nullptr ? 1 : 0);
        if (!path->attach(grant, core::never)) return;
        if (gpus != nullptr) share(gpus);
        path->activate();
        if (!connect(make_token(1))) return;
        std::array<std::byte, 64> answer;
        if (receive_descriptors(socket.get(), answer, passed_to_it) != 4) return;
        void* const base =
            ::mmap(nullptr, layout.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, passed_to_it[requests_segment].get(), 0);
        if (base == MAP_FAILED) return;
        requests = static_cast<std::byte*>(base);
        writes = scribbler(requests, geometry.request_bytes);
        ready = poll().empty();
    }
    ~hostile_client() {
        if (requests != nullptr) ::munmap(requests, layout.bytes);
    }
    hostile_client(const hostile_client&) = delete;
    hostile_client& operator=(const hostile_client&) = delete;

    void share(const std::shared_ptr<core::accelerator>& gpus) {
        const core::slot_place on{gpus, gpus->opened().front(), path->wants_device_slots()};
        on_gpu = {*core::slot_memory::create(geometry.slots, geometry.request_bytes, on),
                  *core::slot_memory::create(geometry.slots, geometry.response_bytes, on)};
        path->share_device_slots(on_gpu[0], on_gpu[1]);
    }
    bool connect(const core::session_token& token) {
        core::data_connection made;
        core::unique_fd own = connect_data(made.socket);
        made.session_id = session_id;
        made.token = token;
        const bool taken = events->take_connection(made).ok();
        if (taken) socket = std::move(own);
        return taken;
    }

    bool ready = false;
    std::array<std::shared_ptr<core::slot_memory>, 2> on_gpu;  ///< requests, responses
    core::unique_fd socket;
    passed_descriptors passed_to_it;
    segment_layout layout{geometry.slots, geometry.request_bytes};
    std::byte* requests = nullptr;
    scribbler writes;
};

/// A client's link, and its server.
struct hostile_server : tested_link {
    explicit hostile_server(const std::shared_ptr<core::accelerator>& gpus = {})
        : tested_link(core::link_role::client, gpus) {
        if (auto made = segment::create(requests_layout.bytes, peer_access::write)) requests = std::move(*made);
        if (auto made = segment::create(responses_layout.bytes, peer_access::read)) responses = std::move(*made);
        if (auto made = segment::create(page_bytes, peer_access::read)) page = std::move(*made);
        passes = {requests.fd(), responses.fd(), page.fd()};
        answers = core::encode_data_answer(status::ok, {});
        writes = scribbler(responses.base(), geometry.response_bytes);
        static std::atomic<int> number{0};
        host = "@hostile-" + std::to_string(::getpid()) + "-" + std::to_string(++number);
        if (auto made = core::listen_on(host, 0)) listening = std::move(*made);
    }
    /// The client connects, and gets what `passes` and `answers` say.
    result<void> connect() {
        std::thread server([this] { serve(); });
        core::link_grant grant;
        grant.session_id = session_id;
        grant.token = make_token(1);
        grant.host = host;
        auto done = path->attach(grant, core::deadline_after(std::chrono::seconds{20}));
        server.join();
        if (done) path->activate();
        return done;
    }
    [[nodiscard]] sleep_word& sleep() const { return reinterpret_cast<poller_page*>(page.base())->sleep; }
    void send_byte() const {
        constexpr std::byte any{1};
        (void)::send(socket.get(), &any, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    }

    segment_layout requests_layout{geometry.slots, geometry.request_bytes};
    segment_layout responses_layout{geometry.slots, geometry.response_bytes};
    segment requests;
    segment responses;
    segment page;
    std::vector<int> passes;
    std::vector<std::byte> answers;
    scribbler writes;
    std::string host;
    core::unique_fd listening;
    core::unique_fd socket;

  private:
    void serve() {
        if (core::wait_ready(listening.get(), POLLIN, core::deadline_after(std::chrono::seconds{20})) != 0) return;
        core::unique_fd made(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        std::array<std::byte, sizeof(core::data_preamble)> shown;
        if (core::wait_ready(made.get(), POLLIN, core::deadline_after(std::chrono::seconds{20})) != 0) return;
        if (::recv(made.get(), shown.data(), shown.size(), MSG_DONTWAIT) != ssize_t{sizeof shown}) return;
        // Without bytes no descriptors travel, and the client hears nothing but the end.
        if (!answers.empty() && !send_descriptors(made.get(), answers, passes)) return;
        // Whoever has answered too little says no more.
        if (answers.size() < core::data_answer_head_bytes || answers != core::encode_data_answer(status::ok, {}))
            ::shutdown(made.get(), SHUT_WR);
        socket = std::move(made);
    }
};

/// Memory as a server may pass it, but with these seals, and of this size.
inline core::unique_fd sealed_memory(std::size_t bytes, int seals) {
    core::unique_fd made(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    const bool done = ::ftruncate(made.get(), static_cast<off_t>(bytes)) == 0 &&
                      (seals == 0 || ::fcntl(made.get(), F_ADD_SEALS, seals) == 0);
    return done ? std::move(made) : core::unique_fd{};
}
inline constexpr int all_size_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace accel::shm::testing
