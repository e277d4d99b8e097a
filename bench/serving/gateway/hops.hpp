// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/serving/nginx.hpp"
#include "bench/transport/side.hpp"
#include "report/child_process.hpp"

#include <optional>
#include <string>
#include <vector>

/// Ways from one client to one server: straight, and over a process that passes requests on.
namespace accel::bench {

/// One way, with a connection that is open.
struct way {
    std::string name;
    std::string
        direct;  ///< the name of the way that it is compared with: the same client and server; empty: this is one
    std::unique_ptr<echo> client;
};

struct hop_choices {
    std::string gateway;            ///< path of the program
    std::string gateway_spin;       ///< its --spin
    std::string nginx;              ///< path of the program, which need not be there
    std::string nginx_stream;       ///< path of its stream module
    std::string poll = "adaptive";  ///< of this library's channels and servers
};

/// A server of each kind, what passes on between, and a connection over each way. Owner of the processes; they end
/// with it. One thread.
class hops {
  public:
    /// For requests and answers of `size_bytes`.
    [[nodiscard]] static result<hops> open(const hop_choices& chosen, std::size_t size_bytes);
    hops(hops&&) noexcept = default;
    hops& operator=(hops&&) = delete;
    ~hops();

    /// Each direct way stands before those that are compared with it.
    [[nodiscard]] std::vector<way>& ways() noexcept { return ways_; }
    /// Why a rival is not among them; empty: all are.
    [[nodiscard]] const std::string& absent() const noexcept { return absent_; }

  private:
    hops() = default;
    [[nodiscard]] result<std::string> start(std::vector<std::string> command, std::string_view announces);
    [[nodiscard]] result<void> connect(std::string name, std::string direct, const side& how,
                                       const std::string& endpoint, std::size_t size_bytes);
    [[nodiscard]] result<void> open_ours(const hop_choices& chosen, std::size_t size_bytes);
    [[nodiscard]] result<void> open_nginx(const hop_choices& chosen, const side& how, const std::string& server,
                                          std::size_t size_bytes);
    [[nodiscard]] result<void> open_zmq(std::size_t size_bytes);

    std::vector<report::child_process> processes_;
    std::optional<nginx> nginx_;
    std::vector<way> ways_;
    std::string absent_;
};

/// The processes that `hops` starts from this program; returns the exit status. `arguments` follow "serve".
[[nodiscard]] int serve_hop(const std::vector<std::string>& arguments);

}  // namespace accel::bench
