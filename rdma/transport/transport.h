// The transport seam: what the store needs from a network that can READ remote memory.
//
// The server and the client use the network only through these classes. Three backends implement
// them: verbs (RC queue pairs), shm (shared memory) and tcp; tests have a simulated one. Calls are
// batch-grained: one virtual call posts or polls many operations.
//
//   Transport   a device and its protection domain: registers memory, connects, listens
//   Region      registered memory
//   Atomics     atomic changes by this process to words that peers change too
//   Queue       delivers completions and received messages; owned by one thread
//   Connection  a reliable, ordered link to one peer; bound to one Queue for life
//   Listener    yields Incoming connection requests, to be accepted on a Queue or rejected
//   DeviceWatch reports state changes of the device (reopening/transport.h survives its loss)
//
// Meaning of a completion:
//   kRead, kCompareSwap, kFetchAdd: the data has arrived in the local buffer. When and in which
//       order the remote memory was accessed is undefined.
//   kSend: the local buffer may be reused and the message is in the peer's receive buffer; over TCP
//       and iWARP it is on its way there.
// No completion means "durable".
//
// Threads: Transport is thread-safe. A Queue and every Connection bound to it are used by one
// thread at a time. Only Queue::wake(), Queue::connections() and Connection::abort() may be called
// by any thread. A Listener is used by one thread, which may differ from the queues' threads.
//
// Lifetime: Connections and Regions keep alive the parts of their Transport that they need. Destroy
// Connections before their Queue. A registered buffer named in a posted operation must stay valid
// until that operation's completion has been polled or its Connection has been destroyed. Until
// then no other READ or atomic may have a destination that overlaps.
//
// Fork: a child must neither use nor destroy inherited objects. Its copies of connections' sockets
// lead nowhere (socket_at_fork.h), so peers notice the end of the parent.
//
// A function blocks only if its comment says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "common/bytes.h"
#include "common/clock.h"
#include "rkv/fork.h"
#include "rkv/result.h"

namespace rkv::rdma {

// Remote access that peers have to a region. No peer can write a region with a remote WRITE.
enum class Access : std::uint8_t {
  kLocal,             // none
  kRemoteRead,        // READ
  kRemoteReadAtomic,  // READ, compare-and-swap, fetch-and-add
};

// Memory registered with the device. Destroying the Region ends remote access.
class Region {
 public:
  virtual ~Region() = default;
  virtual MutableBytes bytes() const = 0;  // page-aligned if the transport allocated it
  virtual std::uint32_t local_key() const = 0;
  virtual std::uint32_t remote_key() const = 0;  // 0 for Access::kLocal
  // The address that peers name: the address of bytes().data().
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(bytes().data()); }
};

// Atomic changes to words of this process's Access::kRemoteReadAtomic regions, atomic with respect
// to the peers' atomics. Processor instructions do not suffice: an adapter may perform the peers'
// atomics elsewhere. Do not store to these words by other means while peers can reach them.
//
// Any thread; calls are serialized. Blocks for a round trip inside the device. Must not outlive the
// regions of its Transport.
class Atomics {
 public:
  virtual ~Atomics() = default;
  // Both return the word's old value. REQUIRES: `word` is 8-byte aligned and inside the region
  // given to create_atomics(). kInternal: the device failed and the word may or may not have
  // changed; the next call tries again.
  virtual Result<std::uint64_t> fetch_add(std::uint64_t* word, std::uint64_t addend) = 0;
  virtual Result<std::uint64_t> compare_swap(std::uint64_t* word, std::uint64_t expected,
                                             std::uint64_t desired) = 0;
};

