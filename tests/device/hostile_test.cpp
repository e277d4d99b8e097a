// Clients that do with their queue pair what no correct client does, at a service that lives on a GPU (a
// thread is in the kernel's place). Their session ends; nothing else does.
#include "core/context_state.hpp"
#include "core/registry.hpp"
#include "device/service_rig.hpp"
#include "rdma/bare_client.hpp"

#include <accel_transport/device/service.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

namespace accel::tests {
namespace {

using rdma::testing::bare_client;

constexpr core::link_geometry shape{2, 256, 256};

class device_hostile : public ::testing::TestWithParam<gpu_engine> {
  protected:
    void SetUp() override {
        if (!has(GetParam())) GTEST_SKIP() << "this device has no queues to drive";
        core::poller_options wanted;
        wanted.verbs.engine = GetParam();
        wanted.role = core::link_role::server;
        wanted.host = "127.0.0.1";
        wanted.resident = core::resident_options{nullptr, nullptr, 2, shape};
        poller_ = backend_.open_poller(wanted).value();
        kernel_ = std::thread([this, service = *poller_->service()] { serve(service); });
    }
    void TearDown() override {
        if (!poller_) return;
        ending_ = true;
        kernel_.join();
        poller_->kernels_ended();
        good_.reset();
        bad_.reset();
    }
    void serve(const device::service_ref& service) {
        while (!ending_) {
            device::exchange_ref exchange;
            if (device::wait(service, exchange, 1'000'000) == status::ok) {
                while (held_) std::this_thread::sleep_for(100us);
                (void)device::reply(service, exchange, exchange.response_room);
            } else {
                std::this_thread::sleep_for(100us);
            }
        }
    }
    [[nodiscard]] result<std::unique_ptr<core::link>> accept(const core::link_description& description,
                                                             void* owner = nullptr) {
        core::link_config config;
        config.role = core::link_role::server;
        config.geometry = shape;
        config.owner = owner;
        auto link = poller_->open_link(config);
        if (!link) return link.error();
        if (auto attached = (*link)->attach({1, {}, {}, description}, core::never); !attached) {
            return attached.error();
        }
        (*link)->activate();
        return link;
    }
    void end(std::unique_ptr<core::link>& link) {
        EXPECT_TRUE(eventually(patience(5s), [&] { return link->close(); }));
        link.reset();
    }
    static void expect_served(bare_client& client, std::uint32_t generation) {
        auto request = client.correct(1);
        request.header.generation = generation;
        request.header.deadline_ns = INT64_MAX;
        client.post(request);
        EXPECT_EQ(client.outcome(), IBV_WC_SUCCESS);
        EXPECT_TRUE(eventually(patience(5s), [&] { return client.answer(1).generation == generation; }));
        EXPECT_EQ(client.answer(1).kind, core::message_kind::response);
        EXPECT_EQ(client.answer(1).code, status::ok);
        EXPECT_EQ(client.answer(1).length, request.header.response_room);
    }
    void expect_only_its_own_session_ends(const std::function<void(bare_client&)>& attack) {
        bare_client friendly(shape);
        good_ = accept(friendly.describe()).value();
        friendly.connect(good_->describe());
        bare_client evil(shape);
        int owner = 0;
        bad_ = accept(evil.describe(), &owner).value();
        evil.connect(bad_->describe());
        expect_served(friendly, 1);
        attack(evil);
        std::array<core::link_event, 16> events;
        std::size_t count = 0;
        EXPECT_TRUE(eventually(patience(5s), [&] { return (count = poller_->poll(events)) > 0; }));
        ASSERT_EQ(count, 1U);
        EXPECT_EQ(events[0].kind, core::event_kind::lost);
        EXPECT_EQ(events[0].reason, status::protocol_error);
        EXPECT_EQ(events[0].owner, &owner);
        expect_served(friendly, 2);
        // Its place is good for another.
        end(bad_);
        bare_client next(shape);
        bad_ = accept(next.describe()).value();
        next.connect(bad_->describe());
        expect_served(next, 1);
        expect_served(friendly, 3);
        end(bad_);
        end(good_);
    }

