// SPDX-License-Identifier: Apache-2.0
#include "model_rig.hpp"
#include "serving/models/image.hpp"
#include "serving/models/loaded_models.hpp"

#include <cstring>

#include <gmock/gmock.h>

namespace accel::tests {
namespace {

using ::testing::HasSubstr;

/// A tensor of floats with this shape.
tensor floats_of(std::initializer_list<std::uint32_t> shape) {
    tensor out;
    for (const std::uint32_t each : shape) out.shape[out.rank++] = each;
    return out;
}

class model_requests : public model_rig {
  protected:
    void SetUp() override { serve({"digits", "mobilenet_v3"}); }
    [[nodiscard]] served_statistics seen_of(std::string_view model) const {
        for (const model_registry::row& each : registry->statistics())
            if (each.name == model) return each.seen;
        return {};
    }
};

struct refused_request {
    std::vector<tensor> described;
    const char* sentence;
    status code = status::invalid_argument;
    const char* model = "digits";
    float first = 0;  ///< value
};

/// Of digits, which takes 1x1x8x8 floats or an image of 480x640x3 bytes.
std::vector<refused_request> refused_requests() {
    const tensor good = floats_of({1, 1, 8, 8});
    tensor second = good, integers = good, doubles = good, image = image_of(*find_model("digits"));
    second.offset = 256;
    integers.type = {type_code::signed_integer, 32, 1};
    doubles.type.bits = 64;
    image.shape[0] = 479;
    return {
        {{}, "the request describes no tensors: 'digits' takes float32 1x1x8x8, or an image of uint8 480x640x3"},
        {{good, second}, "'digits' takes 1 tensor, but the request has 2"},
        {{integers}, "tensor 0 is int32: 'digits' takes float32, or uint8 as a raw image"},
        {{doubles}, "tensor 0 is float64: 'digits' takes float32, or uint8 as a raw image"},
        {{floats_of({8, 8})}, "tensor 0 has 2 dimensions: 'digits' takes 4, as in 1x1x8x8"},
        {{floats_of({1, 1, 8, 9})}, "tensor 0 has the shape 1x1x8x9: 'digits' takes 1x1x8x8"},
        {{floats_of({2, 1, 8, 8})}, "tensor 0 has the shape 2x1x8x8: 'digits' takes 1x1x8x8"},
        {{image}, "tensor 0 has the shape 479x640x3: 'digits' takes 480x640x3"},
        {{good}, "", status::invalid_argument, "digits", 2},
        {{good}, "the model 'resnet50' is not loaded", status::not_found, "resnet50"},
    };
}

TEST_P(model_requests, requests_that_a_model_does_not_take_are_refused_with_a_sentence) {
    auto to = connect();
    const auto rows = refused_requests();
    for (const refused_request& each : rows) {
        SCOPED_TRACE(each.sentence);
        std::size_t length = 8;
        for (const tensor& one : each.described) length = std::max(length, std::size_t{one.offset + size_bytes(one)});
        bytes payload(length);
        std::memcpy(payload.data(), &each.first, sizeof each.first);
        const outcome seen = ask(to, target_of(each.model), payload, each.described);
        EXPECT_EQ(seen.code, each.code) << seen.text;
        EXPECT_THAT(seen.text, HasSubstr(each.sentence));
        EXPECT_FALSE(seen.text.empty());
    }
    EXPECT_EQ(ask(to, target_of("digits"), bytes(256), inputs_of(*find_model("digits"))).code, status::ok);
    EXPECT_EQ(seen_of("digits").requests, rows.size()) << "one was for resnet50";
    EXPECT_EQ(seen_of("digits").errors, rows.size() - 1);
}

TEST_P(model_requests, reports_the_required_size_when_the_response_does_not_fit) {
    auto to = connect(1000);
    const model_shapes& shapes = *find_model("mobilenet_v3");
    const outcome seen = ask(to, target_of("mobilenet_v3"), bytes(payload_bytes(shapes.inputs)), inputs_of(shapes));
    EXPECT_EQ(seen.code, status::message_too_large);
    EXPECT_THAT(seen.text, HasSubstr("has 4000 bytes"));
    EXPECT_THAT(seen.text, HasSubstr("response_bytes=4000"));
}

/// A tensor may lie anywhere in the payload.
TEST_P(model_requests, answers_describe_their_tensors) {
    auto to = connect();
    const model_shapes& shapes = *find_model("mobilenet_v3");
    for (const std::size_t offset : {0U, 128U}) {
        const bytes payload = some_bytes(payload_bytes(shapes.inputs) + offset, 1);
        tensor moved = shapes.inputs[0];
        moved.offset = offset;
        const outcome seen = ask(to, to.resolve("mobilenet_v3").value(), payload, {&moved, 1});
        ASSERT_EQ(seen.code, status::ok) << seen.text;
        bytes expected(payload_bytes(shapes.outputs));
        synthetic_answer(std::span{payload}.subspan(offset), expected);
        EXPECT_EQ(seen.content, expected);
        ASSERT_EQ(seen.tensors.size(), 1U);
        EXPECT_EQ(seen.tensors[0].rank, 2U);
        EXPECT_EQ(seen.tensors[0].shape[1], 1000U);
    }
}

TEST_P(model_requests, the_server_preprocesses_raw_images) {
    auto to = connect();
    const model_shapes& shapes = *find_model("mobilenet_v3");
    const bytes image = some_bytes(image_bytes(shapes.image), 3);
    const tensor described = image_of(shapes);
    (void)begin_call(to, target_of("mobilenet_v3"), image, {&described, 1});
    std::array<completion, 1> done;
    ASSERT_EQ(to.wait(done, patience(10s)), 1U);
    ASSERT_EQ(done[0].status, status::ok);
    EXPECT_GT(done[0].timeline.preprocessing, 0ns);
    EXPECT_GT(done[0].timeline.inference, 0ns);
    bytes input(payload_bytes(shapes.inputs));
    image_preprocessor(shapes.image, tensor_image(shapes)).run(image, input);
    bytes expected(payload_bytes(shapes.outputs));
    synthetic_answer(input, expected);
    EXPECT_TRUE(std::ranges::equal(done[0].response, expected));
}

/// What clients have seen of a model that comes and goes.
struct sightings {
    std::atomic<bool> stop{false};
    std::atomic<int> with{0}, without{0}, wrong{0}, listed{0}, unlisted{0};
};

void ask_for_answers(channel to, std::uint32_t client, sightings& seen) {
    const model_shapes& shapes = *find_model("mobilenet_v3");
    for (std::uint32_t i = 0; !seen.stop; ++i) {
        const bytes payload = some_bytes(payload_bytes(shapes.inputs), client * 1000 + i);
        bytes expected(payload_bytes(shapes.outputs));
        synthetic_answer(payload, expected);
        const outcome got = ask(to, target_of("mobilenet_v3"), payload, inputs_of(shapes));
        const bool right = got.code == status::ok && got.content == expected;
        ++(right ? seen.with : got.code == status::not_found ? seen.without : seen.wrong);
    }
}

void ask_for_models(channel to, sightings& seen) {
    while (!seen.stop) {
        const outcome got = ask(to, target_of(loaded_models_target), {}, {});
        const bool good = got.code == status::ok && names_model(got.content, target_of("digits"));
        ++(!good ? seen.wrong : names_model(got.content, target_of("mobilenet_v3")) ? seen.listed : seen.unlisted);
    }
}

TEST_P(model_requests, clients_see_a_model_come_and_go_under_load) {
    sightings seen;
    std::vector<std::jthread> clients;
    for (std::uint32_t i = 0; i < 3; ++i) clients.emplace_back([&, i] { ask_for_answers(connect(), i, seen); });
    clients.emplace_back([&] { ask_for_models(connect(), seen); });
    const auto are_seen = [](std::atomic<int>& answers, std::atomic<int>& lists) {
        return eventually(
            [&, before = answers.load(), listed = lists.load()] { return answers > before + 3 && lists > listed + 1; });
    };
    for (int round = 0; round < 5; ++round) {
        EXPECT_TRUE(are_seen(seen.with, seen.listed));
        EXPECT_TRUE(registry->unload("mobilenet_v3"));
        EXPECT_TRUE(are_seen(seen.without, seen.unlisted));
        EXPECT_TRUE(registry->load(parse_model_spec("mobilenet_v3").value()));
    }
    seen.stop = true;
    clients.clear();
    EXPECT_EQ(seen.wrong, 0);
    EXPECT_EQ(seen_of("mobilenet_v3").requests, static_cast<std::uint64_t>(seen.with)) << "also of former ones";
    EXPECT_EQ(registry->load(parse_model_spec("mobilenet_v3").value()).code(), status::invalid_state);
}

TEST_P(model_requests, a_server_says_which_models_are_loaded) {
    auto to = connect();
    const auto question = to.resolve(loaded_models_target);
    ASSERT_TRUE(question) << question.error().message;
    const auto loaded = [&](std::string_view model) {
        const outcome seen = ask(to, question.value(), {}, {});
        EXPECT_EQ(seen.code, status::ok) << seen.text;
        return names_model(seen.content, target_of(model));
    };
    EXPECT_TRUE(loaded("digits"));
    EXPECT_TRUE(loaded("mobilenet_v3"));
    EXPECT_FALSE(loaded("resnet50"));
    for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(registry->unload("digits"));
        EXPECT_FALSE(loaded("digits"));
        EXPECT_TRUE(loaded("mobilenet_v3"));
        ASSERT_TRUE(registry->load(parse_model_spec("digits").value()));
        EXPECT_TRUE(loaded("digits"));
    }
    ASSERT_TRUE(registry->unload("digits"));
    ASSERT_TRUE(registry->unload("mobilenet_v3"));
    EXPECT_EQ(ask(to, question.value(), {}, {}).content.size(), 0U);
    for (const model_registry::row& each : registry->statistics()) EXPECT_EQ(each.seen.requests, 0U) << each.name;
}

TEST_P(model_requests, a_client_that_keeps_its_answer_delays_no_change_of_the_models) {
    auto slow = connect();
    (void)begin_call(slow, target_of(loaded_models_target), {}, {});
    std::array<completion, 1> kept;
    ASSERT_EQ(slow.wait(kept, patience(20s)), 1U);
    auto other = connect();
    for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(registry->unload("digits"));
        EXPECT_FALSE(names_model(ask(other, target_of(loaded_models_target), {}, {}).content, target_of("digits")));
        ASSERT_TRUE(registry->load(parse_model_spec("digits").value()));
    }
    EXPECT_TRUE(names_model(kept[0].response, target_of("digits")));
    EXPECT_EQ(kept[0].response.size(), 2 * sizeof(target::number));
}

ACCEL_MODELS_OVER_LOCAL_AND_TCP(model_requests);

}  // namespace
}  // namespace accel::tests
