// SPDX-License-Identifier: Apache-2.0
// Random models and values, sent each way that the doors know: a server gets the same payload, and a client gets the
// values back.
#include "serving/doors/grpc/infer_inputs.hpp"
#include "serving/doors/grpc/infer_message.hpp"
#include "serving/doors/grpc/writer.hpp"
#include "serving/doors/oip/documents.hpp"
#include "serving/doors/oip/generate.hpp"
#include "serving/doors/oip/infer_answer.hpp"
#include "serving/doors/oip/infer_head.hpp"
#include "serving/doors/oip/model_description.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace accel::examples::serving::oip {
namespace {

using nlohmann::json;

enum class how : std::uint8_t { boolean, is_unsigned, is_signed, half, brain, real, string };

struct kind {
    const char* name;
    std::size_t bytes;   ///< of an element
    std::uint32_t list;  ///< its field of InferTensorContents; 0: it has none
    how is;
};
constexpr kind kinds[] = {
    {"BOOL", 1, 1, how::boolean},       {"UINT8", 1, 4, how::is_unsigned},  {"UINT16", 2, 4, how::is_unsigned},
    {"UINT32", 4, 4, how::is_unsigned}, {"UINT64", 8, 5, how::is_unsigned}, {"INT8", 1, 2, how::is_signed},
    {"INT16", 2, 2, how::is_signed},    {"INT32", 4, 2, how::is_signed},    {"INT64", 8, 3, how::is_signed},
    {"FP16", 2, 0, how::half},          {"BF16", 2, 0, how::brain},         {"FP32", 4, 6, how::real},
    {"FP64", 8, 7, how::real},          {"BYTES", 0, 8, how::string},
};

/// A tensor as its model declares it, and its values as a server and as JSON have them.
struct values {
    kind type{};
    std::string name;
    std::vector<std::int64_t> declared{};  ///< -1: a request says it
    std::vector<std::uint64_t> shape{};
    std::string bytes{};
    json elements = json::array();
};

template <class Number>
void append(std::string& to, Number value, std::size_t bytes = sizeof(Number)) {
    to.append(reinterpret_cast<const char*>(&value), bytes);  // little-endian
}

/// IEEE's binary16 of a number that it holds.
std::uint16_t half_of(double value) {
    if (value == 0) return 0;
    int exponent = 0;
    const double fraction = std::frexp(std::abs(value), &exponent);
    return static_cast<std::uint16_t>((value < 0 ? 0x8000 : 0) + (exponent + 14) * 1024 + (fraction * 2 - 1) * 1024);
}

json nested(const json& flat, const std::vector<std::uint64_t>& shape, std::size_t& next, std::size_t depth = 0) {
    if (depth == shape.size()) return flat[next++];
    json out = json::array();
    for (std::uint64_t i = 0; i < shape[depth]; ++i) out.push_back(nested(flat, shape, next, depth + 1));
    return out;
}

class random_values {
  public:
    explicit random_values(unsigned seed) : random_(seed) {}

    [[nodiscard]] std::size_t below(std::size_t end) { return random_() % end; }
    [[nodiscard]] bool maybe() { return random_() % 2 == 0; }
    [[nodiscard]] std::vector<std::size_t> order(std::size_t count) {
        std::vector<std::size_t> out(count);
        std::iota(out.begin(), out.end(), 0U);
        std::ranges::shuffle(out, random_);
        return out;
    }
    [[nodiscard]] values make(std::size_t number) {
        values out{.type = kinds[below(std::size(kinds))], .name = "t" + std::to_string(number)};
        bool open = false;
        std::uint64_t count = 1;
        for (std::size_t rank = below(4); rank > 0; --rank) {
            const std::uint64_t length = 1 + below(4);
            count *= length;
            out.shape.push_back(length);
            const bool variable = below(3) == 0 && !(open && out.type.is == how::string);
            open = open || variable;
            out.declared.push_back(variable ? -1 : static_cast<std::int64_t>(length));
        }
        for (; count > 0; --count) add_element(out);
        return out;
    }
    [[nodiscard]] json in_json(const values& from) {
        std::size_t next = 0;
        return maybe() ? from.elements : nested(from.elements, from.shape, next);
    }

