// rkv::Client: a connection to a kvserver.
//
// GETs are one-sided: the client READs the server's memory and verifies the bytes itself. The
// server's processor takes no part. Writes are requests. The client reconnects by itself after a
// lost connection. Every operation is bounded by its deadline.
//
//   auto client = rkv::Client::connect({.server = "10.0.0.1:7471"});
//   if (!client) return complain(to_string(client.error()));
//   if (auto put = client->put("name", "value"); !put) ...
//   if (auto got = client->get("name")) use(got->value);
//
// Threads: one thread at a time uses a Client. For more threads, open more clients; they share
// nothing. A client may be moved, between threads too.
// Fork: a child must not use, destroy or exit() through a client of its parent; exec or _exit only.
// Memory: connect() allocates everything, apart from results returned by value and registered
// memory for large values (ClientOptions::large_bytes). The latter is allocated when it is first
// needed.
// Values: values up to 128 KiB travel in requests. Longer values (up to 16 MiB) travel by READs of
// registered memory: the client's own, or a RegisteredBuffer without a copy.
//
// Errors, by code:
//  - kNotFound, kConflict, kWrongType, kOutOfRange are answers (is_answer()).
//  - kInvalidArgument, kTooLarge: the call itself is wrong.
//  - kBusy, kOutOfMemory: try again later. The client itself repeats kBusy until the deadline, and
//    kOutOfMemory only for GETs.
//  - kTimeout, kDisconnected, kUnreachable: the deadline passed while the client waited or
//    reconnected.
//  - kRejected, kVersionMismatch, kPermission, kNoDevice, kUnsupported, kCorrupt: a retry does not
//    help.
//  - kIo: the server's disk failed.
//  - kStale: returned by flush() and backup() only.
// Error::write says whether a write may have taken effect. kMayHaveHappened: the request was sent
// and no answer came, or the disk failed after the server made the write. The client never repeats
// a write with that outcome; it does repeat GETs.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "rkv/durability.h"
#include "rkv/export.h"
#include "rkv/limits.h"
#include "rkv/options.h"
#include "rkv/result.h"
#include "rkv/scan.h"

namespace rkv {

class Clock;
namespace rdma {
class Transport;
class Region;
}  // namespace rdma
namespace client {
class Engine;
}

// Returns true if the error is an answer and not a failure of the operation: the key is absent, the
// condition did not hold, the key is of the other kind, or the sum would pass the limits.
constexpr bool is_answer(Code code) {
  return code == Code::kNotFound || code == Code::kConflict || code == Code::kWrongType ||
         code == Code::kOutOfRange;
}

struct Value {
  std::string value;
  std::uint64_t version = 0;  // later versions are greater, also across restarts of the server
  std::uint64_t expires_at_ms = 0;  // Unix milliseconds by the server's clock; 0 = never expires
  bool is_counter = false;          // `value` is the counter's number: 8 bytes, little-endian
  // Durability of this version as far as the client knows; the real durability may be higher by
  // now. kMemory: nothing is known.
  Durability durability = Durability::kMemory;
};
// A view of a value; valid inside the visitor that receives it.
struct ValueView {
  std::string_view value;
  std::uint64_t version = 0;
  std::uint64_t expires_at_ms = 0;
  bool is_counter = false;
  Durability durability = Durability::kMemory;
};
struct ValueSize {
  std::size_t bytes = 0;
  std::uint64_t version = 0;
  Durability durability = Durability::kMemory;
};
struct Counter {
  std::int64_t number = 0;
  std::uint64_t version = 0;
  Durability durability = Durability::kMemory;
};
struct CounterSwap {
  bool done = false;        // the number was `expected`, and is now `desired`
  std::int64_t number = 0;  // the current number
  std::uint64_t version = 0;
};
// A counter that clients change by RDMA atomics; the server's processor takes no part. Created by
// Client::open_counter(), for clients of the same server. One client at a time may use the object.
//
// It promises less than a counter that is changed by requests:
//  - Durability: a change reaches the server's log within some 100 ms, not before it is answered. A
//    crash of the server loses changes that are not in the log. A flush() and an orderly stop save
//    them.
//  - Unknown outcomes: when the connection is lost during a change, nothing records whether the
//    change was done. It fails with kMayHaveHappened and is not repeated.
//  - Range: beyond +-2^60 the server takes the counter back, and its changes are requests again.
//  - Versions do not tell its changes apart: every result, of GETs too, has version 0.
// It is as linearizable as other counters, except across crashes. Requests (incr(key) and the rest)
// may change the counter at the same time; these changes are then no safer than the atomic ones.
class OneSidedCounter {
 public:
  const std::string& key() const { return key_; }
  // Returns true if the last operation used the counter's cell, or the next one will. False: the
  // server had no cell to give (all are taken, the device has no atomics, or clients over another
  // network use the cell). Changes are then requests, and the client asks the server again a second
  // later.
  bool is_one_sided() const { return word_ != 0; }

