// SPDX-License-Identifier: Apache-2.0
/// Models of examples/serving on a GPU against the same on the host. Of files, those that lie in the folder
/// ACCEL_MODELS (examples/serving/export.py makes them).
#include "digits/dataset.hpp"
#include "digits/embedded.hpp"
#include "digits/frame.hpp"
#include "gpu/serving_rig.hpp"
#include "models/images.hpp"
#include "serving/models/digits_model.hpp"
#include "serving/models/gpu_models.hpp"
#include "serving/models/image.hpp"
#include "serving/models/image_kernel.hpp"
#include "serving/models/synthetic.hpp"
#include "serving/models/torch_file.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace accel::tests {
namespace {

using namespace examples::serving;
namespace digits = examples::digits;

class serving_gpu : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = rig.open(); !why.empty()) GTEST_SKIP() << why;
    }
    serving_rig rig;
};

bytes noise(std::size_t length, std::uint32_t seed) {
    bytes all = noise_image({1, static_cast<std::uint32_t>(length / 3 + 1)}, seed);
    all.resize(length);
    return all;
}

/// Numbers of 0 to 1, so that each network takes them.
bytes unit_floats(std::size_t length, std::uint32_t seed) {
    const bytes random = noise(length / sizeof(float), seed);
    std::vector<float> values;
    for (const std::byte each : random) values.push_back(static_cast<float>(each) / 255);
    const auto all = std::as_bytes(std::span(values));
    return {all.begin(), all.end()};
}

std::vector<bytes> inputs_of(const model& what, std::uint32_t count) {
    std::vector<bytes> inputs;
    for (std::uint32_t i = 0; i < count; ++i)
        inputs.push_back(unit_floats(payload_bytes(what.shapes().inputs), 7 * i + 1));
    return inputs;
}

bytes on_host(model& what, const bytes& input) {
    bytes output(payload_bytes(what.shapes().outputs));
    const model_job job{input, output};
    const auto done = what.infer(nullptr, {&job, 1});
    EXPECT_TRUE(done.ok()) << done.error().message;
    return output;
}

std::unique_ptr<model> taken(result<std::unique_ptr<model>> loaded) {
    EXPECT_TRUE(loaded.ok()) << loaded.error().message;
    return loaded ? std::move(*loaded) : nullptr;
}

TEST_F(serving_gpu, preprocesses_an_image_to_the_bits_of_the_host) {
    constexpr image_size sizes[][2] = {{{500, 546}, {224, 224}}, {{500, 546}, {416, 416}}, {{500, 546}, {520, 520}},
                                       {{7, 5}, {3, 4}},         {{31, 17}, {64, 53}},     {{1, 1}, {2, 3}},
                                       {{480, 640}, {33, 57}}};
    for (const auto& [from, to] : sizes) {
        SCOPED_TRACE(testing::Message() << from.height << "x" << from.width << " to " << to.height << "x" << to.width);
        for (const std::size_t misplaced : {0U, 1U, 3U}) {
            const bytes image = noise_image(from, from.height);
            bytes expected(std::size_t{12} * to.height * to.width);
            image_preprocessor(from, to).run(image, expected);
            const gpu_buffer there(image, misplaced);
            const gpu_buffer out(bytes(expected.size()));
            ASSERT_EQ(launch_image(rig.stream(), there.data(), from, reinterpret_cast<float*>(out.data()), to), 0);
            EXPECT_EQ(out.fetch(rig.stream()), expected);
        }
    }
}

TEST_F(serving_gpu, synthetic_models_answer_as_on_the_host) {
    for (const model_shapes& shapes : known_models()) {
        SCOPED_TRACE(shapes.name);
        const auto made = taken(load_synthetic_gpu(shapes, 1e6, 0));
        ASSERT_NE(made, nullptr);
        std::vector<bytes> inputs;
        for (std::uint32_t i = 0; i < 3; ++i) inputs.push_back(noise(payload_bytes(shapes.inputs), i));
        const auto outputs = rig.infer(*made, inputs);
        for (std::size_t i = 0; i < inputs.size(); ++i) {
            bytes expected(payload_bytes(shapes.outputs));
            synthetic_answer(inputs[i], expected);
            EXPECT_EQ(outputs.at(i), expected) << i;
        }
    }
}

TEST_F(serving_gpu, synthetic_models_take_their_time_one_after_another) {
    const model_shapes& shapes = *find_model("resnet50");
    const auto made = taken(load_synthetic_gpu(shapes, 410, 0));  // 10 ms
    ASSERT_NE(made, nullptr);
    const std::vector<bytes> inputs(1, noise(payload_bytes(shapes.inputs), 1));
    (void)rig.infer(*made, inputs);
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 5; ++i) (void)rig.infer(*made, inputs);
    const std::chrono::duration<double, std::milli> taken_ms = std::chrono::steady_clock::now() - begin;
    EXPECT_GE(taken_ms.count(), 50);
}

