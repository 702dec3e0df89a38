// The asynchronous client of C.
#include <chrono>
#include <exception>
#include <memory>
#include <new>
#include <stop_token>
#include <string>
#include <utility>

#include "client/c/errors.h"
#include "client/c/handle.h"
#include "client/c/options.h"
#include "client/c/values.h"
#include "rkv/async_client.h"

struct rkv_async : rkv::c::Handle<rkv::AsyncClient> {  // NOLINT(readability-identifier-naming)
  using Handle::Handle;
};
struct rkv_stop {  // NOLINT(readability-identifier-naming)
  std::stop_source source;
};

namespace rkv::c {
namespace {

// The callback for the end of an operation. It consists of two pointers, so nothing is allocated
// for it.
struct Told {
  rkv_callback callback;
  void* context;

  template <class Fill, class T>
  void tell(const Result<T>& result, Fill fill) const {
    rkv_error error;
    rkv_result told{};
    if (result) {
      fill(told, *result);
    } else {
      told.status = report(result.error(), &error);
      add_refusal(AsyncClient::last_refusal(), &error);
      told.error = &error;
    }
    callback(context, &told);
  }
};

template <class Body>
rkv_status submit(rkv_async* client, const void* key, std::size_t key_size, const void* value,
                  std::size_t value_size, rkv_callback callback, rkv_error* error,
                  Body body) noexcept {
  return guarded(error, [&] {
    if (client == nullptr) return no_client(error);
    if (callback == nullptr) return wrong("the callback must not be NULL", error);
    const auto name = text_of(key, key_size);
    const auto text = text_of(value, value_size);
    if (!name || !text) return no_bytes(error);
    const rkv_async::Use use(*client);
    if (!use) return closed(error);
    return body(*use, *name, *text);
  });
}

std::stop_token token_of(rkv_stop* stop) {
  return stop == nullptr ? std::stop_token() : stop->source.get_token();
}

// RKV_INVALID_ARGUMENT: a callback that rkv_async_close() calls submits.
rkv_status submit_write(Call<std::uint64_t> call, rkv_stop* stop, Told told, rkv_error* error) {
  const bool begun =
      std::move(call).until(token_of(stop)).then([told](const Result<std::uint64_t>& version) {
        told.tell(version,
                  [](rkv_result& result, std::uint64_t number) { result.version = number; });
      });
  return begun ? rkv_status{RKV_OK} : closed(error);
}

// Ends what is in flight. RKV_INVALID_ARGUMENT: in a callback of the client.
rkv_status close_async(rkv_async& client, rkv_error* error) {
  {
    const rkv_async::Use use(client);
    if (!use) return closed(error);
    if (const Status ended = use->close(); !ended) return report(ended.error(), error);
  }
  return client.close() ? rkv_status{RKV_OK} : closed(error);
}

}  // namespace
}  // namespace rkv::c

using rkv::c::close_async;
using rkv::c::closed;
using rkv::c::delete_options;
using rkv::c::DeleteOptions;
using rkv::c::get_options;
using rkv::c::guarded;
using rkv::c::no_bytes;
using rkv::c::no_client;
using rkv::c::plain_options;
using rkv::c::report;
using rkv::c::report_refused;
using rkv::c::slice_of;
using rkv::c::submit;
using rkv::c::submit_write;
using rkv::c::token_of;
using rkv::c::Told;
using rkv::c::write_options;
using rkv::c::wrong;

