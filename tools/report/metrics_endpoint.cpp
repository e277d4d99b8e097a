// SPDX-License-Identifier: Apache-2.0
#include "report/metrics_endpoint.hpp"

#include "report/address.hpp"

#include <atomic>
#include <chrono>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <netdb.h>
#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>
#include <sys/socket.h>
#include <unistd.h>

namespace accel::report {
namespace {

constexpr std::size_t scraping_threads = 2;

prometheus::MetricType type_of(metric_kind kind) {
    switch (kind) {
        case metric_kind::counter:
            return prometheus::MetricType::Counter;
        case metric_kind::gauge:
            return prometheus::MetricType::Gauge;
        case metric_kind::histogram:
            break;
    }
    return prometheus::MetricType::Histogram;
}

prometheus::ClientMetric convert(const metric& from, metric_kind kind) {
    prometheus::ClientMetric made;
    for (const auto& [name, value] : from.labels) made.label.push_back({name, value});
    if (kind == metric_kind::counter) made.counter.value = from.value;
    if (kind == metric_kind::gauge) made.gauge.value = from.value;
    if (kind != metric_kind::histogram) return made;
    made.histogram.sample_count = from.count;
    made.histogram.sample_sum = from.value;
    for (const metric_bucket& each : from.buckets) made.histogram.bucket.push_back({each.count, each.upper});
    return made;
}

prometheus::MetricFamily convert(const metric_family& family) {
    prometheus::MetricFamily out;
    out.name = family.name;
    out.help = family.help;
    out.type = type_of(family.kind);
    for (const metric& each : family.series) out.metric.push_back(convert(each, family.kind));
    return out;
}

/// What the context and the program have counted.
class counted : public prometheus::Collectable {
  public:
    counted(const context& ctx, more_metrics more) : ctx_(ctx), more_(std::move(more)) {}
    [[nodiscard]] std::vector<prometheus::MetricFamily> Collect() const override {
        std::vector<prometheus::MetricFamily> made;
        for (const metric_family& family : ctx_.metrics().families) made.push_back(convert(family));
        if (!more_) return made;
        for (const metric_family& family : more_()) made.push_back(convert(family));
        return made;
    }

  private:
    const context& ctx_;
    more_metrics more_;
};

/// That the process answers.
class alive : public prometheus::Collectable {
  public:
    [[nodiscard]] std::vector<prometheus::MetricFamily> Collect() const override {
        prometheus::MetricFamily made;
        made.name = "accel_up";
        made.help = "The process answers.";
        made.type = prometheus::MetricType::Gauge;
        made.metric.emplace_back().gauge.value = 1;
        return {made};
    }
};

/// As its library wants it. `*`: "+PORT" is one socket for both families, which needs IPv6.
std::string listening_ports(const std::string& at) {
    if (!at.starts_with("*:")) return at;
    const int v6 = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool missing = v6 < 0 && errno == EAFNOSUPPORT;
    if (v6 >= 0) ::close(v6);
    return (missing ? "0.0.0.0:" : "+") + at.substr(2);
}

constexpr std::chrono::milliseconds between_wakes{5};

/// A connection that says nothing.
void knock(const addrinfo& at) {
    const int fd = ::socket(at.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    static_cast<void>(::connect(fd, at.ai_addr, at.ai_addrlen));
    ::close(fd);
}

/// While it is there, a server at this address wakes again and again.
class waker {
  public:
    explicit waker(const std::string& at) {
        const auto read = read_address(at);
        if (!read) return;
        addrinfo how{};
        how.ai_flags = AI_NUMERICHOST;
        const std::string& named = read.value().host;
        const std::string host = named == "*" || named == "localhost" ? "127.0.0.1" : named;
        if (::getaddrinfo(host.c_str(), std::to_string(read.value().port).c_str(), &how, &found_) != 0) return;
        try {
            thread_ = std::thread([this] {
                while (!ended_.load()) {
                    knock(*found_);
                    std::this_thread::sleep_for(between_wakes);
                }
            });
        } catch (const std::system_error&) {  // then the end takes as long as the library likes
        }
    }
    waker(const waker&) = delete;
    waker& operator=(const waker&) = delete;
    ~waker() {
        ended_.store(true);
        if (thread_.joinable()) thread_.join();
        if (found_ != nullptr) ::freeaddrinfo(found_);
    }

  private:
    addrinfo* found_ = nullptr;
    std::atomic<bool> ended_{false};
    std::thread thread_;
};

class exposer : public metrics_endpoint {
  public:
    exposer(const context& ctx, const std::string& at, more_metrics more)
        : counted_(std::make_shared<counted>(ctx, std::move(more))),
          exposer_(std::make_unique<prometheus::Exposer>(listening_ports(at), scraping_threads)),
          address_(fmt::format("{}:{}", at.substr(0, at.rfind(':')), exposer_->GetListeningPorts().at(0))) {
        exposer_->RegisterCollectable(counted_);
        exposer_->RegisterCollectable(alive_, "/healthz");
    }
    exposer(const exposer&) = delete;
    exposer& operator=(const exposer&) = delete;
    /// Its library looks every two seconds whether it is to end, and whenever a client comes.
    ~exposer() override {
        const waker wakes{address_};
        exposer_.reset();
    }
    [[nodiscard]] std::string address() const override { return address_; }

  private:
    std::shared_ptr<counted> counted_;
    std::shared_ptr<alive> alive_ = std::make_shared<alive>();
    std::unique_ptr<prometheus::Exposer> exposer_;  ///< ends before what it asks
    std::string address_;
};

}  // namespace

result<std::unique_ptr<metrics_endpoint>> metrics_endpoint::open(const context& ctx, const std::string& at,
                                                                 more_metrics more) {
    if (const auto read = read_address(at); !read) return read.error();
    try {
        return std::unique_ptr<metrics_endpoint>(std::make_unique<exposer>(ctx, at, std::move(more)));
    } catch (const std::exception&) {
        return error{
            status::system_error, 0,
            fmt::format("cannot listen on {} for scrapes; give an address of this machine and a free port", at)};
    }
}

}  // namespace accel::report
