// SPDX-License-Identifier: Apache-2.0
// What the doors count, and the pages that show it.
#include "serving/doors/counting/counted_request.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace accel::examples::serving::doors {
namespace {

using namespace std::chrono_literals;

constexpr status_name statuses[] = {{200, "200"}, {404, "404"}, {500, "500"}};

metrics_snapshot snapshot_of(const door_metrics& one) {
    const door_metrics* const all[] = {&one};
    return {.families = door_families(all)};
}

TEST(door_metrics, stages_of_a_request_make_up_the_whole) {
    door_metrics metrics{"http", statuses, {"a", "b"}, 1000};
    counted_request one;
    const auto begin = counted_request::clock::time_point{} + 1h;
    one.begin(metrics, begin);
    EXPECT_EQ(snapshot_of(metrics).sum("accel_door_requests_in_flight", {{"model", ""}}), 1);
    one.set_model(door_metrics::first_model + 1);
    one.enter(request_stage::slot, begin + 1s);
    one.enter(request_stage::receive, begin + 3s);
    one.enter(request_stage::call, begin + 6s);
    one.enter(request_stage::answer, begin + 10s);
    one.answered(200);
    EXPECT_EQ(snapshot_of(metrics).sum("accel_door_requests_in_flight", {{"model", "b"}}), 1);
    one.end(begin + 15s);
    const auto all = snapshot_of(metrics);
    EXPECT_EQ(all.sum("accel_door_requests_in_flight"), 0);
    EXPECT_EQ(all.sum("accel_door_requests_total", {{"door", "http"}, {"model", "b"}, {"status", "200"}}), 1);
    EXPECT_EQ(all.sum("accel_door_request_seconds", {{"model", "b"}}), 1);
    const auto family = std::ranges::find(all.families, "accel_door_stage_seconds", &metric_family::name);
    ASSERT_NE(family, all.families.end());
    double sum = 0;
    for (const auto& [stage, wanted] : {std::pair{"receive", 4.0}, {"slot", 2.0}, {"call", 4.0}, {"answer", 5.0}})
        for (const metric& each : family->series)
            if (each.labels == std::vector<metric_label>{{"door", "http"}, {"model", "b"}, {"stage", stage}}) {
                EXPECT_DOUBLE_EQ(each.value, wanted) << stage;
                sum += each.value;
            }
    EXPECT_DOUBLE_EQ(sum, 15);
}

TEST(door_metrics, a_request_that_ends_early_has_only_the_stages_it_reached) {
    door_metrics metrics{"grpc", statuses, {"a"}, 1000};
    for (const bool asks_for_a_slot : {false, true}) {
        counted_request one;
        one.begin(metrics);
        one.set_model(door_metrics::first_model);
        if (asks_for_a_slot) one.enter(request_stage::slot);
        one.answered(500);
        one.end();
        one.end();
    }
    const auto all = snapshot_of(metrics);
    EXPECT_EQ(all.sum("accel_door_request_seconds"), 2) << "the second end does nothing";
    for (const auto& [stage, wanted] : {std::pair{"receive", 1}, {"slot", 1}, {"call", 0}, {"answer", 0}})
        EXPECT_EQ(all.sum("accel_door_stage_seconds", {{"stage", stage}}), wanted) << stage;
}

TEST(door_metrics, an_answered_request_makes_room_for_the_next) {
    door_metrics metrics{"grpc", statuses, {"a"}, 1000};
    counted_request one;
    one.begin(metrics);
    one.set_model(door_metrics::first_model);
    one.leave();
    counted_request next;
    next.begin(metrics);
    next.set_model(door_metrics::first_model);
    EXPECT_EQ(next.of_its_model(), 1U);
    one.end();
    EXPECT_EQ(next.of_its_model(), 1U) << "it has left once";
    EXPECT_EQ(snapshot_of(metrics).sum("accel_door_request_seconds"), 1) << "its times go on";
}

TEST(door_metrics, a_cancelled_request_leaves_the_gauge_of_requests_in_flight) {
    door_metrics metrics{"http", statuses, {}, 1000};
    {
        counted_request gone;
        gone.begin(metrics);
        gone.cancelled();
    }
    const auto all = snapshot_of(metrics);
    EXPECT_EQ(all.sum("accel_door_requests_in_flight"), 0);
    EXPECT_EQ(all.sum("accel_door_cancelled_total"), 1);
    EXPECT_EQ(all.sum("accel_door_request_seconds"), 0);
}

TEST(door_metrics, names_of_clients_make_no_series) {
    door_metrics metrics{"http", statuses, {"a"}, 1000};
    const std::size_t rows = snapshot_of(metrics).families[1].series.size();
    for (int i = 0; i < 100; ++i) {
        counted_request one;
        one.begin(metrics);
        one.set_model(door_metrics::unknown_model);
        one.answered(i % 2 == 0 ? 404 : 599);  // a status that the door does not know counts as the last one
        one.end();
    }
    const auto all = snapshot_of(metrics);
    EXPECT_EQ(all.families[1].series.size(), rows);
    EXPECT_EQ(all.sum("accel_door_requests_total", {{"model", "(unknown)"}, {"status", "404"}}), 50);
    EXPECT_EQ(all.sum("accel_door_requests_total", {{"model", "(unknown)"}, {"status", "500"}}), 50);
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
