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

/// One after the other from the first byte on, without room for a table. How long the payload is.
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
reading read_all(Read from) {
    reading out;
    out.list.resize(max_tensors);
    const auto read = from(std::span{out.list});
    out.outcome = read.code();
    out.list.resize(read ? read->size() : 0);
    return out;
}

struct described : on_every_backend {
    /// A server whose handler notes what it has read, and answers with `answer`. It holds `guard` meanwhile.
    rig serving(std::function<void(exchange)> answer) {
        return rig(GetParam(), [this, answer](exchange one) {
            const std::lock_guard held(guard);
            on_host = one.memory() == memory_kind::host();
            seen = read_all([&](std::span<tensor> room) { return one.tensors(room); });
            answer(std::move(one));
        });
    }
    /// What a response says of its tensors.
    static reading tensors_of(const completion& c) {
        return read_all([&](std::span<tensor> room) { return c.tensors(room); });
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
        shared = std::move(to);
    }
    /// A description that fits into a header needs none of the payload. A longer one is a table there, which only the
    /// end that has the bytes can write and read.
    static void expect_read(const reading& got, const tensor_list& sent, bool has_bytes) {
        const bool none = sent.empty();
        const bool table = sent.size() > 4;
        if (!has_bytes && (none || table)) {
            EXPECT_EQ(got.outcome, status::unsupported);
        } else {
            EXPECT_EQ(got.outcome, none ? status::not_found : status::ok);
            expect_same(got.list, sent);
        }
    }
    std::mutex guard;  ///< of all that handlers and tests share

  private:
    reading seen;
    bool on_host = true;
};

/// Tensors with the payload that they lie in.
struct described_payload {
    tensor_list list;
    std::size_t length;
    explicit described_payload(std::uint64_t random) : list(some(count_of(random))) {
        length = has_table() ? place_tensors(list) : pack(list);
        if (list.empty()) length = random / 16 % 100;
    }
    [[nodiscard]] bool has_table() const { return list.size() > 4; }
    static std::uint32_t count_of(std::uint64_t random) {
        constexpr std::array<std::uint32_t, 8> counts{0, 1, 2, 3, 4, 17, 17, max_tensors};
        return counts.at(random % counts.size());
    }
};

/// Whatever call was in the slot before, wherever the payload and the response lie, and however many there are.
TEST_P(described, tensors_travel_with_their_message_and_no_other) {
    std::atomic<std::uint32_t> leases{0};
    region lent;
    rig server = serving([&](exchange one) {
        const described_payload answer(mix(one.trace_id()));
        const slice from = one.trace_id() % 2 == 0 ? slice{} : lent.part(0, answer.length).value();
        std::array<tensor, 1> small;
        const described_payload asked(one.trace_id());
        if (asked.list.size() > 1 && asked.list.size() <= 4) {
            EXPECT_EQ(one.tensors(small).code(), status::message_too_large);
        }
        EXPECT_TRUE(asked.has_table() || matches(one.request(), one.trace_id()));
        fill(from.empty() ? one.response().first(answer.length) : from.bytes(), ~one.trace_id());
        status said = status::ok;
        if (!answer.list.empty())
            said = from.empty() ? one.describe(answer.length, answer.list) : one.describe(from, answer.list);
        if (said != status::ok) return static_cast<void>(one.fail(said));
        (void)(from.empty() ? one.reply(answer.length) : one.reply(from, leases));
    });
    auto memory = server.ctx().allocate(48 << 10);
    ASSERT_TRUE(memory.ok());
    set(lent, server.ctx().allocate(16 << 10).value());
    channel_options few_slots = calm_client();
    few_slots.slots = 2;
    auto client = server.connect(few_slots);
    for (std::uint64_t i = 1; i <= 200; ++i) {
        SCOPED_TRACE(i);
        const described_payload asked(i), answer(mix(i));
        submit_options options{.trace_id = i, .tensors = asked.list};
        if (mix(i) / 8 % 2 == 0) options.response_into = memory->part(0, 16 << 10).value();
        const auto view = client.begin();
        ASSERT_EQ(view.code(), status::ok);
        const bool lends = mix(i) / 16 % 2 == 0;
        const slice payload = memory->part(16 << 10, asked.length).value();
        fill(lends ? payload.bytes() : view->request.first(asked.length), i);
        ASSERT_EQ(lends ? client.submit(view->id, payload, options) : client.submit(view->id, asked.length, options),
                  status::ok);
        completion c = client.next();
        expect_read(saw(), asked.list, is_on_host());
        if (answer.list.size() > 4 && !is_on_host() && c.status == status::unsupported) {
            c.release();
            continue;
        }
        ASSERT_EQ(c.status, status::ok);
        EXPECT_EQ(c.response.size(), answer.length);
        EXPECT_TRUE(answer.has_table() || matches(c.response, ~i));
        expect_read(tensors_of(c), answer.list, true);
        EXPECT_EQ(c.tensors({}).code(), answer.list.empty() ? status::not_found : status::message_too_large);
    }
    EXPECT_TRUE(client.all_slots_free());
    EXPECT_TRUE(eventually([&] { return leases.load() == 0; }));
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
    expect_same(tensors_of(c).list, last);
    c.release();
    {
        const auto blocking = client->call(std::vector<std::byte>(length), {.tensors = first});
        ASSERT_TRUE(blocking.ok());
        expect_same(read_all([&](std::span<tensor> room) { return blocking->tensors(room); }).list, last);
    }
    set(fails, true);
    c = call(client, length, first);
    EXPECT_EQ(c.status, status::application_error);
    EXPECT_EQ(c.response.size(), 2U);
    EXPECT_EQ(tensors_of(c).outcome, status::invalid_state);
}

TEST_P(described, wrong_descriptions_send_nothing) {
    rig server = serving([](exchange one) { (void)one.reply(std::size_t{0}); });
    auto client = server.connect();
    const auto view = client.begin();
    ASSERT_EQ(view.code(), status::ok);
    const auto refusal = [&](const tensor_list& list, std::size_t length) {
        return client.submit(view->id, length, {.tensors = list});
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
    completion c = client.next();
    EXPECT_EQ(c.status, status::ok);
    expect_same(saw().list, good);
    c.release();
    EXPECT_EQ(tensors_of(c).outcome, status::invalid_state) << "after its release";
}

ACCEL_INSTANTIATE(described, all_backends);

}  // namespace
}  // namespace accel::tests
