// SPDX-License-Identifier: Apache-2.0
#include "kernels/channel/client_poller.hpp"

#include "core/event_signal.hpp"
#include "core/log.hpp"
#include "core/net/unique_fd.hpp"
#include "kernels/layout.hpp"
#include "kernels/left_behind.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <sys/eventfd.h>

namespace accel::gpu {
namespace {

/// How often `probe_path` looks for its answer.
constexpr std::chrono::microseconds probe_interval{20};

/// A thin handle: the poller has one connection and does all of its work.
class client_connection final : public core::connection {
  public:
    explicit client_connection(client_poller& owner) noexcept : poller_(owner) {}
    ~client_connection() override { (void)close(); }
    client_connection(const client_connection&) = delete;
    client_connection& operator=(const client_connection&) = delete;

    [[nodiscard]] core::link_description describe() const override { return poller_.describe(); }
    [[nodiscard]] result<void> attach(const core::link_grant& grant, core::nanoseconds deadline) override {
        return poller_.connect(grant, deadline);
    }
    void activate() override {}
    [[nodiscard]] bool close() noexcept override {
        poller_.disconnect();
        return true;
    }

  private:
    client_poller& poller_;
};

}  // namespace

result<std::unique_ptr<kernel_client>> client_poller::open(const core::poller_options& options,
                                                           const kernel_setup& wanted,
                                                           std::shared_ptr<proxy_threads> proxies) {
    if (auto fit = admit_gpu(wanted.gpu, wanted.options.host_slots); !fit) return fit.error();
    auto chosen = choose_engine(options.verbs, wanted.options.engine, options.host, wanted.gpus, wanted.gpu);
    if (!chosen) return chosen.error();
    if (auto possible = check_queues(wanted.options, *chosen); !possible) return possible.error();
    const std::uint64_t longest = chosen->on->port().max_message_bytes;
    if (wanted.limits.request_bytes > longest) {
        return error{status::invalid_argument, 0,
                     fmt::format("gpu: requests of {} bytes do not fit into one message of {}",
                                 wanted.limits.request_bytes, chosen->on->describe())};
    }
    const auto level = chosen->fell_back ? log_level::warning : log_level::debug;
    core::log().log(level, "gpu: engine {}: {}", chosen->engine == gpu_engine::direct ? "direct" : "proxy",
                    chosen->reason);
    std::unique_ptr<client_poller> made(new client_poller(std::move(*chosen), options, wanted, std::move(proxies)));
    if (auto ready = made->prepare(); !ready) return ready.error();
    return std::unique_ptr<kernel_client>(std::move(made));
}

client_poller::client_poller(engine_choice choice, const core::poller_options& options, const kernel_setup& kernels,
                             std::shared_ptr<proxy_threads> proxies)
    : device_(std::move(choice.on)),
      engine_(choice.engine),
      reason_(std::move(choice.reason)),
      options_(options.verbs),
      proxies_{std::move(proxies), kernels.options.proxy_threads},
      shape_(kernels.limits),
      call_timeout_(kernels.call_timeout),
      kernel_memory_(kernels.gpus, kernels.gpu),
      wake_fd_(core::unique_fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)).release()) {
    sizes_.sessions = 1;
    sizes_.slots = shape_.slots;
    sizes_.request_stride = stride_for(shape_.request_bytes);
    sizes_.response_stride = stride_for(shape_.response_bytes);
    sizes_.host_slots = kernels.options.host_slots;
    sizes_.exclusive = kernels.options.sharing == service_sharing::exclusive;
    sizes_.queues = kernels.options.queues;
    device_->events().subscribe(*this);
}

client_poller::~client_poller() {
    device_->events().unsubscribe(*this);
    disconnect();
    kernel_memory_.end_sharing();
    const bool ended = place_ == nullptr || queues_->discard(*place_);
    if (!ended) leave_place_behind();
    place_.reset();
    queues_.reset();
    if (ended) ::close(wake_fd_);
}

/// A driver that does not return may use the queue pair later, and its peer the slots.
void client_poller::leave_place_behind() noexcept {
    core::log().warn("gpu: the driver of {} does not return; the queue pair and slots of a channel are not released",
                     device_->name());
    leave_behind(std::move(place_));
    kernel_memory_.leave_behind();
}

