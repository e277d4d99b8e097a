// SPDX-License-Identifier: Apache-2.0
#include "kernels/service/service_poller.hpp"

#include "core/event_signal.hpp"
#include "core/log.hpp"
#include "core/net/unique_fd.hpp"
#include "kernels/layout.hpp"
#include "kernels/left_behind.hpp"
#include "kernels/service/service_link.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <sys/eventfd.h>

namespace accel::gpu {
namespace {

/// Slots of all sessions together: more than any device has completions for.
constexpr std::uint64_t max_slots = 1U << 22;

}  // namespace

void connection::on_async_event(ibv_event_type /*type*/) noexcept {
    failed.store(true, std::memory_order_release);
    core::signal_event(wake_fd);
}

result<std::unique_ptr<kernel_service>> service_poller::open(const core::poller_options& options,
                                                             const kernel_setup& wanted,
                                                             std::shared_ptr<proxy_threads> proxies) {
    const std::uint64_t slots = std::uint64_t{wanted.sessions} * wanted.limits.slots;
    if (slots == 0 || slots > max_slots) {
        return error{
            status::invalid_argument, 0,
            fmt::format(
                "gpu: a service may have 1 to {} slots in all, not {} sessions of {} slots (max_sessions, max_slots)",
                max_slots, wanted.sessions, wanted.limits.slots)};
    }
    if (auto fit = admit_gpu(wanted.gpu, wanted.options.host_slots); !fit) return fit.error();
    auto chosen = choose_engine(options.verbs, wanted.options.engine, options.host, wanted.gpus, wanted.gpu);
    if (!chosen) return chosen.error();
    if (auto possible = check_queues(wanted.options, *chosen); !possible) return possible.error();
    const verbs::device& on = *chosen->on;
    const auto longest = on.port().max_message_bytes;
    if (core::header_bytes + wanted.limits.response_bytes > longest) {
        return error{status::invalid_argument, 0,
                     fmt::format("gpu: a response must fit into one message: at most {} bytes on {}",
                                 longest - core::header_bytes, on.describe())};
    }
    const auto level = chosen->fell_back ? log_level::warning : log_level::info;
    core::log().log(level, "gpu: engine {}: {}", chosen->engine == gpu_engine::direct ? "direct" : "proxy",
                    chosen->reason);
    std::unique_ptr<service_poller> made(new service_poller(std::move(*chosen), options, wanted, std::move(proxies)));
    if (auto ready = made->prepare(); !ready) return ready.error();
    return std::unique_ptr<kernel_service>(std::move(made));
}

service_poller::service_poller(engine_choice choice, const core::poller_options& options, const kernel_setup& kernels,
                               std::shared_ptr<proxy_threads> proxies)
    : device_(std::move(choice.on)),
      engine_(choice.engine),
      reason_(std::move(choice.reason)),
      options_(options.verbs),
      proxies_{std::move(proxies), kernels.options.proxy_threads},
      limits_(kernels.limits),
      kernel_memory_(kernels.gpus, kernels.gpu),
      wake_fd_(core::unique_fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)).release()) {
    sizes_.sessions = kernels.sessions;
    sizes_.slots = limits_.slots;
    sizes_.request_stride = stride_for(limits_.request_bytes);
    sizes_.response_stride = stride_for(limits_.response_bytes);
    sizes_.host_slots = kernels.options.host_slots;
    sizes_.exclusive = kernels.options.sharing == service_sharing::exclusive;
    sizes_.queues = kernels.options.queues;
    device_->events().subscribe(*this);
}

/// Queue pairs that were made for a session ended with it, unless a driver did not return.
service_poller::~service_poller() {
    device_->events().unsubscribe(*this);
    kernel_memory_.end_sharing();
    const bool all_ended = discard_connections();
    queues_.reset();
    if (all_ended)
        ::close(wake_fd_);
    else
        kernel_memory_.leave_behind();
}

/// False: some are left to a driver, with their slots and with `wake_fd_`. Only the first is waited for: one thread has
/// all of them.
bool service_poller::discard_connections() noexcept {
    bool stuck = false;
    for (auto& each : connections_) {
        stuck = stuck || !queues_->discard(*each);
        if (stuck) leave_behind(std::move(each));
    }
    connections_.clear();
    if (stuck)
        core::log().warn("gpu: the driver of {} does not return; queue pairs and slots of a service are not released",
                         device_->name());
    return !stuck;
}

kernel_engine service_poller::engine() const {
    const std::string where = queues_->where();
    return {engine_, where.empty() ? reason_ : fmt::format("{}; {}", reason_, where), queues_->cpu_time()};
}

/// Makes everything now: while a persistent kernel runs, much of this would wait for its end.
result<void> service_poller::prepare() {
    if (auto made = make_queues(); !made) return made;
    memory_ = std::make_unique<service_memory>(kernel_memory_, sizes_);
    if (auto allocated = memory_->allocate(); !allocated) return allocated;
    for (const auto& each : connections_)
        if (auto registered = register_slots(*each); !registered) return registered;
    for (std::uint32_t i = 0; i < sizes_.sessions; ++i) free_.push_back(sizes_.sessions - 1 - i);
    links_.reserve(sizes_.sessions);
    if (auto written = sizes_.exclusive ? write_exclusive_state() : write_shared_state(); !written) return written;
    return queues_->start(kernel_memory_);
}