extern "C" {

rkv_stop* rkv_stop_new(void) {
  try {
    return new rkv_stop;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void rkv_stop_request(rkv_stop* stop) {
  if (stop != nullptr) stop->source.request_stop();
}
void rkv_stop_free(rkv_stop* stop) {
  delete stop;
}

rkv_status rkv_async_connect(const rkv_options* options, rkv_async** client, rkv_error* error) {
  return guarded(error, [&] {
    if (client == nullptr) return wrong("the place for the client must not be NULL", error);
    if (options != nullptr && options->servers)
      return wrong("an asynchronous client has one server: set the option server", error);
    std::string refusal;
    auto made = rkv::AsyncClient::connect(
        options == nullptr ? rkv::ClientOptions() : options->client, &refusal);
    if (!made) return report_refused(made.error(), refusal, error);
    *client = new rkv_async(std::move(*made));
    return rkv_status{RKV_OK};
  });
}

rkv_status rkv_async_close(rkv_async* client, rkv_error* error) {
  return guarded(
      error, [&] { return client == nullptr ? no_client(error) : close_async(*client, error); });
}

void rkv_async_free(rkv_async* client) {
  if (client == nullptr) return;
  rkv_async_close(client, nullptr);
  delete client;
}

rkv_status rkv_async_get(rkv_async* client, const void* key, size_t key_size,
                         const rkv_get_options* options, rkv_stop* stop, rkv_callback callback,
                         void* context, rkv_error* error) {
  return submit(
      client, key, key_size, nullptr, 0, callback, error,
      [&](rkv::AsyncClient& async, std::string_view name, std::string_view /*value*/) {
        rkv::GetOptions get;
        if (const rkv_status given = get_options(options, get, error); given != RKV_OK)
          return given;
        const bool begun =
            async.get(name, get)
                .until(token_of(stop))
                .then([told = Told{callback, context}](const rkv::Result<rkv::ValueView>& got) {
                  told.tell(got, [](rkv_result& result, const rkv::ValueView& value) {
                    result.value = slice_of(value.value);
                    result.version = value.version;
                  });
                });
        return begun ? rkv_status{RKV_OK} : closed(error);
      });
}

rkv_status rkv_async_put(rkv_async* client, const void* key, size_t key_size, const void* value,
                         size_t value_size, const rkv_write_options* options, rkv_stop* stop,
                         rkv_callback callback, void* context, rkv_error* error) {
  return submit(client, key, key_size, value, value_size, callback, error,
                [&](rkv::AsyncClient& async, std::string_view name, std::string_view text) {
                  rkv::PutOptions put;
                  if (const rkv_status given = write_options(options, put, error); given != RKV_OK)
                    return given;
                  return submit_write(async.put_with(name, text, put), stop, {callback, context},
                                      error);
                });
}

rkv_status rkv_async_delete(rkv_async* client, const void* key, size_t key_size,
                            const rkv_write_options* options, rkv_stop* stop, rkv_callback callback,
                            void* context, rkv_error* error) {
  return submit(client, key, key_size, nullptr, 0, callback, error,
                [&](rkv::AsyncClient& async, std::string_view name, std::string_view /*value*/) {
                  DeleteOptions own;
                  if (const rkv_status given = delete_options(options, own, error); given != RKV_OK)
                    return given;
                  auto call = own.if_version
                                  ? async.remove_if_version(name, *own.if_version, own.write)
                                  : async.remove(name, own.write);
                  return submit_write(std::move(call), stop, {callback, context}, error);
                });
}

rkv_status rkv_async_incr(rkv_async* client, const void* key, size_t key_size, int64_t by,
                          const rkv_write_options* options, rkv_stop* stop, rkv_callback callback,
                          void* context, rkv_error* error) {
  return submit(
      client, key, key_size, nullptr, 0, callback, error,
      [&](rkv::AsyncClient& async, std::string_view name, std::string_view /*value*/) {
        rkv::WriteOptions write;
        if (const rkv_status given = plain_options(options, write, error); given != RKV_OK)
          return given;
        const bool begun =
            async.incr(name, by, write)
                .until(token_of(stop))
                .then([told = Told{callback, context}](const rkv::Result<rkv::Counter>& counter) {
                  told.tell(counter, [](rkv_result& result, const rkv::Counter& sum) {
                    result.version = sum.version;
                    result.number = sum.number;
                  });
                });
        return begun ? rkv_status{RKV_OK} : closed(error);
      });
}

size_t rkv_async_poll(rkv_async* client) {
  if (client == nullptr) return 0;
  try {
    const rkv_async::Use use(*client);
    return use ? use->poll() : 0;
  } catch (const std::exception&) {  // no thread could be started
    return 0;
  }
}
int rkv_async_arm(rkv_async* client) {
  if (client == nullptr) return 0;
  const rkv_async::Use use(*client);
  return use && use->arm() ? 1 : 0;
}
int rkv_async_descriptor(rkv_async* client) {
  if (client == nullptr) return -1;
  const rkv_async::Use use(*client);
  return use ? use->descriptor() : -1;
}
size_t rkv_async_in_flight(rkv_async* client) {
  if (client == nullptr) return 0;
  const rkv_async::Use use(*client);
  return use ? use->in_flight() : 0;
}
rkv_status rkv_async_wait(rkv_async* client, uint32_t timeout_ms, size_t* ended, rkv_error* error) {
  return guarded(error, [&] {
    if (client == nullptr) return no_client(error);
    const rkv_async::Use use(*client);
    if (!use) return closed(error);
    const auto waited = use->wait(std::chrono::milliseconds(timeout_ms));
    if (!waited) return report(waited.error(), error);
    if (ended != nullptr) *ended = *waited;
    return rkv_status{RKV_OK};
  });
}

}  // extern "C"