 private:
  friend class Client;
  friend class client::Engine;
  explicit OneSidedCounter(std::string key) : key_(std::move(key)) {}
  std::string key_;
  std::uint64_t epoch_ = 0;
  std::uint64_t word_ = 0;         // the cell's address; 0 = no cell
  std::int64_t ask_again_at_ = 0;  // if there is no cell: when to ask again, by the client's clock
};
struct CounterAddition {
  OneSidedCounter* counter = nullptr;
  std::int64_t summand = 1;
};

struct PutOptions {
  // Time to live, from when the server takes the write. 0: the key does not expire. At most 200 ms
  // after that time no GET finds the key (server/README.md says when it takes longer).
  std::chrono::milliseconds ttl{0};
  // The same as an absolute time, in Unix milliseconds by the server's clock, as in Value. 0: not
  // set. A time in the past: the key expires as soon as it is stored. At most one of `ttl` and
  // `expires_at_ms` may be set.
  std::uint64_t expires_at_ms = 0;
  bool if_absent = false;                                  // else kConflict
  std::optional<std::uint64_t> if_version = std::nullopt;  // else kConflict, or kNotFound
  std::chrono::milliseconds timeout{0};                    // as Client::Timeout
  Durability durability = Durability::kDefault;            // as in WriteOptions
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
  std::chrono::milliseconds timeout{0};  // as Client::Timeout
};
struct WriteOptions {
  // Durability of the write when the call returns; kDefault: the default the server was started
  // with. kWal and kSync cost a write to the server's disk, shared with the other writes under way
  // at that time.
  // kUnsupported: the server has no disk, and nothing was written. kIo with kMayHaveHappened: the
  // server's disk failed after the write was made. The write is saved when the disk works again,
  // unless the server ends before.
  Durability durability = Durability::kDefault;
  std::chrono::milliseconds timeout{0};  // as Client::Timeout
};
struct OpenOptions {
  bool create = true;                    // an absent counter is created with 0; false: kNotFound
  std::chrono::milliseconds timeout{0};  // as Client::Timeout
};
// Memory that values are READ into and put from without a copy. Created by
// Client::allocate_buffer(), page-aligned and zeroed. A buffer may outlive its client, and serves
// every client of the same transport object. A client made by connect(options) has its own
// transport object: its buffers serve that client only.
//
// No thread may write the buffer while an operation uses it. Moving the object does not move its
// bytes.
class RKV_EXPORT RegisteredBuffer {
 public:
  RegisteredBuffer(RegisteredBuffer&&) noexcept;
  RegisteredBuffer& operator=(RegisteredBuffer&&) noexcept;
  ~RegisteredBuffer();
  std::span<std::byte> bytes() const;

