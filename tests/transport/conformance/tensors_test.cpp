// SPDX-License-Identifier: Apache-2.0
// Tensors that one end describes and the other one reads, however the description travels.
#include "rig.hpp"

#include <array>
#include <atomic>
#include <functional>
#include <mutex>
#include <vector>

namespace accel::tests {
namespace {

using tensor_list = std::vector<tensor>;

/// So many tensors of rank 6, of 1 to 3 floats each.
tensor_list some(std::uint32_t count) {
    tensor_list out(count);
    for (std::uint32_t i = 0; i < count; ++i) out[i] = {{}, 6, 0, {1, 1, i % 3 + 1, 1, 1, 1}};
    return out;
}

/// One behind the other from the first byte on, without room for a table. How long the payload is.
std::size_t pack(tensor_list& list) {
    std::uint64_t end = 0;
    for (tensor& each : list) {
        each.offset = (end + 7) / 8 * 8;
        end = each.offset + size_bytes(each);
    }
    return end;
}

void expect_same(const tensor_list& got, const tensor_list& wanted) {
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
        EXPECT_EQ(got[i].type, wanted[i].type) << i;
        EXPECT_EQ(got[i].rank, wanted[i].rank) << i;
        EXPECT_EQ(got[i].offset, wanted[i].offset) << i;
        for (std::uint32_t d = 0; d < max_tensor_rank; ++d) EXPECT_EQ(got[i].shape[d], wanted[i].shape[d]) << i;
    }
}

/// What one end has read.
struct reading {
    status outcome = status::again;
    tensor_list list;
};
template <class Read>
reading read_all(Read read) {
    reading out;
    out.list.resize(max_tensors);
    std::size_t count = 0;
    out.outcome = read(std::span{out.list}, count);
    out.list.resize(out.outcome == status::ok ? count : 0);
    return out;
}

struct described : on_every_backend {
    /// A server whose handler notes what it has read, and answers with `answer`. It holds `guard` meanwhile.
    rig serving(std::function<void(exchange)> answer) {
        return rig(GetParam(), [this, answer](exchange one) {
            const std::lock_guard held(guard);
            on_host = one.memory() == memory_kind::host();
            seen = read_all([&](std::span<tensor> out, std::size_t& count) { return one.tensors(out, count); });
            answer(std::move(one));
        });
    }
    /// Answers with a payload of so many bytes that holds these tensors, or says how describing them has failed.
    static std::function<void(exchange)> answering(const tensor_list& list, std::size_t length) {
        return [list, length](exchange one) {
            const status told = one.describe(length, list);
            (void)(told == status::ok ? one.reply(length) : one.fail(told));
        };
    }
    /// What a response says of its tensors.
    static reading tensors_of(checked_channel& client, const completion& c) {
        return read_all([&](std::span<tensor> out, std::size_t& count) { return client->tensors(c, out, count); });
    }
    static completion call(checked_channel& client, std::size_t length, const tensor_list& list) {
        client.send_seed(length, 7, {.tensors = list});
        return client.next();
    }
    /// What the handler has read of the last request.
    reading saw() {
        const std::lock_guard held(guard);
        return seen;
    }
    bool is_on_host() {
        const std::lock_guard held(guard);
        return on_host;
    }
    template <class Value>
    void set(Value& shared, Value to) {
        const std::lock_guard held(guard);
        shared = to;
    }
    std::mutex guard;  ///< of all that handlers and tests share

