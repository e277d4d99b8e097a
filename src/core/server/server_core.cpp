// SPDX-License-Identifier: Apache-2.0
#include "core/server/server_core.hpp"

#include "core/context_state.hpp"
#include "core/event_signal.hpp"
#include "core/fork_guard.hpp"
#include "core/log.hpp"
#include "core/net/descriptor_error.hpp"
#include "core/net/socket.hpp"
#include "core/net/unix_socket.hpp"
#include "core/pacing.hpp"
#include "core/server/interception.hpp"
#include "core/thread.hpp"
#include "core/thread_times.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace accel::core {
namespace {

constexpr nanoseconds drain_interval = std::chrono::microseconds{500};
/// How long a worker without exchanges may take to notice that it drains, beyond the time given.
constexpr nanoseconds round_patience = std::chrono::milliseconds{100};

void refuse_unnamed(exchange request) {
    (void)request.fail(status::not_found, unseen_code, "requests to this server must name a target");
}

/// Before keys are read: a misspelt scheme must not end in a sentence about keys.
result<void> check_scheme(const context_state& context, const uri& where) {
    if (where.scheme == "auto")
        return error{status::invalid_argument, 0,
                     "auto:// is for clients; a server lists its schemes, such as tcp://*:5555 and rdma://*:5555"};
    if (auto known = context.named_backend(where.scheme); !known) return known.error();
    return {};
}

}  // namespace

error no_handler() {
    return {status::invalid_argument, 0, "a server needs a handler, and one for each of its targets"};
}

result<std::shared_ptr<server_core>> server_core::listen(std::shared_ptr<context_state> context,
                                                         const std::vector<std::string>& uris,
                                                         const service_table& services, const server_options& options,
                                                         std::unique_ptr<session_maker> maker) {
    if (uris.empty()) return error{status::invalid_argument, 0, "a server needs at least one URI to listen on"};
    if (uris.size() > worker::max_sources)
        return error{status::invalid_argument, 0,
                     fmt::format("a server listens on {} URIs at most", worker::max_sources)};
    if (!services.unnamed && services.named.empty()) return no_handler();
    if (maker != nullptr && !options.interceptors.empty())
        return error{status::unsupported, 0,
                     "kernels answer the requests of a gpu_service, so no thread can run options.interceptors"};
    std::vector<uri> parsed;
    for (const std::string& text : uris) {
        auto each = parse_uri(text);
        if (!each) return each.error();
        if (auto known = check_scheme(*context, *each); !known) return known.error();
        parsed.push_back(std::move(*each));
    }
    auto effective = apply_options(parsed, options, maker == nullptr ? nullptr : maker->keys());
    if (!effective) return effective.error();
    if (maker != nullptr) {
        // Its one thread handles connections and sleeps otherwise, whatever a URI says.
        effective->workers = 1;
        effective->poll = poll_mode::block;
    }
    std::shared_ptr<server_core> made(new server_core(std::move(context), std::move(*effective), std::move(maker)));
    made->add_workers(services.unnamed);
    for (const worker* each : made->workers_)
        if (const int failed = each->waking_failure(); failed != 0)
            return no_descriptor("for a server's thread", failed);
    if (auto named = made->add_targets(services.named); !named) return named.error();
    if (auto loaded = made->load_keys(parsed); !loaded) return loaded.error();
    if (auto ready = made->open_device(); !ready) return ready.error();
    for (const uri& where : parsed)
        if (auto added = made->add_listener(where); !added) return added.error();
    if (made->options_.workers > 0)
        for (worker* each : made->workers_) each->start();
    else if (auto ready = made->workers_.front()->make_drivable(); !ready)
        return ready.error();
    if (made->context_->metrics() != nullptr) made->context_->metrics()->add(*made);
    made->listens_ = true;
    return made;
}

server_core::server_core(std::shared_ptr<context_state> context, server_options options,
                         std::unique_ptr<session_maker> maker)
    : context_(std::move(context)),
      options_(std::move(options)),
      maker_(std::move(maker)),
      next_data_port_(options_.data_port) {}

void server_core::add_workers(const handler& service) {
    const std::uint32_t count = std::max(options_.workers, 1U);
    const handler unnamed = service ? intercepted(service, options_) : refuse_unnamed;
    workers_.reserve(count);
    for (std::uint32_t i = 0; i < count; ++i) {
        workers_.push_back(new worker(context_, options_, unnamed));
        workers_.back()->observe(this);
    }
    if (options_.workers == 0) driven_ = workers_.front();
}

result<void> server_core::load_keys(const std::vector<uri>& uris) {
    const bool network = std::any_of(uris.begin(), uris.end(), [](const uri& u) { return !within_host(u.scheme); });
    if (!network) return {};
    auto loaded = live_security::of_server(options_.security);
    if (!loaded) return loaded.error();
    security_ = std::move(*loaded);
    return {};
}

result<void> server_core::reload_keys() {
    if (security_ == nullptr || !security_->has_files()) return {};
    if (auto loaded = security_->reload(); !loaded) return loaded;
    const std::lock_guard lock(mutex_);
    for (const auto& door : entrances_)
        if (door->control) door->control->wake();
    return {};
}

