#include "rkv/rdma/window.h"

#include <cerrno>
#include <utility>

#include "rdma/core/checked/checked_hooks.h"
#include "rkv/rdma/error.h"
#include "rkv/rdma/queue_pair.h"

namespace rkv::rdma {
namespace {

constexpr AccessFlags kAllowed = AccessFlags::kRemoteRead | AccessFlags::kRemoteWrite |
                                 AccessFlags::kRemoteAtomic | AccessFlags::kZeroBased;
constexpr AccessFlags kStores = AccessFlags::kRemoteWrite | AccessFlags::kRemoteAtomic;

ibv_mw_bind_info bind_info(const WindowRange& range) {
  const RemoteSpan whole = range.region->remote();
  return {.mr = range.region->raw(),
          .addr = whole.address + range.offset,
          .length = range.length,
          .mw_access_flags = std::to_underlying(range.access)};
}

}  // namespace

Result<WindowSupport> window_support(const Device& device) {
  ibv_device_attr raw{};
  RKV_RETURN_IF_ERROR(from_errno("ibv_query_device", ibv_query_device(device.raw(), &raw)));
  RKV_ASSIGN_OR_RETURN(const DeviceAttributes limits, device.attributes());
  const auto has_flag = [&](unsigned flag) { return (raw.device_cap_flags & flag) != 0; };
  WindowSupport out;
  out.most = limits.max_windows;
  out.type_one = out.most != 0 && has_flag(IBV_DEVICE_MEM_WINDOW);
  out.type_two = out.most != 0 && (has_flag(IBV_DEVICE_MEM_WINDOW_TYPE_2A) ||
                                   has_flag(IBV_DEVICE_MEM_WINDOW_TYPE_2B));
  out.trustworthy = out.type_two && !limits.soft_roce;
  return out;
}

void Window::Deallocate::operator()(ibv_mw* window) const {
  checked::window_ends(window);
  report_teardown(from_errno("ibv_dealloc_mw", ibv_dealloc_mw(window)));
}

Result<Window> Window::allocate(const ProtectionDomain& pd, WindowType type) {
  errno = 0;
  RKV_ASSIGN_OR_RETURN(
      ibv_mw * raw,
      from_null("ibv_alloc_mw", ibv_alloc_mw(pd.raw(), static_cast<ibv_mw_type>(type))));
  return Window(std::unique_ptr<ibv_mw, Deallocate>(raw, {.domain = pd.shared()}));
}

Status Window::deallocate() {
  checked::window_ends(window_.get());
  RKV_RETURN_IF_ERROR(from_errno("ibv_dealloc_mw", ibv_dealloc_mw(window_.get())));
  std::ignore = window_.release();
  state_ = State::kUnbound;
  return {};
}

Status Window::check(const WindowRange& range) const {
  // The kernel numbers the domains of an opened device.
  const auto same_domain = [this](const ibv_mr* region) {
    return region->context == window_->context && region->pd->handle == window_->pd->handle;
  };
  if (range.region == nullptr || !range.region->usable() || !same_domain(range.region->raw())) {
    return fail(Code::kInvalidArgument, "a window needs a region of its own domain");
  }
  const AccessFlags allowed = range.region->access();
  if (!has(allowed, AccessFlags::kBindWindow)) {
    return fail(Code::kInvalidArgument, "the region was registered without kBindWindow");
  }
  if (range.length == 0 || !lies_inside(range.offset, range.length, range.region->size())) {
    return fail(Code::kInvalidArgument, "a window must lie inside its region, and not be empty");
  }
  if ((range.access & kAllowed) != range.access) {
    return fail(Code::kInvalidArgument,
                "a window's access flags are the remote ones and kZeroBased");
  }
  if ((range.access & kStores) != AccessFlags::kNone && !has(allowed, AccessFlags::kLocalWrite)) {
    return fail(Code::kInvalidArgument,
                "a window for remote writes and atomics needs local write access on the region");
  }
  if (type() == WindowType::kOne && has(range.access, AccessFlags::kZeroBased)) {
    return fail(Code::kInvalidArgument, "a type 1 window cannot be zero-based");
  }
  return {};
}

RemoteSpan Window::begin_bind(const WindowRange& range) {
  RKV_CHECK(check(range).has_value(), "the window's range is invalid: Window::check() says why");
  RKV_CHECK(state_ == State::kUnbound || (type() == WindowType::kOne && state_ == State::kBound),
            "a window that is bound or has a request in flight cannot be bound");
  before_ = {.state = state_, .span = span_, .region = region_, .key = window_->rkey};
  region_ = range.region->raw();
  ++bindings_;
  const RemoteSpan whole = range.region->remote();
  span_ = {.address = has(range.access, AccessFlags::kZeroBased) ? 0 : whole.address + range.offset,
           .length = range.length,
           .rkey = ibv_inc_rkey(window_->rkey)};
  state_ = State::kBinding;
  return span_;
}

void Window::go_back() {
  state_ = before_.state;
  span_ = before_.span;
  region_ = before_.region;
  window_->rkey = before_.key;
}

void Window::bind_ended(bool ok) {
  RKV_CHECK(state_ == State::kBinding, "the window has no bind in flight");
  if (!ok) return go_back();
  state_ = State::kBound;
  window_->rkey = span_.rkey;
}

void Window::begin_invalidate() {
  // SoftRoCE's kernel dereferences a null pointer when asked to invalidate an unbound window.
  RKV_CHECK(state_ == State::kBound, "a window that is not bound cannot be invalidated");
  state_ = State::kInvalidating;
}

void Window::invalidate_ended(bool ok) {
  RKV_CHECK(state_ == State::kInvalidating, "the window has no invalidation in flight");
  // A failure ends the queue pair. The device may know the binding until the window is deallocated.
  state_ = ok ? State::kUnbound : State::kBound;
}

bool Window::invalidated_by_peer(std::uint32_t rkey) {
  if (state_ != State::kBound || rkey != span_.rkey) return false;
  state_ = State::kUnbound;
  return true;
}

Result<RemoteSpan> Window::bind(QueuePairBase& qp, std::uint64_t wr_id, OpFlags flags,
                                const WindowRange& range) {
  RKV_CHECK(type() == WindowType::kOne, "type 2 windows are bound in a batch");
  RKV_RETURN_IF_ERROR(check(range));
  const RemoteSpan offered = begin_bind(range);
  ibv_mw_bind request{
      .wr_id = wr_id, .send_flags = std::to_underlying(flags), .bind_info = bind_info(range)};
  const Status posted = from_errno("ibv_bind_mw", ibv_bind_mw(qp.raw(), raw(), &request));
  if (posted) {
    span_.rkey = window_->rkey;  // chosen by the provider
    return RemoteSpan{.address = offered.address, .length = offered.length, .rkey = span_.rkey};
  }
  go_back();
  return std::unexpected(posted.error());
}

Status Window::unbind(QueuePairBase& qp, std::uint64_t wr_id, OpFlags flags) {
  RKV_CHECK(type() == WindowType::kOne && state_ == State::kBound,
            "unbind() needs a type 1 window that is bound");
  // rdma-core's SoftRoCE provider dereferences the region even if nothing of it is bound.
  ibv_mw_bind request{.wr_id = wr_id,
                      .send_flags = std::to_underlying(flags),
                      .bind_info = {.mr = region_, .addr = 0, .length = 0, .mw_access_flags = 0}};
  RKV_RETURN_IF_ERROR(from_errno("ibv_bind_mw", ibv_bind_mw(qp.raw(), raw(), &request)));
  state_ = State::kInvalidating;
  return {};
}

void detail::BatchCore::begin_bind(std::uint64_t wr_id, OpFlags flags, Window& window,
                                   const WindowRange& range, RemoteSpan& offered) noexcept {
  RKV_CHECK(window.type() == WindowType::kTwo, "type 1 windows are bound by Window::bind()");
  RKV_CHECK(queue_ == nullptr || queue_->wr_bind_mw != nullptr,
            "binding a window needs a queue pair made with kWindowOps");
  offered = window.begin_bind(range);
  begin(wr_id, flags);
  const ibv_mw_bind_info info = bind_info(range);
  ibv_wr_bind_mw(queue_, window.raw(), offered.rkey, &info);
}

void detail::BatchCore::begin_invalidate(std::uint64_t wr_id, OpFlags flags,
                                         Window& window) noexcept {
  RKV_CHECK(window.type() == WindowType::kTwo, "type 1 windows are unbound by Window::unbind()");
  RKV_CHECK(queue_ == nullptr || queue_->wr_local_inv != nullptr,
            "invalidating a window needs a queue pair made with kWindowOps");
  window.begin_invalidate();
  begin(wr_id, flags);
  ibv_wr_local_inv(queue_, window.raw()->rkey);
}

}  // namespace rkv::rdma
