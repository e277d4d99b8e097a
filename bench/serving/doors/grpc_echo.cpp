// SPDX-License-Identifier: Apache-2.0
#include "bench/transport/side.hpp"
#include "grpc_peers.hpp"
#include "report/program.hpp"
#include "serving/doors/grpc/writer.hpp"

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

namespace accel::bench {
namespace {

/// What stands in a ModelInferResponse before the bytes of its only tensor.
std::string head_of_answer(std::size_t size_bytes) {
    namespace wire = examples::serving::wire;
    wire::writer output;
    const std::array<std::uint64_t, 1> shape{size_bytes / sizeof(float)};
    output.text(1, "y");
    output.text(2, "FP32");
    output.packed(3, shape);
    wire::writer out;
    out.text(1, "echo");
    out.text(2, "1");
    out.message(5, output);
    out.bytes_follow(6, size_bytes);
    return out.take();
}

/// The last bytes of a message, in the slices that hold them.
std::vector<grpc::Slice> tail_of(const grpc::ByteBuffer& message, std::size_t size_bytes) {
    std::vector<grpc::Slice> all;
    if (!message.Dump(&all).ok() || message.Length() < size_bytes) return {};
    std::size_t skipped = message.Length() - size_bytes;
    std::vector<grpc::Slice> out;
    for (const grpc::Slice& each : all) {
        const std::size_t here = std::min(skipped, each.size());
        skipped -= here;
        if (here < each.size()) out.push_back(each.sub(here, each.size()));
    }
    return out;
}

class echoed_call final : public grpc::ServerGenericBidiReactor {
  public:
    echoed_call(const grpc::Slice& head, std::size_t size_bytes) : head_(head), size_bytes_(size_bytes) {
        StartRead(&request_);
    }

  private:
    void OnReadDone(bool ok) override {
        auto parts = ok ? tail_of(request_, size_bytes_) : std::vector<grpc::Slice>{};
        if (parts.empty()) return Finish({grpc::StatusCode::INVALID_ARGUMENT, "too short a message"});
        parts.insert(parts.begin(), head_);
        answer_ = grpc::ByteBuffer{parts.data(), parts.size()};
        StartWriteAndFinish(&answer_, {}, grpc::Status::OK);
    }
    void OnDone() override { delete this; }

    const grpc::Slice& head_;
    std::size_t size_bytes_;
    grpc::ByteBuffer request_, answer_;
};

class echo_service final : public grpc::CallbackGenericService {
  public:
    explicit echo_service(std::size_t size_bytes) : head_(head_of_answer(size_bytes)), size_bytes_(size_bytes) {}

  private:
    grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
        return new echoed_call(head_, size_bytes_);
    }
    grpc::Slice head_;
    std::size_t size_bytes_;
};

}  // namespace

int serve_grpc_echo(std::size_t size_bytes) {
    report::block_stop_signals();
    echo_service service{size_bytes};
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterCallbackGenericService(&service);
    const auto server = builder.BuildAndStart();
    if (!server) return report::complain("grpc_echo", "it cannot listen");
    announce("127.0.0.1:" + std::to_string(port));
    report::wait_for_stop_signal();
    server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds{1});
    return 0;
}

}  // namespace accel::bench
