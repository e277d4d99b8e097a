// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/context_state.hpp"
#include "core/control/control_client.hpp"
#include "core/control/control_message.hpp"
#include "core/control/control_server.hpp"
#include "core/control/control_stream.hpp"
#include "core/control/data_preamble.hpp"
#include "core/control/security.hpp"
#include "core/log.hpp"
#include "core/log_sink.hpp"
#include "core/net/socket.hpp"
#include "core/tls/key_file.hpp"
#include "loopback.hpp"
#include "patience.hpp"

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

/// Both ends of the control plane in one process, below the core.
namespace accel::core::testing {

using tests::eventually;
using tests::own_loopback;

using namespace std::chrono_literals;

inline constexpr auto patience = 30s;

inline std::size_t open_descriptors() {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
    return count;
}

/// A server that grants what is asked for, or what the test tells it to.
class fake_host : public session_host {
  public:
    result<session_grant> open_session(const session_request& request, const client_identity& client) override {
        std::unique_lock lock{mutex_};
        ++asked_;
        goes_on_.wait(lock, [this] { return !held_; });
        last_client_ = client;
        last_request_ = request;
        if (refusal.code != status::ok) return refusal;
        session_grant grant;
        if (endings_.capacity() <= last_id_) endings_.reserve(2 * (last_id_ + 1));  // an end must not need memory
        grant.session_id = ++last_id_;
        grant.token[0] = static_cast<std::byte>(last_id_);
        grant.granted = request.wanted;
        grant.description = request.description;
        open_[grant.session_id] = status::ok;
        return grant;
    }
    void close_session(std::uint64_t session_id, status why) noexcept override {
        const std::lock_guard lock{mutex_};
        open_[session_id] = why;
        endings_.push_back(session_id);
    }
    std::optional<session_token> token_of(std::uint64_t session_id) const override {
        const std::lock_guard lock{mutex_};
        const auto found = open_.find(session_id);
        if (found == open_.end() || found->second != status::ok) return std::nullopt;
        session_token token{};
        token[0] = static_cast<std::byte>(session_id);
        return token;
    }
    void cancel(std::uint64_t session_id, std::span<const call_id> calls) noexcept override {
        const std::lock_guard lock{mutex_};
        for (const call_id& each : calls) cancelled_.emplace_back(session_id, each);
    }
    [[nodiscard]] std::vector<std::pair<std::uint64_t, call_id>> cancelled() {
        const std::lock_guard lock{mutex_};
        return cancelled_;
    }
    std::vector<std::string> offers() const override { return {"tcp", "zmq"}; }
    result<std::uint32_t> find_target(std::string_view name) const override {
        if (name == "model") return target_of(name).number;
        return error{status::not_found, 0, "no such target"};
    }
    health_state check_health(std::string_view name) const noexcept override {
        if (name.empty()) return health_state::not_serving;
        return name == "model" ? health_state::serving : health_state::unknown;
    }
    target_page list_targets(std::string_view after) const override {
        return after < "model" ? target_page{{"model"}, true} : target_page{{"other"}, false};
    }
    result<void> take_connection(data_connection& made, const client_identity& client) override {
        const std::lock_guard lock{mutex_};
        if (open_.find(made.session_id) == open_.end()) return error{status::unauthorized, 0, "no such session"};
        last_client_ = client;
        answer_data(made, status::ok, {});
        taken_.push_back(std::move(made));
        return {};
    }
    [[nodiscard]] std::size_t taken() {
        const std::lock_guard lock{mutex_};
        return taken_.size();
    }

    /// From now on sessions are opened once `go_on` was called.
    void hold() {
        const std::lock_guard lock{mutex_};
        held_ = true;
    }
    void go_on() {
        const std::lock_guard lock{mutex_};
        held_ = false;
        goes_on_.notify_all();
    }
    /// How often it was asked for a session, those on hold included.
    [[nodiscard]] std::uint64_t asked() {
        const std::lock_guard lock{mutex_};
        return asked_;
    }
    /// Why it was closed; `ok` while it is open or unknown.
    [[nodiscard]] status ended(std::uint64_t session_id) {
        const std::lock_guard lock{mutex_};
        const auto found = open_.find(session_id);
        return found != open_.end() ? found->second : status::ok;
    }
    /// Sessions whose clients closed or died, in this order.
    [[nodiscard]] std::vector<std::uint64_t> endings() {
        const std::lock_guard lock{mutex_};
        return endings_;
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
    [[nodiscard]] client_identity last_client() {
        const std::lock_guard lock{mutex_};
        return last_client_;
    }
    [[nodiscard]] session_request last_request() {
        const std::lock_guard lock{mutex_};
        return last_request_;
    }

    error refusal;  ///< set before the server listens

  private:
    mutable std::mutex mutex_;
    std::condition_variable goes_on_;
    bool held_ = false;
    std::uint64_t asked_ = 0;
    std::map<std::uint64_t, status> open_;
    std::vector<std::uint64_t> endings_;
    std::vector<std::pair<std::uint64_t, call_id>> cancelled_;
    std::uint64_t last_id_ = 0;
    client_identity last_client_;
    std::vector<data_connection> taken_;
    session_request last_request_;
};

/// Key files of one server and two clients, of which the server knows only the first.
class key_folder {
  public:
    key_folder() {
        std::string name = (std::filesystem::temp_directory_path() / "accel_keys_XXXXXX").string();
        path_ = ::mkdtemp(name.data());
        for (const char* each : {"server", "client", "stranger"}) make(each);
        authorize({"client"});
    }
    ~key_folder() { std::filesystem::remove_all(path_); }
    key_folder(const key_folder&) = delete;
    key_folder& operator=(const key_folder&) = delete;

