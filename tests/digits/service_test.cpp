// SPDX-License-Identifier: Apache-2.0
/// The digits service's handler for a GPU, on a stand-in for one: same answers as the host's, refusals,
/// stages.
#include "core/context_state.hpp"
#include "core/internals.hpp"
#include "digits/dataset.hpp"
#include "digits/digit_answer.hpp"
#include "digits/embedded.hpp"
#include "digits/frame.hpp"
#include "digits/gpu_service.hpp"
#include "digits/preprocess.hpp"
#include "gpu/fake_graph.hpp"
#include "patience.hpp"

#include <accel_transport/accel_transport.hpp>
#include <accel_transport/gpu_service.hpp>

#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace accel::tests {
namespace {

using namespace std::chrono_literals;
using namespace examples::digits;
using bytes = std::vector<std::byte>;

bytes frame_of(std::size_t index) {
    static const loaded<dataset> images = dataset::load(embedded_test_images());
    bytes frame(frame_bytes);
    EXPECT_EQ(draw_frame((*images.value)[index], index, frame), failure::none);
    return frame;
}

bytes tensor_of(std::span<const std::byte> frame) {
    std::array<float, tensor_values> tensor{};
    EXPECT_EQ(preprocess(frame, tensor), failure::none);
    bytes out(tensor_bytes);
    std::memcpy(out.data(), tensor.data(), tensor_bytes);
    return out;
}

digit_answer expected_of(const bytes& tensor) {
    static const loaded<network> trained = network::load(embedded_weights());
    std::array<float, tensor_values> values{};
    std::memcpy(values.data(), tensor.data(), tensor_bytes);
    digit_answer answer;
    EXPECT_EQ(trained.value->classify(values, answer.scores), failure::none);
    answer.label = static_cast<std::uint32_t>(best_class(answer.scores));
    return answer;
}

class digits_on_stand_in : public testing::TestWithParam<std::string> {
  protected:
    void SetUp() override {
        core::internals::state_of(*context_)->replace_devices(std::make_shared<fake_recording_gpus>());
        server_options options;
        options.memory = memory_kind::cuda(0);
        options.security.insecure = true;
        options.peer_timeout = patience(5s);
        const std::string uri = GetParam() == "local" ? "local://digits-gpu" : GetParam() + "://127.0.0.1:0";
        auto listening = server::listen(
            *context_, {uri}, [this](exchange one) { service_->serve(std::move(one)); }, options);
        ASSERT_TRUE(listening) << listening.error().message;
        server_ = std::make_unique<server>(std::move(*listening));
    }
    channel connect(std::size_t room) {
        channel_options options;
        options.security.insecure = true;
        options.peer_timeout = patience(5s);
        options.request_bytes = frame_bytes + 1;
        options.response_bytes = room;
        auto made = channel::connect(*context_, server_->endpoints().at(0), options);
        EXPECT_TRUE(made) << made.error().message;
        return std::move(*made);
    }
    /// The answer, copied; its status and timeline in `done`.
    static bytes ask(channel& through, const bytes& request, call_outcome& done) {
        const auto call = through.begin();
        EXPECT_EQ(call.code(), status::ok);
        std::memcpy(call->request.data(), request.data(), request.size());
        EXPECT_EQ(through.submit(call->id, request.size()), status::ok);
        std::array<completion, 1> one;
        EXPECT_EQ(through.wait(one, patience(10s)), 1U);
        done = one[0];
        bytes answer(done.response.begin(), done.response.end());
        return answer;
    }
    static digit_answer ask_well(channel& through, const bytes& request, call_outcome& done) {
        const bytes raw = ask(through, request, done);
        digit_answer answer;
        EXPECT_EQ(done.status, status::ok);
        EXPECT_EQ(raw.size(), sizeof answer);
        if (raw.size() == sizeof answer) std::memcpy(&answer, raw.data(), sizeof answer);
        return answer;
    }

    std::unique_ptr<context> context_ = std::make_unique<context>(context::open({.log = log_level::off}).value());
    std::unique_ptr<examples::digits::gpu_service> service_ = std::make_unique<examples::digits::gpu_service>(
        examples::digits::gpu_service::load(memory_kind::cuda(0)).value());
    std::unique_ptr<server> server_;
};

TEST_P(digits_on_stand_in, frames_and_tensors_get_the_answers_of_the_host) {
    channel client = connect(256);
    for (std::size_t i = 0; i < 20; ++i) {
        const bytes frame = frame_of(i);
        const bytes tensor = tensor_of(frame);
        for (const bytes* request : {&frame, &tensor}) {
            call_outcome done;
            const digit_answer answer = ask_well(client, *request, done);
            EXPECT_EQ(answer.label, expected_of(tensor).label);
            EXPECT_EQ(answer.scores, expected_of(tensor).scores);
            EXPECT_EQ(done.timeline.preprocessing > 0ns, request == &frame);
            EXPECT_GT(done.timeline.inference, 0ns);
        }
    }
}

TEST_P(digits_on_stand_in, refuses_content_in_the_answer) {
    channel client = connect(256);
    call_outcome done;
    EXPECT_EQ(refusal_of(ask_well(client, bytes(frame_bytes), done).label), failure::frame_blank);
    EXPECT_EQ(refusal_of(ask_well(client, bytes(tensor_bytes, std::byte{0xFF}), done).label),
              failure::tensor_value_out_of_range);
}

TEST_P(digits_on_stand_in, refuses_lengths_with_a_sentence) {
    channel client = connect(256);
    for (const std::size_t length :
         {std::size_t{1}, tensor_bytes - 1, tensor_bytes + 1, frame_bytes - 1, frame_bytes + 1}) {
        call_outcome done;
        const bytes said = ask(client, bytes(length), done);
        EXPECT_EQ(done.status, status::invalid_argument) << length;
        EXPECT_FALSE(said.empty());
    }
    channel narrow = connect(sizeof(digit_answer) - 1);
    call_outcome done;
    (void)ask(narrow, bytes(tensor_bytes), done);
    EXPECT_EQ(done.status, status::invalid_argument);
}

INSTANTIATE_TEST_SUITE_P(schemes, digits_on_stand_in, testing::Values("local", "tcp"),
                         [](const auto& row) { return row.param; });

TEST(digits_gpu_service, a_digits_service_for_gpus_refuses_host_memory) {
    const auto made = examples::digits::gpu_service::load(memory_kind::host());
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, status::invalid_argument);
}

}  // namespace
}  // namespace accel::tests