// A work request. Build it with the factories; `context` is returned in the Completion.
struct Operation {
  enum class Kind : std::uint8_t { kRead, kCompareSwap, kFetchAdd, kSend };
  Kind kind = Kind::kRead;
  // kSend only: post() copies the bytes, so `local` need not be registered and may be reused when
  // post() returns. At most Connection::limits().inline_bytes.
  bool inline_data = false;
  // Whether success is reported; a failure always is. The buffer of an unsignaled operation may be
  // reused once a later signaled operation of the same Connection has completed.
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
    kReceive,       // a message; `message` points into a receive buffer, return it with release()
    kDisconnected,  // exactly once per Connection, after its last completion
  };
  Kind kind = Kind::kRead;
  // kOk: done.
  // kRemoteAccess: the peer refused the address, key or operation (Transport::tells_refusals).
  // kFlushed: the connection died before this operation ran.
  // kFailed: any other failure (peer lost, local error).
  // After any status but kOk the connection is dead and kDisconnected follows.
  enum class Status : std::uint8_t { kOk, kRemoteAccess, kFlushed, kFailed };
  Status status = Status::kOk;
  std::uint8_t provider_status = 0;  // ibv_wc_status, for a log line
  Connection* connection = nullptr;
  std::uint64_t context = 0;         // of the Operation; 0 for kReceive and kDisconnected
  Bytes message{};                   // kReceive
  std::uint32_t receive_buffer = 0;  // kReceive: the argument for release()
};
const char* to_string(Completion::Status status);
// The Completion::Kind of an operation: the first four kinds are those of Operation.
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
  std::uint32_t reads_in_flight;  // outstanding READs and atomics that the peers negotiated, >= 1
  std::uint32_t sends_in_flight;  // operations of any kind posted and not yet completed
  std::uint32_t inline_bytes;     // largest inline send
  bool reads_at_once = false;     // read_at_once() may succeed
};

class Connection {
 public:
  virtual ~Connection() = default;  // drains the connection; local buffers are free afterwards

  // Posts the batch in order with one doorbell. Returns how many operations were accepted: all, or
  // fewer when sends_in_flight is reached (poll the queue, then post the rest). More READs and
  // atomics than reads_in_flight may be posted; the device delays them. kDisconnected: the
  // connection is dead. kUnsupported: the batch has an atomic and the transport has none
  // (Transport::has_atomics); nothing was posted. Never blocks.
  virtual Result<std::size_t> post(std::span<const Operation> batch) = 0;

  // Performs a READ synchronously, without a completion. Works only where READs are copies
  // (ConnectionLimits::reads_at_once) and no earlier posted operation is pending. Returns false if
  // the READ was not done; then post() it.
  virtual bool read_at_once(MutableBytes /*to*/, std::uint64_t /*remote_address*/,
                            std::uint32_t /*remote_key*/) {
    return false;
  }
  // Hint that read_at_once() of `length` bytes follows soon. May do nothing.
  virtual void prefetch(std::uint64_t /*remote_address*/, std::uint32_t /*remote_key*/,
                        std::size_t /*length*/) {}

  virtual ConnectionLimits limits() const = 0;
  virtual Bytes private_data() const = 0;       // sent by the peer in its request or accept, padded
  virtual const std::string& peer() const = 0;  // "192.0.2.1:54321", for log lines
  virtual bool alive() const = 0;
  // Number of bytes sent and received so far, if they pass the processor; else 0. It shows whether
  // a long operation makes progress.
  virtual std::uint64_t bytes_passed() const { return 0; }

  // Ends the connection: outstanding operations complete as kFlushed, then kDisconnected arrives on
  // the queue. Any thread; idempotent.
  virtual void abort() = 0;

  // For the user of the connection: the store object that it belongs to.
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

  // Fills `out` with completions that have arrived. Returns how many. Never blocks.
  virtual std::size_t poll(std::span<Completion> out) = 0;
  // Blocks until poll() may return something, wake() was called or the deadline passed. Also
  // returns if poll() freed capacity for post() without returning a completion (unsignaled
  // operations completed). Spurious wake-ups are possible; wake-ups are never lost. Spins or sleeps
  // as QueueOptions::poll says.
  virtual void wait(const Deadline& deadline) = 0;
  // Whether wait() sleeps at once at present, because spinning has not helped lately. Then each
  // event that is awaited alone costs a wake-up: many threads share the processors, or peers are
  // slow.
  virtual bool waits_asleep() const { return false; }
  // Makes the current or the next wait() return. Any thread.
  virtual void wake() = 0;
  // Returns receive buffers to the device; batch them. Must be called for every kReceive.
  virtual void release(std::span<const std::uint32_t> receive_buffers) = 0;

  // ---- loss of the device

  // 0 if no connection is bound to the queue, else more than 0. Connections that are being set up
  // or torn down count. Any thread.
  virtual std::size_t connections() const { return 0; }
  // Call when the device no longer responds. Every connection bound to this queue, now or later,
  // ends without the device: outstanding operations complete as kFlushed, then kDisconnected
  // arrives. Idempotent.
  virtual void abandon() {}

  // ---- the steps of wait(), for wait_any()

