// SPDX-License-Identifier: Apache-2.0
/// Speaks the Open Inference Protocol (KServe v2) with any client, and forwards over any transport.
#include "serving/doors/program/run_doors.hpp"

#include "report/cpu_time.hpp"
#include "report/descriptors.hpp"
#include "report/metrics_endpoint.hpp"
#include "report/program.hpp"
#include "serving/doors/access/file_watch.hpp"
#include "serving/doors/http/listener.hpp"
#include "serving/doors/program/heap_trimmer.hpp"
#include "serving/doors/program/opened_doors.hpp"
#include "serving/doors/servers/door_models.hpp"
#include "serving/doors/servers/region_submit.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <sys/signalfd.h>
#include <unistd.h>

namespace accel::examples::serving::doors {
namespace {

using boost::asio::ip::tcp;

/// What an address that other machines reach lacks; empty: nothing.
std::string missing_protection(const choices& chosen, const std::string& where) {
    const bool no_tls = chosen.certificate.empty();
    const bool no_tokens = chosen.tokens.empty();
    if (chosen.insecure || (!no_tls && !no_tokens)) return {};
    return fmt::format("{} is reachable from other machines: give {}, or a loopback address, or --insecure", where,
                       no_tls && no_tokens ? "--tls-certificate, --tls-key and --tokens"
                       : no_tls            ? "--tls-certificate and --tls-key"
                                           : "--tokens");
}

/// An address that a door or the scrapes are to have. Those of other machines need protection.
result<tcp::acceptor> bind_protected(boost::asio::io_context& loop, const choices& chosen, const std::string& where) {
    auto made = bind_at(loop, where);
    if (!made || is_loopback(*made)) return made;
    if (const std::string missing = missing_protection(chosen, where); !missing.empty())
        return error{status::invalid_argument, 0, missing};
    return made;
}

/// Descriptors that a program needs beside its clients' connections: of its servers, gRPC's threads, scrapes.
constexpr std::uint64_t other_descriptors = 64;

/// Lowers the connections of each door to what so many descriptors allow, and says so. False: there are too few for
/// any.
bool fit_connections(const char* program, std::uint64_t descriptors, choices& chosen) {
    const std::uint64_t doors = (chosen.http.empty() ? 0U : 1U) + (chosen.grpc.empty() ? 0U : 1U);
    const std::uint64_t others = other_descriptors + chosen.models.size() * chosen.reach.channels * 4;
    const std::uint64_t wanted = chosen.limits.max_connections;
    const std::uint64_t most = descriptors > others ? (descriptors - others) / std::max<std::uint64_t>(doors, 1) : 0;
    if (most >= wanted) return true;
    const std::string advice = fmt::format(
        "raise the hard limit to {} (ulimit -Hn), or give a smaller --max-connections", others + doors * wanted);
    if (most == 0) {
        report::complain(program, fmt::format("{} descriptors are too few: {}", descriptors, advice));
        return false;
    }
    fmt::print(stderr, "{}: {} descriptors allow {} connections of each door, not {}: {}\n", program, descriptors, most,
               wanted, advice);
    chosen.limits.max_connections = most;
    return true;
}

/// Which files `open_access` reads.
std::vector<std::string> access_files(const choices& chosen) {
    std::vector<std::string> out;
    for (const std::string& each : {chosen.certificate, chosen.key, chosen.tokens})
        if (!each.empty()) out.push_back(each);
    return out;
}

/// How often changed files are looked for.
constexpr std::chrono::milliseconds look_interval{200};
/// When files are read again that were not good, or could not be read.
constexpr std::chrono::seconds retry_interval{30};

/// The doors of a program, from their addresses to their end.
class door_set {
  public:
    door_set(const choices& chosen, std::uint64_t descriptors)
        : chosen_(chosen),
          descriptors_(descriptors),
          files_(access_files(chosen)),
          signals_(loop_, report::open_server_signals()),
          next_look_(loop_),
          delay_(loop_) {}

