// SPDX-License-Identifier: Apache-2.0
// URIs, and the options in them.
#include "core/uri.hpp"
#include "fuzz_target.hpp"

#include <string>
#include <string_view>

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace accel;
    if (const auto hosts = core::one_host_each({reinterpret_cast<const char*>(data), size}); hosts) {
        tests::require(!hosts.value().empty() && hosts.value().size() <= core::max_hosts, "one to 64 hosts");
        for (const std::string& each : hosts.value())
            if (const auto one = core::parse_uri(each); one)
                tests::require(one.value().host.find(',') == std::string::npos, "a host has no comma");
    }
    if (const auto hosts = core::parse_client_uris({reinterpret_cast<const char*>(data), size}); hosts)
        for (const core::uri& each : hosts.value())
            tests::require(!each.dns || each.port != 0, "what is resolved has a host and a port");
    const auto parsed = core::parse_uri({reinterpret_cast<const char*>(data), size});
    if (!parsed) {
        tests::require(!parsed.error().message.empty(), "a refusal has a sentence");
        return 0;
    }
    const core::uri& uri = parsed.value();
    tests::require(!uri.scheme.empty() && !uri.host.empty(), "a URI has a scheme and a host");
    if (const auto again = core::parse_uri(uri.text()); again)
        tests::require(again.value().host == uri.host && again.value().port == uri.port, "text() names the same place");
    if (const auto client = core::apply_options(uri, channel_options{}); client)
        tests::require(client.value().slots >= 1 && client.value().request_bytes <= std::size_t{1} << 30,
                       "options are within their range");
    const auto served = core::apply_options(std::vector<core::uri>{uri, uri}, server_options{});
    if (served) tests::require(served.value().max_slots >= 1 && served.value().workers <= 256, "so are a server's");
    return 0;
}
