// SPDX-License-Identifier: Apache-2.0
#include "backends/shm/opening.hpp"

#include "core/control/data_preamble.hpp"
#include "core/net/descriptor_error.hpp"
#include "core/net/unix_socket.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

namespace accel::shm {
namespace {

error broken(int number) {
    if (number == ETIMEDOUT)
        return {status::timed_out, number,
                "shm: the server did not answer the data connection in time; is it overloaded?"};
    return {status::peer_lost, number,
            fmt::format("shm: the server closed the data connection before it answered ({}); its log says why",
                        number == 0 ? "end of stream" : std::strerror(number))};
}

result<void> show(int socket, const core::link_grant& grant) {
    core::data_preamble preamble;
    preamble.session_id = grant.session_id;
    preamble.token = grant.token;
    // The socket is empty, and takes it whole.
    if (::send(socket, &preamble, sizeof preamble, MSG_DONTWAIT | MSG_NOSIGNAL) == ssize_t{sizeof preamble}) return {};
    return broken(errno);
}

/// Reads the answer, with what comes along.
result<void> hear(opened& made, core::nanoseconds deadline) {
    std::array<std::byte, core::max_data_answer_bytes> answer;
    std::size_t have = 0;
    std::size_t wanted = core::data_answer_head_bytes;
    while (have < wanted) {
        if (const int failure = core::wait_ready(made.socket.get(), POLLIN, deadline); failure != 0)
            return broken(failure);
        const std::span rest = std::span(answer).subspan(have, wanted - have);
        const ssize_t got = have == 0 ? receive_descriptors(made.socket.get(), rest, made.descriptors)
                                      : ::recv(made.socket.get(), rest.data(), rest.size(), MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (got < 0 && core::is_shortage(errno)) return core::no_descriptor("for shared memory", errno);
        if (got <= 0) return broken(got == 0 ? 0 : errno);
        have += static_cast<std::size_t>(got);
        if (have != core::data_answer_head_bytes) continue;
        wanted = core::data_answer_bytes(std::span(answer).first<core::data_answer_head_bytes>());
        if (wanted == 0)
            return error{status::protocol_error, 0,
                         "shm: the server answered the data connection with a malformed message"};
    }
    return core::as_told_to_applications(core::decode_data_answer(std::span(answer).first(wanted)));
}

bool complete(const passed_descriptors& all) noexcept {
    const bool shared =
        std::all_of(all.begin(), all.begin() + always_passed, [](const core::unique_fd& each) { return each.open(); });
    return shared && all[gpu_requests].open() == all[gpu_responses].open();
}

}  // namespace

result<opened> open_data_connection(const core::link_grant& grant, core::nanoseconds deadline) {
    auto socket = core::connect_to(grant.host, grant.port, deadline);
    if (!socket) return socket.error();
    if (!core::is_own_user(socket->get())) return core::another_users_process(grant.host);
    opened made{std::move(*socket), {}};
    if (auto shown = show(made.socket.get(), grant); !shown) return shown.error();
    if (auto heard = hear(made, deadline); !heard) return heard.error();
    if (complete(made.descriptors)) return made;
    return error{status::protocol_error, 0, "shm: the server passed less shared memory than the session needs"};
}

}  // namespace accel::shm
