// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/oip/body_plan.hpp"
#include "serving/doors/oip/data_types.hpp"
#include "serving/doors/oip/documents.hpp"
#include "serving/doors/oip/element_reader.hpp"
#include "serving/doors/oip/element_types.hpp"
#include "serving/doors/oip/head_reader.hpp"
#include "serving/doors/oip/infer_answer.hpp"
#include "serving/doors/oip/infer_head.hpp"
#include "serving/doors/oip/json_text.hpp"
#include "serving/doors/oip/model_description.hpp"
#include "serving/doors/oip/refusal.hpp"
#include "serving/doors/oip/route.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace accel::examples::serving::oip {
namespace {

using nlohmann::json;

/// Two inputs, FP32 [1,2] and INT8 [3], and an output FP32 [2].
model_description two_inputs() {
    return read_description(R"({"name":"m","target":"t",
        "inputs":[{"name":"a","datatype":"FP32","shape":[1,2]},{"name":"b","datatype":"INT8","shape":[3]}],
        "outputs":[{"name":"y","datatype":"FP32","shape":[2]}]})")
        .value();
}

json good_request() {
    return json::parse(R"({"id":"7","inputs":[
        {"name":"a","datatype":"FP32","shape":[1,2],"data":[[1.5,-2]]},
        {"name":"b","datatype":"INT8","shape":[3],"parameters":{"binary_data_size":3}}]})");
}

std::string refused(const json& request, std::uint64_t binary_bytes = 3) {
    const std::string text = request.dump();
    const auto model = two_inputs();
    auto read = read_infer_head(text, binary_bytes, model);
    const auto sentence = [](const error& why) { return std::to_string(http_status_of(why.code)) + ' ' + why.message; };
    if (!read) return sentence(read.error());
    const auto inputs = read_json_inputs(read.value(), model);
    return inputs ? "taken" : sentence(inputs.error());
}

std::string refused_with(const char* at, const json& value) {
    json request = good_request();
    request[json::json_pointer{at}] = value;
    return refused(request);
}