 private:
  friend class Client;
  RegisteredBuffer(std::shared_ptr<rdma::Transport> transport,
                   std::unique_ptr<rdma::Region> region);
  std::shared_ptr<rdma::Transport> transport_;
  std::unique_ptr<rdma::Region> region_;
};

struct KeyValue {
  std::string_view key;
  std::string_view value;
  std::uint64_t expires_at_ms = 0;  // as in PutOptions
};

// Counters since connect(); they only rise, apart from `cached_groups`.
struct RKV_EXPORT ClientStats {
  std::uint64_t gets = 0;                // keys requested
  std::uint64_t one_sided_gets = 0;      // answered by READs alone, "not found" included
  std::uint64_t two_sided_gets = 0;      // answered by the server
  std::uint64_t missing = 0;             // of both kinds: the key did not exist
  std::uint64_t rdma_reads = 0;          // READs by all GETs
  std::uint64_t map_reads = 0;           // other READs: root page, mark lines, extents, directory
  std::uint64_t tears_detected = 0;      // READs repeated because their checksum did not hold
  std::uint64_t pins = 0;                // hint words swapped, so that values stay whole
  std::uint64_t atomics = 0;             // atomics on cells of one-sided counters
  std::uint64_t retries = 0;             // restarts of a GET from the index
  std::uint64_t cache_hits = 0;          // GETs that found their record through a cache
  std::uint64_t cache_misses = 0;        // other one-sided GETs
  std::uint64_t cached_groups = 0;       // currently held
  std::uint64_t two_sided_requests = 0;  // requests sent, of any kind
  std::uint64_t busy_answers = 0;        // requests refused with "later" and sent again
  std::uint64_t reconnects = 0;

  // Adds the counters of another client.
  ClientStats& operator+=(const ClientStats& other);
};

class RKV_EXPORT Client {
 public:
  // Longest wait for one operation; 0 = ClientOptions::timeout.
  using Timeout = std::chrono::milliseconds;

  // Opens the device and connects. Repeats the attempt with back-off until options.timeout has
  // passed, unless options.repeat_connect is off. An error that a retry cannot help ends the call
  // at once. `refusal`, if given, gets the server's message when the server refuses: kRejected, or
  // kBusy while the server loads its data or has no free place.
  static Result<Client> connect(const ClientOptions& options, std::string* refusal = nullptr);
  // As above, over a transport created by the caller (tests, several clients on one device).
  // `clock` must outlive the client; null = the steady clock.
  static Result<Client> connect(const ClientOptions& options,
                                std::shared_ptr<rdma::Transport> transport,
                                const Clock* clock = nullptr, std::string* refusal = nullptr);

  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;
  ~Client();

  // Bytes that a client with these options registers over verbs when it connects. The limit of
  // locked memory must allow them. ClientOptions::large_bytes and the caller's buffers are added
  // when they are needed. The memory of the device's own queues is not included.
  static std::size_t registered_bytes(const ClientOptions& options);

  // ---- one key. Every call blocks until it is done or its deadline passes.

  // Reads a value. Costs one READ when the key's place is cached, else mostly two. kNotFound.
  Result<Value> get(std::string_view key, Timeout timeout = {}) {
    return get(key, GetOptions{.timeout = timeout});
  }
  Result<Value> get(std::string_view key, const GetOptions& options);
  // As get(), without allocation. kTooLarge: the value does not fit; nothing is copied, and
  // needed_bytes() is the value's length.
  Result<ValueSize> get_into(std::string_view key, std::span<std::byte> out, Timeout timeout = {}) {
    return get_into(key, out, GetOptions{.timeout = timeout});
  }
  Result<ValueSize> get_into(std::string_view key, std::span<std::byte> out,
                             const GetOptions& options);

  // ---- registered memory

