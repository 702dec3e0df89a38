#include "rkv/rdma/queue_pair.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "rdma/core/checked/checked_hooks.h"
#include "rdma/core/queue/queue_pair_state.h"
#include "rdma/core/queue/receive_chain.h"
#include "rkv/rdma/transitions.h"

namespace rkv::rdma {
namespace {

// Replaces functions that the provider lacks.
template <class... Arguments>
void not_offered(ibv_qp_ex* /*queue*/, Arguments...) {
  RKV_CHECK(false, "the queue pair was made without this operation");
}

}  // namespace

// Providers leave functions null that QueuePairOptions::operations did not name. They are filled in
// once, so that requests need no check. Window functions stay null: that means that there are none
// (lease.h).
void detail::refuse_the_rest(ibv_qp_ex& queue) {
  const auto fill = []<class... Arguments>(void (*&function)(ibv_qp_ex*, Arguments...)) {
    if (function == nullptr) function = not_offered<Arguments...>;
  };
  fill(queue.wr_send);
  fill(queue.wr_send_imm);
  fill(queue.wr_send_inv);
  fill(queue.wr_rdma_read);
  fill(queue.wr_rdma_write);
  fill(queue.wr_rdma_write_imm);
  fill(queue.wr_atomic_cmp_swp);
  fill(queue.wr_atomic_fetch_add);
}

namespace {

// A queue pair of a provider without the extended calls. It has the operations of ibv_post_send(3)
// that the device has. Windows are bound by other calls there.
Result<ibv_qp*> create_classic(ibv_qp_init_attr_ex& wanted, SendOps operations) {
  constexpr SendOps kClassic = kAllSendOps | SendOps::kSendInvalidate;
  if (!has(kClassic, operations)) return verb_error("ibv_create_qp_ex", EOPNOTSUPP);
  ibv_qp_init_attr plain{};
  plain.send_cq = wanted.send_cq;
  plain.recv_cq = wanted.recv_cq;
  plain.srq = wanted.srq;
  plain.cap = wanted.cap;
  plain.qp_type = wanted.qp_type;
  errno = 0;
  RKV_ASSIGN_OR_RETURN(ibv_qp * made, from_null("ibv_create_qp", ibv_create_qp(wanted.pd, &plain)));
  wanted.cap = plain.cap;
  return made;
}

// Whether the provider lacks the extended call, as opposed to what was asked of it.
bool lacks_extended(int sys_errno) {
  return sys_errno == EOPNOTSUPP || sys_errno == ENOSYS;
}

std::unexpected<Error> out_of_range(const char* text) {
  return fail_call(Code::kInvalidArgument, "ibv_create_qp_ex", 0, text);
}

// Checked here because the kernel would return only EINVAL.
Status check_options(const DeviceAttributes& limits, const QueuePairOptions& options) {
  if (options.send_length > limits.max_work_requests) {
    return out_of_range(
        "QueuePairOptions::send_length is above the device's max_work_requests (DeviceAttributes)");
  }
  const std::uint32_t most = std::min<std::uint32_t>(limits.max_sge, kMaxPieces);
  if (options.send_sge > most) {
    return out_of_range(
        "QueuePairOptions::send_sge is above 32 or the device's max_sge (DeviceAttributes)");
  }
  if (options.shared != nullptr) return {};
  if (options.receive_length > limits.max_work_requests) {
    return out_of_range(
        "QueuePairOptions::receive_length is above the device's max_work_requests "
        "(DeviceAttributes)");
  }
  if (options.receive_sge > most) {
    return out_of_range(
        "QueuePairOptions::receive_sge is above 32 or the device's max_sge (DeviceAttributes)");
  }
  return {};
}

}  // namespace

QueuePairBase::QueuePairBase() noexcept = default;
// Resets the pointers of a moved-from object, so that it cannot post to a queue pair that may have
// been destroyed.
QueuePairBase::QueuePairBase(QueuePairBase&& other) noexcept
    : state_(std::move(other.state_)),
      extended_(std::exchange(other.extended_, &detail::moved_away)),
      limits_(other.limits_) {}
QueuePairBase& QueuePairBase::operator=(QueuePairBase&& other) noexcept {
  if (this == &other) return *this;
  state_ = std::move(other.state_);
  extended_ = std::exchange(other.extended_, &detail::moved_away);
  limits_ = other.limits_;
  return *this;
}
QueuePairBase::~QueuePairBase() = default;

Status QueuePairBase::create(ibv_qp_type type, SendOps operations, const ProtectionDomain& pd,
                             const CompletionQueue& sends, const CompletionQueue& receives,
                             const QueuePairOptions& options) {
  RKV_ASSIGN_OR_RETURN(const DeviceAttributes limits, pd.device().attributes());
  RKV_RETURN_IF_ERROR(check_options(limits, options));
  if (options.inline_bytes > detail::kMaxInlineBytes) {
    return fail(Code::kInvalidArgument, "inline_bytes is 0 to 1024");
  }
  // rdma-core's SoftRoCE gives all pieces of ibv_wr_set_sge_list the first one's length.
  const bool older = limits.soft_roce && options.send_sge > 1;
  // The kernel numbers queues separately for each opened device. A queue of another context would
  // be taken for the queue with the same number in this context.
  const ibv_context* const opened = pd.raw()->context;
  if (sends.raw()->context != opened || receives.raw()->context != opened ||
      (options.shared != nullptr && options.shared->raw()->context != opened)) {
    return fail(
        Code::kInvalidArgument,
        "domain, completion queues and shared receive queue must belong to one opened device");
  }
  auto state = std::make_shared<detail::QueuePairState>(pd.device());
  state->domain = pd.shared();
  state->sends = sends.shared();
  state->receives = receives.shared();
  ibv_qp_init_attr_ex wanted{};
  wanted.qp_type = type;
  wanted.send_cq = sends.raw();
  wanted.recv_cq = receives.raw();
  wanted.cap.max_send_wr = options.send_length;
  wanted.cap.max_send_sge = options.send_sge;
  wanted.cap.max_inline_data = options.inline_bytes;
  if (options.shared != nullptr) {
    state->shared_receives = options.shared->shared();
    wanted.srq = options.shared->raw();
  } else {
    wanted.cap.max_recv_wr = options.receive_length;
    wanted.cap.max_recv_sge = options.receive_sge;
  }
  wanted.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  wanted.pd = pd.raw();
  wanted.send_ops_flags = std::to_underlying(operations);
  state->iwarp = limits.iwarp;
  errno = 0;
  ibv_qp_ex* extended = nullptr;
  state->queue = ibv_create_qp_ex(pd.device().raw(), &wanted);
  if (state->queue == nullptr && lacks_extended(errno)) {
    RKV_ASSIGN_OR_RETURN(state->queue, create_classic(wanted, operations));
  } else if (state->queue == nullptr) {
    return verb_error("ibv_create_qp_ex", errno != 0 ? errno : EIO);
  } else {
    extended = ibv_qp_to_qp_ex(state->queue);
  }
  if (older) extended = nullptr;
  state->send_length = wanted.cap.max_send_wr;
  state_ = std::move(state);
  limits_ = {.inline_bytes = std::min(wanted.cap.max_inline_data, detail::kMaxInlineBytes),
             .pieces = options.send_sge,
             .read_pieces = std::min(options.send_sge, limits.max_read_sge)};
  // Without `extended`, checked mode sees the plain calls of the poster.
  checked::pair_begins(raw(), extended, wanted.srq, state_->send_length);
  if (extended != nullptr) {
    detail::refuse_the_rest(*extended);
    extended_ = extended;
    return {};
  }
  constexpr SendOps kAtomics = SendOps::kCompareSwap | SendOps::kFetchAdd;
  if (limits.atomics == AtomicScope::kNone) operations = without(operations, kAtomics);
  state_->poster = std::make_unique<detail::ClassicPoster>(
      raw(), detail::ClassicPoster::Options{.operations = operations,
                                            .send_length = state_->send_length,
                                            .pieces = std::max(options.send_sge, 1U),
                                            .inline_bytes = limits_.inline_bytes,
                                            .iwarp = limits.iwarp});
  extended_ = state_->poster.get();
  return {};
}

Status QueuePairBase::post_receives(std::span<const ReceiveRequest> requests) {
  detail::ReceiveChain chain(requests);
  while (ibv_recv_wr* const next = chain.next()) {
    ibv_recv_wr* refused = nullptr;
    RKV_RETURN_IF_ERROR(from_errno("ibv_post_recv", ibv_post_recv(raw(), next, &refused)));
  }
  return {};
}

Status QueuePairBase::post_receive(std::uint64_t wr_id, const Scatter& buffer) {
  const ReceiveRequest request{.wr_id = wr_id, .buffer = buffer};
  return post_receives({&request, 1});
}

Status QueuePairBase::modify(ibv_qp_attr attributes, int mask) {
  const int answer = ibv_modify_qp(raw(), &attributes, mask);
  Status changed = from_errno("ibv_modify_qp", answer);
  if (changed && (mask & IBV_QP_STATE) != 0 && attributes.qp_state == IBV_QPS_RESET) {
    checked::pair_resets(raw());
  }
  if (answer != EINVAL) return changed;
  const auto now = state();
  if (!now) return changed;
  Error error = changed.error();
  const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? attributes.qp_state : *now;
  const TransitionVerdict verdict = judge_transition(raw()->qp_type, *now, to, mask);
  if (verdict.ok()) {
    error.text = "a value is wrong, or the device does not accept one of these attributes";
  } else if (verdict.exists) {
    error.text =
        "the attribute mask is wrong for this state transition: explain_modify() names the bits";
  } else {
    error.text = "this state transition does not exist: explain_modify() names its two states";
  }
  return std::unexpected(error);
}

Result<std::string> QueuePairBase::explain_modify(const ibv_qp_attr& attributes, int mask) const {
  RKV_ASSIGN_OR_RETURN(const ibv_qp_state now, state());
  const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? attributes.qp_state : now;
  return describe_transition(raw()->qp_type, now, to, mask);
}

Status QueuePairBase::change_remote_access(AccessFlags access) {
  ibv_qp_attr attributes{};
  attributes.qp_access_flags = std::to_underlying(access);
  return modify(attributes, IBV_QP_ACCESS_FLAGS);
}

Status QueuePairBase::to_error() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  return modify(attributes, IBV_QP_STATE);
}

