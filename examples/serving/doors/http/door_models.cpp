// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/http/door_models.hpp"

#include "serving/doors/oip/model_description.hpp"
#include "serving/doors/oip/refusal.hpp"
#include "serving/models/table.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
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
    tensor out{.type = {type_code::unsigned_integer, 8, 1}, .rank = 3};
    out.shape[0] = image.height;
    out.shape[1] = image.width;
    out.shape[2] = 3;
    return out;
}

/// A model of the table: as tensors, and as a raw image where it takes one.
std::vector<model_description> from_table(const model_shapes& shapes) {
    model_description plain;
    plain.name = plain.target = shapes.name;
    plain.inputs = with_names(shapes.inputs, "input");
    plain.outputs = with_names(shapes.outputs, "output");
    std::vector<model_description> out{plain};
    if (shapes.image.height == 0) return out;
    plain.name += "_image";
    plain.inputs = {{"image", image_tensor(shapes.image), false}};
    out.push_back(std::move(plain));
    return out;
}

result<std::vector<model_description>> describe(const std::string& name, std::span<const model_description> known) {
    const auto given = std::ranges::find(known, name, &model_description::name);
    if (given != known.end()) return std::vector{*given};
    const model_shapes* shapes = find_model(name);
    if (shapes == nullptr)
        return oip::refusal(status::not_found,
                            "the shapes of " + oip::in_quotes(name) +
                                " are not known: give them by --describe FILE, or in the configuration");
    std::vector<model_description> out;
    for (model_description& each : from_table(*shapes)) {
        auto good = oip::checked(std::move(each));
        if (!good) return good.error();
        out.push_back(std::move(good).value());
    }
    return out;
}

constexpr std::uint32_t slots_for_parts = 128;  // each call in parts takes several

/// What the models at one URI need of its channel.
struct wanted_channel {
    std::vector<model_description> models;
    channel_options options{.slots = 32, .request_bytes = 0, .response_bytes = 4096, .reconnect = true};
};

void add(wanted_channel& to, model_description model) {
    to.options.request_bytes = std::max(to.options.request_bytes, model.input_bytes);
    // A part may say itself what it holds, in a table at its head.
    const std::size_t table = model.decoupled ? accel::detail::table_bytes(max_tensors) + 64 : 0;
    to.options.response_bytes = std::max(to.options.response_bytes, model.output_bytes + table);
    if (model.decoupled) to.options.slots = slots_for_parts;
    to.models.push_back(std::move(model));
}

result<void> add_models(door_models& to, std::vector<model_description> models) {
    backend& line = *to.backends.back();
    for (model_description& each : models) {
        const auto target = line.line().resolve(each.target);
        if (!target) return target.error();
        if (line.line().max_request_bytes() < each.input_bytes)
            return oip::refusal(status::message_too_large, "the server takes too short requests for " + each.name);
        const std::string name = each.name;
        if (!to.models.try_emplace(name, served_model{std::move(each), &line, target.value()}).second)
            return oip::refusal(status::invalid_argument, "there are two models " + oip::in_quotes(name));
    }
    return {};
}

}  // namespace

result<std::vector<oip::model_description>> read_descriptions(std::span<const std::string> files) {
    std::vector<oip::model_description> out;
    for (const std::string& path : files) {
        std::ifstream file(path, std::ios::binary);
        if (!file) return oip::refusal(status::invalid_argument, "cannot read " + path);
        const std::string text{std::istreambuf_iterator<char>(file), {}};
        auto one = oip::read_description(text);
        if (!one) return oip::refusal(status::invalid_argument, path + ": " + one.error().message);
        out.push_back(std::move(one).value());
    }
    return out;
}

result<model_place> read_model_place(const std::string& text) {
    const std::size_t end = text.find('=');
    if (end == std::string::npos || end == 0 || end + 1 == text.size())
        return oip::refusal(status::invalid_argument, oip::in_quotes(text) + " is not NAME=URI");
    return model_place{text.substr(0, end), text.substr(end + 1)};
}

result<door_models> connect_models(boost::asio::io_context& loop, context& ctx, std::span<const model_place> places,
                                   std::span<const oip::model_description> known) {
    std::map<std::string, wanted_channel> channels;
    for (const model_place& each : places) {
        auto models = describe(each.name, known);
        if (!models) return models.error();
        for (model_description& model : *models) add(channels[each.uri], std::move(model));
    }
    door_models out;
    for (auto& [uri, wanted] : channels) {
        auto made = channel::connect(ctx, uri, wanted.options);
        if (!made) return made.error();
        out.backends.push_back(std::make_unique<backend>(loop, std::move(made).value()));
        if (auto added = add_models(out, std::move(wanted.models)); !added) return added.error();
    }
    return out;
}

}  // namespace accel::examples::serving::doors
