// SPDX-License-Identifier: Apache-2.0
#include "model_rig.hpp"
#include "serving/models/image.hpp"
#include "serving/models/loaded_models.hpp"

#include <cstring>
#include <optional>

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

    void expect_refused(std::string_view model, const std::vector<tensor>& described, status code,
                        std::string_view sentence) {
        auto to = connect();
        std::size_t length = 8;
        for (const tensor& each : described) length = std::max(length, std::size_t{each.offset + size_bytes(each)});
        const outcome seen = ask(to, target_of(model), bytes(length), described);
        EXPECT_EQ(seen.code, code) << seen.text;
        EXPECT_THAT(seen.text, HasSubstr(std::string{sentence}));
    }
};

TEST_P(model_requests, a_request_without_tensors_is_told_what_the_model_takes) {
    expect_refused("digits", {}, status::invalid_argument,
                   "the request describes no tensors: 'digits' takes float32 1x1x8x8, or an image of uint8 480x640x3");
}

TEST_P(model_requests, a_wrong_number_of_tensors_is_refused) {
    const tensor one = floats_of({1, 1, 8, 8});
    tensor two = one;
    two.offset = 256;
    expect_refused("digits", {one, two}, status::invalid_argument, "'digits' takes 1 tensor, but the request has 2");
}

TEST_P(model_requests, a_wrong_type_is_refused) {
    tensor wrong = floats_of({1, 1, 8, 8});
    wrong.type = {type_code::signed_integer, 32, 1};
    expect_refused("digits", {wrong}, status::invalid_argument,
                   "tensor 0 is int32: 'digits' takes float32, or uint8 as a raw image");
}

TEST_P(model_requests, a_wrong_rank_is_refused) {
    expect_refused("digits", {floats_of({8, 8})}, status::invalid_argument,
                   "tensor 0 has 2 dimensions: 'digits' takes 4, as in 1x1x8x8");
}

TEST_P(model_requests, a_wrong_shape_is_refused) {
    expect_refused("digits", {floats_of({1, 1, 8, 9})}, status::invalid_argument,
                   "tensor 0 has the shape 1x1x8x9: 'digits' takes 1x1x8x8");
}

TEST_P(model_requests, an_image_of_another_size_is_refused) {
    tensor image = image_of(*find_model("digits"));
    image.shape[0] = 479;
    expect_refused("digits", {image}, status::invalid_argument,
                   "tensor 0 has the shape 479x640x3: 'digits' takes 480x640x3");
}

TEST_P(model_requests, reports_the_required_size_when_the_response_does_not_fit) {
    auto to = connect(1000);
    const model_shapes& shapes = *find_model("mobilenet_v3");
    const outcome seen = ask(to, target_of("mobilenet_v3"), bytes(payload_bytes(shapes.inputs)), inputs_of(shapes));
    EXPECT_EQ(seen.code, status::message_too_large);
    EXPECT_THAT(seen.text, HasSubstr("has 4000 bytes"));
    EXPECT_THAT(seen.text, HasSubstr("response_bytes=4000"));
}

TEST_P(model_requests, a_request_for_a_model_that_is_not_loaded_is_not_found) {
    expect_refused("resnet50", {floats_of({1, 3, 224, 224})}, status::not_found, "the model 'resnet50' is not loaded");
}

TEST_P(model_requests, refused_values_are_answered_with_a_sentence) {
    auto to = connect();
    bytes payload(256);
    const float wrong = 2;
    std::memcpy(payload.data(), &wrong, sizeof wrong);
    const outcome seen = ask(to, target_of("digits"), payload, inputs_of(*find_model("digits")));
    EXPECT_EQ(seen.code, status::invalid_argument);
    EXPECT_FALSE(seen.text.empty());
}

TEST_P(model_requests, answers_describe_their_tensors) {
    auto to = connect();
    const model_shapes& shapes = *find_model("mobilenet_v3");
    const bytes payload = some_bytes(payload_bytes(shapes.inputs), 1);
    const outcome seen = ask(to, to.resolve("mobilenet_v3").value(), payload, inputs_of(shapes));
    ASSERT_EQ(seen.code, status::ok) << seen.text;
    bytes expected(payload_bytes(shapes.outputs));
    synthetic_answer(payload, expected);
    EXPECT_EQ(seen.content, expected);
    ASSERT_EQ(seen.tensors.size(), 1U);
    EXPECT_EQ(seen.tensors[0].rank, 2U);
    EXPECT_EQ(seen.tensors[0].shape[1], 1000U);
}

