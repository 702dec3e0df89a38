#include "rkv/rdma/lease.h"

#include <array>
#include <utility>
#include <vector>

#include "rkv/rdma/error.h"

namespace rkv::rdma {
namespace {

// The most unbound windows kept for reuse. None is kept where a peer that invalidates an unbound
// window crashes the kernel (window.h).
constexpr std::size_t kSpareWindows = 64;
// After 256 bindings a window's first key would repeat, and a peer may still know it.
constexpr std::uint32_t kMaxBindings = 255;

}  // namespace

namespace detail {

struct LessorState {
  ProtectionDomain domain;
  QueuePair& qp;
  CompletionQueue& sends;
  const MemoryRegion& region;
  LessorOptions options;
  bool windows = false;
  std::uint32_t sequence = 0;
  std::size_t most_spare = 0;
  std::vector<Window> spare;  // unbound; capacity is reserved

  LessorState(const ProtectionDomain& pd, QueuePair& queue_pair, CompletionQueue& queue,
              const MemoryRegion& memory, LessorOptions wanted)
      : domain(pd.share()),
        qp(queue_pair),
        sends(queue),
        region(memory),
        options(std::move(wanted)) {}

  std::uint64_t next_wr_id() { return std::uint64_t{options.wr_id_tag} << 32 | ++sequence; }
  bool is_ours(std::uint64_t wr_id) const { return wr_id >> 32 == options.wr_id_tag; }

  // Waits for one of the lessor's requests. An earlier request that was abandoned may complete
  // meanwhile.
  Status wait(std::uint64_t wr_id, const char* operation, const Deadline& deadline) {
    for (;;) {
      std::array<WorkCompletion, 16> some;
      RKV_ASSIGN_OR_RETURN(const std::size_t found, sends.wait(some, deadline));
      if (found == 0) {
        return fail(Code::kTimeout, "the queue pair did not complete a lease's request in time");
      }
      std::optional<Status> ours;
      for (const WorkCompletion& one : std::span(some).first(found)) {
        if (one.wr_id == wr_id) {
          ours = one.ok() ? Status() : Status(std::unexpected(wc_error(operation, one.status)));
        } else if (!is_ours(one.wr_id)) {
          options.others(one);
        }
      }
      if (ours) return *ours;
    }
  }
};

}  // namespace detail

Lease::Lease(Lease&& other) noexcept
    : terms_(other.terms_),
      span_(std::exchange(other.span_, {})),
      window_(std::exchange(other.window_, std::nullopt)),
      region_(std::exchange(other.region_, std::nullopt)) {}

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  report_teardown(end());
  terms_ = other.terms_;
  span_ = std::exchange(other.span_, {});
  window_ = std::exchange(other.window_, std::nullopt);
  region_ = std::exchange(other.region_, std::nullopt);
  return *this;
}

Lease::~Lease() {
  report_teardown(end());
}

// Deallocating a window and deregistering are kernel calls that return once the device no longer
// knows the key. They need neither a working queue pair nor a free slot in its queue.
Status Lease::end() {
  span_ = {};
  if (window_) RKV_RETURN_IF_ERROR(window_->deallocate());
  if (region_) RKV_RETURN_IF_ERROR(region_->deregister());
  window_.reset();
  region_.reset();
  return {};
}

Lessor::Lessor(std::unique_ptr<detail::LessorState> state) : state_(std::move(state)) {}
Lessor::Lessor(Lessor&&) noexcept = default;
Lessor& Lessor::operator=(Lessor&&) noexcept = default;
Lessor::~Lessor() = default;

bool Lessor::uses_windows() const {
  return state_->windows;
}

std::size_t Lessor::spare_windows() const {
  return state_->spare.size();
}

Result<Lessor> Lessor::create(const ProtectionDomain& pd, QueuePair& qp, CompletionQueue& sends,
                              const MemoryRegion& region, const LessorOptions& options) {
  if (!options.others) {
    return fail(Code::kInvalidArgument,
                "a lessor needs `others`, which takes the completions of other requests");
  }
  RKV_ASSIGN_OR_RETURN(const WindowSupport support, window_support(pd.device()));
  const ibv_qp_ex* extended = ibv_qp_to_qp_ex(qp.raw());
  const bool prepared = has(region.access(), AccessFlags::kBindWindow) && extended != nullptr &&
                        extended->wr_bind_mw != nullptr && extended->wr_local_inv != nullptr;
  auto state = std::make_unique<detail::LessorState>(pd, qp, sends, region, options);
  switch (options.policy) {
    case LeasePolicy::kDisableWindows:
      break;
    case LeasePolicy::kAuto:
      state->windows = support.trustworthy && prepared;
      break;
    case LeasePolicy::kRequireWindows:
      if (!support.type_two) {
        return fail_call(Code::kUnsupported, "ibv_alloc_mw", 0,
                         "this device has no type 2 memory windows");
      }
      if (!prepared) {
        return fail(Code::kInvalidArgument,
                    "windows need kBindWindow on the region and kWindowOps on the queue pair");
      }
      state->windows = true;
      break;
  }
  if (!state->windows && region.bytes().size() != region.size()) {
    return fail(Code::kInvalidArgument,
                "without memory windows, only memory that the CPU can address can be leased");
  }
  state->most_spare = state->windows && support.trustworthy ? kSpareWindows : 0;
  state->spare.reserve(state->most_spare);
  return Lessor(std::move(state));
}

