// SPDX-License-Identifier: Apache-2.0
// Shapes that a message says itself, strings, numbers of 16 bits, and what JSON may take.
#include "serving/doors/oip/data_types.hpp"
#include "serving/doors/oip/element_reader.hpp"
#include "serving/doors/oip/generate.hpp"
#include "serving/doors/oip/half_numbers.hpp"
#include "serving/doors/oip/infer_answer.hpp"
#include "serving/doors/oip/infer_head.hpp"
#include "serving/doors/oip/json_split.hpp"
#include "serving/doors/oip/model_description.hpp"
#include "serving/doors/oip/strings.hpp"

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
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

model_description fixed_model() {
    return read_description(R"({"name":"m","inputs":[{"name":"x","datatype":"FP32","shape":[1]}],
        "outputs":[{"name":"y","datatype":"FP32","shape":[1]}]})")
        .value();
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

/// Whether a sentence has this part; "taken" is all of it.
bool says(const std::string& text, std::string_view part) {
    return part == "taken" ? text == part : text.find(part) != std::string::npos;
}

std::vector<std::byte> bytes_of_text(std::string_view text) {
    const auto bytes = std::as_bytes(std::span{text});
    return {bytes.begin(), bytes.end()};
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
    EXPECT_EQ(with_elements(n, 3).error().message, "input 'n': its shape is [-1,2], which 3 elements cannot have");
    EXPECT_EQ(with_elements(n, 6).value().shape[0], 3U);
}

TEST(oip_shapes, mistakes_have_a_sentence) {
    const auto model = open_model();
    constexpr const char* two = R"(["a","b"])";
    const std::string longest = R"([")" + std::string(46, 'a') + R"(",")" + std::string(46, 'b') + R"("])";
    constexpr const char* no_shape = "input 'n': the shape must be [-1,2], not [";
    for (const auto& [shape, numbers, strings, said] : std::vector<std::array<std::string, 4>>{
             {"[1,2]", " [ [ 1.5E+1 ,\n-0.0e-400 ] ] ", two, "taken"},
             {"[8,2]", "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]", longest, "taken"},
             {"[3]", "[]", two, no_shape},
             {"[1,3,5]", "[]", two, no_shape},
             {"[0,2]", "[]", two, "a dimension is 0"},
             {"[9,2]", "[]", two, "larger than the 64 bytes"},
             {"[9223372036854775808,2]", "[]", two, "larger than the 64 bytes"},
             {"[2,2]", "[[1,2,3],[4]]", two, "the 4 elements"},
             {"[1,2]", "[1,2]", R"(["a"])", "the 2 elements"},
             {"[1,2]", "[1,2]", R"(["a",1])", "not a string"},
             {"[1,2]", "[1,2]", R"(["a","b)", "not JSON"},
             {"[1,2]", "[1,2]", "[\"a\",\"\xff\"]", "not a string of UTF-8"},
             {"[1,2]", "[1,2]", R"(["a",")" + std::string(92, 'b') + "\"]", "more than 100 bytes"}})
        EXPECT_TRUE(says(refused(model, open_request(shape, numbers, strings)), said))
            << said << ": " << refused(model, open_request(shape, numbers, strings));
    for (const char* numbers : {"[1,2", "[1,,2]", "[1,2],3]", "[1 2]", "[01,2]", "[1,.5]", "[1,+2]", "[1,2e]",
                                "[1,nan]", "[1,0x2]", "[1,{}]", "", "[[1,2],]", "[1,1e400]"})
        EXPECT_NE(refused(model, open_request("[1,2]", numbers, two)), "taken") << numbers;
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

TEST(oip_strings, answers_with_other_sizes_are_refused) {
    const auto model = open_model();
    auto payload = bytes_of_text(std::string_view{"\0\0\x80\x3f\0\0\0\x40", 8});
    payload.resize(64);
    const auto strings = bytes_of_text(std::string_view{"\1\0\0\0a\2\0\0\0\xc3\xa9", 11});
    payload.insert(payload.end(), strings.begin(), strings.end());
    std::vector<tensor> said{model.outputs[0].what, serialized_strings(11)};
    said[0].shape[0] = 1;
    said[1].offset = 64;
    const auto answer = [&] { return answered_tensors(model, said, payload).code(); };
    EXPECT_EQ(answer(), status::ok);
    EXPECT_EQ(answered_tensors(model, {}, payload).code(), status::protocol_error) << "nobody says the sizes";
    payload[64] = std::byte{8};
    EXPECT_EQ(answer(), status::protocol_error) << "a length that is none";
    payload[64] = std::byte{1};
    said[0].shape[1] = 1;
    EXPECT_EQ(answer(), status::protocol_error) << "a dimension that is fixed";
    said[0].shape[1] = 2;
    const output_choice chosen{1, false};
    EXPECT_TRUE(make_answer(model, "", {&chosen, 1}, said, payload));
    payload[74] = std::byte{0xff};
    EXPECT_FALSE(make_answer(model, "", {&chosen, 1}, said, payload)) << "JSON has no such string";
}

