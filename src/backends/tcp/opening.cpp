// SPDX-License-Identifier: Apache-2.0
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

error broken(int number) {
    if (number == ETIMEDOUT)
        return {status::timed_out, number,
                "tcp: the server did not answer the data connection in time; is it overloaded?"};
    return {status::peer_lost, number,
            fmt::format("tcp: the server closed the data connection before it answered ({}); its log says why",
                        number == 0 ? "end of stream" : std::strerror(number))};
}

}  // namespace

result<void> data_opening::wait(short events) {
    const int failure = core::wait_ready(socket_, events, deadline_);
    if (failure == 0) return {};
    return broken(failure);
}

result<void> data_opening::encrypt(const core::security_identity& own, const std::string& host,
                                   const core::session_key& key) {
    auto made = core::tls_stream::connect(own.keys, socket_, own.name_of(host), core::data_protocol, key);
    if (!made) return made.error();
    tls_ = std::make_shared<core::tls_stream>(std::move(*made));
    for (;;) {
        const core::tls_outcome outcome = tls_->handshake();
        if (outcome == core::tls_outcome::done) return {};
        if (auto ready = go_on_after(outcome); !ready) return ready;
    }
}

/// Waits until the blocked step can go on, or says why it cannot.
result<void> data_opening::go_on_after(core::tls_outcome outcome) {
    switch (outcome) {
        case core::tls_outcome::done:
            return {};
        case core::tls_outcome::wants_read:
            return wait(POLLIN);
        case core::tls_outcome::wants_write:
            return wait(POLLOUT);
        case core::tls_outcome::closed:
            return broken(0);
        case core::tls_outcome::failed:
            break;
    }
    if (tls_ == nullptr) return broken(errno);
    return error{tls_->refused() ? status::unauthorized : status::peer_lost, 0,
                 fmt::format("tcp: cannot make an encrypted connection to the server: {}", tls_->failure())};
}

result<void> data_opening::send(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        std::size_t count = 0;
        const core::tls_outcome outcome = core::send_some(socket_, tls_.get(), bytes, count);
        bytes = bytes.subspan(count);
        if (auto ready = go_on_after(outcome); !ready) return ready;
    }
    return {};
}

result<void> data_opening::receive(std::span<std::byte> bytes) {
    while (!bytes.empty()) {
        std::size_t count = 0;
        const core::tls_outcome outcome = core::receive_some(socket_, tls_.get(), bytes, count);
        bytes = bytes.subspan(count);
        if (auto ready = go_on_after(outcome); !ready) return ready;
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
    if (auto got = receive(all.subspan(core::data_answer_head_bytes, bytes - core::data_answer_head_bytes)); !got)
        return got;
    return core::decode_data_answer(all.first(bytes));
}

}  // namespace accel::tcp
