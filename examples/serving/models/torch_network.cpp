// SPDX-License-Identifier: Apache-2.0
#include "serving/models/torch_network.hpp"

#include "serving/models/torch_gpu.hpp"

#include <filesystem>
#include <string_view>
#include <utility>

#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>

namespace accel::examples::serving {
namespace {

/// The tensors of what a network returns: one, or a tuple or list of them.
void collect(const c10::IValue& value, std::vector<at::Tensor>& into) {
    if (value.isTensor()) return into.push_back(value.toTensor());
    if (value.isTensorList()) {
        for (const at::Tensor& each : value.toTensorVector()) into.push_back(each);
    } else if (value.isTuple()) {
        for (const c10::IValue& each : value.toTupleRef().elements()) collect(each, into);
    } else {
        TORCH_CHECK(false, "the network returns a ", value.tagKind(), ", not tensors");
    }
}

class script_network final : public torch_network {
  public:
    script_network(const std::string& path, c10::Device device) : module_(torch::jit::load(path, device)) {
        // Calls would be timed and kernels made while requests are served, otherwise.
        torch::jit::getProfilingMode() = false;
        module_.eval();
        module_ = torch::jit::freeze(module_);
    }
    std::vector<at::Tensor> run(std::vector<at::Tensor> inputs) override {
        std::vector<c10::IValue> arguments(inputs.begin(), inputs.end());
        std::vector<at::Tensor> outputs;
        collect(module_.forward(std::move(arguments)), outputs);
        return outputs;
    }

  private:
    torch::jit::Module module_;
};

std::unique_ptr<torch_network> read(const std::string& path, torch_gpu* gpu) {
    if (path.ends_with(".pt2")) return gpu->read_package(path);
    return std::make_unique<script_network>(path, gpu == nullptr ? c10::Device(c10::kCPU) : gpu->device());
}

}  // namespace

std::string first_line(const char* text) {
    const std::string_view all = text;
    return std::string{all.substr(0, all.find('\n'))};
}

result<std::unique_ptr<torch_network>> read_torch_network(const std::string& path, torch_gpu* gpu) {
    const std::string kind = std::filesystem::path(path).extension();
    if (kind != ".pt" && kind != ".pt2")
        return error{status::invalid_argument, 0,
                     path + " is neither TorchScript (.pt) nor an AOTInductor package (.pt2)"};
    if (!std::filesystem::is_regular_file(path)) return error{status::invalid_argument, 0, "there is no file " + path};
    if (kind == ".pt2" && gpu == nullptr)
        return error{status::unsupported, 0, path + " is compiled for a GPU; on the host, only TorchScript (.pt) runs"};
    std::unique_ptr<torch_network> network;
    auto done = with_torch(status::invalid_argument, [&] { network = read(path, gpu); });
    if (!done) return error{done.error().code, 0, path + " cannot be loaded: " + done.error().message};
    return network;
}

}  // namespace accel::examples::serving
