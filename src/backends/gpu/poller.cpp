#include "backends/gpu/poller.hpp"

#include "backends/gpu/link.hpp"
#include "core/event_signal.hpp"
#include "verbs/mlx5_driver.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <sys/eventfd.h>

namespace accel::gpu {
namespace {

constexpr std::size_t slot_line = 256;
constexpr std::uint32_t least_send_requests = 64;
constexpr std::uint32_t least_receives = 64;
/// Of all sessions together: more than any device has completions for.
constexpr std::uint64_t most_slots = 1U << 22;
/// What a doorbell takes.
constexpr std::uint32_t doorbell_bytes = 8;
/// How long a session that has failed may go unnoticed.
constexpr std::chrono::milliseconds look_interval{50};
/// How often kernels are told the time; often, until they have heard it once.
constexpr std::chrono::seconds tick_interval{1};
constexpr std::chrono::milliseconds first_tick_interval{2};

/// A response may take two requests, and what is not heard of yet takes room too.
std::uint32_t send_requests(std::uint32_t slots) noexcept {
    return std::max(slots * 4, least_send_requests);
}

std::size_t stride_for(std::size_t capacity) noexcept {
    const std::size_t bytes =
        core::extension_room + core::header_bytes + std::max<std::size_t>(capacity, slot_line);
    return (bytes + slot_line - 1) / slot_line * slot_line;
}

}  // namespace

void connection::on_async_event(ibv_event_type /*type*/) noexcept {
    failed.store(true, std::memory_order_release);
    core::signal_event(wake_fd);
}

result<std::unique_ptr<core::poller>> resident_poller::open(std::shared_ptr<verbs::device> on,
                                                            const core::poller_options& options) {
    if (on->driver() == nullptr) {
        return error{
            status::unsupported, 0,
            fmt::format("gpu: kernels post to mlx5 queues, and {} has none, or direct=false hides them",
                        on->describe())};
    }
    const core::resident_options& wanted = *options.resident;
    const std::uint64_t slots = std::uint64_t{wanted.sessions} * wanted.most.slots;
    if (slots == 0 || slots > most_slots) {
        return error{status::invalid_argument, 0,
                     fmt::format("gpu: a service has 1 to {} slots in all; {} sessions of {} were asked for "
                                 "(max_sessions, max_slots)",
                                 most_slots, wanted.sessions, wanted.most.slots)};
    }
    const auto longest = on->port().max_message_bytes;
    if (core::header_bytes + wanted.most.response_bytes > longest) {
        return error{status::invalid_argument, 0,
                     fmt::format("gpu: responses of at most {} bytes fit into one message of {}",
                                 longest - core::header_bytes, on->describe())};
    }
    std::unique_ptr<resident_poller> made(new resident_poller(std::move(on), options));
    if (auto ready = made->prepare(); !ready) return ready.error();
    return std::unique_ptr<core::poller>(std::move(made));
}

resident_poller::resident_poller(std::shared_ptr<verbs::device> on, const core::poller_options& options)
    : device_(std::move(on)),
      options_(options.verbs),
      most_(options.resident->most),
      kernel_memory_(options.resident->gpus, options.resident->gpu),
      wake_fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    sizes_.sessions = options.resident->sessions;
    sizes_.slots = most_.slots;
    sizes_.request_stride = stride_for(most_.request_bytes);
    sizes_.response_stride = stride_for(most_.response_bytes);
    device_->events().subscribe(*this);
}

resident_poller::~resident_poller() {
    device_->events().unsubscribe(*this);
    kernel_memory_.end_sharing();
    connections_.clear();
    receives_.reset();
    completions_.reset();
    ::close(wake_fd_);
}

