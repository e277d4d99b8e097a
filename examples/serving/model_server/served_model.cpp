// SPDX-License-Identifier: Apache-2.0
#include "serving/model_server/served_model.hpp"

#include "serving/model_server/stream_buffers.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace accel::examples::serving {
namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

/// Where a worker's thread keeps the tensors that it makes of an image: as large as the largest model's.
std::span<std::byte> own_room(std::size_t bytes) {
    thread_local std::vector<std::byte> room;
    if (room.size() < bytes) room.resize(bytes);
    return {room.data(), bytes};
}

request_parts parts_of(exchange& request, std::span<tensor> room) noexcept {
    request_parts out;
    const auto described = request.tensors(room);
    out.described = described.code();
    if (described) out.tensors = *described;
    out.payload = request.request().data();
    out.response_room = request.response().size();
    return out;
}

constexpr std::size_t spaced(std::size_t bytes) noexcept {
    return (bytes + 63) / 64 * 64;
}

}  // namespace

void add(served_statistics& to, const served_statistics& more) noexcept {
    to.requests += more.requests;
    to.errors += more.errors;
    to.batches.batches += more.batches.batches;
    to.batches.requests += more.batches.requests;
    to.batches.refused += more.batches.refused;
    to.batches.given_up += more.batches.given_up;
    to.replays.replays += more.replays.replays;
    to.replays.copies += more.replays.copies;
    to.replays.copied_bytes += more.replays.copied_bytes;
}

served_model::served_model(std::unique_ptr<model> loaded, const serving_options& options)
    : model_(std::move(loaded)),
      options_(options),
      check_(model_->shapes()),
      open_outputs_(model_->shapes().open.size()) {}

served_model::~served_model() {
    stop();
}

result<std::unique_ptr<served_model>> served_model::create(context& ctx, std::unique_ptr<model> loaded,
                                                           const serving_options& options) {
    const memory_kind where = loaded->memory();
    if (options.max_batch > loaded->max_batch())
        return error{status::invalid_argument, 0,
                     fmt::format("'{}' takes batches of at most {}", loaded->shapes().name, loaded->max_batch())};
    if (where != memory_kind::host() && options.max_batch > 1)
        return error{status::unsupported, 0, "batches are collected on the host: leave out --max-batch on a GPU"};
    std::unique_ptr<served_model> made(new served_model(std::move(loaded), options));
    if (where != memory_kind::host())
        made->buffers_ = std::make_unique<stream_buffers>(ctx, where, made->check_.input_bytes());
    else if (options.threads > 0 || options.max_batch > 1)
        made->start_batcher();
    return made;
}

void served_model::start_batcher() {
    const std::uint32_t threads = std::max(options_.threads, 1U);
    benches_.resize(threads);
    for (bench& each : benches_) {
        each.inputs.resize(options_.max_batch * spaced(check_.input_bytes()));
        each.outputs.resize(options_.max_batch * open_outputs_);
        each.jobs.reserve(options_.max_batch);
        each.members.reserve(options_.max_batch);
    }
    batcher_.emplace(
        batch_limits{options_.max_batch, options_.max_wait, options_.max_waiting, threads},
        [this](std::uint32_t index, std::span<batch_member> batch) { serve_batch(benches_[index], batch); });
}

void served_model::stop() noexcept {
    if (batcher_) batcher_->stop();
}

served_statistics served_model::statistics() const {
    served_statistics out;
    out.requests = requests_.load(std::memory_order_relaxed);
    out.errors = errors_.load(std::memory_order_relaxed);
    if (batcher_) out.batches = batcher_->statistics();
    out.replays = model_->replays();
    out.errors += out.batches.refused + out.batches.given_up;
    return out;
}

void served_model::serve(exchange request) noexcept {
    requests_.fetch_add(1, std::memory_order_relaxed);
    std::array<tensor, max_tensors> described;
    request_form form;
    refusal why;
    if (request.continues()) return refuse(request, status::unsupported, "a model takes its request in one piece");
    if (!check_.look(parts_of(request, described), form, why)) return refuse(request, why.code(), why.text());
    if (batcher_)
        batcher_->put(std::move(request), form);
    else if (buffers_ != nullptr)
        serve_on_gpu(request, form);
    else
        serve_here(request, form, described);
}

void served_model::serve_here(exchange& request, const request_form& form, std::span<tensor> outputs) noexcept {
    std::span<const std::byte> input;
    if (!prepare(request, form, form.raw ? own_room(check_.input_bytes()) : std::span<std::byte>{}, input)) return;
    const model_job job = job_of(request, input, outputs);
    const auto start = steady_clock::now();
    const auto done = model_->infer(nullptr, {&job, 1});
    request.record(stage::inference, steady_clock::now() - start);
    if (!done) return refuse(request, done.code(), done.error().message);
    answer(request, job);
}

