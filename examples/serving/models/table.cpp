// SPDX-License-Identifier: Apache-2.0
#include "serving/models/table.hpp"

#include <algorithm>
#include <initializer_list>
#include <utility>

namespace accel::examples::serving {
namespace {

constexpr image_size usual_image{500, 546};
constexpr image_size digits_frame{480, 640};

tensor floats(std::initializer_list<std::uint32_t> shape) {
    tensor out;
    for (const std::uint32_t each : shape) out.shape[out.rank++] = each;
    return out;
}

model_shapes classifier(const char* name, double gflops) {
    return {name, gflops, usual_image, {floats({1, 3, 224, 224})}, {floats({1, 1000})}};
}

std::vector<model_shapes> make_table() {
    return {
        classifier("mobilenet_v3", 0.06),
        classifier("resnet50", 4.1),
        classifier("efficientnet_b0", 0.39),
        classifier("wide_resnet101", 22.81),
        {"yolo_v4",
         128.46,
         usual_image,
         {floats({1, 3, 416, 416})},
         {floats({1, 255, 52, 52}), floats({1, 255, 26, 26}), floats({1, 255, 13, 13})}},
        {"deeplab_v3", 178.72, usual_image, {floats({1, 3, 520, 520})}, {floats({2, 21, 520, 520})}},
        {"super_resolution", 2.98, {}, {floats({1, 1, 224, 224})}, {floats({1, 1, 672, 672})}},
        {"digits", 0.0003, digits_frame, {floats({1, 1, 8, 8})}, {floats({1, 10})}},
    };
}

std::vector<model_shapes>& the_table() {
    static std::vector<model_shapes> table = make_table();
    return table;
}

}  // namespace

std::span<const model_shapes> known_models() {
    return the_table();
}

result<void> add_model(model_shapes added) {
    if (find_model(added.name) != nullptr)
        return error{status::invalid_argument, 0, "there is a model '" + added.name + "' already: choose another name"};
    the_table().push_back(std::move(added));
    return {};
}

const model_shapes* find_model(std::string_view name) {
    const auto all = known_models();
    const auto found = std::ranges::find(all, name, &model_shapes::name);
    return found == all.end() ? nullptr : &*found;
}

std::size_t payload_bytes(std::span<const tensor> list) {
    std::size_t end = 0;
    for (const tensor& each : list) end = (end + 63) / 64 * 64 + size_bytes(each);
    return end;
}

void place_from_zero(std::span<tensor> list) noexcept {
    std::size_t end = 0;
    for (tensor& each : list) {
        each.offset = (end + 63) / 64 * 64;
        end = each.offset + size_bytes(each);
    }
}

}  // namespace accel::examples::serving
