// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/completion.hpp>
#include <accel_transport/metadata.hpp>
#include <accel_transport/status.hpp>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace accel::examples::serving::doors {

/// Headers of a client's request that are metadata of its call.
class passed_metadata {
  public:
    passed_metadata() = default;
    passed_metadata(const passed_metadata&) = delete;
    passed_metadata& operator=(const passed_metadata&) = delete;

    /// `key`: has to outlive this. `invalid_argument`: the value is not one of metadata. `message_too_large`: there
    /// are too many bytes.
    [[nodiscard]] result<void> add(std::string_view key, std::string value);
    [[nodiscard]] std::span<const metadata_entry> entries() const noexcept { return entries_; }

  private:
    std::deque<std::string> values_;  ///< stay where they are
    std::vector<metadata_entry> entries_;
    std::size_t bytes_ = 0;
};

/// Null: there is none.
using shared_metadata = std::shared_ptr<const passed_metadata>;

/// Empty if there is no metadata.
[[nodiscard]] inline std::span<const metadata_entry> entries_of(const shared_metadata& from) noexcept {
    return from ? from->entries() : std::span<const metadata_entry>{};
}

/// The headers of a request with these names. `fields(name)`: the range of those with this name; `value_of(name,
/// field)` the value, as a result. `invalid_argument`: a name has two fields, or the value is wrong.
template <typename Fields, typename ValueOf>
[[nodiscard]] result<shared_metadata> read_passed(const std::vector<std::string>& names, Fields fields,
                                                  ValueOf value_of) {
    std::shared_ptr<passed_metadata> out;
    for (const std::string& each : names) {
        const auto [first, end] = fields(each);
        if (first == end) continue;
        if (std::next(first) != end)
            return error{status::invalid_argument, 0, "the header '" + each + "' is given twice"};
        auto value = value_of(each, *first);
        if (!value) return value.error();
        if (!out) out = std::make_shared<passed_metadata>();
        if (auto added = out->add(each, std::move(value).value()); !added) return added.error();
    }
    return shared_metadata{std::move(out)};
}

/// Calls `pass(key, value)` for the metadata of an answer (`completion`) that has one of these names. `protocol_error`:
/// the server's metadata is malformed.
template <typename Answer, typename Pass>
[[nodiscard]] result<void> pass_back(const Answer& from, const std::vector<std::string>& names, Pass pass) {
    if (names.empty()) return {};
    metadata_room room;
    const result<std::span<const metadata_entry>, status> got = from.metadata(room);
    if (got.code() == status::protocol_error)
        return error{status::protocol_error, 0, "the metadata of the model's answer is malformed"};
    if (!got) return {};
    for (const metadata_entry& each : *got)
        if (std::ranges::find(names, each.key) != names.end()) pass(each.key, each.value);
    return {};
}

/// Its values are bytes.
[[nodiscard]] inline bool is_binary(std::string_view key) noexcept {
    return key.ends_with("-bin");
}

}  // namespace accel::examples::serving::doors