  private:
    reading seen;
    bool on_host = true;
};

TEST_P(described, up_to_four_tensors_of_rank_six_need_no_room_in_the_payload) {
    for (std::uint32_t count = 1; count <= 4; ++count) {
        tensor_list asked = some(count);
        tensor_list answered = some(5 - count);
        const std::size_t length = pack(asked);
        const std::size_t answer_length = pack(answered);
        rig server = serving(answering(answered, answer_length));
        auto client = server.connect();
        const completion c = call(client, length, asked);
        ASSERT_EQ(c.status, status::ok);
        EXPECT_EQ(saw().outcome, status::ok);
        expect_same(saw().list, asked);
        const reading back = tensors_of(client, c);
        EXPECT_EQ(back.outcome, status::ok);
        expect_same(back.list, answered);
        EXPECT_EQ(client.release(c.id), status::ok);
    }
}

/// A table does, which only the end that has the bytes can write and read.
TEST_P(described, many_tensors_travel_in_the_payload) {
    tensor_list many = some(max_tensors);
    const std::size_t length = place_tensors(many);
    rig server = serving(answering(many, length));
    auto client = server.connect();
    const completion c = call(client, length, many);
    if (!is_on_host()) {
        EXPECT_EQ(saw().outcome, status::unsupported);
        EXPECT_EQ(c.status, status::unsupported) << "the handler could not describe its answer";
    } else {
        EXPECT_EQ(saw().outcome, status::ok);
        expect_same(saw().list, many);
        ASSERT_EQ(c.status, status::ok);
        const reading back = tensors_of(client, c);
        EXPECT_EQ(back.outcome, status::ok);
        expect_same(back.list, many);
    }
    EXPECT_EQ(client.release(c.id), status::ok);
}

TEST_P(described, payload_follows_its_description) {
    tensor_list list = some(2);
    const std::size_t length = pack(list);
    rig server = serving([&](exchange one) {
        const std::size_t sent = one.request().size();
        copy(one.response(), one.request());
        (void)one.describe(sent, list);
        (void)one.reply(sent);
    });
    auto client = server.connect();
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        client.send_seed(length, seed, {.tensors = list});
        const completion c = client.next();
        ASSERT_EQ(c.status, status::ok);
        EXPECT_TRUE(matches(c.response, seed));
        expect_same(tensors_of(client, c).list, list);
        EXPECT_EQ(client.release(c.id), status::ok);
    }
}

TEST_P(described, lent_memory_is_described_too) {
    constexpr std::size_t size = 8000;
    tensor_list list = some(3);
    (void)pack(list);
    list[2] = {{}, 2, 800, {30, 60}};
    std::atomic<std::uint32_t> leases{0};
    slice answer;
    rig server = serving([&](exchange one) {
        (void)one.describe(answer, list);
        (void)one.reply(answer, leases);
    });
    auto memory = server.ctx().allocate(3 * size);
    ASSERT_TRUE(memory.ok());
    set(answer, memory->part(size, size).value());
    fill(memory->part(size, size).value().bytes(), 5);
    {
        auto client = server.connect();
        for (const bool placed : {true, false}) {
            call_view view;
            ASSERT_EQ(client.begin(view), status::ok);
            submit_options options{.tensors = list};
            if (placed) options.response_into = memory->part(2 * size, size).value();
            ASSERT_EQ(client.submit(view.id, memory->part(0, size).value(), options), status::ok);
            const completion c = client.next();
            ASSERT_EQ(c.status, status::ok);
            EXPECT_EQ(saw().outcome, status::ok);
            expect_same(saw().list, list);
            EXPECT_TRUE(matches(c.response, 5));
            expect_same(tensors_of(client, c).list, list);
            EXPECT_EQ(client.release(c.id), status::ok);
        }
        EXPECT_TRUE(eventually(patience(5s), [&] { return leases.load() == 0; }));
    }
}

TEST_P(described, a_description_belongs_to_one_message) {
    tensor_list list = some(1);
    const std::size_t length = pack(list);
    bool describes = true;
    rig server = serving([&](exchange one) {
        if (describes) (void)one.describe(length, list);
        (void)one.reply(length);
    });
    channel_options one_slot = calm_client();
    one_slot.slots = 1;
    auto client = server.connect(one_slot);
    for (int round = 0; round < 3; ++round) {
        for (const bool tells : {true, false}) {
            set(describes, tells);
            client.send_seed(length, 1, tells ? submit_options{.tensors = list} : submit_options{});
            const completion c = client.next();
            const status nothing = is_on_host() ? status::not_found : status::unsupported;
            EXPECT_EQ(saw().outcome, tells ? status::ok : nothing);
            EXPECT_EQ(tensors_of(client, c).outcome, tells ? status::ok : status::not_found);
            EXPECT_EQ(client.release(c.id), status::ok);
        }
    }
}

