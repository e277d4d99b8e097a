// SPDX-License-Identifier: Apache-2.0
// What stock clients of Triton and KServe send and expect.
#include "serving/doors/oip/documents.hpp"
#include "serving/doors/oip/generate.hpp"
#include "serving/doors/oip/half_numbers.hpp"
#include "serving/doors/oip/infer_answer.hpp"
#include "serving/doors/oip/infer_head.hpp"
#include "serving/doors/oip/model_description.hpp"
#include "serving/doors/oip/refusal.hpp"
#include "serving/doors/oip/route.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace accel::examples::serving::oip {
namespace {

using nlohmann::json;

/// FP32 [-1,2] and BYTES [-1], both ways.
model_description stock_model() {
    const std::string tensors = R"([{"name":"n","datatype":"FP32","shape":[-1,2],"max_bytes":64},
                                    {"name":"s","datatype":"BYTES","shape":[-1],"max_bytes":100}])";
    return read_description(R"({"name":"m","inputs":)" + tensors + R"(,"outputs":)" + tensors + "}").value();
}

model_description one_number() {
    return read_description(R"({"name":"m","inputs":[{"name":"x","datatype":"FP32","shape":[1]}],
        "outputs":[{"name":"y","datatype":"FP32","shape":[1]}]})")
        .value();
}

/// The status and the sentence of a request for `one_number` with these parameters.
std::string refused_parameters(const json& parameters) {
    const json request{{"inputs", {{{"name", "x"}, {"datatype", "FP32"}, {"shape", {1}}, {"data", {1}}}}},
                       {"parameters", parameters}};
    const std::string text = request.dump();
    const auto model = one_number();
    const auto read = read_infer_head(text, 0, model);
    return read ? "taken" : std::to_string(http_status_of(read.error().code)) + ' ' + read.error().message;
}

TEST(oip_stock, an_output_in_a_region_has_no_parameters) {
    const auto model = one_number();
    const float value = 2;
    const auto payload = std::as_bytes(std::span{&value, 1});
    const auto outputs = answered_tensors(model, {}, payload).value();
    const output_choice in_region{0, true, region_part{"r", 64, 4}};
    const auto made = make_answer(model, "", {&in_region, 1}, outputs, payload).value();
    EXPECT_EQ(json::parse(made.head)["outputs"][0], json::parse(R"({"name":"y","datatype":"FP32","shape":[1]})"))
        << "Triton's C++ client takes parameters for those of binary data";
    EXPECT_TRUE(made.tensors.empty());
}

TEST(oip_stock, health_is_a_document) {
    EXPECT_EQ(json::parse(live_document()), json::parse(R"({"live":true})"));
    EXPECT_EQ(json::parse(ready_document()), json::parse(R"({"ready":true})"));
    EXPECT_EQ(json::parse(model_ready_document("a\"b")), json::parse(R"({"name":"a\"b","ready":true})"));
}

TEST(oip_stock, a_target_may_be_a_whole_uri) {
    EXPECT_EQ(find_route("http://door:8000/v2/health/live").value().what, action::live);
    EXPECT_EQ(find_route("HTTPS://door/v2").value().what, action::server_metadata);
    EXPECT_EQ(find_route("http://door/v2/models/m/infer?a=b").value().model, "m");
    for (const char* none :
         {"http://", "http://door", "http://door?x=/v2/health/live", "ftp://door/v2", "http:/v2", "*", "door:80"})
        EXPECT_EQ(find_route(none).code(), status::not_found) << none;
}

TEST(oip_stock, names_have_any_characters_of_a_path) {
    EXPECT_EQ(find_route("/v2/models/gr%C3%B6%C3%9Fe%2F1/infer").value().model, "größe/1");
    EXPECT_EQ(find_route("/v2/models/größe").value().model, "größe");
    EXPECT_EQ(find_route("/v2/systemsharedmemory/region/a%2Fb/status").value().region, "a/b");
    const auto named = [](const std::string& name, const std::string& target) {
        auto model = one_number();
        model.name = name;
        model.target = target;
        return checked(std::move(model)).ok();
    };
    EXPECT_TRUE(named("größe/1", "t"));
    EXPECT_FALSE(named("größe", "größe")) << "a server's targets are ASCII";
    for (const char* bad : {"", "a b", "a\n", "\x7f", "\xff", "\xc3", "\xc0\x80"}) EXPECT_FALSE(named(bad, "t")) << bad;
    EXPECT_FALSE(named(std::string(65, 'a'), "t"));
}

