// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/grpc/door/grpc_door.hpp"

#include "serving/doors/counting/counted_request.hpp"
#include "serving/doors/grpc/door/health_watch.hpp"
#include "serving/doors/grpc/door/reflection_stream.hpp"
#include "serving/doors/grpc/door/rpc.hpp"
#include "serving/doors/grpc/door/stream_rpc.hpp"
#include "serving/doors/http/listener.hpp"
#include "serving/doors/oip/body_plan.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/post.hpp>
#include <grpc/support/log.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

namespace accel::examples::serving::doors {
namespace {

constexpr std::size_t message_frame_bytes = 64 << 10;  // names, shapes, parameters
constexpr std::size_t longest_number_bytes = 10;       // of a varint
constexpr int streams_of_a_connection = 256;
/// A connection that has more has reset some: as many may be open, and as many forgotten soon.
constexpr std::uint64_t crowded_streams = std::uint64_t{2} * streams_of_a_connection;
/// How many streams gRPC may have for each call of `max_calls`, before crowded connections end.
constexpr std::uint64_t most_streams_of_a_call = 4;
/// How exact the deadlines of clients are.
constexpr std::chrono::milliseconds tick_time{100};
constexpr int max_header_bytes = 8 << 10;
constexpr std::string_view health_watch_path = "/grpc.health.v1.Health/Watch";
constexpr std::size_t most_watches = 128;
/// Codes of gRPC that the door answers with.
constexpr status_name status_names[] = {
    {::grpc::StatusCode::OK, "OK"},
    {::grpc::StatusCode::CANCELLED, "CANCELLED"},
    {::grpc::StatusCode::INVALID_ARGUMENT, "INVALID_ARGUMENT"},
    {::grpc::StatusCode::DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED"},
    {::grpc::StatusCode::NOT_FOUND, "NOT_FOUND"},
    {::grpc::StatusCode::RESOURCE_EXHAUSTED, "RESOURCE_EXHAUSTED"},
    {::grpc::StatusCode::UNIMPLEMENTED, "UNIMPLEMENTED"},
    {::grpc::StatusCode::INTERNAL, "INTERNAL"},
    {::grpc::StatusCode::UNAVAILABLE, "UNAVAILABLE"},
    {::grpc::StatusCode::UNAUTHENTICATED, "UNAUTHENTICATED"},
    {::grpc::StatusCode::UNKNOWN, "UNKNOWN"},
};
constexpr std::string_view stream_infer = "/inference.GRPCInferenceService/ModelStreamInfer";

/// gRPC takes an int, and a day is as good as longer.
int milliseconds_of(std::chrono::milliseconds time) {
    return static_cast<int>(std::min<std::chrono::milliseconds>(time, std::chrono::hours{24}).count());
}

/// Clients may ping as long as their connection is open, and so does the door: nothing else tells that a peer is gone
/// while a stream is silent.
void set_keepalive(::grpc::ServerBuilder& to, const door_settings& settings) {
    to.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                          milliseconds_of(settings.ping_interval));
    to.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    to.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    to.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, milliseconds_of(settings.keepalive_time));
    to.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, milliseconds_of(settings.keepalive_timeout));
}

/// gRPC writes a line for each wrong header of a client, so that anybody could fill the log. GRPC_VERBOSITY has them
/// written again.
void write_no_lines() {
    if (std::getenv("GRPC_VERBOSITY") != nullptr) return;
    gpr_set_log_verbosity(static_cast<gpr_log_severity>(GPR_LOG_SEVERITY_ERROR + 1));
}

/// Answers without a look at the call's message.
class refusing_call final : public ::grpc::ServerGenericBidiReactor {
  public:
    refusing_call(::grpc::StatusCode code, const char* sentence) { Finish({code, sentence}); }
    void OnDone() override { delete this; }
};

/// It keeps itself alive.
template <typename Call, typename... Of>
::grpc::ServerGenericBidiReactor* started(Of&&... of) {
    const auto made = std::make_shared<Call>(std::forward<Of>(of)...);
    made->start();
    return made.get();
}

bool is_open_to_all(method what) {
    return what == method::server_live || what == method::server_ready || what == method::health;
}

/// What a client without a token is told. Null: it may call.
const char* why_unknown(const std::multimap<::grpc::string_ref, ::grpc::string_ref>& metadata,
                        const access::token_list& tokens) {
    const auto found = metadata.find("authorization");
    const bool none = found == metadata.end();
    const ::grpc::string_ref field = none ? ::grpc::string_ref{} : found->second;
    if (tokens.allow({field.data(), field.size()})) return nullptr;
    return none ? "a token is required: send the metadata authorization: Bearer TOKEN" : "this token is not known here";
}

}  // namespace