TEST_P(model_requests, a_tensor_may_lie_anywhere_in_the_payload) {
    auto to = connect();
    const model_shapes& shapes = *find_model("mobilenet_v3");
    const bytes payload = some_bytes(payload_bytes(shapes.inputs) + 128, 2);
    tensor moved = shapes.inputs[0];
    moved.offset = 128;
    const outcome seen = ask(to, target_of("mobilenet_v3"), payload, {&moved, 1});
    ASSERT_EQ(seen.code, status::ok) << seen.text;
    bytes expected(payload_bytes(shapes.outputs));
    synthetic_answer(std::span{payload}.subspan(128), expected);
    EXPECT_EQ(seen.content, expected);
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
    (void)to.release(done[0].id);
}

TEST_P(model_requests, four_clients_get_their_own_answers) {
    const model_shapes& shapes = *find_model("mobilenet_v3");
    std::atomic<int> wrong{0};
    std::vector<std::thread> clients;
    for (std::uint32_t client = 0; client < 4; ++client) {
        clients.emplace_back([&, client] {
            auto to = connect();
            for (std::uint32_t i = 0; i < 20; ++i) {
                const bytes payload = some_bytes(payload_bytes(shapes.inputs), client * 100 + i);
                bytes expected(payload_bytes(shapes.outputs));
                synthetic_answer(payload, expected);
                if (ask(to, target_of("mobilenet_v3"), payload, inputs_of(shapes)).content != expected) ++wrong;
            }
        });
    }
    for (std::thread& each : clients) each.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(registry->statistics()[0].seen.requests, 80U);
}

TEST_P(model_requests, a_model_can_be_unloaded_and_loaded_under_load) {
    const model_shapes& shapes = *find_model("mobilenet_v3");
    const bytes payload = some_bytes(payload_bytes(shapes.inputs), 7);
    bytes expected(payload_bytes(shapes.outputs));
    synthetic_answer(payload, expected);
    std::atomic<bool> stop{false};
    std::atomic<int> answered{0}, absent{0}, other{0};
    std::vector<std::thread> clients;
    for (int client = 0; client < 3; ++client) {
        clients.emplace_back([&] {
            auto to = connect();
            while (!stop) {
                const outcome seen = ask(to, target_of("mobilenet_v3"), payload, inputs_of(shapes));
                if (seen.code == status::ok && seen.content == expected)
                    ++answered;
                else
                    ++(seen.code == status::not_found ? absent : other);
            }
        });
    }
    for (int round = 0; round < 5; ++round) {
        const int before = answered;
        EXPECT_TRUE(eventually(patience(10s), [&] { return answered > before; }));
        ASSERT_TRUE(registry->unload("mobilenet_v3"));
        const int missed = absent;
        EXPECT_TRUE(eventually(patience(10s), [&] { return absent > missed; }));
        ASSERT_TRUE(registry->load(parse_model_spec("mobilenet_v3").value()));
    }
    stop = true;
    for (std::thread& each : clients) each.join();
    EXPECT_EQ(other, 0);
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
    const call_id call = begin_call(slow, target_of(loaded_models_target), {}, {});
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
    EXPECT_EQ(slow.release(call), status::ok);
}

TEST_P(model_requests, questions_are_answered_while_models_come_and_go) {
    std::atomic<bool> stop{false};
    std::atomic<int> with{0}, without{0}, other{0};
    std::thread client([&] {
        auto to = connect();
        while (!stop) {
            const outcome seen = ask(to, target_of(loaded_models_target), {}, {});
            const bool good = seen.code == status::ok && names_model(seen.content, target_of("mobilenet_v3"));
            ++(!good ? other : names_model(seen.content, target_of("digits")) ? with : without);
        }
    });
    for (int round = 0; round < 20; ++round) {
        const int before = with;
        EXPECT_TRUE(eventually(patience(10s), [&] { return with > before; }));
        ASSERT_TRUE(registry->unload("digits"));
        const int missed = without;
        EXPECT_TRUE(eventually(patience(10s), [&] { return without > missed; }));
        ASSERT_TRUE(registry->load(parse_model_spec("digits").value()));
    }
    stop = true;
    client.join();
    EXPECT_EQ(other, 0);
}

ACCEL_MODELS_OVER_LOCAL_AND_TCP(model_requests);

}  // namespace
}  // namespace accel::tests
