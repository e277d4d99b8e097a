// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/grpc/reflection.hpp"

#include "serving/doors/grpc/fields.hpp"
#include "serving/doors/grpc/infer_message.hpp"
#include "serving/doors/grpc/messages.hpp"
#include "serving/doors/grpc/protocol_files.hpp"
#include "serving/doors/grpc/writer.hpp"
#include "serving/doors/oip/refusal.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string_view>
#include <vector>

namespace accel::examples::serving::wire {
namespace {

// Numbers of the fields: grpc/reflection/v1/reflection.proto.

enum class question : std::uint8_t { none = 0, file = 3, symbol = 4, extension = 5, extensions = 6, services = 7 };

struct reflection_request {
    std::string host;
    question what = question::none;
    std::string name;  ///< of a file or a symbol
};

/// The files by their names, and which of them has a symbol.
struct catalog {
    struct symbol {
        std::string_view file;
        symbol_kind kind;
    };
    std::map<std::string, std::string, std::less<>> files;
    std::map<std::string, symbol, std::less<>> symbols;
    std::vector<std::string> services;

    catalog() {
        for (const described_file& each : protocol_files()) {
            const auto made = files.emplace(each.name, descriptor_message(each)).first;
            for (const auto& [name, kind] : symbols_of(each)) symbols.emplace(name, symbol{made->first, kind});
            services.push_back(each.full_name(each.service));
        }
        std::ranges::sort(services);
    }
};

const catalog& all_files() {
    static const catalog out;
    return out;
}

/// The last one asked counts, as in any oneof. False: a name is too long.
bool keep(reflection_request& to, const field& one) {
    if (one.is(1, form::bytes)) return read_text(one.bytes, max_name_bytes, to.host);
    if (one.how != form::bytes || one.number < 3 || one.number > 7) return true;
    to.what = static_cast<question>(one.number);
    to.name.clear();
    const bool is_text = to.what != question::extension && to.what != question::services;
    return !is_text || read_text(one.bytes, max_name_bytes, to.name);
}

result<reflection_request> read_request(std::span<const slice> slices) {
    reflection_request out;
    field_walk fields{cursor{slices}};
    field one;
    while (fields.next(one))
        if (!keep(out, one)) return oip::refusal(status::invalid_argument, "a name is longer than 256 bytes");
    if (fields.malformed()) return malformed_message();
    return out;
}

void put_error(writer& to, status what, const std::string& sentence) {
    writer out;
    out.number(1, static_cast<std::uint64_t>(grpc_status_of(what)));
    out.text(2, sentence);
    to.message(7, out);
}

void put_file(writer& to, std::string_view name) {
    const auto found = all_files().files.find(name);
    if (found == all_files().files.end())
        return put_error(to, status::not_found, "unknown file " + oip::in_quotes(name));
    writer out;
    out.entry(1, found->second);
    to.message(4, out);
}

void put_file_of(writer& to, std::string_view symbol) {
    const auto found = all_files().symbols.find(symbol);
    if (found == all_files().symbols.end())
        return put_error(to, status::not_found, "unknown symbol " + oip::in_quotes(symbol));
    put_file(to, found->second.file);
}

/// No message has extensions.
void put_extensions_of(writer& to, std::string_view type) {
    const auto found = all_files().symbols.find(type);
    if (found == all_files().symbols.end() || found->second.kind != symbol_kind::message)
        return put_error(to, status::not_found, "unknown message " + oip::in_quotes(type));
    writer out;
    out.text(1, type);
    to.message(5, out);
}

void put_services(writer& to) {
    writer out;
    for (const std::string& each : all_files().services) {
        writer service;
        service.text(1, each);
        out.message(1, service);
    }
    to.message(6, out);
}

void put_answer(writer& to, const reflection_request& asked) {
    switch (asked.what) {
        case question::file:
            return put_file(to, asked.name);
        case question::symbol:
            return put_file_of(to, asked.name);
        case question::extension:
            return put_error(to, status::not_found, "there are no extensions");
        case question::extensions:
            return put_extensions_of(to, asked.name);
        case question::services:
            return put_services(to);
        default:
            return put_error(to, status::invalid_argument, "the request asks for nothing that this door knows");
    }
}

}  // namespace

result<std::string> answer_reflection(std::span<const slice> request) {
    const auto asked = read_request(request);
    if (!asked) return asked.error();
    std::string original;
    const cursor all{request};
    static_cast<void>(read_text(all, static_cast<std::size_t>(all.size()), original));
    writer out;
    out.text(1, asked.value().host);
    out.entry(2, original);
    put_answer(out, asked.value());
    return out.take();
}

}  // namespace accel::examples::serving::wire