std::size_t longest_message(const served_model& model, const door_settings& settings) {
    const auto& inputs = model.description.inputs;
    std::size_t numbers = 0;
    for (const oip::named_tensor& each : inputs) numbers += each.max_bytes * 8 / each.what.type.bits;
    const std::size_t typed = std::min(settings.max_json_bytes, numbers * longest_number_bytes);
    return message_frame_bytes + std::max<std::size_t>(binary_input_bytes(model.description), typed);
}

std::size_t largest_message(const model_table& models, const door_settings& settings) {
    std::size_t out = message_frame_bytes;
    for (const auto& [name, each] : models) out = std::max(out, longest_message(each, settings));
    return out;
}

grpc_door::grpc_door(boost::asio::io_context& loop, boost::asio::ip::tcp::acceptor acceptor, model_table& models,
                     const door_settings& settings, door_access access)
    : loop_(loop),
      work_(loop.get_executor()),
      metrics_("grpc", status_names, names_of(models), settings.max_json_memory),
      listener_(loop, std::move(acceptor), settings, metrics_),
      guard_(crowded_streams, most_streams_of_a_call * settings.max_calls),
      models_(models),
      settings_(settings),
      message_limit_(largest_message(models, settings)),
      access_(std::move(access)),
      certificate_(access_.certificate, access_.key),
      tokens_(std::make_shared<access::token_list>(access_.tokens)),
      timer_(loop) {
    tick();
}

grpc_door::~grpc_door() {
    if (stopper_.joinable()) stopper_.join();
}

std::string grpc_door::endpoint() const {
    return (access_.key.empty() ? "grpc://" : "grpcs://") + address_of(listener_.acceptor());
}

std::shared_ptr<::grpc::ServerCredentials> grpc_door::credentials() {
    return access_.key.empty() ? ::grpc::InsecureServerCredentials() : certificate_.credentials();
}

result<void> grpc_door::start() {
    write_no_lines();
    using external = ::grpc::ServerBuilder::experimental_type::ExternalConnectionType;
    ::grpc::ServerBuilder builder;
    auto connections = builder.experimental().AddExternalConnectionAcceptor(external::FROM_FD, credentials());
    builder.RegisterCallbackGenericService(this);
    builder.SetMaxReceiveMessageSize(static_cast<int>(message_limit_));
    builder.SetResourceQuota(::grpc::ResourceQuota{"door"}.Resize(settings_.max_grpc_memory));
    builder.AddChannelArgument(GRPC_ARG_ENABLE_CHANNELZ, 1);                   // for `reset_guard`
    builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);  // coded_message.hpp says why
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, streams_of_a_connection);
    builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, max_header_bytes);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, milliseconds_of(settings_.idle_timeout));
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, milliseconds_of(settings_.handshake_timeout));
    set_keepalive(builder, settings_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return error{status::system_error, 0, "gRPC cannot start a server"};
    return listener_.start(std::move(connections));
}

void grpc_door::call_began(rpc& one) {
    const std::lock_guard lock{open_lock_};
    open_.insert(&one);
}

void grpc_door::call_ended(rpc& one) {
    const std::lock_guard lock{open_lock_};
    open_.erase(&one);
    --calls_;
}

void grpc_door::break_off(rpc& one) {
    const std::lock_guard lock{open_lock_};
    if (open_.contains(&one)) one.break_off();
}

void grpc_door::tick() {
    timer_.expires_after(tick_time);
    timer_.async_wait([this](const boost::system::error_code& failed) {
        if (failed) return;
        expire();
        look_after_watches();
        tick();
    });
}

std::vector<std::shared_ptr<rpc>> grpc_door::late_calls(std::chrono::steady_clock::time_point now) {
    std::vector<std::shared_ptr<rpc>> late;
    const std::lock_guard lock{open_lock_};
    for (rpc* each : open_)
        if (each->is_late(now)) late.push_back(each->shared_from_this());
    return late;
}