  // Whether wait() would return at once. As in wait(), a reason that poll() does not return as a
  // completion (wake(), freed capacity) is reported once.
  virtual bool is_ready() { return true; }
  // Prepares to sleep. Returns a descriptor that is readable, until end_sleep(), whenever wait()
  // would return. Returns nullopt if wait() would return at once or the queue has no descriptor.
  virtual std::optional<int> begin_sleep() { return std::nullopt; }
  // Call after each begin_sleep() that returned a descriptor.
  virtual void end_sleep() {}
};

// Queue::wait() for several queues of one thread, of one transport or several: blocks until one of
// them has a reason to return, or the deadline passes, or for half a second. Spins or sleeps as
// `mode` says. Returns at once if a queue does not implement is_ready(). REQUIRES: at most
// kMostQueues queues.
inline constexpr std::size_t kMostQueues = 64;
void wait_any(std::span<Queue* const> queues, PollMode mode, const Deadline& deadline);

struct QueueOptions {
  std::uint32_t completions = 4096;     // total completions that may be outstanding
  std::uint32_t receive_buffers = 256;  // shared by the connections of this queue
  std::uint32_t receive_bytes = 4096;   // size of each: the longest message that can arrive
  PollMode poll = PollMode::kAdaptive;
};

struct ConnectionOptions {
  std::uint32_t sends_in_flight = 256;
  std::uint32_t inline_bytes = 256;
  // The longest message that will be sent over the connection; 0 = as long as the peer accepts.
  // Over shared memory the accepting side allocates memory of this size, so a server sets a bound.
  std::uint32_t send_bytes = 0;
  // The peer's rights, over this connection, on those of our regions that allow such access. Over
  // shared memory, the connecting side grants kRemoteRead at most. With kRemoteRead the peer may
  // not even READ regions with atomics over shared memory.
  Access grant = Access::kLocal;
  // Whether the peer grants kRemoteRead. Then the end of its host is noticed within 3 s even if
  // nothing is in flight, as long as the queue is polled or waited for. On iWARP only the side that
  // connected notices it, from its first READ on. Without such a grant, the next operation notices
  // a host that ended silently.
  bool peer_grants_reads = false;
};

// A connection request. Destroying it without an answer rejects it.
class Incoming {
 public:
  virtual ~Incoming() = default;
  virtual Bytes private_data() const = 0;  // 56 bytes, padded with zeros
  virtual const std::string& peer() const = 0;
  // Our own address, as the peer called it; the peer has the same text in Rejection::called. It has
  // no host name, since several names may mean one address.
  virtual std::string called() const = 0;
  // Accepts with at most 196 bytes of private data. The connection is usable at once; its first
  // receive may arrive before this returns. kDisconnected: the peer has disconnected meanwhile.
  // kNoDevice: the request came over another device than the transport's. After an error the
  // request may still be rejected. Blocks for one round trip, until the deadline at most.
  virtual Result<std::unique_ptr<Connection>> accept(Queue& queue, const ConnectionOptions& options,
                                                     Bytes private_data,
                                                     const Deadline& deadline) = 0;
  virtual void reject(Bytes reason) = 0;  // at most 148 bytes
};

class Listener {
 public:
  virtual ~Listener() = default;
  // Returns the next request, or nullptr when the deadline passed or wake() was called. Blocks.
  virtual Result<std::unique_ptr<Incoming>> next(const Deadline& deadline) = 0;
  virtual void wake() = 0;                 // any thread
  virtual std::uint16_t port() const = 0;  // the bound port, also when port 0 was requested
};

// The peer's reason when connect() fails with kRejected.
struct Rejection {
  std::size_t length = 0;
  std::byte reason[148] = {};
  std::string called{};  // the address that was called, as Incoming::called()
};

// One state change of a device.
struct DeviceEvent {
  enum class Kind : std::uint8_t {
    kNothing,  // the deadline has passed, or wake() was called
    kWell,     // it can carry traffic
    kDown,     // present but carries no traffic: its port is down or its address is missing
    kLost,     // removed or broken: nothing created from it works any more
  };
  Kind kind = Kind::kNothing;
  std::string what{};  // a sentence without a full stop
};

// Reads the events of a device. Destroy it before its Transport. One thread, except wake().
class DeviceWatch {
 public:
  virtual ~DeviceWatch() = default;
  virtual DeviceEvent next(const Deadline& deadline) = 0;
  virtual void wake() = 0;  // any thread
};

class Transport {
 public:
  virtual ~Transport() = default;
  // Whether this is a child of the process that opened it.
  bool is_inherited() const { return made_.is_inherited(); }
  virtual std::string describe() const = 0;  // "verbs: rxe0 port 1 gid 1 (RoCE v2, 192.0.2.1)"

