// SPDX-License-Identifier: Apache-2.0
// A plug-in that brings its own copy of the library, as a module of Python does.
#include <accel_transport/accel_transport.hpp>

extern "C" __attribute__((visibility("default"))) int use_library() {
    return accel::context::open().ok() ? 0 : 1;
}
