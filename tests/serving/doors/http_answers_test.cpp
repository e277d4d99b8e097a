// SPDX-License-Identifier: Apache-2.0
// What the HTTP door answers, byte for byte: each mistake with its status, its header and its sentence.
#include "patience.hpp"
#include "serving/doors/coding/deflater.hpp"
#include "serving/doors/http/http_door.hpp"
#include "serving/doors/http/listener.hpp"
#include "serving/doors/oip/model_description.hpp"
#include "serving/doors/servers/door_models.hpp"
#include "serving/doors/servers/region_submit.hpp"

#include <accel_transport/accel_transport.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace accel::examples::serving::doors {
namespace {

using namespace std::chrono_literals;

/// A client that sends what it likes, and reads until the door has answered so often.
class blunt_client {
  public:
    explicit blunt_client(const std::string& where) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(where.substr(where.rfind(':') + 1))));
        EXPECT_EQ(::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
        const timeval hung{std::chrono::duration_cast<std::chrono::seconds>(tests::until_hung()).count(), 0};
        ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &hung, sizeof hung);
    }
    blunt_client(const blunt_client&) = delete;
    blunt_client& operator=(const blunt_client&) = delete;
    ~blunt_client() { ::close(fd_); }

    void send(std::string_view text) const {
        EXPECT_EQ(::send(fd_, text.data(), text.size(), MSG_NOSIGNAL), ssize(text));
    }
    /// The next answer; with all until the end where it says that the connection ends. `of_head`: without a body.
    std::string answer(bool of_head = false) {
        while (read_.find("\r\n\r\n") == read_.npos && read_some()) {
        }
        const std::size_t head = std::min(read_.find("\r\n\r\n"), read_.size() - 4) + 4;
        if (read_.substr(0, head).find("Connection: close\r\n") != read_.npos) {
            while (read_some()) {
            }
            return std::exchange(read_, {});
        }
        const std::size_t field = read_.find("Content-Length: ");
        const std::size_t whole = head + (of_head || field >= head ? 0 : std::stoul(read_.substr(field + 16)));
        while (read_.size() < whole && read_some()) {
        }
        std::string out = read_.substr(0, whole);
        read_.erase(0, whole);
        return out;
    }

  private:
    static ssize_t ssize(std::string_view text) { return static_cast<ssize_t>(text.size()); }
    bool read_some() {
        std::array<char, 4096> part;
        const ssize_t count = ::recv(fd_, part.data(), part.size(), 0);
        EXPECT_GE(count, 0) << "no answer within the time of a hang: " << read_;
        if (count > 0) read_.append(part.data(), static_cast<std::size_t>(count));
        return count > 0;
    }

    int fd_;
    std::string read_;
};

/// Doors in front of one server, whose models answer at once, but for `held`.
class http_answers : public ::testing::Test {
  public:
    /// Whatever was asked, nothing is left of it.
    ~http_answers() override {
        EXPECT_TRUE(tests::eventually([this] { return is_at_rest(); }));
        loop_.stop();
        running_.join();
    }