TEST(oip_answer, an_output_in_a_region_has_no_parameters) {
    const auto model = fixed_model();
    const float value = 2;
    const auto payload = std::as_bytes(std::span{&value, 1});
    const auto outputs = answered_tensors(model, {}, payload).value();
    const output_choice in_region{0, true, region_part{"r", 64, 4}};
    const auto made = make_answer(model, "", {&in_region, 1}, outputs, payload).value();
    EXPECT_EQ(json::parse(made.head)["outputs"][0], json::parse(R"({"name":"y","datatype":"FP32","shape":[1]})"))
        << "Triton's C++ client takes parameters for those of binary data";
    EXPECT_TRUE(made.tensors.empty());
}

TEST(oip_answer, an_output_without_elements_is_an_answer) {
    const auto model = open_model();
    tensor numbers{.type = model.outputs[0].what.type, .rank = 2};
    numbers.shape[1] = 2;
    tensor strings{.type = {type_code::unsigned_integer, 8, 1}, .rank = 1};
    const auto outputs = answered_tensors(model, std::vector{numbers, strings}, {});
    ASSERT_TRUE(outputs) << outputs.error().message;
    for (const bool binary : {false, true}) {
        const std::vector<output_choice> chosen{{0, binary}, {1, binary}};
        const auto made = make_answer(model, "", chosen, outputs.value(), {});
        ASSERT_TRUE(made) << made.error().message;
        const json shown = json::parse(made.value().head)["outputs"];
        EXPECT_EQ(shown[0]["shape"], json({0, 2}));
        EXPECT_EQ(shown[1]["shape"], json::array({0}));
        EXPECT_EQ(shown[0].contains("data"), !binary);
        EXPECT_EQ(shown[1].value("data", json::array()), json::array());
    }
    EXPECT_EQ(generate_document(model, "", outputs.value(), {}).value(),
              R"({"model_name":"m","model_version":"1","n":[],"s":[]})");
    numbers.shape[1] = 0;
    EXPECT_FALSE(answered_tensors(model, std::vector{numbers, strings}, {})) << "a fixed dimension is as it is";
    EXPECT_FALSE(answered_tensors(fixed_model(), {}, {})) << "a fixed shape has elements";
    for (const char* open : {R"({"name":"y","datatype":"FP32","shape":[-1,2],"max_bytes":64})",
                             R"({"name":"y","datatype":"BYTES","shape":[-1],"max_bytes":64})"}) {
        const auto only =
            read_description(R"({"name":"m","inputs":[)" + std::string{open} + R"(],"outputs":[)" + open + "]}")
                .value();
        const auto said = answered_tensors(only, {}, {});
        ASSERT_TRUE(said) << open;
        EXPECT_EQ(size_bytes(said.value().front()), 0U);
        EXPECT_FALSE(raw_infer_request(0, only)) << "an input has elements";
    }
}

TEST(oip_numbers, each_number_of_16_bits_comes_back_from_its_value) {
    const auto check = [](auto none) {
        using half = decltype(none);
        for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
            const half one{static_cast<std::uint16_t>(bits)};
            const auto again = half::of(one.value());
            ASSERT_EQ(again.has_value(), std::isfinite(one.value())) << bits;
            ASSERT_EQ(again.value_or(one).bits, bits);
        }
        EXPECT_FALSE(half::of(std::numeric_limits<double>::quiet_NaN()));
    };
    check(fp16{});
    check(bf16{});
    EXPECT_EQ(fp16::of(1.0009765625 / 2 + 0.5)->bits, 0x3c00) << "of two nearest ones the even one";
    EXPECT_EQ(fp16::of(std::ldexp(1.0, -25))->bits, 0);
    EXPECT_EQ(fp16::of(std::ldexp(1.1, -25))->bits, 1);
    EXPECT_EQ(fp16::of(65519.0)->bits, 0x7bff);
    EXPECT_EQ(bf16::of(-1.00390625)->bits, 0xbf80);
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
    tensor what{.type = *type_of("INT16"), .rank = 1};
    what.shape[0] = 100;
    std::string text = "[-32768";
    for (int i = 1; i < 100; ++i) text += ",-32768";
    text += ']';
    element_reader reader{text, what, false, 0};
    int steps = 1;
    for (auto more = reader.step(10); more.value(); more = reader.step(10)) ++steps;
    EXPECT_GT(steps, 40);
    std::string out;
    element_writer writer{what, false, reader.bytes()};
    for (auto more = writer.step(10, out); more.value(); more = writer.step(10, out)) ++steps;
    EXPECT_GT(steps, 80);
    EXPECT_EQ(out, text);
    EXPECT_LE(out.size(), longest_json(what, false) + 2);
}

}  // namespace
}  // namespace accel::examples::serving::oip
