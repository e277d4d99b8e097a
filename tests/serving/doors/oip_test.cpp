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
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
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

/// Whether a sentence has this part; "taken" is all of it.
bool has(const std::string& text, std::string_view part) {
    return part == "taken" ? text == part : text.find(part) != std::string::npos;
}

TEST(oip_description, a_valid_description_places_its_tensors) {
    const auto model = two_inputs();
    EXPECT_EQ(model.target, "t");
    EXPECT_FALSE(model.decoupled);
    EXPECT_EQ(model.inputs[1].what.offset, 64U);
    EXPECT_EQ(model.input_bytes, 67U);
    EXPECT_EQ(model.output_bytes, 8U);
    const auto other = read_description(R"({"name":"größe/1","target":"t","decoupled":true,
        "inputs":[{"name":"a","datatype":"UINT8","shape":[8],"text":true},
                  {"name":"b","datatype":"FP32","shape":[-1,2],"max_bytes":64}],
        "outputs":[{"name":"y","datatype":"BYTES","shape":[-1],"max_bytes":100}]})")
                           .value();
    EXPECT_TRUE(other.decoupled && other.inputs[0].text && !other.inputs[1].text && other.outputs[0].strings);
    EXPECT_EQ(shape_text(other.inputs[1].what), "[-1,2]");
    EXPECT_EQ(other.input_bytes, 64U + 64U);
    EXPECT_EQ(other.output_bytes, 100U);
}

/// What becomes of a description whose input and output have these fields besides a name.
std::string described(const std::string& fields) {
    const std::string tensor = R"([{"name":"x",)" + fields + "}]";
    const auto read = read_description(R"({"name":"m","inputs":)" + tensor + R"(,"outputs":)" + tensor + "}");
    return read ? "taken" : read.error().message;
}

TEST(oip_description, a_tensor_is_refused_with_a_sentence) {
    for (const auto& [said, type, shapes] : std::initializer_list<std::array<std::string, 3>>{
             {"taken", R"("FP32")", "[] [1,1,1,1,1,1,1,1]"},
             {"taken", R"("UINT8")", R"([1073741824] [8],"text":true [8],"text":false)"},
             {"taken", R"("FP32")", R"([-1,-1],"max_bytes":1073741824)"},
             {"taken", R"("BYTES")", R"([-1,2],"max_bytes":8 [],"max_bytes":4)"},
             {"inputs[0].datatype: write BOOL, INT8", "7", "[1]"},
             {"inputs[0].datatype: write BOOL, INT8", R"("fp32")", "[1]"},
             {"inputs[0].shape: write a list of up to 8 numbers", R"("FP32")", "1 [1,1,1,1,1,1,1,1,1]"},
             {"a dimension must be a whole number from 1 to 4294967295, or -1", R"("FP32")",
              R"([0] [-2],"max_bytes":8 [1.5] ["1"] [4294967296])"},
             {"more than 1 GiB", R"("UINT8")", "[1073741825]"},
             {"is larger than a payload", R"("FP32")", "[4294967295,4294967295,4294967295]"},
             {"needs max_bytes", R"("FP32")", "[-1]"},
             {"needs max_bytes", R"("BYTES")", "[1] [-1]"},
             {"inputs[0].max_bytes: write a whole number from 1 to 1073741824", R"("FP32")",
              R"([-1],"max_bytes":0 [-1],"max_bytes":-8 [-1],"max_bytes":1073741825 [-1],"max_bytes":1.5)"},
             {"taken", R"("INT64")", R"([1],"values":1 [1],"values":4294967296)"},
             {"taken", R"("INT8")", R"([1],"values":128)"},
             {"values: this datatype does not have so many whole numbers", R"("INT8")", R"([1],"values":129)"},
             {"values: this datatype does not have so many whole numbers", R"("UINT8")", R"([1],"values":257)"},
             {"values: this datatype does not have so many whole numbers", R"("FP32")", R"([1],"values":1)"},
             {"values: this datatype does not have so many whole numbers", R"("BYTES")",
              R"([1],"max_bytes":8,"values":1)"},
             {"inputs[0].values: write a whole number from 1 to 4294967296", R"("INT64")",
              R"([1],"values":0 [1],"values":4294967297)"},
             {"inputs[0].type: this key is unknown; the nearest known key is 'datatype'", R"("FP32")",
              R"([1],"type":"float32")"},
             {"BYTES may have only one dimension of -1", R"("BYTES")", R"([-1,-1],"max_bytes":8)"},
             {"inputs[0].text: write true or false", R"("UINT8")", R"([8],"text":1)"},
             {"a text needs the datatype UINT8", R"("FP32")", R"([1],"text":true)"},
             {"a text needs the datatype UINT8", R"("BYTES")", R"([1],"max_bytes":8,"text":true)"},
             {"a text must not have a dimension of -1", R"("UINT8")", R"([-1],"max_bytes":8,"text":true)"}}) {
        std::istringstream list(shapes);
        for (std::string shape; list >> shape;) {
            const std::string seen = described("\"datatype\":" + type + ",\"shape\":" + shape);
            EXPECT_TRUE(has(seen, said)) << type << shape << ": " << seen << ", not " << said;
        }
    }
    EXPECT_TRUE(has(described(R"("shape":[1])"), "a tensor needs a name, a datatype and a shape"));
    EXPECT_TRUE(has(described(R"("datatype":"FP32")"), "a tensor needs a name, a datatype and a shape"));
    for (const char* name : {"\"\"", "7"}) {
        const auto read = read_description(R"({"name":"m","outputs":[{"name":)" + std::string{name} + "}]}", "m.json");
        EXPECT_EQ(read.error().message, "m.json: outputs[0].name: write the tensor's name, in quotes");
    }
}

