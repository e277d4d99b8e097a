// SPDX-License-Identifier: Apache-2.0
#include "answer.hpp"
#include "array_input.hpp"
#include "context.hpp"
#include "errors.hpp"
#include "options.hpp"

#include <accel_transport/channel_pool.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

namespace accel::python {

namespace {

class owned_pool final : public closable {
  public:
    owned_pool(shared_context its_context, channel_pool&& its_own) noexcept
        : context_(std::move(its_context)), own(std::move(its_own)) {}
    void close_at_exit() noexcept override {
        const unlocked meanwhile;
        static_cast<void>(own.close({}));
    }

  private:
    shared_context context_;

  public:
    channel_pool own;
};

class pool_answer final : public answer {
  public:
    explicit pool_answer(shared_response&& its_done) noexcept : done_(std::move(its_done)) {}
    [[nodiscard]] const call_outcome& outcome() const noexcept override { return done_; }
    [[nodiscard]] result<std::span<tensor>, status> tensors(std::span<tensor> room) const noexcept override {
        return done_.tensors(room);
    }
    [[nodiscard]] result<std::span<const metadata_entry>, status> metadata(
        metadata_room& room) const noexcept override {
        return done_.metadata(room);
    }
    std::shared_ptr<region_owner> into;

  private:
    shared_response done_;
};

struct py_pool {
    explicit py_pool(std::shared_ptr<owned_pool> its_own) noexcept : own(std::move(its_own)) {}
    py_pool(const py_pool&) = delete;
    py_pool& operator=(const py_pool&) = delete;
    ~py_pool() {
        if (ending()) return;
        const unlocked meanwhile;
        own.reset();
    }
    std::shared_ptr<owned_pool> own;
};

void open(py_pool* self, nb::handle context, const std::string& uri, std::uint32_t max_channels, double host_pause,
          double dns_refresh, std::uint32_t eject_after) {
    const shared_context& shared = context_of(context);
    const pool_options limits{max_channels, duration_of(host_pause), duration_of(dns_refresh), eject_after};
    auto made = [&] {
        const unlocked meanwhile;
        return channel_pool::open(*shared, uri, {}, limits);
    }();
    auto own = std::make_shared<owned_pool>(shared, take(std::move(made)));
    close_at_exit(own);
    new (self) py_pool(std::move(own));
}

response call(py_pool& self, nb::handle data, std::optional<double> timeout, nb::handle target, nb::handle metadata,
              nb::handle trace, nb::handle baggage, nb::handle into) {
    call_options options(timeout, target, metadata, trace, baggage, into);
    const payload_input input(data);
    options.native.tensors = input.tensors();
    std::vector<std::byte> packed;
    std::span<const std::byte> request;
    int copies = 1;  // into the slot
    if (const auto plain = input.bytes()) {
        request = *plain;
    } else {
        packed.resize(input.size());
        input.copy_to(packed);
        request = packed;
        copies = 2;
    }
    // The pool may end meanwhile, on another thread.
    const std::shared_ptr<owned_pool> own = self.own;
    auto ended = [&] {
        const unlocked meanwhile;
        return own->own.call(request, options.native);
    }();
    // The pool does not say whether it was `local`.
    if (!ended || ended->status != status::ok) keep_for_local(options.into);
    auto done = std::make_shared<pool_answer>(take(std::move(ended)));
    done->copies = copies;
    if (options.into) done->where = options.into->whole.kind();
    done->into = std::move(options.into);
    return response_of(std::move(done));
}

nb::dict statistics(const py_pool& self) {
    const pool_statistics now = self.own->own.statistics();
    nb::dict out;
    out["channels"] = now.channels;
    out["hosts"] = now.hosts;
    out["hosts_out"] = now.hosts_out;
    out["made"] = now.made;
    out["lost"] = now.lost;
    out["moved"] = now.moved;
    out["ejected"] = now.ejected;
    return out;
}

}  // namespace

void add_pool(nb::module_& module) {
    nb::class_<py_pool>(module, "ChannelPool")
        .def("__init__", &open, nb::arg("context"), nb::arg("uri"), nb::arg("max_channels"), nb::arg("host_pause"),
             nb::arg("dns_refresh"), nb::arg("eject_after"))
        .def("call", &call, nb::arg("data").none(), nb::kw_only(), nb::arg("timeout") = nb::none(),
             nb::arg("target") = nb::none(), nb::arg("metadata") = nb::none(), nb::arg("trace") = nb::none(),
             nb::arg("baggage") = nb::none(), nb::arg("into") = nb::none(),
             nb::sig(
                 "def call(self, data: object, *, timeout: float | None = None, target: str | None = None, metadata: "
                 "collections.abc.Mapping[str, str | bytes] | None = None, trace: str | None = None, baggage: str | "
                 "None = None, "
                 "into: Region | None = None) -> Response"),
             "As `Channel.call`, over this thread's channel; a call that no server has seen goes to another one. An "
             "interrupt is noticed when the call has ended.")
        .def(
            "leave", [](const py_pool& self) { check(self.own->own.leave()); },
            "Gives up this thread's channel, for another thread.")
        .def(
            "close",
            [](const py_pool& self, double timeout) {
                const auto limit = duration_of(timeout);
                const auto own = self.own;
                const unlocked meanwhile;
                return own->own.close(limit) == status::ok;
            },
            nb::arg("timeout") = 1.0,
            "Refuses new calls, waits for calls under way and unread responses, and closes all channels. False: some "
            "were "
            "left.")
        .def_prop_ro("statistics", &statistics, nb::sig("def statistics(self) -> dict[str, int]"));
}

}  // namespace accel::python
