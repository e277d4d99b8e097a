#pragma once

#include "core/context_state.hpp"
#include "core/control/control_client.hpp"
#include "core/control/control_message.hpp"
#include "core/control/control_server.hpp"
#include "core/control/key_file.hpp"
#include "core/control/security.hpp"
#include "core/control/zmq_socket.hpp"
#include "core/log.hpp"
#include "core/log_sink.hpp"
#include "loopback.hpp"

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

/// Both ends of the control plane in one process, below the core.
namespace accel::core::testing {

using tests::own_loopback;

using namespace std::chrono_literals;

inline constexpr auto patience = 20s;

template <class Condition>
[[nodiscard]] bool eventually(Condition condition, std::chrono::nanoseconds within = patience) {
    const nanoseconds deadline = deadline_after(within);
    while (!condition()) {
        if (now() >= deadline) return false;
        std::this_thread::sleep_for(1ms);
    }
    return true;
}

inline std::size_t open_descriptors() {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
    return count;
}

/// A server that grants what is asked for, or what the test tells it to.
class fake_host : public session_host {
  public:
    result<session_grant> open_session(const session_request& request, std::string_view peer) override {
        std::this_thread::sleep_for(delay);
        const std::lock_guard lock{mutex_};
        last_peer_ = peer;
        last_request_ = request;
        if (refusal.code != status::ok) return refusal;
        session_grant grant;
        grant.session_id = ++last_id_;
        grant.token[0] = static_cast<std::byte>(last_id_);
        grant.granted = request.wanted;
        grant.description = request.description;
        grant.version = version;
        open_[grant.session_id] = status::ok;
        return grant;
    }
    void close_session(std::uint64_t session_id, status why) noexcept override {
        const std::lock_guard lock{mutex_};
        open_[session_id] = why;
    }
    std::vector<std::string> offers() const override { return {"tcp", "zmq"}; }

    /// Why it was closed; `ok` while it is open or unknown.
    [[nodiscard]] status ended(std::uint64_t session_id) {
        const std::lock_guard lock{mutex_};
        const auto found = open_.find(session_id);
        return found != open_.end() ? found->second : status::ok;
    }
    [[nodiscard]] std::size_t open() {
        const std::lock_guard lock{mutex_};
        std::size_t count = 0;
        for (const auto& [id, why] : open_) count += why == status::ok ? 1U : 0U;
        return count;
    }
    [[nodiscard]] std::uint64_t opened() {
        const std::lock_guard lock{mutex_};
        return last_id_;
    }
    [[nodiscard]] std::string last_peer() {
        const std::lock_guard lock{mutex_};
        return last_peer_;
    }
    [[nodiscard]] session_request last_request() {
        const std::lock_guard lock{mutex_};
        return last_request_;
    }

    // Set before the server listens:
    std::chrono::milliseconds delay{0};
    error refusal;
    std::uint16_t version = protocol_version;

  private:
    std::mutex mutex_;
    std::map<std::uint64_t, status> open_;
    std::uint64_t last_id_ = 0;
    std::string last_peer_;
    session_request last_request_;
};

/// Key files of one server and two clients, of which the server knows only the first.
class key_folder {
  public:
    key_folder() {
        std::string name = (std::filesystem::temp_directory_path() / "accel_keys_XXXXXX").string();
        path_ = ::mkdtemp(name.data());
        for (const char* each : {"server", "client", "stranger"}) {
            auto keys = make_key_pair();
            EXPECT_TRUE(keys.ok());
            EXPECT_TRUE(write_key_files(file(each), *keys, false).ok());
            pairs_[each] = *keys;
        }
        std::ofstream{file("authorized")} << "# who may come\n"
                                          << pairs_["client"].public_key << " the client\n";
    }
    ~key_folder() { std::filesystem::remove_all(path_); }
    key_folder(const key_folder&) = delete;
    key_folder& operator=(const key_folder&) = delete;

    [[nodiscard]] std::string file(const std::string& name) const { return (path_ / name).string(); }
    [[nodiscard]] const key_pair& pair(const std::string& name) { return pairs_[name]; }

