// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/shared_memory/region_table.hpp"

#include "serving/doors/oip/refusal.hpp"
#include "serving/doors/shared_memory/cuda_region.hpp"
#include "serving/doors/shared_memory/system_region.hpp"

#include <algorithm>
#include <utility>

namespace accel::examples::serving::shared_memory {
namespace {

constexpr std::size_t max_name_bytes = 256;
constexpr std::uint64_t longest_file = std::uint64_t{1} << 62;  // off_t holds it and some more

const char* name_of(memory kind) noexcept {
    return kind == memory::system ? "system" : "CUDA";
}

error mistake(std::string sentence) {
    return oip::refusal(status::invalid_argument, std::move(sentence));
}

error not_allowed(memory kind) {
    return oip::refusal(status::unsupported, std::string{"this door accepts no "} + name_of(kind) +
                                                 " shared memory: start it with --shared-memory " +
                                                 (kind == memory::system ? "system" : "cuda"));
}

}  // namespace

claim::claim(std::shared_ptr<usage> of, std::uint64_t bytes) : of_(std::move(of)), bytes_(bytes) {
    ++of_->regions;
    of_->bytes += bytes_;
}

claim::~claim() {
    --of_->regions;
    of_->bytes -= bytes_;
}

error no_regions() {
    return oip::refusal(status::unsupported, "this door accepts no shared memory: start it with --shared-memory");
}

result<void> read_permission(std::string_view text, permission& to) {
    permission out = to;
    out.system = out.cuda = false;
    while (!text.empty()) {
        const std::string_view one = text.substr(0, text.find(','));
        text.remove_prefix(std::min(one.size() + 1, text.size()));
        if (one == "system")
            out.system = true;
        else if (one == "cuda")
            out.cuda = true;
        else
            return mistake(oip::in_quotes(one) + " is not a kind of shared memory: write system, cuda or system,cuda");
    }
    if (!out.system && !out.cuda) return mistake("write system, cuda or system,cuda");
    to = out;
    return {};
}

result<std::shared_ptr<region_table>> region_table::open(context& ctx, const permission& may, bool lends) {
    if (may.cuda)
        if (auto there = check_cuda(); !there)
            return oip::refusal(there.code(), "CUDA shared memory cannot be used: " + there.error().message);
    return std::make_shared<region_table>(ctx, may, lends);
}

region_table::region_table(context& ctx, const permission& may, bool lends) : ctx_(ctx), may_(may), lends_(lends) {}

result<void> region_table::check_new(memory kind, const description& what) const {
    if (!may_.of(kind)) return not_allowed(kind);
    if (what.name.empty() || what.name.size() > max_name_bytes)
        return mistake("the name of a region must have 1 to 256 bytes");
    if (regions_.contains(what.name))
        return mistake("the region " + oip::in_quotes(what.name) + " is registered already: unregister it first");
    if (what.bytes == 0) return mistake("a region must have at least 1 byte");
    if (what.offset > longest_file || what.bytes > longest_file - what.offset)
        return mistake("the region ends beyond any memory");
    if (taken_->regions >= may_.max_regions)
        return oip::refusal(status::overloaded,
                            "there are already " + std::to_string(may_.max_regions) + " regions, which is the limit");
    if (what.bytes > may_.max_bytes - taken_->bytes)
        return oip::refusal(status::overloaded,
                            "all regions together may have at most " + std::to_string(may_.max_bytes) + " bytes");
    return {};
}

result<void> region_table::add(memory kind, const description& what) {
    if (auto good = check_new(kind, what); !good) return good;
    auto share = std::make_unique<claim>(taken_, what.bytes);
    auto opened =
        kind == memory::system
            ? open_system_region(what.key, what.offset, what.bytes, std::move(share), lends_ ? &ctx_ : nullptr)
            : open_cuda_region(what.handle, what.device, what.bytes, std::move(share), ctx_);
    if (!opened)
        return oip::refusal(opened.code(), "region " + oip::in_quotes(what.name) + ": " + opened.error().message);
    regions_.try_emplace(what.name, entry{kind, what, std::move(opened).value()});
    return {};
}

void region_table::remove(memory kind, std::string_view name) {
    std::erase_if(regions_,
                  [&](const auto& each) { return each.second.kind == kind && (name.empty() || each.first == name); });
}

result<std::vector<description>> region_table::list(memory kind, std::string_view name) const {
    if (!may_.of(kind)) return not_allowed(kind);
    std::vector<description> out;
    for (const auto& [called, each] : regions_)
        if (each.kind == kind && (name.empty() || called == name)) out.push_back(each.what);
    if (!name.empty() && out.empty())
        return oip::refusal(status::not_found,
                            std::string{"there is no "} + name_of(kind) + " region " + oip::in_quotes(name));
    return out;
}

slice region_table::zeros(std::size_t bytes) {
    constexpr std::size_t most = 64;
    if (zeros_.size() == 0)
        if (auto made = ctx_.allocate(most)) zeros_ = std::move(made).value();
    const auto part = zeros_.part(0, bytes);
    return part ? part.value() : slice{};
}

result<use> region_table::find(std::size_t tensor, const oip::region_part& part) const {
    const auto found = regions_.find(part.region);
    if (found == regions_.end()) return mistake("there is no region " + oip::in_quotes(part.region));
    const std::uint64_t bytes = found->second.what.bytes;
    if (part.offset > bytes || part.bytes > bytes - part.offset)
        return mistake("region " + oip::in_quotes(part.region) + " has " + std::to_string(bytes) + " bytes, but " +
                       std::to_string(part.bytes) + " from " + std::to_string(part.offset) + " on are not within it");
    return use{tensor, found->second.where, part.offset, part.bytes};
}

oip::allowed_memory allowed_by(const region_table* table) noexcept {
    if (table == nullptr) return {};
    return {.system = table->allowed().system, .cuda = table->allowed().cuda};
}

}  // namespace accel::examples::serving::shared_memory
