// The client of C that any number of threads use.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/c/errors.h"
#include "client/c/handle.h"
#include "client/c/options.h"
#include "client/c/store.h"
#include "client/c/values.h"
#include "rkv/cluster.h"
#include "rkv/shared_client.h"

struct rkv_client : rkv::c::Handle<rkv::c::Store> {  // NOLINT(readability-identifier-naming)
  using Handle::Handle;
};

struct rkv_one_sided {  // NOLINT(readability-identifier-naming)
  rkv::OneSidedCounter counter;
};

struct rkv_buffer {  // NOLINT(readability-identifier-naming)
  rkv::RegisteredBuffer memory;
};

namespace rkv::c {
namespace {

// Calls `body(store)`, which returns a status, unless the client is closed.
template <class Body>
rkv_status with(rkv_client* client, rkv_error* error, Body body) noexcept {
  return guarded(error, [&] {
    if (client == nullptr) return no_client(error);
    const rkv_client::Use use(*client);
    return use ? body(*use) : closed(error);
  });
}

// Returns the status. If the operation has failed, adds the server's message to the error.
template <class One>
rkv_status said(const One& one, rkv_status status, rkv_error* error) {
  if (status != RKV_OK) add_refusal(one.last_refusal(), error);
  return status;
}

// Calls `body(SharedClient& or Cluster&, timeout)` in the same way.
template <class Body>
rkv_status with_timeout(rkv_client* client, uint32_t timeout_ms, rkv_error* error,
                        Body body) noexcept {
  return with(client, error, [&](Store& store) {
    return store.call(std::chrono::milliseconds(timeout_ms), error,
                      [&](auto& one, Timeout left) { return said(one, body(one, left), error); });
  });
}

rkv_status status_of(const Result<std::uint64_t>& result, std::uint64_t* version,
                     rkv_error* error) {
  if (!result) return report(result.error(), error);
  if (version != nullptr) *version = *result;
  return RKV_OK;
}

rkv_status number_of(const Result<Counter>& result, std::int64_t* number, rkv_error* error) {
  if (!result) return report(result.error(), error);
  if (number != nullptr) *number = result->number;
  return RKV_OK;
}

rkv_status swapped_of(const Result<CounterSwap>& swap, int* done, std::int64_t* number,
                      rkv_error* error) {
  if (!swap) return report(swap.error(), error);
  if (done != nullptr) *done = swap->done ? 1 : 0;
  if (number != nullptr) *number = swap->number;
  return RKV_OK;
}

// Calls `body(SharedClient& or Cluster&, options)`.
template <class Given, class Options, class Body>
rkv_status on_options(rkv_client* client, rkv_status (*read)(const Given*, Options&, rkv_error*),
                      const Given* given, rkv_error* error, Body body) noexcept {
  return with(client, error, [&](Store& store) {
    Options options;
    if (const rkv_status wrong_options = read(given, options, error); wrong_options != RKV_OK)
      return wrong_options;
    return store.call(timeout_of(options), error, [&](auto& one, Timeout left) {
      timeout_of(options) = left;
      return said(one, body(one, options), error);
    });
  });
}

// Calls `body(SharedClient& or Cluster&, text of the key, options)`.
template <class Given, class Options, class Body>
rkv_status on_key(rkv_client* client, const void* key, std::size_t key_size,
                  rkv_status (*read)(const Given*, Options&, rkv_error*), const Given* given,
                  rkv_error* error, Body body) noexcept {
  const auto text = text_of(key, key_size);
  if (client != nullptr && !text) return no_bytes(error);
  return on_options(client, read, given, error,
                    [&](auto& one, Options& options) { return body(one, *text, options); });
}

// The error of a call with many keys: the first failure, and whether any failed write may have
// happened.
class FirstFailure {
 public:
  explicit FirstFailure(rkv_error* error) : error_(error) {
    if (error != nullptr) *error = {};
  }
  template <class T>
  static bool is_open(const Result<T>& result) {
    return !result && result.error().write == WriteOutcome::kMayHaveHappened;
  }
  template <class T>
  rkv_status note(const Result<T>& result) {
    if (result) return RKV_OK;
    const Error& failed = result.error();
    if (error_ != nullptr && failed.code != Code::kNotFound) {
      const bool was_open = error_->may_have_happened != 0;
      if (error_->code == RKV_OK) report(failed, error_);
      if (was_open || is_open(result)) error_->may_have_happened = 1;
    }
    return static_cast<rkv_status>(failed.code);
  }

