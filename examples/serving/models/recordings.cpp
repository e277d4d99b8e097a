// SPDX-License-Identifier: Apache-2.0
#include "serving/models/recordings.hpp"

#include <utility>

namespace accel::examples::serving {
namespace {

/// From one request's inputs to the next one's, in memory of our own.
std::size_t stride_of(const model_shapes& shapes) {
    return (payload_bytes(shapes.inputs) + 63) / 64 * 64;
}

}  // namespace

result<std::byte*> recordings::preprocess(model& what, CUstream_st* stream, const device::graph_iteration& iteration) {
    const std::size_t stride = stride_of(what.shapes());
    auto memory = allocate_on_gpu(stride * iteration.batch);
    if (!memory) return memory.error();
    std::byte* const first = memory->get();
    for (std::size_t i = 0; i < iteration.batch; ++i) {
        auto done = what.preprocess(stream, {iteration.input + i * iteration.input_bytes, iteration.input_bytes},
                                    {first + i * stride, payload_bytes(what.shapes().inputs)});
        if (!done) return done.error();
    }
    const std::lock_guard lock(mutex_);
    between_.push_back(std::move(*memory));
    return first;
}

result<void> recordings::record(model& what, CUstream_st* stream, const device::graph_iteration& iteration) {
    const model_shapes& shapes = what.shapes();
    const std::size_t input_bytes = payload_bytes(shapes.inputs);
    const bool raw = iteration.input_bytes == image_bytes(shapes.image) && iteration.input_bytes > 0;
    if ((!raw && iteration.input_bytes != input_bytes) || iteration.output_bytes != payload_bytes(shapes.outputs))
        return error{status::invalid_argument, 0,
                     "requests of '" + shapes.name + "' are raw images or its inputs, and responses its outputs"};
    if (auto ready = use_gpu(what.memory().ordinal); !ready) return ready;
    std::byte* inputs = iteration.input;
    std::size_t stride = input_bytes;
    if (raw) {
        auto made = preprocess(what, stream, iteration);
        if (!made) return made.error();
        inputs = *made;
        stride = stride_of(shapes);
    }
    std::vector<model_job> jobs;
    for (std::size_t i = 0; i < iteration.batch; ++i)
        jobs.push_back({{inputs + i * stride, input_bytes},
                        {iteration.output + i * iteration.output_bytes, iteration.output_bytes}});
    return what.infer(stream, jobs);
}

}  // namespace accel::examples::serving
