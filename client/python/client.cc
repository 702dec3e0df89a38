#include "client/python/client.h"

#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/c/handle.h"
#include "client/python/arguments.h"
#include "client/python/bytes.h"
#include "client/python/errors.h"
#include "client/python/interrupts.h"
#include "client/python/no_new.h"
#include "client/python/released.h"
#include "rkv/shared_client.h"

namespace py = pybind11;

namespace rkv::python {

namespace {

using Level = std::optional<std::string>;

class PyClient {
 public:
  explicit PyClient(const py::kwargs& given) : handle_(connect(given)) {}

  void close() {
    const Released released;
    handle_->close();
  }

  py::object get(py::handle key, const py::object& otherwise, const Seconds& timeout) {
    const auto found = find(key, timeout);
    return found ? bytes_of(found->value) : otherwise;
  }
  py::object get_with_version(py::handle key, const Seconds& timeout) {
    const auto found = find(key, timeout);
    if (!found) return py::none();
    return py::make_tuple(bytes_of(found->value), found->version);
  }
  std::optional<std::size_t> get_into(py::handle key, py::handle buffer, const Seconds& timeout) {
    const Held name(key);
    const Held room(buffer, Held::For::kWriting);
    auto got = call([&](SharedClient& client) {
      return client.get_into(name.text(), room.room(), GetOptions{.timeout = timeout_of(timeout)});
    });
    if (got) return got->bytes;
    if (got.error().code == Code::kNotFound) return std::nullopt;
    raise(exception_of_into(got.error(), SharedClient::needed_bytes()));
  }
  RegisteredBuffer allocate(std::size_t bytes) {
    return value_or_raise(
        call([&](SharedClient& client) { return client.allocate_buffer(bytes); }));
  }
  std::uint64_t put(py::handle key, py::handle value, const Seconds& ttl, bool if_absent,
                    const OptionalVersion& if_version, const Level& durability,
                    const Seconds& timeout) {
    const Held name(key);
    const Held text(value);
    const PutOptions options = put_options(ttl, if_absent, if_version, durability, timeout);
    return value_or_raise(call(
        [&](SharedClient& client) { return client.put_with(name.text(), text.text(), options); }));
  }
  // nullopt: the key does not exist.
  std::optional<std::uint64_t> touch(py::handle key, const Seconds& ttl,
                                     const OptionalVersion& if_version, const Level& durability,
                                     const Seconds& timeout) {
    const Held name(key);
    PutOptions options = put_options(ttl, false, if_version, durability, timeout);
    options.keep_value = true;
    auto touched =
        call([&](SharedClient& client) { return client.put_with(name.text(), {}, options); });
    if (!touched && touched.error().code == Code::kNotFound) return std::nullopt;
    return value_or_raise(std::move(touched));
  }
  // Whether there was such a key.
  bool remove(py::handle key, const OptionalVersion& if_version, const Level& durability,
              const Seconds& timeout) {
    const Held name(key);
    const WriteOptions options{durability_of(durability), timeout_of(timeout)};
    auto removed = call([&](SharedClient& client) {
      return if_version.version
                 ? client.remove_if_version(name.text(), *if_version.version, options)
                 : client.remove(name.text(), options);
    });
    if (!removed && removed.error().code == Code::kNotFound) return false;
    value_or_raise(std::move(removed));
    return true;
  }
  std::int64_t incr(py::handle key, const Number& by, const Level& durability,
                    const Seconds& timeout) {
    const Held name(key);
    const WriteOptions options{durability_of(durability), timeout_of(timeout)};
    return value_or_raise(call([&](SharedClient& client) {
             return client.incr(name.text(), by.number, options);
           }))
        .number;
  }
  std::optional<std::int64_t> get_counter(py::handle key, const Seconds& timeout) {
    const Held name(key);
    auto got = call(
        [&](SharedClient& client) { return client.get_counter(name.text(), timeout_of(timeout)); });
    if (!got && got.error().code == Code::kNotFound) return std::nullopt;
    return value_or_raise(std::move(got)).number;
  }

  // ---- many keys