  // Registers memory. `bytes`: at least 1. kOutOfMemory: the error text names the limit of locked
  // memory when that is the reason. Blocks while the memory is registered: some 100 us per MiB.
  Result<RegisteredBuffer> allocate_buffer(std::size_t bytes);
  // As above. A large value is READ straight into the buffer and verified there: no copy, two or
  // three round trips. The buffer's content is undefined until the call has succeeded: a torn value
  // is READ again into the same place. kTooLarge as above, before a byte of the value is READ.
  Result<ValueSize> get_into(std::string_view key, RegisteredBuffer& buffer, Timeout timeout = {}) {
    return get_into(key, buffer, GetOptions{.timeout = timeout});
  }
  Result<ValueSize> get_into(std::string_view key, RegisteredBuffer& buffer,
                             const GetOptions& options);
  // Puts the first `length` bytes of the buffer. The server READs a large value from the buffer and
  // checks it against a checksum that this call made before. So the buffer must not change until
  // the call returns. kValueChanged: the buffer changed, and nothing was stored. After
  // kMayHaveHappened the server either reads the buffer no more, or stores exactly the bytes that
  // were put.
  Result<std::uint64_t> put_from(std::string_view key, const RegisteredBuffer& buffer,
                                 std::size_t length, const PutOptions& options = {});
  // Length of the value that did not fit in the last get_into().
  std::size_t needed_bytes() const;

  // Stores a value and returns its version. One round trip. A value longer than 128 KiB is first
  // copied into registered memory of the client, and the server READs it from there. While the
  // server is full the request is repeated until the deadline (kBusy).
  Result<std::uint64_t> put(std::string_view key, std::string_view value, Timeout timeout = {}) {
    return put(key, value, WriteOptions{.timeout = timeout});
  }
  Result<std::uint64_t> put(std::string_view key, std::string_view value,
                            const WriteOptions& options);
  // Removes the key and returns the version of the deletion. kNotFound: the key did not exist.
  Result<std::uint64_t> remove(std::string_view key, Timeout timeout = {}) {
    return remove(key, WriteOptions{.timeout = timeout});
  }
  Result<std::uint64_t> remove(std::string_view key, const WriteOptions& options);

  // The same on a condition, which the server decides: one round trip. kConflict: the condition did
  // not hold, and nothing changed. The conflicting write may be less durable than `options` ask
  // for, and a crash may lose it; a GET with at_least shows its durability. After kMayHaveHappened
  // (no answer came) read the key: its version or absence shows the outcome, unless other clients
  // write the key too.
  Result<std::uint64_t> put_with(std::string_view key, std::string_view value,
                                 const PutOptions& options);
  Result<std::uint64_t> put_if_absent(std::string_view key, std::string_view value,
                                      Timeout timeout = {}) {
    return put_if_absent(key, value, WriteOptions{.timeout = timeout});
  }
  Result<std::uint64_t> put_if_absent(std::string_view key, std::string_view value,
                                      const WriteOptions& options);
  // `version` comes from a GET or PUT. kNotFound: the key no longer exists.
  Result<std::uint64_t> put_if_version(std::string_view key, std::string_view value,
                                       std::uint64_t version, Timeout timeout = {}) {
    return put_if_version(key, value, version, WriteOptions{.timeout = timeout});
  }
  Result<std::uint64_t> put_if_version(std::string_view key, std::string_view value,
                                       std::uint64_t version, const WriteOptions& options);
  Result<std::uint64_t> remove_if_version(std::string_view key, std::uint64_t version,
                                          Timeout timeout = {}) {
    return remove_if_version(key, version, WriteOptions{.timeout = timeout});
  }
  Result<std::uint64_t> remove_if_version(std::string_view key, std::uint64_t version,
                                          const WriteOptions& options);

  // ---- counters: signed 64-bit numbers, kept like values. Changes are requests of one round trip
  // each; an answered change was done exactly once. kWrongType: the key holds a plain value. A put
  // on a counter fails with kWrongType too: remove the counter first.