    context context_ = context::open({.log = log_level::off}).value();
    core::backend& backend_ = *context_.state()->find_backend("gpu");
    std::unique_ptr<core::poller> poller_;
    std::unique_ptr<core::link> good_;
    std::unique_ptr<core::link> bad_;
    std::thread kernel_;
    std::atomic<bool> ending_{false};
    std::atomic<bool> held_{false};  ///< answers
};

TEST_P(device_hostile, a_slot_that_is_not_there) {
    expect_only_its_own_session_ends([](bare_client& client) {
        auto request = client.correct(0);
        request.immediate = shape.slots;
        client.post(request);
    });
}

TEST_P(device_hostile, a_header_of_another_slot) {
    expect_only_its_own_session_ends([](bare_client& client) {
        auto request = client.correct(0);
        request.header.slot = 1;
        client.post(request);
    });
}

TEST_P(device_hostile, another_version) {
    expect_only_its_own_session_ends([](bare_client& client) {
        auto request = client.correct(0);
        request.header.version = 9;
        client.post(request);
    });
}

TEST_P(device_hostile, a_request_longer_than_agreed) {
    expect_only_its_own_session_ends([](bare_client& client) {
        auto request = client.correct(0);
        request.header.length = shape.request_bytes + 1;
        client.post(request);
    });
}

TEST_P(device_hostile, more_room_for_the_answer_than_agreed) {
    expect_only_its_own_session_ends([](bare_client& client) {
        auto request = client.correct(0);
        request.header.response_room = static_cast<std::uint32_t>(shape.response_bytes) + 1;
        client.post(request);
    });
}

TEST_P(device_hostile, an_announcement_without_a_header) {
    expect_only_its_own_session_ends([](bare_client& client) {
        auto request = client.correct(0);
        request.length = 0;
        client.post(request);
    });
}

TEST_P(device_hostile, a_generation_twice) {
    expect_only_its_own_session_ends([](bare_client& client) {
        expect_served(client, 5);
        auto request = client.correct(1);
        request.header.generation = 5;
        client.post(request);
    });
}

TEST_P(device_hostile, extensions_that_are_none) {
    expect_only_its_own_session_ends([](bare_client& client) {
        auto request = client.correct(0);
        request.extensions = sizeof request.placed;
        request.header.extension_bytes = sizeof request.placed;
        request.placed.head.length = 1000;
        client.post(request);
    });
}

TEST_P(device_hostile, a_placement_shorter_than_the_answer) {
    expect_only_its_own_session_ends([](bare_client& client) {
        auto request = client.correct(0);
        request.extensions = sizeof request.placed;
        request.header.extension_bytes = sizeof request.placed;
        request.placed.value.address = 4096;
        request.placed.value.length = request.header.response_room - 1;
        client.post(request);
    });
}

TEST_P(device_hostile, a_client_that_is_gone_when_its_answer_comes) {
    bare_client friendly(shape);
    good_ = accept(friendly.describe()).value();
    friendly.connect(good_->describe());
    auto leaves = std::make_unique<bare_client>(shape);
    int owner = 0;
    bad_ = accept(leaves->describe(), &owner).value();
    leaves->connect(bad_->describe());
    held_ = true;
    auto request = leaves->correct(1);
    request.header.deadline_ns = INT64_MAX;
    leaves->post(request);
    EXPECT_EQ(leaves->outcome(), IBV_WC_SUCCESS);
    leaves.reset();
    held_ = false;
    std::array<core::link_event, 16> events;
    std::size_t count = 0;
    EXPECT_TRUE(eventually(patience(20s), [&] { return (count = poller_->poll(events)) > 0; }));
    ASSERT_EQ(count, 1U);
    EXPECT_EQ(events[0].kind, core::event_kind::lost);
    EXPECT_EQ(events[0].reason, status::peer_lost);
    EXPECT_EQ(events[0].owner, &owner);
    expect_served(friendly, 1);
    end(bad_);
    end(good_);
}

TEST_P(device_hostile, descriptions_that_are_wrong_take_no_place) {
    for (int i = 0; i < 10; ++i) {
        EXPECT_FALSE(accept(core::link_description(7)).ok());
        bare_client other({1, 256, 256});
        EXPECT_EQ(accept(other.describe()).error().code, status::protocol_error);
    }
    bare_client friendly(shape);
    good_ = accept(friendly.describe()).value();
    friendly.connect(good_->describe());
    expect_served(friendly, 1);
    end(good_);
}

TEST_P(device_hostile, places_are_used_again_and_again) {
    for (std::uint32_t i = 0; i < 50; ++i) {
        bare_client friendly(shape);
        good_ = accept(friendly.describe()).value();
        friendly.connect(good_->describe());
        expect_served(friendly, 7);
        end(good_);
    }
}

INSTANTIATE_TEST_SUITE_P(by, device_hostile, ::testing::Values(gpu_engine::direct, gpu_engine::proxy),
                         [](const auto& by) { return by.param == gpu_engine::proxy ? "proxy" : "direct"; });

}  // namespace
}  // namespace accel::tests
