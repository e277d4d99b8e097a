// SPDX-License-Identifier: Apache-2.0
// What the doors count, and the pages that show it.
#include "serving/doors/counting/counted_request.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace accel::examples::serving::doors {
namespace {

using namespace std::chrono_literals;

constexpr status_name statuses[] = {{200, "200"}, {404, "404"}, {500, "500"}};

/// What is not 0: values by family and labels, of histograms the sum and the count.
using page = std::map<std::string, double>;

page page_of(const door_metrics& one) {
    const door_metrics* const all[] = {&one};
    page out;
    for (const metric_family& family : door_families(all))
        for (const metric& each : family.series) {
            std::string name = family.name;
            for (const metric_label& label : each.labels) name += ' ' + label.second;
            if (each.value != 0) out[name] = each.value;
            if (each.count != 0) out[name + " count"] = static_cast<double>(each.count);
        }
    return out;
}

/// What has happened to a request: stages and when it entered them, in seconds.
struct history {
    std::string model;
    bool counts = false;
    bool in_flight = false;
    std::vector<std::pair<std::size_t, int>> stages;
};

constexpr std::array<const char*, request_stages> stages{"receive", "slot", "call", "answer"};

class counted_sequence {
  public:
    explicit counted_sequence(unsigned seed) : random_(seed) {}

    void step() {
        const std::size_t i = random_() % requests_.size();
        now_ += static_cast<int>(random_() % 4);
        do_something(requests_[i], histories_[i]);
        page expected = wanted_;
        for (const history& each : histories_)
            if (each.in_flight) expected["accel_door_requests_in_flight http " + each.model] += 1;
        EXPECT_EQ(page_of(metrics_), expected);
        if (!histories_[i].counts) return;
        EXPECT_EQ(requests_[i].of_its_model(), std::ranges::count_if(histories_, [&](const history& each) {
                      return each.in_flight && each.model == histories_[i].model;
                  }));
    }

  private:
    using clock = counted_request::clock;

    [[nodiscard]] clock::time_point now() const { return clock::time_point{} + std::chrono::seconds{3600 + now_}; }
    void count(const std::string& what, const std::string& labels, double by = 1) {
        wanted_["accel_door_" + what + " http " + labels] += by;
    }
    void add_time(const std::string& what, const std::string& labels, int seconds) {
        if (seconds > 0) count(what, labels, seconds);
        count(what, labels + " count");
    }
    void do_something(counted_request& one, history& of) {
        if (!of.counts) {
            if (random_() % 4 == 0) one.end(now());  // another end does nothing
            one.begin(metrics_, now());
            of = {"", true, true, {{0, now_}}};
            return;
        }
        switch (random_() % 10) {
            case 0: {
                const std::size_t row = 1 + random_() % 3;
                of.model = std::array{"", "(unknown)", "a", "b"}[row];
                return one.set_model(row);
            }
            case 1: {  // a status that the door does not know counts as the last one
                const int status = std::array{200, 404, 500, 599}[random_() % 4];
                count("requests_total", of.model + ' ' + std::to_string(std::min(status, 500)));
                return one.answered(status);
            }
            case 2:
                count("cancelled_total", of.model);
                return one.cancelled();
            case 3:
                count("received_bytes_total", of.model, 7);
                return one.received(7);
            case 4:
                count("sent_bytes_total", of.model, 9);
                return one.sent(9);
            case 5:
                of.in_flight = false;
                return one.leave();
            case 6:
                of.counts = of.in_flight = false;
                return one.drop();
            case 7:
                end(of);
                return one.end(now());
            default: {
                const std::size_t next = std::min<std::size_t>(of.stages.back().first + 1 + random_() % 2, 3);
                of.stages.emplace_back(next, now_);
                return one.enter(static_cast<request_stage>(next), now());
            }
        }
    }
    /// Stages count only of requests for a model of the door that have waited for a slot.
    void end(history& of) {
        add_time("request_seconds", of.model, now_ - of.stages.front().second);
        std::map<std::size_t, int> spent;
        for (std::size_t i = 0; i < of.stages.size(); ++i)
            spent[of.stages[i].first] +=
                (i + 1 < of.stages.size() ? of.stages[i + 1].second : now_) - of.stages[i].second;
        if (spent.contains(1) && (of.model == "a" || of.model == "b"))
            for (const auto& [stage, seconds] : spent)
                add_time("stage_seconds", of.model + ' ' + stages.at(stage), seconds);
        of.counts = of.in_flight = false;
    }

