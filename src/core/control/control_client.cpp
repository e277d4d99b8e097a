#include "core/control/control_client.hpp"

#include "core/context_state.hpp"
#include "core/control/client_connection.hpp"

#include <atomic>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>

namespace accel::core {
namespace {

struct ask_command {
    server_address address;
    std::shared_ptr<waiting_call> call;
};

struct close_command {
    std::string host;
    std::uint16_t port;
    std::uint64_t session_id;
};

using command = std::variant<ask_command, close_command>;

bool same_server(const server_address& a, const server_address& b) {
    return a.endpoint == b.endpoint && a.security->insecure == b.security->insecure &&
           a.security->public_key == b.security->public_key &&
           a.security->server_key == b.security->server_key;
}

}  // namespace

class control_client::impl {
  public:
    explicit impl(context_state& context) : context_(context), thread_([this] { run(); }) {}

    ~impl() {
        stopping_.store(true);
        wake_.set();
        thread_.join();
    }

    void post(command what) {
        {
            const std::lock_guard lock{mutex_};
            commands_.push_back(std::move(what));
        }
        wake_.set();
    }

    [[nodiscard]] result<waiting_call::answer> ask(const std::string& host, std::uint16_t port,
                                                   std::shared_ptr<const security_identity> security,
                                                   const std::shared_ptr<waiting_call>& call) {
        auto endpoint = tcp_endpoint(host, port, false);
        if (!endpoint) return endpoint.error();
        post(ask_command{{host, port, std::move(*endpoint), std::move(security)}, call});
        auto answer = call->wait();
        if (!answer)
            return error{status::timed_out, 0,
                         fmt::format("no server answered at {} in time", host_and_port(host, port))};
        if (const auto* failure = std::get_if<error>(&*answer)) return *failure;
        return std::move(*answer);
    }

  private:
    void run() {
        // Here, because the context is locked while it makes us.
        zmq_ = context_.zmq();
        std::vector<zmq_pollitem_t> items;
        nanoseconds next = never;
        while (!stopping_.load()) {
            items.assign(1, {nullptr, wake_.fd(), ZMQ_POLLIN, 0});
            for (auto& each : connections_) each.add_poll_items(items);
            const long timeout = poll_timeout(now(), next);
            if (zmq_poll(items.data(), static_cast<int>(items.size()), timeout) < 0 && zmq_errno() == ETERM)
                break;
            if ((items.front().revents & ZMQ_POLLIN) != 0) wake_.clear();
            listening_.advance(now(), std::chrono::milliseconds{timeout});
            for (auto& each : connections_) each.receive();
            run_commands();
            next = never;
            for (auto& each : connections_) next = std::min(next, each.run_timers());
            connections_.remove_if([](const client_connection& each) { return each.finished(); });
        }
        run_commands();
        for (auto& each : connections_) each.end();
        connections_.clear();
    }

    void run_commands() {
        std::vector<command> taken;
        {
            const std::lock_guard lock{mutex_};
            taken.swap(commands_);
        }
        for (command& each : taken) {
            if (auto* question = std::get_if<ask_command>(&each)) {
                connection_to(std::move(question->address)).ask(std::move(question->call));
                continue;
            }
            const auto& over = std::get<close_command>(each);
            for (auto& open : connections_) {
                const server_address& address = open.address();
                if (address.host == over.host && address.port == over.port &&
                    open.close_session(over.session_id))
                    break;
            }
        }
    }

    client_connection& connection_to(server_address address) {
        for (auto& each : connections_) {
            if (same_server(each.address(), address)) return each;
        }
        return connections_.emplace_back(zmq_, std::move(address), listening_);
    }

    context_state& context_;
    void* zmq_ = nullptr;  ///< of the thread
    wake_signal wake_;
    std::mutex mutex_;
    std::vector<command> commands_;
    std::atomic<bool> stopping_{false};
    listening_clock listening_;
    std::list<client_connection> connections_;
    std::thread thread_;
};

control_client::control_client(context_state& context) : impl_(std::make_unique<impl>(context)) {}
control_client::~control_client() = default;

result<session_grant> control_client::open_session(const std::string& host, std::uint16_t port,
                                                   std::shared_ptr<const security_identity> security,
                                                   const session_request& request,
                                                   std::shared_ptr<session_watch> watch,
                                                   nanoseconds deadline) {
    const auto call = std::make_shared<waiting_call>(request, std::move(watch), deadline);
    auto answer = impl_->ask(host, port, std::move(security), call);
    if (!answer) return answer.error();
    return std::get<session_grant>(*std::move(answer));
}

void control_client::close_session(const std::string& host, std::uint16_t port,
                                   std::uint64_t session_id) noexcept {
    impl_->post(close_command{host, port, session_id});
}

result<std::vector<std::string>> control_client::query_offers(
    const std::string& host, std::uint16_t port, std::shared_ptr<const security_identity> security,
    nanoseconds deadline) {
    const auto call = std::make_shared<waiting_call>(std::nullopt, nullptr, deadline);
    auto answer = impl_->ask(host, port, std::move(security), call);
    if (!answer) return answer.error();
    return std::get<std::vector<std::string>>(*std::move(answer));
}

}  // namespace accel::core