TEST(oip_description, a_model_is_refused_with_a_sentence) {
    const json one{{{"name", "x"}, {"datatype", "UINT8"}, {"shape", {536'870'912}}}};
    const auto refusal_of = [&](const char* key, const json& value) {
        json model{{"name", "m"}, {"inputs", one}, {"outputs", one}};
        model[key] = value;
        const auto read = read_description(model.dump());
        return read ? "taken" : read.error().message;
    };
    const auto several = [&](int count, std::int64_t bytes) {
        json out = json::array();
        for (int i = 0; i < count; ++i)
            out.push_back({{"name", "x" + std::to_string(i)}, {"datatype", "UINT8"}, {"shape", {bytes}}});
        return out;
    };
    json twice = several(2, 1);
    twice[1]["name"] = "x0";
    for (const char* list : {"inputs", "outputs"})
        for (const auto& [value, said] : std::vector<std::pair<json, std::string>>{
                 {nullptr, std::string{list} + ": write a list of tensors"},
                 {json::object(), std::string{list} + ": write a list of tensors"},
                 {json::array(), "a model must have 1 to 64 inputs"},
                 {several(64, 1), "taken"},
                 {several(65, 1), "a model must have 1 to 64 inputs"},
                 {twice, "this name occurs twice"},
                 {several(2, 536'870'912), "taken"},
                 {several(2, 536'870'913), "more than 1 GiB"}})
            EXPECT_TRUE(has(refusal_of(list, value), said)) << list << ": " << refusal_of(list, value);
    for (const auto& [key, value, said] : std::vector<std::tuple<const char*, json, const char*>>{
             {"name", nullptr, "name: write the model's name, in quotes"},
             {"name", "", "name: write the model's name, in quotes"},
             {"name", "a b", "not a valid name"},
             {"name", "a\n", "not a valid name"},
             {"name", "\x7f", "not a valid name"},
             {"name", std::string(64, 'a'), "taken"},
             {"name", std::string(65, 'a'), "not a valid name"},
             {"name", "größe", "not a valid target"},
             {"target", "größe", "not a valid target"},
             {"target", 7, "target: write the model's name at its server, in quotes"},
             {"decoupled", 1, "decoupled: write true or false"},
             {"image", {480, 640}, "taken"},
             {"image", {16384, 1}, "taken"},
             {"image", {1}, "image: write [height, width]"},
             {"image", {0, 1}, "image: write [height, width]"},
             {"image", {1, 16385}, "image: write [height, width]"},
             {"gflops", 0, "taken"},
             {"gflops", 1.5, "taken"},
             {"gflops", -1, "gflops: write a number from 0"},
             {"gflops", 1e7, "gflops: write a number from 0"},
             {"gflops", "1", "gflops: write a number from 0"},
             {"versions", {"1"}, "taken"},
             {"inpts", one, "the nearest known key is 'inputs'"}})
        EXPECT_TRUE(has(refusal_of(key, value), said)) << key << value << ": " << refusal_of(key, value);
    for (const char* text : {"", "[]", "{"}) EXPECT_FALSE(read_description(text)) << text;
    for (const char* name : {"\xff", "\xc3", "\xc0\x80"}) {
        auto model = two_inputs();
        model.name = name;
        EXPECT_FALSE(checked(std::move(model))) << "it is not UTF-8";
    }
}