  private:
    void add_element(values& to) {
        static const std::string strings[] = {
            "", "a", "größe,", "\"\\\n]", std::string("\0[", 2), std::string(300, 'x')};
        const std::size_t size = to.type.bytes;
        const auto real = (static_cast<double>(below(511)) - 255) / 4;  // FP16 and BF16 hold it, too
        // Its ends, what is next to 0, or any.
        const std::uint64_t any = (std::uint64_t{random_()} << 32) + random_();
        const std::uint64_t top = std::uint64_t{1} << (8 * std::max<std::size_t>(size, 1) - 1);
        const std::uint64_t number = std::array{any, any, top, top - 1, top + (top - 1), std::uint64_t{0}}[below(6)];
        const unsigned unused = 64 - 8 * static_cast<unsigned>(size);
        switch (to.type.is) {
            case how::boolean:
                to.elements.push_back(any % 2 == 1);
                return append(to.bytes, any % 2, 1);
            case how::is_unsigned:
                to.elements.push_back(number << unused >> unused);
                return append(to.bytes, number, size);
            case how::is_signed:
                to.elements.push_back(static_cast<std::int64_t>(number << unused) >> unused);
                return append(to.bytes, number, size);
            case how::string: {
                const std::string& text = strings[below(std::size(strings))];
                to.elements.push_back(text);
                append(to.bytes, static_cast<std::uint32_t>(text.size()));
                to.bytes += text;
                return;
            }
            default:
                to.elements.push_back(real);
        }
        const auto single = static_cast<float>(real);
        if (to.type.is == how::half) return append(to.bytes, half_of(real));
        if (to.type.is == how::brain) return void(to.bytes.append(reinterpret_cast<const char*>(&single) + 2, 2));
        size == 8 ? append(to.bytes, real) : append(to.bytes, single);
    }

