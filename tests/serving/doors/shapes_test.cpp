// SPDX-License-Identifier: Apache-2.0
// Shapes that a request says itself, strings, and what JSON may take.
#include "serving/doors/oip/data_types.hpp"
#include "serving/doors/oip/documents.hpp"
#include "serving/doors/oip/element_reader.hpp"
#include "serving/doors/oip/generate.hpp"
#include "serving/doors/oip/infer_answer.hpp"
#include "serving/doors/oip/infer_head.hpp"
#include "serving/doors/oip/json_split.hpp"
#include "serving/doors/oip/strings.hpp"

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace accel::examples::serving::oip {
namespace {

using nlohmann::json;

constexpr std::uint64_t huge = std::uint64_t{1} << 63;

/// FP32 [-1,2] of up to 64 bytes and BYTES [-1] of up to 100, both ways.
model_description open_model() {
    const std::string tensors = R"([{"name":"n","datatype":"FP32","shape":[-1,2],"max_bytes":64},
                                    {"name":"s","datatype":"BYTES","shape":[-1],"max_bytes":100}])";
    return read_description(R"({"name":"m","inputs":)" + tensors + R"(,"outputs":)" + tensors + "}").value();
}

std::string refused(const model_description& model, const std::string& text, std::uint64_t binary = 0) {
    auto read = read_infer_head(text, binary, model);
    if (!read) return read.error().message;
    const auto inputs = read_json_inputs(read.value(), model);
    return inputs ? "taken" : inputs.error().message;
}

std::string open_request(const std::string& shape, const std::string& numbers, const std::string& strings) {
    return R"({"inputs":[{"data":)" + numbers + R"(,"name":"n","datatype":"FP32","shape":)" + shape +
           R"(},{"name":"s","datatype":"BYTES","shape":[2],"data":)" + strings + "}]}";
}

bool says(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

std::vector<std::byte> bytes_of_text(std::string_view text) {
    const auto bytes = std::as_bytes(std::span{text});
    return {bytes.begin(), bytes.end()};
}

TEST(oip_shapes, open_dimensions_have_bounds) {
    const auto model = open_model();
    EXPECT_EQ(model.input_bytes, 64U + 100U);
    EXPECT_EQ(shape_text(model.inputs[0].what), "[-1,2]");
    EXPECT_EQ(json::parse(model_metadata(model))["inputs"][0]["shape"], json({-1, 2}));
    EXPECT_EQ(json::parse(model_configuration(model))["input"][1]["data_type"], "TYPE_STRING");
    for (const char* bad :
         {R"({"name":"x","datatype":"FP32","shape":[-1]})", R"({"name":"x","datatype":"BYTES","shape":[1]})",
          R"({"name":"x","datatype":"FP32","shape":[-1],"max_bytes":0})",
          R"({"name":"x","datatype":"FP32","shape":[-1],"max_bytes":1073741825})",
          R"({"name":"x","datatype":"FP32","shape":[-2],"max_bytes":8})",
          R"({"name":"x","datatype":"BYTES","shape":[-1,-1],"max_bytes":8})",
          R"({"name":"x","datatype":"UINT8","shape":[-1],"max_bytes":8,"text":true})"})
        EXPECT_FALSE(read_description(R"({"name":"m","inputs":[)" + std::string{bad} + R"(],"outputs":[)" + bad + "]}"))
            << bad;
}

TEST(oip_shapes, no_product_of_dimensions_overflows) {
    const auto model = open_model();
    const named_tensor& n = model.inputs[0];
    const auto fits = [&](std::vector<std::uint64_t> shape) { return with_shape(n, shape).ok(); };
    EXPECT_TRUE(fits({8, 2}));
    for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{9}, std::uint64_t{1} << 32,
                                      std::uint64_t{1} << 61, std::uint64_t{1} << 62, huge, ~std::uint64_t{0}})
        EXPECT_FALSE(fits({first, 2})) << first;
    EXPECT_FALSE(fits({8}));
    EXPECT_FALSE(fits({8, 2, 1}));
    EXPECT_FALSE(fits({8, 3}));
    named_tensor all = n;
    all.what.rank = max_tensor_rank;
    for (std::uint32_t i = 0; i < max_tensor_rank; ++i) all.what.shape[i] = 0;
    all.max_bytes = std::uint64_t{1} << 30;
    EXPECT_FALSE(with_shape(all, std::vector<std::uint64_t>(max_tensor_rank, 1U << 30)));
    EXPECT_FALSE(with_elements(n, huge));
    EXPECT_FALSE(with_elements(n, 3));
    EXPECT_EQ(with_elements(n, 6).value().shape[0], 3U);
}