Result<Lease> Lessor::grant(const LeaseTerms& terms, const Deadline& deadline) {
  constexpr AccessFlags kStores = AccessFlags::kRemoteWrite | AccessFlags::kRemoteAtomic;
  constexpr AccessFlags kRemote = AccessFlags::kRemoteRead | kStores;
  if (terms.length == 0 || !lies_inside(terms.offset, terms.length, state_->region.size())) {
    return fail(Code::kInvalidArgument, "a lease must lie inside its region, and not be empty");
  }
  if (terms.access == AccessFlags::kNone || (terms.access & kRemote) != terms.access) {
    return fail(Code::kInvalidArgument,
                "a lease's rights are at least one remote right, and no others");
  }
  // Otherwise the lease would allow writes to a region that is registered without them.
  const bool stores = (terms.access & kStores) != AccessFlags::kNone;
  if (stores && !has(state_->region.access(), AccessFlags::kLocalWrite)) {
    return fail(Code::kInvalidArgument, "the region was registered without kLocalWrite");
  }
  Lease lease(terms);
  if (state_->windows) {
    RKV_RETURN_IF_ERROR(bind(lease, deadline));
    return lease;
  }
  RKV_ASSIGN_OR_RETURN(
      lease.region_, MemoryRegion::attach(
                         state_->domain, state_->region.bytes().subspan(terms.offset, terms.length),
                         stores ? terms.access | AccessFlags::kLocalWrite : terms.access));
  lease.span_ = lease.region_->remote();
  return lease;
}

Status Lessor::bind(Lease& lease, const Deadline& deadline) {
  if (state_->spare.empty()) {
    RKV_ASSIGN_OR_RETURN(lease.window_, Window::allocate(state_->domain, WindowType::kTwo));
  } else {
    lease.window_ = std::move(state_->spare.back());
    state_->spare.pop_back();
  }
  const WindowRange range{.region = &state_->region,
                          .offset = lease.terms_.offset,
                          .length = lease.terms_.length,
                          .access = lease.terms_.access};
  Status done = lease.window_->check(range);
  if (done) {
    const std::uint64_t wr_id = state_->next_wr_id();
    Batch batch = state_->qp.batch();
    batch.bind_window(wr_id, OpFlags::kSignaled, *lease.window_, range);
    done = std::move(batch).submit();
    if (done) done = state_->wait(wr_id, "bind of a memory window", deadline);
    lease.window_->bind_ended(done.has_value());
  }
  if (done) {
    lease.span_ = *lease.window_->remote();
    return {};
  }
  // The device may still execute the request if the deadline was short. Deallocate the window,
  // since a deallocated window cannot be bound.
  lease.window_.reset();
  return done;
}

// The fast way to end a window: a request, after which the window can be reused.
Status Lessor::invalidate(Lease& lease, const Deadline& deadline) {
  const std::uint64_t wr_id = state_->next_wr_id();
  Batch batch = state_->qp.batch();
  batch.local_invalidate(wr_id, OpFlags::kSignaled, *lease.window_);
  Status done = std::move(batch).submit();
  if (done) done = state_->wait(wr_id, "invalidation of a memory window", deadline);
  lease.window_->invalidate_ended(done.has_value());
  return done;
}

Status Lessor::revoke(Lease& lease, const Deadline& deadline) {
  if (lease.window_ && lease.window_->bindings() < kMaxBindings &&
      state_->spare.size() < state_->most_spare && invalidate(lease, deadline)) {
    lease.span_ = {};
    state_->spare.push_back(std::move(*lease.window_));
    lease.window_.reset();
  }
  const Status ended = lease.end();
  if (!ended) report_teardown(state_->qp.to_error());
  return ended;
}

Status Lessor::rotate(Lease& lease, std::optional<Nanos> expires_at, const Deadline& deadline) {
  RKV_RETURN_IF_ERROR(revoke(lease, deadline));
  lease.terms_.expires_at = expires_at;
  RKV_ASSIGN_OR_RETURN(Lease next, grant(lease.terms_, deadline));
  lease = std::move(next);
  return {};
}

}  // namespace rkv::rdma
