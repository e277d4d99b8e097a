// SPDX-License-Identifier: Apache-2.0
// Headers that are metadata of calls: which names may be passed, and what values and how much of them.
#include "serving/doors/servers/passed_metadata.hpp"

#include "serving/doors/configuration/passed_names.hpp"
#include "serving/doors/shared_memory/base64.hpp"

#include <array>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace accel::examples::serving::doors {
namespace {

using fields = std::multimap<std::string, std::string>;

result<shared_metadata> read(const std::vector<std::string>& names, const fields& from) {
    return read_passed(
        names, [&](const std::string& name) { return from.equal_range(name); },
        [](const std::string& /*name*/, const auto& field) -> result<std::string> { return field.second; });
}

TEST(doors_passed_names, are_keys_of_metadata_in_lower_case) {
    std::vector<std::string> names;
    for (const char* each : {"X-Tenant", "x-tenant", "a", "trace_id.1-bin"}) EXPECT_TRUE(add_passed_name(each, names));
    EXPECT_EQ(names, (std::vector<std::string>{"x-tenant", "a", "trace_id.1-bin"}));
    EXPECT_TRUE(add_passed_name(std::string(max_metadata_key_bytes, 'k'), names));
    for (const std::string& each : {std::string(max_metadata_key_bytes + 1, 'k'), std::string{}, std::string{"a b"},
                                    std::string{"a:"}, std::string{"\xe4"}, std::string{"a\r\nb"}})
        EXPECT_EQ(add_passed_name(each, names).code(), status::invalid_argument) << each;
}

TEST(doors_passed_names, refuse_headers_for_framing_connections_and_access) {
    std::vector<std::string> names;
    for (const char* each : {"Authorization",
                             "Cookie",
                             "Set-Cookie",
                             "Connection",
                             "Keep-Alive",
                             "TE",
                             "Trailer",
                             "Transfer-Encoding",
                             "Upgrade",
                             "Proxy-Authorization",
                             "Host",
                             "Content-Length",
                             "Content-Type",
                             "traceparent",
                             "baggage",
                             "grpc-timeout",
                             "Inference-Header-Content-Length",
                             "WWW-Authenticate",
                             "Sec-Fetch-Mode",
                             "Age",
                             "Vary",
                             "ETag",
                             "Expires",
                             "Pragma",
                             "Range",
                             "If-Match",
                             "If-Modified-Since",
                             "Link",
                             "Refresh",
                             "Alt-Svc",
                             "Clear-Site-Data",
                             "Max-Forwards",
                             "HTTP2-Settings",
                             "X-Real-IP"})
        EXPECT_EQ(add_passed_name(each, names).code(), status::invalid_argument) << each;
    EXPECT_TRUE(names.empty());
}

TEST(doors_passed_names, limits_the_number_of_passed_names) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < max_metadata_entries; ++i) EXPECT_TRUE(add_passed_name("n" + std::to_string(i), names));
    EXPECT_TRUE(add_passed_name("N0", names)) << "it is there already";
    EXPECT_EQ(add_passed_name("further", names).code(), status::invalid_argument);
    EXPECT_EQ(names.size(), max_metadata_entries);
}

TEST(doors_passed_metadata, are_the_fields_with_the_names_alone) {
    const std::vector<std::string> names{"a", "b", "c-bin"};
    const auto some = read(names, {{"b", "1 2"}, {"c-bin", "\xff"}, {"other", "x"}});
    ASSERT_TRUE(some);
    EXPECT_EQ(std::vector(entries_of(*some).begin(), entries_of(*some).end()),
              (std::vector<metadata_entry>{{"b", "1 2"}, {"c-bin", "\xff"}}));
    const auto none = read(names, {{"other", "x"}});
    ASSERT_TRUE(none);
    EXPECT_EQ(*none, nullptr);
    EXPECT_TRUE(entries_of(*none).empty());
}

TEST(doors_passed_metadata, values_are_checked) {
    const std::vector<std::string> names{"a", "b-bin"};
    EXPECT_EQ(read(names, {{"a", "1"}, {"a", "1"}}).code(), status::invalid_argument);
    for (const char* each : {"\x1f", "\x7f", "caf\xc3\xa9", "a\tb"})
        EXPECT_EQ(read(names, {{"a", each}}).code(), status::invalid_argument) << each;
    EXPECT_TRUE(read(names, {{"a", " ~"}, {"b-bin", std::string{"\0\x1f\xff", 3}}}));
}

/// What an answer says of its metadata.
struct answer_that_says {
    result<std::span<const metadata_entry>, status> said;
    [[nodiscard]] auto metadata(metadata_room& /*room*/) const { return said; }
};

TEST(doors_passed_metadata, malformed_metadata_of_an_answer_is_an_error) {
    const std::vector<std::string> names{"a"};
    std::string passed;
    const auto pass = [&](std::string_view key, std::string_view value) {
        passed += std::string{key} + '=' + std::string{value};
    };
    EXPECT_EQ(pass_back(answer_that_says{status::protocol_error}, names, pass).code(), status::protocol_error);
    EXPECT_TRUE(pass_back(answer_that_says{status::protocol_error}, {}, pass)) << "nobody reads it";
    for (const status none : {status::not_found, status::unsupported})
        EXPECT_TRUE(pass_back(answer_that_says{none}, names, pass));
    EXPECT_EQ(passed, "");
    const std::array sent{metadata_entry{"a", "1"}, metadata_entry{"b", "2"}};
    EXPECT_TRUE(pass_back(answer_that_says{std::span<const metadata_entry>{sent}}, names, pass));
    EXPECT_EQ(passed, "a=1");
}

TEST(doors_passed_metadata, bytes_are_bounded) {
    const std::vector<std::string> names{"a", "b"};
    constexpr std::size_t of_each = 1 + 4;
    const std::string half(max_metadata_bytes / 2 - of_each, 'v');
    EXPECT_TRUE(read(names, {{"a", half}, {"b", half}}));
    EXPECT_EQ(read(names, {{"a", half}, {"b", half + 'v'}}).code(), status::message_too_large);
}

TEST(doors_passed_metadata, bytes_in_base64_are_read_back) {
    std::string bytes;
    for (int i = 0; i < 70; ++i) {
        const std::string text = shared_memory::to_base64(bytes);
        EXPECT_EQ(text.size(), (bytes.size() + 2) / 3 * 4);
        EXPECT_EQ(shared_memory::from_base64(text), bytes) << text;
        bytes += static_cast<char>(i * 37);
    }
    EXPECT_EQ(shared_memory::to_base64("Man"), "TWFu");
    EXPECT_EQ(shared_memory::to_base64("M"), "TQ==");
}

}  // namespace
}  // namespace accel::examples::serving::doors
