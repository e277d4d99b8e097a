// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/configuration/config_file.hpp"

#include "report/address.hpp"
#include "report/durations.hpp"
#include "serving/doors/access/private_file.hpp"
#include "serving/doors/configuration/passed_names.hpp"
#include "serving/doors/oip/object_reader.hpp"

#include <array>
#include <chrono>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

namespace accel::examples::serving::doors {
namespace {

using nlohmann::json;
using namespace oip::file;

entry duration(std::string_view name, std::chrono::milliseconds& to) {
    return {name, [&to](const json& from, const place& at) -> result<void> {
                const auto read = report::parse_duration(from.is_string() ? from.get<std::string>() : "");
                if (!read) return wrong(at, "write a duration in quotes: \"500ms\" or \"10s\"");
                to = std::chrono::duration_cast<std::chrono::milliseconds>(read.value());
                return {};
            }};
}

/// One URI, or a list of them.
result<void> read_uris(const std::string& name, const json& from, const place& at, choices& to) {
    constexpr std::string_view what = "write the URI of the model's server, in quotes, or a list of them";
    std::string uri;
    if (!from.is_array()) {
        if (auto read = text("uri", uri, what).read(from, at); !read) return read;
        to.models.push_back({name, uri});
        return {};
    }
    if (from.empty()) return wrong(at, what);
    for (const json& each : from) {
        if (auto read = text("uri", uri, what).read(each, at); !read) return read;
        to.models.push_back({name, uri});
    }
    return {};
}

result<void> read_model(const std::string& name, const json& from, const place& at, choices& to) {
    if (!from.is_object()) return read_uris(name, from, at, to);
    oip::model_description model;
    auto known = oip::description_entries(model);
    known.push_back({"uri", [&](const json& value, const place& there) { return read_uris(name, value, there, to); }});
    if (auto read = read_object(from, at, known); !read) return read;
    if (!from.contains("uri")) return wrong(at.of("uri"), "write the URI of the model's server, in quotes");
    if (from.size() == 1) return {};
    model.name = name;
    auto good = oip::checked(std::move(model));
    if (!good) return wrong(at, good.error().message);
    to.described.push_back(std::move(good).value());
    return {};
}

result<void> read_models(const json& from, const place& at, choices& to) {
    if (!from.is_object()) return wrong(at, "write an object: {\"NAME\": \"URI\", …}");
    for (const auto& [name, value] : from.items())
        if (auto read = read_model(name, value, at.of(name), to); !read) return read;
    return {};
}

result<void> read_tls(const json& from, const place& at, choices& to) {
    const std::array known{path("certificate", to.certificate), path("key", to.key)};
    if (auto read = read_object(from, at, known); !read) return read;
    if (!from.contains("certificate") || !from.contains("key"))
        return wrong(at, "TLS needs both a 'certificate' and a 'key'");
    return {};
}

result<void> read_limits(const json& from, const place& at, choices& all) {
    door_settings& to = all.limits;
    constexpr std::size_t gib = std::size_t{1} << 30;
    const std::array known{number("connections", to.max_connections, 1, 100'000),
                           number("address_connections", to.max_address_connections, 1, 100'000),
                           number("calls", to.max_calls, 1, 100'000),
                           number("model_requests", to.max_model_requests, 1, 1'000'000),
                           number("body_rate", to.body_rate, 0, gib),
                           duration("body_grace", to.body_grace),
                           number("grpc_memory", to.max_grpc_memory, std::size_t{1} << 20, 64 * gib),
                           number("stream_parts", to.stream_parts, 1, max_parts),
                           number("stream_requests", to.stream_requests, 1, 1024),
                           number("json_bytes", to.max_json_bytes, 1024, gib),
                           number("json_memory", to.max_json_memory, 1024, 64 * gib),
                           number("regions", all.regions.max_regions, 1, 1024),
                           number("region_bytes", all.regions.max_bytes, 1, 1024 * gib),
                           duration("idle_timeout", to.idle_timeout),
                           duration("handshake_timeout", to.handshake_timeout),
                           duration("head_timeout", to.head_timeout),
                           duration("body_timeout", to.body_timeout),
                           duration("slot_timeout", to.slot_timeout),
                           duration("write_timeout", to.write_timeout),
                           duration("part_timeout", to.part_timeout),
                           duration("stream_timeout", to.stream_timeout),
                           duration("ping_interval", to.ping_interval),
                           duration("keepalive_time", to.keepalive_time),
                           duration("keepalive_timeout", to.keepalive_timeout),
                           duration("drain_delay", to.drain_delay),
                           duration("drain_timeout", to.drain_timeout)};
    return read_object(from, at, known);
}

result<void> read_passed_headers(const json& from, const place& at, choices& all) {
    constexpr std::string_view what = "write a list of names of headers, in quotes";
    if (!from.is_array()) return wrong(at, what);
    for (std::size_t i = 0; i < from.size(); ++i) {
        std::string name;
        if (auto read = text("name", name, what).read(from[i], at.of(i)); !read) return read;
        if (auto added = add_passed_name(name, all.limits.passed_headers); !added)
            return wrong(at.of(i), added.error().message);
    }
    return {};
}

entry regions(shared_memory::permission& to) {
    return {"shared_memory", [&to](const json& from, const place& at) -> result<void> {
                std::string kinds;
                if (auto read =
                        text("shared_memory", kinds, "write \"system\", \"cuda\" or \"system,cuda\"").read(from, at);
                    !read)
                    return read;
                if (auto good = shared_memory::read_permission(kinds, to); !good)
                    return wrong(at, good.error().message);
                return {};
            }};
}

entry address(std::string_view name, std::string& to) {
    return {name, [name, &to](const json& from, const place& at) -> result<void> {
                if (auto read = text(name, to, "write HOST:PORT, in quotes").read(from, at); !read) return read;
                if (const std::string bad = report::check_address(to); !bad.empty()) return wrong(at, bad);
                return {};
            }};
}

}  // namespace

result<void> read_configuration(std::string_view from, const std::string& file, choices& to) {
    const place whole{file, {}};
    const auto document = oip::file::parse(from, whole);
    if (!document) return document.error();
    const std::array known{
        address("http", to.http),
        address("grpc", to.grpc),
        entry{"models", [&to](const json& value, const place& at) { return read_models(value, at, to); }},
        entry{"tls", [&to](const json& value, const place& at) { return read_tls(value, at, to); }},
        path("tokens", to.tokens),
        entry{"limits", [&to](const json& value, const place& at) { return read_limits(value, at, to); }},
        address("metrics", to.metrics),
        entry{"pass_headers", [&to](const json& value, const place& at) { return read_passed_headers(value, at, to); }},
        regions(to.regions),
        flag("insecure", to.insecure)};
    return read_object(document.value(), whole, known);
}

result<void> read_configuration_file(const std::string& file, choices& to) {
    auto text = access::read_trusted_file(file);
    if (!text) return text.error();
    if (text->empty()) return wrong({file, {}}, "is empty");
    return read_configuration(text.value(), file, to);
}

}  // namespace accel::examples::serving::doors