  // Whether receive buffers occupy their full length in memory even when unused. True if the device
  // writes into them: they are then registered, and registered memory is pinned.
  virtual bool pins_receive_buffers() const { return true; }
  // Whether its connections can carry atomics. If not, posting one fails (Connection::post).
  virtual bool has_atomics() const { return true; }
  // Whether an operation that the peer refuses completes as kRemoteAccess. If not, it completes as
  // kFlushed, as at any other end of the connection, and its poster cannot tell the two apart.
  virtual bool tells_refusals() const { return true; }
  // Whether ConnectionOptions::grant is enforced. If not, the peer may do to a region what the
  // region's own access allows.
  virtual bool enforces_grants() const { return true; }

  // Allocates zeroed, page-aligned memory. kOutOfMemory names the locked-memory limit if that is
  // the cause.
  virtual Result<std::unique_ptr<Region>> allocate(std::size_t length, Access access) = 0;
  // Registers whole pages of the caller's memory, which must outlive the region. The keys are
  // specific to this transport. Lets one server expose the same pages over shm and verbs: allocate
  // over shm, attach over verbs. kUnsupported: this transport cannot.
  virtual Result<std::unique_ptr<Region>> attach(MutableBytes memory, Access access) {
    (void)memory, (void)access;
    return fail(Code::kUnsupported, "this transport cannot register memory that is there already");
  }
  // REQUIRES: `region` belongs to this transport, has Access::kRemoteReadAtomic and outlives the
  // result. kUnsupported: the device has no atomics.
  virtual Result<std::unique_ptr<Atomics>> create_atomics(const Region& region) {
    (void)region;
    return fail(Code::kUnsupported, "this transport has no atomic operations");
  }
  virtual Result<std::unique_ptr<Queue>> create_queue(const QueueOptions& options) = 0;
  // At most one watch at a time. Returns nullptr if there is no device that could be lost.
  virtual Result<std::unique_ptr<DeviceWatch>> watch_device() {
    return std::unique_ptr<DeviceWatch>();
  }
  // Listens on HOST:PORT, port 0 = any. kConflict: the port is taken. kPermission.
  virtual Result<std::unique_ptr<Listener>> listen(const std::string& address) = 0;
  // Blocks until connected, or until the deadline. `private_data` has at most 56 bytes.
  // kUnreachable: nobody listens. kRejected: `rejection` holds the peer's bytes. kTimeout.
  virtual Result<std::unique_ptr<Connection>> connect(Queue& queue,
                                                      const ConnectionOptions& options,
                                                      const std::string& address,
                                                      Bytes private_data, const Deadline& deadline,
                                                      Rejection* rejection) = 0;

 private:
  const ForkGuard made_;
};

struct VerbsOptions {
  std::string device{};   // "" = the device that routes to the address
  std::uint8_t port = 0;  // 0 = any active port
  int gid_index = -1;     // -1 = let the connection manager choose
  // A local or remote address that decides the device when `device` is empty: the server's listen
  // address, or the address that the client connects to.
  std::string address{};
  int find_ms = 2000;  // time limit for finding that device
};
// Opens a device. kNoDevice, kPermission, kUnsupported: each with a sentence that says what to do.
Result<std::unique_ptr<Transport>> open_verbs(const VerbsOptions& options);

struct ShmOptions {
  // Where servers create their sockets, "shm-PORT.sock". "" = RKV_SHM_DIR, else /run/rkv for root
  // and /tmp/rkv-UID for other users (clients try both).
  std::string directory{};
  // Server only: the group, by name or number, whose members may also connect; "" = none.
  std::string group{};
};
// Shared memory with other processes of this host. Addresses are HOST:PORT as with verbs, where
// HOST is a name or address of this host; else kUnreachable. kPermission: the directory is not ours
// or cannot be written. kInvalidArgument: there is no such group.
Result<std::unique_ptr<Transport>> open_shm(const ShmOptions& options);
// Whether a server of this host has a socket for the port of HOST:PORT that this process's user may
// open. Blocks until the deadline at most.
bool listens_over_shm(const ShmOptions& options, const std::string& address,
                      const Deadline& deadline);

// TCP, for hosts without RDMA: a thread of each process answers its peers' READs and atomics as an
// adapter would, within the same bounds. READs cost processor time of both hosts.
Result<std::unique_ptr<Transport>> open_tcp();
// Whether something listens at the address. Blocks until the deadline at most.
bool listens_over_tcp(const std::string& address, const Deadline& deadline);

}  // namespace rkv::rdma