/// gRPC does not tell when a message begins, so a stream that waits for one may as well be slow. All of these may have
/// half of the calls. Those beyond it end: first the oldest of those that have not sent anything.
std::vector<grpc_door::slow_call> grpc_door::slow_calls(std::chrono::steady_clock::time_point now) {
    const auto then = now - settings_.body_grace;
    std::vector<slow_call> slow;
    for (const auto& [key, each] : streams_)
        if (const auto one = each.lock(); one != nullptr && one->waits_since() < then)
            slow.push_back({one->has_sent(), one->waits_since(), [one] { one->end_waiting(); }});
    const std::lock_guard lock{open_lock_};
    for (rpc* each : open_)
        if (each->is_slower_than(then))
            slow.push_back({false, each->began(), [one = each->shared_from_this()] { one->expire(); }});
    const std::size_t most = std::max<std::size_t>(settings_.max_calls / 2, 1);
    std::ranges::sort(slow, {}, [](const slow_call& each) { return std::pair{each.has_sent, each.since}; });
    slow.resize(slow.size() - std::min(slow.size(), most));
    return slow;
}

void grpc_door::expire() {
    const auto now = std::chrono::steady_clock::now();
    for (const auto& each : late_calls(now)) each->expire();
    for (const auto& each : slow_calls(now)) each.end();
    listener_.tick();
    for (const stream_count& each : guard_.look()) listener_.reset(each.client);
}

void grpc_door::look_after_watches() {
    const auto now = std::chrono::steady_clock::now();
    const auto all = watches_;  // those that end leave meanwhile
    for (const auto& [key, each] : all) each->look(now);
}

std::shared_ptr<const access::token_list> grpc_door::tokens() const {
    const std::lock_guard lock{tokens_lock_};
    return tokens_;
}

void grpc_door::renew(const door_access& fresh) {
    certificate_.renew(fresh.certificate, fresh.key);
    auto made = std::make_shared<access::token_list>(fresh.tokens);
    const std::lock_guard lock{tokens_lock_};
    tokens_ = std::move(made);
}

/// The loop goes on meanwhile: calls need it to end.
void grpc_door::stop(std::function<void()> done) {
    if (stopper_.joinable()) return;
    for (const auto& [key, each] : std::exchange(streams_, {}))
        if (const auto one = each.lock()) one->drain();
    for (const auto all = watches_; const auto& [key, each] : all) each->drain();
    listener_.stop();
    stopper_ = std::thread([this, then = std::move(done)] {
        server_->Shutdown(std::chrono::system_clock::now() + settings_.drain_timeout);
        boost::asio::post(loop_, then);
    });
}

void grpc_door::add_stream(const std::shared_ptr<open_stream>& one) {
    if (stopper_.joinable()) return one->drain();
    streams_.emplace(one.get(), one);
}

void grpc_door::add_watch(const std::shared_ptr<health_watch>& one) {
    watches_.emplace(one.get(), one);
    if (stopper_.joinable()) one->drain();
}

::grpc::ServerGenericBidiReactor* grpc_door::watch_health(::grpc::GenericCallbackServerContext& context) {
    if (++watch_count_ > most_watches) {
        --watch_count_;
        return refuse(::grpc::StatusCode::RESOURCE_EXHAUSTED, "too many clients watch the health: use Check instead");
    }
    return started<health_watch>(*this, context);
}

::grpc::ServerGenericBidiReactor* grpc_door::refuse(::grpc::StatusCode code, const char* sentence) {
    counted_request one;
    one.begin(metrics_);
    one.answered(code);
    one.end();
    return new refusing_call(code, sentence);
}

::grpc::ServerGenericBidiReactor* grpc_door::CreateReactor(::grpc::GenericCallbackServerContext* context) {
    if (context->method() == health_watch_path) return watch_health(*context);
    const auto what = find_method(context->method());
    const bool reflection = is_reflection(context->method());
    const bool stream = context->method() == stream_infer || reflection;
    if (!what && !stream) return refuse(::grpc::StatusCode::UNIMPLEMENTED, "this door has no such method");
    if (stream || !is_open_to_all(*what))
        if (const char* const why = why_unknown(context->client_metadata(), *tokens()); why != nullptr)
            return refuse(::grpc::StatusCode::UNAUTHENTICATED, why);
    if (++calls_ > settings_.max_calls) {
        --calls_;
        return refuse(::grpc::StatusCode::RESOURCE_EXHAUSTED, "too many calls are open: try again");
    }
    if (reflection) return started<reflection_stream>(*this, *context);
    if (stream) return started<stream_rpc>(*this, *context);
    return started<rpc>(*this, *what, *context);
}

}  // namespace accel::examples::serving::doors
