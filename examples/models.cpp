// SPDX-License-Identifier: Apache-2.0
/// Two models in one server. A request names its model and describes its tensor: models [URI]
#include <accel_transport/accel_transport.hpp>

#include <array>
#include <cstdio>
#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace {

using namespace accel;

using matrix_view = tensor_view<const float>;

/// The only tensor that a message describes, if it is one of floats.
template <class Message>
result<matrix_view, status> floats_of(const Message& message, std::span<const std::byte> payload) {
    std::array<tensor, 1> room;
    const auto described = message.tensors(room);
    if (!described) return described.error();
    return matrix_view::from(room[0], payload);
}

/// A model: takes a matrix of floats, answers with a vector.
template <class Work>
handler model(Work work) {
    return [work](exchange request) {
        const auto in = floats_of(request, request.request());
        if (!in || in->shape().size() != 2) {
            request.fail(status::invalid_argument, 0, "this model takes one matrix of 32-bit floats");
            return;
        }
        const std::vector<float> result = work(*in);
        const matrix_view out({static_cast<std::uint32_t>(result.size())}, result);
        const auto packed = pack_tensors(request.response(), out);
        if (!packed || request.describe(packed->length, packed->list) != status::ok)
            request.fail(status::message_too_large, 0, "the response has no room for the result");
        else
            request.reply(packed->length);
    };
}

std::vector<float> sum_rows(const matrix_view& matrix) {
    std::vector<float> out;
    const std::size_t columns = matrix.shape()[1];
    for (std::size_t row = 0; row < matrix.shape()[0]; ++row) {
        const auto numbers = matrix.elements().subspan(row * columns, columns);
        out.push_back(std::accumulate(numbers.begin(), numbers.end(), 0.0F));
    }
    return out;
}

std::vector<float> double_all(const matrix_view& matrix) {
    std::vector<float> out(matrix.elements().begin(), matrix.elements().end());
    for (float& each : out) each *= 2;
    return out;
}

std::vector<float> triple_all(const matrix_view& matrix) {
    std::vector<float> out(matrix.elements().begin(), matrix.elements().end());
    for (float& each : out) each *= 3;
    return out;
}

int fail(const error& why) {
    std::fprintf(stderr, "models: %s\n", why.message.c_str());
    return 1;
}

/// One call: a matrix of 2 × 3 to this model.
int ask(channel& client, const char* name) {
    auto model = client.resolve(name);
    if (!model) {
        std::printf("%s: %s\n", name, model.error().message.c_str());
        return 0;
    }
    const std::array<float, 6> numbers{1, 2, 3, 4, 5, 6};
    std::array<std::byte, 256> request{};
    const auto in = pack_tensors(request, matrix_view({2, 3}, numbers));
    if (!in) return fail({in.error(), 0, "the request has no room for the matrix"});
    auto answer = client.call(std::span{request}.first(in->length), {.target = *model, .tensors = in->list});
    if (!answer) return fail(answer.error());
    const auto out = floats_of(*answer, answer->response);
    if (!out) return fail({out.error(), 0, "no tensor of floats"});
    std::printf("%s:", name);
    for (const float each : out->elements()) std::printf(" %g", static_cast<double>(each));
    std::printf("\n");
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    auto ctx = context::open();
    if (!ctx) return fail(ctx.error());
    const service_table models{{{"sum", model(sum_rows)}, {"double", model(double_all)}}};
    auto served = server::listen(*ctx, argc > 1 ? argv[1] : "local://models", models);
    if (!served) return fail(served.error());
    const std::string keys = argc > 1 ? "?insecure=true" : "";
    auto client = channel::connect(*ctx, served->endpoints().front() + keys);
    if (!client) return fail(client.error());
    for (const char* each : {"sum", "double", "triple"})
        if (ask(*client, each) != 0) return 1;
    // Models come and go while the server serves.
    if (auto added = served->add_target("triple", model(triple_all)); !added) return fail(added.error());
    if (auto removed = served->remove_target("double"); !removed) return fail(removed.error());
    for (const char* each : {"triple", "double"})
        if (ask(*client, each) != 0) return 1;
}