 private:
  rkv_error* error_;
};

// ---- what each of several servers is asked

rkv_status report_server(const Cluster& cluster, std::size_t index, const Error& given,
                         rkv_error* error) {
  const rkv_status code = report(given, error);
  if (error == nullptr) return code;
  const rkv_error plain = *error;
  report(code, cluster.map().servers()[index].address + ": " + to_string(given), error);
  error->may_have_happened = plain.may_have_happened;
  error->sys_errno = plain.sys_errno;
  return code;
}

// RKV_OK if each is: of the results of a Cluster, one for each server.
template <class Results>
rkv_status all_of(const Cluster& cluster, const Results& results, rkv_error* error) {
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i]) return report_server(cluster, i, results[i].error(), error);
  }
  return RKV_OK;
}

rkv_status ping_all(SharedClient& client, Timeout timeout, rkv_error* error) {
  const Status pinged = client.ping(timeout);
  return pinged ? rkv_status{RKV_OK} : report(pinged.error(), error);
}
rkv_status ping_all(Cluster& cluster, Timeout timeout, rkv_error* error) {
  return all_of(cluster, cluster.ping(timeout), error);
}

rkv_status flush_all(SharedClient& client, Timeout timeout, rkv_error* error) {
  return status_of(client.flush(timeout), nullptr, error);
}
rkv_status flush_all(Cluster& cluster, Timeout timeout, rkv_error* error) {
  return all_of(cluster, cluster.flush(timeout), error);
}

rkv_status stats_of_all(SharedClient& client, Timeout timeout, std::string& json,
                        rkv_error* error) {
  auto text = client.server_stats(timeout);
  if (!text) return report(text.error(), error);
  json = std::move(*text);
  return RKV_OK;
}
// Addresses hold nothing that JSON would escape (ShardMap).
rkv_status stats_of_all(Cluster& cluster, Timeout timeout, std::string& json, rkv_error* error) {
  const auto texts = cluster.server_stats(timeout);
  if (const rkv_status status = all_of(cluster, texts, error); status != RKV_OK) return status;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    json += (i == 0 ? "{\"" : ",\"") + cluster.map().servers()[i].address + "\":" + *texts[i];
  }
  json += "}";
  return RKV_OK;
}

Result<RegisteredBuffer> buffer_of(SharedClient& client, std::size_t bytes) {
  return client.allocate_buffer(bytes);
}
Result<RegisteredBuffer> buffer_of(Cluster&, std::size_t) {
  return fail(Code::kUnsupported, "a client of several servers has no registered buffers");
}

rkv_status connect_to_one(const rkv_options& given, rkv_client** client, rkv_error* error) {
  std::string refusal;
  auto made = SharedClient::connect(given.client, given.connections, &refusal);
  if (!made) return report_refused(made.error(), refusal, error);
  *client = new rkv_client(Store(std::move(*made)));
  return RKV_OK;
}

rkv_status connect_to_several(const rkv_options& given, rkv_client** client, rkv_error* error) {
  if (given.connections != 1)
    return wrong(
        "a client of several servers has one connection to each: not the option "
        "connections",
        error);
  std::string problem;
  auto made = Cluster::connect(*given.servers, given.client, &problem);
  if (!made) return report_refused(made.error(), problem, error);
  *client = new rkv_client(Store(std::move(*made), given.client.timeout));
  return RKV_OK;
}

}  // namespace
}  // namespace rkv::c

using rkv::c::buffer_of;
using rkv::c::closed;
using rkv::c::connect_to_one;
using rkv::c::connect_to_several;
using rkv::c::copy_options;
using rkv::c::delete_options;
using rkv::c::DeleteOptions;
using rkv::c::FirstFailure;
using rkv::c::flush_all;
using rkv::c::get_options;
using rkv::c::guarded;
using rkv::c::no_bytes;
using rkv::c::no_client;
using rkv::c::no_counter;
using rkv::c::number_of;
using rkv::c::on_key;
using rkv::c::on_options;
using rkv::c::ping_all;
using rkv::c::plain_options;
using rkv::c::report;
using rkv::c::stats_of_all;
using rkv::c::status_of;
using rkv::c::swapped_of;
using rkv::c::text_of;
using rkv::c::texts_of;
using rkv::c::timeout_option;
using rkv::c::with_timeout;
using rkv::c::write_options;
using rkv::c::wrong;
using rkv::c::wrong_size;

