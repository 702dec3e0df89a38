// rkv::SharedClient: a client that any number of threads use at once.
//
//   auto client = rkv::SharedClient::connect({.server = "10.0.0.1:7471"});
//   std::jthread writer([&] { client->put("name", "value"); });
//   std::jthread reader([&] { client->get("name"); });
//
// It has the operations of a Client (operations.h), each with the same promises, costs, errors and
// deadline. The threads share connections and caches: one that waits for its own operation drives
// those of the others too, so that READs and requests of several threads leave together.
// client/README.md compares it with a Client for each thread.
//
// The differences from a Client:
//  - Each thread uses one of the connections, always the same. Operations of threads on different
//    connections have no common order apart from that of their calls.
//  - flush(), backup(), scans, server_stats(), ping(), one-sided counters and multi_incr() use one
//    further connection, opened when it is first needed, one thread after the other and with one
//    request in flight. A call that waits for another thread's ends with kTimeout at its deadline.
//  - flush(): kStale concerns the writes of all threads, and the flush was done. backup() flushes
//    first, and makes no backup after kStale.
//  - needed_bytes() is that of the calling thread's last get_into() of any SharedClient.
//  - multi_get_into() and multi_put_each() allocate once for each call. Their visitor may be called
//    by another thread that uses the client, but by one at a time, and the call returns after it.
//    It must not use the client, block, or wait for a thread that uses the client: nobody else
//    drives meanwhile, and deadlines are not kept.
//  - There are no put_from(), ping_one_sided(), nor what an administrator does: revoke_user(),
//    move_primary(), remove_replica().
//
// Threads: any, apart from connect(), moves and the destructor. Fork: as Client.
// Memory: that of a Client for each connection and the further one; the cache is divided.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rkv/client_stats.h"
#include "rkv/export.h"
#include "rkv/fork.h"
#include "rkv/operations.h"
#include "rkv/options.h"
#include "rkv/registered_buffer.h"
#include "rkv/result.h"
#include "rkv/scan.h"
#include "rkv/values.h"

namespace rkv {

class Clock;
namespace rdma {
class Transport;
}  // namespace rdma
namespace client {
class SharedEngines;
}  // namespace client

class RKV_EXPORT SharedClient : public Operations<SharedClient> {
 public:
  // As Client::connect(). `connections`: 1 to 64. More of them let more threads work at once, at
  // the cost of registered memory and of the server's places for clients.
  static Result<SharedClient> connect(const ClientOptions& options, std::size_t connections = 1,
                                      std::string* refusal = nullptr);
  // Over a given transport; `clock` null: the system's.
  static Result<SharedClient> connect(const ClientOptions& options, std::size_t connections,
                                      std::shared_ptr<rdma::Transport> transport,
                                      const Clock* clock, std::string* refusal = nullptr);
  SharedClient(SharedClient&&) noexcept;
  SharedClient& operator=(SharedClient&&) noexcept;
  ~SharedClient();  // REQUIRES that no thread is in a call

  static std::size_t needed_bytes();  // of the calling thread's last get_into()
  // The server's message with the calling thread's last operation that has failed, of any
  // SharedClient, if it is the server that refused; else empty. Of many keys: of one that failed.
  static const std::string& last_refusal();

  // As Client::allocate_buffer(). A value longer than 128 KiB is READ straight into the memory of
  // get_into() if that lies in such a buffer. The call may then end later than its deadline: when
  // its READs have landed, or nothing has come over the connection for 2 s. After an error the
  // content of the memory is undefined.
  Result<RegisteredBuffer> allocate_buffer(std::size_t bytes);
  // As multi_get_into(), but each value goes to the buffer of its key's place, as by get_into().
  // kInvalidArgument, of each key: there are not as many buffers as keys, two buffers overlap, or a
  // key lies in a buffer. `needed`, if it is as long: the length of each value that does not fit.
  std::vector<Result<ValueSize>> multi_get_buffers(std::span<const std::string_view> keys,
                                                   std::span<const std::span<std::byte>> buffers,
                                                   const GetOptions& options = {},
                                                   std::span<std::size_t> needed = {});

  // ---- as those of a Client
  Result<ScanPage> scan(const ScanOptions& options = {});
  Status ping(Timeout timeout = {});
  Result<std::uint64_t> flush(Timeout timeout = {});
  Result<std::uint64_t> backup(std::string_view name, Timeout timeout = {});
  Result<std::string> server_stats(Timeout timeout = {});
  ClientStats stats() const;  // of all connections
  const std::string& describe() const;

 private:
  friend class Operations<SharedClient>;
  explicit SharedClient(std::unique_ptr<client::SharedEngines> engines);
  void visit_all(std::span<const std::string_view> keys, client::GetVisitor visit, void* target,
                 const GetOptions& options);
  void put_all(std::span<const KeyValue> items, client::PutVisitor visit, void* target,
               const WriteOptions& options);
  void add_all(std::span<const CounterAddition> additions, Timeout timeout,
               std::span<Result<Counter>> results);

  client::SharedEngines& engines() const;

  ForkOwned<client::SharedEngines> engines_;
};

// Defined in the library. The others of Operations use the engine of one server.
template <>
RKV_EXPORT Result<Value> Operations<SharedClient>::get_value(std::string_view key,
                                                             const GetOptions& options);
template <>
RKV_EXPORT Result<ValueSize> Operations<SharedClient>::get_bytes(std::string_view key,
                                                                 std::span<std::byte> out,
                                                                 const GetOptions& options);
template <>
RKV_EXPORT Result<std::uint64_t> Operations<SharedClient>::put_with(std::string_view key,
                                                                    std::string_view value,
                                                                    const PutOptions& options);
template <>
RKV_EXPORT Result<std::uint64_t> Operations<SharedClient>::remove_version(
    std::string_view key, std::optional<std::uint64_t> version, const WriteOptions& options);
template <>
RKV_EXPORT Result<Counter> Operations<SharedClient>::add(std::string_view key, std::int64_t by,
                                                         const WriteOptions& options);
template <>
RKV_EXPORT Result<CounterSwap> Operations<SharedClient>::swap(std::string_view key,
                                                              std::int64_t expected,
                                                              std::int64_t desired,
                                                              const WriteOptions& options);
template <>
RKV_EXPORT Result<Counter> Operations<SharedClient>::get_counter(std::string_view key,
                                                                 Timeout timeout);
template <>
RKV_EXPORT Result<Counter> Operations<SharedClient>::add(OneSidedCounter& counter, std::int64_t by,
                                                         const WriteOptions& options);
template <>
RKV_EXPORT Result<CounterSwap> Operations<SharedClient>::swap(OneSidedCounter& counter,
                                                              std::int64_t expected,
                                                              std::int64_t desired,
                                                              const WriteOptions& options);
template <>
RKV_EXPORT Result<Counter> Operations<SharedClient>::get_counter(OneSidedCounter& counter,
                                                                 Timeout timeout);
template <>
RKV_EXPORT Result<OneSidedCounter> Operations<SharedClient>::open(std::string_view key,
                                                                  const OpenOptions& options);

}  // namespace rkv