bool has(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

TEST(oip_types, each_name_has_its_own_type) {
    for (const char* name : {"BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16",
                             "FP32", "FP64", "BF16"}) {
        ASSERT_TRUE(type_of(name)) << name;
        EXPECT_EQ(name_of(*type_of(name)), name);
    }
    EXPECT_FALSE(type_of("BYTES"));
    EXPECT_FALSE(type_of("fp32"));
    EXPECT_TRUE(name_of({type_code::complex, 64, 1}).empty());
}

TEST(oip_description, tensors_lie_at_multiples_of_64) {
    const auto model = two_inputs();
    EXPECT_EQ(model.target, "t");
    EXPECT_EQ(model.inputs[1].what.offset, 64U);
    EXPECT_EQ(model.input_bytes, 67U);
    EXPECT_EQ(model.output_bytes, 8U);
}

TEST(oip_description, an_invalid_description_is_refused) {
    for (const char* text :
         {"", "[]", "{}", R"({"name":"m"})", R"({"name":"m","inputs":[],"outputs":[]})",
          R"({"name":"m","inputs":[{"name":"a","datatype":"FP32","shape":[-1]}],"outputs":[]})",
          R"({"name":"m","inputs":[{"name":"a","datatype":"BYTES","shape":[1]}],"outputs":[]})",
          R"({"name":"m","inputs":[{"name":"a","datatype":"FP32","shape":[4294967295,4294967295]}],"outputs":[]})"}) {
        const auto read = read_description(text);
        ASSERT_FALSE(read) << text;
        EXPECT_FALSE(read.error().message.empty());
    }
}

TEST(oip_json, brackets_in_strings_nest_nothing) {
    EXPECT_EQ(nesting_of(R"({"a":"[[[\"[[","b":[[]]})"), 3U);
    EXPECT_EQ(nesting_of("]]]][["), 2U);
}

TEST(oip_request, a_valid_request_is_read) {
    const std::string text = good_request().dump();
    const auto read = read_infer_head(text, 3, two_inputs());
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read.value().id, "7");
    ASSERT_EQ(read.value().inputs.size(), 2U);
    EXPECT_EQ(read.value().inputs[0].form, input_form::elements);
    EXPECT_EQ(read.value().inputs[1].form, input_form::binary);
    ASSERT_EQ(read.value().outputs.size(), 1U);
    EXPECT_FALSE(read.value().outputs[0].binary);
}

TEST(oip_request, a_repeated_head_is_recognised_and_another_is_parsed) {
    const auto model = two_inputs();
    const auto with_id = [](const char* id, bool binary) {
        json request = good_request();
        request["id"] = id;
        if (binary) {
            request["inputs"][0].erase("data");
            request["inputs"][0]["parameters"]["binary_data_size"] = 8;
        }
        return request.dump();
    };
    head_reader heads;
    std::deque<std::string> texts;  // where the client's text lies changes, and another one lies there then
    for (const std::string& text : {with_id("7", true), with_id("8", true), with_id("9", false)})
        for (int i = 0; i < 3; ++i) {
            std::string& copy = texts.emplace_back(text);
            const auto binary = static_cast<std::uint64_t>(text.find("\"9\"") == std::string::npos ? 11 : 3);
            auto read = heads.read(copy, binary, model);
            ASSERT_TRUE(read) << read.error().message;
            EXPECT_EQ(read.value().id, json::parse(text)["id"].get<std::string>());
            ASSERT_TRUE(read_json_inputs(read.value(), model));
            EXPECT_EQ(read.value().payload.bytes(), 67U);
            EXPECT_EQ(heads.read(copy, binary + 1, model).code(), status::invalid_argument);
            std::ranges::fill(copy, ' ');
        }
    const auto other = read_description(R"({"name":"o","inputs":[{"name":"a","datatype":"FP32","shape":[1]}],
        "outputs":[{"name":"y","datatype":"FP32","shape":[2]}]})");
    EXPECT_FALSE(heads.read(with_id("7", true), 11, other.value())) << "it is another model's";
}

TEST(oip_request, numbers_and_bytes_are_placed_where_the_model_wants_them) {
    const auto model = two_inputs();
    const std::string text = good_request().dump();
    auto request = read_infer_head(text, 3, model).value();
    ASSERT_TRUE(read_json_inputs(request, model));
    std::vector<std::byte> room(model.input_bytes, std::byte{0xff});
    write_json_inputs(request, room);
    float numbers[2];
    std::memcpy(numbers, room.data(), sizeof numbers);
    EXPECT_EQ(numbers[0], 1.5F);
    EXPECT_EQ(numbers[1], -2.0F);
    for (std::size_t i = sizeof numbers; i < 64; ++i)
        EXPECT_EQ(room[i], std::byte{0}) << "another request's byte " << i;
    const auto places = binary_places(request, room);
    ASSERT_EQ(places.size(), 1U);
    EXPECT_EQ(places[0].data(), room.data() + 64);
    EXPECT_EQ(places[0].size(), 3U);
}

TEST(oip_request, each_mistake_has_a_status_and_a_sentence) {
    EXPECT_EQ(refused(json::parse("[]")), "400 the request is not a JSON object");
    EXPECT_TRUE(has(refused_with("/inputs/0/name", "z"), "400 model 'm' has no input 'z'"));
    EXPECT_TRUE(has(refused_with("/inputs/0/name", 7), "400 an input has no name"));
    EXPECT_TRUE(has(refused_with("/inputs/1/name", "a"), "400 input 'a': the datatype"));
    EXPECT_TRUE(has(refused_with("/inputs/0/datatype", "FP64"), "must be FP32, not 'FP64'"));
    EXPECT_TRUE(has(refused_with("/inputs/0/shape", {2}), "the shape must be [1,2]"));
    EXPECT_TRUE(has(refused_with("/inputs/0/shape", {-1, 2}), "negative"));
    EXPECT_TRUE(has(refused_with("/inputs/0/shape", {9223372036854775808U, 2}), "the shape must be [1,2]"));
    EXPECT_TRUE(has(refused_with("/inputs/0/shape", {1e300, 2}), "not a whole number"));
    EXPECT_TRUE(has(refused_with("/inputs/0/data", {1}), "2 elements"));
    EXPECT_TRUE(has(refused_with("/inputs/0/data", {{1}, {2}}), "2 elements"));
    EXPECT_TRUE(has(refused_with("/inputs/0/data", {1, "a"}), "not a valid FP32"));
    EXPECT_TRUE(has(refused_with("/inputs/0/data", {1, 1e39}), "not a valid FP32"));
    EXPECT_TRUE(has(refused_with("/inputs/1/parameters/binary_data_size", 4), "binary_data_size must be 3"));
    EXPECT_TRUE(has(refused_with("/inputs/1/parameters/binary_data_size", -3), "binary_data_size must be 3"));
    EXPECT_TRUE(has(refused_with("/inputs/1/data", {1, 2, 3}), "more than one of data, binary_data_size"));
    EXPECT_TRUE(
        has(refused_with("/inputs/0/parameters", {{"shared_memory_region", "r"}}), "needs shared_memory_region"));
    EXPECT_TRUE(
        has(refused_with("/inputs/0/parameters", {{"shared_memory_region", "r"}, {"shared_memory_byte_size", 8}}),
            "more than one of data, binary_data_size and shared_memory_region"));
    EXPECT_TRUE(has(refused_with("/id", 7), "400 the id"));
    EXPECT_TRUE(has(refused_with("/outputs", {{{"name", "z"}}}), "no output 'z'"));
    EXPECT_TRUE(has(refused_with("/outputs", {{{"name", "y"}}, {{"name", "y"}}}), "twice"));
    EXPECT_TRUE(has(refused_with("/parameters", {{"sequence_id", 1}}), "501"));
    EXPECT_TRUE(has(refused_with("/parameters", {{"timeout", -1}}), "400 the timeout"));
    for (const json& wrong : {json(-1), json(0.5), json("1"), json(true)})
        EXPECT_TRUE(has(refused_with("/parameters", {{"priority", wrong}}), "400 the priority")) << wrong;
    EXPECT_TRUE(has(refused_with("/parameters", {{"binary_data_output", 1}}), "must be true or false"));
    EXPECT_TRUE(has(refused(good_request(), 2), "3 bytes of binary data, but the body has 2"));
    json lacking = good_request();
    lacking["inputs"].erase(1);
    EXPECT_TRUE(has(refused(lacking, 0), "1 of the model's 2 inputs"));
}

TEST(oip_request, an_input_is_given_once) {
    json twice = good_request();
    twice["inputs"][1] = twice["inputs"][0];
    EXPECT_TRUE(has(refused(twice, 0), "given twice"));
}

TEST(oip_request, json_is_nested_16_deep_at_most) {
    const std::string deep = std::string(17, '[') + std::string(17, ']');
    const auto read = read_infer_head(R"({"inputs":)" + deep + "}", 0, two_inputs());
    ASSERT_FALSE(read);
    EXPECT_TRUE(has(read.error().message, "nested"));
}

TEST(oip_request, raw_requests_are_for_models_with_one_input) {
    EXPECT_FALSE(raw_infer_request(67, two_inputs()));
    auto model = two_inputs();
    model.inputs.pop_back();
    ASSERT_TRUE(raw_infer_request(8, model));
    EXPECT_FALSE(raw_infer_request(9, model));
}

TEST(oip_body, the_header_splits_a_body_into_json_and_bytes) {
    const auto whole = plan_body(10, std::nullopt).value();
    EXPECT_EQ(whole.json_bytes, 10U);
    EXPECT_FALSE(whole.is_raw());
    EXPECT_EQ(plan_body(10, "4").value().binary_bytes, 6U);
    EXPECT_TRUE(plan_body(10, "0").value().is_raw());
    EXPECT_FALSE(plan_body(0, "0").value().is_raw());
    for (const char* wrong : {"11", "-1", "", " 1", "1x", "18446744073709551616"})
        EXPECT_EQ(plan_body(10, wrong).code(), status::invalid_argument) << wrong;
}

TEST(oip_body, a_body_longer_than_its_model_needs_is_refused) {
    const auto model = two_inputs();
    const std::uint64_t tensors = binary_input_bytes(model);
    const std::uint64_t text = json_input_bytes(model, 1 << 20);
    EXPECT_LT(text, 1U << 20);
    EXPECT_TRUE(check_body({text, tensors}, model, 1 << 20));
    EXPECT_EQ(check_body({text + 1, 0}, model, 1 << 20).code(), status::message_too_large);
    EXPECT_EQ(check_body({0, tensors + 1}, model, 1 << 20).code(), status::message_too_large);
    EXPECT_EQ(check_body({101, 0}, model, 100).code(), status::message_too_large);
}

TEST(oip_numbers, each_type_takes_its_range_and_nothing_else) {
    const auto taken = [](const char* type, const json& value) {
        tensor one;
        one.type = *type_of(type);
        one.rank = 1;
        one.shape[0] = 1;
        return read_elements(json::array({value}).dump(), one).ok();
    };
    EXPECT_TRUE(taken("INT8", -128));
    EXPECT_FALSE(taken("INT8", -129));
    EXPECT_FALSE(taken("INT8", 1.5));
    EXPECT_TRUE(taken("UINT8", 255));
    EXPECT_FALSE(taken("UINT8", 256));
    EXPECT_FALSE(taken("UINT8", -1));
    EXPECT_TRUE(taken("INT64", std::numeric_limits<std::int64_t>::min()));
    EXPECT_FALSE(taken("INT64", 9223372036854775808U));
    EXPECT_TRUE(taken("UINT64", std::numeric_limits<std::uint64_t>::max()));
    EXPECT_TRUE(taken("BOOL", true));
    EXPECT_TRUE(taken("BOOL", 1U));
    EXPECT_FALSE(taken("BOOL", 2U));
    EXPECT_FALSE(taken("FP32", true));
    EXPECT_FALSE(taken("FP32", nullptr));
    EXPECT_TRUE(taken("FP16", 65519));
    EXPECT_FALSE(taken("FP16", 65520));
    EXPECT_FALSE(taken("FP16", "1"));
    EXPECT_TRUE(taken("BF16", 3.39e38));
    EXPECT_FALSE(taken("BF16", -3.4e38));
}

TEST(oip_answer, tensors_follow_the_json_or_are_part_of_it) {
    const auto model = two_inputs();
    const float values[2] = {1.5F, -2};
    const auto payload = std::as_bytes(std::span{values});
    const auto outputs = answered_tensors(model, {}, payload).value();
    const output_choice numbers{0, false};
    const auto in_json = make_answer(model, "7", {&numbers, 1}, outputs, payload).value();
    EXPECT_EQ(json::parse(in_json.head)["outputs"][0]["data"], json({1.5, -2}));
    EXPECT_EQ(json::parse(in_json.head)["id"], "7");
    EXPECT_TRUE(in_json.tensors.empty());
    const output_choice bytes{0, true};
    const auto binary = make_answer(model, "", {&bytes, 1}, outputs, payload).value();
    EXPECT_EQ(json::parse(binary.head)["outputs"][0]["parameters"]["binary_data_size"], 8);
    EXPECT_EQ(binary.binary_bytes, 8U);
    EXPECT_EQ(binary.tensors.at(0).data(), payload.data()) << "not a copy";
}

TEST(oip_answer, answers_that_differ_from_the_description_are_refused) {
    const auto model = two_inputs();
    const std::vector<std::byte> eight(8);
    EXPECT_FALSE(answered_tensors(model, {}, std::span{eight}.first(7)));
    tensor beyond = model.outputs[0].what;
    beyond.offset = 8;
    EXPECT_FALSE(answered_tensors(model, {&beyond, 1}, eight));
    tensor other = model.outputs[0].what;
    other.type = *type_of("INT32");
    EXPECT_FALSE(answered_tensors(model, {&other, 1}, eight));
    const std::vector<tensor> too_many(2, model.outputs[0].what);
    EXPECT_FALSE(answered_tensors(model, too_many, eight));
}

TEST(oip_answer, numbers_that_json_cannot_represent_are_refused) {
    const auto model = two_inputs();
    const float values[2] = {1, std::numeric_limits<float>::infinity()};
    const output_choice numbers{0, false};
    const auto payload = std::as_bytes(std::span{values});
    const auto outputs = answered_tensors(model, {}, payload).value();
    EXPECT_FALSE(make_answer(model, "", {&numbers, 1}, outputs, payload));
}

TEST(oip_route, paths_are_parsed) {
    EXPECT_EQ(find_route("/v2").value().what, action::server_metadata);
    EXPECT_EQ(find_route("/v2/").value().what, action::server_metadata);
    EXPECT_EQ(find_route("/v2/health/live?verbose=1").value().what, action::live);
    EXPECT_EQ(find_route("/v2/models/stats").value().what, action::all_statistics);
    EXPECT_EQ(find_route("/v2/models/a%2Fb/versions/1/infer").value().model, "a/b");
    EXPECT_EQ(find_route("/v2/models/m/versions/1").value().what, action::model_metadata);
    for (const char* none : {"", "/", "v2", "/v3", "/v2/health", "/v2/models", "/v2/models/m/versions/2/infer",
                             "/v2/models/m/infer/x", "/v2/a/b/c/d/e/f/g/h/i/j"})
        EXPECT_EQ(find_route(none).code(), status::not_found) << none;
}

TEST(oip_errors, a_sentence_of_any_bytes_becomes_valid_json) {
    EXPECT_TRUE(json::parse(error_document("a\"b\xff\n")).contains("error"));
    EXPECT_EQ(http_status_of(status::again), 429);
    EXPECT_EQ(http_status_of(status::timed_out), 504);
    EXPECT_EQ(http_status_of(status::peer_lost), 503);
    EXPECT_EQ(http_status_of(status::application_error), 500);
}

TEST(oip_documents, metadata_can_be_read_as_a_description) {
    const auto model = two_inputs();
    const auto again = read_description(model_metadata(model)).value();
    EXPECT_EQ(again.inputs[1].what.shape[0], 3U);
    EXPECT_EQ(again.output_bytes, model.output_bytes);
    EXPECT_EQ(json::parse(model_configuration(model))["input"][1]["data_type"], "TYPE_INT8");
}

}  // namespace
}  // namespace accel::examples::serving::oip
