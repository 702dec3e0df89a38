// The transport seam: what the store needs from a network that can READ remote memory.
//
// The server and the client are written against these seven classes and nothing else of `rdma/`.
// A backend implements them: verbs (RC queue pairs). Calls are batch-grained: one virtual call
// posts or polls many operations.
//
//   Transport   a device and its protection domain: registers memory, connects, listens
//   Region      registered memory
//   Atomics     our own changes of words that peers change too
//   Queue       where completions and received messages arrive; owned by one thread
//   Connection  a reliable, ordered link to one peer; bound to one Queue for life
//   Listener    yields Incoming connection requests, to be accepted on a Queue or rejected
//   DeviceWatch tells what becomes of the device (reopening.h outlives it)
//
// What a completion means: kRead, kCompareSwap, kFetchAdd - the data has arrived in the local
// buffer; nothing is said about when or in which order the remote memory was touched. kSend - the
// local buffer may be reused and the message is in the peer's receive buffer. Nothing here means
// "durable".
//
// Threads: Transport is thread-safe. A Queue, and every Connection bound to it, is used by one
// thread at a time; Queue::wake and Connection::abort alone may be called by any thread. A Listener
// is used by one thread, which may differ from the queues' threads.
//
// Lifetime: Connections and Regions keep what they need of their Transport alive; destroy
// Connections before their Queue. A registered buffer named in a posted operation must stay valid
// until that operation's completion has been polled or its Connection has been destroyed.
// Nothing blocks unless it says so and takes a Deadline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "common/bytes.h"
#include "common/clock.h"
#include "rkv/result.h"

namespace rkv::rdma {

// What a peer may do with a region. Nobody may ever write one remotely.
enum class Access : std::uint8_t {
  kLocal,             // nothing
  kRemoteRead,        // READ
  kRemoteReadAtomic,  // READ, compare-and-swap, fetch-and-add
};

// Memory known to the device. Destroying it ends remote access.
class Region {
 public:
  virtual ~Region() = default;
  virtual MutableBytes bytes() const = 0;  // page-aligned start when the transport allocated it
  virtual std::uint32_t local_key() const = 0;
  virtual std::uint32_t remote_key() const = 0;  // 0 for Access::kLocal
  // The address a peer names: that of bytes().data().
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(bytes().data()); }
};

// Changes words of our own Access::kRemoteReadAtomic regions so that it is atomic with the peers'
// atomics. The processor's own instructions are not where an adapter does the peers'; nor may
// anything be stored to such a word while peers can reach it.
//
// Any thread; one call at a time goes through, the others wait. Blocks for a round trip inside the
// device. Must not outlive its Transport's regions.
class Atomics {
 public:
  virtual ~Atomics() = default;
  // The word's old value. REQUIRES: 8-byte aligned, inside the region given to create_atomics().
  // kInternal: the device failed, and the word may have been changed or not; another call tries
  // anew.
  virtual Result<std::uint64_t> fetch_add(std::uint64_t* word, std::uint64_t addend) = 0;
  virtual Result<std::uint64_t> compare_swap(std::uint64_t* word, std::uint64_t expected,
                                             std::uint64_t desired) = 0;
};

// One work request. Build with the factories; `context` comes back in the Completion.
struct Operation {
  enum class Kind : std::uint8_t { kRead, kCompareSwap, kFetchAdd, kSend };
  Kind kind = Kind::kRead;
  // kSend only: the bytes are copied at once, so `local` need not be registered and may be reused
  // when post() returns. At most Connection::limits().inline_bytes.
  bool inline_data = false;
  // Whether success is reported. A failure always is. An unsignaled operation's buffer is free
  // when a later signaled operation of the same Connection has completed.
  bool signaled = true;
  std::uint32_t local_key = 0;
  MutableBytes
      local;  // kRead: destination; atomics: 8 bytes, 8-aligned, for the old value; kSend: source
  std::uint64_t remote_address = 0;
  std::uint32_t remote_key = 0;
  std::uint64_t compare_or_add = 0;
  std::uint64_t swap = 0;
  std::uint64_t context = 0;

