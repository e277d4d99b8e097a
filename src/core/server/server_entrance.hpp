// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/control/in_process.hpp"
#include "core/server/server_core.hpp"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace accel::core {

/// Where the sessions of one control plane enter the server.
class server_core::entrance : public session_host {
  public:
    explicit entrance(server_core& core) noexcept : core_(core) {}
    ~entrance() override {
        if (!local_name.empty()) in_process::remove(local_name, *this);
    }
    entrance(const entrance&) = delete;
    entrance& operator=(const entrance&) = delete;

    result<session_grant> open_session(const session_request& request, const client_identity& client) override {
        return core_.open_session(*this, request, client);
    }
    result<void> take_connection(data_connection& made, const client_identity& client) override {
        return core_.take_connection(made, client);
    }
    std::optional<session_token> token_of(std::uint64_t session_id) const override {
        return core_.token_of(session_id);
    }
    void close_session(std::uint64_t session_id, status why) noexcept override { core_.close_session(session_id, why); }
    result<std::uint32_t> find_target(std::string_view name) const override { return core_.find_target(name); }
    std::vector<std::string> offers() const override {
        const std::lock_guard lock(core_.mutex_);
        std::vector<std::string> all;
        for (const auto& door : core_.entrances_)
            if (!door->local_name.empty()) all.push_back(in_process::offer(door->local_name));
        for (const listener& each : listeners) all.push_back(each.where.scheme);
        return all;
    }

    std::vector<listener> listeners;          ///< guarded by the server's mutex
    std::string local_name;                   ///< empty on the network
    std::unique_ptr<control_server> control;  ///< null in process

  private:
    server_core& core_;
};

}  // namespace accel::core