extern "C" {

rkv_status rkv_connect(const rkv_options* options, rkv_client** client, rkv_error* error) {
  return guarded(error, [&] {
    if (client == nullptr) return wrong("the place for the client must not be NULL", error);
    const rkv_options defaults;
    const rkv_options& given = options == nullptr ? defaults : *options;
    return given.servers ? connect_to_several(given, client, error)
                         : connect_to_one(given, client, error);
  });
}

rkv_status rkv_close(rkv_client* client, rkv_error* error) {
  return guarded(error, [&] {
    if (client == nullptr) return no_client(error);
    return client->close() ? rkv_status{RKV_OK} : closed(error);
  });
}

void rkv_free(rkv_client* client) {
  if (client == nullptr) return;
  client->close();
  delete client;
}

const char* rkv_describe(rkv_client* client) {
  if (client == nullptr) return nullptr;
  const rkv_client::Use use(*client);
  return use ? use->describe().c_str() : nullptr;
}

rkv_status rkv_get(rkv_client* client, const void* key, size_t key_size,
                   const rkv_get_options* options, rkv_value** value, rkv_error* error) {
  if (value == nullptr) return wrong("the place for the value must not be NULL", error);
  return on_key(client, key, key_size, get_options, options, error,
                [&](auto& store, std::string_view name, rkv::GetOptions& get) {
                  auto got = store.get(name, get);
                  if (!got) return report(got.error(), error);
                  *value = new rkv_value{std::move(*got)};
                  return rkv_status{RKV_OK};
                });
}

rkv_status rkv_get_into(rkv_client* client, const void* key, size_t key_size, void* buffer,
                        size_t capacity, const rkv_get_options* options, size_t* size,
                        uint64_t* version, rkv_error* error) {
  if (buffer == nullptr && capacity != 0)
    return wrong("a buffer of a capacity above 0 must not be NULL", error);
  return on_key(client, key, key_size, get_options, options, error,
                [&](auto& store, std::string_view name, rkv::GetOptions& get) {
                  const auto got =
                      store.get_into(name, {static_cast<std::byte*>(buffer), capacity}, get);
                  if (!got) {
                    const std::size_t needed = store.needed_bytes();
                    if (size != nullptr && needed > capacity) *size = needed;
                    return report(got.error(), error);
                  }
                  if (size != nullptr) *size = got->bytes;
                  if (version != nullptr) *version = got->version;
                  return rkv_status{RKV_OK};
                });
}

rkv_status rkv_buffer_new(rkv_client* client, size_t bytes, rkv_buffer** buffer, rkv_error* error) {
  if (buffer == nullptr) return wrong("the place for the buffer must not be NULL", error);
  return with_timeout(client, 0, error, [&](auto& store, rkv::Timeout) {
    auto allocated = buffer_of(store, bytes);
    if (!allocated) return report(allocated.error(), error);
    *buffer = new rkv_buffer{std::move(*allocated)};
    return rkv_status{RKV_OK};
  });
}

void* rkv_buffer_data(rkv_buffer* buffer) {
  return buffer == nullptr ? nullptr : buffer->memory.bytes().data();
}

size_t rkv_buffer_size(const rkv_buffer* buffer) {
  return buffer == nullptr ? 0 : buffer->memory.bytes().size();
}

void rkv_buffer_free(rkv_buffer* buffer) {
  delete buffer;
}

rkv_status rkv_put(rkv_client* client, const void* key, size_t key_size, const void* value,
                   size_t value_size, const rkv_write_options* options, uint64_t* version,
                   rkv_error* error) {
  const auto text = text_of(value, value_size);
  if (!text) return no_bytes(error);
  return on_key(client, key, key_size, write_options, options, error,
                [&](auto& store, std::string_view name, rkv::PutOptions& put) {
                  return status_of(store.put_with(name, *text, put), version, error);
                });
}

rkv_status rkv_touch(rkv_client* client, const void* key, size_t key_size,
                     const rkv_write_options* options, uint64_t* version, rkv_error* error) {
  return on_key(client, key, key_size, write_options, options, error,
                [&](auto& store, std::string_view name, rkv::PutOptions& put) {
                  put.keep_value = true;
                  return status_of(store.put_with(name, {}, put), version, error);
                });
}

rkv_status rkv_delete(rkv_client* client, const void* key, size_t key_size,
                      const rkv_write_options* options, uint64_t* version, rkv_error* error) {
  return on_key(client, key, key_size, delete_options, options, error,
                [&](auto& store, std::string_view name, DeleteOptions& given) {
                  return status_of(given.if_version ? store.remove_if_version(
                                                          name, *given.if_version, given.write)
                                                    : store.remove(name, given.write),
                                   version, error);
                });
}

rkv_status rkv_incr(rkv_client* client, const void* key, size_t key_size, int64_t by,
                    const rkv_write_options* options, int64_t* number, rkv_error* error) {
  return on_key(client, key, key_size, plain_options, options, error,
                [&](auto& store, std::string_view name, rkv::WriteOptions& write) {
                  return number_of(store.incr(name, by, write), number, error);
                });
}

rkv_status rkv_counter_cas(rkv_client* client, const void* key, size_t key_size, int64_t expected,
                           int64_t desired, const rkv_write_options* options, int* done,
                           int64_t* number, rkv_error* error) {
  return on_key(client, key, key_size, plain_options, options, error,
                [&](auto& store, std::string_view name, rkv::WriteOptions& write) {
                  return swapped_of(store.counter_cas(name, expected, desired, write), done, number,
                                    error);
                });
}

rkv_status rkv_get_counter(rkv_client* client, const void* key, size_t key_size,
                           const rkv_get_options* options, int64_t* number, rkv_error* error) {
  return on_key(client, key, key_size, timeout_option, options, error,
                [&](auto& store, std::string_view name, rkv::Timeout& timeout) {
                  return number_of(store.get_counter(name, timeout), number, error);
                });
}

// --------------------------------------------------------------------------- one-sided counters

rkv_status rkv_one_sided_open(rkv_client* client, const void* key, size_t key_size, int create,
                              uint32_t timeout_ms, rkv_one_sided** counter, rkv_error* error) {
  if (counter == nullptr) return wrong("the place for the counter must not be NULL", error);
  const auto name = text_of(key, key_size);
  if (!name) return no_bytes(error);
  return with_timeout(client, timeout_ms, error, [&](auto& store, rkv::Timeout timeout) {
    auto opened =
        store.open_counter(*name, rkv::OpenOptions{.create = create != 0, .timeout = timeout});
    if (!opened) return report(opened.error(), error);
    *counter = new rkv_one_sided{std::move(*opened)};
    return rkv_status{RKV_OK};
  });
}

void rkv_one_sided_free(rkv_one_sided* counter) {
  delete counter;
}

int rkv_one_sided_has_cell(const rkv_one_sided* counter) {
  return counter != nullptr && counter->counter.is_one_sided() ? 1 : 0;
}

rkv_status rkv_one_sided_incr(rkv_client* client, rkv_one_sided* counter, int64_t by,
                              const rkv_write_options* options, int64_t* number, rkv_error* error) {
  if (counter == nullptr) return no_counter(error);
  return on_options(client, plain_options, options, error,
                    [&](auto& store, rkv::WriteOptions& write) {
                      return number_of(store.incr(counter->counter, by, write), number, error);
                    });
}

rkv_status rkv_one_sided_cas(rkv_client* client, rkv_one_sided* counter, int64_t expected,
                             int64_t desired, const rkv_write_options* options, int* done,
                             int64_t* number, rkv_error* error) {
  if (counter == nullptr) return no_counter(error);
  return on_options(
      client, plain_options, options, error, [&](auto& store, rkv::WriteOptions& write) {
        return swapped_of(store.counter_cas(counter->counter, expected, desired, write), done,
                          number, error);
      });
}

rkv_status rkv_one_sided_get(rkv_client* client, rkv_one_sided* counter, uint32_t timeout_ms,
                             int64_t* number, rkv_error* error) {
  if (counter == nullptr) return no_counter(error);
  return with_timeout(client, timeout_ms, error, [&](auto& store, rkv::Timeout timeout) {
    return number_of(store.get_counter(counter->counter, timeout), number, error);
  });
}

// ----------------------------------------------------------------------------------- many keys

rkv_status rkv_multi_get(rkv_client* client, const rkv_slice* keys, size_t count,
                         const rkv_get_options* options, rkv_value** values, rkv_status* statuses,
                         rkv_error* error) {
  return on_options(client, get_options, options, error, [&](auto& store, rkv::GetOptions& get) {
    if (count != 0 && (keys == nullptr || values == nullptr || statuses == nullptr))
      return wrong("keys, values and statuses must not be NULL", error);
    std::vector<std::string_view> names;
    if (!texts_of(keys, count, names)) {
      return no_bytes(error);
    }
    auto all = store.multi_get(names, get);
    std::vector<std::unique_ptr<rkv_value>> made(count);
    for (std::size_t i = 0; i < count; ++i) {
      if (all[i]) made[i] = std::make_unique<rkv_value>(std::move(*all[i]));
    }
    FirstFailure failure(error);
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = made[i].release();
      statuses[i] = failure.note(all[i]);
    }
    return rkv_status{RKV_OK};
  });
}

