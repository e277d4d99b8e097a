// SPDX-License-Identifier: Apache-2.0
#include "digits/gpu_service.hpp"

#include "digits/digits_service.hpp"
#include "digits/embedded.hpp"
#include "digits/frame.hpp"

#include <algorithm>
#include <string>

namespace accel::examples::digits {
namespace {

/// One for each stream of a server, and enough for one that has more workers than these options say.
std::size_t streams_of(const server_options& options) {
    constexpr std::size_t least = 64;
    const std::size_t a_worker = std::size_t{options.streams} + options.priority_streams;
    return std::max(least, a_worker * std::max<std::size_t>(options.workers, 1));
}

/// Why the lengths of a request and of the room for its answer will not do.
std::string_view check_lengths(const exchange& request) {
    const std::size_t length = request.request().size();
    if (length != tensor_bytes && length != frame_bytes) return length_wrong;
    return request.response().size() < sizeof(digit_answer) ? room_too_small : std::string_view{};
}

}  // namespace

result<gpu_service> gpu_service::load(memory_kind where, const server_options& options) {
    if (where.where != memory_kind::type::cuda)
        return error{status::invalid_argument, 0, "the GPU's service needs memory on a GPU"};
    const auto model = network::load(embedded_weights());
    if (!model.value) return error{status::invalid_argument, 0, std::string{describe(model.error)}};
    auto on_gpu = gpu_network::create(where.ordinal, *model.value, streams_of(options));
    if (!on_gpu) return on_gpu.error();
    return gpu_service{where, std::move(on_gpu).value()};
}

void gpu_service::serve(exchange request) {
    if (request.memory() != where_) {
        request.fail(status::unsupported, 0, "the server's memory is not where its service works");
        return;
    }
    if (const auto wrong = check_lengths(request); !wrong.empty()) {
        request.fail(status::invalid_argument, 0, wrong);
        return;
    }
    CUstream_st* const stream = request.stream();
    const std::byte* const input = request.request().data();
    std::byte* const answer = request.response().data();
    if (request.request().size() == tensor_bytes) {
        request.mark(stage::inference);
        model_.infer(stream, input, answer);
    } else {
        gpu_scratch* const scratch = model_.scratch_for(stream);
        if (scratch == nullptr) {
            request.fail(status::overloaded, 0, "more streams than the service has scratch memory for");
            return;
        }
        request.mark(stage::preprocessing);
        model_.preprocess(stream, input, scratch);
        request.mark(stage::inference);
        model_.infer(stream, scratch, answer);
    }
    request.reply(sizeof(digit_answer));
}

}  // namespace accel::examples::digits