/// Makes everything now: while a persistent kernel runs, much of this would wait for its end.
result<void> client_poller::prepare() {
    if (auto made = make_queues(); !made) return made;
    if (auto made = make_slots(); !made) return made;
    if (auto opened = queues_->open(*place_); !opened) return opened;
    return queues_->start(kernel_memory_);
}

/// As for a service of one session.
result<void> client_poller::make_queues() {
    auto made = make_queue_set(engine_, device_, sizes_, kernel_memory_, proxies_, this);
    if (!made) return made.error();
    queues_ = std::move(*made);
    if (const std::string where = queues_->where(); !where.empty()) core::log().debug("gpu: {}", where);
    place_ = std::make_unique<connection>(0, wake_fd_);
    auto domain = verbs::domain::create(device_);
    if (!domain) return domain.error();
    place_->domain = std::move(*domain);
    place_->sends = sizes_.sends();
    return queues_->prepare(*place_, kernel_memory_);
}

result<void> client_poller::make_slots() {
    memory_ = std::make_unique<client_memory>(kernel_memory_, shape_, sizes_);
    const std::uint32_t wqebbs = place_->port.direct.queue.wqebbs;
    if (auto allocated = memory_->allocate(wqebbs); !allocated) return allocated;
    verbs::domain& domain = *place_->domain;
    auto requests = domain.register_memory(memory_->requests(), verbs::access::send, slots_on());
    if (!requests) return requests.error();
    place_->requests = std::move(*requests);
    auto responses = domain.register_memory(memory_->responses(), verbs::access::peer_writes, slots_on());
    if (!responses) return responses.error();
    place_->responses = std::move(*responses);
    receive_ = core::slot_memory::over(memory_->responses().data(), shape_.slots, shape_.response_bytes,
                                       sizes_.response_stride);
    return {};
}

result<std::unique_ptr<core::connection>> client_poller::open_connection(const core::link_config& config) {
    owner_ = config.owner;
    return std::unique_ptr<core::connection>(std::make_unique<client_connection>(*this));
}

core::link_description client_poller::describe() const {
    verbs::endpoint own;
    place_->end().describe(own);
    if (sizes_.exclusive) own.flags |= verbs::plain_arrivals;
    describe_slots(*receive_, place_->responses->rkey, sizes_.exclusive || slots_on() != nullptr, own);
    return verbs::to_bytes(own);
}

result<void> client_poller::connect(const core::link_grant& grant, core::nanoseconds deadline) {
    auto peer = verbs::parse_endpoint(grant.description);
    if (!peer) return peer.error();
    if (auto good = verbs::check_slots(*peer, shape_.slots, shape_.request_bytes); !good) return good;
    if (auto done = place_->end().connect(*peer, options_); !done) {
        return error{done.error().code, done.error().native,
                     fmt::format("gpu: from {}: {}", device_->describe(), done.error().message)};
    }
    const client_start start = start_with(*peer);
    const device::channel_ref& channel = memory_->prepare(start);
    place_->answers = device::detail::way_of_requests(channel);
    if (reaches_queues())
        if (auto answered = probe_path(channel, *peer, deadline); !answered) return answered;
    return memory_->hand_over();
}

kernel_engine client_poller::engine() const {
    const std::string where = queues_->where();
    return {engine_, where.empty() ? reason_ : fmt::format("{}; {}", reason_, where), queues_->cpu_time()};
}

client_start client_poller::start_with(const verbs::endpoint& peer) const {
    client_start out;
    out.sends = place_->port;
    out.completions = queues_->completion_port();
    if (sizes_.exclusive && out.sends.by == device::detail::engine::direct) {
        out.completions.by = out.sends.by;
        out.completions.direct = place_->own_completions();
    }
    const bool all_on_gpu = queues_->place() == mlx5::queue_place::gpu && slots_on() != nullptr;
    out.queues = all_on_gpu ? mlx5::queue_place::gpu : mlx5::queue_place::host;
    out.receives = queues_->receives();
    out.peer = slots_of(peer);
    out.plain_requests = peer.wants_plain();
    out.request_key = place_->requests->lkey;
    out.response_key = place_->responses->lkey;
    out.call_timeout = call_timeout_;
    const std::uint64_t in_one = core::extension_room + core::header_bytes + shape_.request_bytes;
    if (!peer.apart() && in_one > device_->port().max_message_bytes) {
        out.peer.payloads = out.peer.headers + core::header_bytes;
        out.peer.payloads_stride = out.peer.headers_stride;
        out.peer.payloads_key = out.peer.headers_key;
    }
    return out;
}