/// Everything is made here: beside a kernel that stays, much of this would wait for its end.
result<void> resident_poller::prepare() {
    if (auto made = make_queues(); !made) return made;
    for (std::uint32_t i = 0; i < sizes_.sessions; ++i) free_.push_back(sizes_.sessions - 1 - i);
    links_.reserve(sizes_.sessions);
    std::vector<mlx5::send_queue_ref> sends;
    for (const auto& each : connections_) sends.push_back(each->queue_pair->located()->sends);
    if (auto shared = share_queues(); !shared) return shared;
    return memory_->prepare(sends, completions_->located(), receives_->located());
}

result<void> resident_poller::make_queues() {
    const std::uint32_t in_flight = sizes_.sessions * sizes_.slots;
    auto receives = verbs::receive_queue::create(device_, std::max(in_flight * 2, least_receives));
    if (!receives) return receives.error();
    receives_ = std::move(*receives);
    if (receives_->depth() < in_flight) {
        return error{status::invalid_argument, 0,
                     fmt::format("gpu: {} sessions of {} slots are more than the {} receives of {}",
                                 sizes_.sessions, sizes_.slots, receives_->depth(), device_->describe())};
    }
    verbs::empty_receives chain;
    (void)receives_->post(receives_->depth(), chain);
    // Also those that nobody asked for complete when a queue pair fails.
    const std::uint32_t needed = receives_->depth() + sizes_.sessions * send_requests(sizes_.slots);
    auto completions = verbs::completion_queue::create(device_, needed, this);
    if (!completions) return completions.error();
    completions_ = std::move(*completions);
    if (completions_->depth() < needed) {
        return error{
            status::invalid_argument, 0,
            fmt::format("gpu: {} sessions of {} slots need {} completions, and {} has {}; ask for fewer",
                        sizes_.sessions, sizes_.slots, needed, device_->describe(), completions_->depth())};
    }
    for (std::uint32_t i = 0; i < sizes_.sessions; ++i) {
        if (auto made = make_connection(i); !made) return made;
    }
    return {};
}

result<void> resident_poller::make_connection(std::uint32_t index) {
    auto made = std::make_unique<connection>(wake_fd_);
    auto domain = verbs::domain::create(device_);
    if (!domain) return domain.error();
    made->domain = std::move(*domain);
    verbs::queue_sizes wanted;
    wanted.send = send_requests(sizes_.slots);
    auto queue_pair = verbs::queue_pair::create(device_, made->domain->get(), completions_->get(),
                                                receives_->get(), wanted, made.get());
    if (!queue_pair) return queue_pair.error();
    made->queue_pair.emplace(std::move(*queue_pair));
    if (index == 0) {
        // All are alike, so the first tells how much memory they need.
        sizes_.send_blocks = made->queue_pair->located()->sends.blocks;
        memory_ = std::make_unique<service_memory>(kernel_memory_, sizes_);
        if (auto allocated = memory_->allocate(); !allocated) return allocated;
    } else if (made->queue_pair->located()->sends.blocks != sizes_.send_blocks) {
        return error{status::unsupported, 0, "gpu: the driver makes send queues of different sizes"};
    }
    auto requests = made->domain->register_memory(memory_->requests(index), verbs::access::peer_writes,
                                                  kernel_memory_.gpu());
    if (!requests) return requests.error();
    made->requests = std::move(*requests);
    auto responses =
        made->domain->register_memory(memory_->responses(index), verbs::access::send, kernel_memory_.gpu());
    if (!responses) return responses.error();
    made->responses = std::move(*responses);
    connections_.push_back(std::move(made));
    return {};
}

