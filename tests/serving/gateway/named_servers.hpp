// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gateway_rig.hpp"
#include "loopback.hpp"
#include "names.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace accel::tests {

/// Accepts connections at a server's place, and says nothing.
class silent_place {
  public:
    silent_place(const std::string& address, int port) {
        sockaddr_in place{};
        place.sin_family = AF_INET;
        place.sin_port = htons(static_cast<std::uint16_t>(port));
        const bool listens = ::inet_pton(AF_INET, address.c_str(), &place.sin_addr) == 1 &&
                             ::bind(fd_, reinterpret_cast<const sockaddr*>(&place), sizeof place) == 0 &&
                             ::listen(fd_, 8) == 0;
        if (!listens) throw std::runtime_error("cannot listen at " + address);
    }
    ~silent_place() { ::close(fd_); }
    silent_place(const silent_place&) = delete;
    silent_place& operator=(const silent_place&) = delete;

    /// Somebody has connected.
    [[nodiscard]] bool is_asked() const {
        pollfd knock{fd_, POLLIN, 0};
        return ::poll(&knock, 1, 0) == 1;
    }

  private:
    int fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
};

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
    [[nodiscard]] std::unique_ptr<silent_place> silence(std::size_t i) const {
        return std::make_unique<silent_place>(addresses_.at(i), port_);
    }
    /// What a gateway connects to.
    [[nodiscard]] std::string at(std::size_t i) const {
        return "tcp://" + addresses_[i] + ":" + std::to_string(port_) + options;
    }
    /// As the name says it.
    [[nodiscard]] std::string named(std::size_t i) const { return at(i) + "&server_name=" + name_; }
    [[nodiscard]] const std::string& name() const { return name_; }
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
