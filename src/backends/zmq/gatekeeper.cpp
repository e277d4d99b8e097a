// SPDX-License-Identifier: Apache-2.0
#include "backends/zmq/gatekeeper.hpp"

#include "backends/zmq/message.hpp"
#include "backends/zmq/socket.hpp"
#include "core/event_signal.hpp"
#include "core/log.hpp"

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <string_view>
#include <thread>
#include <unordered_map>

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace accel::zmq {
namespace {

// The frames of a request, behind one another.
enum frame : std::size_t { version, request_id, domain, address, identity, mechanism, name, password, frames };

struct zap_request {
    std::array<message_part, frames> part;
    std::size_t count = 0;

    [[nodiscard]] std::string_view text(frame which) noexcept {
        if (which >= count) return {};
        return {reinterpret_cast<const char*>(part[which].data()), part[which].size()};
    }
};

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

gatekeeper::entry entry_of(std::string_view domain_name, bool keyed, std::string_view client) {
    std::string out{domain_name};
    out += keyed ? '\1' : '\2';
    return out += client;
}

/// Compares in constant time.
bool same_token(const core::session_token& wanted, std::string_view shown) noexcept {
    if (shown.size() != wanted.size()) return false;
    unsigned difference = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i)
        difference |= std::to_integer<unsigned>(wanted[i] ^ static_cast<std::byte>(shown[i]));
    return difference == 0;
}

}  // namespace

class gatekeeper::impl {
  public:
    explicit impl(void* context) : wake_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
        auto opened = owned_socket::open(context, ZMQ_REP);
        if (wake_fd_ < 0 || !opened || zmq_bind(opened->get(), "inproc://zeromq.zap.01") != 0) return;
        socket_ = std::move(*opened);
        thread_ = std::thread{[this] { serve(); }};
    }

    ~impl() {
        stopping_.store(true);
        if (wake_fd_ >= 0) core::signal_event(wake_fd_);
        if (thread_.joinable()) thread_.join();
        if (wake_fd_ >= 0) ::close(wake_fd_);
        for (auto& [which, token] : expected_) wipe(token);
    }

    [[nodiscard]] bool running() const noexcept { return thread_.joinable(); }

    [[nodiscard]] std::string open_domain() { return fmt::format("accel.{}", ++last_domain_); }

    [[nodiscard]] entry expect(const entry& which, const core::session_token& token) {
        const std::scoped_lock lock{mutex_};
        return expected_.try_emplace(which, token).second ? which : entry{};
    }

    void forget(const entry& which) noexcept {
        const std::scoped_lock lock{mutex_};
        erase(expected_.find(which));
    }

  private:
    using expected_map = std::unordered_map<entry, core::session_token>;

    void serve() noexcept {
        while (!stopping_.load()) {
            std::array<zmq_pollitem_t, 2> items{
                {{socket_.get(), 0, ZMQ_POLLIN, 0}, {nullptr, wake_fd_, ZMQ_POLLIN, 0}}};
            if (zmq_poll(items.data(), static_cast<int>(items.size()), -1) < 0 && zmq_errno() == ETERM) break;
            zap_request request;
            while (receive_request(socket_.get(), request)) answer(request);
        }
        socket_.close();
    }

    /// A credential is used up the first time that it is right.
    [[nodiscard]] bool allowed(zap_request& request) noexcept {
        const bool keyed = request.text(mechanism) == "CURVE";
        const std::size_t wanted = keyed ? std::size_t{password} : std::size_t{frames};
        if (request.text(version) != "1.0" || request.count != wanted) return false;
        if (!keyed && request.text(mechanism) != "PLAIN") return false;
        const std::scoped_lock lock{mutex_};
        const auto found = expected_.find(entry_of(request.text(domain), keyed, request.text(name)));
        if (found == expected_.end() || (!keyed && !same_token(found->second, request.text(password)))) return false;
        erase(found);
        return true;
    }

    void answer(zap_request& request) noexcept {
        const bool allow = allowed(request);
        if (!allow) {
            core::log()
                .limited(request.text(address))
                .warn(
                    "refused zmq data of a client at {}: its credentials are not (or no longer) those of an open "
                    "session, or were used before",
                    request.text(address));
        }
        void* const to = socket_.get();
        send_frame(to, "1.0", true);
        send_frame(to, request.text(request_id), true);
        send_frame(to, allow ? "200" : "400", true);
        send_frame(to, allow ? "OK" : "no such session", true);
        send_frame(to, "", true);
        send_frame(to, "", false);
        if (request.count > password) wipe({request.part[password].data(), request.part[password].size()});
    }

    void erase(expected_map::iterator which) noexcept {
        if (which == expected_.end()) return;
        wipe(which->second);
        expected_.erase(which);
    }

    std::mutex mutex_;
    expected_map expected_;
    std::atomic<std::uint64_t> last_domain_{0};
    int wake_fd_;
    owned_socket socket_;
    std::atomic<bool> stopping_{false};
    std::thread thread_;
};

gatekeeper::gatekeeper(void* zmq_context) : impl_(std::make_unique<impl>(zmq_context)) {}
gatekeeper::~gatekeeper() = default;

bool gatekeeper::running() const noexcept {
    return impl_->running();
}

std::string gatekeeper::open_domain() {
    return impl_->open_domain();
}

gatekeeper::entry gatekeeper::expect(const std::string& domain_name, bool keyed, const credential& client) {
    const auto* text = reinterpret_cast<const char*>(client.name.data());
    return impl_->expect(entry_of(domain_name, keyed, {text, client.name.size()}), client.password);
}

void gatekeeper::forget(const entry& which) noexcept {
    if (!which.empty()) impl_->forget(which);
}

}  // namespace accel::zmq
