// rkv::Client: a connection to a kvserver.
//
// GETs are one-sided: the client READs the server's memory and proves what it read; the server's
// processor takes no part. Writes are requests. A lost connection is made again by itself; how
// long an operation may take is always bounded by its deadline.
//
//   auto client = rkv::Client::connect({.server = "10.0.0.1:7471"});
//   if (!client) return complain(to_string(client.error()));
//   if (auto put = client->put("name", "value"); !put) ...
//   if (auto got = client->get("name")) use(got->value);
//
// Threads: a Client is used by one thread at a time. For more threads, open more clients; they
//   share nothing. Clients may be moved, between threads too.
// Fork: a child must not use, destroy or exit() through a client of its parent; exec or _exit only.
// Memory: everything is allocated by connect(), apart from results returned by value, and
//   registered memory for large values (ClientOptions::large_bytes), which is made when it is first
//   needed.
// Values: up to 128 KiB they travel in requests, longer ones (up to 16 MiB) by READs of registered
//   memory: the client's own, or a RegisteredBuffer without a copy.
//
// Errors, by code: kNotFound, kConflict, kWrongType, kOutOfRange are answers (is_answer()).
// kInvalidArgument, kTooLarge: the call itself is wrong. kBusy, kOutOfMemory: try again later; the
// client did so until the deadline, with kOutOfMemory for GETs only. kTimeout, kDisconnected,
// kUnreachable: the deadline passed while waiting or reconnecting. kRejected, kVersionMismatch,
// kPermission, kNoDevice, kUnsupported, kCorrupt: trying again will not help. kIo: the server's
// disk. kStale: flush() and backup() alone. Error::write tells whether a write may have taken
// effect: with kMayHaveHappened the request had left and no answer came, or the disk failed after
// it was made. Such a write is never repeated by the client; GETs are.
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

// Whether an error is what the operation found, not a failure to carry it out: the key is absent,
// the condition did not hold, the key is of the other kind, the sum would pass the limits.
constexpr bool is_answer(Code code) {
  return code == Code::kNotFound || code == Code::kConflict || code == Code::kWrongType ||
         code == Code::kOutOfRange;
}

struct Value {
  std::string value;
  std::uint64_t version = 0;        // greater = later, across restarts of the server too
  std::uint64_t expires_at_ms = 0;  // Unix milliseconds by the server's clock; 0 = never
  bool is_counter = false;          // `value` is its number: 8 bytes, little-endian
  // How safe the version is known to be, from what the client knows already; it may be safer by
  // now. kMemory: nothing is known.
  Durability durability = Durability::kMemory;
};
// A value where it lies; valid inside the visitor that gets it.
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
  bool done = false;        // it was as expected, and is now as desired
  std::int64_t number = 0;  // what it is now
  std::uint64_t version = 0;
};
// A counter that clients change by RDMA atomics: the server's processor takes no part. Made by
// Client::open_counter(), for clients of the same server; one at a time may use it.
//
// It promises less than a counter that is changed by requests:
//  - Durable: changes reach the server's log within some 100 ms, not before they are answered; a
//    crash of the server loses those. A flush() and an orderly stop save them.
//  - Unknown outcomes: when the connection is lost in the middle of a change, nobody remembers
//    whether it was done; kMayHaveHappened says so, and it is not repeated.
//  - Range: beyond +-2^60 the server takes the counter back, and its changes are requests again.
//  - Versions do not tell its changes apart: that of every result, of GETs too, is 0.
// It is as linearizable as others, between crashes. Requests (incr(key) and the rest) may change it
// at the same time; they are then no safer than this.
class OneSidedCounter {
 public:
  const std::string& key() const { return key_; }
  // Whether the last operation went to the counter's cell, or the next will: false where the server
  // had none to give (all taken, a device without atomics, clients over another network have it).
  // Changes are requests then; a second later the server is asked again.
  bool is_one_sided() const { return word_ != 0; }

 private:
  friend class Client;
  friend class client::Engine;
  explicit OneSidedCounter(std::string key) : key_(std::move(key)) {}
  std::string key_;
  std::uint64_t epoch_ = 0;
  std::uint64_t word_ = 0;         // its address; 0 = none
  std::int64_t ask_again_at_ = 0;  // without one: by the client's clock
};
struct CounterAddition {
  OneSidedCounter* counter = nullptr;
  std::int64_t summand = 1;
};