  // Adds `by`. An absent key counts from 0. kOutOfRange: the sum would pass the limits; nothing
  // changed.
  Result<Counter> incr(std::string_view key, std::int64_t by = 1, Timeout timeout = {}) {
    return incr(key, by, WriteOptions{.timeout = timeout});
  }
  Result<Counter> incr(std::string_view key, std::int64_t by, const WriteOptions& options);
  Result<Counter> decr(std::string_view key, std::int64_t by = 1, Timeout timeout = {}) {
    return decr(key, by, WriteOptions{.timeout = timeout});
  }
  Result<Counter> decr(std::string_view key, std::int64_t by, const WriteOptions& options);
  // Sets the number to `desired` if it is `expected`. kNotFound.
  Result<CounterSwap> counter_cas(std::string_view key, std::int64_t expected, std::int64_t desired,
                                  Timeout timeout = {}) {
    return counter_cas(key, expected, desired, WriteOptions{.timeout = timeout});
  }
  Result<CounterSwap> counter_cas(std::string_view key, std::int64_t expected, std::int64_t desired,
                                  const WriteOptions& options);
  // One-sided, as get().
  Result<Counter> get_counter(std::string_view key, Timeout timeout = {});

  // ---- one-sided counters: one atomic and one round trip for each operation.

  // Finds the counter's cell with one request. A counter that does not exist is created with 0,
  // unless OpenOptions::create is off: kNotFound. kWrongType: as above. If the connection is lost
  // during the request, the client looks for the counter over the next connection.
  // kMayHaveHappened: the counter is not there; it may have been created and removed since.
  Result<OneSidedCounter> open_counter(std::string_view key, Timeout timeout = {}) {
    return open_counter(key, OpenOptions{.timeout = timeout});
  }
  Result<OneSidedCounter> open_counter(std::string_view key, const OpenOptions& options);
  // As incr() and decr() above. If the counter was removed or its server restarted, the client
  // first opens the counter again. incr and decr create a removed counter again, from 0. A summand
  // beyond +-2^32 goes by a request. So does a change with Durability::kWal or kSync, which has
  // that durability when the call returns.
  Result<Counter> incr(OneSidedCounter& counter, std::int64_t by = 1,
                       const WriteOptions& options = {});
  Result<Counter> decr(OneSidedCounter& counter, std::int64_t by = 1,
                       const WriteOptions& options = {});
  // kNotFound: the counter was removed.
  Result<CounterSwap> counter_cas(OneSidedCounter& counter, std::int64_t expected,
                                  std::int64_t desired, const WriteOptions& options = {});
  Result<Counter> get_counter(OneSidedCounter& counter, Timeout timeout = {});
  // Pipelined additions. Results are those of incr(), in the order of the arguments. The additions
  // themselves have no order. A counter may be named more than once.
  std::vector<Result<Counter>> multi_incr(std::span<const CounterAddition> additions,
                                          Timeout timeout = {});

  // ---- many keys, pipelined. The timeout is that of the whole call. Results are in the order of
  // the arguments, each with its own status. The operations of one call have no order.

  std::vector<Result<Value>> multi_get(std::span<const std::string_view> keys,
                                       Timeout timeout = {}) {
    return multi_get(keys, GetOptions{.timeout = timeout});
  }
  // GetOptions::at_least holds for each value separately. Values that wait share the READs of the
  // mark line.
  std::vector<Result<Value>> multi_get(std::span<const std::string_view> keys,
                                       const GetOptions& options);
  std::vector<Result<std::uint64_t>> multi_put(std::span<const KeyValue> items,
                                               Timeout timeout = {}) {
    return multi_put(items, WriteOptions{.timeout = timeout});
  }
  std::vector<Result<std::uint64_t>> multi_put(std::span<const KeyValue> items,
                                               const WriteOptions& options);
  // As multi_get(), without allocation. Calls visit(index, const Result<ValueView>&) once for each
  // key, in any order. The visitor must not use the client.
  template <class Visitor>
  void multi_get_into(std::span<const std::string_view> keys, Visitor&& visit,
                      Timeout timeout = {}) {
    multi_get_into(keys, std::forward<Visitor>(visit), GetOptions{.timeout = timeout});
  }
  template <class Visitor>
  void multi_get_into(std::span<const std::string_view> keys, Visitor&& visit,
                      const GetOptions& options) {
    using Target = std::remove_reference_t<Visitor>;
    visit_all(
        keys,
        [](void* target, std::size_t index, const Result<ValueView>& result) {
          (*static_cast<Target*>(target))(index, result);
        },
        const_cast<void*>(static_cast<const void*>(&visit)), options);
  }

