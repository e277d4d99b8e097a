// SPDX-License-Identifier: Apache-2.0
// Shared memory of clients: what is registered, and how that changes.
#include "serving/doors/http/connection.hpp"
#include "serving/doors/shared_memory/documents.hpp"

#include <utility>

namespace accel::examples::serving::doors {

namespace {

constexpr std::uint64_t longest_registration = 4096;

shared_memory::memory kind_of(const oip::route& to) {
    return to.on_gpu ? shared_memory::memory::cuda : shared_memory::memory::system;
}

/// The JSON document of an answer; empty where there is nothing to say.
result<std::string> do_with_regions(shared_memory::region_table& regions, const oip::route& to, std::string_view body) {
    const auto kind = kind_of(to);
    result<void> done{};
    if (to.what == oip::action::region_status) {
        const auto list = regions.list(kind, to.region);
        if (list) return shared_memory::status_document(kind, list.value());
        return list.error();
    }
    if (to.what == oip::action::region_unregister) {
        regions.remove(kind, to.region);
    } else {
        const auto wanted = shared_memory::read_registration(kind, to.region, body);
        if (!wanted) return wanted.error();
        done = regions.add(kind, wanted.value());
    }
    if (!done) return done.error();
    return std::string{};
}

}  // namespace

void connection::begin_regions(oip::route to) {
    // Stock clients begin by forgetting what an earlier one has left, whatever the door allows.
    if (door_.regions() == nullptr && to.what != oip::action::region_unregister)
        return refuse(shared_memory::no_regions());
    const auto field = parser_->get()["Content-Encoding"];
    coding_ = coding::coding_of({field.data(), field.size()}).value_or(coding::content_coding::gzip);
    if (coding_ != coding::content_coding::identity)
        return reply(415,
                     "requests for shared memory must not be "
                     "compressed");
    if (parser_->chunked()) return reply(411, "a request needs a Content-Length");
    plan_ = {.json_bytes = parser_->content_length().value_or(0)};
    if (plan_.json_bytes > longest_registration) return reply(413, "the body is longer than 4096 bytes");
    of_regions_ = std::move(to);
    read_json();
}

void connection::answer_regions() {
    auto done = door_.regions() == nullptr ? result<std::string>{std::string{}}
                                           : do_with_regions(*door_.regions(), *of_regions_, json_);
    json_.clear();
    if (!done) return refuse(done.error());
    reply_document(std::move(done).value());
}

}  // namespace accel::examples::serving::doors