  static Operation read(MutableBytes to, std::uint32_t local_key, std::uint64_t remote_address,
                        std::uint32_t remote_key, std::uint64_t context) {
    return {.local_key = local_key,
            .local = to,
            .remote_address = remote_address,
            .remote_key = remote_key,
            .context = context};
  }
  static Operation send(MutableBytes message, std::uint32_t local_key, std::uint64_t context) {
    return {.kind = Kind::kSend, .local_key = local_key, .local = message, .context = context};
  }
};

class Connection;

struct Completion {
  enum class Kind : std::uint8_t {
    kRead,
    kCompareSwap,
    kFetchAdd,
    kSend,
    kReceive,       // a message; `message` points into a receive buffer, give it back by release()
    kDisconnected,  // exactly once per Connection, after the last completion it will ever have
  };
  Kind kind = Kind::kRead;
  // kOk: done. kRemoteAccess: the peer refused the address, key or operation. kFlushed: the
  // connection died before this operation ran. kFailed: anything else (peer gone, local error).
  // After any status but kOk the connection is dead and kDisconnected follows.
  enum class Status : std::uint8_t { kOk, kRemoteAccess, kFlushed, kFailed };
  Status status = Status::kOk;
  std::uint8_t provider_status = 0;  // ibv_wc_status, for a log line
  Connection* connection = nullptr;
  std::uint64_t context = 0;         // of the Operation; 0 for kReceive and kDisconnected
  Bytes message{};                   // kReceive
  std::uint32_t receive_buffer = 0;  // kReceive: what release() wants
};
const char* to_string(Completion::Status status);
// Of an operation's completion: the first four kinds are the operations'.
constexpr Completion::Kind completion_kind(Operation::Kind kind) {
  static_assert(
      static_cast<int>(Completion::Kind::kRead) == static_cast<int>(Operation::Kind::kRead) &&
      static_cast<int>(Completion::Kind::kCompareSwap) ==
          static_cast<int>(Operation::Kind::kCompareSwap) &&
      static_cast<int>(Completion::Kind::kFetchAdd) ==
          static_cast<int>(Operation::Kind::kFetchAdd) &&
      static_cast<int>(Completion::Kind::kSend) == static_cast<int>(Operation::Kind::kSend));
  return static_cast<Completion::Kind>(kind);
}

struct ConnectionLimits {
  std::uint32_t reads_in_flight;  // outstanding READs and atomics the peers negotiated, >= 1
  std::uint32_t sends_in_flight;  // posted and not yet completed operations of any kind
  std::uint32_t inline_bytes;     // largest inline send
  bool reads_at_once = false;     // read_at_once() is worth a try
};

class Connection {
 public:
  virtual ~Connection() = default;  // drains; local buffers are free afterwards

  // Posts the batch in order with one doorbell. Returns how many were taken: all, or fewer when
  // sends_in_flight is reached (poll the queue, then post the rest). More READs and atomics than
  // reads_in_flight may be posted; the device holds them back. kDisconnected when dead. Never
  // blocks.
  virtual Result<std::size_t> post(std::span<const Operation> batch) = 0;

  // A READ that is over when this returns, without a completion: where READs are copies
  // (ConnectionLimits), and nothing posted before waits. False: it is not done, post() it.
  virtual bool read_at_once(MutableBytes /*to*/, std::uint64_t /*remote_address*/,
                            std::uint32_t /*remote_key*/) {
    return false;
  }
  // read_at_once() of so many bytes comes soon: a hint, which may do nothing.
  virtual void prefetch(std::uint64_t /*remote_address*/, std::uint32_t /*remote_key*/,
                        std::size_t /*length*/) {}

  virtual ConnectionLimits limits() const = 0;
  virtual Bytes private_data() const = 0;  // what the peer sent in its request or accept, padded
  virtual const std::string& peer() const = 0;  // "192.0.2.1:54321", for log lines
  virtual bool alive() const = 0;

  // Ends the connection: outstanding operations complete as kFlushed, then kDisconnected arrives
  // on the queue. Any thread; idempotent.
  virtual void abort() = 0;

  // For the owner: which object of the store this connection belongs to.
  void* owner = nullptr;
};

enum class PollMode : std::uint8_t {
  kAdaptive,  // spin for a while, then sleep until an event
  kBusy,      // always spin
  kEvent,     // always sleep
};