TEST_F(serving_gpu, digits_scores_are_the_bits_of_the_host) {
    const auto host = taken(make_digits());
    const auto made = taken(load_digits_gpu(0));
    ASSERT_NE(made, nullptr);
    std::vector<bytes> inputs;
    for (std::uint32_t i = 0; i < 40; ++i) inputs.push_back(unit_floats(digits::tensor_bytes, i));
    const auto outputs = rig.infer(*made, inputs);
    for (std::size_t i = 0; i < inputs.size(); ++i) EXPECT_EQ(outputs.at(i), on_host(*host, inputs[i])) << i;
}

TEST_F(serving_gpu, digits_frames_are_preprocessed_as_on_the_host) {
    const auto host = taken(make_digits());
    const auto made = taken(load_digits_gpu(0));
    ASSERT_NE(made, nullptr);
    const auto images = digits::dataset::load(digits::embedded_test_images());
    for (std::size_t i = 0; i < 20; ++i) {
        bytes frame(digits::frame_bytes);
        ASSERT_EQ(digits::draw_frame((*images.value)[i], i, frame), digits::failure::none);
        bytes expected(digits::tensor_bytes);
        ASSERT_TRUE(host->preprocess(nullptr, frame, expected).ok());
        EXPECT_EQ(rig.preprocess(*made, frame), expected) << i;
    }
}

TEST_F(serving_gpu, a_frame_without_a_digit_gets_scores_of_zero) {
    const auto made = taken(load_digits_gpu(0));
    ASSERT_NE(made, nullptr);
    const bytes tensor = rig.preprocess(*made, bytes(digits::frame_bytes));
    EXPECT_EQ(rig.infer(*made, {tensor}).at(0), bytes(payload_bytes(made->shapes().outputs)));
}

TEST_F(serving_gpu, wrong_lengths_are_refused) {
    for (const auto& made : {taken(load_digits_gpu(0)), taken(load_synthetic_gpu(*find_model("resnet50"), 1e6, 0))}) {
        ASSERT_NE(made, nullptr);
        const gpu_buffer there(bytes(4096));
        EXPECT_EQ(made->preprocess(rig.stream(), {there.data(), 100}, {there.data(), 4096}).code(),
                  status::invalid_argument);
    }
}

/// Recorded once, run with other requests.
void expect_recording_right(serving_rig& rig, model& what, bool raw) {
    const std::size_t length = raw ? image_bytes(what.shapes().image) : payload_bytes(what.shapes().inputs);
    const std::size_t room = payload_bytes(what.shapes().outputs);
    const gpu_buffer input((bytes(length)));
    const gpu_buffer output((bytes(room)));
    device::graph_iteration iteration;
    iteration.input = input.data();
    iteration.output = output.data();
    iteration.input_bytes = length;
    iteration.output_bytes = room;
    iteration.batch = 1;
    recorded_run run;
    ASSERT_EQ(run.record(what.recorder(), iteration), "");
    for (std::uint32_t i = 0; i < 3; ++i) {
        const bytes request = raw ? noise(length, i) : unit_floats(length, i);
        input.fill(request, rig.stream());
        ASSERT_EQ(run.launch(rig.stream()), "");
        const bytes given = raw ? rig.preprocess(what, request) : request;
        EXPECT_LT(float_distance(output.fetch(rig.stream()), rig.infer(what, {given}).at(0)), 1e-3) << i;
    }
}

TEST_F(serving_gpu, recordings_answer_as_launches_do) {
    for (const bool raw : {false, true}) {
        SCOPED_TRACE(raw ? "raw" : "tensor");
        expect_recording_right(rig, *taken(load_digits_gpu(0)), raw);
        expect_recording_right(rig, *taken(load_synthetic_gpu(*find_model("resnet50"), 1e6, 0)), raw);
    }
}

TEST_F(serving_gpu, recordings_of_other_sizes_are_refused) {
    const auto made = taken(load_digits_gpu(0));
    ASSERT_NE(made, nullptr);
    device::graph_iteration iteration;
    iteration.batch = 1;
    iteration.input_bytes = 77;
    iteration.output_bytes = 40;
    EXPECT_EQ(made->recorder()(rig.stream(), iteration).code(), status::invalid_argument);
}

