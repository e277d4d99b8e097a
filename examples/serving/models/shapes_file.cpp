// SPDX-License-Identifier: Apache-2.0
#include "serving/models/shapes_file.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace accel::examples::serving {
namespace {

using oip::named_tensor;

error unsupported(const std::string& what) {
    return {status::unsupported, 0, what + "; only a gateway passes it on, to a server that you write"};
}

/// The dimension of -1, else `max_tensor_rank`.
std::uint32_t open_dimension(const tensor& one) {
    const auto* const end = one.shape + one.rank;
    const auto* const found = std::find(one.shape, end, 0U);
    return found == end ? max_tensor_rank : static_cast<std::uint32_t>(found - one.shape);
}

/// The output with as many elements as `max_bytes` has room for.
result<tensor> longest(const named_tensor& output, std::uint32_t open) {
    tensor out = output.what;
    out.offset = 0;
    if (open == max_tensor_rank) return out;
    const std::string name = "tensor '" + output.name + "'";
    if (oip::variable_dimensions(out) > 1) return unsupported(name + " has several dimensions of -1");
    out.shape[open] = 1;
    const std::uint64_t rows = output.max_bytes / size_bytes(out);
    if (rows == 0) return error{status::invalid_argument, 0, name + ": max_bytes has no room for one row"};
    out.shape[open] = static_cast<std::uint32_t>(rows);
    return out;
}

result<void> add_inputs(model_shapes& to, const std::vector<named_tensor>& list) {
    for (const named_tensor& each : list) {
        if (open_dimension(each.what) != max_tensor_rank)
            return unsupported("input '" + each.name + "' has a dimension of -1: write the length that you send");
        to.inputs.push_back(each.what);
        to.inputs.back().offset = 0;
        to.values.push_back(each.values);
    }
    return {};
}

result<void> add_outputs(model_shapes& to, const std::vector<named_tensor>& list) {
    for (const named_tensor& each : list) {
        to.open.push_back(open_dimension(each.what));
        auto one = longest(each, to.open.back());
        if (!one) return one.error();
        to.outputs.push_back(*one);
    }
    if (std::ranges::count(to.open, max_tensor_rank) == std::ssize(to.open)) to.open.clear();
    return {};
}

}  // namespace

result<model_shapes> shapes_of(const oip::model_description& described) {
    if (described.decoupled) return unsupported("the model is decoupled, and answers in parts");
    for (const auto* list : {&described.inputs, &described.outputs})
        for (const named_tensor& each : *list)
            if (each.strings) return unsupported("tensor '" + each.name + "' has strings (BYTES)");
    model_shapes out;
    out.name = described.target;
    out.gflops = described.gflops;
    out.image = described.image;
    if (auto added = add_inputs(out, described.inputs); !added) return added.error();
    if (auto added = add_outputs(out, described.outputs); !added) return added.error();
    return out;
}

result<std::string> add_shapes_file(const std::string& path) {
    auto described = oip::read_description_file(path);
    if (!described) return described.error();
    auto shapes = shapes_of(*described);
    if (!shapes) return error{shapes.code(), 0, path + ": " + shapes.error().message};
    std::string name = shapes->name;
    if (auto added = add_model(std::move(*shapes)); !added)
        return error{added.code(), 0, path + ": name: " + added.error().message};
    return name;
}

}  // namespace accel::examples::serving
