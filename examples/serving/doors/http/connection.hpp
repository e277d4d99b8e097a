// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/http/client_stream.hpp"
#include "serving/doors/http/http_door.hpp"
#include "serving/doors/oip/body_plan.hpp"
#include "serving/doors/oip/infer_answer.hpp"
#include "serving/doors/oip/infer_head.hpp"
#include "serving/doors/oip/refusal.hpp"
#include "serving/doors/oip/route.hpp"
#include "serving/doors/servers/backend.hpp"
#include "serving/doors/shared_memory/call_regions.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>

namespace accel::examples::serving::doors {

/// One client's connection: a request after the other, each wholly answered before the next is read. Its files follow a
/// request: connection.cpp (HTTP), connection_infer.cpp (an inference),
/// connection_regions.cpp (shared memory), connection_reply.cpp (answers).
class connection final : public caller, public std::enable_shared_from_this<connection> {
  public:
    connection(boost::asio::ip::tcp::socket from, http_door& door);

    void start();
    /// Ends what has waited for the client too long.
    void expire(std::chrono::steady_clock::time_point now);
    /// Ends after the request that is under way, if any.
    void drain();

    void on_slot(status got, const call_slot& slot) override;
    void on_answer(door_channel& on, const completion& answer) override;
    [[nodiscard]] std::uint64_t sticky_key() const override { return number_; }

  private:
    /// What the connection waits for.
    enum class stage : std::uint8_t { handshake, idle, head, json, slot, body, call, write, linger, closed };
    using error_code = boost::system::error_code;
    using clock = std::chrono::steady_clock;
    using request_parser = boost::beast::http::request_parser<boost::beast::http::empty_body>;

    void enter(stage next, std::chrono::milliseconds patience);
    void watch();
    void on_readable(const error_code& failed);
    void look_for_the_end();
    void leave();

    // HTTP.
    void on_handshake(const error_code& failed);
    void next_request();
    void read_head();
    void on_head(const error_code& failed);
    void refuse_head(const error_code& failed);
    void dispatch();
    /// False: answered, because the client has no token.
    [[nodiscard]] bool check_token(bool open_to_all);
    void answer_get(const oip::route& to);
    void answer_ready(bool ready);

    // Inference.
    void begin_infer(const std::string& model);
    [[nodiscard]] bool plan_body();
    void read_json();
    void on_json(const error_code& failed);
    void read_body();
    void on_body(const error_code& failed);
    void submit();
    /// Gives the slot back, if there is one.
    void abandon();
    /// Moves what was read ahead to where it belongs, and returns how much of `to` that is.
    std::size_t take_read_ahead(std::span<std::byte> to);
    /// Gives back the memory of the JSON, and of the numbers that were in it.
    void give_json();

    // Shared memory of clients.
    void begin_regions(oip::route to);
    void answer_regions();

    // Answers.
    void answer(door_channel& on, const completion& from);
    void refuse(const error& why) { reply(oip::http_status_of(why.code), why.message); }
    /// An error with a sentence. Closes the connection if a part of the request is unread.
    void reply(int http_status, std::string_view sentence, std::string_view more = {});
    void reply_document(std::string document);
    void reply_tensors(oip::infer_answer made);
    void send(int http_status, std::string_view more = {});
    void on_sent(const error_code& failed, std::size_t bytes);
    void count(int http_status);
    /// The request is in flight no more.
    void end_request();
    void linger();
    void discard();
    void close();

    client_stream stream_;
    http_door& door_;
    const std::uint64_t number_;  ///< of the door's connections
    stage stage_ = stage::idle;
    clock::time_point deadline_{};
    bool expired_ = false;   ///< `deadline_` has passed, and what waits is being ended
    bool watching_ = false;  ///< for the socket to become readable
    boost::beast::flat_buffer read_ahead_;
    std::optional<request_parser> parser_;

    // The request.
    bool in_flight_ = false;
    clock::time_point began_{};
    bool keep_alive_ = true;
    bool head_only_ = false;  ///< HEAD: the answer has no body
    bool unread_ = false;     ///< a part of the body is not read yet
    served_model* model_ = nullptr;
    oip::body_plan plan_;
    std::size_t json_taken_ = 0;  ///< of the door's memory
    std::string json_;
    oip::infer_request request_;
    std::vector<boost::asio::mutable_buffer> places_;
    std::optional<oip::route> of_regions_;  ///< the request is for shared memory

    // The call.
    std::optional<call_slot> slot_;
    shared_memory::call_regions regions_;

    // The answer.
    std::string header_;
    oip::infer_answer body_;
    std::vector<boost::asio::const_buffer> pieces_;
    bool close_after_ = false;
};

}  // namespace accel::examples::serving::doors