struct PutOptions {
  // How long the key lives, from when the server takes it. 0: without an end. At most 200 ms after
  // that time no GET finds the key (server/README.md says when it takes longer).
  std::chrono::milliseconds ttl{0};
  // The same as a time, in Unix milliseconds by the server's clock, as Value has it; 0 = not said.
  // A time that has passed: the key goes as soon as it is there. One of the two at most.
  std::uint64_t expires_at_ms = 0;
  bool if_absent = false;                                  // else kConflict
  std::optional<std::uint64_t> if_version = std::nullopt;  // else kConflict, or kNotFound
  std::chrono::milliseconds timeout{0};                    // as Client::Timeout
  Durability durability = Durability::kDefault;            // as in WriteOptions
};
struct GetOptions {
  // The value returned is at least so safe: where the client does not know it to be, it READs the
  // server's mark line until it is (one READ mostly), or the deadline passes: kTimeout. When that
  // takes longer than some milliseconds it asks by a request; with kSync by a flush, so that no
  // timer of the server is waited for. A later write of the key meanwhile is not waited for.
  // kUnsupported: the server has no disk. kNotFound says nothing about durability: the removal that
  // it saw may be lost in a crash.
  Durability at_least = Durability::kMemory;
  std::chrono::milliseconds timeout{0};  // as Client::Timeout
};
struct WriteOptions {
  // How safe the write is when the call returns; kDefault: as the server was started. kWal and
  // kSync cost a write to the server's disk, which writes under way at the time share.
  // kUnsupported: the server has no disk, and nothing was written. kIo with kMayHaveHappened: its
  // disk failed after the write was made; it is saved when the disk is well, unless the server ends
  // before.
  Durability durability = Durability::kDefault;
  std::chrono::milliseconds timeout{0};  // as Client::Timeout
};
struct OpenOptions {
  bool create = true;                    // it begins at 0 where it is not there; else kNotFound
  std::chrono::milliseconds timeout{0};  // as Client::Timeout
};
// Memory that values are READ into and put from without a copy. Made by Client::allocate_buffer(),
// page-aligned and zeroed at first. It may outlive its client, and serves any client of the same
// transport object; of clients made by connect(options), which have one each, only its own.
//
// While an operation that was given it is running, nobody may write it. Moving it does not move
// its bytes.
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

// Counted since connect(); they only rise, apart from `cached_groups`.
struct RKV_EXPORT ClientStats {
  std::uint64_t gets = 0;            // keys asked for
  std::uint64_t one_sided_gets = 0;  // answered by READs alone, "not found" included
  std::uint64_t two_sided_gets = 0;  // answered by the server
  std::uint64_t missing = 0;         // of both: the key did not exist
  std::uint64_t rdma_reads = 0;      // READs of all GETs
  std::uint64_t map_reads = 0;  // READs of root page, mark lines, extent table, directory besides
  std::uint64_t tears_detected =
      0;                            // READs whose checksum did not hold, so that they were repeated
  std::uint64_t pins = 0;           // hint words swapped, so that values stay whole
  std::uint64_t atomics = 0;        // on cells of one-sided counters
  std::uint64_t retries = 0;        // times that a GET started again from the index
  std::uint64_t cache_hits = 0;     // GETs that found their record through the cache
  std::uint64_t cache_misses = 0;   // other one-sided GETs
  std::uint64_t cached_groups = 0;  // held now
  std::uint64_t two_sided_requests = 0;  // requests sent, of any kind
  std::uint64_t busy_answers = 0;        // requests refused for now and sent again
  std::uint64_t reconnects = 0;

  // Of several clients, or of one after the other.
  ClientStats& operator+=(const ClientStats& other);
};

class RKV_EXPORT Client {
 public:
  // Waits for one operation at most this long; 0 = ClientOptions::timeout.
  using Timeout = std::chrono::milliseconds;

  // Opens the device and connects. Repeats connecting with back-off, as operations do, until
  // options.timeout has passed (unless options.repeat_connect is off). An error that another try
  // cannot help ends the call at once. `refusal`, if given, gets the server's own sentence when the
  // server refuses: kRejected, or kBusy while the server loads its data or has no free place.
  static Result<Client> connect(const ClientOptions& options, std::string* refusal = nullptr);
  // The same over a transport made by the caller (tests, several clients on one device). `clock`
  // must outlive the client; null = the steady clock.
  static Result<Client> connect(const ClientOptions& options,
                                std::shared_ptr<rdma::Transport> transport,
                                const Clock* clock = nullptr, std::string* refusal = nullptr);

  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;
  ~Client();

  // Memory that a client with these options registers over verbs when it connects, which the limit
  // of locked memory must allow; ClientOptions::large_bytes and buffers of the caller come to it
  // when they are needed. What the device's own queues take is not in it.
  static std::size_t registered_bytes(const ClientOptions& options);

  // ---- one key. All block until done or the deadline.

