#include "core/server/server_core.hpp"

#include "core/context_state.hpp"
#include "core/event_signal.hpp"
#include "core/log.hpp"
#include "core/server/server_entrance.hpp"
#include "core/server/thread_times.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace accel::core {
namespace {

/// `zmq` without `data_port`: behind the URI's port, a worker each. 0 (any) where that is 0 or ends.
std::uint16_t data_port_behind(std::uint16_t port, std::uint32_t worker_index) noexcept {
    const std::uint32_t next = port + 1U + worker_index;
    return port == 0 || next > 0xFFFF ? std::uint16_t{0} : static_cast<std::uint16_t>(next);
}

}  // namespace

result<std::shared_ptr<server_core>> server_core::listen(std::shared_ptr<context_state> context,
                                                         const std::vector<std::string>& uris,
                                                         const handler& service,
                                                         const server_options& options, bool resident) {
    if (uris.empty())
        return error{status::invalid_argument, 0, "a server needs at least one URI to listen on"};
    if (uris.size() > worker::max_pollers)
        return error{status::invalid_argument, 0,
                     fmt::format("a server listens on at most {} URIs", worker::max_pollers)};
    if (!service) return error{status::invalid_argument, 0, "a server needs a handler"};
    std::vector<uri> parsed;
    for (const std::string& text : uris) {
        auto each = parse_uri(text);
        if (!each) return each.error();
        parsed.push_back(std::move(*each));
    }
    auto effective = apply_options(parsed, options);
    if (!effective) return effective.error();
    if (resident) {
        // Its one thread lets clients in and out, whatever an URI says, and sleeps else.
        effective->workers = 1;
        effective->poll = poll_mode::block;
    }
    std::shared_ptr<const security_identity> security;
    const bool network =
        std::any_of(parsed.begin(), parsed.end(), [](const uri& u) { return u.scheme != "local"; });
    if (network) {
        auto loaded = load_server_security(*context, effective->security);
        if (!loaded) return loaded.error();
        security = std::move(*loaded);
    }
    std::shared_ptr<server_core> made(
        new server_core(std::move(context), std::move(*effective), service, resident));
    if (auto ready = made->open_device(); !ready) return ready.error();
    for (const uri& where : parsed) {
        if (auto added = made->add_listener(where, security); !added) return added.error();
    }
    if (made->options_.workers > 0) {
        for (worker* each : made->workers_) each->start();
    }
    return made;
}

server_core::server_core(std::shared_ptr<context_state> context, server_options options,
                         const handler& service, bool resident)
    : context_(std::move(context)),
      options_(std::move(options)),
      resident_(resident),
      next_data_port_(options_.data_port) {
    const std::uint32_t count = std::max(options_.workers, 1U);
    for (std::uint32_t i = 0; i < count; ++i) {
        workers_.push_back(new worker(context_, options_, service));
        workers_.back()->observe(this);
    }
    if (options_.workers == 0) driven_ = workers_.front();
}

/// Where handlers want their bytes, if that is not the host.
result<void> server_core::open_device() {
    if (options_.memory == memory_kind::host()) return {};
    auto opened = context_->gpus()->open(options_.memory);
    if (!opened) return opened.error();
    gpu_ = *opened;
    if (resident_) return {};  // its kernels bring their own streams
    for (worker* each : workers_) {
        if (auto ready = each->use(*gpu_); !ready) return ready;
    }
    return {};
}

server_core::~server_core() {
    stop();
}

result<void> server_core::add_listener(const uri& where,
                                       const std::shared_ptr<const security_identity>& security) {
    listener added;
    added.where = where;
    added.scheme = context_->find_backend(where.scheme);
    if (added.scheme == nullptr) {
        std::string known;
        for (const auto& each : context_->backends()) {
            known += fmt::format("{}{}", known.empty() ? "" : ", ", each->scheme());
        }
        return error{status::unsupported, 0,
                     fmt::format("cannot listen on scheme '{}'; there are: {}", where.scheme, known)};
    }
    if (auto [usable, reason] = added.scheme->probe(); !usable) {
        return error{status::unsupported, 0, fmt::format("{}: {}", where.scheme, reason)};
    }
    if (resident_ && !added.scheme->serves_kernels()) {
        return error{status::invalid_argument, 0,
                     fmt::format("{}:// has no services on a GPU; listen on gpu://", where.scheme)};
    }
    if (added.scheme->fills_gpus() && gpu_ == nullptr) {
        return error{status::invalid_argument, 0,
                     fmt::format("{0}:// brings requests into GPU memory: give memory=cuda:0, or listen on "
                                 "another scheme",
                                 where.scheme)};
    }
    if (auto opened = open_pollers(added, security); !opened) return opened;
    return join_entrance(std::move(added), security);
}