class Queue {
 public:
  virtual ~Queue() = default;

  // Fills `out` with what has arrived, without blocking; returns how many.
  virtual std::size_t poll(std::span<Completion> out) = 0;
  // Blocks until poll() may return something, poll() has made room for post() without returning
  // anything (unsignaled operations completed), wake() was called, or the deadline passed.
  // A wake-up without cause is possible; a lost one is not. Spins or sleeps as the mode says.
  virtual void wait(const Deadline& deadline) = 0;
  // Makes a present or the next wait() return. Any thread.
  virtual void wake() = 0;
  // Gives receive buffers back to the device; batch them. Must be called for every kReceive.
  virtual void release(std::span<const std::uint32_t> receive_buffers) = 0;

  // ---- the end of a device.

  // How many connections are bound to it, those included that are being set up or torn down. Any
  // thread.
  virtual std::size_t connections() const { return 0; }
  // The device does not answer any more: every connection bound to this queue, now or later, ends
  // without it. What is outstanding completes as kFlushed, then kDisconnected arrives. Idempotent.
  virtual void abandon() {}

  // ---- the parts of wait(), for wait_any().

  // Whether wait() would return at once; as wait(), it says so once of what poll() does not give.
  virtual bool is_ready() { return true; }
  // A descriptor that is readable from now on when wait() would return, until end_sleep(); nothing
  // when it would return at once, or the queue has no such thing.
  virtual std::optional<int> begin_sleep() { return std::nullopt; }
  // After each begin_sleep() that gave a descriptor.
  virtual void end_sleep() {}
};

// As Queue::wait() for queues of one thread, of one transport or several: blocks until one of them
// has a reason to return, or the deadline passes. Spins or sleeps as `mode` says; with queues that
// have no parts to wait with it returns at once. At most kMostQueues.
inline constexpr std::size_t kMostQueues = 64;
void wait_any(std::span<Queue* const> queues, PollMode mode, const Deadline& deadline);

struct QueueOptions {
  std::uint32_t completions = 4096;     // completions that may be outstanding in all
  std::uint32_t receive_buffers = 256;  // shared by the connections of this queue
  std::uint32_t receive_bytes = 4096;   // size of each: the longest message that can arrive
  PollMode poll = PollMode::kAdaptive;
};

struct ConnectionOptions {
  std::uint32_t sends_in_flight = 256;
  std::uint32_t inline_bytes = 256;
  // The longest message that will be sent over the connection; 0 = as long as the peer takes. Over
  // shared memory whoever accepts makes the memory for it, so that a server bounds this.
  std::uint32_t send_bytes = 0;
  // What the peer may do to our regions over this connection: all of them that allow it. Over
  // shared memory, whoever connects grants kRemoteRead at most.
  Access grant = Access::kLocal;
};

// A connection request. Dropping it without an answer rejects it.
class Incoming {
 public:
  virtual ~Incoming() = default;
  virtual Bytes private_data() const = 0;  // 56 bytes, padded with zeros
  virtual const std::string& peer() const = 0;
  // Answers with at most 196 bytes. The connection is usable at once; its first receive may
  // arrive before this returns. kDisconnected when the peer has gone meanwhile; kNoDevice when the
  // request came over another device than the transport's. After an error it may be rejected.
  // Blocks for a round trip at most until the deadline.
  virtual Result<std::unique_ptr<Connection>> accept(Queue& queue, const ConnectionOptions& options,
                                                     Bytes private_data,
                                                     const Deadline& deadline) = 0;
  virtual void reject(Bytes reason) = 0;  // at most 148 bytes
};

class Listener {
 public:
  virtual ~Listener() = default;
  // The next request, or nothing when the deadline passed or wake() was called.
  virtual Result<std::unique_ptr<Incoming>> next(const Deadline& deadline) = 0;
  virtual void wake() = 0;                 // any thread
  virtual std::uint16_t port() const = 0;  // the port bound, also when 0 was asked for
};

// Why connect() failed, when the peer itself said no.
struct Rejection {
  std::size_t length = 0;
  std::byte reason[148] = {};
};