/// Checks that packets reach the server and come back, before the first call: the host posts an empty write
/// as kernels will.
result<void> client_poller::probe_path(const device::channel_ref& channel, const verbs::endpoint& peer,
                                       core::nanoseconds deadline) {
    mlx5::work_request request;
    request.remote_address = peer.slots_address;
    request.remote_key = peer.slots_key;
    const status posted = device::detail::post_and_tell(channel.sends, request);
    if (posted != status::ok) return error{posted, 0, "gpu: the queue pair accepts no work requests"};
    mlx5::completion answer;
    while (!device::detail::take(channel.completions, answer)) {
        if (core::now() >= deadline) {
            return error{
                status::timed_out, 0,
                fmt::format("gpu: {} got no answer from the server's port before the deadline", device_->describe())};
        }
        core::sleep_on({}, core::now() + probe_interval);
    }
    device::detail::publish_taken(channel.completions);
    if (answer.kind == mlx5::entry_kind::request && device::detail::release(channel.sends, answer.counter)) return {};
    if (answer.failure == mlx5::syndrome::none)
        return error{status::protocol_error, 0, "gpu: the server wrote before the client asked"};
    ibv_gid gid{};
    std::memcpy(gid.raw, peer.gid.data(), peer.gid.size());
    return error{status::peer_lost, static_cast<int>(answer.failure),
                 fmt::format("gpu: {} cannot reach the server's port at {} (syndrome {:#04x}); are both on one "
                             "network? device=NAME:PORT and gid_index choose another port",
                             device_->describe(), verbs::to_text(gid), static_cast<unsigned>(answer.failure))};
}

void client_poller::disconnect() noexcept {
    const bool any = place_ != nullptr && (place_->queue_pair || place_->devx);
    if (!any || ended_) return;
    auto closed = queues_->close(*place_);
    ended_ = closed.ok();
    if (!closed) core::limited_log().error("gpu: {}", closed.error().message);
}

void client_poller::go_away() noexcept {
    std::uint32_t none = 0;
    (void)replace_end(none, device::detail::going_away);
}

void client_poller::end(status why) noexcept {
    std::uint32_t before = 0;
    while (!replace_end(before, static_cast<std::uint32_t>(why)) && before == device::detail::going_away) continue;
    core::signal_event(wake_fd_);
}

/// False: kernels have been told something else, `before`.
bool client_poller::replace_end(std::uint32_t& before, std::uint32_t told) noexcept {
    return __atomic_compare_exchange_n(&memory_->orders().ended, &before, told, false, __ATOMIC_RELEASE,
                                       __ATOMIC_RELAXED);
}

void client_poller::on_async_event(ibv_event_type /*type*/) noexcept {
    failed_.store(true, std::memory_order_release);
    core::signal_event(wake_fd_);
}

std::size_t client_poller::poll(std::span<core::link_event> out) noexcept {
    core::clear_event(wake_fd_);
    queues_->take_failures();
    watch_.tick(memory_->orders(), memory_->report(), core::nanoseconds{clock_offset_.load(std::memory_order_relaxed)});
    const std::uint32_t found = mlx5::load_whole(&memory_->report().failure);
    const bool failed = failed_.load(std::memory_order_acquire) || place_->failed.load(std::memory_order_acquire);
    const bool refused = watch_.has_refused(memory_->report());
    if (found == 0 && failed && !blame_.settled(kernel_memory_.gpu())) return 0;
    const bool gpu_lost = kernel_memory_.gpu_lost();
    if (loss_reported_ || out.empty() || (found == 0 && !failed && !refused && !gpu_lost)) return 0;
    loss_reported_ = true;
    if (const std::uint32_t syndrome = found >> 16; syndrome != 0)
        core::limited_log().warn("gpu: a channel ends: a work request failed with syndrome {:#04x}", syndrome);
    const status otherwise = gpu_lost ? status::device_lost : refused ? status::unsupported : status::peer_lost;
    const auto why = found != 0 ? static_cast<status>(found & 0xffffU) : otherwise;
    out[0] = core::lost_event(owner_, why);
    return 1;
}

bool client_poller::sleep(int other_fd, core::nanoseconds until) noexcept {
    return watch_.sleep(wake_fd_, other_fd, until);
}

}  // namespace accel::gpu
