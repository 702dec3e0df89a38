// The operations on keys that a Client and a Cluster share, and their options.
//
// The last argument of an operation is its options, or only its timeout:
//
//   client->get("name");
//   client->get("name", 100ms);
//   client->get("name", {.at_least = rkv::Durability::kSync, .timeout = 100ms});
//
// Errors, by code:
//  - kNotFound, kConflict, kWrongType, kOutOfRange are answers (is_answer()).
//  - kInvalidArgument, kTooLarge: the call itself is wrong.
//  - kBusy, kOutOfMemory: try again later. The client itself repeats kBusy until the deadline, and
//    kOutOfMemory only for GETs.
//  - kTimeout, kDisconnected, kUnreachable: the deadline passed while the client waited or
//    reconnected.
//  - kRejected, kUnauthenticated, kVersionMismatch, kPermission, kNoDevice, kUnsupported, kCorrupt:
//    a retry does not help.
//  - kIo: the server's disk failed.
//  - kStale: returned by flush() and backup() only.
// Error::write says whether a write may have taken effect. When a connection is lost, the client
// asks the server over the next one what has become of its writes, before their deadlines: each is
// carried out once and returns its first outcome. kMayHaveHappened: no answer came by the deadline,
// the server has restarted or forgotten the write, or its disk failed after it made the write. The
// client does not repeat such a write.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "rkv/durability.h"
#include "rkv/export.h"
#include "rkv/result.h"
#include "rkv/values.h"

namespace rkv {

// Longest wait for one operation; 0 = ClientOptions::timeout.
using Timeout = std::chrono::milliseconds;

struct PutOptions {
  // Time to live, from when the server takes the write. 0: the key does not expire. At most 200 ms
  // after that time no GET finds the key (server/MANUAL.md says when it takes longer).
  std::chrono::milliseconds ttl{0};
  // The same as an absolute time, in Unix milliseconds by the server's clock, as in Value. 0: not
  // set. A time in the past: the key expires as soon as it is stored. At most one of `ttl` and
  // `expires_at_ms` may be set.
  std::uint64_t expires_at_ms = 0;
  bool if_absent = false;                                  // else kConflict
  std::optional<std::uint64_t> if_version = std::nullopt;  // else kConflict, or kNotFound
  std::chrono::milliseconds timeout{0};                    // as Timeout
  Durability durability = Durability::kDefault;            // as in WriteOptions
  // Leaves the value and writes the time to live only, as touch() does. The value given is empty.
  bool keep_value = false;
};
struct GetOptions {
  // Minimum durability of the returned value. If the client does not know it yet, it READs the
  // server's mark line until the mark covers the value: mostly one READ. kTimeout: the deadline
  // passed first. After some milliseconds the client also sends a request; with kSync that is a
  // flush, so that the client does not wait for a timer of the server. The wait ignores later
  // writes of the key.
  // kUnsupported: the server has no disk. kNotFound says nothing about durability: a crash may lose
  // the removal that the GET saw.
  Durability at_least = Durability::kMemory;
  std::chrono::milliseconds timeout{0};  // as Timeout
};
struct WriteOptions {
  // Durability of the write when the call returns; kDefault: the default the server was started
  // with. kWal and kSync cost a write to the server's disk, shared with the other writes under way
  // at that time.
  // kUnsupported: the server has no disk, and nothing was written. kIo with kMayHaveHappened: the
  // server's disk failed after the write was made. The write is saved when the disk works again,
  // unless the server ends before.
  Durability durability = Durability::kDefault;
  std::chrono::milliseconds timeout{0};  // as Timeout
};
struct OpenOptions {
  bool create = true;                    // an absent counter is created with 0; false: kNotFound
  std::chrono::milliseconds timeout{0};  // as Timeout
};

// The options of an operation, or only its timeout: any type that converts to either.
template <class Given, class Options>
concept OptionsOrTimeout =
    std::convertible_to<const Given&, Options> || std::convertible_to<const Given&, Timeout>;

class Client;
class Cluster;

namespace client {

template <class Options, class Given>
decltype(auto) options_of(const Given& given) {
  if constexpr (std::same_as<Given, Options>) {
    return (given);  // no copy
  } else if constexpr (std::convertible_to<const Given&, Options>) {
    return Options(given);
  } else {
    return Options{.timeout = given};
  }
}

// Calls of a visitor whose type is erased.
using GetVisitor = void (*)(void* target, std::size_t index, const Result<ValueView>& result);
using PutVisitor = void (*)(void* target, std::size_t index, const Result<std::uint64_t>& version);

}  // namespace client

// `Store` is a Client, a Cluster or a SharedClient. Each has visit_all(), put_all() and add_all().
// The first two have on(key, timeout, call), which calls `call(engine)` with the engine of the
// key's server. What is declared here is defined for both in operations.cc, and for the third in
// shared_client.cc.
template <class Store>
class RKV_EXPORT Operations {
 public:
  using Timeout = rkv::Timeout;