/// Opens the GPU on which requests are wanted.
result<void> server_core::open_device() {
    if (options_.memory == memory_kind::host()) return {};
    auto opened = context_->devices()->open(options_.memory);
    if (!opened) return opened.error();
    device_ = *opened;
    if (maker_ != nullptr) return {};  // it brings its own streams
    for (worker* each : workers_)
        if (auto ready = each->use(*device_); !ready) return ready;
    return {};
}

server_core::~server_core() {
    stop();
}

result<void> server_core::add_listener(const uri& where) {
    listener added;
    added.where = where;
    added.scheme = context_->find_backend(where.scheme);
    if (auto [usable, reason] = added.scheme->probe(); !usable)
        return error{status::unsupported, 0, fmt::format("{}: {}", where.scheme, reason)};
    if (options_.security.encrypt == encryption::required && !added.scheme->encrypts()) {
        return error{status::unsupported, 0,
                     fmt::format("{} cannot encrypt payloads, but encrypt=required asks for it; listen on tcp or zmq, "
                                 "or leave out encrypt=required",
                                 where.scheme)};
    }
    if (auto good = check_pacing(options_.pacing, *added.scheme); !good) return good;
    if (added.scheme->fills_devices() && device_ == nullptr) {
        return error{
            status::invalid_argument, 0,
            fmt::format("{0}:// brings requests into GPU memory: give memory=cuda:0, or listen on another scheme",
                        where.scheme)};
    }
    if (auto opened = maker_ != nullptr ? open_maker(added) : open_pollers(added); !opened) return opened;
    return join_entrance(std::move(added));
}

/// For a transport with data ports of its own: the next port from `data_port`, else the one behind the URI's,
/// one a worker. If the URI leaves the port open, any free one.
std::uint16_t server_core::data_port(const listener& of, std::size_t worker_index) noexcept {
    if (!of.scheme->has_data_port()) return 0;
    if (next_data_port_ != 0) return next_data_port_++;
    const std::size_t behind = of.where.port + 1U + worker_index;
    return of.where.port == 0 || behind > 0xffff ? std::uint16_t{0} : static_cast<std::uint16_t>(behind);
}

poller_options server_core::options_for(const listener& added, std::size_t worker_index) {
    poller_options out;
    out.role = link_role::server;
    out.host = added.where.host;
    out.port = data_port(added, worker_index);
    if (!within_host(added.where.scheme)) out.security = security_->current();
    out.zerocopy = options_.zerocopy;
    out.pacing = options_.pacing;
    out.verbs = options_.verbs;
    out.sessions = options_.max_sessions;
    out.max_request_bytes = options_.max_request_bytes;
    return out;
}

result<void> server_core::open_pollers(listener& added) {
    for (std::size_t i = 0; i < workers_.size(); ++i) {
        auto source = added.scheme->open_poller(options_for(added, i));
        if (!source) return source.error();
        added.pollers[workers_[i]] = source->get();
        workers_[i]->add_source(std::move(*source));
        server_metrics* const metrics = workers_[i]->metrics();
        if (metrics != nullptr) (void)metrics->of_scheme(added.scheme->scheme());
    }
    return {};
}

result<void> server_core::open_maker(const listener& added) {
    const link_geometry limits{options_.max_slots, options_.max_request_bytes, options_.max_response_bytes};
    auto opened = maker_->open(*added.scheme, options_for(added, 0), limits, device_);
    if (!opened) return opened.error();
    workers_.front()->add_source(std::move(*opened));
    return {};
}

control_limits server_core::limits() const noexcept {
    control_limits out;
    out.max_connections = options_.max_connections;
    out.max_client_connections = own_or_share(options_.max_client_connections, options_.max_connections);
    out.max_handshakes = options_.max_handshakes;
    return out;
}

/// The keys of an entrance; none where the OS knows the peers.
result<std::shared_ptr<live_security>> server_core::security_of(const uri& where) const {
    if (!within_host(where.scheme)) return security_;
    security_options none;
    none.insecure = true;
    return live_security::of_server(none);
}

result<void> server_core::join_entrance(listener added) {
    uri reached = added.where;
    reached.options.clear();
    const auto same_place = [&](const std::unique_ptr<entrance>& door) {
        return door->control && reached.port != 0 && door->listeners.front().where.host == reached.host &&
               door->control->port() == reached.port;
    };
    const auto add_endpoint = [&] {
        uri to = reached;
        if (!within_host(to.scheme)) to.host = host_to_reach(to.host);
        endpoints_.push_back(to.text());
    };
    const auto found = std::find_if(entrances_.begin(), entrances_.end(), same_place);
    if (found != entrances_.end()) {
        add_endpoint();
        const std::lock_guard lock(mutex_);
        (*found)->listeners.push_back(std::move(added));
        return {};
    }
    auto door = std::make_unique<entrance>(*this);
    door->listeners.push_back(std::move(added));
    if (reached.scheme == "local") {
        door->local_name = reached.host;  // from here on its end removes it, whatever fails
        if (auto named = in_process::add(reached.host, *door); !named) return named;
    } else {
        auto security = security_of(reached);
        if (!security) return security.error();
        auto control =
            control_server::listen(reached.host, reached.port, *security, options_.peer_timeout, *door, limits());
        if (!control) return control.error();
        door->control = std::move(*control);
        reached.port = door->control->port();
    }
    add_endpoint();
    const std::lock_guard lock(mutex_);
    entrances_.push_back(std::move(door));
    return {};
}