TEST(oip_shapes, shapes_of_a_request_place_its_inputs) {
    const auto model = open_model();
    const std::string text = open_request("[3,2]", "[[1,2],[3,4],[5,6]]", R"(["x","h\u00e9"])");
    auto request = read_infer_head(text, 0, model).value();
    ASSERT_TRUE(read_json_inputs(request, model));
    ASSERT_EQ(request.payload.bytes(), 64U + 12U);
    EXPECT_EQ(request.payload.tensors()[1].shape[0], 12U) << "a server is told the bytes of strings";
    std::vector<std::byte> room(request.payload.bytes(), std::byte{0xee});
    write_json_inputs(request, room);
    EXPECT_EQ(std::memcmp(room.data() + 64, "\1\0\0\0x\3\0\0\0h\xc3\xa9", 12), 0);
    EXPECT_EQ(room[24], std::byte{0}) << "zeros up to the next tensor";
    EXPECT_TRUE(request.payload.check_strings(model, room));
    room[64] = std::byte{9};
    EXPECT_FALSE(request.payload.check_strings(model, room));
}

TEST(oip_shapes, mistakes_have_a_sentence) {
    const auto model = open_model();
    const std::string two = R"(["a","b"])";
    EXPECT_EQ(refused(model, open_request("[1,2]", "[1,2]", two)), "taken");
    EXPECT_TRUE(says(refused(model, open_request("[0,2]", "[]", two)), "a dimension is 0"));
    EXPECT_TRUE(says(refused(model, open_request("[9,2]", "[]", two)), "larger than the 64 bytes"));
    EXPECT_TRUE(says(refused(model, open_request("[9223372036854775808,2]", "[]", two)), "larger than the 64 bytes"));
    EXPECT_TRUE(says(refused(model, open_request("[2,2]", "[[1,2,3],[4]]", two)), "the 4 elements"));
    EXPECT_TRUE(says(refused(model, open_request("[1,2]", "[1,2]", R"(["a"])")), "the 2 elements"));
    EXPECT_TRUE(says(refused(model, open_request("[1,2]", "[1,2]", R"(["a",1])")), "not a string"));
    EXPECT_TRUE(says(refused(model, open_request("[1,2]", "[1,2]", "[\"a\",\"\xff\"]")), "not a string of UTF-8"));
    EXPECT_TRUE(says(refused(model, open_request("[1,2]", "[1,2]", R"(["a",")" + std::string(100, 'b') + "\"]")),
                     "more than 100 bytes"));
    for (const char* numbers : {"[1,2", "[1,,2]", "[1,2],3]", "[1 2]", "[01,2]", "[1,.5]", "[1,+2]", "[1,2e]",
                                "[1,nan]", "[1,0x2]", "[1,{}]", "", "[[1,2],]", "[1,1e400]"})
        EXPECT_NE(refused(model, open_request("[1,2]", numbers, two)), "taken") << numbers;
    EXPECT_EQ(refused(model, open_request("[1,2]", " [ [ 1.5E+1 ,\n-0.0e-400 ] ] ", two)), "taken");
}

TEST(oip_shapes, a_field_tells_its_number_of_elements) {
    const auto model = open_model();
    const std::string text = R"({"n":[[1,2],[3,4]],"s":"a,\"b"})";
    auto request = read_generate(text, model).value();
    ASSERT_TRUE(read_json_inputs(request, model));
    EXPECT_EQ(request.payload.tensors()[0].shape[0], 2U);
    EXPECT_EQ(request.payload.tensors()[1].shape[0], 8U);
    EXPECT_FALSE(read_generate(R"({"n":[1,2,3],"s":"a"})", model));
}

TEST(oip_shapes, a_raw_body_has_one_open_dimension) {
    auto model = open_model();
    model.inputs.pop_back();
    EXPECT_EQ(raw_infer_request(24, model).value().inputs.front().shape.shape[0], 3U);
    for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{4}, std::uint64_t{23}, std::uint64_t{72}, huge})
        EXPECT_FALSE(raw_infer_request(bytes, model)) << bytes;
}

TEST(oip_strings, strings_longer_than_their_data_are_refused) {
    EXPECT_EQ(count_strings(bytes_of_text(std::string_view{"\1\0\0\0a\0\0\0\0", 9})), 2U);
    EXPECT_EQ(count_strings({}), 0U);
    for (const std::string_view bad : {std::string_view{"\1\0\0", 3}, std::string_view{"\1\0\0\0", 4},
                                       std::string_view{"\xff\xff\xff\xff", 4}, std::string_view{"\1\0\0\0ab", 6}})
        EXPECT_FALSE(count_strings(bytes_of_text(bad)));
    // A peer may change a length after it was checked.
    const auto changed = bytes_of_text(std::string_view{"\xff\0\0\0ab", 6});
    std::span<const std::byte> rest{changed};
    EXPECT_EQ(take_string(rest), "ab");
    EXPECT_TRUE(rest.empty());
    EXPECT_EQ(take_string(rest), "");
}

