// SPDX-License-Identifier: Apache-2.0
/// Files of LibTorch on the CPU: networks of a few lines, which the tests write themselves.
#include "serving/models/shapes_file.hpp"
#include "serving/models/torch_file.hpp"

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/script.h>
#include <unistd.h>

namespace accel::tests {
namespace {

using namespace examples::serving;

/// A file with a network, and its shapes in the table; the file goes with it.
class network_file {
  public:
    network_file(const std::string& name, const std::string& forward, const std::string& shapes)
        : path_(std::filesystem::temp_directory_path() / (name + std::to_string(::getpid()) + ".pt")) {
        torch::jit::Module module("network");
        module.define(forward);
        module.save(path_);
        if (find_model(name) != nullptr) return;
        auto described = oip::read_description("{\"name\": \"" + name + "\", " + shapes + "}");
        EXPECT_TRUE(described.ok()) << described.error().message;
        EXPECT_TRUE(add_model(shapes_of(*described).value()).ok());
    }
    network_file(const network_file&) = delete;
    network_file& operator=(const network_file&) = delete;
    ~network_file() { std::filesystem::remove(path_); }
    [[nodiscard]] const std::string& path() const noexcept { return path_; }

  private:
    std::string path_;
};

template <class Out, class In>
std::vector<Out> answer(model& what, const std::vector<In>& input) {
    std::vector<Out> out(payload_bytes(what.shapes().outputs) / sizeof(Out));
    const model_job job{std::as_bytes(std::span(input)), std::as_writable_bytes(std::span(out))};
    const auto done = what.infer(nullptr, {&job, 1});
    EXPECT_TRUE(done.ok()) << done.error().message;
    return out;
}

TEST(serving_torch_cpu, token_ids_are_int64_and_answers_may_be_too) {
    const network_file file("torch-tokens", "def forward(self, ids):\n    return ids * 2 + 1, ids.float()\n",
                            R"(
        "inputs": [{"name": "ids", "datatype": "INT64", "shape": [1, 8]}],
        "outputs": [{"name": "a", "datatype": "INT64", "shape": [1, 8]},
                    {"name": "b", "datatype": "FP32", "shape": [1, 8]}])");
    auto loaded = load_torch_file("torch-tokens", file.path(), -1);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    const std::vector<std::int64_t> ids{0, 1, -1, 50'256, INT64_C(1) << 40, 7, 8, 9};
    const auto out = answer<std::int64_t>(**loaded, ids);
    for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(out[i], ids[i] * 2 + 1) << i;
    float third = 0;
    std::memcpy(&third, reinterpret_cast<const std::byte*>(out.data()) + 64 + 3 * sizeof third, sizeof third);
    EXPECT_EQ(third, 50'256.0F);
}

TEST(serving_torch_cpu, outputs_of_another_type_or_shape_are_refused) {
    const std::string forward = "def forward(self, x):\n    return x.double()\n";
    const network_file file("torch-doubles", forward, R"(
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 4]}])");
    const auto other_type = load_torch_file("torch-doubles", file.path(), -1);
    EXPECT_EQ(other_type.code(), status::invalid_argument);
    EXPECT_NE(other_type.error().message.find("Double"), std::string::npos) << other_type.error().message;
    const network_file longer("torch-longer", forward, R"(
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4]}],
        "outputs": [{"name": "y", "datatype": "FP64", "shape": [1, 5]}])");
    EXPECT_EQ(load_torch_file("torch-longer", longer.path(), -1).code(), status::invalid_argument);
}

/// Rows of x whose first number is positive, and their places.
constexpr const char* find_rows = R"(
def forward(self, x):
    found = torch.nonzero(x[:, 0] > 0)[:, 0]
    return x[found], found
)";

TEST(serving_torch_cpu, open_outputs_have_as_many_rows_as_the_network_finds) {
    const network_file file("torch-finder", find_rows, R"(
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [4, 2]}],
        "outputs": [{"name": "rows", "datatype": "FP32", "shape": [-1, 2], "max_bytes": 24},
                    {"name": "places", "datatype": "INT64", "shape": [-1], "max_bytes": 24}])");
    auto loaded = load_torch_file("torch-finder", file.path(), -1);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    const model_shapes& shapes = (*loaded)->shapes();
    std::vector<std::byte> out(payload_bytes(shapes.outputs));
    for (std::uint32_t found = 0; found <= 4; ++found) {
        std::vector<float> x(8, -1);
        for (std::uint32_t i = 0; i < found; ++i) x[2 * i] = static_cast<float>(i + 1);
        std::vector<tensor> said = shapes.outputs;
        const model_job job{std::as_bytes(std::span(x)), out, said};
        const auto done = (*loaded)->infer(nullptr, {&job, 1});
        ASSERT_EQ(done.ok(), found < 4) << "there is room for three rows";
        if (!done) continue;
        EXPECT_EQ(said[0].shape[0], found);
        EXPECT_EQ(said[1].shape[0], found);
        EXPECT_EQ(said[1].offset, found == 0 ? 0U : 64U);
        const auto rows = bytes_of(said[0], std::span<const std::byte>{out});
        EXPECT_EQ(std::memcmp(rows.data(), x.data(), rows.size()), 0);
    }
}

TEST(serving_torch_cpu, a_batch_is_answered_as_its_requests_are) {
    const network_file file("torch-sums", "def forward(self, x):\n    return x.sum(1, keepdim=True)\n", R"(
        "inputs": [{"name": "x", "datatype": "INT32", "shape": [1, 3]}],
        "outputs": [{"name": "y", "datatype": "INT64", "shape": [1, 1]}])");
    auto loaded = load_torch_file("torch-sums", file.path(), -1);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    const std::vector<std::int32_t> inputs{1, 2, 3, 40, 50, 60, -1, -1, -1};
    std::vector<std::int64_t> outputs(3);
    std::vector<model_job> jobs;
    for (std::size_t i = 0; i < 3; ++i)
        jobs.push_back({std::as_bytes(std::span(inputs).subspan(3 * i, 3)),
                        std::as_writable_bytes(std::span(outputs).subspan(i, 1))});
    ASSERT_TRUE((*loaded)->infer(nullptr, jobs).ok());
    EXPECT_EQ(outputs, (std::vector<std::int64_t>{6, 150, -3}));
}

}  // namespace
}  // namespace accel::tests
