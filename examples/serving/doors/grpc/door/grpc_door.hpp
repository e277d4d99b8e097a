// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/http/http_door.hpp"
#include "serving/doors/http/settings.hpp"

#include <accel_transport/status.hpp>

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>

namespace accel::examples::serving::doors {

class rpc;
class stream_rpc;

/// The Open Inference Protocol over gRPC. gRPC's threads read messages and write answers; everything else belongs to
/// the loop's thread. `models` has to outlive it, and their descriptions do not change.
class grpc_door final : private ::grpc::CallbackGenericService {
  public:
    /// Listens at "HOST:PORT"; port 0: any free one. `system_error`: it cannot. `settings.max_connections` bounds
    /// calls.
    [[nodiscard]] static result<std::unique_ptr<grpc_door>> open(boost::asio::io_context& loop,
                                                                 const std::string& address, model_table& models,
                                                                 const door_settings& settings);
    grpc_door(boost::asio::io_context& loop, model_table& models, const door_settings& settings);
    grpc_door(const grpc_door&) = delete;
    grpc_door& operator=(const grpc_door&) = delete;
    ~grpc_door() override;

    /// "127.0.0.1:8001", with the real port.
    [[nodiscard]] const std::string& endpoint() const { return endpoint_; }
    /// Takes no more calls, and stops the loop once those open have their answers, or after `drain_timeout`.
    void stop();

    /// Before the first call: clients of this host may use these regions. Null, as at first: none.
    void set_regions(std::shared_ptr<shared_memory::region_table> regions) { regions_ = std::move(regions); }

    // For calls.
    [[nodiscard]] const std::shared_ptr<shared_memory::region_table>& regions() const { return regions_; }
    [[nodiscard]] boost::asio::io_context& loop() { return loop_; }
    [[nodiscard]] const door_settings& settings() const { return settings_; }
    [[nodiscard]] model_table& models() { return models_; }
    /// Longest message that a client may send, also once it is inflated.
    [[nodiscard]] std::size_t message_limit() const { return message_limit_; }
    [[nodiscard]] door_counts& counts() { return counts_; }
    void call_began(rpc& one);
    void call_ended(rpc& one);
    /// Ends a call whose client takes too long to read, unless it has ended meanwhile.
    void break_off(rpc& one);
    /// Streams have deadlines of their own.
    void stream_ended() { --calls_; }
    void add_stream(const std::shared_ptr<stream_rpc>& one);
    void remove_stream(const stream_rpc& one) { streams_.erase(&one); }

  private:
    ::grpc::ServerGenericBidiReactor* CreateReactor(::grpc::GenericCallbackServerContext* context) override;
    [[nodiscard]] bool listen(const std::string& address);
    void tick();
    void expire();

    boost::asio::io_context& loop_;
    boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
    model_table& models_;
    door_settings settings_;
    std::shared_ptr<shared_memory::region_table> regions_;
    const std::size_t message_limit_;
    door_counts counts_{};
    boost::asio::steady_timer timer_;
    std::atomic<std::size_t> calls_{0};
    std::recursive_mutex open_lock_;  ///< gRPC may end a call within `break_off`
    std::unordered_set<rpc*> open_;   ///< none of them is done before it has left
    std::map<const stream_rpc*, std::weak_ptr<stream_rpc>> streams_;
    std::string endpoint_;
    std::unique_ptr<::grpc::Server> server_;
    std::thread stopper_;
};

/// Largest message that a request for one of the models may need.
[[nodiscard]] std::size_t largest_message(const model_table& models, const door_settings& settings);

}  // namespace accel::examples::serving::doors
