// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/configuration/settings.hpp"
#include "serving/doors/grpc/door/grpc_listener.hpp"
#include "serving/doors/grpc/door/open_stream.hpp"
#include "serving/doors/grpc/door/renewable_certificate.hpp"
#include "serving/doors/grpc/door/reset_guard.hpp"
#include "serving/doors/http/http_door.hpp"

#include <accel_transport/status.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>

namespace accel::examples::serving::doors {

class health_watch;
class rpc;

/// Longest message of a call other than an inference.
inline constexpr std::size_t longest_question = 64 << 10;

/// The Open Inference Protocol over gRPC. gRPC's threads read messages and write answers; everything else belongs to
/// the loop's thread. `models` has to outlive it, and their descriptions do not change.
class grpc_door final : private ::grpc::CallbackGenericService {
  public:
    /// `acceptor`: of `bind_at`. `settings.max_connections` and `settings.max_calls` bound both.
    grpc_door(boost::asio::io_context& loop, boost::asio::ip::tcp::acceptor acceptor, model_table& models,
              const door_settings& settings, door_access access);
    grpc_door(const grpc_door&) = delete;
    grpc_door& operator=(const grpc_door&) = delete;
    ~grpc_door() override;

    /// "grpc://127.0.0.1:8001", with the real port; grpcs with TLS.
    [[nodiscard]] std::string endpoint() const;
    /// Takes connections from here on. `system_error`.
    [[nodiscard]] result<void> start();
    /// Connections from here on get this certificate, and calls these tokens.
    void renew(const door_access& fresh);
    /// From now on it says that it is not ready. It is open as before.
    void leave() { leaving_ = true; }
    /// Takes no more calls, and has the loop call `done` once those open have their answers, or after `drain_timeout`.
    void stop(std::function<void()> done);

    [[nodiscard]] const door_metrics& metrics() const { return metrics_; }
    [[nodiscard]] door_metrics& metrics() { return metrics_; }

    // For calls.
    [[nodiscard]] bool leaving() const { return leaving_; }
    [[nodiscard]] const std::shared_ptr<shared_memory::region_table>& regions() const { return access_.regions; }
    [[nodiscard]] boost::asio::io_context& loop() { return loop_; }
    [[nodiscard]] const door_settings& settings() const { return settings_; }
    [[nodiscard]] model_table& models() { return models_; }
    /// Longest message that a client may send, also once it is inflated.
    [[nodiscard]] std::size_t message_limit() const { return message_limit_; }
    [[nodiscard]] door_counts& counts() { return counts_; }
    [[nodiscard]] const door_counts& counts() const { return counts_; }
    [[nodiscard]] open_calls& calls() { return listener_.calls(); }
    void call_began(rpc& one);
    void call_ended(rpc& one);
    /// Ends a call whose client takes too long to read, unless it has ended meanwhile.
    void break_off(rpc& one);
    /// Streams have deadlines of their own.
    void stream_ended() { --calls_; }
    void add_stream(const std::shared_ptr<open_stream>& one);
    void remove_stream(const open_stream& one) { streams_.erase(&one); }
    // Watches have a bound of their own: they stay open for long, and nobody needs a token.
    void watch_ended() { --watch_count_; }
    void add_watch(const std::shared_ptr<health_watch>& one);
    void remove_watch(const health_watch& one) { watches_.erase(&one); }

  private:
    /// A call whose client is waited for.
    struct slow_call {
        bool has_sent;  ///< a whole message before
        std::chrono::steady_clock::time_point since;
        std::function<void()> end;
    };

    ::grpc::ServerGenericBidiReactor* CreateReactor(::grpc::GenericCallbackServerContext* context) override;
    [[nodiscard]] ::grpc::ServerGenericBidiReactor* watch_health(::grpc::GenericCallbackServerContext& context);
    [[nodiscard]] ::grpc::ServerGenericBidiReactor* refuse(::grpc::StatusCode code, const char* sentence);
    [[nodiscard]] std::shared_ptr<::grpc::ServerCredentials> credentials();
    [[nodiscard]] std::shared_ptr<const access::token_list> tokens() const;
    void tick();
    void expire();
    [[nodiscard]] std::vector<std::shared_ptr<rpc>> late_calls(std::chrono::steady_clock::time_point now);
    [[nodiscard]] std::vector<slow_call> slow_calls(std::chrono::steady_clock::time_point now);
    void look_after_watches();

    boost::asio::io_context& loop_;
    boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
    door_metrics metrics_;
    grpc_listener listener_;
    reset_guard guard_;
    model_table& models_;
    door_settings settings_;
    const std::size_t message_limit_;
    door_access access_;
    renewable_certificate certificate_;  ///< of `access_`, and later ones
    mutable std::mutex tokens_lock_;
    std::shared_ptr<const access::token_list> tokens_;  ///< which gRPC's threads read
    door_counts counts_{};
    boost::asio::steady_timer timer_;
    std::atomic<std::size_t> calls_{0};
    std::recursive_mutex open_lock_;  ///< gRPC may end a call within `break_off`
    std::unordered_set<rpc*> open_;   ///< none of them is done before it has left
    std::map<const open_stream*, std::weak_ptr<open_stream>> streams_;
    bool leaving_ = false;
    std::atomic<std::size_t> watch_count_{0};
    std::map<const health_watch*, std::shared_ptr<health_watch>> watches_;
    std::unique_ptr<::grpc::Server> server_;
    std::thread stopper_;
};

/// Largest message that a request for this model may need.
[[nodiscard]] std::size_t longest_message(const served_model& model, const door_settings& settings);

/// Largest message that a request for one of the models may need.
[[nodiscard]] std::size_t largest_message(const model_table& models, const door_settings& settings);

}  // namespace accel::examples::serving::doors
