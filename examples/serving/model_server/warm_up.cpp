// SPDX-License-Identifier: Apache-2.0
#include "serving/model_server/warm_up.hpp"

#include "serving/model_server/request_check.hpp"

#include <accel_transport/channel.hpp>
#include <accel_transport/tensor_view.hpp>

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>
#include <unistd.h>

namespace accel::examples::serving {
namespace {

constexpr std::uint32_t at_once = 8;
constexpr std::chrono::minutes longest_first{2};  ///< a first inference chooses and compiles kernels

struct series {
    target model;
    std::vector<tensor> tensors;
    std::size_t bytes = 0;
    bool must_succeed = true;
};

result<void> end_one(channel& to, const series& what) {
    std::array<completion, 1> done;
    if (to.wait(done, longest_first) == 0) return error{status::timed_out, 0, "the warm-up got no answer"};
    const auto text = done[0].response;
    const error failure{done[0].status, 0,
                        fmt::format("the warm-up failed: {}",
                                    std::string_view{reinterpret_cast<const char*>(text.data()), text.size()})};
    done[0].release();
    if (failure.code != status::ok && what.must_succeed) return failure;
    return {};
}

result<void> begin_one(channel& to, const series& what) {
    const auto call = to.begin();
    if (!call) return error{call.error(), 0, "the warm-up found no free slot"};
    std::memset(call->request.data(), 0, what.bytes);
    submit_options options;
    options.timeout = longest_first;
    options.target = what.model;
    options.tensors = what.tensors;
    const status sent = to.submit(call->id, what.bytes, options);
    if (sent != status::ok) return error{sent, 0, "the warm-up cannot send its request"};
    return {};
}

result<void> run(channel& to, const series& what, std::uint32_t count) {
    std::uint32_t begun = 0;
    for (std::uint32_t ended = 0; ended < count; ++ended) {
        for (; begun < count && begun - ended < at_once; ++begun)
            if (auto sent = begin_one(to, what); !sent) return sent;
        if (auto answered = end_one(to, what); !answered) return answered;
    }
    return {};
}

result<void> warm_one(context& ctx, std::string_view uri, const model_shapes& shapes, std::uint32_t count) {
    channel_options options;
    options.slots = at_once;
    options.request_bytes = std::max(payload_bytes(shapes.inputs), image_bytes(shapes.image));
    options.response_bytes = payload_bytes(shapes.outputs);
    auto to = channel::connect(ctx, uri, options);
    if (!to) return to.error();
    auto model = to->resolve(shapes.name);
    if (!model) return model.error();
    series tensors{*model, shapes.inputs, payload_bytes(shapes.inputs), true};
    place_from_zero(tensors.tensors);
    if (auto done = run(*to, tensors, count); !done) return done;
    if (image_bytes(shapes.image) == 0) return {};
    const tensor image = tensor_of<std::uint8_t>({shapes.image.height, shapes.image.width, 3});
    return run(*to, {*model, {image}, image_bytes(shapes.image), false}, (count + 9) / 10);
}

}  // namespace

std::string warm_up_uri() {
    return fmt::format("local://model-server-{}-warm-up", ::getpid());
}

result<void> warm_up(context& ctx, std::string_view uri, const std::vector<std::string>& models, std::uint32_t count) {
    for (const std::string& each : models)
        if (auto done = warm_one(ctx, uri, *find_model(each), count); !done) return done;
    return {};
}

}  // namespace accel::examples::serving
