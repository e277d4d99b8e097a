// SPDX-License-Identifier: Apache-2.0
/// In place of loadgen.cpp in a build without LoadGen's sources.
#include "serving/load/loadgen.hpp"

namespace accel::examples::serving {

bool has_loadgen() noexcept {
    return false;
}

result<load_outcome> run_loadgen(context& /*ctx*/, const load_settings& /*chosen*/, const mlperf_run& /*run*/) {
    return error{status::unsupported, 0,
                 "this build has no LoadGen: run scripts/loadgen.sh, then configure with -DACCEL_LOADGEN=ON"};
}

}  // namespace accel::examples::serving