/// Answers of a model as graphs and as launches, requests of several streams between one another.
void expect_replays_right(result<std::unique_ptr<model>> loaded, std::span<CUstream_st* const> streams) {
    auto made = taken(std::move(loaded));
    ASSERT_NE(made, nullptr);
    const std::size_t length = payload_bytes(made->shapes().inputs);
    const std::size_t room = payload_bytes(made->shapes().outputs);
    std::vector<std::unique_ptr<gpu_buffer>> inputs;
    std::vector<bytes> launched;
    const gpu_buffer output((bytes(room)));
    for (std::uint32_t i = 0; i < 12; ++i) {
        inputs.push_back(std::make_unique<gpu_buffer>(unit_floats(length, i)));
        const model_job job{{inputs[i]->data(), length}, {output.data(), room}};
        ASSERT_TRUE(made->infer(streams[0], {&job, 1}).ok());
        launched.push_back(output.fetch(streams[0]));
    }
    const auto replayed = taken(replay_graphs(made));
    ASSERT_NE(replayed, nullptr);
    std::vector<std::unique_ptr<gpu_buffer>> outputs;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        outputs.push_back(std::make_unique<gpu_buffer>(bytes(room)));
        const model_job job{{inputs[i]->data(), length}, {outputs[i]->data(), room}};
        ASSERT_TRUE(replayed->infer(streams[i % streams.size()], {&job, 1}).ok());
    }
    for (std::size_t i = 0; i < inputs.size(); ++i)
        EXPECT_EQ(outputs[i]->fetch(streams[i % streams.size()]), launched[i]) << i;
    const replay_statistics seen = replayed->replays();
    EXPECT_EQ(seen.replays, inputs.size());
    EXPECT_EQ(seen.copies, 2 * inputs.size());
    EXPECT_EQ(seen.copied_bytes, inputs.size() * (length + room));
}

/// Streams beside the rig's own.
class more_streams {
  public:
    explicit more_streams(std::size_t count) : rigs_(count) {
        for (serving_rig& each : rigs_)
            if (each.open().empty()) streams_.push_back(each.stream());
    }
    [[nodiscard]] std::span<CUstream_st* const> all() const noexcept { return streams_; }

  private:
    std::vector<serving_rig> rigs_;
    std::vector<CUstream_st*> streams_;
};

TEST_F(serving_gpu, replays_answer_to_the_bit_as_launches_do_on_each_stream) {
    const more_streams streams(3);
    expect_replays_right(load_digits_gpu(0), streams.all());
    expect_replays_right(load_synthetic_gpu(*find_model("resnet50"), 1e6, 0), streams.all());
}

TEST_F(serving_gpu, an_input_that_is_made_in_place_is_not_copied) {
    auto made = taken(load_synthetic_gpu(*find_model("resnet50"), 1e6, 0));
    const auto replayed = taken(replay_graphs(made));
    ASSERT_NE(replayed, nullptr);
    const bytes image = noise(image_bytes(replayed->shapes().image), 3);
    const gpu_buffer there(image);
    const gpu_buffer output(bytes(payload_bytes(replayed->shapes().outputs)));
    const auto input = replayed->input_room(rig.stream());
    ASSERT_EQ(input.size(), payload_bytes(replayed->shapes().inputs));
    ASSERT_TRUE(replayed->preprocess(rig.stream(), {there.data(), there.size()}, input).ok());
    const model_job job{input, {output.data(), output.size()}};
    ASSERT_TRUE(replayed->infer(rig.stream(), {&job, 1}).ok());
    bytes expected(output.size());
    synthetic_answer(rig.preprocess(*replayed, image), expected);
    EXPECT_EQ(output.fetch(rig.stream()), expected);
    EXPECT_EQ(replayed->replays().copied_bytes, output.size());
}

TEST_F(serving_gpu, replays_refuse_wrong_lengths_and_launch_batches) {
    auto made = taken(load_digits_gpu(0));
    const auto replayed = taken(replay_graphs(made));
    ASSERT_NE(replayed, nullptr);
    const gpu_buffer there(bytes(4096));
    const model_job shorter{{there.data(), 100}, {there.data(), 4096}};
    EXPECT_EQ(replayed->infer(rig.stream(), {&shorter, 1}).code(), status::invalid_argument);
    const auto host = taken(make_digits());
    const auto inputs = inputs_of(*replayed, 2);
    const auto outputs = rig.infer(*replayed, inputs);
    for (std::size_t i = 0; i < inputs.size(); ++i) EXPECT_EQ(outputs.at(i), on_host(*host, inputs[i])) << i;
    EXPECT_EQ(replayed->replays().replays, 0);
}

/// A network whose recording has a copy from the host, or that waits.
class odd_model final : public model {
  public:
    explicit odd_model(bool waits) : waits_(waits) {}
    const model_shapes& shapes() const noexcept override { return *find_model("digits"); }
    memory_kind memory() const noexcept override { return memory_kind::cuda(0); }
    std::size_t max_batch() const noexcept override { return 1; }
    result<void> preprocess(CUstream_st*, std::span<const std::byte>, std::span<std::byte>) override { return {}; }
    result<void> infer(CUstream_st*, std::span<const model_job>) override { return {}; }
    gpu_graph::recorder recorder() override {
        return [this](CUstream_st* stream, const device::graph_iteration& iteration) -> result<void> {
            if (waits_) return wait_for(stream);
            copy_from_host(iteration.output, stream);
            return {};
        };
    }

