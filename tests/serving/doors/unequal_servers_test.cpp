// SPDX-License-Identifier: Apache-2.0
// Whole doors in front of two servers of one model, whose slots have different sizes.
#include "serving/doors/clients/infer_talk.hpp"
#include "serving/doors/clients/line.hpp"
#include "serving/doors/http/http_door.hpp"
#include "serving/doors/http/listener.hpp"
#include "serving/doors/oip/model_description.hpp"
#ifdef ACCEL_TEST_GRPC
#include "serving/doors/grpc/door/grpc_door.hpp"
#endif

#include <accel_transport/accel_transport.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace accel::examples::serving::doors {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t numbers = 100;
constexpr std::size_t input_bytes = numbers * sizeof(float);
constexpr std::uint32_t slots_of_each = 4;

/// One whose slots are large enough, and one whose are not.
class unequal_servers {
  public:
    unequal_servers() {
        std::vector<gateway::upstream*> both;
        for (const std::size_t bytes : {input_bytes, std::size_t{64}}) both.push_back(add_server(bytes));
        backend& to = all_.add(both);
        EXPECT_TRUE(all_.open(ctx_).ok());
        models_.emplace("same", served_model{.description = oip::read_description(described).value(),
                                             .to = &to,
                                             .row = door_metrics::first_model});
    }
    template <typename Door>
    [[nodiscard]] std::unique_ptr<Door> open_door() {
        door_settings patient;
        patient.slot_timeout = 1h;
        auto made =
            std::make_unique<Door>(loop_, bind_at(loop_, "127.0.0.1:0").value(), models_, patient, door_access{});
        EXPECT_TRUE(made->start().ok());
        return made;
    }
    /// Whether the server with the large slots gives requests back unseen.
    std::atomic<bool> gives_back{false};
    [[nodiscard]] boost::asio::io_context& loop() { return loop_; }

  private:
    static constexpr const char* described = R"({"name": "same",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [100]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [100]}]})";

    gateway::upstream* add_server(std::size_t request_bytes) {
        const std::string uri = "local://unequal-server-" + std::to_string(servers_.size());
        const handler service = [this](exchange one) {
            if (gives_back) return void(one.fail(status::closed, unseen_code, "not here"));
            std::memcpy(one.response().data(), one.request().data(), one.request().size());
            (void)one.reply(one.request().size());
        };
        servers_.push_back(server::listen(ctx_, {uri}, service).value());
        return &all_.add_server(
            gateway::upstream(uri, {}, {.request_bytes = request_bytes, .response_bytes = input_bytes}));
    }

    context ctx_ = context::open({.log = log_level::off}).value();
    std::vector<server> servers_;
    boost::asio::io_context loop_{1};
    backends all_{loop_, {.channels = 1, .slots = slots_of_each}, 1 << 20};
    model_table models_;
};

/// More requests than there are slots, first in their turn and then given back: none goes into a slot that is too
/// small, and none keeps a slot. `make_talk` begins to speak over a new connection.
template <typename Door, typename MakeTalk>
void ask_unequal_servers(MakeTalk make_talk, std::string_view refusal) {
    unequal_servers rig;
    const auto door = rig.open_door<Door>();
    const std::string where = door->endpoint().substr(door->endpoint().find("//") + 2);
    std::thread running([&] { rig.loop().run(); });
    std::array<float, numbers> asked{};
    asked.fill(2.5F);
    const std::string_view same{reinterpret_cast<const char*>(asked.data()), sizeof asked};
    for (const bool gives_back : {false, true}) {
        rig.gives_back = gives_back;
        std::uint32_t answered = 0;
        for (std::uint32_t i = 0; i < 6 * slots_of_each; ++i) {
            const std::unique_ptr<clients::infer_talk> talk = make_talk(clients::vector_model{"same", numbers});
            auto line = clients::line::connect(where).value();
            talk->ask(std::as_bytes(std::span{asked}));
            EXPECT_TRUE(go_on(line, *talk, 30s, [&] { return talk->ended(); })) << "request " << i << " has no answer";
            const bool good = talk->elements() == same;
            answered += good ? 1U : 0U;
            EXPECT_TRUE(good || talk->complaint().find(refusal) != std::string::npos) << talk->complaint();
        }
        EXPECT_EQ(answered, gives_back ? 0U : 3 * slots_of_each) << "the servers take turns";
    }
    rig.loop().stop();
    running.join();
}

TEST(doors_unequal_servers, no_request_goes_into_a_smaller_slot_over_http) {
    ask_unequal_servers<http_door>([](const auto& to) { return clients::http_talk(to); }, "500");
}

#ifdef ACCEL_TEST_GRPC
TEST(doors_unequal_servers, no_request_goes_into_a_smaller_slot_over_grpc) {
    ask_unequal_servers<grpc_door>([](const auto& to) { return clients::grpc_talk(to); },
                                   "accepts only shorter requests");
}
#endif

}  // namespace
}  // namespace accel::examples::serving::doors
