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
// Threads: one thread at a time uses a Client. For more threads, open more clients, which share
// nothing, or a SharedClient. Two threads that are found in one client, or a thread that uses a
// client that was moved from, end the process with a sentence. A client may be moved, between
// threads too.
// Fork: a child makes a client of its own. In the child each call of a client of its parent, and of
// objects made with it, fails with kInvalidArgument, and destroying it only leaves its memory. The
// parent's client is not disturbed. Callbacks and visitors do not fork.
// Memory: connect() allocates everything, apart from results returned by value and registered
// memory for large values (ClientOptions::large_bytes). The latter is allocated when it is first
// needed.
// Values: values up to 128 KiB travel in requests. Longer values (up to 16 MiB) travel by READs of
// registered memory: the client's own, or a RegisteredBuffer without a copy.
// Operations on keys, their options and their errors: operations.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "rkv/client_stats.h"
#include "rkv/export.h"
#include "rkv/fork.h"
#include "rkv/limits.h"
#include "rkv/one_user.h"
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
class Region;
}  // namespace rdma
namespace client {
struct Engine;
class SharedEngines;
}  // namespace client

class RKV_EXPORT Client : public Operations<Client> {
 public:
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

  // ---- registered memory

  // Registers memory. `bytes`: at least 1. kOutOfMemory: the error text names the limit of locked
  // memory when that is the reason. Blocks while the memory is registered: some 100 us per MiB.
  Result<RegisteredBuffer> allocate_buffer(std::size_t bytes);
  using Operations::get_into;
  // As get_into() of a span. A large value is READ straight into the buffer and verified there: no
  // copy, two or three round trips. The buffer's content is undefined until the call has succeeded:
  // a torn value is READ again into the same place. kTooLarge as above, before a byte of the value
  // is READ. kInvalidArgument: the key lies in the buffer, or the buffer is of another transport.
  template <OptionsOrTimeout<GetOptions> Given = GetOptions>
  Result<ValueSize> get_into(std::string_view key, RegisteredBuffer& buffer,
                             const Given& given = {}) {
    return get_registered(key, buffer, client::options_of<GetOptions>(given));
  }
  // Puts the first `length` bytes of the buffer. The server READs a large value from the buffer and
  // checks it against a checksum that this call made before. So the buffer must not change until
  // the call returns. kValueChanged: the buffer changed, and nothing was stored. After
  // kMayHaveHappened the server either reads the buffer no more, or stores exactly the bytes that
  // were put.
  Result<std::uint64_t> put_from(std::string_view key, const RegisteredBuffer& buffer,
                                 std::size_t length, const PutOptions& options = {});
  // Length of the value that did not fit in the last get_into().
  std::size_t needed_bytes() const;

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
  // Ends all sessions of a user at the server and refuses the user from then on. Returns how many
  // sessions were ended. When the call returns, none of their requests begins any more, and over
  // verbs none of their READs succeeds. Over shared memory a process keeps what it has mapped until
  // the server is started again. A server's next start forgets the revocation; a group's next
  // primary does not. So remove the user's line from each users file. Takes the role admin.
  // Repeated when the connection is lost; revoking a user twice is not an error.
  // kNotFound: no user has this name. kInvalidArgument: not a name, or the client's own user.
  // kUnsupported: no users. kPermission: this user may not. kIo: a group's etcd has not stored it.
  Result<std::uint64_t> revoke_user(std::string_view name, Timeout timeout = {});
  // The server logs at this level from now on: "debug", "info", "warn" or "error" (else
  // kInvalidArgument), until it starts again or reads its configuration again (SIGHUP). Takes the
  // role admin.
  Status set_server_log_level(std::string_view level, Timeout timeout = {});
  // ---- the replicated group of the server; with users they take the role admin. kUnsupported: the
  // server is in no group. kBusy: its etcd does not answer, or another change is under way.

  // Begins to make the replica of this name the primary. Operations of clients go on with it, and
  // wait for a moment. kNotFound: it is not a member. kConflict: it is not in sync, or is the
  // primary.
  Status move_primary(std::string_view replica, Timeout timeout = {});
  // Takes a replica that is gone out of the group. kNotFound: it is not a member. kConflict: it is
  // in sync or connected, or is the primary.
  Status remove_replica(std::string_view replica, Timeout timeout = {});

  // ---- this client

  ClientStats stats() const;  // since connect()
  // The server's message with the last request or connection that it refused; may be empty.
  const std::string& last_refusal() const;
  // The transport, and the reason when connect() chose it: one line for people.
  const std::string& describe() const;

 private:
  friend class Cluster;
  friend class Operations<Client>;
  friend class client::SharedEngines;
  explicit Client(std::unique_ptr<client::Engine> engine);
  template <class Call>
  auto on(std::string_view /*key*/, Timeout /*timeout*/, Call call)
      -> std::invoke_result_t<Call, client::Engine&> {
    if (user_.is_inherited()) [[unlikely]]
      return std::unexpected(client::kInherited);
    const client::OneUser::Use use(user_);
    return call(*engine_);
  }
  Result<ValueSize> get_registered(std::string_view key, RegisteredBuffer& buffer,
                                   const GetOptions& options);
  void set_description(std::string text);
  void visit_all(std::span<const std::string_view> keys, client::GetVisitor visit, void* target,
                 const GetOptions& options);
  void put_all(std::span<const KeyValue> items, client::PutVisitor visit, void* target,
               const WriteOptions& options);
  void add_all(std::span<const CounterAddition> additions, Timeout timeout,
               std::span<Result<Counter>> results);

  static const client::OneUser::Sentences kSentences;

  ForkOwned<client::Engine> engine_;
  mutable client::OneUser user_{kSentences};
};

}  // namespace rkv
