// Memory windows: rights for a peer on a part of a region, given and taken back by work requests
// instead of registrations.
//
//   RKV_ASSIGN_OR_RETURN(Window window, Window::allocate(pd, WindowType::kTwo));
//   Batch batch = qp.batch();                      // created with operations ... | kWindowOps
//   const RemoteSpan offered = batch.bind_window(1, OpFlags::kSignaled, window,
//       {.region = &region, .offset = 4096, .length = 512, .access = AccessFlags::kRemoteRead});
//   RKV_RETURN_IF_ERROR(std::move(batch).submit());
//   ... completion 1 ...  window.bind_ended(completion.ok());   // now tell the peer `offered`
//   batch.local_invalidate(2, OpFlags::kSignaled, window);      // and after this one's completion,
//   window.invalidate_ended(completion.ok());                   // the key is refused
//
// The region needs kBindWindow, and no remote flag itself: windows can be the only way in. A window
// of type two is bound through a queue pair and serves this queue pair's peer alone; its key
// changes with each binding. One of type one is bound by a call of its own (bind()) and serves
// every queue pair of the domain. lease.h puts all of it together.
//
// What the device knows changes only when a request completes, hence bind_ended() and
// invalidate_ended(): tell the window what became of each. A batch that was dropped is one that
// failed. After an error, which also ends the queue pair, the window is as it was before.
//
// Life: a bound window must go before its region (whose registration cannot end until then) and
// before its queue pair. The window's end unbinds it, by a system call.
// Thread safety: that of the queue pair.
//
// On SoftRoCE of Linux 6.1 a window does not bound: its key opens the whole region to the peer.
// Destroying a queue pair that has a bound window takes 50 s there. And any peer of the device, of
// whatever process, that invalidates a window of type two that is not bound stops the machine: the
// kernel follows a null pointer. Have none there where peers are not trusted: see WindowSupport.
// Source: ibv_alloc_mw(3), ibv_bind_mw(3), ibv_wr_post(3).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <optional>

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
  std::uint32_t most = 0;  // windows of the device; 0: it has none
  bool type_one = false;
  bool type_two = false;
  // A window of type two keeps peers inside its bounds, and what a peer asks for cannot hurt. Not
  // so on SoftRoCE: use regions of their own there where peers are not trusted.
  bool trustworthy = false;
};
RKV_EXPORT Result<WindowSupport> window_support(const Device& device);

// What a window opens. All of it is checked before anything is posted.
struct WindowRange {
  const MemoryRegion* region = nullptr;  // with kBindWindow; of the window's domain
  std::size_t offset = 0;
  std::size_t length = 0;                         // not 0, inside the region
  AccessFlags access = AccessFlags::kRemoteRead;  // remote flags, as long as the region allows them
};

class RKV_EXPORT Window {
 public:
  enum class State : unsigned char { kUnbound, kBinding, kBound, kInvalidating };

  // kUnsupported naming ibv_alloc_mw where the provider has none.
  static Result<Window> allocate(const ProtectionDomain& pd, WindowType type);
  Window(Window&&) noexcept = default;
  Window& operator=(Window&&) noexcept = default;

  State state() const { return state_; }
  // How often it was bound, failures included. A key's last byte counts bindings: after 256 of them
  // a key comes again that a peer may still know.
  std::uint32_t bindings() const { return bindings_; }
  WindowType type() const { return static_cast<WindowType>(window_->type); }
  // Where it is bound: what the peer uses. Empty otherwise.
  std::optional<RemoteSpan> remote() const {
    if (state_ != State::kBound) return std::nullopt;
    return span_;
  }

  // What became of the request under way. REQUIRES: there is one.
  void bind_ended(bool ok);
  void invalidate_ended(bool ok);
  // A receive completed with WorkCompletion::has_invalidated: true where it was this window's key,
  // which is refused from now on.
  bool invalidated_by_peer(std::uint32_t rkey);

  // Type one: posts the binding, a request like others. As in batches, completion and bind_ended()
  // come later. A new binding replaces the old one, whose key is refused then.
  // REQUIRES: type one, no request under way.
  Result<RemoteSpan> bind(QueuePairBase& qp, std::uint64_t wr_id, OpFlags flags,
                          const WindowRange& range);
  // Type one: binds to nothing; ends with invalidate_ended(). REQUIRES: bound.
  Status unbind(QueuePairBase& qp, std::uint64_t wr_id, OpFlags flags);

  // Unbinds and ends it now, for who wants to see an error: on one nothing has changed. Returns
  // when the device has forgotten the key. Needs neither a living queue pair nor room in its queue.
  // REQUIRES: no binding under way, unless its queue pair may die of it. Nothing but the end of its
  // life and assignment may follow.
  Status deallocate();

  // kInvalidArgument with what is wrong about the range. Batches abort instead.
  Status check(const WindowRange& range) const;

  ibv_mw* raw() const { return window_.get(); }

 private:
  friend class detail::BatchCore;
  struct Deallocate {
    std::shared_ptr<ibv_pd> domain;
    void operator()(ibv_mw* window) const;
  };
  explicit Window(std::unique_ptr<ibv_mw, Deallocate> window) : window_(std::move(window)) {}
  // Marks the binding as under way; its key differs from the last one.
  RemoteSpan begin_bind(const WindowRange& range);
  void begin_invalidate();

  std::unique_ptr<ibv_mw, Deallocate> window_;
  State state_ = State::kUnbound;
  RemoteSpan span_;
  ibv_mr* region_ = nullptr;  // of the last binding
  std::uint32_t bindings_ = 0;
  // To go back to where a binding fails. One of type one may have been bound, and still is.
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
