#include "core/context_state.hpp"
#include "core/event_signal.hpp"
#include "core/log.hpp"
#include "core/server/stream_pool.hpp"
#include "core/server/worker.hpp"

#include <algorithm>
#include <utility>

#include <sys/eventfd.h>
#include <unistd.h>

/// The control path of a worker: its thread, sleeping and waking, sessions coming and going.
namespace accel::core {
namespace {

/// How long a sleep lasts at most, and how often a session that is still closing is looked at.
constexpr nanoseconds longest_sleep = std::chrono::seconds{1};
constexpr nanoseconds closing_interval = std::chrono::milliseconds{1};
/// While a long copy is given to a GPU in pieces: less than what it has of them takes.
constexpr nanoseconds feeding_interval = std::chrono::microseconds{50};
constexpr nanoseconds close_patience = std::chrono::seconds{1};

}  // namespace

worker::worker(std::shared_ptr<context_state> context, const server_options& options, handler service)
    : context_(std::move(context)),
      options_(options),
      service_(std::move(service)),
      most_open_(options.max_exchanges),
      spinner_(options_.poll),
      wake_fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

worker::~worker() {
    if (streams_ != nullptr && !streams_->end(deadline_after(close_patience))) {
        // A kernel may still write to these slots. They stay, rather than become somebody else's memory.
        log().error("{}: a stream is still at work at the end of its server; its memory is left to it",
                    streams_->device().name());
        for (auto* list : {&sessions_, &closing_}) {
            for (auto& each : *list) (void)each.release();
        }
    }
    ::close(wake_fd_);
}

result<void> worker::use(accelerator_device& device) {
    auto made = stream_pool::create(device, options_, wake_fd_);
    if (!made) return made.error();
    streams_ = std::move(*made);
    return {};
}

void worker::tell_device_lost() noexcept {
    if (std::exchange(device_lost_told_, true)) return;
    log().error(
        "{} has failed (a kernel faulted, or the GPU is gone): requests are refused with device_lost "
        "until this process starts anew",
        streams_->device().name());
}

void worker::start() {
    thread_ = std::thread([this] { run(); });
}

void worker::run() noexcept {
    thread_id_.store(::gettid(), std::memory_order_relaxed);
    nanoseconds idle_since = now();
    while (!stopping_.load(std::memory_order_acquire)) {
        const bool idle = turn() == 0;
        if (!idle) {
            idle_since = now_;
            spinner_.restart();
        }
        if (options_.poll == poll_mode::block) {
            sleep();  // returns at once if there is more to do
        } else if (idle && (options_.poll == poll_mode::busy || now() - idle_since < options_.spin)) {
            spinner_.turn();
        } else if (idle) {
            sleep();
            idle_since = now();
        }
    }
    close_all(deadline_after(close_patience));
}

void worker::sleep() noexcept {
    asleep_.store(true, std::memory_order_seq_cst);
    const bool wanted = posted_.load(std::memory_order_seq_cst) != nullptr ||
                        commands_pending_.load(std::memory_order_seq_cst) ||
                        stopping_.load(std::memory_order_seq_cst);
    bool quiet = !wanted;
    for (const auto& source : pollers_) quiet = quiet && source->arm();
    // A stream that ends after this makes `wake_fd_` readable.
    if (quiet && streams_ != nullptr && streams_->moving() > 0) quiet = !poll_streams();
    bool woken = false;
    if (quiet) {
        const bool on_gpu = streams_ != nullptr && streams_->moving() + streams_->waiting() > 0;
        const bool busy = !closing_.empty() || !waiting_.empty() || on_gpu;
        const bool copying = streams_ != nullptr && streams_->copying() > 0;
        const nanoseconds until = now() + (copying ? feeding_interval
                                           : busy  ? closing_interval
                                                   : longest_sleep);
        woken = pollers_.size() == 1 ? pollers_.front()->sleep(wake_fd_, until) : sleep_on_all(until);
    }
    asleep_.store(false, std::memory_order_relaxed);
    if (woken) clear_event(wake_fd_);
    for (const auto& source : pollers_) source->disarm();
}

/// True: somebody called `wake`.
bool worker::sleep_on_all(nanoseconds until) noexcept {
    std::array<pollfd, max_pollers + 1> fds{};
    std::size_t count = 0;
    fds[count++] = {wake_fd_, POLLIN, 0};
    for (const auto& source : pollers_) fds[count++] = {source->event_fd(), POLLIN, 0};
    sleep_on({fds.data(), count}, until);
    return (fds[0].revents & POLLIN) != 0;
}

void worker::wake() noexcept {
    if (asleep_.load(std::memory_order_seq_cst) && asleep_.exchange(false, std::memory_order_seq_cst)) {
        signal_event(wake_fd_);
    }
}

void worker::install(std::unique_ptr<session> made) {
    {
        const std::lock_guard lock(commands_mutex_);
        commands_.push_back({std::move(made), 0, status::ok});
        commands_pending_.store(true, std::memory_order_seq_cst);
    }
    wake();
}

void worker::close_session(std::uint64_t id, status why) {
    {
        const std::lock_guard lock(commands_mutex_);
        commands_.push_back({nullptr, id, why});
        commands_pending_.store(true, std::memory_order_seq_cst);
    }
    wake();
}

void worker::run_commands() noexcept {
    std::vector<command> taken;
    {
        const std::lock_guard lock(commands_mutex_);
        taken.swap(commands_);
        commands_pending_.store(false, std::memory_order_relaxed);
    }
    for (command& each : taken) {
        if (each.installed != nullptr) {
            // It may have been lost before it was installed.
            auto& list = each.installed->gone() ? closing_ : sessions_;
            slots_ += each.installed->geometry().slots;
            waiting_.reserve(2 * slots_);  // while they are tried again, each may be there twice
            list.push_back(std::move(each.installed));
            continue;
        }
        const auto found = std::find_if(sessions_.begin(), sessions_.end(),
                                        [&](const auto& candidate) { return candidate->id() == each.id; });
        if (found == sessions_.end()) continue;
        (*found)->path().peer_left();
        lose(**found, each.why);
    }
}

void worker::lose(session& which, status why) noexcept {
    if (which.gone()) return;
    which.set_gone();
    if (why == status::protocol_error || why == status::version_mismatch) {
        log()
            .limited(which.client().account())
            .warn("session {} of {} over {} ended: {}; its client sent what no correct client sends",
                  which.id(), which.client().text(), which.scheme(), to_string(why));
    }
    if (observer_ != nullptr) observer_->session_lost(which, why);
    const auto found = std::find_if(sessions_.begin(), sessions_.end(),
                                    [&](const auto& candidate) { return candidate.get() == &which; });
    if (found == sessions_.end()) return;  // its install command is still under way
    closing_.push_back(std::move(*found));
    sessions_.erase(found);
}

/// Frees the sessions that nothing touches any more: not the transport, and no handler.
void worker::settle_closing() noexcept {
    const auto settled = [this](const std::unique_ptr<session>& each) {
        if (!each->path().close()) return false;
        each->let_go_all();
        if (const recall how = each->path().recalled(); how != recall::none) each->part_from_client(how);
        if (each->open() > 0) return false;
        if (observer_ != nullptr) observer_->session_freed(*each);
        slots_ -= each->geometry().slots;
        return true;
    };
    closing_.erase(std::remove_if(closing_.begin(), closing_.end(), settled), closing_.end());
}

bool worker::flushed() const noexcept {
    return std::all_of(sessions_.begin(), sessions_.end(),
                       [](const auto& each) { return each->path().flushed(); });
}

/// Lets what was answered leave, then closes every session. Those whose exchanges a handler keeps stay.
void worker::close_all(nanoseconds deadline) noexcept {
    turn();
    leaving_ = true;
    while (!flushed() && now() < deadline) {
        if (turn() == 0) sleep_on({}, now() + closing_interval);
    }
    while (!sessions_.empty()) lose(*sessions_.back(), status::closed);
    const auto only_held = [this] {
        if (streams_ != nullptr && streams_->moving() > 0) return false;
        return std::all_of(closing_.begin(), closing_.end(),
                           [](const auto& each) { return each->open() > 0 && each->path().close(); });
    };
    while (!closing_.empty() && now() < deadline) {
        turn();
        if (only_held()) break;
        sleep_on({}, now() + closing_interval);
    }
}

void worker::stop() {
    stopping_.store(true, std::memory_order_seq_cst);
    signal_event(wake_fd_);
    if (thread_.joinable()) {
        thread_.join();
    } else {
        close_all(deadline_after(close_patience));
    }
    observer_ = nullptr;
}

}  // namespace accel::core
