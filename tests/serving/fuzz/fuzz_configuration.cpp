// SPDX-License-Identifier: Apache-2.0
// A door's configuration, as read from a file.
#include "fuzz_target.hpp"
#include "serving/doors/configuration/config_file.hpp"

#include <algorithm>
#include <string>
#include <string_view>

namespace {

using namespace accel::examples::serving;
using accel::tests::require;
using doors::choices;

void check_limits(const doors::door_settings& limits) {
    require(limits.max_connections >= 1 && limits.max_connections <= 100'000, "connections are bounded");
    require(limits.max_json_bytes >= 1024 && limits.max_json_memory >= 1024, "JSON has room");
    for (const auto each : {limits.idle_timeout, limits.handshake_timeout, limits.head_timeout, limits.body_timeout,
                            limits.slot_timeout, limits.write_timeout, limits.drain_delay, limits.drain_timeout})
        require(each.count() >= 0, "no wait is negative");
}

void check(const choices& read) {
    require(read.certificate.empty() == read.key.empty(), "a certificate has its key");
    check_limits(read.limits);
    for (const auto& each : read.models) require(!each.uri.empty(), "each model has a server");
    for (const auto& each : read.described) {
        require(each.input_bytes > 0 && each.output_bytes > 0, "shapes are whole");
        require(std::ranges::find(read.models, each.name, &doors::model_place::name) != read.models.end(),
                "shapes belong to a model");
    }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text{reinterpret_cast<const char*>(data), size};
    const std::string file = "etc/door.json";
    choices first;
    const auto read = doors::read_configuration(text, file, first);
    if (!read) {
        require(read.error().message.starts_with(file + ": ") && read.error().message.size() > file.size() + 2,
                "a refusal names the file, and has a sentence");
        return 0;
    }
    check(first);
    choices second;
    require(static_cast<bool>(doors::read_configuration(text, file, second)), "what was good once is good again");
    require(first.models.size() == second.models.size() && first.tokens == second.tokens, "and says the same");
    return 0;
}