  // ---- one key. Every call blocks until it is done or its deadline passes.

  // Reads a value. Costs one READ when the key's place is cached, else mostly two. kNotFound.
  template <OptionsOrTimeout<GetOptions> Given = GetOptions>
  Result<Value> get(std::string_view key, const Given& given = {}) {
    return get_value(key, client::options_of<GetOptions>(given));
  }
  // As get(), without allocation. kTooLarge: the value does not fit; nothing is copied, and
  // needed_bytes() is the value's length. kInvalidArgument: the key lies in `out`.
  template <OptionsOrTimeout<GetOptions> Given = GetOptions>
  Result<ValueSize> get_into(std::string_view key, std::span<std::byte> out,
                             const Given& given = {}) {
    return get_bytes(key, out, client::options_of<GetOptions>(given));
  }

  // Stores a value and returns its version. One round trip. A value longer than 128 KiB is first
  // copied into registered memory of the client, and the server READs it from there. While the
  // server is full the request is repeated until the deadline (kBusy).
  template <OptionsOrTimeout<WriteOptions> Given = WriteOptions>
  Result<std::uint64_t> put(std::string_view key, std::string_view value, const Given& given = {}) {
    const WriteOptions& options = client::options_of<WriteOptions>(given);
    return put_with(key, value, {.timeout = options.timeout, .durability = options.durability});
  }
  // Removes the key and returns the version of the deletion. kNotFound: the key did not exist.
  template <OptionsOrTimeout<WriteOptions> Given = WriteOptions>
  Result<std::uint64_t> remove(std::string_view key, const Given& given = {}) {
    return remove_version(key, std::nullopt, client::options_of<WriteOptions>(given));
  }

  // Sets the time to live of a key, counted from when the server takes the request. 0: the key does
  // not expire any more, so do not pass a remaining time that may be rounded to 0. The value stays
  // and is not sent; a counter stays a counter, and leaves its cell. One round trip, and a write
  // like any other: it returns the new version of the key. kNotFound. The server copies the value
  // if it has a disk or is in a group, or the key begins or ceases to expire.
  template <OptionsOrTimeout<WriteOptions> Given = WriteOptions>
  Result<std::uint64_t> touch(std::string_view key, std::chrono::milliseconds ttl,
                              const Given& given = {}) {
    const WriteOptions& options = client::options_of<WriteOptions>(given);
    return put_with(key, {},
                    {.ttl = ttl,
                     .timeout = options.timeout,
                     .durability = options.durability,
                     .keep_value = true});
  }

  // The same on a condition, which the server decides: one round trip. kConflict: the condition did
  // not hold, and nothing changed. The conflicting write may be less durable than `options` ask
  // for, and a crash may lose it; a GET with at_least shows its durability. After kMayHaveHappened
  // read the key: its version or absence shows the outcome, unless other clients
  // write the key too.
  Result<std::uint64_t> put_with(std::string_view key, std::string_view value,
                                 const PutOptions& options);
  // kConflict: the key exists.
  template <OptionsOrTimeout<WriteOptions> Given = WriteOptions>
  Result<std::uint64_t> put_if_absent(std::string_view key, std::string_view value,
                                      const Given& given = {}) {
    const WriteOptions& options = client::options_of<WriteOptions>(given);
    return put_with(
        key, value,
        {.if_absent = true, .timeout = options.timeout, .durability = options.durability});
  }
  // `version` comes from a GET or PUT. kNotFound: the key no longer exists.
  template <OptionsOrTimeout<WriteOptions> Given = WriteOptions>
  Result<std::uint64_t> put_if_version(std::string_view key, std::string_view value,
                                       std::uint64_t version, const Given& given = {}) {
    const WriteOptions& options = client::options_of<WriteOptions>(given);
    return put_with(
        key, value,
        {.if_version = version, .timeout = options.timeout, .durability = options.durability});
  }
  // As put_if_version().
  template <OptionsOrTimeout<WriteOptions> Given = WriteOptions>
  Result<std::uint64_t> remove_if_version(std::string_view key, std::uint64_t version,
                                          const Given& given = {}) {
    return remove_version(key, version, client::options_of<WriteOptions>(given));
  }

