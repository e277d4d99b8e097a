// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "conformance/payload.hpp"
#include "core/internals.hpp"
#include "device/wished_work.hpp"

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
    [[nodiscard]] service_setting answerer() const {
        return {caller.on_gpu, caller.engine, owners_answer ? service_sharing::exclusive : service_sharing::shared};
    }
};
inline std::string name_of(const client_case& which) {
    return name_of(which.caller) + (which.owners_answer    ? "_to_owners"
                                    : which.kernels_answer ? "_to_kernels"
                                                           : "_to_handler");
}

/// A server, and channels whose calls are made by threads in kernels' place.
class client_rig {
  public:
    explicit client_rig(const client_case& which) : kind(which), services(which.answerer()) {
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
        wanted.kernels.sharing = kind.caller.sharing;
        wanted.kernels.queues = kind.caller.queues;
        wanted.memory = kind.caller.on_gpu ? memory_kind::cuda(0) : memory_kind::host();
    }
    ~client_rig() {
        work.over = true;
        channel.reset();
        stop_server();
        handlers_.reset();
    }
    client_rig(const client_rig&) = delete;
    client_rig& operator=(const client_rig&) = delete;

    void listen() {
        if (kind.kernels_answer) {
            services.listen();
            ASSERT_TRUE(services.service && services.service->set_targets({"named"}).ok());
            return services.serve_with(kernels_for(work), kind.owners_answer ? 1 : 2);
        }
        server_options options;
        options.security.insecure = true;
        options.peer_timeout = patience(20s);
        options.drain_timeout = 50ms;
        options.poll = poll_mode::block;
        const std::string uri = "rdma://" + own_loopback() + ":0";
        handlers_ = std::make_unique<wishing_handler>(work);
        const service_table table{{{"named", handlers_->answers(target_of("named").number)}}, handlers_->answers()};
        auto made = server::listen(services.server_context, {uri}, table, options);
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
        work.answers_held = true;
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
    /// The server ends without answers to what it holds.
    void end_server() {
        work.forgets = true;
        if (handler) handler->stop();
        services.stop();
    }
    /// Answers what is held back, from now on at once.
    void release() {
        work.answers_held = true;
        EXPECT_TRUE(eventually([this] { return held() == 0; })) << held();
    }
    [[nodiscard]] int held() const { return work.at_work; }
    [[nodiscard]] bool holds(int count) const {
        return eventually([&] { return held() == count; });
    }
    [[nodiscard]] int pages_pinned() const { return fake_ ? fake_->pins.load() : 0; }
    /// The caller's; the services' own are others.
    [[nodiscard]] fake_accelerator& gpus() { return *fake_; }

    client_case kind;
    wished_work work;
    service_rig services;
    gpu_channel_options wanted;

  private:
    std::unique_ptr<wishing_handler> handlers_;

  public:
    std::unique_ptr<server> handler;
    std::unique_ptr<gpu_channel> channel;

  private:
    std::shared_ptr<fake_accelerator> fake_;
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

/// Submits a request that says what becomes of it.
template <class Channel>
status submit_wish(Channel& channel, device::call_ref& call, const wished& what,
                   const device::call_options& with = {}) {
    if (const status begun = begin_call(channel, call); begun != status::ok) return begun;
    std::memcpy(call.request, &what, sizeof what);
    return device::submit(channel, call, sizeof what, with);
}
inline wished held_call(std::uint64_t number = 0) {
    wished out;
    out.number = number;
    out.what = wish::hold;
    return out;
}
inline wished failing_call(std::uint32_t code) {
    wished out;
    out.code = code;
    return out;
}

}  // namespace accel::tests
