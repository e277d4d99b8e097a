// SPDX-License-Identifier: Apache-2.0
// Objects made by DevX: the fields for which they are refused, and how long what they use stays.
#include "devx/commands.hpp"
#include "devx_fixture.hpp"

#include <map>
#include <random>
#include <set>

namespace accel::softnic::objects {
namespace {

using devx::reason;
using devx::status;
using testing::devx_exchange;
using testing::devx_fixture;

/// One of each, which the commands of refusals refer to.
struct devx_objects : devx_fixture {
    devx_exchange queue = cq_command();
    devx_exchange receives = receives_command();
    devx_exchange key = key_command();
    std::uint32_t read_only = 0;

    devx_objects() {
        for (devx_exchange* each : {&queue, &receives, &key}) EXPECT_EQ(create(*each), 0);
        EXPECT_EQ(register_umem(memory, memory_bytes, 0, read_only), 0);
    }
    [[nodiscard]] devx_exchange a_cq() const { return cq_command(); }
    [[nodiscard]] devx_exchange a_pair() const { return qp_command(queue.object()); }
    [[nodiscard]] devx_exchange an_initiator() const { return initiator_command(queue.object()); }
    [[nodiscard]] devx_exchange a_target() const { return target_command(queue.object(), receives.object()); }
    [[nodiscard]] devx_exchange some_receives() const { return receives_command(); }
    [[nodiscard]] devx_exchange a_key() const { return key_command(); }
    [[nodiscard]] devx_exchange an_alias() const { return alias_command(key.object() << 8); }
};

using kind = devx_exchange (devx_objects::*)() const;

struct refusal_row {
    kind what;
    devx::field where;
    std::uint64_t good, bad;  ///< the nearest of each
    status expected;
    reason why;
};

constexpr std::uint64_t as_it_is = ~1ull;
constexpr std::uint64_t end_of_memory = devx_fixture::memory_bytes;
constexpr kind cq = &devx_objects::a_cq;
constexpr kind pair = &devx_objects::a_pair;
constexpr kind initiator = &devx_objects::an_initiator;
constexpr kind target_kind = &devx_objects::a_target;
constexpr kind receive = &devx_objects::some_receives;
constexpr kind key_kind = &devx_objects::a_key;
constexpr kind alias = &devx_objects::an_alias;
constexpr auto parameter = status::bad_parameter;
constexpr auto resource = status::bad_resource;
constexpr auto limit = status::limit_exceeded;

constexpr devx::field of_cq(devx::field of) {
    return of.at(devx::create_cq::context);
}
constexpr devx::field of_pair(devx::field of) {
    return of.at(devx::create_qp::context);
}
constexpr auto of_target = &devx_fixture::in_target;
constexpr auto of_receives = &devx_fixture::in_receives;
constexpr auto of_key = &devx_fixture::in_key;
constexpr auto of_entry = &devx_fixture::in_entry;

const refusal_row rows[]{
    {cq, devx::create_cq::umem_id, as_it_is, 999, resource, reason::no_such_umem},
    {cq, of_cq(devx::cqc::dbr_umem_id), as_it_is, 0, resource, reason::no_such_umem},
    {cq, devx::create_cq::umem_offset, end_of_memory - 1024, end_of_memory - 1023, parameter, reason::outside_umem},
    {cq, devx::create_cq::umem_offset, as_it_is, ~0ull - 63, parameter, reason::outside_umem},
    {cq, devx::create_cq::umem_offset, 64, 32, parameter, reason::bad_attribute},
    {cq, of_cq(devx::cqc::dbr_addr), end_of_memory - 8, end_of_memory - 7, parameter, reason::outside_umem},
    {cq, of_cq(devx::cqc::dbr_addr), 8, 4, parameter, reason::bad_attribute},
    {cq, of_cq(devx::cqc::log_cq_size), 10, 11, parameter, reason::outside_umem},
    {cq, of_cq(devx::cqc::log_cq_size), as_it_is, 22, parameter, reason::outside_umem},
    {cq, of_cq(devx::cqc::log_cq_size), as_it_is, 23, limit, reason::bad_queue_size},
    {cq, of_cq(devx::cqc::log_cq_size), as_it_is, 31, limit, reason::bad_queue_size},
    {cq, of_cq(devx::cqc::cqe_sz), 1, 2, parameter, reason::bad_attribute},
    {cq, of_cq(devx::cqc::cqe_comp_en), 0, 1, parameter, reason::not_modelled},
    {cq, of_cq(devx::cqc::uar_page), as_it_is, 999, resource, reason::no_such_uar},
    {cq, of_cq(devx::cqc::c_eqn), devx::first_event_queue, devx::first_event_queue - 1, resource,
     reason::no_such_index},
    {cq, of_cq(devx::cqc::c_eqn), devx::first_event_queue + limits::completion_vectors - 1,
     devx::first_event_queue + limits::completion_vectors, resource, reason::no_such_index},

    {pair, devx::create_qp::wq_umem_id, as_it_is, 999, resource, reason::no_such_umem},
    {pair, devx::create_qp::wq_umem_offset, end_of_memory - 1280, end_of_memory - 1279, parameter,
     reason::outside_umem},
    {pair, devx::create_qp::wq_umem_offset, as_it_is, ~0ull, parameter, reason::outside_umem},
    {pair, devx::create_qp::wq_umem_offset, 64, 8, parameter, reason::bad_attribute},
    {pair, of_pair(devx::qpc::dbr_umem_id), as_it_is, 0, resource, reason::no_such_umem},
    {pair, of_pair(devx::qpc::dbr_addr), end_of_memory - 8, end_of_memory, parameter, reason::outside_umem},
    {pair, of_pair(devx::qpc::log_sq_size), 9, 10, parameter, reason::outside_umem},
    {pair, of_pair(devx::qpc::log_rq_stride), 6, 7, limit, reason::bad_queue_size},
    {pair, of_pair(devx::qpc::st), 0, 3, parameter, reason::not_modelled},
    {pair, of_pair(devx::qpc::rq_type), 3, 2, parameter, reason::not_modelled},
    {pair, of_pair(devx::qpc::rq_type), as_it_is, 1, resource, reason::no_such_receive_queue},
    {pair, of_pair(devx::qpc::send_dbr_mode), 0, 1, parameter, reason::not_modelled},
    {pair, of_pair(devx::qpc::pd), as_it_is, 999, resource, reason::no_such_domain},
    {pair, of_pair(devx::qpc::uar_page), as_it_is, 999, resource, reason::no_such_uar},
    {pair, of_pair(devx::qpc::cqn_snd), as_it_is, 0, resource, reason::no_such_completion_queue},
    {pair, of_pair(devx::qpc::cqn_rcv), as_it_is, 0, resource, reason::no_such_completion_queue},
    {initiator, of_pair(devx::qpc::no_sq), 0, 1, parameter, reason::not_modelled},
    {initiator, of_pair(devx::qpc::cqn_snd), as_it_is, 0, resource, reason::no_such_completion_queue},

    {target_kind, of_target(devx::dctc::pd), as_it_is, 999, resource, reason::no_such_domain},
    {target_kind, of_target(devx::dctc::cqn), as_it_is, 999, resource, reason::no_such_completion_queue},
    {target_kind, of_target(devx::dctc::srqn_xrqn), as_it_is, 999, resource, reason::no_such_receive_queue},
    {target_kind, of_target(devx::dctc::port), 1, 2, parameter, reason::bad_attribute},
    {target_kind, of_target(devx::dctc::port), 1, 0, parameter, reason::bad_attribute},
    {target_kind, of_target(devx::dctc::mtu), 5, 6, parameter, reason::bad_attribute},
    {target_kind, of_target(devx::dctc::mtu), 1, 0, parameter, reason::bad_attribute},
    {target_kind, of_target(devx::dctc::pkey_index), 127, 128, parameter, reason::bad_attribute},
    {target_kind, of_target(devx::dctc::offload_type), 0, 1, parameter, reason::not_modelled},

    {receive, of_receives(devx::wq::wq_umem_offset), end_of_memory - 512, end_of_memory - 511, parameter,
     reason::outside_umem},
    {receive, of_receives(devx::wq::wq_umem_offset), 64, 32, parameter, reason::bad_attribute},
    {receive, of_receives(devx::wq::dbr_addr), end_of_memory - 4, end_of_memory, parameter, reason::outside_umem},
    {receive, of_receives(devx::wq::wq_umem_id), as_it_is, 999, resource, reason::no_such_umem},
    {receive, of_receives(devx::wq::pd), as_it_is, 999, resource, reason::no_such_domain},
    {receive, of_receives(devx::wq::log_wq_stride), 5, 4, limit, reason::bad_queue_size},
    {receive, of_receives(devx::wq::log_wq_stride), 10, 11, limit, reason::bad_queue_size},
    {receive, of_receives(devx::wq::log_wq_sz), as_it_is, 31, limit, reason::bad_queue_size},
    {receive, of_receives(devx::wq::wq_type), 0, 3, parameter, reason::not_modelled},
    {receive, of_receives(devx::wq::wq_signature), 0, 1, parameter, reason::not_modelled},
    {receive, devx::rmpc::basic_cyclic_rcv_wqe.at(devx::create_rmp::context), 0, 1, parameter, reason::not_modelled},
    {receive, devx::rmpc::state.at(devx::create_rmp::context), 1, 0, parameter, reason::bad_attribute},

    {key_kind, devx::create_mkey::umem_offset, end_of_memory - 16384, end_of_memory - 16383, parameter,
     reason::outside_umem},
    {key_kind, of_key(devx::mkc::len), 1, 0, parameter, reason::bad_attribute},
    {key_kind, of_key(devx::mkc::start_addr), ~0ull - 16384, ~0ull - 16383, parameter, reason::bad_attribute},
    {key_kind, of_key(devx::mkc::access_mode_1_0), 1, 2, parameter, reason::not_modelled},
    {key_kind, of_key(devx::mkc::length64), 0, 1, parameter, reason::not_modelled},
    {key_kind, of_key(devx::mkc::free), 0, 1, parameter, reason::not_modelled},
    {key_kind, of_key(devx::mkc::pd), as_it_is, 999, resource, reason::no_such_domain},
    {alias, of_key(devx::mkc::translations_octword_size), 4, 5, status::bad_input_length, reason::input_too_short},
    {alias, of_key(devx::mkc::translations_octword_size), as_it_is, ~0u, status::bad_input_length,
     reason::input_too_short},
    {alias, of_key(devx::mkc::translations_octword_size), as_it_is, 0, status::bad_input_length,
     reason::input_too_short},
    {alias, of_key(devx::mkc::translations_octword_size), as_it_is, 3, parameter, reason::bad_attribute},
    {alias, of_entry(devx::klm::address, 2), as_it_is, devx_fixture::key_begin, parameter, reason::not_modelled},
    {alias, of_entry(devx::klm::mkey, 3), as_it_is, 1, parameter, reason::not_modelled},
};

TEST_F(devx_objects, each_field_of_a_creation_is_checked) {
    const std::size_t before = target.devx_space.objects.size();
    for (const refusal_row& row : rows) {
        SCOPED_TRACE(fmt::format("row {}", &row - rows));
        devx_exchange good = (this->*row.what)();
        if (row.good != as_it_is) good.set(row.where, row.good);
        EXPECT_EQ(create(good), 0) << devx::to_string(good.reason());
        EXPECT_EQ(destroy(good.handle), 0);
        devx_exchange bad = (this->*row.what)();
        bad.set(row.where, row.bad);
        expect_refused(create(bad), bad, row.expected, row.why);
    }
    for (const auto& [each, size] : {std::pair{cq, devx::create_cq::in_bytes},
                                     {pair, devx::create_qp::in_bytes},
                                     {target_kind, devx::create_dct::in_bytes},
                                     {receive, devx::create_rmp::in_bytes},
                                     {key_kind, devx::create_mkey::in_bytes}}) {
        devx_exchange cut = (this->*each)();
        cut.in.resize(size - 1u);
        expect_refused(create(cut), cut, status::bad_input_length, reason::input_too_short);
    }
    EXPECT_EQ(target.devx_space.objects.size(), before) << "nothing stays of those that were refused";
    EXPECT_TRUE(target.own_device().queue_pairs().empty());
}

TEST_F(devx_objects, a_key_refers_to_what_it_may_use) {
    devx_exchange reads = key_command();
    reads.set(devx::create_mkey::umem_id, read_only);
    expect_refused(create(reads), reads, parameter, reason::umem_is_read_only);
    for (const devx::field right : {devx::mkc::lw, devx::mkc::rw}) reads.set(in_key(right), 0);
    EXPECT_EQ(create(reads), 0);
    auto nobody = alias_command(0x777700);
    expect_refused(create(nobody), nobody, resource, reason::no_such_key);
    auto first = an_alias();
    ASSERT_EQ(create(first), 0);
    auto second = alias_command(first.object() << 8);
    expect_refused(create(second), second, parameter, reason::not_modelled);
    devx_exchange domain(devx::opcode::alloc_pd);
    ASSERT_EQ(create(domain), 0);
    auto foreign = an_alias();
    foreign.set(in_key(devx::mkc::pd), domain.object());
    expect_refused(create(foreign), foreign, resource, reason::no_such_key);
}

// ---- how long they stay

/// What is there, by handle, and the handles that each uses. Keys may go before those made of them.
class object_world {
  public:
    object_world(devx_fixture& on, std::uint64_t seed) : on_(on), random_(seed) {}