  // As multi_put(), without allocation. Calls visit(index, const Result<std::uint64_t>&) once for
  // each item when it is answered, in any order. The visitor must not use the client.
  template <class Visitor>
  void multi_put_each(std::span<const KeyValue> items, Visitor&& visit,
                      const WriteOptions& options = {}) {
    using Target = std::remove_reference_t<Visitor>;
    put_all(
        items,
        [](void* target, std::size_t index, const Result<std::uint64_t>& version) {
          (*static_cast<Target*>(target))(index, version);
        },
        const_cast<void*>(static_cast<const void*>(&visit)), options);
  }

  // ---- keys in order: scan.h has the promises, and Scanner, which steps through all pages.

  // Reads one page: one request, and a GET for each value longer than 64 KiB. Blocks until the
  // server's disk thread has read the page: some milliseconds. Repeated when the connection is
  // lost.
  // kUnsupported: the server has no disk. kInvalidArgument: the token is not of this scan. kIo: the
  // server's disk failed. kTooLarge.
  Result<ScanPage> scan(const ScanOptions& options = {});

  // ---- the server

  // Sends a request and waits for the answer. Repeated when the connection is lost.
  Status ping(Timeout timeout = {});
  // READs the server's mark lines and verifies them: tests the one-sided path, without the server's
  // processor. Costs one READ; repeated when the bytes were being written, and when the connection
  // is lost. kTimeout: the bytes did not verify before the deadline.
  Status ping_one_sided(Timeout timeout = {});
  // Returns when everything acknowledged before the call is on disk; the result is the version up
  // to which that holds.
  // kStale: the server has restarted since it acknowledged a write to this client that is not known
  // to have been on disk. That write may be lost (after an orderly stop it is not), and nothing was
  // flushed. Reported once: the next call covers the writes since.
  Result<std::uint64_t> flush(Timeout timeout = {});
  // Makes a backup on the server's host while the server keeps serving. The backup lies below the
  // server's backup directory (kvserver --backup-dir). It has everything acknowledged to any client
  // before the call, up to the version returned. Costs one request.
  // `name`: 1 to 128 letters, digits, '.', '_' and '-'; the first is neither '.' nor '-'.
  // kConflict: the name is taken. kUnsupported: the server makes no backups. kIo, kPermission: the
  // server's disk or system refused. kInvalidArgument. kStale: as flush(), and no backup was made.
  // After kTimeout and kDisconnected the backup may have been made, or may still be made. The
  // client never sends the request twice.
  Result<std::uint64_t> backup(std::string_view name, Timeout timeout = {});
  Result<std::string> server_stats(Timeout timeout = {});  // a JSON object

  // ---- this client

  ClientStats stats() const;
  // The server's message with the last request or connection that it refused; may be empty.
  const std::string& last_refusal() const;
  // The transport, and the reason when connect() chose it: one line for people.
  const std::string& describe() const;

 private:
  friend class Cluster;
  using RawVisitor = void (*)(void* target, std::size_t index, const Result<ValueView>& result);
  using RawPutVisitor = void (*)(void* target, std::size_t index,
                                 const Result<std::uint64_t>& version);
  explicit Client(std::unique_ptr<client::Engine> engine);
  Result<std::uint64_t> put_registered(std::string_view key, std::string_view value,
                                       std::uint32_t remote_key, const PutOptions& options);
  void set_description(std::string text);
  void visit_all(std::span<const std::string_view> keys, RawVisitor visit, void* target,
                 const GetOptions& options);
  void put_all(std::span<const KeyValue> items, RawPutVisitor visit, void* target,
               const WriteOptions& options);

  std::unique_ptr<client::Engine> engine_;
};

}  // namespace rkv