  // One READ when the key's place is cached, else mostly two. kNotFound.
  Result<Value> get(std::string_view key, Timeout timeout = {}) {
    return get(key, GetOptions{.timeout = timeout});
  }
  Result<Value> get(std::string_view key, const GetOptions& options);
  // The same without allocation. kTooLarge when the value does not fit: nothing is copied, and
  // needed_bytes() is its length.
  Result<ValueSize> get_into(std::string_view key, std::span<std::byte> out, Timeout timeout = {}) {
    return get_into(key, out, GetOptions{.timeout = timeout});
  }
  Result<ValueSize> get_into(std::string_view key, std::span<std::byte> out,
                             const GetOptions& options);

  // ---- registered memory

  // `bytes`: at least 1. kOutOfMemory names the limit of locked memory when that is why. Blocks for
  // as long as registering takes, some 100 us a MiB.
  Result<RegisteredBuffer> allocate_buffer(std::size_t bytes);
  // A large value is READ straight into the buffer and proved there: no copy, two or three round
  // trips. What the buffer holds is undefined until this has succeeded: a value that was torn is
  // READ again into the same place. kTooLarge as above, before a byte of the value is READ.
  Result<ValueSize> get_into(std::string_view key, RegisteredBuffer& buffer, Timeout timeout = {}) {
    return get_into(key, buffer, GetOptions{.timeout = timeout});
  }
  Result<ValueSize> get_into(std::string_view key, RegisteredBuffer& buffer,
                             const GetOptions& options);
  // Puts the first `length` bytes of the buffer. The server READs a large value from it, checks it
  // against the checksum that was made here before, and answers: so the buffer must stay as it is
  // until this returns (kValueChanged: it did not, and nothing was stored). After kMayHaveHappened
  // the server may look at it no more, or store exactly what it was.
  Result<std::uint64_t> put_from(std::string_view key, const RegisteredBuffer& buffer,
                                 std::size_t length, const PutOptions& options = {});
  // How long the value was that the last get_into() had no room for.
  std::size_t needed_bytes() const;

  // One round trip; for a value longer than 128 KiB it is copied into registered memory of the
  // client first, and the server READs it from there. The version that the value got. A full server
  // is asked again until the deadline (kBusy).
  Result<std::uint64_t> put(std::string_view key, std::string_view value, Timeout timeout = {}) {
    return put(key, value, WriteOptions{.timeout = timeout});
  }
  Result<std::uint64_t> put(std::string_view key, std::string_view value,
                            const WriteOptions& options);
  // The version of the deletion; kNotFound when there was nothing.
  Result<std::uint64_t> remove(std::string_view key, Timeout timeout = {}) {
    return remove(key, WriteOptions{.timeout = timeout});
  }
  Result<std::uint64_t> remove(std::string_view key, const WriteOptions& options);

  // The same on a condition, which the server decides: one round trip. kConflict: it did not hold,
  // nothing has changed. The write that it collided with may be less durable than asked for here,
  // and be lost in a crash; a GET with at_least tells. With kMayHaveHappened - no answer came -
  // read the key: its version or absence tells, unless others write it too.
  Result<std::uint64_t> put_with(std::string_view key, std::string_view value,
                                 const PutOptions& options);
  Result<std::uint64_t> put_if_absent(std::string_view key, std::string_view value,
                                      Timeout timeout = {}) {
    return put_if_absent(key, value, WriteOptions{.timeout = timeout});
  }
  Result<std::uint64_t> put_if_absent(std::string_view key, std::string_view value,
                                      const WriteOptions& options);
  // `version` as a GET or PUT gave it. kNotFound: the key is gone.
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

  // ---- counters: signed numbers of 64 bits, kept like values. Changes are requests, one round
  // trip each, done exactly once when answered. kWrongType: the key holds a plain value (and a put
  // on a counter answers the same: remove it first).

  // An absent key counts from 0. kOutOfRange: the sum would pass the limits; nothing has changed.
  Result<Counter> incr(std::string_view key, std::int64_t by = 1, Timeout timeout = {}) {
    return incr(key, by, WriteOptions{.timeout = timeout});
  }
  Result<Counter> incr(std::string_view key, std::int64_t by, const WriteOptions& options);
  Result<Counter> decr(std::string_view key, std::int64_t by = 1, Timeout timeout = {}) {
    return decr(key, by, WriteOptions{.timeout = timeout});
  }
  Result<Counter> decr(std::string_view key, std::int64_t by, const WriteOptions& options);
  // The number becomes `desired` if it is `expected`. kNotFound.
  Result<CounterSwap> counter_cas(std::string_view key, std::int64_t expected, std::int64_t desired,
                                  Timeout timeout = {}) {
    return counter_cas(key, expected, desired, WriteOptions{.timeout = timeout});
  }
  Result<CounterSwap> counter_cas(std::string_view key, std::int64_t expected, std::int64_t desired,
                                  const WriteOptions& options);
  // One-sided, as get().
  Result<Counter> get_counter(std::string_view key, Timeout timeout = {});

  // ---- one-sided counters: one atomic, one round trip each.

