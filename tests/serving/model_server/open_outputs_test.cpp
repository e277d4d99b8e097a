// SPDX-License-Identifier: Apache-2.0
// Answers that are as long as the model says, down to a detector's that has found nothing.
#include "model_rig.hpp"
#include "serving/models/shapes_file.hpp"

#include <set>
#include <utility>

namespace accel::tests {
namespace {

/// The shapes of a model with one byte as its input, and up to three boxes, with their labels, as its answer.
const model_shapes& detector() {
    static const model_shapes shapes = shapes_of(oip::read_description(R"({"name":"detector",
        "inputs":[{"name":"x","datatype":"UINT8","shape":[1]}],
        "outputs":[{"name":"boxes","datatype":"FP32","shape":[-1,4],"max_bytes":48},
                   {"name":"labels","datatype":"INT64","shape":[-1],"max_bytes":24}]})")
                                                     .value())
                                           .value();
    return shapes;
}

void add_detector() {
    if (find_model("detector") != nullptr) return;
    EXPECT_TRUE(add_model(detector()));
}

/// Leaves out as many of three boxes as its input says. 9 is a fault.
class three_boxes final : public model {
  public:
    const model_shapes& shapes() const noexcept override { return detector(); }
    memory_kind memory() const noexcept override { return memory_kind::host(); }
    std::size_t max_batch() const noexcept override { return 8; }
    result<void> preprocess(CUstream_st*, std::span<const std::byte>, std::span<std::byte>) override {
        return error{status::unsupported, 0, "it takes no images"};
    }
    result<void> infer(CUstream_st*, std::span<const model_job> batch) override {
        for (const model_job& each : batch) {
            const auto left_out = std::to_integer<std::uint32_t>(each.input[0]);
            if (left_out == 9) return error{status::invalid_argument, 0, "9 is a fault"};
            for (tensor& one : each.outputs) one.shape[0] -= left_out;
            place_from_zero(each.outputs);
            std::ranges::fill(each.output.first(payload_bytes(each.outputs)), each.input[0]);
        }
        return {};
    }
};

class open_outputs : public model_rig {
  protected:
    void serve_boxes(const serving_options& options) {
        boxes = std::move(served_model::create(ctx, std::make_unique<three_boxes>(), options)).value();
        server_options at_server;
        at_server.security.insecure = true;
        const std::string where = GetParam() == "tcp" ? "tcp://" + own_loopback() + ":0" : "local://boxes";
        auto made = server::listen(
            ctx, {where}, [this](exchange one) { boxes->serve(std::move(one)); }, at_server);
        ASSERT_TRUE(made) << made.error().message;
        running = std::make_unique<server>(std::move(*made));
    }
    std::unique_ptr<served_model> boxes;
};

void expect_boxes(const outcome& seen, std::uint32_t left_out) {
    SCOPED_TRACE(left_out);
    EXPECT_EQ(seen.code, status::ok) << seen.text;
    ASSERT_EQ(seen.tensors.size(), 2U);
    const std::uint32_t count = 3 - left_out;
    EXPECT_EQ(seen.tensors[0].shape[0], count);
    EXPECT_EQ(seen.tensors[0].shape[1], 4U);
    EXPECT_EQ(seen.tensors[1].shape[0], count);
    EXPECT_EQ(seen.content, bytes(count == 0 ? 0 : 64 + 8 * count, std::byte(left_out)));
}

TEST_P(open_outputs, answers_are_as_long_as_the_model_says) {
    serving_options in_threads;
    in_threads.threads = 2;
    for (const serving_options& each : {serving_options{}, in_threads}) {
        serve_boxes(each);
        auto to = connect();
        for (const std::uint32_t left_out : {0U, 3U, 1U, 3U, 2U}) {
            const bytes payload{std::byte(left_out)};
            expect_boxes(ask(to, {}, payload, inputs_of(detector())), left_out);
        }
        running.reset();
    }
}

TEST_P(open_outputs, members_of_a_batch_have_their_own_lengths) {
    serving_options options;
    options.max_batch = 4;
    options.max_wait = 1h;
    serve_boxes(options);
    auto to = connect();
    for (const std::uint32_t last : {1U, 9U}) {
        SCOPED_TRACE(last);
        for (const std::uint32_t left_out : {2U, 3U, 0U, last})
            (void)begin_call(to, {}, bytes{std::byte(left_out)}, inputs_of(detector()), 1h);
        for (const std::uint32_t left_out : {2U, 3U, 0U}) expect_boxes(end_call(to), left_out);
        EXPECT_EQ(end_call(to).code, last == 9 ? status::invalid_argument : status::ok) << "the others are spared";
    }
}

TEST_P(open_outputs, a_synthetic_model_finds_something_or_nothing) {
    add_detector();
    serve({"detector=synthetic"});
    const auto reference = make_synthetic(detector(), {1e9, synthetic_pace::wait});
    auto to = connect();
    std::set<std::uint32_t> counts;
    for (std::uint32_t seed = 0; seed < 32; ++seed) {
        const bytes payload = some_bytes(1, seed);
        std::vector<tensor> expected = detector().outputs;
        bytes content(payload_bytes(expected));
        const model_job job{payload, content, expected};
        ASSERT_TRUE(reference->infer(nullptr, {&job, 1}));
        content.resize(payload_bytes(expected));
        const outcome seen = ask(to, target_of("detector"), payload, inputs_of(detector()));
        EXPECT_EQ(seen.code, status::ok) << seen.text;
        EXPECT_EQ(seen.content, content);
        ASSERT_EQ(seen.tensors.size(), 2U);
        EXPECT_EQ(seen.tensors[1].shape[0], expected[1].shape[0]);
        counts.insert(seen.tensors[0].shape[0]);
    }
    EXPECT_EQ(counts, (std::set<std::uint32_t>{0, 1, 2, 3}));
}

TEST(open_outputs_on_a_gpu, are_refused_with_a_sentence) {
    add_detector();
    model_place place;
    place.gpu = 0;
    const auto opened = open_model(parse_model_spec("detector").value(), place);
    EXPECT_EQ(opened.code(), status::unsupported);
    EXPECT_EQ(opened.error().message, "an output of 'detector' has a dimension of -1: serve it with --on host");
}

ACCEL_MODELS_OVER_LOCAL_AND_TCP(open_outputs);

}  // namespace
}  // namespace accel::tests