    [[nodiscard]] result<void> bind();
    [[nodiscard]] result<void> connect(context& ctx);
    [[nodiscard]] result<void> start();
    void run() { loop_.run(); }
    void say_ready() const;
    void say_summary() const;
    [[nodiscard]] std::vector<metric_family> families() const;

  private:
    struct wanted_door {
        open_function* open;
        tcp::acceptor at;
    };

    [[nodiscard]] result<void> bind(open_function& open, const std::string& where);
    void await_signals();
    void take_signals();
    void leave();
    void stop();
    void look_at_files();
    void renew(const char* why);

    const choices& chosen_;
    const std::uint64_t descriptors_;
    access::file_watch files_;  ///< before `access_` is read
    door_access access_;
    boost::asio::io_context loop_{1};
    boost::asio::posix::stream_descriptor signals_;
    void (door_set::*on_stop_signal_)() = &door_set::leave;
    boost::asio::steady_timer next_look_;
    std::chrono::steady_clock::time_point retry_at_ = std::chrono::steady_clock::time_point::max();
    boost::asio::steady_timer delay_;
    std::vector<wanted_door> wanted_;
    door_models behind_;
    std::vector<std::unique_ptr<opened_door>> doors_;
    std::size_t open_ = 0;
};

result<void> door_set::bind(open_function& open, const std::string& where) {
    if (where.empty()) return {};
    auto made = bind_protected(loop_, chosen_, where);
    if (!made) return made.error();
    wanted_.push_back({&open, std::move(made).value()});
    return {};
}

/// Scrapes are bound by their own library; here the address is only looked at.
result<void> door_set::bind() {
    auto access = open_access(chosen_);
    if (!access) return access.error();
    access_ = std::move(access).value();
    if (auto bound = bind(open_http, chosen_.http); !bound) return bound;
    if (auto bound = bind(open_grpc, chosen_.grpc); !bound) return bound;
    if (chosen_.metrics.empty()) return {};
    const auto looked_at = bind_protected(loop_, chosen_, chosen_.metrics);
    return looked_at ? result<void>{} : looked_at.error();
}

result<void> door_set::connect(context& ctx) {
    auto behind = connect_models(loop_, ctx, chosen_);
    if (!behind) return behind.error();
    behind_ = std::move(behind).value();
    auto regions = open_regions(ctx, chosen_.regions, behind_.models);
    if (!regions) return regions.error();
    access_.regions = std::move(regions).value();
    for (wanted_door& each : wanted_)
        doors_.push_back(each.open(loop_, std::move(each.at), behind_.models, chosen_.limits, access_));
    return {};
}

void door_set::await_signals() {
    signals_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                        [this](const boost::system::error_code& failed) {
                            if (failed) return;
                            take_signals();
                            await_signals();
                        });
}

void door_set::take_signals() {
    signalfd_siginfo one{};
    while (::read(signals_.native_handle(), &one, sizeof one) == sizeof one)
        if (one.ssi_signo == SIGHUP)
            renew("SIGHUP");
        else
            (this->*on_stop_signal_)();
}

void door_set::look_at_files() {
    next_look_.expires_after(look_interval);
    next_look_.async_wait([this](const boost::system::error_code& failed) {
        if (failed) return;
        if (files_.changed())
            renew("files have changed");
        else if (std::chrono::steady_clock::now() >= retry_at_)
            renew("another try");
        look_at_files();
    });
}

/// Where a file is not good, all stays as it was.
void door_set::renew(const char* why) {
    if (files_.empty()) return;
    files_.note_reading();
    retry_at_ = std::chrono::steady_clock::time_point::max();
    const auto access = open_access(chosen_);
    if (!access) {
        fmt::print(stderr, "{}: {}; the old certificate and tokens stay in use\n", why, access.error().message);
        retry_at_ = std::chrono::steady_clock::now() + retry_interval;
        return;
    }
    for (const auto& each : doors_) each->renew(access.value());
    fmt::print(stderr, "{}: read the certificate and tokens again\n", why);
}

result<void> door_set::start() {
    await_signals();
    if (!files_.empty()) look_at_files();
    for (const auto& each : doors_)
        if (auto started = each->start(); !started) return started;
    return {};
}

/// Whoever sends requests here is to notice first. A second signal ends the wait.
void door_set::leave() {
    if (chosen_.limits.drain_delay.count() == 0) return stop();
    for (const auto& each : doors_) each->leave();
    on_stop_signal_ = &door_set::stop;
    delay_.expires_after(chosen_.limits.drain_delay);
    delay_.async_wait([this](const boost::system::error_code& failed) {
        if (!failed) stop();
    });
}

void door_set::stop() {
    if (open_ > 0) return;
    delay_.cancel();
    open_ = doors_.size();
    for (const auto& each : doors_)
        each->stop([this] {
            if (--open_ == 0) loop_.stop();
        });
}

std::vector<metric_family> door_set::families() const {
    std::vector<const door_metrics*> out;
    for (const auto& each : doors_) out.push_back(&each->metrics());
    return door_families(out);
}

void door_set::say_ready() const {
    std::vector<std::string> models;
    for (const auto& [name, each] : behind_.models) models.push_back(name);
    std::vector<std::string> endpoints;
    for (const auto& each : doors_) endpoints.push_back(each->endpoint());
    if (chosen_.json)
        fmt::print("{}\n", nlohmann::json{{"ready", true},
                                          {"endpoints", endpoints},
                                          {"models", models},
                                          {"descriptors", descriptors_},
                                          {"connections", chosen_.limits.max_connections}}
                               .dump());
    else
        fmt::print("serving {} at {}\n{} descriptors, and up to {} connections of each door\n", fmt::join(models, ","),
                   fmt::join(endpoints, ", "), descriptors_, chosen_.limits.max_connections);
    std::fflush(stdout);
}

void door_set::say_summary() const {
    door_summary sum;
    for (const auto& each : doors_) {
        const door_summary one = each->summary();
        sum.connections += one.connections;
        sum.requests += one.requests;
        sum.errors += one.errors;
        sum.cancelled += one.cancelled;
    }
    const double cpu_s = std::chrono::duration<double>(report::cpu_time()).count();
    if (chosen_.json)
        fmt::print("{}\n", nlohmann::json{{"connections", sum.connections},
                                          {"requests", sum.requests},
                                          {"errors", sum.errors},
                                          {"cancelled", sum.cancelled},
                                          {"retried", behind_.servers->taken_back()},
                                          {"cpu_s", cpu_s}}
                               .dump());
    else
        fmt::print(
            "answered {} requests of {} connections, {} with an error; {} clients disconnected before; {:.2f} s of "
            "CPU\n",
            sum.requests, sum.connections, sum.errors, sum.cancelled, cpu_s);
}

}  // namespace