  // ---- counters: signed 64-bit numbers, kept like values. Changes are requests of one round trip
  // each; an answered change was done exactly once. kWrongType: the key holds a plain value. A put
  // on a counter fails with kWrongType too: remove the counter first.

  // Adds `by`. An absent key counts from 0. kOutOfRange: the sum would pass the limits; nothing
  // changed.
  template <OptionsOrTimeout<WriteOptions> Given = WriteOptions>
  Result<Counter> incr(std::string_view key, std::int64_t by = 1, const Given& given = {}) {
    return add(key, by, client::options_of<WriteOptions>(given));
  }
  // Subtracts `by`; otherwise as incr().
  template <OptionsOrTimeout<WriteOptions> Given = WriteOptions>
  Result<Counter> decr(std::string_view key, std::int64_t by = 1, const Given& given = {}) {
    if (by == kNoNegative) return no_negative();
    return incr(key, -by, given);
  }
  // Sets the number to `desired` if it is `expected`. kNotFound.
  template <OptionsOrTimeout<WriteOptions> Given = WriteOptions>
  Result<CounterSwap> counter_cas(std::string_view key, std::int64_t expected, std::int64_t desired,
                                  const Given& given = {}) {
    return swap(key, expected, desired, client::options_of<WriteOptions>(given));
  }
  // One-sided, as get().
  Result<Counter> get_counter(std::string_view key, Timeout timeout = {});

  // ---- one-sided counters: one atomic and one round trip for each operation.

  // Finds the counter's cell with one request. A counter that does not exist is created with 0,
  // unless OpenOptions::create is off: kNotFound. kWrongType: as above. If the connection is lost
  // during the request, the client looks for the counter over the next connection.
  // kMayHaveHappened: the counter is not there; it may have been created and removed since. A
  // counter is created in memory, whatever durability the server's default is: flush() makes it
  // durable.
  template <OptionsOrTimeout<OpenOptions> Given = OpenOptions>
  Result<OneSidedCounter> open_counter(std::string_view key, const Given& given = {}) {
    return open(key, client::options_of<OpenOptions>(given));
  }
  // As incr() and decr() above. If the counter was removed or its server restarted, the client
  // first opens the counter again. incr and decr create a removed counter again, from 0. A summand
  // beyond +-2^32 goes by a request. So does a change with Durability::kWal or kSync, which has
  // that durability when the call returns.
  template <OptionsOrTimeout<WriteOptions> Given = WriteOptions>
  Result<Counter> incr(OneSidedCounter& counter, std::int64_t by = 1, const Given& given = {}) {
    return add(counter, by, client::options_of<WriteOptions>(given));
  }
  template <OptionsOrTimeout<WriteOptions> Given = WriteOptions>
  Result<Counter> decr(OneSidedCounter& counter, std::int64_t by = 1, const Given& given = {}) {
    if (by == kNoNegative) return no_negative();
    return incr(counter, -by, given);
  }
  // kNotFound: the counter was removed.
  template <OptionsOrTimeout<WriteOptions> Given = WriteOptions>
  Result<CounterSwap> counter_cas(OneSidedCounter& counter, std::int64_t expected,
                                  std::int64_t desired, const Given& given = {}) {
    return swap(counter, expected, desired, client::options_of<WriteOptions>(given));
  }
  Result<Counter> get_counter(OneSidedCounter& counter, Timeout timeout = {});
  // Pipelined additions. Results are those of incr(), in the order of the arguments. The additions
  // themselves have no order. A counter may be named more than once. Additions to counters without
  // cells share requests, up to 32 in each.
  std::vector<Result<Counter>> multi_incr(std::span<const CounterAddition> additions,
                                          Timeout timeout = {}) {
    std::vector<Result<Counter>> results(additions.size(), fail(Code::kInternal, nullptr));
    store().add_all(additions, timeout, results);
    return results;
  }

