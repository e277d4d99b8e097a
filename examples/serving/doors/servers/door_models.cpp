// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/servers/door_models.hpp"

#include "serving/doors/oip/model_description.hpp"
#include "serving/doors/oip/refusal.hpp"
#include "serving/models/table.hpp"

#include <accel_transport/tensor_view.hpp>

#include <algorithm>
#include <map>
#include <utility>

namespace accel::examples::serving::doors {
namespace {

using oip::model_description;
using oip::named_tensor;

std::vector<named_tensor> with_names(const std::vector<tensor>& list, const std::string& name) {
    std::vector<named_tensor> out;
    out.reserve(list.size());
    for (const tensor& each : list) out.push_back({name + std::to_string(out.size()), each, false});
    return out;
}

tensor image_tensor(const image_size& image) {
    return tensor_of<std::uint8_t>({image.height, image.width, 3});
}

model_description from_table(const model_shapes& shapes) {
    model_description out;
    out.name = shapes.name;
    out.inputs = with_names(shapes.inputs, "input");
    out.outputs = with_names(shapes.outputs, "output");
    out.image = shapes.image;
    return out;
}

result<model_description> find_description(const std::string& name, std::span<const model_description> known) {
    const auto given = std::ranges::find(known, name, &model_description::name);
    if (given != known.end()) return *given;
    if (const model_shapes* const shapes = find_model(name); shapes != nullptr)
        return oip::checked(from_table(*shapes));
    return oip::refusal(status::not_found, "the shapes of " + oip::in_quotes(name) +
                                               " are unknown: give them with --shapes FILE, or in the configuration");
}

/// As tensors, and as a raw image where it takes one.
result<std::vector<model_description>> describe(const std::string& name, std::span<const model_description> known) {
    auto plain = find_description(name, known);
    if (!plain) return plain.error();
    std::vector<model_description> out{*plain};
    if (plain->image.height == 0) return out;
    plain->name += "_image";
    plain->inputs = {{"image", image_tensor(plain->image), false}};
    auto images = oip::checked(std::move(plain).value());
    if (!images) return images.error();
    out.push_back(std::move(images).value());
    return out;
}

/// A model that is to be served, and where.
struct wanted_model {
    std::string place;  ///< the name that asked for it
    model_description description;
    std::vector<std::string> uris;
};

struct wanted_server {
    std::vector<std::string> targets;
    gateway::call_sizes needs{.response_bytes = 4096};
};

struct wanted {
    std::map<std::string, wanted_model> models;
    std::map<std::string, wanted_server> servers;  ///< by URI
};

constexpr std::uint32_t slots_for_parts = 128;  // each call in parts takes several

void add_server(wanted& to, const model_description& model, const std::string& uri) {
    wanted_server& server = to.servers[uri];
    server.targets.push_back(model.target);
    server.needs.request_bytes = std::max(server.needs.request_bytes, model.input_bytes);
    // A part may say itself what it holds, in a table at its head.
    const std::size_t table = model.decoupled ? accel::detail::table_bytes(max_tensors) + 64 : 0;
    server.needs.response_bytes = std::max(server.needs.response_bytes, model.output_bytes + table);
    if (model.decoupled) server.needs.slots = slots_for_parts;
}

result<void> add_model(wanted& to, const model_place& from, model_description model) {
    add_server(to, model, from.uri);
    const std::string name = model.name;
    wanted_model& one = to.models.try_emplace(name, wanted_model{from.name, std::move(model), {}}).first->second;
    if (one.place != from.name)
        return oip::refusal(status::invalid_argument, "there are two models " + oip::in_quotes(name));
    if (std::ranges::find(one.uris, from.uri) != one.uris.end())
        return oip::refusal(status::invalid_argument, "the model " + oip::in_quotes(name) + " names a server twice");
    one.uris.push_back(from.uri);
    return {};
}

result<wanted> wanted_of(std::span<const model_place> places, std::span<const model_description> known) {
    wanted out;
    for (const model_place& each : places) {
        auto models = describe(each.name, known);
        if (!models) return models.error();
        for (model_description& model : *models)
            if (auto added = add_model(out, each, std::move(model)); !added) return added.error();
    }
    return out;
}

door_models made_of(boost::asio::io_context& loop, wanted&& from, const choices& chosen) {
    const std::size_t most_kept = chosen.limits.max_json_memory;
    door_models out{.servers = std::make_unique<backends>(loop, chosen.reach, most_kept), .models = {}};
    std::map<std::string, gateway::upstream*> by_uri;
    std::map<std::string, const gateway::server_name*> by_name;
    for (auto& [uri, each] : from.servers) {
        if (!chosen.limits.passed_headers.empty()) each.needs.metadata_bytes = max_metadata_bytes;
        if (gateway::is_name(uri))
            by_name[uri] = &out.servers->add_name({uri, std::move(each.targets), each.needs});
        else
            by_uri[uri] = &out.servers->add_server(gateway::upstream(uri, std::move(each.targets), each.needs));
    }
    for (auto& [name, each] : from.models) {
        std::vector<gateway::upstream*> servers;
        std::vector<const gateway::server_name*> names;
        for (const std::string& uri : each.uris)
            if (gateway::is_name(uri))
                names.push_back(by_name.at(uri));
            else
                servers.push_back(by_uri.at(uri));
        const accel::target target = target_of(each.description.target);
        const std::size_t row = door_metrics::first_model + out.models.size();
        out.models.try_emplace(
            name, served_model{std::move(each.description), &out.servers->add(servers, target, names), target, row});
    }
    return out;
}

}  // namespace

result<door_models> connect_models(boost::asio::io_context& loop, context& ctx, const choices& chosen) {
    auto models = wanted_of(chosen.models, chosen.described);
    if (!models) return models.error();
    door_models out = made_of(loop, std::move(models).value(), chosen);
    if (auto reached = out.servers->open(ctx); !reached) return reached.error();
    return out;
}

}  // namespace accel::examples::serving::doors