    /// Another pair, which the server does not know yet.
    void make(const std::string& name) {
        auto key = make_private_key();
        EXPECT_TRUE(key.ok());
        EXPECT_TRUE(write_key_files(file(name), key->get(), false).ok());
        names_[name] = public_half(key->get())->text();
    }
    [[nodiscard]] std::string file(const std::string& name) const { return (path_ / name).string(); }
    /// The public key as text.
    [[nodiscard]] const std::string& key(const std::string& name) { return names_[name]; }
    /// Another key in the place of a client's `server_key`, or the same once more, as a whole.
    void replace(const std::string& server_pub, const std::string& by) {
        std::filesystem::copy_file(file(by), file("new.pub"));
        std::filesystem::rename(file("new.pub"), file(server_pub));
    }
    /// Writes `authorized` as a whole, as a careful administrator does.
    void authorize(const std::vector<std::string>& names) {
        {
            std::ofstream out{file("authorized.new")};
            out << "# who may come\n";
            for (const std::string& each : names) out << names_[each] << ' ' << each << '\n';
        }
        std::filesystem::rename(file("authorized.new"), file("authorized"));
    }

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
    std::map<std::string, std::string> names_;
};

inline security_options insecure() {
    security_options options;
    options.insecure = true;
    return options;
}

/// What the library logs while this lives, from this level on, whatever the process logged before.
class log_capture {
  public:
    explicit log_capture(log_level level = log_level::warning) { logger::set_level(level); }
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
    void TearDown() override { host.go_on(); }
    void listen(const security_options& options, nanoseconds peer_timeout = 2s,
                const std::string& at = own_loopback()) {
        auto loaded = live_security::of_server(options);
        ASSERT_TRUE(loaded.ok()) << loaded.error().message;
        security = *loaded;
        auto listening = control_server::listen(at, 0, security, peer_timeout, host, limits);
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
    [[nodiscard]] static std::shared_ptr<const security_identity> keys(const security_options& options) {
        auto loaded = load_client_security(options);
        EXPECT_TRUE(loaded.ok()) << loaded.error().message;
        return loaded.ok() ? *loaded : nullptr;
    }
    [[nodiscard]] result<session_grant> open(const std::shared_ptr<const security_identity>& identity,
                                             const session_request& request,
                                             std::chrono::nanoseconds within = patience) {
        return context->control().open_session(own_loopback(), server->port(), identity, request, watch,
                                               deadline_after(within));
    }

    // In this order: the server goes first, then the context, then the host.
    fake_host host;
    std::shared_ptr<context_state> context = std::make_shared<context_state>();
    std::shared_ptr<session_watch> watch = std::make_shared<session_watch>();
    std::shared_ptr<live_security> security;
    control_limits limits;
    std::unique_ptr<control_server> server;
};

/// One end of a control connection by hand: without TLS, and without a thread.
class raw_stream {
  public:
    raw_stream() = default;
    explicit raw_stream(unique_fd socket) : stream_(std::move(socket)) {}

    void send(const control_message& message) { EXPECT_TRUE(stream_.send(message)); }
    /// A frame of these bytes, whatever they mean.
    void send(const std::vector<std::byte>& bytes) {
        const auto length = static_cast<std::uint32_t>(bytes.size());
        EXPECT_TRUE(stream_.send_raw(std::as_bytes(std::span(&length, 1))));
        EXPECT_TRUE(stream_.send_raw(bytes));
    }
    void send_raw(std::string_view text) {
        EXPECT_TRUE(stream_.send_raw(std::as_bytes(std::span(text.data(), text.size()))));
    }
    /// The next message that is no heartbeat; waits up to ten seconds.
    [[nodiscard]] result<control_message> receive() {
        for (;;) {
            auto message = next(10s);
            if (!message) return error{status::timed_out, 0, "no answer"};
            if (message->ok() && std::holds_alternative<heartbeat>((*message)->body)) continue;
            return std::move(*message);
        }
    }
    /// Any message; nothing if none comes in time, or the stream has ended.
    [[nodiscard]] std::optional<result<control_message>> next(std::chrono::nanoseconds within) {
        const nanoseconds deadline = deadline_after(within);
        for (;;) {
            if (const auto bytes = stream_.next_message()) return decode_control(*bytes);
            if (wait_ready(stream_.fd(), POLLIN, deadline) != 0) return std::nullopt;
            const auto read = stream_.fill();
            ended_ = read == tls_outcome::closed || read == tls_outcome::failed;
            if (ended_ && stream_.received().empty()) return std::nullopt;
        }
    }
    /// The other end closes within ten seconds; what it says before is thrown away.
    [[nodiscard]] bool ends() {
        while (!ended_ && next(10s)) {
        }
        return ended_;
    }
    [[nodiscard]] control_stream& stream() { return stream_; }

  private:
    control_stream stream_{unique_fd{}};
    bool ended_ = false;
};

inline unique_fd connect_raw(std::uint16_t port) {
    auto socket = connect_to(own_loopback(), port, deadline_after(5s));
    EXPECT_TRUE(socket.ok()) << socket.error().message;
    return socket.ok() ? std::move(*socket) : unique_fd{};
}

/// Speaks to a control server by hand.
class raw_client : public raw_stream {
  public:
    explicit raw_client(std::uint16_t port) : raw_stream(connect_raw(port)) { send_raw(control_greeting); }
};

}  // namespace accel::core::testing
