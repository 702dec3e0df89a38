// Leases: a peer's access to a piece of our memory that ends when we say so, or at a time.
//
//   RKV_ASSIGN_OR_RETURN(Lessor lessor, Lessor::create(pd, qp, cq, region, {.others = handler}));
//   RKV_ASSIGN_OR_RETURN(Lease lease, lessor.grant({.offset = 0, .length = 4096,
//       .expires_at = clock.now() + kNanosPerSecond}, deadline));
//   tell(peer, lease.remote());
//   ... when lease.expired(clock.now()):
//   RKV_RETURN_IF_ERROR(lessor.rotate(lease, later, deadline));   // another key, same bytes; or
//   RKV_RETURN_IF_ERROR(lessor.revoke(lease, deadline));          // no key at all
//
// The promise: after revoke() or rotate() has returned, whatever it returned, the old key is
// refused; what is written to the memory from then on, no request under the old key brings to the
// peer. A peer that tries all the same loses its connection: that is how devices refuse.
//
// How: with a memory window of type two for each lease, which opens nothing to any other
// connection; or, where there are none, with a registration of its own for each lease, whose key
// other connections of the same protection domain could use if they guessed it. Then give each
// tenant a domain. Leases never widen: the region itself needs no remote flag.
//
// A lessor belongs to one queue pair and waits for its own requests on the queue pair's send
// queue; completions that are not its own go to `others`. It needs one place in the send queue.
// Windows cost a request to the adapter, and are used again (not on SoftRoCE, see kRequireWindows);
// registrations cost system calls.
//
// Thread safety: one thread, the queue pair's. The lessor lives shorter than queue pair, completion
// queue and region; its leases live shorter than the lessor, and their end revokes them.
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
  kAuto,  // windows where the device keeps peers inside them, else registrations
  // kUnsupported where there are none. On SoftRoCE they open the whole region, one packet that is
  // being copied while its key ends is still sent, and a peer can stop this machine: by a SEND with
  // invalidate of a window that is not bound (window.h). So none is kept unbound there: a lease's
  // window is bound from the moment grant() returns until its end, and then gone. What is left: the
  // time within grant(), and a peer that sends with invalidate of its own key twice. For tests, and
  // peers that are trusted.
  kRequireWindows,
  kDisableWindows,
};

struct LessorOptions {
  LeasePolicy policy = LeasePolicy::kAuto;
  // Completions on the queue that are not the lessor's. REQUIRED: they would be lost.
  std::function<void(const WorkCompletion&)> others = nullptr;
  // The upper half of the wr_ids of the lessor's requests; no other request may have it.
  std::uint32_t wr_id_tag = 0x4C45'4153;
};

struct LeaseTerms {
  std::size_t offset = 0;  // in the lessor's region
  std::size_t length = 0;
  AccessFlags access = AccessFlags::kRemoteRead;
  std::optional<Nanos> expires_at = std::nullopt;  // told by expired(); nothing happens by itself
};

namespace detail {
struct LessorState;
}

class RKV_EXPORT Lease {
 public:
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&& other) noexcept;
  ~Lease();  // revokes, by system calls

  // What the peer may use; of length 0 once it has ended.
  const RemoteSpan& remote() const { return span_; }
  bool live() const { return window_.has_value() || region_.has_value(); }
  bool expired(Nanos now) const { return terms_.expires_at && now >= *terms_.expires_at; }
  const LeaseTerms& terms() const { return terms_; }
  bool is_window() const { return window_.has_value(); }

 private:
  friend class Lessor;
  explicit Lease(const LeaseTerms& terms) : terms_(terms) {}
  Status end();  // by the means that need no queue pair

  LeaseTerms terms_;
  RemoteSpan span_;
  std::optional<Window> window_;
  std::optional<MemoryRegion> region_;
};

class RKV_EXPORT Lessor {
 public:
  // kUnsupported as the policy says; kInvalidArgument where `others` is missing or the region's
  // flags do not fit: windows need kBindWindow on it, and a queue pair with kWindowOps.
  static Result<Lessor> create(const ProtectionDomain& pd, QueuePair& qp, CompletionQueue& sends,
                               const MemoryRegion& region, const LessorOptions& options);
  Lessor(Lessor&&) noexcept;
  Lessor& operator=(Lessor&&) noexcept;
  ~Lessor();

  // Returns when the key is good, so that it may be told by any way. kInvalidArgument: the terms
  // reach outside the region, or ask for more than it can give. kTimeout, kDisconnected: the queue
  // pair did not do it; nothing is granted.
  Result<Lease> grant(const LeaseTerms& terms, const Deadline& deadline);
  // Returns when the old key is refused. An error tells that the device did not even do that: the
  // queue pair has been ended then, and so the peer's access with it. Again on one that has ended:
  // nothing. The deadline bounds the quick way; the sure way behind it is a system call.
  Status revoke(Lease& lease, const Deadline& deadline);
  // As revoke(), and then the same bytes under another key. After an error the lease has ended.
  Status rotate(Lease& lease, std::optional<Nanos> expires_at, const Deadline& deadline);

  bool uses_windows() const;
  // Windows that are kept unbound to be bound again. 0 where that is dangerous: kRequireWindows.
  std::size_t spare_windows() const;

 private:
  explicit Lessor(std::unique_ptr<detail::LessorState> state);
  Status bind(Lease& lease, const Deadline& deadline);
  Status invalidate(Lease& lease, const Deadline& deadline);
  std::unique_ptr<detail::LessorState> state_;
};

}  // namespace rkv::rdma
