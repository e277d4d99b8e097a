// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/configuration/config_file.hpp"

#include "report/address.hpp"
#include "serving/doors/access/private_file.hpp"
#include "serving/doors/configuration/object_reader.hpp"
#include "serving/doors/oip/json_text.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <set>
#include <utility>

namespace accel::examples::serving::doors {
namespace {

using nlohmann::json;
using namespace configuration;

/// Finds an object with two equal keys, of which a parser would keep only one.
class twin_finder {
  public:
    bool operator()(int, json::parse_event_t event, const json& parsed) {
        if (event == json::parse_event_t::object_start) open_.emplace_back();
        if (event == json::parse_event_t::object_end) open_.pop_back();
        if (event == json::parse_event_t::key && !open_.back().insert(parsed.get<std::string>()).second)
            twin_ = parsed.get<std::string>();
        return true;
    }
    [[nodiscard]] const std::string& twin() const { return twin_; }

  private:
    std::vector<std::set<std::string>> open_;
    std::string twin_;
};

result<json> parse(std::string_view text, const place& at) {
    if (oip::nesting_of(text) > oip::max_json_depth) return wrong(at, "it is nested deeper than 16 levels");
    twin_finder twins;
    try {
        json out = json::parse(text, std::ref(twins), true, true);
        if (!twins.twin().empty()) return wrong(at.of(twins.twin()), "this key occurs twice in one object");
        return out;
    } catch (const json::exception& failure) {         // a parse_error, or an out_of_range: 1e999
        const std::string_view what = failure.what();  // "[its name] parse error at line 1, column 2: …"
        return wrong(at, what.substr(std::min(what.find("] ") + 2, what.size())));
    }
}

result<void> check_tensors(const json& list, const place& at) {
    const std::array known{anything("name"), anything("datatype"), anything("shape"), anything("text"),
                           anything("max_bytes")};
    if (!list.is_array()) return wrong(at, "write a list of tensors: [{\"name\": …, \"datatype\": …, \"shape\": […]}]");
    for (const json& each : list)
        if (auto read = read_object(each, at, known); !read) return read;
    return {};
}

/// A model's shapes, in the form of the protocol's metadata.
result<void> read_shapes(const std::string& name, json from, const place& at, choices& to) {
    from.erase("uri");
    if (from.empty()) return {};
    from["name"] = name;
    auto read = oip::read_description(from.dump());
    if (!read) return wrong(at, read.error().message);
    to.described.push_back(std::move(read).value());
    return {};
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
    const entry uris{"uri", [&](const json& value, const place& there) { return read_uris(name, value, there, to); }};
    const std::array known{uris, anything("target"), anything("decoupled"), entry{"inputs", check_tensors},
                           entry{"outputs", check_tensors}};
    if (auto read = read_object(from, at, known); !read) return read;
    if (!from.contains("uri")) return wrong(at.of("uri"), "write the URI of the model's server, in quotes");
    return read_shapes(name, from, at, to);
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
    const auto document = parse(from, whole);
    if (!document) return document.error();
    const std::array known{
        address("http", to.http),
        address("grpc", to.grpc),
        entry{"models", [&to](const json& value, const place& at) { return read_models(value, at, to); }},
        entry{"tls", [&to](const json& value, const place& at) { return read_tls(value, at, to); }},
        path("tokens", to.tokens),
        entry{"limits", [&to](const json& value, const place& at) { return read_limits(value, at, to); }},
        address("metrics", to.metrics),
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
