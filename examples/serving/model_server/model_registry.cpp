// SPDX-License-Identifier: Apache-2.0
#include "serving/model_server/model_registry.hpp"

#include "serving/models/loaded_models.hpp"

#include <accel_transport/completion.hpp>

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include <fmt/format.h>

namespace accel::examples::serving {
namespace {

/// Its model is not there now.
void refuse_unloaded(const std::string& name, exchange& request) noexcept {
    std::array<char, 160> text;
    const auto end = fmt::format_to_n(text.data(), text.size(), "the model '{}' is not loaded", name).out;
    (void)request.fail(status::not_found, unseen_code, {text.data(), static_cast<std::size_t>(end - text.data())});
}

/// Modulo 2^64: `add` of the same brings it back.
served_statistics negative(const served_statistics& of) {
    const served_statistics zero;
    return {zero.requests - of.requests,
            zero.errors - of.errors,
            {zero.batches.batches - of.batches.batches, zero.batches.requests - of.batches.requests,
             zero.batches.refused - of.batches.refused, zero.batches.given_up - of.batches.given_up},
            {zero.replays.replays - of.replays.replays, zero.replays.copies - of.replays.copies,
             zero.replays.copied_bytes - of.replays.copied_bytes}};
}

}  // namespace

model_registry::model_registry(context& ctx, model_place place, const serving_options& options)
    : ctx_(ctx), place_(place), options_(options), loaded_(ctx, known_models().size()) {
    for (const model_shapes& each : known_models()) slots_.push_back(std::make_unique<slot>(each.name));
}

model_registry::~model_registry() = default;

model_registry::slot* model_registry::find_slot(std::string_view name) const {
    const auto found = std::ranges::find_if(slots_, [&](const auto& each) { return each->name == name; });
    return found == slots_.end() ? nullptr : found->get();
}

result<void> model_registry::load(const model_spec& spec) {
    const std::lock_guard lock(mutex_);
    slot* const place = find_slot(spec.name);
    if (place == nullptr) return error{status::not_found, 0, fmt::format("there is no model '{}'", spec.name)};
    if (place->owned != nullptr)
        return error{status::invalid_state, 0, fmt::format("'{}' is already loaded: unload it first", spec.name)};
    auto loaded = open_model(spec, place_);
    if (!loaded) return loaded.error();
    auto served = served_model::create(ctx_, std::move(*loaded), options_);
    if (!served) return served.error();
    place->owned = std::move(*served);
    place->ever = true;
    place->model.store(place->owned.get(), std::memory_order_seq_cst);
    announce();
    return {};
}

result<void> model_registry::unload(std::string_view name) {
    const std::lock_guard lock(mutex_);
    slot* const place = find_slot(name);
    if (place == nullptr || place->owned == nullptr)
        return error{status::not_found, 0, fmt::format("'{}' is not loaded", name)};
    place->model.store(nullptr, std::memory_order_seq_cst);
    announce();
    while (place->entered.load(std::memory_order_seq_cst) > 0)
        std::this_thread::sleep_for(std::chrono::microseconds{50});
    place->owned->stop();
    add(place->before, place->owned->statistics());
    place->owned.reset();
    return {};
}

void model_registry::announce() {
    std::vector<target> loaded;
    for (const auto& each : slots_)
        if (each->model.load(std::memory_order_relaxed) != nullptr) loaded.push_back(target_of(each->name));
    loaded_.set(loaded);
}

std::vector<std::string> model_registry::names() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> out;
    for (const auto& each : slots_)
        if (each->owned != nullptr) out.push_back(each->name);
    return out;
}

served_model* model_registry::find(std::string_view name) const {
    const std::lock_guard lock(mutex_);
    const slot* const place = find_slot(name);
    return place == nullptr ? nullptr : place->owned.get();
}

/// A handler that has entered before `unload` took the model away is waited for; one that enters later sees none.
void model_registry::serve(slot& place, exchange request) noexcept {
    place.entered.fetch_add(1, std::memory_order_seq_cst);
    served_model* const model = place.model.load(std::memory_order_seq_cst);
    if (model != nullptr)
        model->serve(std::move(request));
    else
        refuse_unloaded(place.name, request);
    place.entered.fetch_sub(1, std::memory_order_release);
}

service_table model_registry::services() {
    service_table out;
    for (const auto& each : slots_) {
        slot* const place = each.get();
        out.named.push_back({place->name, [place](exchange request) { serve(*place, std::move(request)); }});
    }
    if (loaded_.usable())
        out.named.push_back(
            {std::string{loaded_models_target}, [this](exchange request) { loaded_.tell(std::move(request)); }});
    return out;
}

std::vector<model_registry::row> model_registry::statistics() const {
    const std::lock_guard lock(mutex_);
    std::vector<row> out;
    for (const auto& each : slots_) {
        if (!each->ever) continue;
        served_statistics sum = each->before;
        if (each->owned != nullptr) add(sum, each->owned->statistics());
        out.push_back({each->name, sum});
    }
    return out;
}

void model_registry::forget_statistics() {
    const std::lock_guard lock(mutex_);
    for (const auto& each : slots_)
        if (each->owned != nullptr) each->before = negative(each->owned->statistics());
}

}  // namespace accel::examples::serving
