// SPDX-License-Identifier: Apache-2.0
#include "torch/torch_service.hpp"

#include <accel_transport/device/graph.hpp>

#include <utility>

namespace accel::examples::vision {
namespace {

void serve(torch_model& model, bool replays, exchange request) {
    if (request.stream() == nullptr) {
        (void)request.fail(status::unsupported, 0, "the network needs its requests on a GPU");
        return;
    }
    if (request.request().size() != model.input_bytes() || request.response().size() < model.output_bytes()) {
        (void)request.fail(status::invalid_argument, 0,
                           "a request is one image, and its answer needs room for all logits");
        return;
    }
    const std::byte* const image = request.request().data();
    std::byte* const logits = request.response().data();
    request.mark(stage::inference);
    const auto given =
        replays ? model.replay(request.stream(), image, logits) : model.infer(request.stream(), image, logits);
    if (given)
        (void)request.reply(model.output_bytes());
    else
        (void)request.fail(given.error().code, 0, given.error().message);
}

}  // namespace

handler handler_of(torch_model& model, bool replays) {
    return [&model, replays](exchange request) { serve(model, replays, std::move(request)); };
}

gpu_graph::recorder recorder_of(torch_model& model) {
    return [&model](CUstream_st* stream, const device::graph_iteration& iteration) {
        return model.record(stream, iteration.input, iteration.output);
    };
}

}  // namespace accel::examples::vision
