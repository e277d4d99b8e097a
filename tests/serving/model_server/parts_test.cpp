// SPDX-License-Identifier: Apache-2.0
#include "model_rig.hpp"
#include "serving/model_server/contexts.hpp"
#include "serving/model_server/control.hpp"
#include "serving/model_server/settings.hpp"
#include "serving/model_server/warm_up.hpp"
#include "serving/models/digits_model.hpp"
#include "serving/models/shapes_file.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <numeric>
#include <set>
#include <utility>

#include <gmock/gmock.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace accel::tests {
namespace {

using ::testing::HasSubstr;

TEST(model_table, known_models_have_different_numbers) {
    std::set<std::uint32_t> numbers;
    for (const model_shapes& each : known_models()) {
        EXPECT_TRUE(is_target_name(each.name));
        EXPECT_TRUE(numbers.insert(target_of(each.name).number).second) << each.name;
        EXPECT_EQ(find_model(each.name), &each);
    }
    EXPECT_EQ(find_model("no such"), nullptr);
    EXPECT_EQ(payload_bytes(find_model("resnet50")->inputs), 602'112U);
    EXPECT_EQ(image_bytes(find_model("resnet50")->image), 819'000U);
    EXPECT_EQ(payload_bytes(find_model("deeplab_v3")->outputs), 45'427'200U);
}

TEST(model_spec, a_model_spec_names_a_model_and_its_source) {
    const auto read = [](const char* text) -> std::string {
        auto spec = parse_model_spec(text);
        if (!spec) return spec.error().message;
        const std::array names{"builtin", "synthetic", "file "};
        return spec->name + ": " + names.at(static_cast<std::size_t>(spec->from)) + spec->path;
    };
    for (const auto& [text, wanted] : std::initializer_list<std::pair<const char*, const char*>>{
             {"digits", "digits: builtin"},
             {"digits=builtin", "digits: builtin"},
             {"digits=synthetic", "digits: synthetic"},
             {"resnet50", "resnet50: synthetic"},
             {"resnet50=a=b.pt2", "resnet50: file a=b.pt2"},
             {"digits=a.pt", "digits: file a.pt"},
             {"alexnet", "there is no model 'alexnet': choose from"},
             {"", "there is no model '': choose from"},
             {"resnet50=", "'' is not a valid source of a model"},
             {"resnet50=onnx", "'onnx' is not a valid source of a model"},
             {"resnet50=builtin", "'resnet50' is not built in"}})
        EXPECT_THAT(read(text), HasSubstr(wanted)) << text;
}

TEST(synthetic_model, answers_depend_on_every_byte) {
    bytes input = some_bytes(1001, 1);
    bytes first(77), second(77);
    synthetic_answer(input, first);
    for (const std::size_t at : {std::size_t{0}, std::size_t{500}, input.size() - 1}) {
        input[at] ^= std::byte{1};
        synthetic_answer(input, second);
        EXPECT_NE(first, second) << at;
        input[at] ^= std::byte{1};
    }
    synthetic_answer(input, second);
    EXPECT_EQ(first, second);
}

TEST(synthetic_model, synthetic_models_take_the_time_of_their_work_on_one_accelerator) {
    const model_shapes& shapes = *find_model("resnet50");
    EXPECT_EQ(synthetic_duration(shapes, 1, 4100), 1ms);
    EXPECT_EQ(synthetic_duration(shapes, 3, 410), 30ms);
    const auto one = make_synthetic(shapes, {410, synthetic_pace::wait});
    const auto other = make_synthetic(shapes, {410, synthetic_pace::wait});
    const auto run = [&](model& which) {
        bytes input(payload_bytes(shapes.inputs)), output(payload_bytes(shapes.outputs));
        const model_job job{input, output};
        EXPECT_TRUE(which.infer(nullptr, {&job, 1}));
    };
    const auto start = std::chrono::steady_clock::now();
    std::thread beside([&] { run(*other); });
    run(*one);
    beside.join();
    EXPECT_GE(std::chrono::steady_clock::now() - start, 20ms);
}

TEST(digits_model, the_digits_model_takes_frames_and_tensors) {
    const auto model = std::move(make_digits()).value();
    bytes input(256), output(40);
    const auto refused = model->preprocess(nullptr, bytes(921'600), input);
    EXPECT_EQ(refused.code(), status::invalid_argument);
    const model_job job{input, output};
    ASSERT_TRUE(model->infer(nullptr, {&job, 1}));
    std::array<float, 10> scores{};
    std::memcpy(scores.data(), output.data(), sizeof scores);
    EXPECT_NEAR(std::accumulate(scores.begin(), scores.end(), 0.0F), 1, 1e-5);
}

/// What the server makes of a description with these inputs and outputs.
result<model_shapes> shapes_from(const std::string& inputs, const std::string& outputs, const std::string& more = "") {
    auto described = oip::read_description(R"({"name":"shown","target":"mine","inputs":[)" + inputs +
                                           R"(],"outputs":[)" + outputs + "]" + more + "}");
    if (!described) return described.error();
    return shapes_of(*described);
}

constexpr const char* four_floats = R"({"name":"x","datatype":"FP32","shape":[4]})";

TEST(shapes_file, a_description_says_what_a_model_takes) {
    auto shapes = shapes_from(R"({"name":"a","datatype":"FP16","shape":[1,3,4]},
                                       {"name":"b","datatype":"INT64","shape":[2],"values":9})",
                              R"({"name":"y","datatype":"FP32","shape":[]})", R"(,"gflops":2,"image":[10,20])");
    ASSERT_TRUE(shapes) << shapes.error().message;
    EXPECT_EQ(shapes->name, "mine") << "the name at the server";
    EXPECT_EQ(shapes->inputs[0].type.bits, 16);
    EXPECT_EQ(shapes->inputs[1].offset, 0U);
    EXPECT_EQ(shapes->values, (std::vector<std::uint64_t>{0, 9}));
    EXPECT_EQ(payload_bytes(shapes->inputs), 64U + 16U);
    EXPECT_EQ(payload_bytes(shapes->outputs), 4U);
    EXPECT_TRUE(shapes->open.empty());
    EXPECT_EQ(shapes->image.width, 20U);
    EXPECT_EQ(shapes->gflops, 2);
}

TEST(shapes_file, open_outputs_are_as_long_as_their_room) {
    auto shapes = shapes_from(four_floats, R"({"name":"y","datatype":"FP32","shape":[2,-1,3],"max_bytes":71},
                                                    {"name":"z","datatype":"INT64","shape":[1]})");
    ASSERT_TRUE(shapes) << shapes.error().message;
    EXPECT_EQ(shapes->outputs[0].shape[1], 2U);
    EXPECT_EQ(shapes->open, (std::vector<std::uint32_t>{1, max_tensor_rank}));
}

TEST(shapes_file, an_error_names_what_the_server_cannot_serve) {
    const std::string open = R"({"name":"o","datatype":"FP32","shape":[-1,-1],"max_bytes":64})";
    const std::string narrow = R"({"name":"n","datatype":"FP32","shape":[-1,2],"max_bytes":7})";
    const std::string strings = R"({"name":"s","datatype":"BYTES","shape":[1],"max_bytes":64})";
    for (const auto& [inputs, outputs, more, said] : std::vector<std::array<std::string, 4>>{
             {open, four_floats, "", "input 'o' has a dimension of -1: write the length that you send"},
             {four_floats, open, "", "tensor 'o' has several dimensions of -1"},
             {four_floats, narrow, "", "tensor 'n': max_bytes has no room for one row"},
             {strings, four_floats, "", "tensor 's' has strings (BYTES)"},
             {four_floats, strings, "", "tensor 's' has strings (BYTES)"},
             {four_floats, four_floats, R"(,"decoupled":true)", "the model is decoupled"}})
        EXPECT_THAT(shapes_from(inputs, outputs, more).error().message, HasSubstr(said));
}

/// A file that goes with it.
class text_file {
  public:
    explicit text_file(const std::string& text)
        : path_((std::filesystem::temp_directory_path() / ("shapes-" + std::to_string(::getpid()))).string()) {
        std::ofstream(path_) << text;
    }
    text_file(const text_file&) = delete;
    text_file& operator=(const text_file&) = delete;
    ~text_file() { std::filesystem::remove(path_); }
    [[nodiscard]] const std::string& path() const noexcept { return path_; }

  private:
    std::string path_;
};

TEST(shapes_file, a_file_becomes_a_model_once) {
    const text_file file(R"({"name":"of-a-file","inputs":[)" + std::string{four_floats} + R"(],"outputs":[)" +
                         four_floats + "]} // comments are good");
    EXPECT_EQ(add_shapes_file(file.path()).value(), "of-a-file");
    EXPECT_NE(find_model("of-a-file"), nullptr);
    EXPECT_THAT(add_shapes_file(file.path()).error().message,
                HasSubstr(file.path() + ": name: there is a model 'of-a-file' already"));
}

TEST(shapes_file, a_mistake_in_a_file_is_named_with_its_place) {
    for (const auto& [text, said] : std::initializer_list<std::pair<std::string, const char*>>{
             {"", ": parse error at line 1"},
             {"[]", ": write an object"},
             {"{\n\"name\" \"m\"}", ": parse error at line 2"},
             {R"({"name":"m","inputs":[],"inputs":[]})", ": inputs: this key occurs twice in one object"},
             {std::string(40, '['), ": it is nested deeper than 16 levels"},
             {std::string((std::size_t{1} << 20) + 1, ' '), ": is longer than 1 MiB"},
             {R"({"name":"m","input":[]})", ": input: this key is unknown; the nearest known key is 'inputs'"},
             {R"({"name":"m","inputs":[{"name":"x","datatype":"FP32","shape":[1.5]}]})",
              ": inputs[0].shape: a dimension"},
             {R"({"name":"m","inputs":[)" + std::string{four_floats} + "]}", ": a model must have 1 to 64 inputs"},
             {R"({"name":"m","decoupled":true,"inputs":[)" + std::string{four_floats} + R"(],"outputs":[)" +
                  four_floats + "]}",
              ": the model is decoupled"}}) {
        const text_file file(text);
        EXPECT_THAT(add_shapes_file(file.path()).error().message, HasSubstr(file.path() + said));
    }
    EXPECT_EQ(add_shapes_file("/nothing/here").error().message, "/nothing/here: cannot be read");
    EXPECT_EQ(add_shapes_file("/").error().message, "/: cannot be read");
}

TEST(request_check, several_tensors_must_lie_consecutively_aligned_to_64_bytes) {
    const model_shapes shapes{"two", 0, {}, {{{}, 1, 0, {3}}, {{}, 1, 0, {5}}}, {{{}, 1, 0, {1}}}};
    const request_check check(shapes);
    EXPECT_EQ(check.input_bytes(), 64U + 20U);
    alignas(64) std::array<std::byte, 256> payload{};
    std::vector<tensor> given = inputs_of(shapes);
    request_form form;
    refusal why;
    EXPECT_TRUE(check.look({status::ok, given, payload.data(), 4}, form, why));
    given[1].offset = 68;
    EXPECT_FALSE(check.look({status::ok, given, payload.data(), 4}, form, why));
    EXPECT_THAT(std::string{why.text()}, HasSubstr("tensor 1 is at 68"));
    given[1].offset = 64;
    EXPECT_FALSE(check.look({status::ok, given, payload.data() + 4, 4}, form, why));
    EXPECT_THAT(std::string{why.text()}, HasSubstr("align them to 8 bytes"));
}

TEST(request_check, each_refusal_says_what_is_wrong_and_what_the_model_takes) {
    const model_shapes shapes{"mine",
                              0,
                              {2, 3},
                              {{{}, 1, 0, {3}}, {{}, 2, 0, {5, 7}}, {{type_code::signed_integer, 8, 1}, 0, 0, {}}},
                              {{{}, 1, 0, {4}}}};
    const request_check check(shapes);
    alignas(64) const std::array<std::byte, 512> payload{};
    const std::vector<tensor> good = inputs_of(shapes);
    request_form form;
    const auto said = [&](const request_parts& request) {
        refusal why;
        const bool taken = check.look(request, form, why);
        EXPECT_EQ(taken, why.code() == status::ok);
        EXPECT_EQ(taken, why.text().empty());
        return std::string{to_string(why.code())} + ": " + std::string{why.text()};
    };
    const auto of = [&](const std::vector<tensor>& given) { return said({status::ok, given, payload.data(), 16}); };
    const auto with = [&](std::size_t index, const auto& change) {
        std::vector<tensor> given = good;
        change(given[index]);
        return of(given);
    };
    EXPECT_EQ(of(good), "ok: ");
    EXPECT_FALSE(form.raw);
    EXPECT_EQ(form.length, 64U + 192 + 1);
    const std::string none =
        "invalid_argument: the request describes no tensors: 'mine' takes float32 3 and 2 more, or an image of uint8 "
        "2x3x3";
    EXPECT_EQ(of({}), none);
    EXPECT_EQ(said({status::not_found, {}, payload.data(), 16}), none);
    EXPECT_EQ(said({status::peer_lost, {}, payload.data(), 16}), "peer_lost: the client has disconnected");
    EXPECT_EQ(of({good[0], good[1]}), "invalid_argument: 'mine' takes 3 tensors, but the request has 2");
    EXPECT_EQ(said({status::ok, good, payload.data(), 15}),
              "message_too_large: the answer of 'mine' has 16 bytes, but the call has room for 15: connect with "
              "response_bytes=16");
    for (const auto& [type, name] :
         std::initializer_list<std::pair<data_type, const char*>>{{{type_code::signed_integer, 16, 1}, "int16"},
                                                                  {{type_code::unsigned_integer, 64, 1}, "uint64"},
                                                                  {{type_code::floating, 16, 1}, "float16"},
                                                                  {{type_code::floating, 32, 4}, "float32x4"},
                                                                  {{type_code::bfloat, 16, 1}, "bfloat16"},
                                                                  {{type_code::complex, 64, 1}, "complex64"},
                                                                  {{type_code::boolean, 8, 1}, "bool8"},
                                                                  {{type_code::opaque_handle, 8, 1}, "type8"}})
        EXPECT_EQ(
            with(0, [type = type](tensor& one) { one.type = type; }),
            "invalid_argument: tensor 0 is " + std::string{name} + ": 'mine' takes float32, or uint8 as a raw image");
    EXPECT_EQ(with(2, [](tensor& one) { one.type = {}; }),
              "invalid_argument: tensor 2 is float32: 'mine' takes int8, or uint8 as a raw image");
    EXPECT_EQ(with(2, [](tensor& one) { one.shape[one.rank++] = 1; }),
              "invalid_argument: tensor 2 has 1 dimensions: 'mine' takes 0, as in scalar");
    EXPECT_EQ(with(1, [](tensor& one) { one.shape[1] = 8; }),
              "invalid_argument: tensor 1 has the shape 5x8: 'mine' takes 5x7");
    EXPECT_EQ(with(2, [](tensor& one) { one.offset = 320; }),
              "invalid_argument: tensor 2 is at 320: 'mine' takes its tensors consecutively, this one at 256");
    tensor image = image_of(shapes);
    image.offset = 7;
    EXPECT_EQ(of({image}), "ok: ");
    EXPECT_TRUE(form.raw);
    EXPECT_EQ(form.offset, 7U);
    EXPECT_EQ(form.length, 18U);
    EXPECT_EQ(of({image, image}), "invalid_argument: 'mine' takes 1 image, but the request has 2");
    refusal cut;
    cut.set(status::ok, std::string(241, 'x'));
    EXPECT_EQ(cut.text(), std::string(240, 'x'));
}

/// Settings that are good but for one.
settings changed(void (*change)(settings&)) {
    settings out;
    out.uris = {"tcp://a:1"};
    out.models = {"digits"};
    change(out);
    return out;
}

TEST(model_server_settings, contradicting_settings_are_named) {
    for (const auto& [change, said] : std::initializer_list<std::pair<void (*)(settings&), const char*>>{
             {[](settings&) {}, ""},
             {[](settings& to) { to.streams.per_client = true; }, "--streams client needs --on gpu"},
             {[](settings& to) { to.max_batch = 4; }, ""},
             {[](settings& to) { to.on = execution::gpu, to.streams.per_client = true; }, ""},
             {[](settings& to) { to.on = execution::gpu, to.max_batch = 4; }, "--max-batch needs --on host"},
             {[](settings& to) { to.on = execution::gpu_resident, to.max_batch = 4; }, "--max-batch needs --on host"},
             {[](settings& to) { to.on = execution::gpu_resident; }, ""},
             {[](settings& to) { to.on = execution::gpu_resident, to.models.clear(); }, "one model at one URI"},
             {[](settings& to) { to.on = execution::gpu_resident, to.uris.emplace_back("b"); }, "one model at one URI"},
             {[](settings& to) { to.on = execution::gpu_resident, to.streams.per_client = true; }, "a recorded graph"},
             {[](settings& to) { to.on = execution::gpu_resident, to.control = true; }, "--control and --warm-up"},
             {[](settings& to) { to.on = execution::gpu_resident, to.warm_up = 1; }, "--control and --warm-up"},
             {[](settings& to) { to.on = execution::gpu, to.resident_raw = true; }, "--resident-raw needs"},
             {[](settings& to) { to.contexts = 2; }, ""},
             {[](settings& to) { to.control = true; }, ""},
             {[](settings& to) { to.contexts = 2, to.control = true; }, "--control needs a single process"}}) {
        const std::string seen = contradiction_in(changed(change));
        EXPECT_TRUE(*said == '\0' ? seen.empty() : seen.find(said) != seen.npos) << seen << " instead of " << said;
    }
    EXPECT_THAT(specs_of(changed([](settings& to) { to.models.emplace_back("digits=synthetic"); })).error().message,
                HasSubstr("given twice"));
    EXPECT_TRUE(parse_streams("client")->per_client);
    for (const std::uint32_t number : {1U, 256U}) EXPECT_EQ(parse_streams(std::to_string(number))->number, number);
    for (const char* text : {"", "0", "257", "8x", "clients", "-1"}) EXPECT_FALSE(parse_streams(text)) << text;
}

TEST(contexts, contexts_listen_at_consecutive_ports) {
    EXPECT_EQ(uri_of_context("tcp://h:5555?insecure=true", 2, 1).value(), "tcp://h:5557?insecure=true");
    EXPECT_EQ(uri_of_context("zmq://[::1]:5555", 1, 2).value(), "zmq://[::1]:5557");
    EXPECT_EQ(uri_of_context("tcp://h:0", 3, 1).value(), "tcp://h:0");
    EXPECT_EQ(uri_of_context("shm://name?slots=2", 3, 1).value(), "shm://name-3?slots=2");
    EXPECT_EQ(uri_of_context("tcp://h:65535", 1, 1).code(), status::invalid_argument);
    EXPECT_EQ(port_stride({"tcp://h:1", "zmq://h:2"}), 2U);
}

class model_control : public model_rig {};

TEST_P(model_control, control_lines_load_and_unload_models) {
    serve({"digits"});
    EXPECT_EQ(obey(*registry, "list"), "models: digits");
    EXPECT_EQ(obey(*registry, "load resnet50=synthetic\r"), "loaded resnet50");
    EXPECT_THAT(obey(*registry, "load resnet50"), HasSubstr("error: 'resnet50' is already loaded"));
    EXPECT_EQ(obey(*registry, "unload resnet50"), "unloaded resnet50");
    EXPECT_EQ(obey(*registry, "unload resnet50"), "error: 'resnet50' is not loaded");
    EXPECT_THAT(obey(*registry, "drop digits"), HasSubstr("is not a valid command"));
    EXPECT_EQ(obey(*registry, ""), "");
}

TEST_P(model_control, warm_up_requests_are_not_counted) {
    serve({"digits", "mobilenet_v3", "super_resolution"});
    const std::string where = running->endpoints().front() + "?insecure=true";
    for (const std::uint32_t count : {10U, 11U}) {
        const auto warmed =
            warm_up(ctx, GetParam() == "tcp" ? where : running->endpoints().front(), registry->names(), count);
        ASSERT_TRUE(warmed) << warmed.error().message;
    }
    for (const auto& each : registry->statistics()) {
        const bool takes_images = each.name != "super_resolution";
        EXPECT_EQ(each.seen.requests, takes_images ? 21U + 1 + 2 : 21U) << "tensors, and a tenth as many images";
        EXPECT_EQ(each.seen.errors, each.name == "digits" ? 3U : 0U) << "an image of zeros has no digit";
    }
    registry->forget_statistics();
    for (const auto& each : registry->statistics()) {
        EXPECT_EQ(each.seen.requests, 0U) << each.name;
        EXPECT_EQ(each.seen.errors, 0U) << each.name;
    }
}

TEST_P(model_control, a_warm_up_that_fails_says_why) {
    serve({"digits"});
    const std::string where = running->endpoints().front() + (GetParam() == "tcp" ? "?insecure=true" : "");
    const auto warmed = warm_up(ctx, where, {"digits", "resnet50"}, 1);
    EXPECT_EQ(warmed.code(), status::not_found);
    EXPECT_EQ(warmed.error().message, "the warm-up failed: the model 'resnet50' is not loaded");
    EXPECT_FALSE(warm_up(ctx, "local://nobody", {"digits"}, 1));
}

/// Written to the control's descriptor in these pieces.
TEST_P(model_control, lines_are_obeyed_in_order_however_they_arrive) {
    serve({"digits"});
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe(ends.data()), 0);
    const auto write = [&](std::string_view text) {
        ASSERT_EQ(::write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
    };
    const auto unread = [&] {
        int bytes = 0;
        EXPECT_EQ(::ioctl(ends[0], FIONREAD, &bytes), 0);
        return static_cast<std::size_t>(bytes);
    };
    const auto has = [&](std::size_t models) { return eventually([&] { return registry->names().size() == models; }); };
    ::testing::internal::CaptureStdout();
    {
        const control commands(*registry, ends[0]);
        write("load res");
        write("net50\nlist\n\nunlo");
        EXPECT_TRUE(has(2));
        write("ad resnet50\r\nload resnet50" + std::string(4096 - 13, ' '));
        EXPECT_TRUE(has(1));
        write("\n");
        EXPECT_TRUE(has(2)) << "a line of 4096 bytes";
        write("nothing\nunload resnet50\n");
        EXPECT_TRUE(has(1));
        const std::string after_the_end = "\nload resnet50\n";
        write(std::string(4097, 'x') + after_the_end);
        EXPECT_TRUE(eventually([&] { return unread() <= after_the_end.size(); }));
    }
    EXPECT_EQ(::testing::internal::GetCapturedStdout(),
              "loaded resnet50\nmodels: resnet50, digits\nunloaded resnet50\nloaded resnet50\n"
              "error: 'nothing' is not a valid command: write 'load NAME[=SPEC]', 'unload NAME' or 'list'\n"
              "unloaded resnet50\nerror: a line is longer than 4096 bytes, so the control ends here\n");
    for (const int each : ends) ::close(each);
}

ACCEL_MODELS_OVER_LOCAL_AND_TCP(model_control);

}  // namespace
}  // namespace accel::tests