    std::mt19937 random_;
};

/// Each at a multiple of 64, with zeros between them.
std::string laid_out(const std::vector<values>& all) {
    std::string out;
    for (const values& each : all) {
        out.resize((out.size() + 63) / 64 * 64);
        out += each.bytes;
    }
    return out;
}

/// It takes these values and gives them.
model_description model_of(const std::vector<values>& all, random_values& random) {
    json tensors = json::array();
    for (const values& each : all) {
        tensors.push_back({{"name", each.name}, {"datatype", each.type.name}, {"shape", each.declared}});
        if (each.type.is == how::string || std::ranges::count(each.declared, -1) > 0)
            tensors.back()["max_bytes"] = each.bytes.size() + random.below(2) * 100;
    }
    return read_description(json{{"name", "m"}, {"inputs", tensors}, {"outputs", tensors}}.dump()).value();
}

std::string text_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// What a server gets of a request with JSON, read in pieces. `binary`: what follows the JSON.
std::string payload_of(infer_request& request, const model_description& model, std::string_view binary,
                       random_values& random) {
    json_inputs reader{request, model};
    for (bool more = true; more;) {
        const auto step = reader.step(1 + random.below(40));
        if (!step) return step.error().message;
        more = step.value();
    }
    std::vector<std::byte> room(request.payload.bytes(), std::byte{0xee});
    write_json_inputs(request, room);
    for (const std::span<std::byte> place : binary_places(request, room)) {
        std::memcpy(place.data(), binary.data(), place.size());
        binary.remove_prefix(place.size());
    }
    EXPECT_TRUE(request.payload.check_strings(model, room));
    return text_of(room);
}

/// What a server is told that it gets.
std::vector<tensor> send_json(const model_description& model, const std::vector<values>& all, random_values& random) {
    json inputs = json::array();
    std::string binary;
    for (const std::size_t i : random.order(all.size())) {
        json one{{"name", all[i].name}, {"datatype", all[i].type.name}, {"shape", all[i].shape}};
        if (random.below(3) == 0) {
            one["parameters"]["binary_data_size"] = all[i].bytes.size();
            binary += all[i].bytes;
        } else {
            one["data"] = random.in_json(all[i]);
        }
        inputs.push_back(std::move(one));
    }
    const std::string text = json{{"id", "7"}, {"inputs", inputs}}.dump(random.maybe() ? -1 : 1);
    auto request = read_infer_head(text, binary.size(), model);
    EXPECT_TRUE(request) << request.error().message << text;
    if (!request) return {};
    EXPECT_EQ(request->id, "7");
    EXPECT_EQ(payload_of(request.value(), model, binary, random), laid_out(all)) << text;
    return {request->payload.tensors().begin(), request->payload.tensors().end()};
}

void expect_answer(const model_description& model, const std::vector<values>& all, std::span<const tensor> said,
                   random_values& random) {
    const std::string lies = laid_out(all);
    const auto payload = std::as_bytes(std::span{lies});
    const auto outputs = answered_tensors(model, said, payload);
    ASSERT_TRUE(outputs) << outputs.error().message;
    std::vector<output_choice> chosen;
    for (const std::size_t i : random.order(all.size())) chosen.push_back({i, random.maybe()});
    chosen.resize(1 + random.below(all.size()));
    answer_maker maker{model, "7", chosen, outputs.value(), payload};
    for (auto more = maker.step(1 + random.below(40)); more.value(); more = maker.step(1 + random.below(40))) {
    }
    const json shown = json::parse(maker.made().head);
    EXPECT_EQ(shown["id"], "7");
    ASSERT_EQ(shown["outputs"].size(), chosen.size());
    std::string binary;
    for (const auto& each : maker.made().tensors) binary += text_of(each);
    std::string wanted;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
        const values& one = all[chosen[i].index];
        json expected{{"name", one.name}, {"datatype", one.type.name}, {"shape", one.shape}};
        if (chosen[i].binary) {
            expected["parameters"]["binary_data_size"] = one.bytes.size();
            wanted += one.bytes;
        } else {
            expected["data"] = one.elements;
        }
        EXPECT_EQ(shown["outputs"][i], expected);
    }
    EXPECT_EQ(binary, wanted);
    EXPECT_EQ(maker.made().binary_bytes, wanted.size());
    EXPECT_TRUE(maker.made().tensors.empty() || (maker.made().tensors[0].data() >= payload.data() &&
                                                 maker.made().tensors[0].data() <= payload.data() + payload.size()))
        << "not a copy";
}

/// Elements in their list, some one by one, in as many fields as `random` likes.
void add_contents(wire::writer& to, const values& from, random_values& random) {
    std::size_t at = 0;  // of bytes
    for (std::size_t next = 0; next < from.elements.size();) {
        const std::size_t end = next + 1 + random.below(from.elements.size() - next);
        wire::writer contents;
        std::vector<std::uint64_t> numbers;
        if (from.type.is == how::real)
            contents.entry(from.type.list, from.bytes.substr(at, (end - next) * from.type.bytes));
        at += (end - next) * from.type.bytes;
        for (; next < end; ++next) {
            const json& element = from.elements[next];
            if (element.is_string()) contents.entry(from.type.list, element.get_ref<const std::string&>());
            if (element.is_boolean()) numbers.push_back(element.get<bool>() ? 1 : 0);
            if (element.is_number_integer()) numbers.push_back(element.get<std::uint64_t>());
        }
        if (random.maybe())
            contents.packed(from.type.list, numbers);
        else
            for (const std::uint64_t each : numbers) contents.present(from.type.list, each);
        to.message(5, contents);
    }
}

