// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gateway_rig.hpp"
#include "loopback.hpp"
#include "names.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

namespace accel::tests {

/// Servers of this process at one port of several addresses, some of which a name has.
class named_servers {
  public:
    static constexpr std::size_t most = 4;

    explicit named_servers(context& ctx) : ctx_(ctx) {
        const std::string& own = own_loopback();  // 127.a.b.c, b and c below 129
        const std::size_t last = own.rfind('.');
        const std::size_t before = own.rfind('.', last - 1);
        for (std::size_t i = 0; i < most; ++i) {
            const int b = std::stoi(own.substr(before + 1)) + (i % 2 == 0 ? 0 : 128);
            const int c = std::stoi(own.substr(last + 1)) + (i < 2 ? 0 : 127);
            addresses_.push_back(own.substr(0, before + 1) + std::to_string(b) + "." + std::to_string(c));
        }
        if (!eventually(patience(30s), [this] { return take_port(); }))
            throw std::runtime_error("no port is free at all addresses");
    }

    void start(std::size_t i, const service_table& services) { servers_.at(i).emplace(listen(ctx_, at(i), services)); }
    void start(std::size_t i, handler service) { start(i, service_table{{}, std::move(service)}); }
    void stop(std::size_t i) {
        servers_.at(i)->stop();
        servers_.at(i).reset();
    }
    [[nodiscard]] bool runs(std::size_t i) const { return servers_.at(i).has_value(); }
    /// From now on the name has these.
    void name(const std::vector<std::size_t>& which) const {
        std::vector<std::string> addresses;
        addresses.reserve(which.size());
        for (const std::size_t each : which) addresses.push_back(addresses_.at(each));
        let_name_have(name_, addresses);
    }
    [[nodiscard]] std::string uri() const { return "dns+tcp://" + name_ + ":" + std::to_string(port_) + options; }
    [[nodiscard]] std::uint32_t sessions(std::size_t i) const { return servers_.at(i)->statistics().sessions; }
    /// Since it has started.
    [[nodiscard]] std::uint64_t opened(std::size_t i) const { return servers_.at(i)->statistics().sessions_opened; }

  private:
    static constexpr const char* options = "?insecure=true&peer_timeout=5s";

    [[nodiscard]] std::string at(std::size_t i) const {
        return "tcp://" + addresses_[i] + ":" + std::to_string(port_) + options;
    }
    [[nodiscard]] bool take_port() {
        port_ = 0;
        std::vector<server> taken;
        for (std::size_t i = 0; i < most; ++i) {
            auto made = server::listen(ctx_, std::vector{at(i)}, answer_changed);
            if (!made) return false;
            const std::string where = made->endpoints().at(0);
            port_ = std::stoi(where.substr(where.rfind(':') + 1));
            taken.push_back(std::move(made).value());
        }
        return true;
    }

    context& ctx_;
    std::array<std::optional<server>, most> servers_;
    std::vector<std::string> addresses_;
    std::string name_ = "servers-" + std::to_string(::getpid()) + ".test";
    int port_ = 0;
};

}  // namespace accel::tests
