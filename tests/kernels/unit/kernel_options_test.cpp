// SPDX-License-Identifier: Apache-2.0
#include "kernels/options.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace accel::gpu {
namespace {

core::uri with(const std::string& query) {
    return core::parse_uri("gpu://h:1?" + query).value();
}

result<gpu_channel_options> channel(const std::string& query, gpu_channel_options from = {}) {
    kernel_keys keys(from);
    auto read = core::apply_options(with(query), from, &keys);
    if (!read) return read.error();
    static_cast<channel_options&>(from) = *read;
    if (auto good = check(from.kernels, from.verbs); !good) return good.error();
    return from;
}

result<gpu_service_options> service(const std::string& query, gpu_service_options from = {}) {
    kernel_keys keys(from);
    auto read = core::apply_options(std::vector<core::uri>{with(query)}, from, &keys);
    if (!read) return read.error();
    static_cast<server_options&>(from) = *read;
    if (auto good = check(from.kernels, from.verbs); !good) return good.error();
    return from;
}

constexpr const char* everything = "engine=proxy&host_slots=true&sharing=exclusive&queues=host&proxy_threads=3";

void expect_everything(const kernel_options& options) {
    EXPECT_EQ(options.engine, gpu_engine::proxy);
    EXPECT_TRUE(options.host_slots);
    EXPECT_EQ(options.sharing, service_sharing::exclusive);
    EXPECT_EQ(options.queues, queue_location::host);
    EXPECT_EQ(options.proxy_threads, 3U);
}

TEST(kernel_options, every_field_has_a_key_at_both_ends) {
    expect_everything(service(everything).value().kernels);
    const auto read = channel(std::string(everything) + "&memory=cuda:3&slots=5").value();
    expect_everything(read.kernels);
    EXPECT_EQ(read.memory, memory_kind::cuda(3));
    EXPECT_EQ(read.slots, 5U);
}

TEST(kernel_options, options_missing_from_the_uri_keep_their_values) {
    gpu_service_options from;
    from.kernels.sharing = service_sharing::exclusive;
    EXPECT_EQ(service("workers=1", from).value().kernels.sharing, service_sharing::exclusive);
    EXPECT_EQ(service("sharing=shared", from).value().kernels.sharing, service_sharing::shared);
    EXPECT_EQ(channel("slots=1").value().memory, memory_kind::cuda(0));
}

TEST(kernel_options, wrong_or_contradicting_values_are_refused_at_both_ends) {
    for (const char* bad :
         {"sharing=", "sharing=both", "sharing=Exclusive", "engine=magic", "queues=here", "host_slots=perhaps",
          "proxy_threads=65", "proxy_threads=-1", "engine=direct&direct=false", "engine=direct&proxy_threads=2",
          "sharing=shared&queues=gpu", "queues=host", "sharing=exclusive&queues=gpu&engine=proxy"}) {
        EXPECT_EQ(service(bad).code(), status::invalid_argument) << bad;
        EXPECT_EQ(channel(bad).code(), status::invalid_argument) << bad;
    }
    for (const char* good : {"engine=proxy&proxy_threads=64", "proxy_threads=0", "engine=proxy&direct=false",
                             "sharing=exclusive&queues=host", "sharing=exclusive&queues=gpu&engine=direct"}) {
        EXPECT_TRUE(service(good).ok()) << good;
        EXPECT_TRUE(channel(good).ok()) << good;
    }
    EXPECT_EQ(service("sharing=both").error().message,
              "'both' is not a valid value for sharing: expected shared or exclusive");
    EXPECT_EQ(channel("memory=gpu").code(), status::invalid_argument);
}

TEST(kernel_options, an_unknown_key_is_answered_with_those_of_kernels_too) {
    const std::string said = channel("shairing=shared").error().message;
    EXPECT_NE(said.find("unknown option 'shairing'"), std::string::npos) << said;
    for (const char* known : {"slots", "device", "memory", "engine", "proxy_threads"})
        EXPECT_NE(said.find(known), std::string::npos) << said;
}

/// They would be without effect.
TEST(kernel_options, ends_without_kernels_have_none_of_the_keys) {
    for (const char* key : {"engine=proxy", "host_slots=true", "sharing=shared", "queues=auto", "proxy_threads=1"}) {
        EXPECT_EQ(core::apply_options(with(key), channel_options{}).code(), status::invalid_argument) << key;
        EXPECT_EQ(core::apply_options(std::vector<core::uri>{with(key)}, server_options{}).code(),
                  status::invalid_argument)
            << key;
    }
    EXPECT_EQ(core::apply_options(with("memory=host"), channel_options{}).code(), status::invalid_argument);
}

}  // namespace
}  // namespace accel::gpu