// What a device tells of itself, one thing at a time.
struct DeviceEvent {
  enum class Kind : std::uint8_t {
    kNothing,  // the deadline has passed, or wake() was called
    kWell,     // it can carry traffic
    kDown,     // it is there and carries no traffic: its port is down, or its address is not there
    kLost,     // it has been removed or is broken: nothing made from it works any more
  };
  Kind kind = Kind::kNothing;
  std::string what{};  // a sentence without a full stop
};

// Keeps what the device is known by; destroy it before its Transport. One thread.
class DeviceWatch {
 public:
  virtual ~DeviceWatch() = default;
  virtual DeviceEvent next(const Deadline& deadline) = 0;
  virtual void wake() = 0;  // any thread
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string describe() const = 0;  // "verbs: rxe0 port 1 gid 1 (RoCE v2, 192.0.2.1)"

  // Whether a queue's receive buffers take their whole length of memory, used or not: a device
  // that writes into them wants them registered, and what is registered stays in memory.
  virtual bool pins_receive_buffers() const { return true; }

  // Zeroed, page-aligned memory. kOutOfMemory names the locked-memory limit when that is why.
  virtual Result<std::unique_ptr<Region>> allocate(std::size_t length, Access access) = 0;
  // Registers memory of the caller's, which must outlive the region; whole pages. So that one
  // server's clients come over verbs and over shm and read the same pages: allocate over shm,
  // attach over verbs. The keys are the device's own. kUnsupported: this transport cannot.
  virtual Result<std::unique_ptr<Region>> attach(MutableBytes memory, Access access) {
    (void)memory, (void)access;
    return fail(Code::kUnsupported, "this transport cannot register memory that is there already");
  }
  // `region`: of this transport, with Access::kRemoteReadAtomic; must outlive the result.
  // kUnsupported: the device has no atomics.
  virtual Result<std::unique_ptr<Atomics>> create_atomics(const Region& region) {
    (void)region;
    return fail(Code::kUnsupported, "this transport has no atomic operations");
  }
  virtual Result<std::unique_ptr<Queue>> create_queue(const QueueOptions& options) = 0;
  // For one reader of the device's events at a time. nullptr: there is no device that could go.
  virtual Result<std::unique_ptr<DeviceWatch>> watch_device() {
    return std::unique_ptr<DeviceWatch>();
  }
  // HOST:PORT, port 0 = any. kConflict: the port is taken. kPermission.
  virtual Result<std::unique_ptr<Listener>> listen(const std::string& address) = 0;
  // Blocks until connected or the deadline. `private_data` at most 56 bytes. kUnreachable: nobody
  // listens; kRejected: `rejection` holds the peer's bytes; kTimeout.
  virtual Result<std::unique_ptr<Connection>> connect(Queue& queue,
                                                      const ConnectionOptions& options,
                                                      const std::string& address,
                                                      Bytes private_data, const Deadline& deadline,
                                                      Rejection* rejection) = 0;
};

struct VerbsOptions {
  std::string device{};   // "" = the device that routes to the address
  std::uint8_t port = 0;  // 0 = any active port
  int gid_index = -1;     // -1 = let the connection manager choose
  // A local or remote address that decides the device when `device` is empty: the server's listen
  // address, the client's server.
  std::string address{};
  int find_ms = 2000;  // finding that device may take so long
};
// kNoDevice, kPermission, kUnsupported: each with a sentence that says what to do.
Result<std::unique_ptr<Transport>> open_verbs(const VerbsOptions& options);

struct ShmOptions {
  // Where servers put their sockets, "shm-PORT.sock"; "" = RKV_SHM_DIR, else /run/rkv for root and
  // /tmp/rkv-UID for everybody else (clients look at both).
  std::string directory{};
  // Of a server: the group, by name or number, whose members may connect as well; "" = none.
  std::string group{};
};
// Shared memory with other processes of this host. Addresses are HOST:PORT as with verbs, HOST a
// name or address of this host (kUnreachable says so when it is not). kPermission: the directory is
// not ours or cannot be written. kInvalidArgument: there is no such group.
Result<std::unique_ptr<Transport>> open_shm(const ShmOptions& options);

}  // namespace rkv::rdma