  protected:
    http_answers() {
        choices chosen;
        chosen.reach.slots = 2;
        for (const char* name : {"twice", "same", "words"}) chosen.models.push_back({name, uri_});
        chosen.models.push_back({"held", uri_ + "?slots=1"});
        chosen.described = {of("twice", "2"), of("same", "100"), of("held", "2"),
                            oip::read_description(R"({"name": "words", "decoupled": true, "inputs": [{"name":
                                "text_input", "datatype": "UINT8", "shape": [8], "text": true}], "outputs": [{"name":
                                "text_output", "datatype": "UINT8", "shape": [8], "text": true}]})")
                                .value()};
        behind_ = connect_models(loop_, ctx_, chosen).value();
    }
    static oip::model_description of(const std::string& name, const std::string& shape) {
        const std::string tensor = R"("datatype": "FP32", "shape": [)" + shape + "]}]";
        return oip::read_description(R"({"name": ")" + name + R"(", "inputs": [{"name": "x", )" + tensor +
                                     R"(, "outputs": [{"name": "y", )" + tensor + "}")
            .value();
    }
    void open(const door_settings& settings = {}, door_access access = {}) {
        settings_ = settings;
        door_ = std::make_unique<http_door>(loop_, bind_at(loop_, "127.0.0.1:0").value(), behind_.models, settings_,
                                            std::move(access));
        ASSERT_TRUE(door_->start());
        where_ = door_->endpoint().substr(door_->endpoint().find("//") + 2);
        running_ = std::thread([this] { loop_.run(); });
    }
    [[nodiscard]] std::shared_ptr<shared_memory::region_table> regions() {
        shared_memory::permission may;
        may.system = true;
        return open_regions(ctx_, may, behind_.models).value();
    }

    static std::string request(const std::string& method, const std::string& path, const std::string& fields = "",
                               const std::string& body = "") {
        return method + ' ' + path + " HTTP/1.1\r\nHost: d\r\n" + fields + "\r\n" + body;
    }
    static std::string post(const std::string& path, const std::string& body, const std::string& fields = "") {
        return request("POST", path, "Content-Length: " + std::to_string(body.size()) + "\r\n" + fields, body);
    }
    static std::string infer(const std::string& model, const std::string& body, const std::string& fields = "") {
        return post("/v2/models/" + model + "/infer", body, fields);
    }
    static std::string refusal(const std::string& status, const std::string& sentence, bool stays = true,
                               const std::string& more = "") {
        const std::string body = R"({"error":")" + sentence + R"("})";
        return "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) +
               "\r\nContent-Type: application/json\r\n" + more +
               (stays ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n") + body;
    }
    static std::string packed(const std::string& plain) {
        coding::deflater packer{coding::content_coding::gzip};
        std::string out;
        EXPECT_TRUE(packer.add(std::as_bytes(std::span{plain}), out) && packer.finish(out));
        return out;
    }
    [[nodiscard]] std::string answer(const std::string& request) const {
        blunt_client one(where_);
        one.send(request);
        return one.answer();
    }
    void expect_refusal(const std::string& request, const std::string& status, const std::string& sentence,
                        bool stays = true, const std::string& more = "") const {
        EXPECT_EQ(answer(request), refusal(status, sentence, stays, more)) << request;
    }
    void wait_for_held() {
        std::unique_lock lock(lock_);
        EXPECT_TRUE(changed_.wait_for(lock, tests::until_hung(), [this] { return !held_.empty(); }));
    }
    void answer_held() {
        const std::lock_guard lock(lock_);
        for (exchange& each : held_) answer_twice(std::move(each));
        held_.clear();
    }

    /// 1.5 and 2 in JSON, and as bytes.
    static constexpr const char* numbers_in_json =
        R"({"inputs":[{"name":"x","datatype":"FP32","shape":[2],"data":[1.5,2]}]})";
    static constexpr const char* retry = "Retry-After: 1\r\n";
    const std::string uri_ = "local://http-answers-" + std::to_string(::getpid());
    std::string where_;

  private:
    [[nodiscard]] bool is_at_rest() const {
        door_metrics& seen = door_->metrics();
        bool rests = seen.memory->taken() == 0 && seen.open_connections == 0;
        for (std::size_t row = 0; row < door_metrics::first_model + behind_.models.size(); ++row)
            rests = rests && seen.row(row).in_flight == 0;
        return rests;
    }
    static void answer_twice(exchange one) {
        std::array<float, 2> values{};
        if (one.request().size() != sizeof values) return void(one.fail(status::invalid_argument));
        std::memcpy(values.data(), one.request().data(), sizeof values);
        if (values[0] < 0) return void(one.fail(status::application_error, 7, "below zero"));
        for (float& each : values) each *= 2;
        std::memcpy(one.response().data(), values.data(), sizeof values);
        (void)one.reply(sizeof values);
    }
    static void answer_same(exchange one) {
        std::ranges::copy(one.request(), one.response().begin());
        (void)one.reply(one.request().size());
    }
    /// Each byte of its text in a part, until the first zero.
    static void answer_in_words(exchange one) {
        for (const std::byte each : one.request()) {
            std::array<std::byte, 8> part{each};
            if (each == std::byte{0} || one.send(part) != status::ok) break;
        }
        (void)one.reply(0);
    }
    void hold(exchange one) {
        const std::lock_guard lock(lock_);
        held_.push_back(std::move(one));
        changed_.notify_all();
    }

    std::mutex lock_;
    std::condition_variable changed_;
    std::deque<exchange> held_;
    context ctx_ = context::open({.log = log_level::off}).value();
    server server_ = server::listen(ctx_, {uri_},
                                    service_table{{{"twice", answer_twice},
                                                   {"same", answer_same},
                                                   {"words", answer_in_words},
                                                   {"held", [this](exchange one) { hold(std::move(one)); }}},
                                                  {}})
                         .value();
    boost::asio::io_context loop_{1};
    door_models behind_;
    door_settings settings_;
    std::unique_ptr<http_door> door_;
    std::thread running_;
};