TEST(oip_strings, an_answer_may_have_any_number_of_strings) {
    const auto model = open_model();
    auto payload = bytes_of_text(std::string_view{"\0\0\x80\x3f\0\0\0\x40", 8});
    payload.resize(64);
    const auto strings = bytes_of_text(std::string_view{"\1\0\0\0a\2\0\0\0\xc3\xa9", 11});
    payload.insert(payload.end(), strings.begin(), strings.end());
    std::vector<tensor> said{model.outputs[0].what, serialized_strings(11)};
    said[0].shape[0] = 1;
    said[1].offset = 64;
    const auto outputs = answered_tensors(model, said, payload).value();
    const output_choice chosen[] = {{1, false}, {0, false}};
    const auto answer = json::parse(make_answer(model, "", chosen, outputs, payload).value().head);
    EXPECT_EQ(answer["outputs"][0]["data"], json({"a", "\xc3\xa9"}));
    EXPECT_EQ(answer["outputs"][0]["shape"], json({2}));
    EXPECT_EQ(answer["outputs"][0]["datatype"], "BYTES");
    EXPECT_EQ(answer["outputs"][1]["shape"], json({1, 2}));
    payload[64] = std::byte{8};
    EXPECT_EQ(answered_tensors(model, said, payload).code(), status::protocol_error) << "a length that is none";
    said[0].shape[1] = 1;
    payload[64] = std::byte{1};
    EXPECT_EQ(answered_tensors(model, said, payload).code(), status::protocol_error) << "a dimension that is fixed";
    EXPECT_EQ(answered_tensors(model, {}, payload).code(), status::protocol_error) << "nobody says the sizes";
    payload[74] = std::byte{0xff};
    said[0].shape[1] = 2;
    EXPECT_FALSE(make_answer(model, "", chosen, said, payload)) << "JSON has no such string";
}

TEST(oip_memory, large_values_are_never_a_tree) {
    std::string numbers = "[";
    for (int i = 0; i < 100'000; ++i) numbers += "1,";
    numbers += "1]";
    const std::string text = R"({"inputs":[{"d\u0061ta":)" + numbers + R"(,"name":"n"}],"id":"7"})";
    const auto split = split_inference(text).value();
    EXPECT_LT(split.tree.dump().size(), 100U);
    ASSERT_NE(find_held(split, "data"), nullptr);
    EXPECT_EQ(find_held(split, "data")->text, numbers);
    EXPECT_EQ(find_held(split, "data", 1), nullptr);
    EXPECT_TRUE(split_fields(R"({"x":)" + numbers + "}"));
    for (const std::string& large : {R"({"inputs":[{"name":)" + numbers + "}]}", R"({"parameters":)" + numbers + "}",
                                     R"({"id":")" + numbers + "\"}", numbers})
        EXPECT_TRUE(says(split_inference(large).error().message, "64 KiB")) << large.substr(0, 20);
}

TEST(oip_memory, memory_for_json_data_is_bounded_by_its_text) {
    auto model = open_model();
    model.inputs[0].max_bytes = std::size_t{1} << 30;
    const std::string text = open_request("[134217728,2]", "[1,2]", R"(["a","b"])");
    const auto request = read_infer_head(text, 0, model).value();
    EXPECT_LT(json_data_bytes(request, model), 100U);
    EXPECT_TRUE(says(refused(model, text), "the 268435456 elements"));
    element_reader reader{"[1,2]", with_elements(model.inputs[0], 1U << 28).value(), false, 0};
    EXPECT_TRUE(reader.bytes().empty());
    const std::string deep = R"({"inputs":[{"data":)" + std::string(1'000'000, '[');
    EXPECT_TRUE(says(refused(model, deep), "nested deeper"));
}

TEST(oip_memory, elements_are_read_and_written_in_pieces) {
    tensor what{.type = *type_of("INT16"), .rank = 2};
    what.shape[0] = 50;
    what.shape[1] = 2;
    json rows = json::array();
    for (int i = 0; i < 50; ++i) rows.push_back({-i, i});
    const std::string text = rows.dump();
    element_reader reader{text, what, false, 0};
    int steps = 1;
    for (auto more = reader.step(10); more.value(); more = reader.step(10)) ++steps;
    EXPECT_GT(steps, 20);
    std::string out;
    element_writer writer{what, false, reader.bytes()};
    for (auto more = writer.step(10, out); more.value(); more = writer.step(10, out)) ++steps;
    EXPECT_GT(steps, 40);
    json flat = json::array();
    for (const json& row : rows) flat.insert(flat.end(), row.begin(), row.end());
    EXPECT_EQ(json::parse(out), flat);
    EXPECT_LE(out.size(), longest_json(what, false) + 2);
}

}  // namespace
}  // namespace accel::examples::serving::oip