/// Gives all work to the exchange's stream and answers without waiting for it.
void served_model::serve_on_gpu(exchange& request, const request_form& form) noexcept {
    CUstream_st* const stream = request.stream();
    if (stream == nullptr) return refuse(request, status::unsupported, "the model is on a GPU, but its server is not");
    std::span<const std::byte> input = request.request().subspan(form.offset, form.length);
    if (form.raw) {
        std::span<std::byte> room = model_->input_room(stream);
        if (room.empty()) room = buffers_->of(stream);
        if (room.empty()) return refuse(request, status::overloaded, "there is no GPU memory for another stream");
        request.mark(stage::preprocessing);
        const auto made = model_->preprocess(stream, input, room);
        if (!made) return refuse(request, made.code(), made.error().message);
        input = room;
    }
    const model_job job = job_of(request, input, {});
    request.mark(stage::inference);
    const auto given = model_->infer(stream, {&job, 1});
    if (!given) return refuse(request, given.code(), given.error().message);
    answer(request, job);
}

/// Finds or makes the input tensors. False: the request has been refused.
bool served_model::prepare(exchange& request, const request_form& form, std::span<std::byte> room,
                           std::span<const std::byte>& input) noexcept {
    input = request.request().subspan(form.offset, form.length);
    if (!form.raw) return true;
    const auto start = steady_clock::now();
    const auto made = model_->preprocess(nullptr, input, room);
    request.record(stage::preprocessing, steady_clock::now() - start);
    if (!made) {
        refuse(request, made.code(), made.error().message);
        return false;
    }
    input = room;
    return true;
}

void served_model::serve_batch(bench& own, std::span<batch_member> batch) noexcept {
    own.jobs.clear();
    own.members.clear();
    const std::size_t place = spaced(check_.input_bytes());
    for (batch_member& each : batch) {
        const auto room = std::span{own.inputs}.subspan(own.jobs.size() * place, check_.input_bytes());
        std::span<const std::byte> input;
        if (!prepare(each.request, each.form, room, input)) continue;
        own.jobs.push_back(
            job_of(each.request, input, std::span{own.outputs}.subspan(own.jobs.size() * open_outputs_)));
        own.members.push_back(&each);
    }
    if (own.jobs.empty()) return;
    const auto start = steady_clock::now();
    const auto done = model_->infer(nullptr, own.jobs);
    const nanoseconds took = steady_clock::now() - start;
    // One member's values may be what the model refuses.
    if (done.code() == status::invalid_argument && own.jobs.size() > 1) return infer_alone(own);
    for (std::size_t i = 0; i < own.jobs.size(); ++i) {
        exchange& request = own.members[i]->request;
        request.record(stage::inference, took);
        if (done)
            answer(request, own.jobs[i]);
        else
            refuse(request, done.code(), done.error().message);
    }
}

void served_model::infer_alone(bench& own) noexcept {
    for (std::size_t i = 0; i < own.jobs.size(); ++i) {
        exchange& request = own.members[i]->request;
        own.jobs[i] = job_of(request, own.jobs[i].input, own.jobs[i].outputs);
        const auto start = steady_clock::now();
        const auto done = model_->infer(nullptr, {&own.jobs[i], 1});
        request.record(stage::inference, steady_clock::now() - start);
        if (done)
            answer(request, own.jobs[i]);
        else
            refuse(request, done.code(), done.error().message);
    }
}

model_job served_model::job_of(exchange& request, std::span<const std::byte> input,
                               std::span<tensor> outputs) const noexcept {
    outputs = outputs.first(open_outputs_);
    std::copy_n(check_.outputs().begin(), outputs.size(), outputs.begin());
    return {input, request.response().first(check_.output_bytes()), outputs};
}

void served_model::answer(exchange& request, const model_job& done) noexcept {
    const std::span<const tensor> outputs = done.outputs.empty() ? check_.outputs() : done.outputs;
    const std::size_t length = payload_bytes(outputs);
    const status described = request.describe(length, outputs);
    if (described != status::ok) return refuse(request, described, "the answer's tensors cannot be described");
    (void)request.reply(length);
}

void served_model::refuse(exchange& request, status why, std::string_view text) noexcept {
    errors_.fetch_add(1, std::memory_order_relaxed);
    (void)request.fail(why, 0, text);
}

}  // namespace accel::examples::serving
