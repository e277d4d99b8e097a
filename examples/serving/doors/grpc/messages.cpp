// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/grpc/messages.hpp"

#include "serving/doors/grpc/fields.hpp"
#include "serving/doors/grpc/infer_message.hpp"
#include "serving/doors/grpc/writer.hpp"
#include "serving/doors/oip/infer_answer.hpp"
#include "serving/doors/oip/refusal.hpp"

#include <array>
#include <utility>

namespace accel::examples::serving::wire {
namespace {

// Numbers of the fields: grpc_service.proto and model_config.proto of the protocol.

/// `open`: a dimension of 0 is a variable one.
void put_shape(writer& to, std::uint32_t field, const tensor& what, bool open) {
    std::array<std::uint64_t, max_tensor_rank> shape{};
    for (std::uint32_t i = 0; i < what.rank; ++i)
        shape[i] = what.shape[i] == 0 && open ? ~std::uint64_t{0} : what.shape[i];
    to.packed(field, std::span{shape}.first(what.rank));
}

/// ModelMetadataResponse::TensorMetadata, and InferOutputTensor, whose first fields are the same.
writer tensor_message(const oip::named_tensor& declared, const tensor& what, bool open) {
    writer out;
    out.text(1, declared.name);
    out.text(2, oip::datatype_of(declared));
    put_shape(out, 3, what, open);
    return out;
}

/// The enumeration DataType of a model's configuration.
std::uint64_t type_number(const oip::named_tensor& of) {
    constexpr std::string_view names[] = {"",      "BOOL",  "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16",
                                          "INT32", "INT64", "FP16",  "FP32",   "FP64",   "BYTES",  "BF16"};
    for (std::uint64_t i = 1; i < std::size(names); ++i)
        if (names[i] == oip::datatype_of(of)) return i;
    return 0;
}

void put_parameter(writer& to, std::string_view name, const writer& value) {
    writer entry;
    entry.text(1, name);
    entry.message(2, value);
    to.message(4, entry);
}

/// Parameters of an output that lies in a region.
void put_region(writer& to, const oip::region_part& where, std::uint64_t bytes) {
    writer name;
    name.text(string_param, where.region);
    put_parameter(to, "shared_memory_region", name);
    writer offset;
    offset.number(int64_param, where.offset);
    put_parameter(to, "shared_memory_offset", offset);
    writer size;
    size.number(int64_param, bytes);
    put_parameter(to, "shared_memory_byte_size", size);
}

/// ModelInput and ModelOutput: their dimensions have different numbers.
writer configured_tensor(const oip::named_tensor& from, std::uint32_t dims) {
    writer out;
    out.text(1, from.name);
    out.number(2, type_number(from));
    put_shape(out, dims, from.what, true);
    return out;
}

writer stage_message(const oip::model_counts::stage& from) {
    writer out;
    out.number(1, from.count);
    out.number(2, static_cast<std::uint64_t>(from.sum.count()));
    return out;
}

writer stages_message(const oip::model_counts& from) {
    writer out;
    std::uint32_t number = 1;
    for (const auto* each :
         {&from.success, &from.fail, &from.queue, &from.compute_input, &from.compute_infer, &from.compute_output})
        out.message(number++, stage_message(*each));
    return out;
}

writer statistics_message(const oip::counted_model& from) {
    writer out;
    out.text(1, from.model->name);
    out.text(2, "1");
    out.number(3, static_cast<std::uint64_t>(from.counts->last.count()));
    out.number(4, from.counts->success.count);
    out.number(5, from.counts->success.count);
    out.message(6, stages_message(*from.counts));
    return out;
}

}  // namespace

int grpc_status_of(status what) noexcept {
    switch (what) {
        case status::ok:
            return 0;
        case status::cancelled:
            return 1;
        case status::invalid_argument:
            return 3;
        case status::timed_out:
            return 4;
        case status::not_found:
            return 5;
        case status::again:
        case status::overloaded:
        case status::message_too_large:
            return 8;
        case status::unsupported:
            return 12;
        case status::peer_lost:
        case status::closed:
        case status::device_lost:
            return 14;
        default:
            return 13;
    }
}

result<named_message> read_named_message(std::span<const slice> slices) {
    named_message out;
    field_walk fields{cursor{slices}};
    field one;
    bool good = true;
    while (good && fields.next(one)) {
        if (one.is(1, form::bytes)) good = read_text(one.bytes, max_name_bytes, out.name);
        if (one.is(2, form::bytes)) good = read_text(one.bytes, max_name_bytes, out.version);
    }
    if (!good) return oip::refusal(status::invalid_argument, "a name or a version is longer than 256 bytes");
    if (fields.malformed()) return malformed_message();
    return out;
}

std::string yes_or_no(bool yes) {
    writer out;
    out.number(1, yes ? 1 : 0);
    return out.take();
}

std::string health(health_state what) {
    writer out;
    out.number(1, static_cast<std::uint64_t>(what));
    return out.take();
}

std::string server_metadata_message(std::string_view version, const oip::allowed_memory& allowed) {
    writer out;
    out.text(1, "accel_transport");
    out.text(2, version);
    for (const char* each : {"model_configuration", "statistics"}) out.entry(3, each);
    for (const std::string_view each : oip::shared_memory_extensions(allowed)) out.entry(3, each);
    return out.take();
}

std::string model_metadata_message(const oip::model_description& model) {
    writer out;
    out.text(1, model.name);
    out.entry(2, "1");
    out.text(3, "accel_transport");
    for (const oip::named_tensor& each : model.inputs) out.message(4, tensor_message(each, each.what, true));
    for (const oip::named_tensor& each : model.outputs) out.message(5, tensor_message(each, each.what, true));
    return out.take();
}

std::string model_configuration_message(const oip::model_description& model) {
    writer config;
    config.text(1, model.name);
    config.text(2, "accel_transport");
    for (const auto& each : model.inputs) config.message(5, configured_tensor(each, 4));
    for (const auto& each : model.outputs) config.message(6, configured_tensor(each, 3));
    config.text(17, "accel_transport");
    writer policy;
    policy.number(1, 1);
    if (model.decoupled) config.message(19, policy);
    writer out;
    out.message(1, config);
    return out.take();
}

std::string model_statistics_message(std::span<const oip::counted_model> models) {
    writer out;
    for (const oip::counted_model& each : models) out.message(1, statistics_message(each));
    return out.take();
}

writer response_head(std::string_view model, std::string_view id, std::optional<bool> last) {
    writer out;
    out.text(1, model);
    out.text(2, model.empty() ? "" : "1");
    out.text(3, id);
    if (!last) return out;
    const char value[] = {char{bool_param << 3}, *last ? '\1' : '\0'};  // written also where it is false
    writer parameter;
    parameter.text(1, "triton_final_response");
    parameter.entry(2, {value, sizeof value});
    out.message(4, parameter);
    return out;
}

infer_response make_response(const oip::model_description& model, std::string_view id,
                             std::span<const oip::output_choice> chosen, std::span<const tensor> outputs,
                             std::span<const std::byte> payload, std::optional<bool> last) {
    writer head = response_head(model.name, id, last);
    for (const oip::output_choice& each : chosen) {
        const oip::named_tensor& declared = model.outputs[each.index];
        // `answered_tensors` has found that BYTES are what they should be.
        const auto shown = oip::shown_tensor(declared, outputs[each.index], payload);
        writer one = tensor_message(declared, shown ? shown.value() : outputs[each.index], false);
        if (each.region) put_region(one, *each.region, size_bytes(outputs[each.index]));
        head.message(5, one);
    }
    infer_response out;
    for (const oip::output_choice& each : chosen) {
        // One in a region has raw contents as well, without bytes: their order is that of the outputs.
        const auto elements = each.region ? std::span<const std::byte>{} : bytes_of(outputs[each.index], payload);
        head.bytes_follow(6, elements.size());
        out.heads.push_back(std::exchange(head, {}).take());
        out.tensors.push_back(elements);
    }
    return out;
}

}  // namespace accel::examples::serving::wire
