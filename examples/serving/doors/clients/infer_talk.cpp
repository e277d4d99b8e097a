// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/clients/infer_talk.hpp"

#include "serving/doors/clients/http_wire.hpp"
#include "serving/doors/grpc/fields.hpp"
#include "serving/doors/grpc/writer.hpp"

#include <array>
#include <utility>

namespace accel::examples::serving::doors::clients {
namespace {

std::string_view text_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class http_inferences final : public infer_talk {
  public:
    explicit http_inferences(const vector_model& to) {
        const std::string bytes = std::to_string(to.size * sizeof(float));
        json_ = R"({"inputs":[{"name":"x","datatype":"FP32","shape":[)" + std::to_string(to.size) +
                R"(],"parameters":{"binary_data_size":)" + bytes + R"(}}],"parameters":{"binary_data_output":true}})";
        head_ = "POST /v2/models/" + to.name + "/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
                std::to_string(json_.size() + to.size * sizeof(float)) +
                "\r\nInference-Header-Content-Length: " + std::to_string(json_.size()) + "\r\n\r\n";
    }
    void ask(std::span<const std::byte> elements) override {
        wire_.ask(head_ + json_ + std::string{text_of(elements)});
    }
    bool give_up() override { return false; }
    [[nodiscard]] std::string_view unsent() const override { return wire_.unsent(); }
    void sent(std::size_t count) override { wire_.sent(count); }
    bool take(std::string_view arrived) override { return wire_.take(arrived); }
    [[nodiscard]] bool ended() const override { return wire_.ended(); }
    [[nodiscard]] std::string_view elements() const override {
        const auto json = wire_.field("Inference-Header-Content-Length");
        if (wire_.status() != 200 || !json || decimal(*json) > wire_.body().size()) return {};
        return wire_.body().substr(decimal(*json));
    }
    [[nodiscard]] std::string complaint() const override {
        return std::to_string(wire_.status()) + ' ' + std::string{wire_.body().substr(0, 200)};
    }

  private:
    std::string json_;
    std::string head_;
    http_wire wire_;
};

class grpc_inferences final : public infer_talk {
  public:
    grpc_inferences(vector_model to, grpc_flow flow) : to_(std::move(to)), wire_(flow) {}
    void ask(std::span<const std::byte> elements) override {
        wire_.open(infer_path);
        wire_.send_message(infer_message(to_, elements));
    }
    bool give_up() override {
        wire_.reset();
        return true;
    }
    [[nodiscard]] std::string_view unsent() const override { return wire_.unsent(); }
    void sent(std::size_t count) override { wire_.sent(count); }
    bool take(std::string_view arrived) override { return wire_.take(arrived); }
    [[nodiscard]] bool ended() const override { return wire_.ended(); }
    [[nodiscard]] std::string_view elements() const override { return only_output(wire_.message()); }
    [[nodiscard]] std::string complaint() const override {
        return "status " + std::to_string(wire_.code().value_or(-1)) + ' ' + wire_.sentence();
    }

  private:
    vector_model to_;
    grpc_wire wire_;
};

}  // namespace

std::unique_ptr<infer_talk> http_talk(const vector_model& to) {
    return std::make_unique<http_inferences>(to);
}

std::unique_ptr<infer_talk> grpc_talk(const vector_model& to, grpc_flow flow) {
    return std::make_unique<grpc_inferences>(to, flow);
}

std::string infer_message(const vector_model& to, std::span<const std::byte> elements) {
    wire::writer input;
    const std::array<std::uint64_t, 1> shape{to.size};
    input.text(1, "x");
    input.text(2, "FP32");
    input.packed(3, shape);
    wire::writer out;
    out.text(1, to.name);
    out.message(5, input);
    out.entry(7, text_of(elements));
    return out.take();
}

std::string_view only_output(std::string_view message) {
    const wire::slice all = std::as_bytes(std::span{message});
    wire::field_walk fields{wire::cursor{{&all, 1}}};
    wire::field one;
    while (fields.next(one))
        if (one.is(6, wire::form::bytes) && one.bytes.size() <= message.size())
            return message.substr(message.size() - one.bytes.size());  // it is the last field
    return {};
}

}  // namespace accel::examples::serving::doors::clients
