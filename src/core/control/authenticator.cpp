#include "core/control/authenticator.hpp"

#include "core/control/log_limit.hpp"
#include "core/control/zmq_socket.hpp"
#include "core/log.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <thread>
#include <unordered_map>

#include <fmt/format.h>

namespace accel::core {
namespace {

constexpr std::size_t binary_key_bytes = 32;

struct zap_request {
    std::string version;
    std::string request_id;
    std::string domain;
    std::string address;
    std::string mechanism;
    std::string key;  ///< Z85; empty if it is no CURVE key
};

std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span{text.data(), text.size()});
}

std::string z85(std::string_view binary) {
    std::array<char, 41> text{};
    if (binary.size() != binary_key_bytes) return {};
    const auto* from = reinterpret_cast<const std::uint8_t*>(binary.data());
    return zmq_z85_encode(text.data(), from, binary_key_bytes) != nullptr ? text.data() : "";
}

std::optional<zap_request> receive_request(zmq_socket& socket) {
    std::vector<std::string> frames;
    for (bool more = true; more;) {
        zmq_frame frame;
        if (!frame.receive(socket)) return std::nullopt;
        frames.emplace_back(frame.text());
        more = frame.more();
    }
    zap_request request;
    frames.resize(std::max<std::size_t>(frames.size(), 7));
    request.version = frames[0];
    request.request_id = frames[1];
    request.domain = frames[2];
    request.address = frames[3];
    request.mechanism = frames[5];
    request.key = request.mechanism == "CURVE" ? z85(frames[6]) : "";
    return request;
}

}  // namespace

class authenticator::impl {
  public:
    explicit impl(void* context) {
        auto opened = zmq_socket::open(context, ZMQ_REP);
        if (!opened || zmq_bind(opened->get(), "inproc://zeromq.zap.01") != 0) {
            log().error("the authenticator could not start: {}; every client with a key will be refused",
                        zmq_strerror(zmq_errno()));
            return;
        }
        socket_ = std::move(*opened);
        running_ = true;
        thread_ = std::thread{[this] { serve(); }};
    }

    ~impl() {
        stopping_.store(true);
        wake_.set();
        if (thread_.joinable()) thread_.join();
    }

    [[nodiscard]] bool running() const noexcept { return running_; }

    std::string authorize(const std::vector<std::string>& public_keys) {
        const std::scoped_lock lock{mutex_};
        std::string domain = fmt::format("accel.{}", ++last_domain_);
        domains_.emplace(domain, std::set<std::string>(public_keys.begin(), public_keys.end()));
        return domain;
    }

    void revoke(const std::string& domain) noexcept {
        const std::scoped_lock lock{mutex_};
        domains_.erase(domain);
    }

  private:
    void serve() {
        while (!stopping_.load()) {
            std::array<zmq_pollitem_t, 2> items{
                {{socket_.get(), 0, ZMQ_POLLIN, 0}, {nullptr, wake_.fd(), ZMQ_POLLIN, 0}}};
            if (zmq_poll(items.data(), static_cast<int>(items.size()), -1) < 0 && zmq_errno() == ETERM) break;
            while (const auto request = receive_request(socket_)) answer(*request);
        }
        socket_.close();
    }

    [[nodiscard]] bool allowed(const zap_request& request) {
        const std::scoped_lock lock{mutex_};
        const auto found = domains_.find(request.domain);
        return request.version == "1.0" && !request.key.empty() && found != domains_.end() &&
               found->second.contains(request.key);
    }

    void answer(const zap_request& request) {
        const bool allow = allowed(request);
        if (!allow && limit_.allow(now())) {
            log().warn(
                "refused a client at {}: its public key {} is not in authorized_keys; add it there and start "
                "the "
                "server again if it should connect",
                request.address, request.key.empty() ? "(none)" : request.key);
        }
        socket_.send(bytes_of("1.0"), true);
        socket_.send(bytes_of(request.request_id), true);
        socket_.send(bytes_of(allow ? "200" : "400"), true);
        socket_.send(bytes_of(allow ? "OK" : "the key is not authorised"), true);
        socket_.send(bytes_of(allow ? request.key : ""), true);
        socket_.send({}, false);
    }

    std::mutex mutex_;
    std::unordered_map<std::string, std::set<std::string>> domains_;
    std::uint64_t last_domain_ = 0;
    zmq_socket socket_;
    wake_signal wake_;
    log_limit limit_;
    bool running_ = false;
    std::atomic<bool> stopping_{false};
    std::thread thread_;
};

authenticator::authenticator(void* zmq_context) : impl_(std::make_unique<impl>(zmq_context)) {}
authenticator::~authenticator() = default;

bool authenticator::running() const noexcept {
    return impl_->running();
}

std::string authenticator::authorize(const std::vector<std::string>& public_keys) {
    return impl_->authorize(public_keys);
}

void authenticator::revoke(const std::string& domain) noexcept {
    impl_->revoke(domain);
}

}  // namespace accel::core
