// SPDX-License-Identifier: Apache-2.0
// A proxy from gRPC to gRPC, as somebody writes it with the official callback API: messages stay gRPC's slices.
#include "bench/transport/side.hpp"
#include "grpc_peers.hpp"
#include "report/program.hpp"

#include <memory>

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

namespace accel::bench {
namespace {

class passed_call final : public grpc::ServerGenericBidiReactor {
  public:
    passed_call(grpc::GenericStub& to, grpc::GenericCallbackServerContext* from) : to_(to), from_(from) {
        StartRead(&request_);
    }

  private:
    void OnReadDone(bool ok) override {
        if (!ok) return Finish({grpc::StatusCode::INVALID_ARGUMENT, "no message"});
        context_.set_deadline(from_->deadline());
        to_.UnaryCall(&context_, from_->method(), {}, &request_, &answer_,
                      [this](const grpc::Status& status) { pass_back(status); });
    }
    void pass_back(const grpc::Status& status) {
        if (status.ok())
            StartWriteAndFinish(&answer_, {}, status);
        else
            Finish(status);
    }
    void OnCancel() override { context_.TryCancel(); }
    void OnDone() override { delete this; }

    grpc::GenericStub& to_;
    grpc::GenericCallbackServerContext* from_;
    grpc::ClientContext context_;
    grpc::ByteBuffer request_, answer_;
};

class proxy final : public grpc::CallbackGenericService {
  public:
    explicit proxy(const std::shared_ptr<grpc::Channel>& to) : to_(to) {}

  private:
    grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
        return new passed_call(to_, context);
    }
    grpc::GenericStub to_;
};

}  // namespace

int serve_grpc_proxy(const std::string& to) {
    report::block_stop_signals();
    proxy service{grpc::CreateChannel(to, grpc::InsecureChannelCredentials())};
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterCallbackGenericService(&service);
    const auto server = builder.BuildAndStart();
    if (!server) return report::complain("grpc_proxy", "it cannot listen");
    announce("127.0.0.1:" + std::to_string(port));
    report::wait_for_stop_signal();
    server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds{1});
    return 0;
}

}  // namespace accel::bench