    void run(int rounds) {
        for (int round = 0; round < rounds && !::testing::Test::HasFatalFailure(); ++round) {
            SCOPED_TRACE(fmt::format("round {}", round));
            if (random_() % 2 == 0)
                make();
            else
                end(random_() % 8 == 0 || uses_.empty() ? 1'000'000 : any([](char) { return true; }));
        }
        while (!uses_.empty() && !::testing::Test::HasFatalFailure()) end(any([](char) { return true; }));
    }

  private:
    template <class Wanted>
    std::uint32_t any(Wanted wanted) {
        std::vector<std::uint32_t> fitting;
        for (const auto& [handle, kind] : kinds_)
            if (wanted(kind)) fitting.push_back(handle);
        return fitting.empty() ? 0 : fitting[random_() % fitting.size()];
    }
    std::uint32_t any_of(char kind) {
        return any([kind](char each) { return each == kind; });
    }

    /// u: umem, d: domain, c: completion queue, r: receive queue, q: queue pair, t: target, k: key.
    void make() {
        const char kind = "udcrqtk"[random_() % 7];
        if (kind == 'u') {
            std::uint32_t number = 0;
            ASSERT_EQ(on_.register_umem(on_.memory, devx_fixture::memory_bytes, 1, number), 0);
            return keep(kind, number, {});
        }
        devx_exchange what(devx::opcode::alloc_pd);
        std::set<std::uint32_t> used;
        if (kind != 'd' && !choose(kind, what, used)) return;
        ASSERT_EQ(on_.create(what), 0) << kind << " " << devx::to_string(what.reason());
        objects_[what.handle] = what.object();
        keep(kind, what.handle, used);
    }
    bool choose(char kind, devx_exchange& what, std::set<std::uint32_t>& used) {
        const std::uint32_t domain = any_of('d'), queue = any_of('c'), receives = any_of('r');
        on_.umem = any_of('u');
        on_.pd = objects_[domain];
        const bool has_memory = on_.umem != 0, has_domain = domain != 0;
        if (kind == 'c') what = on_.cq_command();
        if (kind == 'r') what = on_.receives_command();
        if (kind == 'k') what = on_.key_command();
        if (kind == 'q') what = on_.qp_command(objects_[queue]);
        if (kind == 't') what = on_.target_command(objects_[queue], objects_[receives]);
        if (kind != 't') used.insert(on_.umem);
        if (kind != 'c') used.insert(domain);
        if (kind == 'q' || kind == 't') used.insert(queue);
        if (kind == 't') used.insert(receives);
        return (has_memory || kind == 't') && (has_domain || kind == 'c') && !used.contains(0);
    }
    void keep(char kind, std::uint32_t handle, std::set<std::uint32_t> used) {
        kinds_[handle] = kind;
        uses_[handle] = std::move(used);
    }

