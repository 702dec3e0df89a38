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
#include "client/python/no_new.h"
#include "client/python/released.h"
#include "rkv/async_client.h"

namespace py = pybind11;

namespace rkv::python {

namespace {

using Seconds = std::optional<double>;
using Level = std::optional<std::string>;

// What a callback has thrown, such as KeyboardInterrupt of a signal: poll() raises it.
using Thrown = std::optional<py::error_already_set>;

// An operation from its submission to its end: it holds the bytes, and calls done(result, error).
// Created and destroyed with the interpreter's lock (PY-2).
struct Operation {
  Operation(py::handle of_key, py::object told, Thrown& of_client)
      : key(of_key), done(std::move(told)), thrown(of_client) {}
  Held key;
  std::optional<Held> value;  // of a put; the room of a get_into
  std::stop_source stop;
  py::object done;
  Thrown& thrown;

  void end(const py::object& result) { tell(result, py::none()); }
  void fail(const Error& error) { tell(py::none(), exception_of(error)); }
  // A signal's handler may throw before `done` has begun: so it is called once more.
  void tell(const py::object& result, const py::object& error) {
    for (int tries = 0; tries < 2; ++tries) {
      try {
        done(result, error);
        return;
      } catch (py::error_already_set& caught) {
        if (!thrown) thrown.emplace(std::move(caught));
      }
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
  AsyncCore(const AsyncCore&) = delete;
  AsyncCore& operator=(const AsyncCore&) = delete;

  Stop get(py::handle key, py::object done, const Seconds& timeout) {
    AsyncClient& client = open();
    auto own = made(key, std::move(done));
    auto call = client.get(own->key.text(), {.timeout = timeout_of(timeout)});
    return begin(std::move(own), std::move(call), [](Operation& ended, const Result<Value>& got) {
      end_read(ended, got, [](const Value& value) { return bytes_of(value.value); });
    });
  }
  Stop get_into(py::handle key, py::handle buffer, py::object done, const Seconds& timeout) {
    AsyncClient& client = open();
    auto own = made(key, std::move(done));
    own->value.emplace(buffer, Held::For::kWriting);
    auto call =
        client.get_into(own->key.text(), own->value->room(), {.timeout = timeout_of(timeout)});
    return begin(std::move(own), std::move(call),
                 [](Operation& ended, const Result<ValueSize>& got) {
                   end_read(ended, got, [](const ValueSize& size) { return py::int_(size.bytes); });
                 });
  }
  Stop put(py::handle key, py::handle value, py::object done, const Seconds& ttl, bool if_absent,
           const std::optional<std::uint64_t>& if_version, const Level& durability,
           const Seconds& timeout) {
    AsyncClient& client = open();
    auto own = made(key, std::move(done));
    own->value.emplace(value);
    auto call = client.put_with(own->key.text(), own->value->text(),
                                put_options(ttl, if_absent, if_version, durability, timeout));
    return begin(std::move(own), std::move(call),
                 [](Operation& ended, const Result<std::uint64_t>& version) {
                   version ? ended.end(py::int_(*version)) : ended.fail(version.error());
                 });
  }
  Stop remove(py::handle key, py::object done, const Level& durability, const Seconds& timeout) {
    AsyncClient& client = open();
    auto own = made(key, std::move(done));
    auto call = client.remove(own->key.text(), {durability_of(durability), timeout_of(timeout)});
    return begin(std::move(own), std::move(call),
                 [](Operation& ended, const Result<std::uint64_t>& version) {
                   const bool absent = !version && version.error().code == Code::kNotFound;
                   version || absent ? ended.end(py::bool_(version.has_value()))
                                     : ended.fail(version.error());
                 });
  }
  Stop incr(py::handle key, std::int64_t by, py::object done, const Level& durability,
            const Seconds& timeout) {
    AsyncClient& client = open();
    auto own = made(key, std::move(done));
    auto call = client.incr(own->key.text(), by, {durability_of(durability), timeout_of(timeout)});
    return begin(std::move(own), std::move(call),
                 [](Operation& ended, const Result<Counter>& counter) {
                   counter ? ended.end(py::int_(counter->number)) : ended.fail(counter.error());
                 });
  }

  RegisteredBuffer allocate(std::size_t bytes) {
    AsyncClient& client = open();
    auto allocated = [&] {
      const Released released;
      return client.allocate_buffer(bytes);
    }();
    return value_or_raise(std::move(allocated));
  }

  // Raises what a callback has thrown.
  std::size_t poll() {
    const std::size_t ended = open().poll();
    if (thrown_) throw py::error_already_set(*std::exchange(thrown_, std::nullopt));
    return ended;
  }
  bool arm() { return open().arm(); }
  int descriptor() { return open().descriptor(); }
  std::size_t in_flight() { return client_ ? client_->in_flight() : 0; }
  // Ends what is in flight. False: in a callback of the client.
  bool close() {
    if (!client_) return true;
    const Released released;
    if (!client_->close()) return false;
    client_.reset();
    return true;
  }
  ~AsyncCore() { close(); }
  std::string describe() { return open().describe(); }

 private:
  static AsyncClient connect(const py::kwargs& given) {
    const rkv_options options = options_of(given);
    std::string refusal;
    auto made = [&] {
      const Released released;
      return AsyncClient::connect(options.client, &refusal);
    }();
    if (!made) raise(made.error(), refusal);
    return std::move(*made);
  }
  AsyncClient& open() {
    if (!client_) throw py::value_error("the client is closed");
    return *client_;
  }
  std::unique_ptr<Operation> made(py::handle key, py::object done) {
    return std::make_unique<Operation>(key, std::move(done), thrown_);
  }
  template <class T, class Value>
  static void end_read(Operation& ended, const Result<T>& got, Value value) {
    if (got) {
      ended.end(value(*got));
    } else if (got.error().code == Code::kNotFound) {
      ended.end(py::none());
    } else {
      ended.fail(got.error());
    }
  }
  template <class T, class End>
  Stop begin(std::unique_ptr<Operation> own, Call<T> call, End end) {
    Operation* const operation = own.release();
    Stop stop(operation->stop);
    std::move(call)
        .until(operation->stop.get_token())
        .then([operation, end](const Result<T>& result) {
          const py::gil_scoped_acquire held;
          const std::unique_ptr<Operation> ended(operation);
          end(*ended, result);
        });
    return stop;
  }

  Thrown thrown_;  // outlives the client
  std::optional<AsyncClient> client_;
};

}  // namespace

void define_async_client(py::module_& module) {
  using py::arg;
  const auto kw = py::kw_only();
  const py::object none = py::none();
  py::class_<Stop> stop(module, "Stop");
  forbid_new(stop);
  stop.def("request", &Stop::request);
  py::class_<AsyncCore> client(module, "AsyncCore");
  forbid_new(client);
  module.def("connect_async",
             [](const py::kwargs& given) { return std::make_unique<AsyncCore>(given); });
  client.def("get", &AsyncCore::get, arg("key"), arg("done"), kw, arg("timeout") = none)
      .def("get_into", &AsyncCore::get_into, arg("key"), arg("buffer"), arg("done"), kw,
           arg("timeout") = none)
      .def("allocate", &AsyncCore::allocate, arg("bytes"))
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
