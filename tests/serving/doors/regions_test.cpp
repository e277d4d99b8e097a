// SPDX-License-Identifier: Apache-2.0
#include "sanitizers.hpp"
#include "serving/doors/grpc/region_messages.hpp"
#include "serving/doors/grpc/writer.hpp"
#include "serving/doors/shared_memory/base64.hpp"
#include "serving/doors/shared_memory/call_regions.hpp"
#include "serving/doors/shared_memory/documents.hpp"
#include "serving/doors/shared_memory/guarded_mapping.hpp"
#include "serving/doors/shared_memory/region_table.hpp"
#include "serving/doors/shared_memory/system_region.hpp"

#include <accel_transport/context.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace accel::examples::serving::shared_memory {
namespace {

constexpr std::size_t page = 4096;

/// A shared memory object, as a client makes it.
class shared_object {
  public:
    explicit shared_object(std::size_t bytes) {
        EXPECT_GE(file_, 0);
        resize(bytes);
    }
    shared_object(const shared_object&) = delete;
    shared_object& operator=(const shared_object&) = delete;
    ~shared_object() {
        close(file_);
        shm_unlink(key_.c_str());
    }
    void resize(std::size_t bytes) const { EXPECT_EQ(ftruncate(file_, static_cast<off_t>(bytes)), 0); }
    void put(std::size_t at, std::string_view text) const {
        EXPECT_EQ(pwrite(file_, text.data(), text.size(), static_cast<off_t>(at)), static_cast<ssize_t>(text.size()));
    }
    [[nodiscard]] std::string get(std::size_t at, std::size_t bytes) const {
        std::string out(bytes, '?');
        EXPECT_EQ(pread(file_, out.data(), bytes, static_cast<off_t>(at)), static_cast<ssize_t>(bytes));
        return out;
    }
    [[nodiscard]] const std::string& key() const { return key_; }
    [[nodiscard]] int file() const { return file_; }

  private:
    std::string key_ = "/accel_doors_test_" + std::to_string(getpid());
    int file_ = shm_open(key_.c_str(), O_RDWR | O_CREAT, 0600);
};

context any_context() {
    return context::open().value();
}

description object(const char* name, const std::string& key, std::uint64_t bytes) {
    description out;
    out.name = name;
    out.key = key;
    out.bytes = bytes;
    return out;
}

oip::model_description two_and_two() {
    return oip::read_description(R"({"name":"m",
        "inputs":[{"name":"a","datatype":"UINT8","shape":[4]},{"name":"b","datatype":"UINT8","shape":[8]}],
        "outputs":[{"name":"x","datatype":"UINT8","shape":[4]},{"name":"y","datatype":"UINT8","shape":[4]}]})")
        .value();
}

std::vector<tensor> placed_inputs(const oip::model_description& model) {
    std::vector<tensor> out;
    for (const oip::named_tensor& each : model.inputs) out.push_back(each.what);
    return out;
}

bool says(const error& why, std::string_view part) {
    return why.message.find(part) != std::string::npos;
}

TEST(regions_names, names_of_shared_memory_stay_in_its_folder) {
    for (const char* good : {"/a", "a", "psm_12ab", "/a.b-c", "a..b"}) EXPECT_TRUE(is_shared_name(good)) << good;
    for (const char* bad : {"", "/", "//a", "a/b", "/../a", "..", ".", "/.a", "a b", "a\n", "\xc3\xa4"})
        EXPECT_FALSE(is_shared_name(bad)) << bad;
    EXPECT_FALSE(is_shared_name(std::string_view{"a\0b", 3}));
    EXPECT_TRUE(is_shared_name(std::string(254, 'a')));
    EXPECT_FALSE(is_shared_name(std::string(255, 'a')));
}

TEST(regions_base64, bytes_come_back_and_nothing_else_is_read) {
    EXPECT_EQ(from_base64(""), "");
    EXPECT_EQ(from_base64("YQ=="), "a");
    EXPECT_EQ(from_base64("YWI="), "ab");
    EXPECT_EQ(from_base64("//8A"), (std::string{"\xff\xff\0", 3}));
    for (const char* bad : {"Y", "YQ=", "====", "Y===", "YQ==YQ==", "Y Q=", "_w=="})
        EXPECT_FALSE(from_base64(bad)) << bad;
}

