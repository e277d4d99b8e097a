// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/coding/content_coding.hpp"
#include "serving/doors/coding/inflater.hpp"
#include "serving/doors/counting/counted_request.hpp"
#include "serving/doors/http/client_stream.hpp"
#include "serving/doors/http/deadline_order.hpp"
#include "serving/doors/http/event_queue.hpp"
#include "serving/doors/http/http_door.hpp"
#include "serving/doors/http/packed_answer.hpp"
#include "serving/doors/oip/body_plan.hpp"
#include "serving/doors/oip/head_reader.hpp"
#include "serving/doors/oip/infer_answer.hpp"
#include "serving/doors/oip/infer_head.hpp"
#include "serving/doors/oip/refusal.hpp"
#include "serving/doors/oip/route.hpp"
#include "serving/doors/servers/backend.hpp"
#include "serving/doors/servers/body_pace.hpp"
#include "serving/doors/servers/passed_metadata.hpp"
#include "serving/doors/servers/returned_request.hpp"
#include "serving/doors/shared_memory/call_regions.hpp"

#include <accel_transport/trace.hpp>

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
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>

namespace accel::examples::serving::doors {

/// One client's connection: a request after the other, each wholly answered before the next is read. Its files follow a
/// request: connection.cpp (HTTP), connection_infer.cpp (an inference), connection_reply.cpp (answers),
/// connection_stream.cpp (answers of the generate extension), connection_coding.cpp (compressed bodies, both ways),
/// connection_regions.cpp (shared memory).
class connection final : public caller,
                         public idle_entry,
                         public deadline_entry,
                         public std::enable_shared_from_this<connection> {
  public:
    /// `of`: of `client_of`.
    connection(boost::asio::ip::tcp::socket from, const boost::asio::ip::address& of, http_door& door);

    void start();
    /// The door ends before the loop, whose handlers hold connections.
    void leave_door() noexcept { counted_.drop(); }
    /// Ends what has waited for the client too long.
    void expire(std::chrono::steady_clock::time_point now);
    /// When to call `expire` next; max: not before it enters another stage.
    [[nodiscard]] std::chrono::steady_clock::time_point next_look() const;
    /// Ends after the request that is under way, if any.
    void drain();

    void on_slot(status got, const call_slot& slot) override;
    void on_answer(door_channel& on, const completion& answer) override;
    /// A request has arrived that is not read yet.
    [[nodiscard]] bool has_begun();
    /// Makes room for another client.
    void yield() { close(); }
    [[nodiscard]] std::uint64_t sticky_key() const override { return number_; }
    [[nodiscard]] std::span<const metadata_entry> metadata() const override { return entries_of(passed_); }

  private:
    static constexpr std::size_t longest_read = std::size_t{1} << 20;

    /// What the connection waits for.
    enum class stage : std::uint8_t { handshake, idle, head, json, slot, body, call, stream, write, linger, closed };
    using error_code = boost::system::error_code;
    using clock = std::chrono::steady_clock;
    using request_parser = boost::beast::http::request_parser<boost::beast::http::empty_body>;

    void enter(stage next, std::chrono::milliseconds patience);
    /// It waits for a request, for the rest of a header, or for TLS.
    [[nodiscard]] bool is_idle() const {
        return stage_ == stage::handshake || stage_ == stage::idle || stage_ == stage::head || stage_ == stage::linger;
    }
    /// The client is to send a body, or a part of it.
    void enter_body(stage next);
    [[nodiscard]] bool reads_body() const { return stage_ == stage::body || stage_ == stage::json; }
    [[nodiscard]] bool is_too_slow(clock::time_point now);
    void watch();
    void on_readable(const error_code& failed);
    void look_for_the_end();
    void leave();

    // HTTP.
    void on_handshake(const error_code& failed);
    void next_request();
    void read_head();
    void take_head();
    [[nodiscard]] bool is_long_head(const error_code& failed) const;
    void on_head(const error_code& failed);
    void refuse_head(const error_code& failed);
    void dispatch();
    /// False: answered, because the client has no token.
    [[nodiscard]] bool check_token(bool open_to_all);
    void answer_get(const oip::route& to);
    void answer_ready(bool ready, std::string document);

    // Inference.
    void begin_infer(const oip::route& to);
    [[nodiscard]] bool plan_body();
    void read_payload();
    void read_json();
    void on_json(const error_code& failed);
    void take_request();
    void read_inputs();
    void drop_json_text();
    void read_body();
    void on_body(const error_code& failed);
    void submit();
    /// What its client says; not valid: nothing.
    [[nodiscard]] trace_context trace() const;
    [[nodiscard]] std::string_view baggage() const;
    /// Whether the client's `Connection` names this header.
    [[nodiscard]] bool is_of_connection(std::string_view name) const;
    /// Reads the headers that are passed on as metadata. False: one was refused, and the client has its answer.
    [[nodiscard]] bool take_metadata();
    [[nodiscard]] result<oip::infer_request> read_request();
    /// How many unread parts the answer may have.
    [[nodiscard]] std::uint32_t parts_wanted() const;
    /// For `async_read`: counts what has come of the body.
    [[nodiscard]] auto count_body() {
        return [this](const error_code& failed, std::size_t bytes) {
            pace_.has(bytes);
            return failed ? std::size_t{0} : longest_read;
        };
    }
    void enter_slot();
    /// The request was taken back from a server: asks for a slot at another one.
    void offer_again();
    /// Gives the slot back, if there is one.
    void abandon();
    /// Moves what was read ahead to where it belongs, and returns how much of `to` that is.
    std::size_t take_read_ahead(std::span<std::byte> to);
    /// Gives back the memory of the JSON, and of the numbers that were in it.
    void give_json();

    // Shared memory of clients.
    void begin_regions(oip::route to);
    void answer_regions();

    // Compressed bodies.
    [[nodiscard]] bool plan_coded_body(std::optional<std::string_view> length);
    void read_coded();
    void inflate_some();
    [[nodiscard]] bool grow_plain();
    void refuse_long();
    void on_coded(const error_code& failed);
    void on_plain();
    std::size_t take_plain(std::span<std::byte> to);
    /// True: the answer is being compressed, and is written afterwards.
    [[nodiscard]] bool begin_packing();
    void pack_some();
    void end_packing();

    // The generate extension.
    [[nodiscard]] bool is_stream() const { return what_ == oip::action::generate_stream; }
    void on_part(door_channel& on, const completion& from);
    /// True: the model's answer has begun.
    [[nodiscard]] bool has_part() const { return !document_.empty() || events_.begun() || broken_; }
    void take_part(door_channel& on, const completion& from);
    void take_end(door_channel& on, const completion& from);
    [[nodiscard]] result<std::string> document_of(door_channel& on, const completion& from);
    [[nodiscard]] result<std::string> end_of(door_channel& on, const completion& from);
    void give_up_call(error why);
    void end_stream(const result<std::string>& last);
    void begin_events();
    void queue_event(std::string_view document, call_id part);
    void write_events();
    void on_events_written(const error_code& failed, std::size_t bytes);
    void finish_stream();
    void drop_parts();

    // Answers.
    void write_some();
    void answer(door_channel& on, const completion& from);
    /// Takes the metadata of an answer that goes back to the client.
    [[nodiscard]] result<void> pass_back_metadata(const completion& from);
    void refuse(const error& why) { reply(oip::http_status_of(why.code), why.message); }
    /// An error with a sentence. Closes the connection if a part of the request is unread.
    void reply(int http_status, std::string_view sentence, std::string_view more = {});
    void reply_document(std::string document);
    void reply_tensors(oip::infer_answer made);
    void send(int http_status, std::string_view more = {});
    void write_answer(int http_status, std::string_view more);
    void write_pieces();
    void on_sent(const error_code& failed, std::size_t bytes);
    void count(int http_status);
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
    std::size_t head_bytes_ = 0;  ///< of the header that the parser has taken

    // The request.
    oip::action what_ = oip::action::live;
    counted_request counted_;
    body_pace pace_;
    clock::time_point began_{};
    bool keep_alive_ = true;
    bool head_only_ = false;  ///< HEAD: the answer has no body
    bool unread_ = false;     ///< a part of the body is not read yet
    served_model* model_ = nullptr;
    oip::body_plan plan_;
    bool has_binary_ = false;     ///< the client says where the JSON ends
    std::size_t json_taken_ = 0;  ///< of the door's memory
    std::string json_;
    oip::head_reader heads_;
    oip::infer_request request_;
    std::optional<oip::json_inputs> reading_;  ///< its inputs in JSON
    std::vector<boost::asio::mutable_buffer> places_;
    std::optional<oip::route> of_regions_;  ///< the request is for shared memory
    shared_metadata passed_;

    // The call.
    std::optional<call_slot> slot_;
    returned_request returned_;
    shared_memory::call_regions regions_;

    // A compressed body.
    coding::content_coding coding_ = coding::content_coding::identity;
    std::unique_ptr<coding::inflater> inflater_;
    std::uint64_t coded_left_ = 0;  ///< of the body, as it comes
    std::size_t plain_limit_ = 0;
    std::string plain_;            ///< the body, and room for more of it
    std::size_t plain_bytes_ = 0;  ///< of the body
    std::size_t plain_taken_ = 0;  ///< of these, at their places already

    // A compressed answer.
    std::unique_ptr<packed_answer> packing_;

    // An answer in parts.
    door_channel* parts_on_ = nullptr;  ///< null: none has come
    event_queue events_;
    std::string document_;         ///< the only one of `generate`
    std::optional<error> broken_;  ///< why the door has cancelled the call itself

    // The answer.
    struct answer_in_json {
        oip::answer_maker maker;
        std::uint64_t taken;  ///< of the door's memory
        timeline stages;
    };
    std::optional<answer_in_json> writing_;
    std::string header_;
    std::string passed_back_;  ///< lines of it
    oip::infer_answer body_;
    std::uint64_t body_json_bytes_ = 0;  ///< of the body, before it was compressed; 0: it is JSON alone
    std::vector<boost::asio::const_buffer> pieces_;
    bool close_after_ = false;
};

}  // namespace accel::examples::serving::doors
