// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <boost/asio/ip/tcp.hpp>

namespace accel::examples::serving::doors {

/// A connection to gRPC.
struct stream_count {
    boost::asio::ip::tcp::endpoint client;
    std::uint64_t streams = 0;  ///< that gRPC has not forgotten, those included that the client has reset
};

/// Those of `all` that must end to leave at most `most` streams: first the connection with the most. Connections with
/// at most `usual` streams stay.
[[nodiscard]] std::vector<stream_count> most_crowded(std::vector<stream_count> all, std::uint64_t usual,
                                                     std::uint64_t most);

/// Finds connections that flood gRPC with calls that they reset at once. gRPC (1.51) reads such calls faster than it
/// forgets them, without a limit, and each takes some 20 KB. Of one thread.
class reset_guard {
  public:
    /// A connection may have `usual` streams, whatever the others have; all together may have `most`.
    reset_guard(std::uint64_t usual, std::uint64_t most);
    /// The connections to end now. Asks gRPC only if the process has grown since the last time.
    [[nodiscard]] std::vector<stream_count> look();

  private:
    std::uint64_t usual_;
    std::uint64_t most_;
    std::size_t settled_;  ///< bytes of the process in memory when gRPC was asked, or fewer since
};

}  // namespace accel::examples::serving::doors