    [[nodiscard]] security_options server() const {
        security_options options;
        options.key_file = file("server.key");
        options.authorized_keys = file("authorized");
        return options;
    }
    [[nodiscard]] security_options client(const std::string& who = "client",
                                          const std::string& server_pub = "server.pub") const {
        security_options options;
        options.key_file = file(who + ".key");
        options.server_key = file(server_pub);
        return options;
    }

  private:
    std::filesystem::path path_;
    std::map<std::string, key_pair> pairs_;
};

inline security_options insecure() {
    security_options options;
    options.insecure = true;
    return options;
}

/// What the library logs while this lives.
class log_capture {
  public:
    log_capture() = default;
    log_capture(const log_capture&) = delete;
    log_capture& operator=(const log_capture&) = delete;
    /// All that was logged before the call.
    [[nodiscard]] std::string text() const {
        EXPECT_TRUE(flush_log(patience));
        const std::lock_guard lock{mutex_};
        return text_;
    }

  private:
    void add(std::string_view line) {
        const std::lock_guard lock{mutex_};
        text_.append(line) += '\n';
    }
    mutable std::mutex mutex_;
    std::string text_;
    log_registration sink_{[this](log_level, std::string_view line) { add(line); }};
};

class control_test : public ::testing::Test {
  protected:
    void listen(const security_options& options, nanoseconds peer_timeout = 2s,
                const std::string& at = own_loopback()) {
        auto security = load_server_security(*context, options);
        ASSERT_TRUE(security.ok()) << security.error().message;
        auto listening = control_server::listen(*context, at, 0, *security, peer_timeout, host);
        ASSERT_TRUE(listening.ok()) << listening.error().message;
        server = std::move(*listening);
    }
    [[nodiscard]] static session_request wish(nanoseconds peer_timeout = 2s) {
        session_request request;
        request.scheme = "tcp";
        request.wanted = {4, 1000, 2000};
        request.peer_timeout = peer_timeout;
        request.description = {std::byte{1}, std::byte{2}};
        return request;
    }
    [[nodiscard]] std::shared_ptr<const security_identity> keys(const security_options& options) {
        auto security = load_client_security(options);
        EXPECT_TRUE(security.ok()) << security.error().message;
        return security.ok() ? *security : nullptr;
    }
    [[nodiscard]] result<session_grant> open(const std::shared_ptr<const security_identity>& security,
                                             const session_request& request,
                                             std::chrono::nanoseconds within = patience) {
        return context->control().open_session(own_loopback(), server->port(), security, request, watch,
                                               deadline_after(within));
    }

    // In this order: the server goes first, then the context, then the host.
    fake_host host;
    std::shared_ptr<context_state> context = std::make_shared<context_state>();
    std::shared_ptr<session_watch> watch = std::make_shared<session_watch>();
    std::unique_ptr<control_server> server;
};

/// Speaks to a control server by hand.
class raw_client {
  public:
    raw_client(context_state& context, std::uint16_t port) {
        auto opened = zmq_socket::open(context.zmq(), ZMQ_DEALER);
        EXPECT_TRUE(opened.ok());
        socket_ = std::move(*opened);
        socket_.set(ZMQ_RCVTIMEO, 10'000);
        const std::string endpoint = "tcp://" + own_loopback() + ":" + std::to_string(port);
        EXPECT_EQ(zmq_connect(socket_.get(), endpoint.c_str()), 0);
    }
    void send(const control_message& message) { send(encode_control(message)); }
    void send(const std::vector<std::byte>& bytes) {
        EXPECT_GE(zmq_send(socket_.get(), bytes.data(), bytes.size(), 0), 0);
    }
    /// The next message that is no heartbeat; waits up to ten seconds.
    [[nodiscard]] result<control_message> receive() {
        for (;;) {
            std::vector<std::byte> bytes(4096);
            const int got = zmq_recv(socket_.get(), bytes.data(), bytes.size(), 0);
            if (got < 0) return error{status::timed_out, 0, "no answer"};
            bytes.resize(static_cast<std::size_t>(got));
            auto message = decode_control(bytes);
            if (message.ok() && std::holds_alternative<heartbeat>(message->body)) continue;
            return message;
        }
    }
    [[nodiscard]] void* socket() { return socket_.get(); }

  private:
    zmq_socket socket_;
};

}  // namespace accel::core::testing
