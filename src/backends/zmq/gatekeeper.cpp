// SPDX-License-Identifier: Apache-2.0
#include "backends/zmq/gatekeeper.hpp"

#include "backends/zmq/message.hpp"
#include "core/log.hpp"
#include "core/thread.hpp"

#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <openssl/crypto.h>

namespace accel::zmq {
/// A request of ZeroMQ's to let a client in.
struct zap_request {
    /// The frames, behind one another.
    enum frame : std::size_t { version, request_id, domain, address, identity, mechanism, name, password, frames };
    std::array<message_part, frames> part;
    std::size_t count = 0;

    [[nodiscard]] std::string_view text(frame which) noexcept {
        if (which >= count) return {};
        return {reinterpret_cast<const char*>(part[which].data()), part[which].size()};
    }
};

namespace {

/// False: nothing there. Frames beyond those of a request are dropped.
bool receive_request(void* socket, zap_request& in) noexcept {
    in.count = 0;
    for (bool more = true; more;) {
        message_part surplus;
        message_part& into = in.count < in.part.size() ? in.part[in.count] : surplus;
        if (!into.receive(socket)) return false;
        if (&into != &surplus) ++in.count;
        more = into.more();
    }
    return true;
}

void send_frame(void* socket, std::string_view text, bool more) noexcept {
    zmq_send(socket, text.data(), text.size(), ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0));
}

bool is_token(std::string_view shown, const core::session_token& wanted) noexcept {
    return shown.size() == wanted.size() && CRYPTO_memcmp(shown.data(), wanted.data(), wanted.size()) == 0;
}

std::string entry_of(std::string_view domain_name, bool keyed, std::string_view client) {
    std::string out{domain_name};
    out += keyed ? '\1' : '\2';
    return out += client;
}

}  // namespace

gatekeeper::gatekeeper(void* zmq_context) {
    auto opened = owned_socket::open(zmq_context, ZMQ_REP);
    failure_ = opened ? wake_.failure() : opened.error().native;
    if (failure_ == 0 && zmq_bind(opened->get(), "inproc://zeromq.zap.01") != 0) failure_ = zmq_errno();
    if (failure_ != 0) return;
    socket_ = std::move(*opened);
    thread_ = core::start_thread("accel-zmq-gate", [this] { serve(); });
}

gatekeeper::~gatekeeper() {
    stopping_.store(true);
    wake_.set();
    if (thread_.joinable()) thread_.join();
    for (auto& [which, token] : expected_) wipe(token);
}

std::string gatekeeper::open_domain() {
    return fmt::format("accel.{}", ++last_domain_);
}

gatekeeper::entry gatekeeper::expect(const std::string& domain_name, bool keyed, const credential& client) {
    const auto* text = reinterpret_cast<const char*>(client.name.data());
    const entry which = entry_of(domain_name, keyed, {text, client.name.size()});
    const std::scoped_lock lock{mutex_};
    return expected_.try_emplace(which, client.password).second ? which : entry{};
}

void gatekeeper::forget(const entry& which) noexcept {
    if (which.empty()) return;
    const std::scoped_lock lock{mutex_};
    erase(expected_.find(which));
}

void gatekeeper::erase(expected_map::iterator which) noexcept {
    if (which == expected_.end()) return;
    wipe(which->second);
    expected_.erase(which);
}

void gatekeeper::serve() noexcept {
    while (!stopping_.load()) {
        std::array<zmq_pollitem_t, 2> items{{{socket_.get(), 0, ZMQ_POLLIN, 0}, {nullptr, wake_.fd(), ZMQ_POLLIN, 0}}};
        if (zmq_poll(items.data(), static_cast<int>(items.size()), -1) < 0 && zmq_errno() == ETERM) break;
        zap_request request;
        while (receive_request(socket_.get(), request)) answer(request);
    }
    socket_.close();
}

bool gatekeeper::allowed(zap_request& request) noexcept {
    const bool keyed = request.text(zap_request::mechanism) == "CURVE";
    const std::size_t wanted = keyed ? std::size_t{zap_request::password} : std::size_t{zap_request::frames};
    if (request.text(zap_request::version) != "1.0" || request.count != wanted) return false;
    if (!keyed && request.text(zap_request::mechanism) != "PLAIN") return false;
    const std::scoped_lock lock{mutex_};
    const auto found =
        expected_.find(entry_of(request.text(zap_request::domain), keyed, request.text(zap_request::name)));
    if (found == expected_.end() || (!keyed && !is_token(request.text(zap_request::password), found->second)))
        return false;
    erase(found);
    return true;
}

void gatekeeper::answer(zap_request& request) noexcept {
    const bool allow = allowed(request);
    if (!allow) {
        core::limited_log(request.text(zap_request::address))
            .warn(
                "refused zmq data from a client at {}: its credentials do not belong to an open session, or were used "
                "before",
                request.text(zap_request::address));
    }
    void* const to = socket_.get();
    send_frame(to, "1.0", true);
    send_frame(to, request.text(zap_request::request_id), true);
    send_frame(to, allow ? "200" : "400", true);
    send_frame(to, allow ? "OK" : "no such session", true);
    send_frame(to, "", true);
    send_frame(to, "", false);
    if (request.count > zap_request::password)
        wipe({request.part[zap_request::password].data(), request.part[zap_request::password].size()});
}

}  // namespace accel::zmq
