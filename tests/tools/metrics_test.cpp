// SPDX-License-Identifier: Apache-2.0
// What --metrics answers, and the dashboard that shows it.
#include "loopback.hpp"
#include "report/address.hpp"
#include "report/metrics_endpoint.hpp"

#include <accel_transport/accel_transport.hpp>

#include <array>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <unistd.h>

namespace accel::report {
namespace {

context counting_context() {
    return context::open({.log = log_level::off, .metrics = true}).value();
}

/// What a bare GET of `path` is answered with; headers too.
std::string scrape(const std::string& address, const std::string& path) {
    const auto place = read_address(address);
    addrinfo hints{};
    hints.ai_flags = AI_NUMERICHOST;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* to = nullptr;
    const std::string port = std::to_string(place.value().port);
    if (::getaddrinfo(place.value().host.c_str(), port.c_str(), &hints, &to) != 0) return "no address";
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(to, ::freeaddrinfo);
    const int fd = ::socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const timeval patience{10, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    std::string out;
    if (::connect(fd, to->ai_addr, to->ai_addrlen) == 0) {
        const std::string request = "GET " + path + " HTTP/1.0\r\nHost: test\r\n\r\n";
        (void)::send(fd, request.data(), request.size(), MSG_NOSIGNAL);
        std::array<char, 4096> piece{};
        for (ssize_t got; (got = ::recv(fd, piece.data(), piece.size(), 0)) > 0;)
            out.append(piece.data(), static_cast<std::size_t>(got));
    }
    ::close(fd);
    return out;
}

/// The value of the series with that name and those labels, as they are written; -1: there is none.
double value_of(const std::string& text, const std::string& series) {
    const std::size_t found = text.find("\n" + series + " ");
    return found == std::string::npos ? -1 : std::strtod(text.c_str() + found + series.size() + 2, nullptr);
}

TEST(metrics_option, the_option_metrics_is_an_address_and_a_port) {
    for (const char* good : {"127.0.0.1:9464", "0.0.0.0:0", "[::1]:65535", "[::]:1", "*:9464"})
        EXPECT_EQ(check_address(good), "") << good;
    for (const char* bad : {"", ":", "9464", ":9464", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536",
                            "127.0.0.1:-1", "127.0.0.1:80s", "127.0.0.1:80,0.0.0.0:81", "::1:9464", "[::1:9464",
                            "a b:1", "127.0.0.1:80 ", "[localhost]:80", "[*]:80"}) {
        const std::string sentence = check_address(bad);
        EXPECT_NE(sentence.find("write HOST:PORT"), std::string::npos) << bad;
        EXPECT_EQ(sentence.find('\n'), std::string::npos) << bad;
    }
    for (const char* port : {"65536", "abc", "", "+1", " 80", "80x", "-1"}) {
        const std::string wanted = std::string("port '") + port + "' is not a number from 0 to 65535";
        EXPECT_NE(check_address(std::string("127.0.0.1:") + port).find(wanted), std::string::npos) << port;
    }
}

TEST(metrics_endpoint, scrapes_return_the_counted_calls) {
    context ctx = counting_context();
    auto opened = metrics_endpoint::open(ctx, "127.0.0.1:0");
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    const std::string at = (*opened)->address();
    EXPECT_FALSE(at.ends_with(":0")) << "the real port";

    auto serving = server::listen(ctx, {"local://scraped"}, [](exchange one) { (void)one.reply(std::size_t{3}); });
    ASSERT_TRUE(serving.ok());
    {
        auto client = channel::connect(ctx, "local://scraped");
        ASSERT_TRUE(client.ok());
        const std::array<std::byte, 10> request{};
        for (int i = 0; i < 7; ++i) ASSERT_TRUE(client->call(request).ok());
    }
    serving->stop();
    const std::string text = scrape(at, "/metrics");
    EXPECT_TRUE(text.starts_with("HTTP/1.1 200")) << text.substr(0, 100);
    EXPECT_NE(text.find("text/plain"), std::string::npos);
    const std::string client = R"(role="client",scheme="local",target="")";
    const std::string served = R"(role="server",scheme="local",target="")";
    EXPECT_EQ(value_of(text, "accel_calls_total{" + client + R"(,status="ok"})"), 7) << text;
    EXPECT_EQ(value_of(text, "accel_calls_total{" + served + R"(,status="ok"})"), 7);
    EXPECT_EQ(value_of(text, "accel_request_bytes_total{" + client + "}"), 70);
    EXPECT_EQ(value_of(text, "accel_response_bytes_total{" + served + "}"), 21);
    EXPECT_EQ(value_of(text, "accel_stage_seconds_count{" + client + R"(,stage="total"})"), 7);
    EXPECT_EQ(value_of(text, "accel_stage_seconds_bucket{" + client + R"(,stage="total",le="+Inf"})"), 7);
    EXPECT_EQ(value_of(text, R"(accel_calls_in_flight{scheme="local"})"), 0);
    EXPECT_EQ(value_of(text, "accel_sessions_opened_total"), 1);

    const std::string health = scrape(at, "/healthz");
    EXPECT_TRUE(health.starts_with("HTTP/1.1 200")) << health.substr(0, 100);
    EXPECT_EQ(value_of(health, "accel_up"), 1);
    EXPECT_FALSE(scrape(at, "/other").starts_with("HTTP/1.1 200"));
}

TEST(metrics_endpoint, answers_at_every_address_at_a_star) {
    context ctx = counting_context();
    auto opened = metrics_endpoint::open(ctx, "*:0");
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    const std::string at = (*opened)->address();
    const std::string port = at.substr(at.rfind(':'));
    EXPECT_TRUE(scrape("127.0.0.1" + port, "/healthz").starts_with("HTTP/1.1 200"));
    if (!tests::has_ipv6()) return;
    EXPECT_TRUE(scrape("[::1]" + port, "/healthz").starts_with("HTTP/1.1 200"));
    EXPECT_EQ(metrics_endpoint::open(ctx, "[::1]" + port).code(), status::system_error) << "it is taken";
}

/// They say nothing, and there are more of them than it serves at once.
TEST(metrics_endpoint, answers_beside_silent_connections) {
    context ctx = counting_context();
    auto opened = metrics_endpoint::open(ctx, "127.0.0.1:0");
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    const std::string at = (*opened)->address();
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(read_address(at)->port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    std::vector<int> silent;
    for (int i = 0; i < 100; ++i) {
        silent.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        EXPECT_EQ(::connect(silent.back(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    }
    EXPECT_TRUE(scrape(at, "/metrics?x=1").starts_with("HTTP/1.1 200"));
    EXPECT_TRUE(scrape(at, "/" + std::string(10'000, 'x')).empty()) << "that is too long";
    for (const int each : silent) ::close(each);
}

TEST(metrics_endpoint, an_unavailable_address_is_reported_in_one_sentence) {
    context ctx = counting_context();
    auto first = metrics_endpoint::open(ctx, "127.0.0.1:0");
    ASSERT_TRUE(first.ok());
    for (const std::string& taken : {(*first)->address(), std::string("203.0.113.1:0"), std::string("nowhere:0")}) {
        const auto refused = metrics_endpoint::open(ctx, taken);
        ASSERT_FALSE(refused.ok()) << taken;
        EXPECT_EQ(refused.error().message.find('\n'), std::string::npos);
        EXPECT_NE(refused.error().message.find(taken), std::string::npos) << refused.error().message;
    }
    EXPECT_EQ(metrics_endpoint::open(ctx, "127.0.0.1").code(), status::invalid_argument);
}

/// Names of metrics in a text, without what a histogram's series add to theirs.
std::set<std::string> names_in(const std::string& text) {
    std::set<std::string> names;
    const std::regex name("accel_[a-z_]+");
    for (std::sregex_iterator each(text.begin(), text.end(), name), end; each != end; ++each)
        names.insert(std::regex_replace(each->str(), std::regex("_(bucket|sum|count)$"), ""));
    return names;
}

TEST(grafana_dashboard, shows_every_metric_and_no_other) {
    std::ifstream file(ACCEL_TEST_DOCS "/grafana-dashboard.json");
    const nlohmann::json dashboard = nlohmann::json::parse(file, nullptr, false);
    ASSERT_TRUE(dashboard.is_object()) << "valid JSON";
    std::set<std::string> shown;
    ASSERT_FALSE(dashboard.at("panels").empty());
    for (const auto& panel : dashboard.at("panels"))
        for (const auto& each : panel.at("targets")) shown.merge(names_in(each.at("expr").get<std::string>()));
    std::erase_if(shown, [](const auto& each) { return each.starts_with("accel_door_"); });  // doors_metrics_test.cpp
    context ctx = counting_context();
    std::set<std::string> written;
    for (const metric_family& family : ctx.metrics().families) written.insert(family.name);
    EXPECT_EQ(shown, written);
    const std::string text = prometheus_text(ctx.metrics());
    for (const std::string& each : shown) EXPECT_NE(text.find("# TYPE " + each + " "), std::string::npos) << each;
}

/// So does the page.
TEST(grafana_dashboard, the_manual_names_every_metric) {
    std::ifstream file(ACCEL_TEST_DOCS "/metrics.md");
    const std::string page((std::istreambuf_iterator<char>(file)), {});
    context ctx = counting_context();
    for (const metric_family& family : ctx.metrics().families)
        EXPECT_NE(page.find("`" + family.name + "`"), std::string::npos) << family.name;
}

}  // namespace
}  // namespace accel::report
