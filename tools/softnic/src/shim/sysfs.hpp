// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace accel::softnic::sysfs {

/// If `path` names something of the RDMA subsystem, or the module nvidia_peermem, where our copy of it is: a small
/// tree of files in /dev/shm, made when first asked for, the same for all processes with the same devices. Null: not
/// ours, use `path` itself. `buffer` holds the result.
const char* redirect(const char* path, std::string& buffer);

/// N of "/dev/infiniband/uverbsN", or -1.
int device_node(const char* path);

}  // namespace accel::softnic::sysfs
