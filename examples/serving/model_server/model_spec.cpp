// SPDX-License-Identifier: Apache-2.0
#include "serving/model_server/model_spec.hpp"

#include "report/program.hpp"
#include "serving/model_server/settings.hpp"
#include "serving/models/digits_model.hpp"
#include "serving/models/gpu_models.hpp"
#include "serving/models/table.hpp"
#include "serving/models/torch_file.hpp"

#include <fmt/format.h>

namespace accel::examples::serving {
namespace {

constexpr std::string_view builtin_name = "digits";
constexpr std::int16_t on_host = -1;

std::string all_names() {
    std::string out;
    for (const model_shapes& each : known_models()) out += (out.empty() ? "" : ", ") + each.name;
    return out;
}

bool is_file(std::string_view spec) {
    return spec.ends_with(".pt") || spec.ends_with(".pt2");
}

result<std::unique_ptr<model>> open_synthetic(const model_shapes& shapes, const model_place& place) {
    if (place.gpu) return load_synthetic_gpu(shapes, place.synthetic.gflops_per_second, *place.gpu);
    return make_synthetic(shapes, place.synthetic);
}

result<std::unique_ptr<model>> open_plain(const model_spec& spec, const model_place& place) {
    const model_shapes* const shapes = find_model(spec.name);
    if (shapes == nullptr) return error{status::invalid_argument, 0, fmt::format("there is no model '{}'", spec.name)};
    if (place.gpu && !shapes->open.empty())
        return error{status::unsupported, 0,
                     fmt::format("an output of '{}' has a dimension of -1: serve it with --on host", spec.name)};
    if (spec.from == model_spec::source::file)
        return load_torch_file(spec.name, spec.path, place.gpu.value_or(on_host));
    if (spec.from == model_spec::source::synthetic) return open_synthetic(*shapes, place);
    return place.gpu ? load_digits_gpu(*place.gpu) : make_digits();
}

}  // namespace

result<model_spec> parse_model_spec(std::string_view text) {
    const std::size_t equals = text.find('=');
    model_spec out{std::string{text.substr(0, equals)}, model_spec::source::synthetic, {}};
    if (find_model(out.name) == nullptr)
        return error{
            status::invalid_argument, 0,
            fmt::format("there is no model '{}': choose from {}, or describe it (--shapes)", out.name, all_names())};
    const std::string_view spec = equals == std::string_view::npos ? std::string_view{} : text.substr(equals + 1);
    if (spec == "builtin" || (equals == std::string_view::npos && out.name == builtin_name))
        out.from = model_spec::source::builtin;
    else if (is_file(spec))
        out = {out.name, model_spec::source::file, std::string{spec}};
    else if (equals != std::string_view::npos && spec != "synthetic")
        return error{
            status::invalid_argument, 0,
            fmt::format("'{}' is not a valid source of a model: write builtin, synthetic, FILE.pt or FILE.pt2", spec)};
    if (out.from == model_spec::source::builtin && out.name != builtin_name)
        return error{
            status::invalid_argument, 0,
            fmt::format("'{}' is not built in, only digits is: write synthetic or the path of a file", out.name)};
    return out;
}

result<std::unique_ptr<model>> open_model(const model_spec& spec, const model_place& place) {
    auto made = open_plain(spec, place);
    if (!made || !place.gpu || !place.graphs) return made;
    auto replayed = replay_graphs(*made);
    if (replayed) return replayed;
    (void)report::complain(program_name, fmt::format("'{}' cannot be recorded as a graph, so its kernels are launched "
                                                     "one by one: {}",
                                                     spec.name, replayed.error().message));
    return made;
}

}  // namespace accel::examples::serving