void send_message(const model_description& model, const std::vector<values>& all, random_values& random) {
    const bool raw = random.maybe() || std::ranges::any_of(all, [](const values& each) { return each.type.list == 0; });
    wire::writer out;
    std::string contents;
    for (const std::size_t i : random.order(all.size())) {
        wire::writer one;
        one.text(1, all[i].name);
        one.text(2, all[i].type.name);
        one.packed(3, all[i].shape);
        if (!raw) add_contents(one, all[i], random);
        out.message(5, one);
        if (raw) out.entry(7, all[i].bytes);
    }
    const std::string text = out.take();
    std::vector<wire::slice> slices;
    for (auto rest = std::as_bytes(std::span{text}); !rest.empty(); rest = rest.subspan(slices.back().size()))
        slices.push_back(rest.first(std::min(random.below(2) * random.below(100), rest.size())));
    const auto message = wire::read_infer_message(slices);
    ASSERT_TRUE(message) << message.error().message;
    auto request = wire::fit_to_model(message.value(), model);
    ASSERT_TRUE(request) << request.error().message;
    std::vector<std::byte> room(request->payload.bytes(), std::byte{0xee});
    wire::write_inputs(request.value(), model, room);
    EXPECT_EQ(text_of(room), laid_out(all));
}

/// Fields say no shapes, so each tensor has one open dimension at most.
void generate(const model_description& model, const std::vector<values>& all, std::span<const tensor> said,
              random_values& random) {
    for (const values& each : all)
        if (std::ranges::count(each.declared, -1) > 1) return;
    json asked{{"id", "7"}, {"temperature", 0.5}};
    json wanted{{"id", "7"}, {"model_name", "m"}, {"model_version", "1"}};
    for (const values& each : all) {
        const bool alone = each.elements.size() == 1;
        asked[each.name] = alone && random.maybe() ? each.elements[0] : random.in_json(each);
        wanted[each.name] = alone ? each.elements[0] : each.elements;
    }
    const std::string text = asked.dump();
    auto request = read_generate(text, model);
    ASSERT_TRUE(request) << request.error().message << text;
    const std::string payload = payload_of(request.value(), model, {}, random);
    EXPECT_EQ(payload, laid_out(all)) << text;
    const auto document = generate_document(model, "7", said, std::as_bytes(std::span{payload}));
    ASSERT_TRUE(document) << document.error().message;
    EXPECT_EQ(json::parse(document.value()), wanted);
}

void expect_documents(const model_description& model, const std::vector<values>& all) {
    const json metadata = json::parse(model_metadata(model));
    const json configuration = json::parse(model_configuration(model));
    for (std::size_t i = 0; i < all.size(); ++i) {
        const std::string type = all[i].type.is == how::string ? "STRING" : all[i].type.name;
        const json shown{{"name", all[i].name}, {"datatype", all[i].type.name}, {"shape", all[i].declared}};
        const json set{{"name", all[i].name}, {"data_type", "TYPE_" + type}, {"dims", all[i].declared}};
        for (const char* list : {"inputs", "outputs"}) EXPECT_EQ(metadata[list][i], shown);
        for (const char* list : {"input", "output"}) EXPECT_EQ(configuration[list][i], set);
    }
}

TEST(oip_values, values_arrive_and_come_back_each_way) {
    for (unsigned seed = 0; seed < 500 && !::testing::Test::HasFailure(); ++seed) {
        SCOPED_TRACE(seed);
        random_values random(seed);
        std::vector<values> all;
        for (std::size_t i = 1 + random.below(4); i > 0; --i) all.push_back(random.make(i));
        const model_description model = model_of(all, random);
        const std::vector<tensor> said = send_json(model, all, random);
        expect_answer(model, all, said, random);
        send_message(model, all, random);
        generate(model, all, said, random);
        expect_documents(model, all);
    }
}

}  // namespace
}  // namespace accel::examples::serving::oip