  private:
    bool waits_;
};

TEST_F(serving_gpu, a_model_that_cannot_be_recorded_stays_as_it_was) {
    for (const bool waits : {false, true}) {
        SCOPED_TRACE(waits);
        std::unique_ptr<model> odd = std::make_unique<odd_model>(waits);
        const model* const before = odd.get();
        EXPECT_EQ(replay_graphs(odd).code(), status::unsupported);
        EXPECT_EQ(odd.get(), before);
    }
    auto good = taken(load_digits_gpu(0));
    EXPECT_TRUE(replay_graphs(good).ok());
}

/// Files of the folder that the environment names.
std::vector<std::filesystem::path> model_files() {
    const char* const folder = std::getenv("ACCEL_MODELS");
    std::vector<std::filesystem::path> found;
    if (folder == nullptr) return found;
    for (const auto& each : std::filesystem::directory_iterator(folder))
        if (find_model(each.path().stem().string()) != nullptr) found.push_back(each.path());
    std::ranges::sort(found);
    return found;
}

/// Batches are answered as single requests, and each request by itself.
void expect_answers_apart(const std::vector<bytes>& together, const std::vector<bytes>& apart) {
    for (std::size_t i = 0; i < apart.size(); ++i) {
        EXPECT_LT(float_distance(together.at(i), apart[i]), 1e-2) << i;
        EXPECT_NE(apart[i], apart[(i + 1) % apart.size()]) << i;
    }
}

class serving_torch : public serving_gpu {
  protected:
    void SetUp() override {
        if (!has_torch_files()) GTEST_SKIP() << "this build is without LibTorch (ACCEL_EXAMPLES_TORCH)";
        if (model_files().empty()) GTEST_SKIP() << "ACCEL_MODELS names no folder of models";
    }
};

TEST_F(serving_torch, scripts_on_the_cpu_answer_batches_as_single_requests) {
    for (const auto& file : model_files()) {
        if (file.extension() != ".pt") continue;
        SCOPED_TRACE(file);
        const auto made = taken(load_torch_file(file.stem().string(), file, -1));
        ASSERT_NE(made, nullptr);
        const auto inputs = inputs_of(*made, 2);
        std::vector<bytes> apart;
        for (const bytes& each : inputs) apart.push_back(on_host(*made, each));
        std::vector<bytes> together(2, bytes(payload_bytes(made->shapes().outputs)));
        const std::vector<model_job> jobs{{inputs[0], together[0]}, {inputs[1], together[1]}};
        ASSERT_TRUE(made->infer(nullptr, jobs).ok());
        expect_answers_apart(together, apart);
    }
}

TEST_F(serving_torch, files_that_are_not_the_model_are_refused) {
    const auto file = model_files().front();
    const std::string other = file.stem() == "yolo_v4" ? "resnet50" : "yolo_v4";
    const std::int16_t where = file.extension() == ".pt" ? -1 : 0;
    EXPECT_EQ(load_torch_file(other, file, where).code(), status::invalid_argument);
    EXPECT_EQ(load_torch_file("no_such_model", file, where).code(), status::invalid_argument);
    EXPECT_EQ(load_torch_file("resnet50", "/nowhere/resnet50.pt", -1).code(), status::invalid_argument);
    EXPECT_EQ(load_torch_file("resnet50", "/nowhere/resnet50.onnx", -1).code(), status::invalid_argument);
}

TEST_F(serving_torch, files_on_the_gpu_answer_as_on_the_cpu_and_when_recorded) {
    if (const std::string why = rig.open(); !why.empty()) GTEST_SKIP() << why;
    for (const auto& file : model_files()) {
        SCOPED_TRACE(file);
        const auto made = taken(load_torch_file(file.stem().string(), file, 0));
        ASSERT_NE(made, nullptr);
        const auto inputs = inputs_of(*made, 3);
        std::vector<bytes> apart;
        for (const bytes& each : inputs) apart.push_back(rig.infer(*made, {each}).at(0));
        expect_answers_apart(rig.infer(*made, inputs), apart);
        const auto script = std::filesystem::path(file).replace_extension(".pt");
        if (std::filesystem::exists(script)) {
            const auto host = taken(load_torch_file(file.stem().string(), script, -1));
            EXPECT_LT(float_distance(apart[0], on_host(*host, inputs[0])), 2e-2);
        }
        expect_replays_right(load_torch_file(file.stem().string(), file, 0), more_streams(2).all());
        expect_recording_right(rig, *made, false);
        if (image_bytes(made->shapes().image) > 0) expect_recording_right(rig, *made, true);
    }
}

}  // namespace
}  // namespace accel::tests