  py::list multi_get(const py::iterable& keys, const Seconds& timeout) {
    const std::vector<Held> held = hold_all(keys);
    const std::vector<std::string_view> names = texts_of(held);
    const auto all = call([&](SharedClient& client) {
      return client.multi_get(names, GetOptions{.timeout = timeout_of(timeout)});
    });
    BatchResults values;
    for (const Result<Value>& got : all) {
      if (got) {
        values.add(bytes_of(got->value));
      } else if (got.error().code == Code::kNotFound) {
        values.add(py::none());
      } else {
        values.add_failure(got.error(), exception_of(got.error()));
      }
    }
    return std::move(values).get_or_raise(SharedClient::last_refusal());
  }
  // Each value goes to the buffer of the same place. Returns the lengths; None: no such key.
  py::list multi_get_into(const py::iterable& keys, const py::iterable& buffers,
                          const Seconds& timeout) {
    const std::vector<Held> held = hold_all(keys);
    const std::vector<Held> held_rooms = hold_all(buffers, Held::For::kWriting);
    if (held.size() != held_rooms.size())
      throw py::value_error("there must be as many buffers as keys");
    const std::vector<std::string_view> names = texts_of(held);
    std::vector<std::span<std::byte>> rooms;
    rooms.reserve(held_rooms.size());
    for (const Held& each : held_rooms)
      rooms.push_back(each.room());
    std::vector<std::size_t> needed(names.size());
    const auto all = call([&](SharedClient& client) {
      return client.multi_get_buffers(names, rooms, GetOptions{.timeout = timeout_of(timeout)},
                                      needed);
    });
    BatchResults sizes;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i]) {
        sizes.add(py::int_(all[i]->bytes));
      } else if (all[i].error().code == Code::kNotFound) {
        sizes.add(py::none());
      } else {
        sizes.add_failure(all[i].error(), exception_of_into(all[i].error(), needed[i]));
      }
    }
    return std::move(sizes).get_or_raise(SharedClient::last_refusal());
  }
  py::list multi_put(const py::object& items, const Seconds& ttl, const Level& durability,
                     const Seconds& timeout) {
    const py::iterable pairs =
        py::isinstance<py::dict>(items) ? py::iterable(items.attr("items")()) : py::iterable(items);
    std::vector<std::pair<Held, Held>> held;
    for (const py::handle pair : pairs) {
      const bool is_text = PyUnicode_Check(pair.ptr()) || PyBytes_Check(pair.ptr());
      if (is_text || !PySequence_Check(pair.ptr()) || PySequence_Size(pair.ptr()) != 2)
        throw py::value_error("an item is a pair of key and value");
      const auto both = py::reinterpret_borrow<py::sequence>(pair);
      held.emplace_back(Held(py::object(both[0])), Held(py::object(both[1])));
    }
    std::vector<KeyValue> all;
    all.reserve(held.size());
    const std::chrono::milliseconds lives = timeout_of(ttl);
    for (const auto& [key, value] : held)
      all.push_back({.key = key.text(), .value = value.text(), .ttl = lives});
    const WriteOptions options{durability_of(durability), timeout_of(timeout)};
    const auto put = call([&](SharedClient& client) { return client.multi_put(all, options); });
    BatchResults versions;
    for (const Result<std::uint64_t>& version : put) {
      if (version) {
        versions.add(py::int_(*version));
        versions.note_write();
      } else {
        versions.add_failure(version.error(), exception_of(version.error()));
      }
    }
    return std::move(versions).get_or_raise(SharedClient::last_refusal());
  }

  // ---- the server

  // A page: pairs of key and value, and the token of the next one, empty at the end.
  py::tuple scan_page(py::handle prefix, py::handle start, py::handle end, bool reverse,
                      bool keys_only, std::uint32_t limit, py::handle token,
                      const Seconds& timeout) {
    const auto page = value_or_raise(call_apart([=, of_prefix = std::string(Held(prefix).text()),
                                                 of_start = std::string(Held(start).text()),
                                                 of_end = std::string(Held(end).text()),
                                                 of_token = std::string(Held(token).text()),
                                                 time = timeout_of(timeout)](SharedClient& client) {
      return client.scan({.prefix = of_prefix,
                          .start = of_start,
                          .end = of_end,
                          .reverse = reverse,
                          .keys_only = keys_only,
                          .limit = limit,
                          .token = of_token,
                          .timeout = time});
    }));
    py::list entries;
    for (const ScanEntry& entry : page.entries())
      entries.append(py::make_tuple(bytes_of(entry.key), bytes_of(entry.value)));
    return py::make_tuple(entries, bytes_of(page.token()));
  }
  void ping(const Seconds& timeout) {
    (void)call_apart(
        [time = timeout_of(timeout)](SharedClient& client) { return client.ping(time); });
  }
  std::uint64_t flush(const Seconds& timeout) {
    return value_or_raise(call_apart(
        [time = timeout_of(timeout)](SharedClient& client) { return client.flush(time); }));
  }
  std::string server_stats(const Seconds& timeout) {
    return value_or_raise(call_apart(
        [time = timeout_of(timeout)](SharedClient& client) { return client.server_stats(time); }));
  }
  std::uint64_t one_sided_gets() {
    return call([](SharedClient& client) { return client.stats().one_sided_gets; });
  }
  std::string describe() {
    return call([](SharedClient& client) { return client.describe(); });
  }

 private:
  std::optional<Value> find(py::handle key, const Seconds& timeout) {
    const Held name(key);
    auto got = call([&](SharedClient& client) {
      return client.get(name.text(), GetOptions{.timeout = timeout_of(timeout)});
    });
    if (!got && got.error().code == Code::kNotFound) return std::nullopt;
    return value_or_raise(std::move(got));
  }
  using Handle = c::Handle<SharedClient>;
  static std::shared_ptr<Handle> connect(const py::kwargs& given) {
    using Made = std::pair<Result<SharedClient>, std::string>;
    auto made = apart([options = options_of(given)] {
      std::string refusal;
      auto client = SharedClient::connect(options.client, options.connections, &refusal);
      return Made(std::move(client), std::move(refusal));
    });
    if (!made) throw py::error_already_set();
    if (!made->first) raise(made->first.error(), made->second);
    return std::make_shared<Handle>(std::move(*made->first));
  }
  template <class T>
  static T value_or_raise(Result<T> result) {
    if (!result) raise_said(result.error());
    return std::move(*result);
  }
  [[noreturn]] static void raise_said(const Error& error) {
    raise(error, said_with(error, SharedClient::last_refusal()));
  }
  // PY-1. `body` must not touch the interpreter, apart from throwing ValueError before it blocks.
  template <class Body>
  auto call(Body body) -> decltype(body(std::declval<SharedClient&>())) {
    auto result = [&] {
      const Released released;
      const Handle::Use use(*handle_);
      if (!use) throw py::value_error("the client is closed");
      const HandlesSignals handles;
      return body(*use);
    }();
    if (PyErr_Occurred() != nullptr) throw py::error_already_set();
    return result;
  }
  // Like call(), for a call that an Interruption does not concern. `body` owns all that it needs.
  template <class Body>
  auto call_apart(Body body) -> decltype(body(std::declval<SharedClient&>())) {
    using Ended = std::optional<
        std::pair<decltype(body(std::declval<SharedClient&>())), std::string /*the server's*/>>;
    auto ended = apart([handle = handle_, body = std::move(body)]() -> Ended {
      const Handle::Use use(*handle);
      if (!use) return std::nullopt;
      auto result = body(*use);
      return std::pair(std::move(result), std::string(SharedClient::last_refusal()));
    });
    if (!ended) throw py::error_already_set();
    if (!*ended) throw py::value_error("the client is closed");
    auto& [result, said] = **ended;
    if (!result) raise(result.error(), said_with(result.error(), said));
    return std::move(result);
  }
  static std::vector<Held> hold_all(const py::iterable& objects,
                                    Held::For what = Held::For::kReading) {
    check_many(objects);
    std::vector<Held> held;
    for (const py::handle object : objects)
      held.emplace_back(object, what);
    return held;
  }
  static std::vector<std::string_view> texts_of(const std::vector<Held>& held) {
    std::vector<std::string_view> texts;
    texts.reserve(held.size());
    for (const Held& each : held)
      texts.push_back(each.text());
    return texts;
  }

  const std::shared_ptr<Handle> handle_;  // calls that were interrupted may still use it
};

