// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

/// A name server whose answers the test decides, also for processes that it starts. Its names end in `.test`. Programs
/// that ask it have names.cpp.
namespace accel::tests {

/// From now on the name has these addresses. Without any, it is unknown.
void let_name_have(const std::string& name, const std::vector<std::string>& addresses);
/// Lookups of the name that begin from now on give its present addresses, but end only after `held` is false again.
void hold_lookups_of(const std::string& name, bool held);
/// How often this process and others have asked for this name.
[[nodiscard]] std::size_t lookups_of(const std::string& name);

}  // namespace accel::tests
