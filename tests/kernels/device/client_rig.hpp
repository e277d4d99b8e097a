// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "conformance/payload.hpp"
#include "core/internals.hpp"
#include "device/service_rig.hpp"

#include <accel_transport/device/client.hpp>
#include <accel_transport/gpu_channel.hpp>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>

namespace accel::tests {

/// What calls a channel, and who answers.
struct client_case {
    service_setting caller;
    /// A service like the caller, with threads in its kernels' place; else a handler over rdma.
    bool kernels_answer = false;
    bool owners_answer = false;  ///< of those kernels: the service is exclusive
};
inline std::string name_of(const client_case& which) {
    return name_of(which.caller) + (which.kernels_answer ? "_to_kernels" : "_to_handler");
}

/// The first bytes of a request say what is to become of it.
enum class wish : std::uint8_t { echo, fail, hold };

/// A server, and channels whose calls are made by threads in kernels' place.
class client_rig {
  public:
    explicit client_rig(const client_case& which) : kind(which), services(which.caller) {
        if (kind.caller.on_gpu) {
            fake_ = std::make_shared<fake_accelerator>();
            core::internals::state_of(services.client_context)->replace_devices(fake_);
        }
        wanted.slots = 8;
        wanted.request_bytes = wanted.response_bytes = 4096;
        wanted.call_timeout = patience(10s);
        wanted.connect_timeout = patience(20s);
        wanted.peer_timeout = patience(20s);
        wanted.security.insecure = true;
        wanted.kernels.engine = kind.caller.engine;
        wanted.memory = kind.caller.on_gpu ? memory_kind::cuda(0) : memory_kind::host();
    }
    ~client_rig() {
        release();
        channel.reset();
        stop_server();
    }
    client_rig(const client_rig&) = delete;
    client_rig& operator=(const client_rig&) = delete;

    void listen() {
        if (kind.kernels_answer) {
            if (kind.owners_answer) services.options.kernels.sharing = service_sharing::exclusive;
            services.listen();
            ASSERT_TRUE(services.service && services.service->set_targets({"named"}).ok());
            if (kind.owners_answer)
                return services.serve_owned([this](device::owned_sessions& mine, const device::exchange_ref& exchange) {
                    answer_as_owner(mine, exchange);
                });
            services.serve([this](const device::service_ref& service,
                                  const device::exchange_ref& exchange) { answer(service, exchange); },
                           2);
            return;
        }
        server_options options;
        options.security.insecure = true;
        options.peer_timeout = patience(20s);
        options.drain_timeout = 50ms;
        options.poll = poll_mode::block;
        const std::string uri = "rdma://" + own_loopback() + ":0";
        const accel::handler usual = [this](exchange request) { answer(std::move(request)); };
        const accel::handler named = [](exchange request) { (void)request.fail(status::application_error, 99); };
        auto made = server::listen(services.server_context, {uri}, service_table{{{"named", named}}, usual}, options);
        ASSERT_TRUE(made.ok()) << made.error().message;
        handler = std::make_unique<server>(std::move(*made));
    }
    [[nodiscard]] std::string endpoint() const {
        const std::string there = handler ? handler->endpoints().front() : services.service->endpoint();
        return "gpu" + there.substr(there.find(':'));
    }
    [[nodiscard]] result<gpu_channel> try_connect(const std::string& query = "") {
        return gpu_channel::connect(services.client_context, endpoint() + query, wanted);
    }
    void connect() {
        auto made = try_connect();
        ASSERT_TRUE(made.ok()) << made.error().message;
        channel = std::make_unique<gpu_channel>(std::move(*made));
    }
    void stop_server() {
        release();
        if (handler) handler->stop();
        services.stop();
    }
    /// Tells clients to go away, and goes on with what it has.
    void drain_server() {
        if (handler)
            (void)handler->drain(0ns);
        else
            services.service->request_stop();
    }
    /// Answers what is held back.
    void release() {
        const std::lock_guard lock(mutex_);
        for (auto& each : held_) each();
        held_.clear();
    }
    /// Kernels that end with requests in hand.
    void forget() {
        const std::lock_guard lock(mutex_);
        held_.clear();
    }
    [[nodiscard]] std::size_t held() {
        const std::lock_guard lock(mutex_);
        return held_.size();
    }
    [[nodiscard]] int pages_pinned() const { return fake_ ? fake_->pins.load() : 0; }
    /// The caller's; the services' own are others.
    [[nodiscard]] fake_accelerator& gpus() { return *fake_; }

    client_case kind;
    service_rig services;
    gpu_channel_options wanted;
    std::unique_ptr<server> handler;
    std::unique_ptr<gpu_channel> channel;
    std::atomic<std::int64_t> last_time_left{0};  ///< of the last request, as the server knows it

