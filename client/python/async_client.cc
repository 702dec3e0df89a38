#include "client/python/async_client.h"

#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "client/python/arguments.h"
#include "client/python/bytes.h"
#include "client/python/errors.h"
#include "rkv/async_client.h"

namespace py = pybind11;

namespace rkv::python {

namespace {

using Seconds = std::optional<double>;
using Level = std::optional<std::string>;

// An operation from its submission to its end: it holds the bytes, and calls done(result, error).
// Created and destroyed with the interpreter's lock (PY-2).
struct Operation {
  Operation(py::handle of_key, py::object told) : key(of_key), done(std::move(told)) {}
  Held key;
  std::optional<Held> value;  // of a put; the room of a get_into
  std::stop_source stop;
  py::object done;

  void end(const py::object& result) { tell(result, py::none()); }
  void fail(const Error& error) { tell(py::none(), exception_of(error)); }
  // An exception in `done` is of the program: it is reported, and the client goes on.
  void tell(const py::object& result, const py::object& error) {
    try {
      done(result, error);
    } catch (py::error_already_set& thrown) {
      thrown.discard_as_unraisable("a callback of rkv");
    }
  }
};

// Withdraws an operation.
class Stop {
 public:
  explicit Stop(std::stop_source source) : source_(std::move(source)) {}
  void request() { source_.request_stop(); }

 private:
  std::stop_source source_;
};

class AsyncCore {
 public:
  explicit AsyncCore(const py::kwargs& given) : client_(connect(given)) {}

  Stop get(py::handle key, py::object done, const Seconds& timeout) {
    return begin(open().get(hold(key, std::move(done)).text(), {.timeout = timeout_of(timeout)}),
                 [](Operation& own, const Result<Value>& got) {
                   if (got) {
                     own.end(bytes_of(got->value));
                   } else if (got.error().code == Code::kNotFound) {
                     own.end(py::none());
                   } else {
                     own.fail(got.error());
                   }
                 });
  }
  Stop get_into(py::handle key, py::handle buffer, py::object done, const Seconds& timeout) {
    const Held& name = hold(key, std::move(done));
    next_->value.emplace(buffer, Held::For::kWriting);
    return begin(
        open().get_into(name.text(), next_->value->room(), {.timeout = timeout_of(timeout)}),
        [](Operation& own, const Result<ValueSize>& got) {
          if (got) {
            own.end(py::int_(got->bytes));
          } else if (got.error().code == Code::kNotFound) {
            own.end(py::none());
          } else {
            own.fail(got.error());
          }
        });
  }
  Stop put(py::handle key, py::handle value, py::object done, const Seconds& ttl, bool if_absent,
           const std::optional<std::uint64_t>& if_version, const Level& durability,
           const Seconds& timeout) {
    const Held& name = hold(key, std::move(done));
    next_->value.emplace(value);
    const PutOptions options = put_options(ttl, if_absent, if_version, durability, timeout);
    return begin(open().put_with(name.text(), next_->value->text(), options),
                 [](Operation& own, const Result<std::uint64_t>& version) {
                   version ? own.end(py::int_(*version)) : own.fail(version.error());
                 });
  }
  Stop remove(py::handle key, py::object done, const Level& durability, const Seconds& timeout) {
    const WriteOptions options{durability_of(durability), timeout_of(timeout)};
    return begin(open().remove(hold(key, std::move(done)).text(), options),
                 [](Operation& own, const Result<std::uint64_t>& version) {
                   const bool absent = !version && version.error().code == Code::kNotFound;
                   version || absent ? own.end(py::bool_(version.has_value()))
                                     : own.fail(version.error());
                 });
  }
  Stop incr(py::handle key, std::int64_t by, py::object done, const Level& durability,
            const Seconds& timeout) {
    const WriteOptions options{durability_of(durability), timeout_of(timeout)};
    return begin(open().incr(hold(key, std::move(done)).text(), by, options),
                 [](Operation& own, const Result<Counter>& counter) {
                   counter ? own.end(py::int_(counter->number)) : own.fail(counter.error());
                 });
  }

  std::size_t poll() { return open().poll(); }
  bool arm() { return open().arm(); }
  int descriptor() { return open().descriptor(); }
  std::size_t in_flight() { return client_ ? client_->in_flight() : 0; }
  // Ends what is in flight. False: in a callback of the client.
  bool close() {
    if (!client_) return true;
    if (!client_->close()) return false;
    client_.reset();
    return true;
  }
  std::string describe() { return open().describe(); }

 private:
  static AsyncClient connect(const py::kwargs& given) {
    const rkv_options options = options_of(given);
    std::string refusal;
    auto made = [&] {
      const py::gil_scoped_release released;
      return AsyncClient::connect(options.client, &refusal);
    }();
    if (!made) raise(made.error(), refusal);
    return std::move(*made);
  }
  AsyncClient& open() {
    if (!client_) throw py::value_error("the client is closed");
    return *client_;
  }
  // Makes the operation that the next begin() submits.
  const Held& hold(py::handle key, py::object done) {
    next_ = std::make_unique<Operation>(key, std::move(done));
    return next_->key;
  }
  template <class T, class End>
  Stop begin(Call<T> call, End end) {
    Operation* const operation = next_.release();
    Stop stop(operation->stop);
    std::move(call)
        .until(operation->stop.get_token())
        .then([operation, end](const Result<T>& result) {
          const std::unique_ptr<Operation> own(operation);
          end(*own, result);
        });
    return stop;
  }

  std::optional<AsyncClient> client_;
  std::unique_ptr<Operation> next_;
};

}  // namespace

void define_async_client(py::module_& module) {
  using py::arg;
  const auto kw = py::kw_only();
  const py::object none = py::none();
  py::class_<Stop>(module, "Stop").def("request", &Stop::request);
  py::class_<AsyncCore>(module, "AsyncCore")
      .def(py::init<const py::kwargs&>())
      .def("get", &AsyncCore::get, arg("key"), arg("done"), kw, arg("timeout") = none)
      .def("get_into", &AsyncCore::get_into, arg("key"), arg("buffer"), arg("done"), kw,
           arg("timeout") = none)
      .def("put", &AsyncCore::put, arg("key"), arg("value"), arg("done"), kw, arg("ttl") = none,
           arg("if_absent") = false, arg("if_version") = none, arg("durability") = none,
           arg("timeout") = none)
      .def("delete", &AsyncCore::remove, arg("key"), arg("done"), kw, arg("durability") = none,
           arg("timeout") = none)
      .def("incr", &AsyncCore::incr, arg("key"), arg("by"), arg("done"), kw,
           arg("durability") = none, arg("timeout") = none)
      .def("poll", &AsyncCore::poll)
      .def("arm", &AsyncCore::arm)
      .def("descriptor", &AsyncCore::descriptor)
      .def("in_flight", &AsyncCore::in_flight)
      .def("close", &AsyncCore::close)
      .def_property_readonly("transport", &AsyncCore::describe);
}

}  // namespace rkv::python