rkv_status rkv_multi_put(rkv_client* client, const rkv_slice* keys, const rkv_slice* values,
                         size_t count, const rkv_write_options* options, uint64_t* versions,
                         rkv_status* statuses, rkv_error* error) {
  return rkv_multi_put_each(client, keys, values, count, options, versions, statuses, nullptr,
                            error);
}

rkv_status rkv_multi_put_each(rkv_client* client, const rkv_slice* keys, const rkv_slice* values,
                              size_t count, const rkv_write_options* options, uint64_t* versions,
                              rkv_status* statuses, unsigned char* may_have_happened,
                              rkv_error* error) {
  return on_options(client, write_options, options, error, [&](auto& store, rkv::PutOptions& put) {
    if (count != 0 && (keys == nullptr || values == nullptr || statuses == nullptr))
      return wrong("keys, values and statuses must not be NULL", error);
    if (put.if_absent || put.if_version) return wrong("many puts have no conditions", error);
    std::vector<std::string_view> names;
    std::vector<std::string_view> texts;
    if (!texts_of(keys, count, names) || !texts_of(values, count, texts)) return no_bytes(error);
    std::vector<rkv::KeyValue> items;
    items.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      items.push_back(
          {.key = names[i], .value = texts[i], .expires_at_ms = put.expires_at_ms, .ttl = put.ttl});
    }
    const auto all = store.multi_put(
        items, rkv::WriteOptions{.durability = put.durability, .timeout = put.timeout});
    FirstFailure failure(error);
    for (std::size_t i = 0; i < count; ++i) {
      statuses[i] = failure.note(all[i]);
      if (all[i] && versions != nullptr) versions[i] = *all[i];
      if (may_have_happened != nullptr)
        may_have_happened[i] = FirstFailure::is_open(all[i]) ? 1 : 0;
    }
    return rkv_status{RKV_OK};
  });
}