TEST_P(described, the_last_description_is_sent_and_a_failure_carries_none) {
    tensor_list first = some(3);
    tensor_list last = some(1);
    const std::size_t length = pack(first);
    (void)pack(last);
    bool fails = false;
    rig server = serving([&](exchange one) {
        EXPECT_EQ(one.describe(length, first), status::ok);
        EXPECT_EQ(one.describe(length - 1, first), status::invalid_argument) << "changes nothing";
        EXPECT_EQ(one.describe(length, fails ? first : last), status::ok);
        EXPECT_EQ(one.describe(one.response().size() + 1, last), status::message_too_large);
        (void)(fails ? one.fail(status::application_error, 3, "no") : one.reply(length));
    });
    auto client = server.connect();
    completion c = call(client, length, first);
    expect_same(tensors_of(client, c).list, last);
    EXPECT_EQ(client.release(c.id), status::ok);
    set(fails, true);
    c = call(client, length, first);
    EXPECT_EQ(c.status, status::application_error);
    EXPECT_EQ(c.response.size(), 2U);
    EXPECT_EQ(tensors_of(client, c).outcome, status::invalid_state);
    EXPECT_EQ(client.release(c.id), status::ok);
}

TEST_P(described, wrong_descriptions_send_nothing) {
    rig server = serving([](exchange one) { (void)one.reply(std::size_t{0}); });
    auto client = server.connect();
    call_view view;
    ASSERT_EQ(client.begin(view), status::ok);
    const auto refusal = [&](const tensor_list& list, std::size_t length) {
        return client.submit(view.id, length, {.tensors = list});
    };
    tensor_list good = some(1);
    good[0].offset = 8;
    EXPECT_EQ(refusal(good, 11), status::invalid_argument) << "longer than the payload";
    for (const std::uint64_t offset : {std::uint64_t{2}, std::uint64_t{1} << 32, ~std::uint64_t{0} - 3}) {
        tensor_list wrong = some(1);
        wrong[0].offset = offset;
        EXPECT_EQ(refusal(wrong, 100), status::invalid_argument) << offset;
    }
    EXPECT_EQ(refusal({{{type_code::opaque_handle, 64, 1}, 0, 0, {}}}, 100), status::invalid_argument);
    EXPECT_EQ(refusal({{{}, 9, 0, {}}}, 100), status::invalid_argument) << "too high a rank";
    EXPECT_EQ(refusal(some(6), 1000), status::invalid_argument) << "no room for a table";
    EXPECT_EQ(refusal(some(max_tensors + 1), 1000), status::invalid_argument);
    EXPECT_EQ(refusal(good, 12), status::ok) << "the call is still there";
    const completion c = client.next();
    EXPECT_EQ(c.status, status::ok);
    expect_same(saw().list, good);
    EXPECT_EQ(client.release(c.id), status::ok);
    EXPECT_EQ(tensors_of(client, c).outcome, status::invalid_state) << "after its release";
}

TEST_P(described, a_reader_with_too_little_room_learns_the_number_of_tensors) {
    tensor_list list = some(4);
    const std::size_t length = pack(list);
    std::size_t told = 0;
    status outcome = status::again;
    rig server = serving([&](exchange one) {
        std::array<tensor, 3> out;
        outcome = one.tensors(out, told);
        (void)one.describe(length, list);
        (void)one.reply(length);
    });
    auto client = server.connect();
    const completion c = call(client, length, list);
    {
        const std::lock_guard held(guard);
        EXPECT_EQ(outcome, status::message_too_large);
        EXPECT_EQ(told, 4U);
    }
    std::size_t count = 0;
    EXPECT_EQ(client->tensors(c, {}, count), status::message_too_large);
    EXPECT_EQ(count, 4U);
    EXPECT_EQ(client.release(c.id), status::ok);
}

TEST_P(described, a_blocking_call_has_tensors) {
    tensor_list list = some(2);
    std::vector<std::byte> request(pack(list));
    rig server = serving(answering(list, request.size()));
    auto client = server.connect();
    auto answer = client->call(request, {.tensors = list});
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    expect_same(saw().list, list);
    std::array<tensor, 2> out;
    std::size_t count = 0;
    EXPECT_EQ(answer->tensors(out, count), status::ok);
    expect_same({out.begin(), out.begin() + static_cast<std::ptrdiff_t>(count)}, list);
}

ACCEL_INSTANTIATE(described, all_backends);

}  // namespace
}  // namespace accel::tests