  // ---- many keys, pipelined. The timeout is that of the whole call. Results are in the order of
  // the arguments, each with its own status. The operations of one call have no order.

  // GetOptions::at_least holds for each value separately. Values that wait share the READs of the
  // mark line.
  template <OptionsOrTimeout<GetOptions> Given = GetOptions>
  std::vector<Result<Value>> multi_get(std::span<const std::string_view> keys,
                                       const Given& given = {}) {
    std::vector<Result<Value>> results(keys.size(), fail(Code::kInternal, nullptr));
    const auto copy = [&](std::size_t index, const Result<ValueView>& got) {
      if (got) {
        results[index] = try_to_value(*got);
      } else {
        results[index] = std::unexpected(got.error());
      }
    };
    multi_get_into(keys, copy, given);
    return results;
  }
  // Each item may have its own time to live (KeyValue).
  template <OptionsOrTimeout<WriteOptions> Given = WriteOptions>
  std::vector<Result<std::uint64_t>> multi_put(std::span<const KeyValue> items,
                                               const Given& given = {}) {
    std::vector<Result<std::uint64_t>> results(items.size(), fail(Code::kInternal, nullptr));
    const auto copy = [&](std::size_t index, const Result<std::uint64_t>& version) {
      results[index] = version;
    };
    multi_put_each(items, copy, given);
    return results;
  }
  // As multi_get(), without allocation. Calls visit(index, const Result<ValueView>&) once for each
  // key, in any order. The visitor must not use the client nor write to the keys, nor throw: the
  // program would end.
  template <class Visitor, OptionsOrTimeout<GetOptions> Given = GetOptions>
  void multi_get_into(std::span<const std::string_view> keys, Visitor&& visit,
                      const Given& given = {}) {
    using Target = std::remove_reference_t<Visitor>;
    store().visit_all(
        keys,
        [](void* target, std::size_t index, const Result<ValueView>& result) noexcept {
          (*static_cast<Target*>(target))(index, result);
        },
        const_cast<void*>(static_cast<const void*>(&visit)), client::options_of<GetOptions>(given));
  }
  // As multi_put(), without allocation. Calls visit(index, const Result<std::uint64_t>&) once for
  // each item when it is answered, in any order. The visitor must not use the client, nor throw.
  template <class Visitor, OptionsOrTimeout<WriteOptions> Given = WriteOptions>
  void multi_put_each(std::span<const KeyValue> items, Visitor&& visit, const Given& given = {}) {
    using Target = std::remove_reference_t<Visitor>;
    store().put_all(
        items,
        [](void* target, std::size_t index, const Result<std::uint64_t>& version) noexcept {
          (*static_cast<Target*>(target))(index, version);
        },
        const_cast<void*>(static_cast<const void*>(&visit)),
        client::options_of<WriteOptions>(given));
  }

 private:
  friend Store;
  static constexpr std::int64_t kNoNegative = std::numeric_limits<std::int64_t>::min();

  Operations() = default;
  Store& store() { return static_cast<Store&>(*this); }
  static std::unexpected<Error> no_negative() {
    return fail(Code::kOutOfRange,
                "-2^63 cannot be subtracted: its negative does not fit in 64 bits");
  }
  Result<Value> get_value(std::string_view key, const GetOptions& options);
  Result<ValueSize> get_bytes(std::string_view key, std::span<std::byte> out,
                              const GetOptions& options);
  // `version`: removes this version only.
  Result<std::uint64_t> remove_version(std::string_view key, std::optional<std::uint64_t> version,
                                       const WriteOptions& options);
  Result<Counter> add(std::string_view key, std::int64_t by, const WriteOptions& options);
  Result<Counter> add(OneSidedCounter& counter, std::int64_t by, const WriteOptions& options);
  Result<CounterSwap> swap(std::string_view key, std::int64_t expected, std::int64_t desired,
                           const WriteOptions& options);
  Result<CounterSwap> swap(OneSidedCounter& counter, std::int64_t expected, std::int64_t desired,
                           const WriteOptions& options);
  Result<OneSidedCounter> open(std::string_view key, const OpenOptions& options);
};

extern template class Operations<Client>;
extern template class Operations<Cluster>;

}  // namespace rkv
