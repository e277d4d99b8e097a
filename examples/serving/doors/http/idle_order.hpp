// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <utility>

#include <boost/asio/ip/address.hpp>
#include <boost/intrusive/list.hpp>

namespace accel::examples::serving::doors {

struct idle_of_all;
struct idle_of_client;
template <typename Order>
using idle_hook = boost::intrusive::list_base_hook<boost::intrusive::tag<Order>,
                                                   boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;

/// A connection as `idle_order` has it: its base.
struct idle_entry : idle_hook<idle_of_all>, idle_hook<idle_of_client> {
    explicit idle_entry(const boost::asio::ip::address& of) : client(of) {}
    const boost::asio::ip::address client;  ///< of `client_of`
    bool joined = false;                    ///< to an order, which it has not left
};

/// The connections of a door, each of which is a `Connection` and an `idle_entry`: how many a client has, and in which
/// order they became idle, of all and of each client. No step depends on how many there are, but for a search among
/// the clients. Connections have to outlive it, or leave.
template <typename Connection>
class idle_order {
  public:
    /// How many connections one newcomer may cost a look.
    static constexpr std::size_t most_looks = 16;

    void join(idle_entry& one) {
        one.joined = true;
        ++shares_[one.client].count;
    }
    void leave(idle_entry& one) {
        if (!std::exchange(one.joined, false)) return;
        set_busy(one);
        const auto share = shares_.find(one.client);
        if (--share->second.count == 0) shares_.erase(share);
    }
    /// It is idle from now on. Nothing happens to one that has left.
    void set_idle(idle_entry& one) {
        if (!one.joined) return;
        set_busy(one);
        idle_.push_back(one);
        shares_.find(one.client)->second.idle.push_back(one);
    }
    static void set_busy(idle_entry& one) {
        one.idle_hook<idle_of_all>::unlink();
        one.idle_hook<idle_of_client>::unlink();
    }
    [[nodiscard]] std::size_t count(const boost::asio::ip::address& client) const {
        const auto share = shares_.find(client);
        return share == shares_.end() ? 0 : share->second.count;
    }
    /// The one that is idle for the longest time, of all or of one client, and that `may_end`. A look at one that may
    /// not makes it the last. Null: the first few may not.
    template <typename Check>
    [[nodiscard]] Connection* longest(const boost::asio::ip::address* client, const Check& may_end) {
        if (client == nullptr) return first_of(idle_, may_end);
        const auto share = shares_.find(*client);
        return share == shares_.end() ? nullptr : first_of(share->second.idle, may_end);
    }

  private:
    template <typename Order>
    using list = boost::intrusive::list<idle_entry, boost::intrusive::base_hook<idle_hook<Order>>,
                                        boost::intrusive::constant_time_size<false>>;
    struct client_share {
        std::size_t count = 0;
        list<idle_of_client> idle;
    };

    template <typename List, typename Check>
    [[nodiscard]] Connection* first_of(List& idle, const Check& may_end) {
        for (std::size_t looks = 0; looks < most_looks && !idle.empty(); ++looks) {
            auto& first = static_cast<Connection&>(idle.front());
            if (may_end(first)) return &first;
            set_idle(first);
        }
        return nullptr;
    }

    list<idle_of_all> idle_;
    std::map<boost::asio::ip::address, client_share> shares_;
};

}  // namespace accel::examples::serving::doors
