#include "backends/tcp/opening.hpp"

#include "core/control/data_preamble.hpp"
#include "core/net/socket.hpp"

#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

namespace accel::tcp {
namespace {

bool try_later(int number) noexcept {
    return number == EAGAIN || number == EWOULDBLOCK || number == EINTR;
}

error broken(int number) {
    if (number == ETIMEDOUT)
        return {status::timed_out, number,
                "tcp: the server did not answer the data connection in time; is it overloaded?"};
    return {
        status::peer_lost, number,
        fmt::format("tcp: the server closed the data connection before it answered ({}); its log says why",
                    number == 0 ? "end of stream" : std::strerror(number))};
}

}  // namespace

result<void> data_opening::wait(short events) {
    const int failure = core::wait_ready(socket_, events, deadline_);
    if (failure == 0) return {};
    return broken(failure);
}

result<void> data_opening::send(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) bytes = bytes.subspan(static_cast<std::size_t>(sent));
        if (sent >= 0) continue;
        if (!try_later(errno)) return broken(errno);
        if (auto ready = wait(POLLOUT); !ready) return ready;
    }
    return {};
}

result<void> data_opening::receive(std::span<std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t got = ::recv(socket_, bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (got == 0) return broken(0);
        if (got > 0) {
            bytes = bytes.subspan(static_cast<std::size_t>(got));
            continue;
        }
        if (!try_later(errno)) return broken(errno);
        if (auto ready = wait(POLLIN); !ready) return ready;
    }
    return {};
}

result<void> data_opening::show(std::uint64_t session_id, const core::session_token& token) {
    core::data_preamble preamble;
    preamble.session_id = session_id;
    preamble.token = token;
    return send(std::as_bytes(std::span(&preamble, 1)));
}

result<void> data_opening::hear() {
    std::array<std::byte, core::max_data_answer_bytes> answer;
    const std::span all(answer);
    if (auto got = receive(all.first(core::data_answer_head_bytes)); !got) return got;
    const std::size_t bytes = core::data_answer_bytes(all.first<core::data_answer_head_bytes>());
    if (bytes == 0)
        return error{status::protocol_error, 0,
                     "tcp: the server answered the data connection with a malformed message"};
    if (auto got = receive(all.subspan(core::data_answer_head_bytes, bytes - core::data_answer_head_bytes));
        !got)
        return got;
    return core::decode_data_answer(all.first(bytes));
}

}  // namespace accel::tcp
