// SPDX-License-Identifier: Apache-2.0
#include "core/control/in_process.hpp"

#include "core/fork_guard.hpp"

#include <map>
#include <mutex>
#include <random>
#include <shared_mutex>

#include <fmt/format.h>
#include <unistd.h>

namespace accel::core::in_process {
namespace {

struct directory {
    std::shared_mutex mutex;
    std::map<std::string, session_host*, std::less<>> hosts;
    const std::string prefix = fmt::format("local:{}.{:08x}:", ::getpid(), std::random_device{}());
};

/// Servers may outlive static destruction.
constinit per_process<directory> directories;

directory& servers() {
    return directories.get();
}

const std::string& process_prefix() {
    return servers().prefix;
}

error no_server(const std::string& name) {
    return {status::peer_lost, 0, fmt::format("no server listens on local://{} in this process; start it first", name)};
}

}  // namespace

result<void> add(const std::string& name, session_host& host) {
    const std::unique_lock lock(servers().mutex);
    if (servers().hosts.emplace(name, &host).second) return {};
    return error{status::invalid_argument, 0,
                 fmt::format("another server in this process already uses local://{}; choose another name", name)};
}

void remove(const std::string& name, const session_host& host) {
    const std::unique_lock lock(servers().mutex);
    const auto found = servers().hosts.find(name);
    if (found != servers().hosts.end() && found->second == &host) servers().hosts.erase(found);
}

result<session_grant> open_session(const std::string& name, const session_request& request) {
    const std::shared_lock lock(servers().mutex);
    const auto found = servers().hosts.find(name);
    if (found == servers().hosts.end()) return no_server(name);
    return found->second->open_session(request, {});
}

result<std::uint32_t> find_target(const std::string& name, std::string_view target) {
    const std::shared_lock lock(servers().mutex);
    const auto found = servers().hosts.find(name);
    if (found == servers().hosts.end()) return no_server(name);
    return found->second->find_target(target);
}

result<target_page> list_targets(const std::string& name, std::string_view after) {
    const std::shared_lock lock(servers().mutex);
    const auto found = servers().hosts.find(name);
    if (found == servers().hosts.end()) return no_server(name);
    return found->second->list_targets(after);
}

result<health_state> check_health(const std::string& name, std::string_view target) {
    const std::shared_lock lock(servers().mutex);
    const auto found = servers().hosts.find(name);
    if (found == servers().hosts.end()) return no_server(name);
    return found->second->check_health(target);
}

std::string offer(std::string_view name) {
    return fmt::format("{}{}", process_prefix(), name);
}

std::string accepted_name(std::string_view offer) {
    return std::string{offer.starts_with(process_prefix()) ? offer.substr(process_prefix().size()) : ""};
}

}  // namespace accel::core::in_process