  // One request. A counter that does not exist is made, and begins at 0, unless
  // OpenOptions::create is off: kNotFound. kWrongType. Where the connection is lost with the
  // request under way, it is looked for over the next one; kMayHaveHappened: it is not there, and
  // may have been made and removed since.
  Result<OneSidedCounter> open_counter(std::string_view key, Timeout timeout = {}) {
    return open_counter(key, OpenOptions{.timeout = timeout});
  }
  Result<OneSidedCounter> open_counter(std::string_view key, const OpenOptions& options);
  // As above. A counter that was removed, or whose server has started again, is opened again first.
  // incr and decr make a removed counter again, from 0. A summand beyond +-2^32 goes by a request.
  // So does a change with Durability::kWal or kSync, which is as durable when the call returns.
  Result<Counter> incr(OneSidedCounter& counter, std::int64_t by = 1,
                       const WriteOptions& options = {});
  Result<Counter> decr(OneSidedCounter& counter, std::int64_t by = 1,
                       const WriteOptions& options = {});
  // kNotFound: it was removed.
  Result<CounterSwap> counter_cas(OneSidedCounter& counter, std::int64_t expected,
                                  std::int64_t desired, const WriteOptions& options = {});
  Result<Counter> get_counter(OneSidedCounter& counter, Timeout timeout = {});
  // Pipelined: results as of incr(), in the order of the arguments; between the additions there is
  // no order. A counter may be named more than once.
  std::vector<Result<Counter>> multi_incr(std::span<const CounterAddition> additions,
                                          Timeout timeout = {});

  // ---- many keys, pipelined. The timeout is that of the whole call. Results in the order of the
  // arguments, each with its own status. Between operations of one call there is no order.

  std::vector<Result<Value>> multi_get(std::span<const std::string_view> keys,
                                       Timeout timeout = {}) {
    return multi_get(keys, GetOptions{.timeout = timeout});
  }
  // GetOptions::at_least holds for each value by itself; those that wait share the READs of the
  // mark line.
  std::vector<Result<Value>> multi_get(std::span<const std::string_view> keys,
                                       const GetOptions& options);
  std::vector<Result<std::uint64_t>> multi_put(std::span<const KeyValue> items,
                                               Timeout timeout = {}) {
    return multi_put(items, WriteOptions{.timeout = timeout});
  }
  std::vector<Result<std::uint64_t>> multi_put(std::span<const KeyValue> items,
                                               const WriteOptions& options);
  // The same without allocation: visit(index, const Result<ValueView>&) is called once for each
  // key, in any order. It must not use the client.
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

  // The same without allocation: visit(index, const Result<std::uint64_t>&) is called once for each
  // item, when it is answered, in any order. It must not use the client.
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

  // ---- keys in order: scan.h has what is promised, and Scanner, which goes through all pages.

  // One page: one request, and for values longer than 64 KiB a GET each. Blocks until the server's
  // disk thread has read it: some milliseconds. kUnsupported: the server has no disk;
  // kInvalidArgument: the token is not of this scan; kIo: its disk fails; kTooLarge. Repeated when
  // the connection is lost.
  Result<ScanPage> scan(const ScanOptions& options = {});

  // ---- the server

  Status ping(Timeout timeout = {});
  // One READ of the server's memory, whose bytes are proved: what the one-sided path takes, without
  // the server's processor. Repeated when the bytes were being written, and when the connection is
  // lost. kTimeout: they did not verify until the deadline.
  Status ping_one_sided(Timeout timeout = {});
  // Returns when everything acknowledged before the call is on disk: up to which version.
  // kStale: the server has restarted since it acknowledged a write to this client that is not known
  // to have been on disk; that one may be lost (after a stop in good order it is not), and nothing
  // was flushed. Said once: the next call is about what came after.
  Result<std::uint64_t> flush(Timeout timeout = {});
  // Makes a backup on the server's host, below the directory that it was started with (kvserver
  // --backup-dir), while it goes on serving: with everything acknowledged to anybody before the
  // call, up to the version returned. `name`: 1 to 128 letters, digits, '.', '_' and '-', the first
  // neither '.' nor '-'. kConflict: there is something of that name; kUnsupported: the server makes
  // no backups; kIo, kPermission: its disk or system refuse; kInvalidArgument. kStale: as flush(),
  // and none was made. With kTimeout and
  // kDisconnected it may have been made, or be made yet; it is never asked for twice. One request.
  Result<std::uint64_t> backup(std::string_view name, Timeout timeout = {});
  Result<std::string> server_stats(Timeout timeout = {});  // a JSON object

  // ---- this client

  ClientStats stats() const;
  // What the server said with the last request or connection that it refused; may be empty.
  const std::string& last_refusal() const;
  // What carries it, and why when it was chosen by connect(): one line for people.
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