    std::mt19937 random_;
    int now_ = 0;
    door_metrics metrics_{"http", statuses, {"a", "b"}, 1000};
    std::array<counted_request, 4> requests_;
    std::array<history, 4> histories_;
    page wanted_;
};

TEST(door_metrics, a_page_shows_what_requests_did_and_nothing_else) {
    for (unsigned seed = 0; seed < 50 && !::testing::Test::HasFailure(); ++seed) {
        SCOPED_TRACE(seed);
        counted_sequence random(seed);
        for (int i = 0; i < 200 && !::testing::Test::HasFailure(); ++i) {
            SCOPED_TRACE(i);
            random.step();
        }
    }
}

TEST(door_metrics, a_duration_counts_in_each_bucket_that_is_as_long) {
    for (const metric::bucket& each : duration_counts{}.read().buckets)
        for (const int more : {0, 1}) {
            duration_counts one;
            one.add(std::chrono::nanoseconds{std::llround(each.upper * 1e9) + more});
            for (const metric::bucket& seen : one.read().buckets)
                EXPECT_EQ(seen.count, seen.upper > each.upper || (seen.upper == each.upper && more == 0) ? 1U : 0U);
            EXPECT_EQ(one.read().count, 1U);
        }
}

TEST(door_metrics, doors_share_families) {
    door_metrics http{"http", statuses, {"a"}, 1000};
    door_metrics grpc{"grpc", statuses, {"a"}, 1000};
    door_metrics::add(grpc.connections, 3);
    const door_metrics* const both[] = {&http, &grpc};
    const metrics_snapshot all{.families = door_families(both)};
    EXPECT_EQ(all.sum("accel_door_connections_total", {{"door", "http"}}), 0);
    EXPECT_EQ(all.sum("accel_door_connections_total", {{"door", "grpc"}}), 3);
    std::set<std::string> names;
    for (const metric_family& each : all.families) {
        EXPECT_TRUE(names.insert(each.name).second) << each.name;
        EXPECT_EQ(each.kind == metric_kind::counter, each.name.ends_with("_total")) << each.name;
        EXPECT_EQ(each.kind == metric_kind::histogram, each.name.ends_with("_seconds")) << each.name;
    }
}

std::string text_of(const std::string& page) {
    std::ifstream file(ACCEL_TEST_DOCS "/" + page);
    return {std::istreambuf_iterator<char>(file), {}};
}

TEST(door_metrics, the_dashboard_and_the_manual_name_every_metric) {
    std::set<std::string> shown;
    const auto dashboard = nlohmann::json::parse(text_of("grafana-dashboard.json"));
    for (const auto& panel : dashboard.at("panels"))
        for (const auto& target : panel.at("targets")) {
            const std::string asked = target.at("expr").get<std::string>();
            const std::regex name("accel_door_[a-z_]+");
            for (std::sregex_iterator each(asked.begin(), asked.end(), name), end; each != end; ++each)
                shown.insert(std::regex_replace(each->str(), std::regex("_(bucket|sum|count)$"), ""));
        }
    std::set<std::string> written;
    const std::string manual = text_of("metrics.md");
    for (const metric_family& each : door_families({})) {
        written.insert(each.name);
        EXPECT_NE(manual.find("`" + each.name + "`"), std::string::npos) << each.name;
    }
    EXPECT_EQ(shown, written);
}

}  // namespace
}  // namespace accel::examples::serving::doors