// pybind11's function cannot refuse.
getbufferproc bytes_of_own_process = nullptr;
int registered_bytes(PyObject* object, Py_buffer* view, int flags) {
  if (!py::cast<RegisteredBuffer&>(py::handle(object)).is_inherited())
    return bytes_of_own_process(object, view, flags);
  view->obj = nullptr;
  PyErr_SetString(PyExc_BufferError,
                  "this memory was registered before fork(): allocate() it here");
  return -1;
}

}  // namespace

void define_client(py::module_& module) {
  using py::arg;
  const auto kw = py::kw_only();
  const py::object none = py::none();
  // Operations hold it by its buffer protocol: it lives as long as READs may land in it.
  py::class_<RegisteredBuffer> memory(module, "RegisteredMemory", py::buffer_protocol());
  forbid_new(memory);
  memory
      .def_buffer([](RegisteredBuffer& of) {
        const std::span<std::byte> bytes = of.bytes();
        return py::buffer_info(reinterpret_cast<std::uint8_t*>(bytes.data()),
                               static_cast<py::ssize_t>(bytes.size()));
      })
      .def("__len__", [](const RegisteredBuffer& of) { return of.bytes().size(); });
  getbufferproc& getter = reinterpret_cast<PyTypeObject*>(memory.ptr())->tp_as_buffer->bf_getbuffer;
  bytes_of_own_process = std::exchange(getter, registered_bytes);
  py::class_<PyClient> client(module, "Client");
  forbid_new(client);
  module.def("connect", [](const py::kwargs& given) { return std::make_unique<PyClient>(given); });
  client.def("close", &PyClient::close)
      .def("get", &PyClient::get, arg("key"), arg("default") = none, kw, arg("timeout") = none)
      .def("get_with_version", &PyClient::get_with_version, arg("key"), kw, arg("timeout") = none)
      .def("get_into", &PyClient::get_into, arg("key"), arg("buffer"), kw, arg("timeout") = none)
      .def("allocate", &PyClient::allocate, arg("bytes"))
      .def("put", &PyClient::put, arg("key"), arg("value"), kw, arg("ttl") = none,
           arg("if_absent") = false, arg("if_version") = none, arg("durability") = none,
           arg("timeout") = none)
      .def("touch", &PyClient::touch, arg("key"), arg("ttl") = none, kw, arg("if_version") = none,
           arg("durability") = none, arg("timeout") = none)
      .def("delete", &PyClient::remove, arg("key"), kw, arg("if_version") = none,
           arg("durability") = none, arg("timeout") = none)
      .def("incr", &PyClient::incr, arg("key"), arg("by") = 1, kw, arg("durability") = none,
           arg("timeout") = none)
      .def("get_counter", &PyClient::get_counter, arg("key"), kw, arg("timeout") = none)
      .def("multi_get", &PyClient::multi_get, arg("keys"), kw, arg("timeout") = none)
      .def("multi_get_into", &PyClient::multi_get_into, arg("keys"), arg("buffers"), kw,
           arg("timeout") = none)
      .def("multi_put", &PyClient::multi_put, arg("items"), kw, arg("ttl") = none,
           arg("durability") = none, arg("timeout") = none)
      .def("scan_page", &PyClient::scan_page)
      .def("ping", &PyClient::ping, kw, arg("timeout") = none)
      .def("flush", &PyClient::flush, kw, arg("timeout") = none)
      .def("server_stats", &PyClient::server_stats, kw, arg("timeout") = none)
      .def_property_readonly("one_sided_gets", &PyClient::one_sided_gets)
      .def_property_readonly("transport", &PyClient::describe);
}

}  // namespace rkv::python
