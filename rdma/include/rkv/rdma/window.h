// Memory windows: a peer's access rights to a part of a region, granted and revoked by work
// requests instead of registrations.
//
//   RKV_ASSIGN_OR_RETURN(Window window, Window::allocate(pd, WindowType::kTwo));
//   Batch batch = qp.batch();                      // created with operations ... | kWindowOps
//   const RemoteSpan offered = batch.bind_window(1, OpFlags::kSignaled, window,
//       {.region = &region, .offset = 4096, .length = 512, .access = AccessFlags::kRemoteRead});
//   RKV_RETURN_IF_ERROR(std::move(batch).submit());
//   ... completion 1 ...  window.bind_ended(completion.ok());   // now send `offered` to the peer
//   batch.local_invalidate(2, OpFlags::kSignaled, window);      // and after its completion
//   window.invalidate_ended(completion.ok());                   // the key is refused
//
// The region needs kBindWindow and no remote flag: windows can be the only remote access. A window
// of type two is bound through a queue pair and serves only this queue pair's peer; its key changes
// with each binding. A window of type one is bound by a separate call (bind()) and serves every
// queue pair of the domain. lease.h manages windows for a connection.
//
// The device's state changes only when a request completes. So report the result of each request
// with bind_ended() or invalidate_ended(). A dropped batch counts as failed. After an error, which
// also ends the queue pair, the window is in its previous state.
//
// Lifetime: destroy a bound window before its region (whose registration cannot end earlier) and
// before its queue pair. The destructor unbinds it with a system call. Thread safety: as the queue
// pair.
//
// On SoftRoCE of Linux 6.1 a window does not enforce its bounds: its key opens the whole region to
// the peer. Destroying a queue pair that has a bound window takes 50 s there. Any peer connected to
// any process on the device can crash the machine by invalidating an unbound window of type two:
// the kernel dereferences a null pointer. Do not use windows there with untrusted peers: see
// WindowSupport. Source: ibv_alloc_mw(3), ibv_bind_mw(3), ibv_wr_post(3).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "rkv/export.h"
#include "rkv/rdma/flags.h"
#include "rkv/rdma/memory.h"
#include "rkv/result.h"

namespace rkv::rdma {

class QueuePairBase;
namespace detail {
class BatchCore;
}

enum class WindowType : unsigned char { kOne = IBV_MW_TYPE_1, kTwo = IBV_MW_TYPE_2 };

struct WindowSupport {
  std::uint32_t most = 0;  // number of windows of the device; 0: not supported
  bool type_one = false;
  bool type_two = false;
  // A window of type two confines peers to its bounds, and no request of a peer can do harm. False
  // on SoftRoCE: use separate regions there for untrusted peers.
  bool trustworthy = false;
};
RKV_EXPORT Result<WindowSupport> window_support(const Device& device);

// The part and rights that a window grants. All fields are checked before anything is posted.
struct WindowRange {
  const MemoryRegion* region = nullptr;  // has kBindWindow; of the window's domain
  std::size_t offset = 0;
  std::size_t length = 0;  // not 0, inside the region
  // Remote flags; the region must allow them.
  AccessFlags access = AccessFlags::kRemoteRead;
};

class RKV_EXPORT Window {
 public:
  enum class State : unsigned char { kUnbound, kBinding, kBound, kInvalidating };

  // kUnsupported naming ibv_alloc_mw if the provider has no windows.
  static Result<Window> allocate(const ProtectionDomain& pd, WindowType type);
  Window(Window&&) noexcept = default;
  Window& operator=(Window&&) noexcept = default;

  State state() const { return state_; }
  // The number of bindings, failures included. The last byte of a key counts bindings. So after 256
  // of them a key repeats, which a peer may still have.
  std::uint32_t bindings() const { return bindings_; }
  WindowType type() const { return static_cast<WindowType>(window_->type); }
  // The span for the peer if the window is bound; empty otherwise.
  std::optional<RemoteSpan> remote() const {
    if (state_ != State::kBound) return std::nullopt;
    return span_;
  }

  // Record the result of the outstanding request. REQUIRES: there is one.
  void bind_ended(bool ok);
  void invalidate_ended(bool ok);
  // Call when a receive completes with WorkCompletion::has_invalidated. Returns true if it was this
  // window's key, which is refused from now on.
  bool invalidated_by_peer(std::uint32_t rkey);

  // Type one: posts the binding as a request. As in batches, completion and bind_ended() come
  // later. A new binding replaces the old one, whose key is then refused. REQUIRES: type one, no
  // request outstanding.
  Result<RemoteSpan> bind(QueuePairBase& qp, std::uint64_t wr_id, OpFlags flags,
                          const WindowRange& range);
  // Type one: removes the binding; ends with invalidate_ended(). REQUIRES: bound.
  Status unbind(QueuePairBase& qp, std::uint64_t wr_id, OpFlags flags);

  // Unbinds and deallocates the window now, for callers that need the error; on an error nothing
  // has changed. Returns once the device refuses the key. Needs neither a working queue pair nor a
  // free slot in its queue. Afterwards the window may only be destroyed or assigned to. REQUIRES:
  // no binding is outstanding, unless its queue pair may fail because of it.
  Status deallocate();

  // kInvalidArgument names the fault of the range. Batches abort instead.
  Status check(const WindowRange& range) const;

  ibv_mw* raw() const { return window_.get(); }

 private:
  friend class detail::BatchCore;
  struct Deallocate {
    std::shared_ptr<ibv_pd> domain;
    void operator()(ibv_mw* window) const;
  };
  explicit Window(std::unique_ptr<ibv_mw, Deallocate> window) : window_(std::move(window)) {}
  // Marks the binding as outstanding; its key differs from the last one.
  RemoteSpan begin_bind(const WindowRange& range);
  void begin_invalidate();

  std::unique_ptr<ibv_mw, Deallocate> window_;
  State state_ = State::kUnbound;
  RemoteSpan span_;
  ibv_mr* region_ = nullptr;  // region of the last binding
  std::uint32_t bindings_ = 0;
  // The state to restore when a binding fails. A type-one window may have been bound before, and
  // stays bound.
  struct Before {
    State state = State::kUnbound;
    RemoteSpan span;
    ibv_mr* region = nullptr;
    std::uint32_t key = 0;
  };
  Before before_;
  void go_back();
};

}  // namespace rkv::rdma
