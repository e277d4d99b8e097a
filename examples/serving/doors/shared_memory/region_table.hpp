// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/oip/documents.hpp"
#include "serving/doors/oip/region_part.hpp"
#include "serving/doors/shared_memory/region.hpp"

#include <accel_transport/context.hpp>
#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace accel::examples::serving::shared_memory {

enum class memory : std::uint8_t { system, cuda };

/// What a door lets its clients register.
struct permission {
    bool system = false;
    bool cuda = false;
    std::size_t max_regions = 256;
    std::uint64_t max_bytes = std::uint64_t{16} << 30;  ///< of all together
    [[nodiscard]] bool of(memory kind) const noexcept { return kind == memory::system ? system : cuda; }
};

/// "system", "cuda" or "system,cuda"; `invalid_argument`: another text. The limits stay.
[[nodiscard]] result<void> read_permission(std::string_view text, permission& to);

/// What a client says of a region, and what its status document says.
struct description {
    std::string name;
    std::string key;           ///< system: of shm_open
    std::uint64_t offset = 0;  ///< system: in the object
    std::string handle;        ///< cuda: a cudaIpcMemHandle_t
    std::int64_t device = 0;   ///< cuda
    std::uint64_t bytes = 0;
};

/// A part of a region for one call, which keeps the region alive.
struct use {
    std::size_t tensor = 0;  ///< of the model's inputs, or outputs
    std::shared_ptr<region> where;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
};

/// The regions that clients of a door have registered, by name: one table for both of its protocols. Belongs to the
/// loop's thread. Regions that a call uses live on until it has ended.
class region_table {
  public:
    /// `unsupported`: `may` has GPU memory, and there is none. With `lends`, channels of `ctx` read system regions in
    /// place. `ctx` has to outlive the table and all its regions. May block for seconds.
    [[nodiscard]] static result<std::shared_ptr<region_table>> open(context& ctx, const permission& may, bool lends);
    region_table(context& ctx, const permission& may, bool lends);

    /// `invalid_argument`: the name is taken, or the memory is not what is said; `overloaded`: too many, or too large;
    /// `unsupported`: clients may not register such memory.
    [[nodiscard]] result<void> add(memory kind, const description& what);
    /// Forgets the region of this name, or all of this kind where it is empty; nothing is there: nothing happens.
    void remove(memory kind, std::string_view name);
    /// The region of this name, or all of this kind where it is empty. `not_found`.
    [[nodiscard]] result<std::vector<description>> list(memory kind, std::string_view name) const;
    /// `invalid_argument`: there is no such region, or the part does not lie in it.
    [[nodiscard]] result<use> find(std::size_t tensor, const oip::region_part& part) const;

    /// Up to 64 zeros that a channel can be lent, for what lies between tensors. Empty: there is no memory.
    [[nodiscard]] slice zeros(std::size_t bytes);

    [[nodiscard]] const usage& taken() const { return *taken_; }
    /// Bytes that went through the door's own memory.
    void count_copied(std::uint64_t bytes) { copied_ += bytes; }
    void count_lent(std::uint64_t bytes) { lent_ += bytes; }
    [[nodiscard]] std::uint64_t copied() const { return copied_; }
    [[nodiscard]] std::uint64_t lent() const { return lent_; }
    [[nodiscard]] const permission& allowed() const { return may_; }

  private:
    struct entry {
        memory kind = memory::system;
        description what;
        std::shared_ptr<region> where;
    };

    [[nodiscard]] result<void> check_new(memory kind, const description& what) const;

    context& ctx_;
    permission may_;
    bool lends_;
    std::shared_ptr<usage> taken_ = std::make_shared<usage>();
    std::map<std::string, entry, std::less<>> regions_;
    accel::region zeros_;
    std::uint64_t copied_ = 0;
    std::uint64_t lent_ = 0;
};

/// For requests that name regions where `table` is null. `unsupported`: "this door takes no shared memory".
[[nodiscard]] error no_regions();

/// Null: nothing is allowed.
[[nodiscard]] oip::allowed_memory allowed_by(const region_table* table) noexcept;

}  // namespace accel::examples::serving::shared_memory