Result<QueuePairBase::Queried> QueuePairBase::query(int mask) const {
  Queried out{};
  RKV_RETURN_IF_ERROR(
      from_errno("ibv_query_qp", ibv_query_qp(raw(), &out.attributes, mask, &out.created)));
  return out;
}

Result<ibv_qp_state> QueuePairBase::state() const {
  RKV_ASSIGN_OR_RETURN(const Queried found, query(IBV_QP_STATE));
  return found.attributes.qp_state;
}

std::uint32_t QueuePairBase::number() const {
  return raw()->qp_num;
}
std::uint32_t QueuePairBase::send_length() const {
  return live().send_length;
}
bool QueuePairBase::has_shared_receive_queue() const {
  return live().shared_receives != nullptr;
}
const Device& QueuePairBase::device() const {
  return live().device;
}
bool QueuePairBase::refused_in_the_middle() const {
  return live().poster != nullptr && live().poster->refused_in_the_middle();
}
ProtectionDomain QueuePairBase::domain() const {
  return ProtectionDomain::adopt(live().device, live().domain);
}
ibv_qp* QueuePairBase::raw() const {
  return live().queue;
}
std::shared_ptr<ibv_qp> QueuePairBase::share() const {
  return {state_, live().queue};
}
const detail::QueuePairState& QueuePairBase::live() const {
  RKV_CHECK(state_ != nullptr, "the queue pair was moved away");
  return *state_;
}

}  // namespace rkv::rdma
