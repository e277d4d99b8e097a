// SPDX-License-Identifier: Apache-2.0
/// Two models in one server. A request names its model and describes its tensor: models [URI]
#include <accel_transport/accel_transport.hpp>

#include <array>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace {

using namespace accel;

std::vector<float> numbers_of(const tensor& one, std::span<const std::byte> payload) {
    const auto bytes = bytes_of(one, payload);
    std::vector<float> out(bytes.size() / sizeof(float));
    std::memcpy(out.data(), bytes.data(), out.size() * sizeof(float));
    return out;
}

/// Writes one tensor of floats; how long the payload is, 0: it does not fit.
std::size_t write(std::span<std::byte> room, tensor& one, std::span<const float> numbers) {
    const std::size_t length = place_tensors({&one, 1});
    if (length == 0 || length > room.size() || size_bytes(one) != numbers.size_bytes()) return 0;
    std::memcpy(bytes_of(one, room).data(), numbers.data(), numbers.size_bytes());
    return length;
}

/// A model: takes a matrix of floats, answers with a vector.
template <class Work>
handler model(Work work) {
    return [work](exchange request) {
        std::array<tensor, 1> in;
        std::size_t count = 0;
        if (request.tensors(in, count) != status::ok || in[0].type != data_type{} || in[0].rank != 2) {
            request.fail(status::invalid_argument, 0, "this model takes one matrix of 32-bit floats");
            return;
        }
        const std::vector<float> result = work(numbers_of(in[0], request.request()), in[0].shape[1]);
        tensor out{{}, 1, 0, {static_cast<std::uint32_t>(result.size())}};
        const std::size_t length = write(request.response(), out, result);
        if (length == 0 || request.describe(length, {&out, 1}) != status::ok)
            request.fail(status::message_too_large, 0, "the response has no room for the result");
        else
            request.reply(length);
    };
}

std::vector<float> sum_rows(const std::vector<float>& matrix, std::uint32_t columns) {
    std::vector<float> out;
    for (auto row = matrix.begin(); row != matrix.end(); row += columns)
        out.push_back(std::accumulate(row, row + columns, 0.0F));
    return out;
}

std::vector<float> double_all(std::vector<float> matrix, std::uint32_t) {
    for (float& each : matrix) each *= 2;
    return matrix;
}

int fail(const error& why) {
    std::fprintf(stderr, "models: %s\n", why.message.c_str());
    return 1;
}

/// One call: a matrix of 2 × 3 to this model.
int ask(channel& client, const char* name) {
    auto model = client.resolve(name);
    if (!model) {
        std::printf("%s: %s\n", name, std::string{to_string(model.code())}.c_str());
        return 0;
    }
    const std::array<float, 6> matrix{1, 2, 3, 4, 5, 6};
    std::array<std::byte, 256> request{};
    tensor in{{}, 2, 0, {2, 3}};
    const std::size_t length = write(request, in, matrix);
    auto answer = client.call(std::span{request}.first(length), {.target = *model, .tensors = {&in, 1}});
    if (!answer) return fail(answer.error());
    std::array<tensor, 1> out;
    std::size_t count = 0;
    if (answer->tensors(out, count) != status::ok) return fail({status::protocol_error, 0, "no tensors"});
    std::printf("%s:", name);
    for (const float each : numbers_of(out[0], answer->bytes())) std::printf(" %g", static_cast<double>(each));
    std::printf("\n");
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    auto ctx = context::open();
    if (!ctx) return fail(ctx.error());
    const service_table models{{{"sum", model(sum_rows)}, {"double", model(double_all)}}};
    auto served = server::listen(*ctx, {argc > 1 ? argv[1] : "local://models"}, models);
    if (!served) return fail(served.error());
    const std::string keys = argc > 1 ? "?insecure=true" : "";
    auto client = channel::connect(*ctx, served->endpoints().front() + keys);
    if (!client) return fail(client.error());
    for (const char* each : {"sum", "double", "triple"})
        if (ask(*client, each) != 0) return 1;
}
