// Leases: a peer's access to a part of local memory, which the program can revoke. A lease may have
// an expiry time, which the program checks.
//
//   RKV_ASSIGN_OR_RETURN(Lessor lessor, Lessor::create(pd, qp, cq, region, {.others = handler}));
//   RKV_ASSIGN_OR_RETURN(Lease lease, lessor.grant({.offset = 0, .length = 4096,
//       .expires_at = clock.now() + kNanosPerSecond}, deadline));
//   send(peer, lease.remote());
//   ... when lease.expired(clock.now()):
//   RKV_RETURN_IF_ERROR(lessor.rotate(lease, later, deadline));   // another key, same bytes; or
//   RKV_RETURN_IF_ERROR(lessor.revoke(lease, deadline));          // no key at all
//
// The guarantee: after revoke() or rotate() has returned, even with an error, the old key is
// refused. Data written to the memory from then on does not reach the peer by a request with the
// old key. A peer that still uses the key loses its connection, because a refused request ends it.
//
// Implementation: each lease has a memory window of type two, which gives no access to other
// connections. Without windows, each lease has its own registration. Other connections of the same
// protection domain could use a guessed key, so create a domain for each tenant. A lease never
// widens: its range and rights are fixed by grant(). The region itself needs no remote flag.
//
// A lessor belongs to one queue pair and waits for its own requests on the queue pair's send
// completion queue; other completions are passed to `others`. It needs one send slot. A window
// costs a request to the adapter and is reused (not on SoftRoCE, see kRequireWindows). A
// registration costs system calls.
//
// Thread safety: one thread, the queue pair's. Queue pair, completion queue and region must outlive
// the lessor, and the lessor its leases. Destroying a lease revokes it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "rkv/clock.h"
#include "rkv/export.h"
#include "rkv/rdma/completion.h"
#include "rkv/rdma/queue_pair.h"
#include "rkv/rdma/window.h"
#include "rkv/result.h"

namespace rkv::rdma {

enum class LeasePolicy : unsigned char {
  kAuto,  // windows if the device confines peers to them, else registrations
  // Windows, or kUnsupported if there are none. On SoftRoCE windows are weak: they open the whole
  // region, and a packet being copied while its key ends is still sent. A peer can also crash this
  // machine by a SEND with invalidate of an unbound window (window.h). So none is kept unbound
  // there: a lease's window is bound from the return of grant() until the lease ends, then
  // deallocated. Two risks remain: the time within grant(), and a peer that sends with invalidate
  // of its own key twice. Use it for tests and trusted peers.
  kRequireWindows,
  kDisableWindows,
};

struct LessorOptions {
  LeasePolicy policy = LeasePolicy::kAuto;
  // Receives completions on the queue that are not the lessor's. REQUIRED: they would be lost.
  std::function<void(const WorkCompletion&)> others = nullptr;
  // The upper half of the wr_ids of the lessor's requests; no other request may use it.
  std::uint32_t wr_id_tag = 0x4C45'4153;
};

struct LeaseTerms {
  std::size_t offset = 0;  // in the lessor's region
  std::size_t length = 0;
  AccessFlags access = AccessFlags::kRemoteRead;
  // Reported by expired(); nothing happens automatically.
  std::optional<Nanos> expires_at = std::nullopt;
};

namespace detail {
struct LessorState;
}

class RKV_EXPORT Lease {
 public:
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&& other) noexcept;
  ~Lease();  // revokes, by system calls

  // The span that the peer may use; of length 0 once the lease has ended.
  const RemoteSpan& remote() const { return span_; }
  bool live() const { return window_.has_value() || region_.has_value(); }
  bool expired(Nanos now) const { return terms_.expires_at && now >= *terms_.expires_at; }
  const LeaseTerms& terms() const { return terms_; }
  bool is_window() const { return window_.has_value(); }

 private:
  friend class Lessor;
  explicit Lease(const LeaseTerms& terms) : terms_(terms) {}
  Status end();  // by means that need no queue pair

  LeaseTerms terms_;
  RemoteSpan span_;
  std::optional<Window> window_;
  std::optional<MemoryRegion> region_;
};

class RKV_EXPORT Lessor {
 public:
  // kUnsupported: see LeasePolicy. kInvalidArgument if `others` is missing or the flags of the
  // region or the queue pair do not suffice: windows need kBindWindow on the region and a queue
  // pair with kWindowOps.
  static Result<Lessor> create(const ProtectionDomain& pd, QueuePair& qp, CompletionQueue& sends,
                               const MemoryRegion& region, const LessorOptions& options);
  Lessor(Lessor&&) noexcept;
  Lessor& operator=(Lessor&&) noexcept;
  ~Lessor();

  // Grants a lease. Returns once the key is valid, so it may be sent by any means.
  // kInvalidArgument: the terms reach outside the region or exceed its rights. kTimeout,
  // kDisconnected: the queue pair did not complete the request; nothing is granted.
  Result<Lease> grant(const LeaseTerms& terms, const Deadline& deadline);
  // Revokes a lease. Returns once the old key is refused. An error means that the device did not
  // end the access to the key. The queue pair has then been moved to the error state, which ends
  // the peer's access. No effect on an ended lease. The deadline bounds the wait for an
  // invalidation; without one, or if it fails, a system call ends the access.
  Status revoke(Lease& lease, const Deadline& deadline);
  // As revoke(), and then grants the same bytes under another key. After an error the lease has
  // ended.
  Status rotate(Lease& lease, std::optional<Nanos> expires_at, const Deadline& deadline);

  bool uses_windows() const;
  // The number of unbound windows kept for reuse. Always 0 where unbound windows are dangerous: see
  // kRequireWindows.
  std::size_t spare_windows() const;

 private:
  explicit Lessor(std::unique_ptr<detail::LessorState> state);
  Status bind(Lease& lease, const Deadline& deadline);
  Status invalidate(Lease& lease, const Deadline& deadline);
  std::unique_ptr<detail::LessorState> state_;
};

}  // namespace rkv::rdma