  private:
    [[nodiscard]] static wish wish_of(const std::byte* request, std::uint64_t bytes) {
        return bytes == 1 ? static_cast<wish>(request[0]) : wish::echo;
    }
    void hold(std::function<void()> later) {
        const std::lock_guard lock(mutex_);
        held_.push_back(std::move(later));
    }
    void answer(const device::service_ref& service, const device::exchange_ref& exchange) {
        const wish wanted_here = wish_of(exchange.request, exchange.request_bytes);
        last_time_left = device::time_left_ns(exchange);
        if (exchange.target_number != 0)
            (void)device::fail(
                service, exchange,
                exchange.target_number == target_of("named").number ? status::application_error : status::not_found,
                99);
        else if (wanted_here == wish::fail)
            (void)device::fail(service, exchange, status::application_error, 77);
        else if (wanted_here == wish::hold)
            hold([service, exchange] { echo(service, exchange); });
        else
            echo(service, exchange);
    }
    /// Holds nothing.
    void answer_as_owner(device::owned_sessions& mine, const device::exchange_ref& exchange) {
        last_time_left = device::time_left_ns(exchange);
        if (exchange.target_number != 0)
            (void)device::fail(mine, exchange, status::application_error, 99);
        else if (wish_of(exchange.request, exchange.request_bytes) == wish::fail)
            (void)device::fail(mine, exchange, status::application_error, 77);
        else
            echo_as_owner(mine, exchange);
    }
    void answer(exchange request) {
        const auto bytes = request.request();
        last_time_left = request.time_left().count();
        const wish wanted_here = wish_of(bytes.data(), bytes.size());
        if (wanted_here == wish::fail) {
            (void)request.fail(status::application_error, 77, "as was wished");
            return;
        }
        if (wanted_here == wish::hold) {
            auto kept = std::make_shared<exchange>(std::move(request));
            return hold([kept] { (void)kept->reply(1); });
        }
        const std::size_t length = std::min(bytes.size(), request.response().size());
        std::memcpy(request.response().data(), bytes.data(), length);
        (void)request.reply(length);
    }
    std::shared_ptr<fake_accelerator> fake_;
    std::mutex mutex_;
    std::vector<std::function<void()>> held_;
};

/// Waits for a call as a kernel does, but lets others of two cores work. `Channel`: a `channel_ref` or an
/// `owned_channel`, as in the functions below.
template <class Channel>
status await(Channel& channel, device::call_ref& call) {
    for (;;) {
        const status found = device::wait(channel, call, 20'000);
        if (found != status::again) return found;
        std::this_thread::sleep_for(50us);
    }
}

/// Begins, and waits for a slot.
template <class Channel>
status begin_call(Channel& channel, device::call_ref& call) {
    for (;;) {
        const status found = device::begin(channel, call);
        if (found != status::again) return found;
        std::this_thread::sleep_for(50us);
    }
}

/// What `begin` says, without keeping a slot.
template <class Channel>
status begins(Channel& channel) {
    device::call_ref call;
    const status said = device::begin(channel, call);
    if (said == status::ok) (void)device::release(channel, call);
    return said;
}

/// Looks until it hears that the server drains. False: it hears nothing, or the call has ended.
template <class Channel>
bool hears_of_drain(Channel& channel, device::call_ref& call) {
    const auto goes_on = [&] { return device::poll(channel, call) == status::again; };
    return eventually(patience(5s), [&] { return !goes_on() || begins(channel) == status::closed; }) && goes_on();
}

/// One call with bytes that follow from `seed`, checked and released. `ok`: echoed as it was.
template <class Channel>
status call_once(Channel& channel, std::size_t size, std::uint64_t seed) {
    device::call_ref call;
    if (const status begun = begin_call(channel, call); begun != status::ok) return begun;
    fill({call.request, size}, seed);
    status found = device::submit(channel, call, size);
    if (found == status::ok) found = await(channel, call);
    if (found == status::ok && (call.response_bytes != size || !matches({call.response, size}, seed)))
        found = status::invalid_argument;
    (void)device::release(channel, call);
    return found;
}

/// Submits a request of one byte.
template <class Channel>
status submit_wish(Channel& channel, device::call_ref& call, wish what, std::int64_t timeout_ns = 0) {
    if (const status begun = begin_call(channel, call); begun != status::ok) return begun;
    call.request[0] = static_cast<std::byte>(what);
    device::call_options with;
    with.timeout_ns = timeout_ns;
    return device::submit(channel, call, 1, with);
}

}  // namespace accel::tests