std::vector<std::string> server_core::endpoints() const {
    return endpoints_;
}

server_statistics server_core::statistics() const {
    const std::lock_guard lock(mutex_);
    server_statistics out = counted_;
    out.sessions = open_sessions_;
    out.sessions_opened = opened_;
    out.sessions_refused = refused_;
    out.sessions_lost = lost_;
    out.memory_bytes = memory_bytes_;
    if (device_ != nullptr) out.gpu_memory_bytes = gpu_memory_bytes_;
    for (const worker* each : workers_) {
        each->counters().add_to(out);
        const thread_times used = each->times();
        out.cpu_user += used.user;
        out.cpu_kernel += used.kernel;
    }
    return out;
}

/// The counters of its workers' calls, and what it knows itself.
void server_core::add_to(metrics_sums& sums) const {
    sums.add(statistics());
    ++sums.open_servers;
    if (maker_ != nullptr) maker_->add_to(sums);
    for (const worker* each : workers_) {
        const server_metrics* const metrics = each->metrics();
        if (metrics != nullptr) metrics->add_to(sums);
        sums.open_exchanges += each->open();
    }
}

status server_core::drain(nanoseconds timeout) {
    return drain_by(driven_, timeout);
}

void server_core::tell_draining() noexcept {
    const std::lock_guard lock(mutex_);
    draining_ = true;
    for (worker* each : workers_) each->refuse_requests();
    for (const auto& [id, each] : sessions_)
        if (each.watch != nullptr) each.watch->drain();
    for (const auto& door : entrances_)
        if (door->control) door->control->drain();
}

/// A server that has been stopped has no workers: another thread may stop it meanwhile.
bool server_core::drained() const noexcept {
    const std::lock_guard lock(mutex_);
    return std::ranges::all_of(workers_, &worker::drained);
}

bool server_core::holds_exchanges() const noexcept {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(workers_, &worker::holds_exchanges);
}

/// `driven`: the worker that nobody else drives meanwhile; null: they have threads, or somebody does.
status server_core::drain_by(worker* driven, nanoseconds timeout) {
    const nanoseconds deadline = deadline_after(timeout);
    tell_draining();
    std::optional<worker::round_scope> inside;
    if (driven != nullptr) inside.emplace(*driven);
    while (!drained()) {
        if (now() >= deadline && (holds_exchanges() || now() - deadline >= round_patience)) return status::timed_out;
        if (driven != nullptr) driven->serve();
        sleep_on({}, now() + drain_interval);
    }
    return status::ok;
}

bool server_core::in_handler() const noexcept {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(workers_, &worker::runs_here);
}

void server_core::stop_later(std::shared_ptr<server_core> stopped) noexcept {
    if (stopped->stops_later_.exchange(true)) return;
    log().info("a handler has stopped its own server, which stops once its handlers have returned");
    worker* const driven = std::exchange(stopped->driven_, nullptr);  // from now on another thread drives it
    if (driven != nullptr) driven->hold();
    try {
        start_thread("accel-stop", [stopped, driven] {
            if (driven != nullptr)
                while (driven->in_round()) sleep_on({}, now() + drain_interval);
            stopped->stop();
            if (driven != nullptr) driven->release_ref();
        }).detach();
    } catch (...) {
        log().error("the server cannot be stopped: no thread can be started for that");
        if (driven != nullptr) driven->release_ref();
        stopped->driven_ = driven;
        stopped->stops_later_ = false;
        keep_for_ever(std::move(stopped));
    }
}

void server_core::stop() {
    std::call_once(stopped_, [this] {
        worker* const driven = options_.workers == 0 && listens_ ? workers_.front() : nullptr;
        if (listens_ && drain_by(driven, options_.drain_timeout) != status::ok)
            log().warn("the server stops while handlers still hold exchanges; their answers will be dropped");
        for (worker* each : workers_) each->stop();
        std::vector<std::unique_ptr<entrance>> doors;
        {
            const std::lock_guard lock(mutex_);
            doors.swap(entrances_);
        }
        for (const auto& door : doors) door->control.reset();
        doors.clear();
        if (context_->metrics() != nullptr) context_->metrics()->remove(*this);
        std::vector<worker*> ended;  // released without the lock: handlers may end with them, and ask this server
        {
            const std::lock_guard lock(mutex_);
            for (const worker* each : workers_) {
                each->counters().add_to(counted_);
                const thread_times used = each->times();
                counted_.cpu_user += used.user;
                counted_.cpu_kernel += used.kernel;
            }
            ended.swap(workers_);
            if (!stops_later_) driven_ = nullptr;  // else the handler has done so
        }
        for (worker* each : ended) each->release_ref();
    });
}

}  // namespace accel::core