TEST(regions_guard, missing_pages_read_as_zeros_and_are_reported) {
    const shared_object memory{4 * page};
    memory.put(100, "first");
    auto mapped = guarded_mapping::map(memory.file(), 100, 4 * page - 100);
    ASSERT_TRUE(mapped) << mapped.error().message;
    const auto bytes = mapped.value()->bytes();
    EXPECT_EQ(bytes.size(), 4 * page - 100);
    EXPECT_EQ(bytes[0], std::byte{'f'});
    EXPECT_FALSE(mapped.value()->lost());
    memory.resize(page);
    EXPECT_EQ(bytes[0], std::byte{'f'});
    EXPECT_FALSE(mapped.value()->lost());
    EXPECT_EQ(bytes[3 * page], std::byte{0});
    EXPECT_TRUE(mapped.value()->lost());
    bytes[page - 100] = std::byte{'x'};  // into memory of this process
}

TEST(regions_guard, several_threads_may_meet_missing_pages) {
    const shared_object memory{64 * page};
    auto mapped = guarded_mapping::map(memory.file(), 0, 64 * page);
    ASSERT_TRUE(mapped);
    memory.resize(0);
    const auto read = [&] {
        for (std::size_t at = 0; at < 64 * page; at += page) EXPECT_EQ(mapped.value()->bytes()[at], std::byte{0});
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back(read);
    for (std::thread& each : threads) each.join();
    EXPECT_TRUE(mapped.value()->lost());
}

/// The handler is there already: other faults end the process as ever.
TEST(regions_guard, unrelated_bus_errors_end_the_process) {
    const shared_object memory{page};
    const auto guarded = guarded_mapping::map(memory.file(), 0, page);
    ASSERT_TRUE(guarded);
    void* other = mmap(nullptr, page, PROT_READ, MAP_SHARED, memory.file(), 0);
    ASSERT_NE(other, MAP_FAILED);
    memory.resize(0);
    // A sanitizer ends the process by itself when the signal comes.
    const auto by_the_signal = [](int status) {
        return tests::address_sanitizer || tests::thread_sanitizer ? status != 0
                                                                   : testing::KilledBySignal(SIGBUS)(status);
    };
    EXPECT_EXIT(std::exit(*static_cast<volatile char*>(other)), by_the_signal, "");
    munmap(other, page);
}

/// A model of the table: sizes by name, and those of regions that somebody knows or uses.
TEST(regions_table, regions_are_bounded_until_their_last_user_ends) {
    auto ctx = any_context();
    const shared_object memory{page};
    region_table table{ctx, {.system = true, .max_regions = 4, .max_bytes = 100}, false};
    std::map<std::string, std::shared_ptr<std::uint64_t>> known;
    std::vector<std::pair<std::shared_ptr<region>, std::shared_ptr<std::uint64_t>>> used;
    std::mt19937 random(3);
    for (int step = 0; step < 3000 && !::testing::Test::HasFailure(); ++step) {
        SCOPED_TRACE(step);
        std::set<std::shared_ptr<std::uint64_t>> live;
        for (const auto& [name, each] : known) live.insert(each);
        for (const auto& [where, each] : used) live.insert(each);
        std::uint64_t taken = 0;
        for (const auto& each : live) taken += *each;
        EXPECT_EQ(table.taken().regions, live.size());
        EXPECT_EQ(table.taken().bytes, taken);
        EXPECT_EQ(table.list(memory::system, "").value().size(), known.size());
        const std::string name(1, static_cast<char>('a' + random() % 5));
        const std::uint64_t bytes = random() % 8 == 0 ? ~std::uint64_t{0} - random() % 3 : random() % 70;
        const auto found = known.find(name);
        switch (random() % 4) {
            case 0: {
                status wanted = live.size() < 4 && bytes <= 100 - taken ? status::ok : status::overloaded;
                if (bytes == 0 || bytes > 1000 || found != known.end()) wanted = status::invalid_argument;
                EXPECT_EQ(table.add(memory::system, object(name.c_str(), memory.key(), bytes)).code(), wanted);
                if (wanted == status::ok) known[name] = std::make_shared<std::uint64_t>(bytes);
                break;
            }
            case 1: {
                const std::uint64_t offset = random() % 8 == 0 ? ~std::uint64_t{0} - random() % 3 : random() % 70;
                const std::uint64_t end = found == known.end() ? 0 : *found->second;
                auto part = table.find(0, {.region = name, .offset = offset, .bytes = bytes});
                EXPECT_EQ(part.ok(), found != known.end() && offset <= end && bytes <= end - offset);
                if (part) used.emplace_back(std::move(part->where), found->second);
                break;
            }
            case 2:
                table.remove(memory::cuda, name);  // of another kind
                table.remove(memory::system, random() % 8 == 0 ? (known.clear(), "") : (known.erase(name), name));
                break;
            default:
                if (!used.empty()) used.erase(used.begin() + static_cast<std::ptrdiff_t>(random() % used.size()));
        }
    }
}

TEST(regions_table, regions_that_are_not_allowed_are_refused) {
    auto ctx = any_context();
    region_table table{ctx, {.cuda = true}, false};
    EXPECT_EQ(table.add(memory::system, object("a", "a", 1)).code(), status::unsupported);
    EXPECT_EQ(table.list(memory::system, "").code(), status::unsupported);
    permission may;
    EXPECT_TRUE(read_permission("cuda,system", may));
    EXPECT_TRUE(may.cuda && may.system);
    for (const char* bad : {"", "gpu", "system,,cuda", ","}) EXPECT_FALSE(read_permission(bad, may)) << bad;
}

TEST(regions_of_a_call, inputs_are_copied_to_their_places_and_outputs_back) {
    auto ctx = any_context();
    const auto model = two_and_two();
    const shared_object memory{page};
    memory.put(0, "aaaabbbbbbbb");
    const auto table = std::make_shared<region_table>(ctx, permission{.system = true}, false);
    ASSERT_TRUE(table->add(memory::system, object("r", memory.key(), 64)));
    const std::vector<oip::region_input> inputs{{1, {"r", 4, 8}}, {0, {"r", 0, 4}}};
    const std::vector<oip::output_choice> outputs{{1, true, oip::region_part{"r", 32, 4}}};
    auto regions = call_regions::open(table, inputs, outputs, model);
    ASSERT_TRUE(regions);
    std::vector<std::byte> payload(model.input_bytes);
    ASSERT_TRUE(regions->copy_in(placed_inputs(model), payload));
    EXPECT_EQ(std::memcmp(payload.data(), "aaaa", 4), 0);
    EXPECT_EQ(std::memcmp(payload.data() + 64, "bbbbbbbb", 8), 0);
    std::vector<std::byte> answer(model.output_bytes, std::byte{'y'});
    ASSERT_TRUE(regions->copy_out(model, std::vector{model.outputs[0].what, model.outputs[1].what}, answer));
    EXPECT_EQ(memory.get(31, 6), std::string("\0yyyy\0", 6));
    EXPECT_EQ(table->copied(), 16U);
    memory.resize(40);
    EXPECT_TRUE(regions->copy_in(placed_inputs(model), payload));
    memory.resize(8);
    const auto gone = regions->copy_in(placed_inputs(model), payload);
    ASSERT_FALSE(gone);
    EXPECT_TRUE(says(gone.error(), "shorter than when it was registered"));
    EXPECT_FALSE(regions->copy_out(model, std::vector{model.outputs[0].what, model.outputs[1].what}, answer));
    EXPECT_EQ(lseek(memory.file(), 0, SEEK_END), 8) << "an answer does not lengthen it";
}

TEST(regions_of_a_call, a_payload_is_lent_with_zeros_between_its_tensors) {
    auto ctx = any_context();
    const auto model = two_and_two();
    const shared_object memory{page};
    const auto table = std::make_shared<region_table>(ctx, permission{.system = true}, true);
    ASSERT_TRUE(table->add(memory::system, object("r", memory.key(), 64)));
    const std::vector<oip::region_input> inputs{{1, {"r", 4, 8}}, {0, {"r", 0, 4}}};
    auto regions = call_regions::open(table, inputs, {}, model);
    ASSERT_TRUE(regions);
    EXPECT_TRUE(regions->lend(placed_inputs(model), "tcp").empty()) << "tcp reads with system calls";
    auto beside = call_regions::open(table, std::span{inputs}.first(1), {}, model);
    EXPECT_TRUE(beside->lend(placed_inputs(model), "rdma").empty()) << "the other input lies in no region";
    EXPECT_EQ(call_regions::open(nullptr, inputs, {}, model).code(), status::unsupported);
    const auto lent = regions->lend(placed_inputs(model), "rdma");
    ASSERT_EQ(lent.size(), 3U);
    EXPECT_EQ(lent[0].size(), 4U);
    EXPECT_EQ(lent[1].size(), 60U);
    EXPECT_TRUE(std::ranges::all_of(lent[1].bytes(), [](std::byte each) { return each == std::byte{0}; }));
    EXPECT_EQ(lent[2].size(), 8U);
    EXPECT_TRUE(regions->check_kept());
    memory.resize(0);
    EXPECT_EQ(lent[0].bytes()[0], std::byte{0});
    EXPECT_FALSE(regions->check_kept());
    auto later = call_regions::open(table, inputs, {}, model);
    EXPECT_TRUE(later->lend(placed_inputs(model), "rdma").empty()) << "what was lost is lent no more";
}

TEST(regions_documents, registrations_are_read_and_listed) {
    auto one = read_registration(memory::system, "r", R"({"key":"/k","offset":8,"byte_size":16})");
    ASSERT_TRUE(one);
    EXPECT_EQ(status_document(memory::system, std::vector{one.value()}),
              R"([{"byte_size":16,"key":"/k","name":"r","offset":8}])");
    auto two = read_registration(memory::cuda, "g", R"({"raw_handle":{"b64":"YQ=="},"device_id":1,"byte_size":2})");
    ASSERT_TRUE(two);
    EXPECT_EQ(two->handle, "a");
    EXPECT_EQ(status_document(memory::cuda, std::vector{two.value()}), R"([{"byte_size":2,"device_id":1,"name":"g"}])");
    for (const char* bad : {"", "[]", "{}", R"({"key":"k"})", R"({"byte_size":1})", R"({"key":1,"byte_size":1})",
                            R"({"key":"k","byte_size":-1})", R"({"key":"k","byte_size":1.5})",
                            R"({"key":"k","byte_size":1,"offset":-1})"})
        EXPECT_FALSE(read_registration(memory::system, "r", bad)) << bad;
    for (const char* bad :
         {R"({"raw_handle":"YQ==","device_id":0,"byte_size":1})",
          R"({"raw_handle":{"b64":"?"},"device_id":0,"byte_size":1})", R"({"raw_handle":{"b64":"YQ=="},"byte_size":1})",
          R"({"raw_handle":{"b64":"YQ=="},"device_id":-1,"byte_size":1})"})
        EXPECT_FALSE(read_registration(memory::cuda, "r", bad)) << bad;
}

TEST(regions_messages, grpc_messages_are_read_and_written_like_documents) {
    wire::writer message;
    message.text(1, "r");
    message.text(2, "/k");
    message.number(3, 8);
    message.number(4, 16);
    const auto bytes = std::as_bytes(std::span{message.bytes()});
    auto one = wire::read_region_message(memory::system, std::vector{bytes});
    ASSERT_TRUE(one);
    EXPECT_TRUE(one->name == "r" && one->key == "/k" && one->offset == 8 && one->bytes == 16);
    // SystemSharedMemoryStatusResponse of protobuf: regions { "r": { r, /k, 8, 16 } }.
    EXPECT_EQ(wire::region_status_message(memory::system, std::vector{one.value()}),
              std::string("\x0a\x10\x0a\x01r\x12\x0b\x0a\x01r\x12\x02/k\x18\x08\x20\x10"));
    wire::writer long_key;
    long_key.text(2, std::string(257, 'a'));
    EXPECT_FALSE(wire::read_region_message(memory::cuda, std::vector{std::as_bytes(std::span{long_key.bytes()})}));
}

}  // namespace
}  // namespace accel::examples::serving::shared_memory