TEST(oip_stock, a_sequence_id_of_0_means_no_sequence) {
    for (const char* none : {R"({"sequence_id":0})", R"({"sequence_id":"","sequence_start":false})",
                             R"({"sequence_id":0,"sequence_start":false,"sequence_end":false})"})
        EXPECT_EQ(refused_parameters(json::parse(none)), "taken") << none;
    for (const char* one : {R"({"sequence_id":1})", R"({"sequence_id":"a"})", R"({"sequence_start":true})",
                            R"({"sequence_id":0,"sequence_end":true})", R"({"sequence_id":-1})",
                            R"({"sequence_id":null})", R"({"sequence_start":0})"})
        EXPECT_EQ(refused_parameters(json::parse(one)), "501 this door does not support sequences of requests") << one;
}

TEST(oip_stock, a_wrong_shape_is_reported_beside_the_expected_one) {
    const auto refused = [](const char* shape) {
        const std::string text = R"({"inputs":[{"name":"n","datatype":"FP32","shape":)" + std::string{shape} +
                                 R"(,"parameters":{"binary_data_size":1}}]})";
        return read_infer_head(text, 1, stock_model()).error().message;
    };
    EXPECT_EQ(refused("[3]"), "input 'n': the shape must be [-1,2], not [3]");
    EXPECT_EQ(refused("[1,3,5]"), "input 'n': the shape must be [-1,2], not [1,3,5]");
    EXPECT_EQ(refused("[1,18446744073709551615]"), "input 'n': the shape must be [-1,2], not [1,18446744073709551615]");
}

TEST(oip_stock, an_output_without_elements_is_an_answer) {
    const auto model = stock_model();
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
    EXPECT_FALSE(answered_tensors(one_number(), {}, {})) << "a fixed shape has elements";
}

TEST(oip_stock, the_only_output_may_be_empty_without_a_description) {
    for (const char* open : {R"({"name":"y","datatype":"FP32","shape":[-1,2],"max_bytes":64})",
                             R"({"name":"y","datatype":"BYTES","shape":[-1],"max_bytes":64})"}) {
        const auto model =
            read_description(R"({"name":"m","inputs":[)" + std::string{open} + R"(],"outputs":[)" + open + "]}")
                .value();
        const auto outputs = answered_tensors(model, {}, {});
        ASSERT_TRUE(outputs) << open;
        EXPECT_EQ(size_bytes(outputs.value().front()), 0U);
        EXPECT_FALSE(raw_infer_request(0, model)) << "an input has elements";
    }
}

TEST(oip_stock, numbers_of_16_bits_stand_in_json) {
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

    const std::string tensors = R"([{"name":"h","datatype":"FP16","shape":[3]},
                                    {"name":"b","datatype":"BF16","shape":[2]}])";
    const auto model =
        read_description(R"({"name":"m","inputs":)" + tensors + R"(,"outputs":)" + tensors + "}").value();
    const std::string text = R"({"inputs":[{"name":"h","datatype":"FP16","shape":[3],"data":[1.5,-0.25,65504]},
                                           {"name":"b","datatype":"BF16","shape":[2],"data":[-2,3e38]}]})";
    auto request = read_infer_head(text, 0, model).value();
    ASSERT_TRUE(read_json_inputs(request, model));
    std::vector<std::byte> room(request.payload.bytes());
    write_json_inputs(request, room);
    const auto outputs = answered_tensors(model, {}, room).value();
    const auto made = make_answer(model, "", std::vector<output_choice>{{0, false}, {1, false}}, outputs, room);
    ASSERT_TRUE(made) << made.error().message;
    const json shown = json::parse(made.value().head)["outputs"];
    EXPECT_EQ(shown[0]["data"], json({1.5, -0.25, 65504.0}));
    EXPECT_EQ(shown[1]["data"][0], -2.0);
    EXPECT_NEAR(shown[1]["data"][1].get<double>(), 3e38, 2e36);
}

TEST(oip_stock, generate_passes_over_fields_that_no_input_has) {
    const auto model = one_number();
    for (const char* text : {R"({"x":1,"temperature":0.5,"stream":true,"stop":["a","b"],"tools":{"a":[1,{"b":null}]}})",
                             R"({"max_tokens":16,"x":[1]})"}) {
        auto read = read_generate(text, model);
        ASSERT_TRUE(read) << read.error().message;
        EXPECT_TRUE(read_json_inputs(read.value(), model));
    }
    EXPECT_EQ(read_generate(R"({"y":1})", model).error().message, "the request gives 0 of the model's 1 inputs");
    for (const char* bad : {R"({"x":1,"a":nonsense})", R"({"x":1,"a":[1,]})", R"({"x":1,"a":"\x"})", R"({"x":1,"a":})"})
        EXPECT_EQ(read_generate(bad, model).error().message, "the request is not JSON") << bad;
    const std::string long_field = R"({"x":1,"a":")" + std::string(70'000, 'a') + R"("})";
    EXPECT_FALSE(read_generate(long_field, model)) << "it is parsed, and that takes time";
}

}  // namespace
}  // namespace accel::examples::serving::oip