TEST_F(http_answers, each_mistake_in_a_header_has_its_status_and_sentence) {
    open();
    expect_refusal(request("GET", "/v3"), "404 Not Found", "there is nothing at '/v3'");
    expect_refusal(request("GET", "/v2/models/none"), "404 Not Found", "there is no model 'none'");
    expect_refusal(request("DELETE", "/v2"), "405 Method Not Allowed", "the method must be GET or HEAD", true,
                   "Allow: GET, HEAD\r\n");
    expect_refusal(post("/v2/health/live", "{}"), "405 Method Not Allowed", "the method must be GET or HEAD", false,
                   "Allow: GET, HEAD\r\n");
    expect_refusal(request("GET", "/v2/models/twice/infer"), "405 Method Not Allowed", "the method must be POST", true,
                   "Allow: POST\r\n");
    expect_refusal("GET /v2 HTTP/1.1\r\n\r\n", "400 Bad Request", "an HTTP/1.1 request must have exactly one Host",
                   false);
    expect_refusal(request("GET", "/v2", "Host: e\r\n"), "400 Bad Request",
                   "an HTTP/1.1 request must have exactly one Host", false);
    expect_refusal(request("POST", "/v2/models/twice/infer", "Transfer-Encoding: gzip\r\n"), "400 Bad Request",
                   "this door knows no Transfer-Encoding except chunked, once", false);
    expect_refusal("POST /v2/models/twice/infer HTTP/1.0\r\nHost: d\r\nTransfer-Encoding: chunked\r\n\r\n",
                   "400 Bad Request", "HTTP/1.0 has no Transfer-Encoding", false);
    expect_refusal(request("GET", "/v2", "A: b\r\n c\r\n"), "400 Bad Request",
                   "this is not a valid HTTP/1.1 request: bad field", false);
    expect_refusal(request("GET", "/v2", "A: " + std::string(8 << 10, 'a') + "\r\n"),
                   "431 Request Header Fields Too Large", "the header is longer than 8 KiB", false);
    const std::string longest = request("GET", "/v3", "A: \r\n");
    const std::string fitting = request("GET", "/v3", "A: " + std::string((8 << 10) - longest.size(), 'a') + "\r\n");
    expect_refusal(fitting, "404 Not Found", "there is nothing at '/v3'");
    expect_refusal(request("GET", "/v3", "A: " + std::string((8 << 10) - longest.size() + 1, 'a') + "\r\n"),
                   "431 Request Header Fields Too Large", "the header is longer than 8 KiB", false);
}

