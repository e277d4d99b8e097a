// SPDX-License-Identifier: Apache-2.0
// Shared memory of clients: what is registered, and how that changes.
#include "serving/doors/grpc/door/rpc.hpp"
#include "serving/doors/grpc/region_messages.hpp"

#include <utility>

namespace accel::examples::serving::doors {

namespace {

shared_memory::memory kind_of(method what) {
    return what >= method::cuda_status ? shared_memory::memory::cuda : shared_memory::memory::system;
}

bool forgets(method what) {
    return what == method::system_unregister || what == method::cuda_unregister;
}

/// The bytes of the answer: of a status; the others are empty.
result<std::string> do_with_regions(shared_memory::region_table& regions, method what,
                                    const shared_memory::description& of) {
    const auto kind = kind_of(what);
    if (what == method::system_status || what == method::cuda_status) {
        const auto list = regions.list(kind, of.name);
        if (list) return wire::region_status_message(kind, list.value());
        return list.error();
    }
    if (forgets(what))
        regions.remove(kind, of.name);
    else if (auto done = regions.add(kind, of); !done)
        return done.error();
    return std::string{};
}

}  // namespace

result<void> rpc::read_region() {
    const auto slices = slices_of(message_, door_.message_limit(), door_.metrics().memory);
    if (!slices) return slices.error();
    auto read = wire::read_region_message(kind_of(what_), places_of(slices.value().slices));
    if (!read) return read.error();
    region_ = std::move(read).value();
    return {};
}

void rpc::answer_regions() {
    // Stock clients begin by forgetting what an earlier one has left, whatever the door allows.
    if (door_.regions() == nullptr && !forgets(what_)) return refuse(shared_memory::no_regions());
    const auto done = door_.regions() == nullptr ? result<std::string>{std::string{}}
                                                 : do_with_regions(*door_.regions(), what_, region_);
    if (!done) return refuse(done.error());
    const ::grpc::Slice answer{done.value()};
    reply(::grpc::ByteBuffer{&answer, 1});
}

}  // namespace accel::examples::serving::doors
