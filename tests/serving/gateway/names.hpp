// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

/// A name server whose answers the test decides, also for processes that it starts. Its names end in `.test`. Programs
/// that ask it have names.cpp.
namespace accel::tests {

/// From now on the name has these addresses. Without any, it is unknown.
void let_name_have(const std::string& name, const std::vector<std::string>& addresses);

}  // namespace accel::tests