TEST_F(http_answers, each_mistake_of_a_body_has_its_status_and_sentence) {
    open();
    expect_refusal(infer("none", "{}"), "404 Not Found", "there is no model 'none'", false);
    expect_refusal(request("POST", "/v2/models/twice/infer"), "411 Length Required",
                   "a request needs a Content-Length");
    expect_refusal(request("POST", "/v2/models/twice/infer", "Transfer-Encoding: chunked\r\n"), "411 Length Required",
                   "a request needs a Content-Length", false);
    expect_refusal(infer("twice", "{}", "Content-Encoding: br\r\n"), "415 Unsupported Media Type",
                   "this door only knows gzip and deflate", false, "Accept-Encoding: gzip, deflate\r\n");
    expect_refusal(infer("twice", "{}", "Expect: rain\r\n"), "417 Expectation Failed",
                   "this door knows no expectation except 100-continue", false);
    expect_refusal(infer("words", "{}"), "400 Bad Request",
                   "model 'words' is decoupled, and answers in parts: ask for generate, generate_stream or "
                   "ModelStreamInfer",
                   false);
    expect_refusal(post("/v2/models/words/generate", R"({"text_input":"ab"})"), "400 Bad Request",
                   "the model answers in several parts: ask for generate_stream");
    expect_refusal(infer("twice", R"({"inputs":[{"name":"x","datatype":"FP32","shape":[2],"data":[-1,2]}]})"),
                   "500 Internal Server Error", "the model's server answered application_error: below zero");
    const std::string gzip = "Content-Encoding: gzip\r\n";
    const std::string good = packed(numbers_in_json);
    expect_refusal(infer("twice", "no gzip", gzip), "400 Bad Request", "the body does not match its Content-Encoding",
                   false);
    expect_refusal(infer("twice", good + "x", gzip), "400 Bad Request", "other bytes follow the compressed body",
                   false);
    expect_refusal(infer("twice", good.substr(0, good.size() - 1), gzip), "400 Bad Request",
                   "the compressed body is incomplete", false);
    expect_refusal(infer("twice", good, gzip + "Inference-Header-Content-Length: 400\r\n"), "400 Bad Request",
                   "the body is shorter than its Inference-Header-Content-Length");
    expect_refusal(infer("twice", packed(std::string(100'000, ' ')), gzip), "413 Content Too Large",
                   "the body is longer than this model accepts, after decompression", false);
    for (const char* length : {"99999", "x", "-1"})
        expect_refusal(infer("twice", good, gzip + "Inference-Header-Content-Length: " + length + "\r\n"),
                       "413 Content Too Large",
                       "the body, or its Inference-Header-Content-Length, is longer than this model needs", false);
}

TEST_F(http_answers, good_requests_are_answered_byte_for_byte) {
    open();
    const std::string in_json = R"({"model_name":"twice","model_version":"1","outputs":[)"
                                R"({"name":"y","datatype":"FP32","shape":[2],"data":[3,4]}]})";
    const auto ok = [](const std::string& body, const std::string& more = "") {
        return "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) +
               "\r\nContent-Type: application/json\r\n" + more + "Connection: keep-alive\r\n\r\n" + body;
    };
    EXPECT_EQ(answer(infer("twice", numbers_in_json)), ok(in_json));
    EXPECT_EQ(answer(infer("twice", packed(numbers_in_json), "Content-Encoding: gzip\r\n")), ok(in_json));
    const std::string trace = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n";
    EXPECT_EQ(answer(infer("twice", numbers_in_json, trace + "baggage: a=1\r\n")),
              ok(in_json, trace + "baggage: a=1\r\n"));
    EXPECT_EQ(answer(infer("twice", numbers_in_json, trace + trace + "baggage: a=1\r\nbaggage: b=2\r\n")), ok(in_json))
        << "of several none holds";
    EXPECT_EQ(answer(request("GET", "/v2/health/live")), ok(R"({"live":true})"));
    EXPECT_EQ(answer(request("GET", "/v2/health/ready")), ok(R"({"ready":true})"));
    EXPECT_EQ(answer(post("/v2/systemsharedmemory/unregister", "")),
              "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n")
        << "also where no memory is allowed";
    blunt_client one(where_);
    one.send(request("HEAD", "/v2/health/live") + infer("twice", numbers_in_json, "Expect: 100-continue\r\n"));
    EXPECT_EQ(one.answer(true), ok(R"({"live":true})").substr(0, ok(R"({"live":true})").size() - 13));
    EXPECT_EQ(one.answer(true), "HTTP/1.1 100 Continue\r\n\r\n");
    EXPECT_EQ(one.answer(), ok(in_json));
    const std::string head =
        R"({"inputs":[{"name":"x","datatype":"FP32","shape":[2],"parameters":{"binary_data_size":8}}],)"
        R"("outputs":[{"name":"y","parameters":{"binary_data":true}}]})";
    const std::array<float, 2> sent{1.5F, 2}, wanted{3, 4};
    const std::string bytes(reinterpret_cast<const char*>(sent.data()), sizeof sent);
    const std::string described =
        R"({"model_name":"twice","model_version":"1","outputs":[{"name":"y","datatype":"FP32","shape":[2],)"
        R"("parameters":{"binary_data_size":8}}]})";
    for (int i = 0; i < 3; ++i) {  // over one connection
        one.send(
            infer("twice", head + bytes, "Inference-Header-Content-Length: " + std::to_string(head.size()) + "\r\n"));
        EXPECT_EQ(one.answer(), "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(described.size() + 8) +
                                    "\r\nContent-Type: application/octet-stream\r\nInference-Header-Content-Length: " +
                                    std::to_string(described.size()) + "\r\nConnection: keep-alive\r\n\r\n" +
                                    described +
                                    std::string(reinterpret_cast<const char*>(wanted.data()), sizeof wanted));
    }
    one.send("GET /v2/health/live HTTP/1.0\r\n\r\n");
    const std::string last = one.answer();
    EXPECT_NE(last.find("Connection: close\r\n\r\n{\"live\":true}"), last.npos) << last;
}

TEST_F(http_answers, requests_for_shared_memory_are_short_and_plain) {
    door_access access;
    access.regions = regions();
    open({}, std::move(access));
    const std::string path = "/v2/systemsharedmemory/region/r/register";
    expect_refusal(post(path, "{}", "Content-Encoding: gzip\r\n"), "415 Unsupported Media Type",
                   "requests for shared memory must not be compressed", false);
    expect_refusal(request("POST", path, "Transfer-Encoding: chunked\r\n"), "411 Length Required",
                   "a request needs a Content-Length", false);
    expect_refusal(post(path, std::string(4097, ' ')), "413 Content Too Large", "the body is longer than 4096 bytes",
                   false);
    const std::string longest = answer(post(path, std::string(4096, ' ')));
    EXPECT_EQ(longest.rfind("HTTP/1.1 400 Bad Request\r\n", 0), 0U) << longest;
    EXPECT_NE(longest.find("Connection: keep-alive"), longest.npos);
}

TEST_F(http_answers, a_door_without_regions_and_tokens_says_what_is_missing) {
    door_access access;
    access.tokens = access::token_list::parse("secret").value();
    open({}, std::move(access));
    const std::string path = "/v2/systemsharedmemory/region/r/register";
    expect_refusal(post(path, "{}", "Authorization: Bearer secret\r\n"), "501 Not Implemented",
                   "this door accepts no shared memory: start it with --shared-memory", false);
    expect_refusal(request("GET", "/v2"), "401 Unauthorized", "a token is required: send Authorization: Bearer TOKEN",
                   true, "WWW-Authenticate: Bearer\r\n");
    expect_refusal(request("GET", "/v3", "Authorization: Bearer other\r\n"), "401 Unauthorized",
                   "this token is not known here", true, "WWW-Authenticate: Bearer error=\"invalid_token\"\r\n");
    for (const char* open : {"/v2/health/live", "/v2/health/ready"})
        EXPECT_EQ(answer(request("GET", open)).rfind("HTTP/1.1 200 OK\r\n", 0), 0U) << open;
}

TEST_F(http_answers, a_door_without_memory_asks_clients_to_come_again) {
    open({.max_json_memory = 1000});
    const std::string head =
        R"({"inputs":[{"name":"x","datatype":"FP32","shape":[100],"parameters":{"binary_data_size":400}}]})";
    const std::string split = "Inference-Header-Content-Length: " + std::to_string(head.size()) + "\r\n";
    for (int i = 0; i < 3; ++i) {
        expect_refusal(infer("same", std::string(1001, ' ')), "429 Too Many Requests",
                       "too many requests with JSON are being read", false, retry);
        expect_refusal(infer("same", packed(head), "Content-Encoding: gzip\r\n"), "429 Too Many Requests",
                       "too many compressed requests are being read", false, retry);
        expect_refusal(infer("same", head + std::string(400, '\0'), split), "429 Too Many Requests",
                       "too many answers in JSON are being written", true, retry);
        EXPECT_EQ(answer(infer("twice", numbers_in_json)).rfind("HTTP/1.1 200 OK\r\n", 0), 0U);
    }
}

TEST_F(http_answers, a_header_that_is_not_whole_has_a_timeout) {
    open({.head_timeout = 50ms});
    expect_refusal("GET /v2 HTTP/1.1\r\n", "408 Request Timeout", "the header did not arrive in time", false);
}

TEST_F(http_answers, clients_that_send_nothing_more_are_told_what_is_missing) {
    open({.body_timeout = 50ms, .body_rate = 0});
    const std::string json = numbers_in_json;
    const std::string path = "POST /v2/models/twice/infer HTTP/1.1\r\nHost: d\r\nContent-Length: ";
    const auto length = [](std::size_t bytes) { return std::to_string(bytes) + "\r\n"; };
    expect_refusal(path + length(json.size() + 1) + "\r\n" + json, "408 Request Timeout",
                   "the JSON did not arrive in time", false);
    const std::string good = packed(json);
    expect_refusal(path + length(good.size() + 1) + "Content-Encoding: gzip\r\n\r\n" + good.substr(0, 20),
                   "408 Request Timeout", "the body did not arrive in time", false);
    const std::string head =
        R"({"inputs":[{"name":"x","datatype":"FP32","shape":[2],"parameters":{"binary_data_size":8}}]})";
    expect_refusal(path + length(head.size() + 8) + "Inference-Header-Content-Length: " + length(head.size()) + "\r\n" +
                       head + "1234567",
                   "408 Request Timeout", "the tensors did not arrive in time", false);
}

TEST_F(http_answers, a_request_waits_for_a_slot_and_no_longer_than_it_may) {
    open({.slot_timeout = 50ms});
    blunt_client first(where_);
    first.send(infer("held", numbers_in_json));
    wait_for_held();
    expect_refusal(infer("held", numbers_in_json), "429 Too Many Requests", "no call to this model became free in time",
                   true, retry);
    answer_held();
    EXPECT_EQ(first.answer().rfind("HTTP/1.1 200 OK\r\n", 0), 0U);
}

TEST_F(http_answers, requests_of_a_model_are_bounded) {
    open({.max_model_requests = 1});
    blunt_client first(where_);
    first.send(infer("held", numbers_in_json));
    wait_for_held();
    expect_refusal(infer("held", numbers_in_json), "429 Too Many Requests", "too many requests for this model are open",
                   false, retry);
    EXPECT_EQ(answer(infer("twice", numbers_in_json)).rfind("HTTP/1.1 200 OK\r\n", 0), 0U) << "of another model";
    answer_held();
    EXPECT_EQ(first.answer().rfind("HTTP/1.1 200 OK\r\n", 0), 0U);
}

}  // namespace
}  // namespace accel::examples::serving::doors