    void end(std::uint32_t handle) {
        if (!kinds_.contains(handle)) {
            EXPECT_EQ(on_.destroy(handle), ENOENT);
            EXPECT_EQ(on_.deregister_umem(handle), ENOENT);
            return;
        }
        const bool in_use = std::any_of(uses_.begin(), uses_.end(),
                                        [handle](const auto& each) { return each.second.contains(handle); });
        const auto destroy = [&] {
            return kinds_.at(handle) == 'u' ? on_.deregister_umem(handle) : on_.destroy(handle);
        };
        ASSERT_EQ(destroy(), in_use ? EBUSY : 0) << kinds_.at(handle);
        if (in_use) return;
        EXPECT_EQ(destroy(), ENOENT) << "twice";
        kinds_.erase(handle);
        uses_.erase(handle);
    }

    devx_fixture& on_;
    std::mt19937_64 random_;
    std::map<std::uint32_t, char> kinds_;
    std::map<std::uint32_t, std::set<std::uint32_t>> uses_;
    std::map<std::uint32_t, std::uint32_t> objects_;
};

struct devx_lives : devx_fixture {};

TEST_F(devx_lives, what_others_use_stays_until_the_last_of_them_has_gone) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        SCOPED_TRACE(fmt::format("seed {}", seed));
        object_world(*this, seed).run(300);
        if (HasFailure()) return;
        EXPECT_TRUE(target.qps.empty() && target.cqs.empty() && target.srqs.empty());
        EXPECT_TRUE(on.adapter.cqs().empty());
        EXPECT_TRUE(target.own_device().queue_pairs().empty());
        EXPECT_EQ(target.own_device().regions.size(), 0u);
    }
}

}  // namespace
}  // namespace accel::softnic::objects