result<void> service_poller::write_shared_state() {
    std::vector<device::detail::send_port> sends;
    for (const auto& each : connections_) sends.push_back(each->port);
    return memory_->prepare(sends, queues_->completion_port(), queues_->receives());
}

result<void> service_poller::write_exclusive_state() {
    std::vector<device::detail::exclusive_session> places(connections_.size());
    for (std::size_t i = 0; i < places.size(); ++i) {
        if (engine_ == gpu_engine::proxy) {
            places[i].proxied = connections_[i]->port.proxied;
            places[i].limit = places[i].proxied.count;
            continue;
        }
        places[i].sends = connections_[i]->port.direct.queue;
        places[i].completions = connections_[i]->own_completions();
        places[i].limit = std::min(places[i].sends.wqebbs, places[i].completions.count);
    }
    const bool all_on_gpu = queues_->place() == mlx5::queue_place::gpu && slots_on() != nullptr;
    const auto by = engine_ == gpu_engine::proxy ? device::detail::engine::proxy : device::detail::engine::direct;
    return memory_->prepare_exclusive(places, by, all_on_gpu ? mlx5::queue_place::gpu : mlx5::queue_place::host);
}

result<void> service_poller::make_queues() {
    auto made = make_queue_set(engine_, device_, sizes_, kernel_memory_, proxies_, this);
    if (!made) return made.error();
    queues_ = std::move(*made);
    if (const std::string where = queues_->where(); !where.empty()) core::log().info("gpu: {}", where);
    for (std::uint32_t i = 0; i < sizes_.sessions; ++i) {
        auto place = std::make_unique<connection>(i, wake_fd_);
        auto domain = verbs::domain::create(device_);
        if (!domain) return domain.error();
        place->domain = std::move(*domain);
        place->sends = sizes_.sends();
        if (auto prepared = queues_->prepare(*place, kernel_memory_); !prepared) return prepared;
        connections_.push_back(std::move(place));
        if (connections_.back()->port.direct.queue.wqebbs != connections_.front()->port.direct.queue.wqebbs)
            return error{status::unsupported, 0, "gpu: the driver makes send queues of different sizes"};
    }
    return {};
}

result<void> service_poller::register_slots(connection& place) {
    auto requests =
        place.domain->register_memory(memory_->requests(place.index), verbs::access::peer_writes, slots_on());
    if (!requests) return requests.error();
    place.requests = std::move(*requests);
    auto responses = place.domain->register_memory(memory_->responses(place.index), verbs::access::send, slots_on());
    if (!responses) return responses.error();
    place.responses = std::move(*responses);
    return {};
}

result<std::unique_ptr<core::connection>> service_poller::open_connection(const core::link_config& config) {
    return service_link::create(*this, config);
}

result<std::uint32_t> service_poller::take_place() {
    if (gpu_lost()) {
        return error{
            status::device_lost, 0,
            fmt::format("gpu: {} has failed (a kernel faulted, or the GPU is gone); start the service in a new "
                        "process",
                        kernel_memory_.gpu()->name())};
    }
    if (has_failed()) {
        return error{status::system_error, 0,
                     fmt::format("gpu: {} or one of its queues has failed; restart the service", device_->describe())};
    }
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
        return error{status::overloaded, 0,
                     fmt::format("all {} sessions of this service are in use, or not yet released by its kernels",
                                 sizes_.sessions)};
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    return index;
}

void service_poller::give_connection_back(std::uint32_t index) noexcept {
    const std::lock_guard lock(mutex_);
    free_.push_back(index);  // within the capacity of all
}

std::uint32_t service_poller::command(device::detail::command_kind kind, std::uint32_t session) noexcept {
    const std::lock_guard lock(mutex_);
    return memory_->command(kind, session);
}

void service_poller::tell_cancelled(core::connection& of, call_id which) noexcept {
    static_cast<service_link&>(of).tell_cancelled(which);
}

void service_poller::request_stop() noexcept {
    __atomic_store_n(&memory_->orders().stop, 1U, __ATOMIC_RELEASE);
}

void service_poller::kernels_ended() noexcept {
    queues_->catch_up();  // their last answers
    (void)watch_.has_refused(memory_->report());
    kernels_ended_.store(true, std::memory_order_seq_cst);
}

void service_poller::on_async_event(ibv_event_type /*type*/) noexcept {
    failed_.store(true, std::memory_order_release);
    core::signal_event(wake_fd_);
}

void service_poller::add(service_link& link) {
    const std::lock_guard lock(mutex_);
    links_.push_back(&link);
    commands_pending_.store(true, std::memory_order_seq_cst);
    core::signal_event(wake_fd_);
}

void service_poller::remove(service_link& link) noexcept {
    const std::lock_guard lock(mutex_);
    std::erase(links_, &link);
}

std::size_t service_poller::poll(std::span<core::link_event> out) noexcept {
    core::clear_event(wake_fd_);
    commands_pending_.store(false, std::memory_order_seq_cst);
    watch_.tick(memory_->orders(), memory_->report(), {});
    (void)watch_.has_refused(memory_->report());
    queues_->take_failures();
    std::size_t count = 0;
    const std::lock_guard lock(mutex_);
    for (service_link* each : links_)
        if (count < out.size() && each->take_loss(out[count])) ++count;
    return count;
}

bool service_poller::sleep(int other_fd, core::nanoseconds until) noexcept {
    return watch_.sleep(wake_fd_, other_fd, until);
}

}  // namespace accel::gpu
