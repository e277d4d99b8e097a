// SPDX-License-Identifier: Apache-2.0
#include "serving/load/inputs.hpp"

#include "digits/dataset.hpp"
#include "digits/embedded.hpp"
#include "digits/frame.hpp"
#include "serving/doors/oip/element_types.hpp"
#include "serving/models/digits_model.hpp"
#include "serving/models/synthetic.hpp"

#include <accel_transport/tensor_view.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <utility>

namespace accel::examples::serving {
namespace {

/// Scores of the digits network differ by no more between processors.
constexpr float score_error = 1e-4F;

std::vector<tensor> placed(std::vector<tensor> list) {
    place_from_zero(list);
    return list;
}

std::vector<tensor> tensors_to_send(const load_settings& chosen) {
    if (!chosen.raw) return placed(chosen.model->inputs);
    return {tensor_of<std::uint8_t>({chosen.model->image.height, chosen.model->image.width, 3})};
}

std::size_t bytes_to_send(const load_settings& chosen) {
    return chosen.raw ? image_bytes(chosen.model->image) : payload_bytes(chosen.model->inputs);
}

void fill_with_pixels(std::span<std::byte> out, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    for (std::byte& each : out) each = static_cast<std::byte>(random() & 0xff);
}

/// Numbers as networks take them: floats of a normalised image, any byte, and of other integers those below `values`,
/// by default 0 and 1, which are token ids, types and masks of every network.
template <class Number>
Number drawn(std::mt19937_64& random, std::normal_distribution<float>& floats, std::uint64_t values) {
    if constexpr (std::is_floating_point_v<Number>)
        return floats(random);
    else if constexpr (!std::is_integral_v<Number>)
        return *Number::of(floats(random));
    else if constexpr (sizeof(Number) == 1 && !std::is_same_v<Number, bool>)
        return static_cast<Number>(values == 0 ? random() : random() % values);
    else
        return static_cast<Number>(random() % (values == 0 ? 2 : values));
}

void fill_with_numbers(std::span<std::byte> out, const model_shapes& shapes, std::span<const tensor> placed_inputs,
                       std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> floats;
    for (std::size_t i = 0; i < placed_inputs.size(); ++i) {
        const std::uint64_t values = shapes.values.empty() ? 0 : shapes.values[i];
        oip::with_element(placed_inputs[i].type, [&]<class Number>(Number) {
            const auto elements = bytes_of(placed_inputs[i], out);
            for (std::size_t at = 0; at < elements.size(); at += sizeof(Number)) {
                const auto value = drawn<Number>(random, floats, values);
                std::memcpy(elements.data() + at, &value, sizeof value);
            }
        });
    }
}

/// A test image of the digits.
result<void> fill_with_digit(std::span<std::byte> out, bool raw, std::uint64_t seed) {
    const auto images = digits::dataset::load(digits::embedded_test_images());
    if (!images.value) return error{status::invalid_argument, 0, std::string{digits::describe(images.error)}};
    const std::size_t index = seed % images.value->size();
    const digits::digit_image image = (*images.value)[index];
    if (raw) {
        const digits::failure why = digits::draw_frame(image, index, out);
        if (why != digits::failure::none) return error{status::invalid_argument, 0, std::string{digits::describe(why)}};
        return {};
    }
    std::array<float, digits::tensor_values> values{};
    digits::to_tensor(image, values);
    if (out.size() != sizeof values) return error{status::invalid_argument, 0, "the digits have the wrong size"};
    std::memcpy(out.data(), values.data(), sizeof values);
    return {};
}

/// A raw image, or else the tensors.
result<void> fill(std::span<std::byte> out, const model_shapes& shapes, bool raw, std::span<const tensor> tensors,
                  std::uint64_t seed) {
    if (shapes.name == "digits") return fill_with_digit(out, raw, seed);
    if (raw)
        fill_with_pixels(out, seed);
    else
        fill_with_numbers(out, shapes, tensors, seed);
    return {};
}

result<std::unique_ptr<model>> reference_model(const load_settings& chosen) {
    if (chosen.expect == expectation::digits) return make_digits();
    return make_synthetic(*chosen.model, {1e9, synthetic_pace::wait});
}

bool close_scores(std::span<const std::byte> one, std::span<const std::byte> other) noexcept {
    for (std::size_t at = 0; at + sizeof(float) <= one.size(); at += sizeof(float)) {
        float wanted = 0;
        float seen = 0;
        std::memcpy(&wanted, one.data() + at, sizeof wanted);
        std::memcpy(&seen, other.data() + at, sizeof seen);
        if (!(std::abs(wanted - seen) <= score_error)) return false;
    }
    return true;
}

}  // namespace

expectation expectation_of(std::string_view text, std::string_view model) {
    if (text == "synthetic") return expectation::synthetic;
    if (text == "digits" || (text == "auto" && model == "digits")) return expectation::digits;
    return expectation::shape;
}

bool same_shape(const tensor& one, const tensor& other) noexcept {
    if (one.type != other.type || one.rank != other.rank) return false;
    return std::equal(one.shape, one.shape + one.rank, other.shape);
}

load_input::load_input(const load_settings& chosen)
    : model_(chosen.model),
      expect_(chosen.expect),
      tensors_(tensors_to_send(chosen)),
      wanted_(placed(chosen.model->outputs)) {}

result<load_input> load_input::make(context& ctx, const load_settings& chosen, std::uint32_t client) {
    load_input made{chosen};
    const std::uint64_t seed = chosen.seed * 1'000'003 + client;
    if (chosen.preprocess) {
        std::vector<std::byte> image(image_bytes(chosen.model->image));
        if (auto filled = fill(image, *chosen.model, true, {}, seed); !filled) return filled.error();
        auto stage = image_stage::make(ctx, *chosen.model, image, *chosen.preprocess);
        if (!stage) return stage.error();
        made.stage_ = std::move(stage).value();
        if (auto known = made.answer_for(image, true, chosen); !known) return known.error();
        return made;
    }
    auto memory = ctx.allocate(bytes_to_send(chosen));
    if (!memory) return memory.error();
    made.memory_ = std::move(memory).value();
    const std::span<std::byte> sent = made.memory_.whole().bytes();
    if (auto filled = fill(sent, *chosen.model, chosen.raw, made.tensors_, seed); !filled) return filled.error();
    if (auto known = made.answer_for(sent, chosen.raw, chosen); !known) return known.error();
    return made;
}

result<void> load_input::answer_for(std::span<const std::byte> source, bool raw, const load_settings& chosen) {
    if (chosen.expect == expectation::shape) return {};
    const auto reference = reference_model(chosen);
    if (!reference) return reference.error();
    std::vector<std::byte> input(payload_bytes(chosen.model->inputs));
    if (!raw)
        std::ranges::copy(source, input.begin());
    else if (auto good = reference.value()->preprocess(nullptr, source, input); !good)
        return good.error();
    answer_.resize(payload_bytes(chosen.model->outputs));
    const bool open = !chosen.model->open.empty();
    const model_job job{input, answer_, std::span{wanted_}.first(open ? wanted_.size() : 0)};
    return reference.value()->infer(nullptr, {&job, 1});
}

/// Where the bytes are not known, open dimensions are not either.
bool load_input::has_shape(std::size_t index, tensor seen) const noexcept {
    const tensor& wanted = wanted_[index];
    const std::uint32_t open = model_->open.empty() ? max_tensor_rank : model_->open[index];
    if (open < seen.rank && expect_ == expectation::shape)
        seen.shape[open] = std::max(seen.shape[open], wanted.shape[open]);
    return same_shape(wanted, seen);
}

bool load_input::same_bytes(const tensor& wanted, const tensor& seen,
                            std::span<const std::byte> answer) const noexcept {
    const auto here = bytes_of(wanted, std::span<const std::byte>{answer_});
    const auto there = bytes_of(seen, answer);
    if (here.empty() || std::memcmp(here.data(), there.data(), here.size()) == 0) return true;
    return expect_ == expectation::digits && close_scores(here, there);
}

std::span<const tensor> load_input::undescribed(std::span<const std::byte> answer) const noexcept {
    const bool whole = answer.size() == payload_bytes(model_->outputs);
    return whole ? std::span<const tensor>{wanted_} : std::span<const tensor>{};
}

bool load_input::is_right(std::span<const tensor> described, std::span<const std::byte> answer) const noexcept {
    if (described.size() != wanted_.size()) return false;
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
        if (!has_shape(i, described[i])) return false;
        if (!answer_.empty() && !same_bytes(wanted_[i], described[i], answer)) return false;
    }
    return true;
}

}  // namespace accel::examples::serving