/// Kernels post to, and read, the queues where they lie.
result<void> resident_poller::share_queues() {
    const auto& completions = completions_->located();
    const auto& receives = receives_->located();
    const std::size_t receive_ring = std::size_t{std::bit_ceil(receives_->depth() + 1)} * receives.stride;
    const auto all = {
        kernel_memory_.share(completions.entries, std::size_t{completions.count} * completions.entry_bytes),
        kernel_memory_.share(completions.doorbell_record, 2 * sizeof(mlx5::be32)),
        kernel_memory_.share(receives.ring, receive_ring),
        kernel_memory_.share(receives.doorbell_record, sizeof(mlx5::be32)),
    };
    for (const auto& each : all) {
        if (!each) return each;
    }
    for (const auto& each : connections_) {
        const mlx5::send_queue_ref& sends = each->queue_pair->located()->sends;
        auto ring = kernel_memory_.share(sends.ring, std::size_t{sends.blocks} * mlx5::block_bytes);
        if (!ring) return ring;
        auto record = kernel_memory_.share(sends.doorbell_record, sizeof(mlx5::be32));
        if (!record) return record;
        auto registers = kernel_memory_.share_registers(sends.doorbell, doorbell_bytes);
        if (!registers) return registers;
    }
    return {};
}

result<std::unique_ptr<core::link>> resident_poller::open_link(const core::link_config& config) {
    return resident_link::create(*this, config);
}

result<std::uint32_t> resident_poller::take_connection() {
    if (has_failed()) {
        return error{
            status::system_error, 0,
            fmt::format("gpu: {} or a queue of it has failed; start the service anew", device_->describe())};
    }
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
        return error{
            status::overloaded, 0,
            fmt::format("all {} sessions of this service are taken, or not yet let go by its kernels",
                        sizes_.sessions)};
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    return index;
}

void resident_poller::give_connection_back(std::uint32_t index) noexcept {
    const std::lock_guard lock(mutex_);
    free_.push_back(index);  // within the capacity of all
}

std::uint32_t resident_poller::command(device::command_kind kind, std::uint32_t session) noexcept {
    const std::lock_guard lock(mutex_);
    return memory_->command(kind, session);
}

void resident_poller::request_stop() noexcept {
    __atomic_store_n(&memory_->orders().stop, 1U, __ATOMIC_RELEASE);
}

void resident_poller::on_async_event(ibv_event_type /*type*/) noexcept {
    failed_.store(true, std::memory_order_release);
    core::signal_event(wake_fd_);
}

void resident_poller::add(resident_link& link) {
    const std::lock_guard lock(mutex_);
    links_.push_back(&link);
    news_.store(true, std::memory_order_seq_cst);
    core::signal_event(wake_fd_);
}

void resident_poller::remove(resident_link& link) noexcept {
    const std::lock_guard lock(mutex_);
    std::erase(links_, &link);
}

std::size_t resident_poller::poll(std::span<core::link_event> out) noexcept {
    core::clear_event(wake_fd_);
    news_.store(false, std::memory_order_seq_cst);
    tick(core::now());
    std::size_t count = 0;
    const std::lock_guard lock(mutex_);
    for (resident_link* each : links_) {
        if (count < out.size() && each->take_loss(out[count])) ++count;
    }
    return count;
}

/// Kernels have another clock, and learn from this one which deadlines have passed.
void resident_poller::tick(core::nanoseconds now) noexcept {
    if (now < next_tick_) return;
    device::orders_layout& orders = memory_->orders();
    const bool heard = __atomic_load_n(&memory_->report().clock_seen, __ATOMIC_RELAXED) != 0;
    next_tick_ = now + (heard ? core::nanoseconds{tick_interval} : core::nanoseconds{first_tick_interval});
    __atomic_store_n(&orders.clock_ns, core::now().count(), __ATOMIC_RELAXED);
    __atomic_store_n(&orders.clock_tick, orders.clock_tick + 1, __ATOMIC_RELEASE);
}

bool resident_poller::sleep(int other_fd, core::nanoseconds until) noexcept {
    const core::nanoseconds at_most = core::now() + look_interval;
    std::array<pollfd, 2> fds{{{wake_fd_, POLLIN, 0}, {other_fd, POLLIN, 0}}};
    core::sleep_on(fds, std::min({until, at_most, std::max(next_tick_, core::now())}));
    return (fds[1].revents & POLLIN) != 0;
}

}  // namespace accel::gpu
