// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/access/tokens.hpp"
#include "serving/doors/configuration/choices.hpp"
#include "serving/doors/shared_memory/region_table.hpp"

#include <accel_transport/status.hpp>

#include <memory>
#include <string>

#include <boost/asio/ssl/context.hpp>

namespace accel::examples::serving::doors {

/// Who may come in, and how.
struct door_access {
    std::shared_ptr<boost::asio::ssl::context> tls;  ///< null: clients speak without it
    std::string certificate;                         ///< of `tls`, in PEM
    std::string key;                                 ///< likewise
    access::token_list tokens;
    /// Of clients of this host, for all doors of the program; null: they may register none.
    std::shared_ptr<shared_memory::region_table> regions;
};

/// Reads the files of `chosen`: certificate, key, tokens. `invalid_argument` names the one that is wrong.
[[nodiscard]] result<door_access> open_access(const choices& chosen);

}  // namespace accel::examples::serving::doors