rkv_status rkv_scan(rkv_client* client, const rkv_scan_options* options, rkv_page** page,
                    rkv_error* error) {
  if (page == nullptr) return wrong("the place for the page must not be NULL", error);
  rkv_scan_options own;
  if (!copy_options(options, own)) return wrong_size(error);
  return with_timeout(client, own.timeout_ms, error, [&](auto& store, rkv::Timeout timeout) {
    const auto prefix = text_of(own.prefix.data, own.prefix.size);
    const auto start = text_of(own.start.data, own.start.size);
    const auto end = text_of(own.end.data, own.end.size);
    const auto token = text_of(own.token.data, own.token.size);
    if (!prefix || !start || !end || !token) return no_bytes(error);
    auto read = store.scan({.prefix = *prefix,
                            .start = *start,
                            .end = *end,
                            .reverse = own.reverse != 0,
                            .keys_only = own.keys_only != 0,
                            .limit = own.limit,
                            .token = *token,
                            .timeout = timeout});
    if (!read) return report(read.error(), error);
    *page = new rkv_page{std::move(*read)};
    return rkv_status{RKV_OK};
  });
}

// ---------------------------------------------------------------------------------- the server

rkv_status rkv_ping(rkv_client* client, uint32_t timeout_ms, rkv_error* error) {
  return with_timeout(client, timeout_ms, error, [&](auto& store, rkv::Timeout timeout) {
    return ping_all(store, timeout, error);
  });
}

rkv_status rkv_flush(rkv_client* client, uint32_t timeout_ms, rkv_error* error) {
  return with_timeout(client, timeout_ms, error, [&](auto& store, rkv::Timeout timeout) {
    return flush_all(store, timeout, error);
  });
}

rkv_status rkv_server_stats(rkv_client* client, uint32_t timeout_ms, rkv_value** json,
                            rkv_error* error) {
  if (json == nullptr) return wrong("the place for the value must not be NULL", error);
  return with_timeout(client, timeout_ms, error, [&](auto& store, rkv::Timeout timeout) {
    std::string text;
    const rkv_status status = stats_of_all(store, timeout, text, error);
    if (status == RKV_OK) *json = new rkv_value{{.value = std::move(text)}};
    return status;
  });
}

}  // extern "C"