TEST(oip_json, json_is_nested_16_deep_at_most) {
    EXPECT_EQ(nesting_of(R"({"a":"[[[\"[[","b":[[]]})"), 3U) << "brackets in strings nest nothing";
    EXPECT_EQ(nesting_of("]]]][["), 2U);
    for (const std::size_t depth : {max_json_depth, max_json_depth + 1}) {
        const std::string deep = std::string(depth - 1, '[') + std::string(depth - 1, ']');
        const bool good = depth == max_json_depth;
        EXPECT_EQ(parse_object(R"({"a":)" + deep + "}").ok(), good) << depth;
        for (const char* where : {R"({"inputs":)", R"({"inputs":[],"x":)"}) {
            const auto read = read_infer_head(where + deep + "}", 0, two_inputs());
            ASSERT_FALSE(read);
            EXPECT_EQ(has(read.error().message, "nested deeper"), !good) << depth << read.error().message;
        }
    }
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

/// A valid request of which one value is another, each of these, apart by blanks; "-": it has none.
struct changed_request {
    const char* at;
    const char* said;
    std::string values;
    std::uint64_t binary = 3;  ///< bytes after the JSON
};

std::vector<changed_request> changed_inputs() {
    constexpr const char* region = "400 a tensor in shared memory needs shared_memory_region";
    constexpr const char* ways = "it has more than one of data, binary_data_size and shared_memory_region";
    const std::string in_region = R"({"shared_memory_region":"r","shared_memory_byte_size":)";
    return {
        {"", "400 the request is not a JSON object", "[] 7"},
        {"/inputs", "400 the request has no list of inputs", "- {}"},
        {"/inputs/1", "400 the request gives 1 of the model's 2 inputs", "-", 0},
        {"/inputs/1", "400 input 'a': it is given twice", good_request()["inputs"][0].dump(), 0},
        {"/inputs/0/name", "400 an input has no name", "- 7"},
        {"/inputs/0/name", "400 model 'm' has no input 'z'", R"("z")"},
        {"/inputs/0/datatype", "400 input 'a': its datatype is missing", "- 7"},
        {"/inputs/0/datatype", "400 input 'a': the datatype must be FP32, not 'FP64'", R"("FP64")"},
        {"/inputs/0/shape", "400 input 'a': its shape is missing", "- 2"},
        {"/inputs/0/shape", "400 input 'a': the shape must be [1,2], not [",
         "[2] [2,1] [1,2,1] [1,18446744073709551615]"},
        {"/inputs/0/shape", "the shape must be [1,2], not [1,1,1,1,1,1,1,1,…]", "[1,1,1,1,1,1,1,1,1]"},
        {"/inputs/0/shape", "400 input 'a': a dimension is 0", "[0,2]"},
        {"/inputs/0/shape", "400 input 'a': a dimension is negative", "[-1,2]"},
        {"/inputs/0/shape", "400 input 'a': a dimension is not a whole number below 2^64",
         R"([1e300,2] [18446744073709551616,2] [1.0,2] ["1",2])"},
        {"/inputs/0/data", "taken", "[1,2] [[1,2]]"},
        {"/inputs/0/data", "400 input 'a': it has neither data nor a binary_data_size", "-"},
        {"/inputs/0/data", "400 input 'a': the data does not have the 2 elements", "[[[1,2]]] [1] [1,2,3] [[1],[2]] 7"},
        {"/inputs/0/data", "400 input 'a': a value of the data is not a valid FP32", R"([1,"a"] [1,1e39])"},
        {"/inputs/1/parameters", "400 input 'b': it has neither data nor a binary_data_size", "- {}"},
        {"/inputs/1/parameters/binary_data_size", "400 input 'b': binary_data_size must be 3, not",
         R"(2 4 -3 3.0 "3")"},
        {"/id", "400 the inputs have 3 bytes of binary data, but the body has 2", R"("8")", 2},
        {"/id", "400 the inputs have 3 bytes of binary data, but the body has 4", R"("8")", 4},
        {"/inputs/1/data", ways, "[1,2,3]"},
        {"/inputs/0/parameters", ways, in_region + "8}"},
        {"/inputs/1/parameters", "taken", in_region + "3}", 0},
        {"/inputs/1/parameters", "400 input 'b': shared_memory_byte_size must be 3, not 4", in_region + "4}"},
        {"/inputs/1/parameters", region,
         R"({"shared_memory_region":"r"} {"shared_memory_region":7,"shared_memory_byte_size":3} )" + in_region +
             R"(-3} )" + in_region + R"(3,"shared_memory_offset":-1})"},
    };
}

std::vector<changed_request> changed_parameters() {
    constexpr const char* id = "400 the id is not a string of at most 256 bytes";
    return {
        {"/id", "taken", "- \"" + std::string(256, 'a') + '"'},
        {"/id", id, "7 \"" + std::string(257, 'a') + '"'},
        {"/outputs", "400 the outputs of the request are not a list", "{}"},
        {"/outputs", "taken", R"([] [{"name":"y"}] [{"name":"y","parameters":{"binary_data":true}}])"},
        {"/outputs", "400 a requested output has no name", R"([{}] [{"name":7}])"},
        {"/outputs", "400 model 'm' has no output 'z'", R"([{"name":"z"}])"},
        {"/outputs", "400 an output is requested twice", R"([{"name":"y"},{"name":"y"}])"},
        {"/outputs", "binary_data must be true or false", R"([{"name":"y","parameters":{"binary_data":1}}])"},
        {"/outputs", "501 this door does not classify", R"([{"name":"y","parameters":{"classification":1}}])"},
        {"/outputs", "400 a tensor in shared memory", R"([{"name":"y","parameters":{"shared_memory_region":"r"}}])"},
        {"/parameters", "400 the parameters are not an object", "[]"},
        {"/parameters", "binary_data_output must be true or false", R"({"binary_data_output":1})"},
        {"/parameters", "taken",
         R"({"sequence_id":0} {"sequence_id":"","sequence_start":false,"sequence_end":false}
            {"timeout":3600000000} {"priority":7})"},
        {"/parameters", "501 this door does not support sequences of requests",
         R"({"sequence_id":1} {"sequence_id":"a"} {"sequence_id":-1} {"sequence_id":null} {"sequence_start":true}
            {"sequence_start":0} {"sequence_id":0,"sequence_end":true})"},
        {"/parameters", "400 the timeout is not a whole number of microseconds up to an hour",
         R"({"timeout":3600000001} {"timeout":-1} {"timeout":1.5} {"timeout":"1"})"},
        {"/parameters", "400 the priority is not a whole number of 0 or more",
         R"({"priority":-1} {"priority":0.5} {"priority":"1"} {"priority":true})"},
    };
}

TEST(oip_request, each_mistake_has_a_status_and_a_sentence) {
    EXPECT_EQ(refused(good_request()), "taken");
    for (const auto& rows : {changed_inputs(), changed_parameters()})
        for (const changed_request& each : rows) {
            std::istringstream list(each.values);
            for (std::string value; list >> value;) {
                json request = good_request();
                if (value == "-" && request.contains(json::json_pointer{each.at}))
                    request = request.patch({{{"op", "remove"}, {"path", each.at}}});
                else if (value != "-")
                    request[json::json_pointer{each.at}] = json::parse(value);
                const std::string said = refused(request, each.binary);
                EXPECT_TRUE(has(said, each.said)) << each.at << ' ' << value << ": " << said;
            }
        }
}

TEST(oip_request, a_request_chooses_its_outputs_and_timeout) {
    const auto model = read_description(R"({"name":"m","inputs":[{"name":"a","datatype":"FP32","shape":[1]}],
        "outputs":[{"name":"y","datatype":"FP32","shape":[2]},{"name":"z","datatype":"FP32","shape":[2]}]})")
                           .value();
    const auto read = [&](const std::string& more) {
        static std::string text;  // the result has views of it
        text = R"({"inputs":[{"name":"a","datatype":"FP32","shape":[1],"data":[1]}])" + more + "}";
        return read_infer_head(text, 0, model).value();
    };
    const auto chosen = [&](const std::string& more) {
        std::string out;
        for (const output_choice& each : read(more).outputs) {
            out += std::to_string(each.index) + (each.binary ? "b" : "");
            if (each.region) out += each.region->region + std::to_string(each.region->offset);
        }
        return out;
    };
    EXPECT_EQ(chosen(""), "01");
    EXPECT_EQ(chosen(R"(,"parameters":{"binary_data_output":true})"), "0b1b");
    EXPECT_EQ(chosen(R"(,"outputs":[{"name":"z"}])"), "1");
    EXPECT_EQ(chosen(R"(,"outputs":[{"name":"z","parameters":{"binary_data":true}},{"name":"y"}])"), "1b0");
    EXPECT_EQ(chosen(R"(,"parameters":{"binary_data_output":true},
                       "outputs":[{"name":"z","parameters":{"binary_data":false}},{"name":"y"}])"),
              "10b");
    EXPECT_EQ(chosen(R"(,"outputs":[{"name":"y","parameters":
                       {"shared_memory_region":"r","shared_memory_byte_size":8,"shared_memory_offset":64}}])"),
              "0r64");
    EXPECT_EQ(read("").timeout, std::chrono::nanoseconds{0});
    EXPECT_EQ(read(R"(,"parameters":{"timeout":1500})").timeout, std::chrono::microseconds{1500});
}

TEST(oip_request, raw_requests_are_for_models_with_one_input) {
    EXPECT_FALSE(raw_infer_request(67, two_inputs()));
    const auto taken = [](const char* tensor, std::uint64_t bytes) -> std::uint64_t {
        const auto model = read_description(R"({"name":"m","inputs":[)" + std::string{tensor} +
                                            R"(],"outputs":[{"name":"y","datatype":"FP32","shape":[2]}]})")
                               .value();
        auto read = raw_infer_request(bytes, model);
        return read ? read->inputs.front().shape.shape[0] : 0;
    };
    for (const auto& [bytes, wanted] : {std::pair{7U, 0U}, {8U, 2U}, {9U, 0U}})
        EXPECT_EQ(taken(R"({"name":"a","datatype":"FP32","shape":[2]})", bytes), wanted) << bytes;
    constexpr const char* open = R"({"name":"a","datatype":"FP32","shape":[-1,2],"max_bytes":64})";
    for (const auto& [bytes, wanted] :
         {std::pair{0U, 0U}, {4U, 0U}, {8U, 1U}, {23U, 0U}, {24U, 3U}, {64U, 8U}, {72U, 0U}})
        EXPECT_EQ(taken(open, bytes), wanted) << bytes;
    EXPECT_EQ(taken(open, std::uint64_t{1} << 63), 0U);
    constexpr const char* strings = R"({"name":"a","datatype":"BYTES","shape":[2],"max_bytes":20})";
    for (const auto& [bytes, wanted] : {std::pair{7U, 0U}, {8U, 2U}, {20U, 2U}, {21U, 0U}})
        EXPECT_EQ(taken(strings, bytes), wanted) << bytes;
    EXPECT_EQ(taken(R"({"name":"a","datatype":"BYTES","shape":[-1],"max_bytes":20})", 8), 0U);
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
    EXPECT_TRUE(check_body({0, tensors}, model, 1 << 20));
    EXPECT_EQ(check_body({text + 1, 0}, model, 1 << 20).code(), status::message_too_large);
    EXPECT_EQ(check_body({0, tensors + 1}, model, 1 << 20).code(), status::message_too_large);
    EXPECT_TRUE(check_body({100, 0}, model, 100));
    EXPECT_EQ(check_body({101, 0}, model, 100).code(), status::message_too_large);
}

/// Elements of a type, apart by blanks, that are taken, and others.
struct type_range {
    const char* type;
    const char* good;
    const char* bad;
};
constexpr type_range ranges[] = {
    {"BOOL", "true false 0 1", R"(2 -1 1.0 "true" null TRUE [])"},
    {"INT8", "-128 127 -0", R"(-129 128 1.5 1e0 "1" true null 01 +1 0x1 1_0)"},
    {"UINT8", "0 -0 255", "-1 256 1.0"},
    {"INT16", "-32768 32767", "-32769 32768"},
    {"UINT16", "65535", "65536 -1"},
    {"INT32", "-2147483648 2147483647", "-2147483649 2147483648"},
    {"UINT32", "4294967295", "4294967296 -1"},
    {"INT64", "-9223372036854775808 9223372036854775807", "-9223372036854775809 9223372036854775808"},
    {"UINT64", "18446744073709551615", "18446744073709551616 -1"},
    {"FP16", "65519 -65519 1e-9 5", R"(65520 -65520 "1" nan 1.)"},
    {"BF16", "3.39e38 -3.39e38", "3.4e38 -3.4e38 inf"},
    {"FP32", "3.4028235e+38 -3.4028235e+38 1E2 -0.0e-400 7", "3.4028236e38 -3.4028236e38 true null .5 2e 1e400 NaN"},
    {"FP64", "1.7976931348623157e308 -1.7976931348623157e308 4e-400", "1.8e308 -1e309 Infinity -"},
};

TEST(oip_numbers, each_type_takes_its_range_and_nothing_else) {
    EXPECT_FALSE(type_of("BYTES") || type_of("fp32"));
    EXPECT_TRUE(name_of({type_code::complex, 64, 1}).empty());
    for (const type_range& each : ranges) {
        ASSERT_TRUE(type_of(each.type)) << each.type;
        EXPECT_EQ(name_of(*type_of(each.type)), each.type);
        tensor one{.type = *type_of(each.type), .rank = 1};
        one.shape[0] = 1;
        for (const bool good : {true, false}) {
            std::istringstream list(good ? each.good : each.bad);
            for (std::string element; list >> element;)
                EXPECT_EQ(read_elements('[' + element + ']', one).ok(), good) << each.type << ' ' << element;
        }
    }
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

struct path_row {
    const char* target;
    std::string leads_to;  ///< the model, the region and whether that is on a GPU
    action what;
};

std::vector<path_row> paths() {
    return {{"/v2", "", action::server_metadata},
            {"/v2/", "", action::server_metadata},
            {"HTTPS://door/v2", "", action::server_metadata},
            {"/v2/health/live?verbose=1", "", action::live},
            {"http://door:8000/v2/health/live", "", action::live},
            {"/v2/health/ready", "", action::ready},
            {"/v2/models/stats", "", action::all_statistics},
            {"/v2/models/m", "m", action::model_metadata},
            {"/v2/models/größe", "größe", action::model_metadata},
            {"/v2/models/m/versions/1", "m", action::model_metadata},
            {"/v2/models/m/ready", "m", action::model_ready},
            {"/v2/models/m/config", "m", action::model_configuration},
            {"/v2/models/m/versions/1/stats", "m", action::model_statistics},
            {"http://door/v2/models/m/infer?a=b", "m", action::infer},
            {"/v2/models/a%2Fb/versions/1/infer", "a/b", action::infer},
            {"/v2/models/gr%C3%B6%c3%9fe%2f1/infer", "größe/1", action::infer},
            {"/v2/models/%2%zz%/generate", "%2%zz%", action::generate},
            {"/v2/models/m/generate_stream", "m", action::generate_stream},
            {"/v2/systemsharedmemory/status", "", action::region_status},
            {"/v2/systemsharedmemory/region/a%2Fb/register", "a/b", action::region_register},
            {"/v2/cudasharedmemory/region/r/unregister", "r on a GPU", action::region_unregister},
            {"/v2/cudasharedmemory/unregister", " on a GPU", action::region_unregister}};
}

TEST(oip_route, paths_lead_to_actions) {
    for (const path_row& each : paths()) {
        auto found = find_route(each.target);
        ASSERT_TRUE(found) << each.target;
        EXPECT_EQ(found->what, each.what) << each.target;
        EXPECT_EQ(found->model + found->region + (found->on_gpu ? " on a GPU" : ""), each.leads_to) << each.target;
        const bool asks = each.what < action::infer || each.what == action::region_status;
        EXPECT_EQ(method_of(each.what), asks ? "GET" : "POST") << each.target;
    }
    for (const char* none : {"",
                             "/",
                             "v2",
                             "/v3",
                             "/v2/health",
                             "/v2/health/dead",
                             "/v2/models",
                             "/v2/models/m/versions/2/infer",
                             "/v2/models/m/infer/x",
                             "/v2/models/m/else",
                             "/v2/a/b/c/d/e/f/g/h/i/j",
                             "/v2/systemsharedmemory",
                             "/v2/systemsharedmemory/register",
                             "/v2/sharedmemory/status",
                             "/v2/systemsharedmemory/region/a",
                             "/v2/systemsharedmemory/region//status",
                             "/v2/systemsharedmemory/part/a/status",
                             "http://",
                             "http://door",
                             "http://door?x=/v2/health/live",
                             "ftp://door/v2",
                             "http:/v2",
                             "*",
                             "door:80"})
        EXPECT_EQ(find_route(none).code(), status::not_found) << none;
}

TEST(oip_documents, health_and_errors_are_documents) {
    EXPECT_EQ(json::parse(live_document()), json::parse(R"({"live":true})"));
    EXPECT_EQ(json::parse(ready_document()), json::parse(R"({"ready":true})"));
    EXPECT_EQ(json::parse(model_ready_document("a\"b")), json::parse(R"({"name":"a\"b","ready":true})"));
    EXPECT_TRUE(json::parse(error_document("a\"b\xff\n")).contains("error")) << "also of bytes that are not UTF-8";
}

TEST(oip_documents, metadata_is_a_description) {
    const auto model = two_inputs();
    const auto read = read_description(model_metadata(model));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(model_metadata(read.value()), model_metadata(model));
    EXPECT_EQ(read.value().input_bytes, model.input_bytes);
    EXPECT_EQ(read.value().output_bytes, model.output_bytes);
}

TEST(oip_errors, each_status_has_a_code_of_http) {
    const std::map<status, int> codes{
        {status::ok, 200},          {status::invalid_argument, 400}, {status::not_found, 404},
        {status::again, 429},       {status::overloaded, 429},       {status::message_too_large, 413},
        {status::unsupported, 501}, {status::peer_lost, 503},        {status::closed, 503},
        {status::device_lost, 503}, {status::timed_out, 504}};
    for (std::uint16_t i = 0; i < status_count; ++i) {
        const auto one = static_cast<status>(i);
        EXPECT_EQ(http_status_of(one), codes.contains(one) ? codes.at(one) : 500) << to_string(one);
    }
}

}  // namespace
}  // namespace accel::examples::serving::oip