std::string missing_in_build(const choices& chosen) {
    if (chosen.grpc.empty() || has_grpc()) return {};
    return "this build has no gRPC door, for --grpc: install gRPC C++ (libgrpc++-dev), and configure with "
           "-DACCEL_GATEWAY=ON";
}

int run_doors(const char* program, const choices& chosen) {
    if (const std::string missing = missing_in_build(chosen); !missing.empty())
        return report::complain(program, missing);
    // All threads block them until the process is gone, so that a second SIGTERM cannot end it in its last moments.
    report::block_server_signals();
    const std::uint64_t descriptors = report::raise_descriptor_limit();
    choices fitted = chosen;
    if (!fit_connections(program, descriptors, fitted)) return 1;
    auto context = accel::context::open({.metrics = !chosen.metrics.empty()});
    if (!context) return report::complain(program, context.error());
    door_set doors(fitted, descriptors);
    if (auto bound = doors.bind(); !bound) return report::complain(program, bound.error());
    if (auto connected = doors.connect(*context); !connected) return report::complain(program, connected.error());
    const auto scraped = report::open_metrics(program, *context, chosen.metrics, [&doors] { return doors.families(); });
    if (scraped.failed) return 1;
    if (auto started = doors.start(); !started) return report::complain(program, started.error());
    const heap_trimmer trimmer;
    doors.say_ready();
    doors.run();
    doors.say_summary();
    return 0;
}

}  // namespace accel::examples::serving::doors
