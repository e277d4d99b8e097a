// SPDX-License-Identifier: Apache-2.0
// Peers that keep what they were lent: a link that has closed is a fence, whatever they do then.
#include "bare_client.hpp"
#include "rdma_pair.hpp"

#include <accel_transport/accel_transport.hpp>

#include <algorithm>

namespace accel::rdma::testing {
namespace {

/// A client's link whose server is made of bare verbs, and memory to lend.
class rdma_lent : public rdma_test {
  protected:
    static constexpr std::size_t room = 4096;

    void SetUp() override {
        server_ = std::make_unique<bare_client>(small);
        events_ = open_poller(core::link_role::client);
        client_ = events_->open_link(config_of(core::link_role::client, small)).value();
    }
    void TearDown() override { client_.reset(); }
    void attach(std::uint32_t receives = 16) {
        server_->connect(client_->describe(), receives);
        const auto deadline = core::deadline_after(patience(5s));
        ASSERT_TRUE(client_->attach({1, {}, "127.0.0.1", server_->describe()}, deadline).ok());
        client_->activate();
    }
    [[nodiscard]] bool holds(std::byte value) const {
        const auto bytes = memory_.whole().bytes();
        return std::all_of(bytes.begin(), bytes.end(), [=](std::byte each) { return each == value; });
    }
    void set(std::byte value) const { std::ranges::fill(memory_.whole().bytes(), value); }

    accel::context owner_ = accel::context::open({.log = log_level::off}).value();
    region memory_ = owner_.allocate(room).value();
    std::unique_ptr<bare_client> server_;
    std::unique_ptr<core::poller> events_;
    std::unique_ptr<core::link> client_;
};

TEST_F(rdma_lent, a_key_opens_nothing_once_the_link_has_closed) {
    attach();
    ASSERT_EQ(send(*client_, message_kind::request, 1, pattern(100, 1), memory_.whole()), status::ok);
    ASSERT_TRUE(eventually(patience(5s), [&] { return server_->answer(1).generation == 1; }));
    auto write = server_->correct(0);
    write.operation = mlx5::opcode::write;
    write.address = server_->response_target(1).address;
    write.key = server_->response_target(1).key;
    set(std::byte{7});
    server_->post(write);
    ASSERT_EQ(server_->outcome(), mlx5::syndrome::none);
    EXPECT_FALSE(holds(std::byte{7})) << "until then the key is good";
    EXPECT_FALSE(client_->retract(1));
    EXPECT_TRUE(silent(*events_)) << "nobody says that the server is done";

    EXPECT_TRUE(client_->close()) << "at once: a peer that keeps silent is not waited for";
    set(std::byte{9});
    server_->post(write);
    EXPECT_NE(server_->outcome(), mlx5::syndrome::none);
    EXPECT_TRUE(holds(std::byte{9}));
}

TEST_F(rdma_lent, an_untaken_payload_is_released_when_the_link_has_closed) {
    attach(0);
    header_in(*client_, message_kind::request, 1, room);
    ASSERT_EQ(client_->deliver({1, memory_.whole().bytes(), memory_.whole().region(), {}}), status::ok);
    EXPECT_FALSE(client_->retract(1));
    EXPECT_TRUE(silent(*events_)) << "the device still tries";
    EXPECT_TRUE(client_->close());
}

}  // namespace
}  // namespace accel::rdma::testing
