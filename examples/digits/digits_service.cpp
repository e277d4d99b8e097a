// SPDX-License-Identifier: Apache-2.0
#include "digits/digits_service.hpp"

#include "digits/embedded.hpp"
#include "digits/preprocess.hpp"

#include <cstring>
#include <string>

namespace accel::examples::digits {
namespace {

using tensor = std::array<float, tensor_values>;

/// Makes the network's input of a request; the reason where it cannot.
std::string_view read_tensor(exchange& request, tensor& out) {
    const auto bytes = request.request();
    if (bytes.size() == tensor_bytes) {
        std::memcpy(out.data(), bytes.data(), tensor_bytes);
        return {};
    }
    if (bytes.size() != frame_bytes) return length_wrong;
    const stage_timer timer{request, stage::preprocessing};
    return describe(preprocess(bytes, out));
}

std::string_view classify(exchange& request, const network& model, const tensor& input, digit_answer& answer) {
    const stage_timer timer{request, stage::inference};
    const failure why = model.classify(input, answer.scores);
    if (why == failure::none) answer.label = static_cast<std::uint32_t>(best_class(answer.scores));
    return describe(why);
}

}  // namespace

result<digits_service> digits_service::load() {
    const auto model = network::load(embedded_weights());
    if (!model.value) return error{status::invalid_argument, 0, std::string{describe(model.error)}};
    return digits_service{*model.value};
}

void digits_service::serve(exchange request) const {
    if (request.memory() != memory_kind::host()) {
        request.fail(status::unsupported, 0, "the server's memory is not where its service works");
        return;
    }
    tensor input;
    digit_answer answer;
    std::string_view wrong = read_tensor(request, input);
    if (wrong.empty()) wrong = classify(request, model_, input, answer);
    if (wrong.empty() && request.response().size() < sizeof answer) wrong = room_too_small;
    if (!wrong.empty()) {
        request.fail(status::invalid_argument, 0, wrong);
        return;
    }
    std::memcpy(request.response().data(), &answer, sizeof answer);
    request.reply(sizeof answer);
}

}  // namespace accel::examples::digits