result<void> server_core::open_pollers(listener& added,
                                       const std::shared_ptr<const security_identity>& security) {
    added.poller_index = endpoints_.size();
    std::uint32_t index = 0;
    for (worker* each : workers_) {
        const bool network = !added.scheme->shares_memory();
        std::uint16_t port = network ? next_data_port_ : std::uint16_t{0};
        if (network && next_data_port_ != 0) ++next_data_port_;
        if (port == 0 && added.where.scheme == "zmq") port = data_port_behind(added.where.port, index);
        ++index;
        poller_options wanted{link_role::server,
                              added.where.host,
                              port,
                              network ? security : nullptr,
                              options_.zerocopy,
                              options_.verbs,
                              options_.max_sessions,
                              options_.max_request_bytes,
                              {}};
        if (resident_) {
            const link_geometry most{options_.max_slots, options_.max_request_bytes,
                                     options_.max_response_bytes};
            wanted.resident = resident_options{context_->gpus(), gpu_, options_.max_sessions, most};
        }
        auto source = added.scheme->open_poller(wanted);
        if (!source) return source.error();
        each->add_poller(std::move(*source));
    }
    return {};
}

result<void> server_core::join_entrance(listener added,
                                        const std::shared_ptr<const security_identity>& security) {
    uri reached = added.where;
    reached.options.clear();
    const auto same_place = [&](const std::unique_ptr<entrance>& door) {
        return door->control && reached.port != 0 && door->listeners.front().where.host == reached.host &&
               door->control->port() == reached.port;
    };
    const auto found = std::find_if(entrances_.begin(), entrances_.end(), same_place);
    if (found != entrances_.end()) {
        endpoints_.push_back(reached.text());
        const std::lock_guard lock(mutex_);
        (*found)->listeners.push_back(std::move(added));
        return {};
    }
    auto door = std::make_unique<entrance>(*this);
    door->listeners.push_back(std::move(added));
    if (reached.scheme == "local") {
        if (auto named = in_process::add(reached.host, *door); !named) return named;
        door->local_name = reached.host;
    } else {
        auto control = control_server::listen(*context_, reached.host, reached.port, security,
                                              options_.peer_timeout, *door);
        if (!control) return control.error();
        door->control = std::move(*control);
        reached.port = door->control->port();
    }
    endpoints_.push_back(reached.text());
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
    if (gpu_ != nullptr) out.gpu_memory_bytes = gpu_memory_bytes_;
    for (const worker* each : workers_) {
        each->counters().add_to(out);
        const thread_times used = times_of(each->thread_id());
        out.cpu_user += used.user;
        out.cpu_kernel += used.kernel;
    }
    return out;
}

status server_core::drain(nanoseconds timeout) {
    const nanoseconds deadline = deadline_after(timeout);
    {
        const std::lock_guard lock(mutex_);
        draining_ = true;
    }
    for (worker* each : workers_) each->refuse_requests();
    const auto drained = [this] {
        return std::all_of(workers_.begin(), workers_.end(),
                           [](const worker* each) { return each->drained(); });
    };
    while (!drained()) {
        if (now() >= deadline) return status::timed_out;
        poll();
        sleep_on({}, now() + std::chrono::microseconds{500});
    }
    return status::ok;
}

void server_core::stop() {
    std::call_once(stopped_, [this] {
        if (drain(options_.drain_timeout) != status::ok) {
            log().warn("server stops while handlers still hold exchanges; their answers go nowhere");
        }
        for (worker* each : workers_) each->stop();
        for (const auto& door : entrances_) door->control.reset();
        entrances_.clear();
        const std::lock_guard lock(mutex_);
        for (worker* each : workers_) {
            each->counters().add_to(counted_);
            each->let_go();
        }
        workers_.clear();
        driven_ = nullptr;
    });
}

}  // namespace accel::core
