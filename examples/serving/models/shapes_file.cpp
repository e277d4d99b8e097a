// SPDX-License-Identifier: Apache-2.0
#include "serving/models/shapes_file.hpp"

#include <utility>

namespace accel::examples::serving {
namespace {

using oip::named_tensor;

error unsupported(const std::string& what) {
    return {status::unsupported, 0, what + "; only a gateway takes it, with a server of your own"};
}

}  // namespace

result<model_shapes> shapes_of(const oip::model_description& described) {
    if (described.decoupled) return unsupported("the model is decoupled, and answers in parts");
    for (const auto* list : {&described.inputs, &described.outputs})
        for (const named_tensor& each : *list)
            if (!each.is_fixed())
                return unsupported("tensor '" + each.name + "' has a dimension of -1, or strings (BYTES)");
    model_shapes out;
    out.name = described.target;
    out.gflops = described.gflops;
    out.image = described.image;
    for (const named_tensor& each : described.inputs) out.values.push_back(each.values);
    for (const named_tensor& each : described.inputs) out.inputs.push_back(each.what);
    for (const named_tensor& each : described.outputs) out.outputs.push_back(each.what);
    for (auto* list : {&out.inputs, &out.outputs})
        for (tensor& each : *list) each.offset = 0;
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
