// SPDX-License-Identifier: Apache-2.0
// Counting, sums of what has ended, and the text for Prometheus.
#include "core/metrics/client_metrics.hpp"
#include "core/metrics/metrics_registry.hpp"
#include "core/metrics/server_metrics.hpp"

#include <accel_transport/accel_transport.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace accel::core {
namespace {

using namespace std::chrono_literals;

TEST(duration_histogram, durations_are_summed_and_counted_by_powers_of_two) {
    duration_histogram counted;
    std::array<std::uint64_t, duration_histogram::bucket_count> expected{};
    std::uint64_t sum = 0;
    const auto add = [&](nanoseconds duration, std::size_t bucket) {
        EXPECT_EQ(duration_histogram::bucket_of(duration), bucket) << duration.count();
        counted.add(duration);
        sum += static_cast<std::uint64_t>(duration.count());
        ++expected.at(bucket);
    };
    add(0ns, 0);
    add(1ns, 0);
    for (std::size_t i = 1; i < 63; ++i) {
        const nanoseconds power{std::int64_t{1} << i};
        add(power - 1ns, i - 1);
        add(power, i);
        add(power + 1ns, i);
    }
    add(nanoseconds::max(), 62);
    add(-1ns, 63);  // of clocks that run backwards: in no other's place
    histogram_sums read;
    read.add(counted);
    read.add(counted);
    EXPECT_EQ(read.sum_ns, 2 * sum);
    EXPECT_EQ(read.count(), 2U * (2 + 3 * 62 + 2));
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(read.buckets[i], 2 * expected[i]) << i;
}

TEST(counter, a_counter_can_be_read_while_another_thread_counts) {
    counter shared;
    std::uint64_t last = 0;
    std::thread reader([&] {
        while (last < 200'000) {
            const std::uint64_t now = shared.read();
            ASSERT_GE(now, last);
            last = now;
        }
    });
    for (int i = 0; i < 100'000; ++i) {
        shared.add();
        shared.add(1);
    }
    reader.join();
    EXPECT_EQ(shared.read(), 200'000U);
    shared.add(std::uint64_t{1} << 40);
    EXPECT_EQ(shared.read(), (std::uint64_t{1} << 40) + 200'000) << "more than an instruction takes as a constant";
}

/// A channel that counts, and its gauges.
struct counted_channel {
    counted_channel(metrics_registry& registry, std::string_view its_scheme)
        : scheme(its_scheme), metrics(registry, scheme, submitted, quarantined) {}
    std::string_view scheme;
    counter submitted;
    counter quarantined;
    std::uint64_t ended = 0;
    std::set<std::uint32_t> targets;  ///< those with a series of their own
    client_metrics metrics;
};

/// Channels of several schemes come, count and go; targets get names. Beside them, what the registry has to say.
class metrics_sequence {
  public:
    explicit metrics_sequence(unsigned seed) : random_(seed) {}
    void step() {
        const std::size_t what = below(24);
        if (what == 0 || channels_.empty())
            channels_.push_back(std::make_unique<counted_channel>(registry_, schemes.at(below(schemes.size()))));
        else if (what == 1)
            channels_.erase(channels_.begin() + static_cast<std::ptrdiff_t>(below(channels_.size())));
        else if (what == 2)
            name(names.at(below(names.size())));
        else
            count(*channels_[below(channels_.size())]);
    }
    void check() const {
        std::map<series_name, double> expected;
        for (const auto& [of, count] : counted_)
            if (count > 0) expected[{of.name, of.scheme, label_of(of.target), of.status}] = count;
        for (const auto& each : channels_) {
            const std::string scheme{each->scheme};
            const std::uint64_t submitted = each->submitted.read();
            ++expected[{"accel_channels", scheme, "", ""}];
            expected[{"accel_calls_in_flight", scheme, "", ""}] +=
                static_cast<double>(submitted - std::min(each->ended, submitted));
            expected[{"accel_quarantined_slots", scheme, "", ""}] += static_cast<double>(each->quarantined.read());
        }
        std::erase_if(expected, [](const auto& each) { return each.second == 0; });
        std::map<series_name, double> seen;
        for (const metric_family& family : registry_.snapshot().families) {
            for (const metric& each : family.series) {
                const bool histogram = family.kind == metric_kind::histogram;
                const double value = histogram ? static_cast<double>(each.count) : each.value;
                if (value == 0) continue;
                std::map<std::string, std::string> labels(each.labels.begin(), each.labels.end());
                const series_name name{family.name, labels["scheme"], labels["target"],
                                       labels["status"] + labels["stage"]};
                EXPECT_TRUE(seen.emplace(name, value).second) << "two series of one name";
            }
        }
        EXPECT_EQ(seen, expected);
    }

  private:
    static constexpr std::array<std::string_view, 3> schemes{"tcp", "shm", "zmq"};
    static constexpr std::array<std::string_view, 12> names{"a", "b", "c", "d", "e",     "f",
                                                            "g", "h", "i", "j", "(odd)", "#odd"};
    using series_name = std::tuple<std::string, std::string, std::string, std::string>;
    struct counted_series {
        std::string name;
        std::string scheme;
        std::uint64_t target = no_target;
        std::string status;  ///< or stage
        friend auto operator<=>(const counted_series&, const counted_series&) = default;
    };
    [[nodiscard]] std::size_t below(std::size_t bound) { return random_() % bound; }
    [[nodiscard]] std::string label_of(std::uint64_t target) const {
        if (target == no_target) return "";
        if (target == other_targets) return "(other)";
        const auto known = named_.find(static_cast<std::uint32_t>(target));
        return known == named_.end() ? fmt::format("#{:08x}", target) : known->second;
    }
    void name(std::string_view text) {
        registry_.name_target(text);
        // Others might be taken for numbers, or for what has no name.
        if (text.size() == 1) named_.emplace(target_of(text).number, text);
    }
    void add(const std::string& name, std::string_view scheme, std::uint64_t target, std::string_view status,
             std::size_t count = 1) {
        counted_[{name, std::string{scheme}, target, std::string{status}}] += static_cast<double>(count);
    }
    void count(counted_channel& by) {
        if (below(3) != 0) by.submitted.add();
        if (below(8) == 0) by.quarantined.add();
        switch (below(8)) {
            case 0:
                by.metrics.count_stale();
                return add("accel_stale_responses_total", by.scheme, no_target, "");
            case 1:
                by.metrics.count_reconnect();
                return add("accel_reconnects_total", by.scheme, no_target, "");
            case 2:
                by.metrics.count_copied(7);
                return add("accel_copied_range_bytes_total", by.scheme, no_target, "", 7);
            default:
                return count_call(by);
        }
    }
    void count_call(counted_channel& by) {
        const std::uint32_t asked = below(2) == 0 ? 0 : target_of(names.at(below(names.size()))).number;
        const bool own = asked == 0 || by.targets.contains(asked) || by.targets.size() < client_metrics::own_targets;
        if (own && asked != 0) by.targets.insert(asked);
        const std::uint64_t target = own ? asked : other_targets;
        const std::vector<std::byte> response(below(100));
        const std::size_t request = below(100);
        call_outcome c;
        c.status = below(3) == 0 ? static_cast<status>(1 + below(status_count - 1)) : status::ok;
        c.more = c.status == status::ok && below(4) == 0;
        c.timeline.total = nanoseconds{below(1'000'000)};
        c.response = response;
        by.metrics.count(c, {static_cast<std::uint32_t>(request), asked});
        add("accel_response_bytes_total", by.scheme, target, "", response.size());
        if (c.more) return add("accel_response_parts_total", by.scheme, target, "");
        ++by.ended;
        add("accel_calls_total", by.scheme, target, to_string(c.status));
        add("accel_request_bytes_total", by.scheme, target, "", request);
        if (c.status != status::ok) return;
        for (const char* stage : {"total", "request", "response"}) add("accel_stage_seconds", by.scheme, target, stage);
    }

    std::mt19937 random_;
    metrics_registry registry_;
    std::vector<std::unique_ptr<counted_channel>> channels_;
    std::map<counted_series, double> counted_;
    std::map<std::uint32_t, std::string> named_;
};

TEST(client_metrics, counters_of_all_channels_are_summed_by_scheme_and_target_and_gauges_end_with_theirs) {
    for (unsigned seed = 0; seed < 8; ++seed) {
        SCOPED_TRACE(seed);
        metrics_sequence random(seed);
        for (int i = 0; i < 200; ++i) {
            random.step();
            if (i % 20 == 0) random.check();
            if (::testing::Test::HasFailure()) FAIL() << "step " << i;
        }
    }
}

TEST(server_metrics, each_scheme_and_target_has_its_series) {
    server_metrics counted;
    EXPECT_EQ(counted.place_of(target_of("a").number), 0U);
    scheme_series* const tcp = counted.of_scheme("tcp");
    const std::size_t b = counted.place_of(target_of("b").number);
    EXPECT_EQ(counted.place_of(target_of("b").number), b) << "also when it is served again";
    scheme_series* const shm = counted.of_scheme("shm");
    EXPECT_EQ(counted.of_scheme("tcp"), tcp);
    EXPECT_NE(shm, tcp);
    for (server_series* each : {&tcp->untargeted, &tcp->of_target(b), &shm->of_target(b)}) {
        each->of(counted_stage::server).add(1us);
        each->of(counted_stage::queue).add(1us);
    }
    tcp->unknown.failures[static_cast<std::size_t>(status::not_found)].add();
    for (std::uint32_t i = 1; i < max_targets - 1; ++i) EXPECT_EQ(counted.place_of(i), i + 1);
    const std::size_t beyond = counted.place_of(~std::uint32_t{0});
    EXPECT_EQ(beyond, max_targets);
    tcp->of_target(beyond).failures[static_cast<std::size_t>(status::timed_out)].add();
    metrics_sums sums;
    counted.add_to(sums);
    EXPECT_EQ(sums.calls.size(), 5U);
    EXPECT_EQ((sums.calls[{true, "shm", target_of("b").number}].ended[0]), 1U);
    EXPECT_EQ((sums.calls[{true, "tcp", other_targets}].all_ended()), 1U);
    EXPECT_EQ((sums.calls[{true, "tcp", no_target}].ended[0]), 1U);
    EXPECT_EQ((sums.calls[{true, "tcp", target_of("b").number}].ended[0]), 1U);
    EXPECT_EQ((sums.calls[{true, "tcp", unknown_target}].all_ended()), 1U);
}

TEST(prometheus_text, the_text_has_the_format_that_prometheus_reads) {
    metrics_snapshot seen;
    seen.families.push_back({"accel_a_total", "Counts\nwith a \\ and a \".", metric_kind::counter, {}});
    seen.families.back().series.push_back({{}, 3, 0, {}});
    seen.families.back().series.push_back({{{"one", "x"}, {"two", "a\"b\\c\nd"}}, 1e15, 0, {}});
    seen.families.push_back({"accel_b_seconds", "Times.", metric_kind::histogram, {}});
    seen.families.back().series.push_back({{{"stage", "total"}}, 1.5, 5, {{0.25, 1}, {0.5, 3}}});
    seen.families.push_back({"accel_c", "Now.", metric_kind::gauge, {}});
    EXPECT_EQ(prometheus_text(seen),
              "# HELP accel_a_total Counts\\nwith a \\\\ and a \".\n"
              "# TYPE accel_a_total counter\n"
              "accel_a_total 3\n"
              "accel_a_total{one=\"x\",two=\"a\\\"b\\\\c\\nd\"} 1000000000000000\n"
              "# HELP accel_b_seconds Times.\n"
              "# TYPE accel_b_seconds histogram\n"
              "accel_b_seconds_bucket{stage=\"total\",le=\"0.25\"} 1\n"
              "accel_b_seconds_bucket{stage=\"total\",le=\"0.5\"} 3\n"
              "accel_b_seconds_bucket{stage=\"total\",le=\"+Inf\"} 5\n"
              "accel_b_seconds_sum{stage=\"total\"} 1.5\n"
              "accel_b_seconds_count{stage=\"total\"} 5\n"
              "# HELP accel_c Now.\n"
              "# TYPE accel_c gauge\n");
}

TEST(prometheus_text, infinite_and_undefined_numbers_have_names) {
    metrics_snapshot seen;
    seen.families.push_back({"a", "b", metric_kind::gauge, {}});
    for (const double each : {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
                              std::numeric_limits<double>::quiet_NaN(), 0.1})
        seen.families.back().series.push_back({{}, each, 0, {}});
    EXPECT_EQ(prometheus_text(seen), "# HELP a b\n# TYPE a gauge\na +Inf\na -Inf\na NaN\na 0.1\n");
}

/// Prometheus drops a scrape in which a histogram's buckets fall.
TEST(metrics_snapshot, buckets_rise_and_units_are_in_the_names) {
    metrics_registry registry;
    counter submitted;
    const counter none;
    client_metrics counted(registry, "tcp", submitted, none);
    for (int i = 0; i < 62; ++i) {
        call_outcome one;
        one.timeline.total = nanoseconds{std::int64_t{1} << i};
        counted.count(one, {1});
    }
    for (const metric_family& family : registry.snapshot().families) {
        EXPECT_TRUE(family.name.starts_with("accel_")) << family.name;
        EXPECT_TRUE(family.help.ends_with(".")) << family.help;
        EXPECT_EQ(family.name.ends_with("_total"), family.kind == metric_kind::counter) << family.name;
        if (family.kind != metric_kind::histogram) continue;
        EXPECT_TRUE(family.name.ends_with("_seconds")) << family.name;
        for (const metric& each : family.series) {
            double upper = 0;
            std::uint64_t below = 0;
            for (const metric::bucket& bucket : each.buckets) {
                EXPECT_GT(bucket.upper, upper);
                EXPECT_GE(bucket.count, below);
                upper = bucket.upper;
                below = bucket.count;
            }
            EXPECT_GE(each.count, below);
            EXPECT_EQ(each.count, 62U);
        }
    }
    EXPECT_EQ(registry.snapshot().sum("accel_stage_seconds", {{"stage", "total"}}), 62);
}

}  // namespace
}  // namespace accel::core
