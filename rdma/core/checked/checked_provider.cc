// The functions that queue pairs, queues and contexts get in checked mode: each updates the book
// and calls the provider's function. A batch is entered when it is submitted, because a dropped
// batch posts nothing.
#include <utility>

#include "common/check.h"
#include "rdma/core/checked/checked_book.h"

namespace rkv::rdma::checked {
namespace {

constexpr Operation kSend{.name = "SEND"};
constexpr Operation kWrite{.name = "WRITE"};
constexpr Operation kRead{.name = "READ", .writes = true, .fences = true};
constexpr Operation kAtomic{.name = "atomic", .writes = true, .fences = true};
constexpr Operation kBind{.name = "bind of a window", .touches = false};
constexpr Operation kInvalidate{.name = "local invalidate", .touches = false};
constexpr Operation kReceive{.name = "receive", .writes = true};
constexpr Operation kOther{.name = "other request"};

Operation operation_of(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_SEND_WITH_INV:
    case IBV_WR_TSO:
      return kSend;
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return kWrite;
    case IBV_WR_RDMA_READ:
      return kRead;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return kAtomic;
    case IBV_WR_LOCAL_INV:
      return kInvalidate;
    case IBV_WR_BIND_MW:
      return kBind;
    default:
      return kOther;
  }
}

Pair& pair_of(const ibv_qp* raw) RKV_REQUIRES(book().lock) {
  const auto found = book().pairs.find(raw);
  RKV_CHECK(found != book().pairs.end(), "work is posted on a queue pair that has ended");
  return *found->second;
}
// The result is used outside the lock: it is fixed while the queue pair lives.
const ibv_qp_ex& original_of(const ibv_qp_ex* pair) {
  const MutexLock locked(book().lock);
  return pair_of(&pair->qp_base).original;
}
const ibv_context_ops& original_of(const ibv_context* context) {
  const MutexLock locked(book().lock);
  return book().originals.at(context);
}

// Batches.

void start(ibv_qp_ex* raw) {
  {
    const MutexLock locked(book().lock);
    Pair& pair = pair_of(&raw->qp_base);
    book().no_batch_open(pair, "a batch is opened");
    pair.batch_open = true;
  }
  original_of(raw).wr_start(raw);
}

int complete(ibv_qp_ex* raw) {
  std::uint64_t first = 0;
  {
    const MutexLock locked(book().lock);
    Pair& pair = pair_of(&raw->qp_base);
    pair.batch_open = false;
    first = book().enter(pair, pair.batch, false);
  }
  const int answer = original_of(raw).wr_complete(raw);
  if (answer != 0) {
    const MutexLock locked(book().lock);
    Pair& pair = pair_of(&raw->qp_base);
    book().take_back(pair, pair.sends, first);
  }
  return answer;
}

void drop(ibv_qp_ex* raw) {
  {
    const MutexLock locked(book().lock);
    Pair& pair = pair_of(&raw->qp_base);
    pair.batch_open = false;
    pair.batch.clear();
  }
  original_of(raw).wr_abort(raw);
}

Request& add(Requests& to, const Operation& operation, std::uint64_t wr_id, unsigned flags) {
  Request& request = to.emplace_back();
  request.operation = operation;
  request.wr_id = wr_id;
  request.signaled = (flags & IBV_SEND_SIGNALED) != 0;
  request.fenced = (flags & IBV_SEND_FENCE) != 0;
  request.copied = (flags & IBV_SEND_INLINE) != 0;
  return request;
}
void add_piece(Request& to, const ibv_sge& piece) {
  to.pieces.push_back({.address = piece.addr, .length = piece.length, .lkey = piece.lkey});
}
// Without a region the window is unbound.
void set_window(Request& of, const ibv_mw* window, const ibv_mw_bind_info& info) {
  of.window = window;
  if (info.mr == nullptr) return;
  of.pieces.push_back({.address = info.addr, .length = info.length, .lkey = info.mr->lkey});
}

// Records the batch's new request. wr_id and flags are already set in the queue pair.
template <class Change>
void note(const ibv_qp_ex* raw, const Operation& operation, Change change) {
  const MutexLock locked(book().lock);
  change(add(pair_of(&raw->qp_base).batch, operation, raw->wr_id, raw->wr_flags));
}

// An operation whose arguments do not matter here.
template <auto member, const Operation& operation, class... Arguments>
void plain(ibv_qp_ex* raw, Arguments... arguments) {
  note(raw, operation, [](Request&) {});
  (original_of(raw).*member)(raw, arguments...);
}
template <auto member, const Operation& operation, class... Arguments>
void wrap(ibv_qp_ex& raw, void (*ibv_qp_ex::* /*to deduce*/)(ibv_qp_ex*, Arguments...)) {
  if (raw.*member != nullptr) raw.*member = plain<member, operation, Arguments...>;
}

void bind(ibv_qp_ex* raw, ibv_mw* window, std::uint32_t rkey, const ibv_mw_bind_info* info) {
  note(raw, kBind, [&](Request& request) { set_window(request, window, *info); });
  original_of(raw).wr_bind_mw(raw, window, rkey, info);
}

void invalidate(ibv_qp_ex* raw, std::uint32_t rkey) {
  note(raw, kInvalidate, [rkey](Request& request) { request.window_key = rkey; });
  original_of(raw).wr_local_inv(raw, rkey);
}

void note_piece(const ibv_qp_ex* raw, const ibv_sge& piece) {
  const MutexLock locked(book().lock);
  Requests& batch = pair_of(&raw->qp_base).batch;
  RKV_CHECK(!batch.empty(), "a piece of no request");
  add_piece(batch.back(), piece);
}

void set_piece(ibv_qp_ex* raw, std::uint32_t lkey, std::uint64_t address, std::uint32_t length) {
  note_piece(raw, {.addr = address, .length = length, .lkey = lkey});
  original_of(raw).wr_set_sge(raw, lkey, address, length);
}

void set_pieces(ibv_qp_ex* raw, std::size_t count, const ibv_sge* pieces) {
  for (std::size_t i = 0; i < count; ++i)
    note_piece(raw, pieces[i]);
  original_of(raw).wr_set_sge_list(raw, count, pieces);
}

// Chains of requests.

// The number of requests of the chain that the provider accepted.
template <class Chain>
std::uint64_t taken(const Chain* first, const Chain* refused) {
  std::uint64_t out = 0;
  for (; refused != nullptr && first != nullptr && first != refused; first = first->next)
    ++out;
  return out;
}

template <class Chain>
void take_pieces(Request& request, const Chain& from) {
  for (int i = 0; i < from.num_sge; ++i)
    add_piece(request, from.sg_list[i]);
}

// Enters the requests that fill(pair, requests) adds, and posts with `post`. After an error, takes
// back all but the first accepted() of them. Only posts if the queue pair is not in the book.
template <class Fill, class Post, class Accepted>
int enter_and_post(ibv_qp* raw, bool receives, Fill fill, Post post, Accepted accepted) {
  std::uint64_t first = 0;
  bool known = false;
  {
    const MutexLock locked(book().lock);
    known = book().pairs.contains(raw);
    if (known) {
      Pair& pair = pair_of(raw);
      Requests fresh;
      fill(pair, fresh);
      first = book().enter(pair, fresh, receives);
    }
  }
  const int answer = post();
  if (answer != 0 && known) {
    const MutexLock locked(book().lock);
    Pair& pair = pair_of(raw);
    book().take_back(pair, receives ? pair.receives : pair.sends, first + accepted());
  }
  return answer;
}

int post_send(ibv_qp* raw, ibv_send_wr* chain, ibv_send_wr** refused) {
  const auto fill = [chain](const Pair& pair, Requests& out) RKV_REQUIRES(book().lock) {
    book().no_batch_open(pair, "a request is posted");
    for (const ibv_send_wr* at = chain; at != nullptr; at = at->next) {
      Request& request = add(out, operation_of(at->opcode), at->wr_id, at->send_flags);
      take_pieces(request, *at);
      if (at->opcode == IBV_WR_LOCAL_INV) request.window_key = at->invalidate_rkey;
      if (at->opcode == IBV_WR_BIND_MW) {
        set_window(request, at->bind_mw.mw, at->bind_mw.bind_info);
      }
    }
  };
  const auto own = original_of(raw->context).post_send;
  return enter_and_post(
      raw, false, fill, [&] { return own(raw, chain, refused); },
      [&] { return taken(chain, *refused); });
}

void add_receives(Requests& out, const ibv_recv_wr* chain) {
  for (; chain != nullptr; chain = chain->next)
    take_pieces(add(out, kReceive, chain->wr_id, IBV_SEND_SIGNALED), *chain);
}

int post_recv(ibv_qp* raw, ibv_recv_wr* chain, ibv_recv_wr** refused) {
  const auto own = original_of(raw->context).post_recv;
  return enter_and_post(
      raw, true, [chain](const Pair&, Requests& out) { add_receives(out, chain); },
      [&] { return own(raw, chain, refused); }, [&] { return taken(chain, *refused); });
}

int post_srq_recv(ibv_srq* raw, ibv_recv_wr* chain, ibv_recv_wr** refused) {
  const auto own = original_of(raw->context).post_srq_recv;
  std::uint64_t first = 0;
  SharedReceives* shared = nullptr;
  {
    const MutexLock locked(book().lock);
    const auto found = book().shared.find(raw);
    if (found != book().shared.end()) {
      shared = found->second.get();
      Requests fresh;
      add_receives(fresh, chain);
      first = book().enter(*shared, fresh);
    }
  }
  const int answer = own(raw, chain, refused);
  if (answer != 0 && shared != nullptr) {
    const MutexLock locked(book().lock);
    book().take_back(shared->receives, first + taken(chain, *refused));
  }
  return answer;
}

int bind_mw(ibv_qp* raw, ibv_mw* window, ibv_mw_bind* bind) {
  const auto fill = [&](const Pair&, Requests& out) {
    set_window(add(out, kBind, bind->wr_id, bind->send_flags), window, bind->bind_info);
  };
  const auto own = original_of(raw->context).bind_mw;
  return enter_and_post(
      raw, false, fill, [&] { return own(raw, window, bind); }, [] { return std::uint64_t{0}; });
}

// Completions.

int poll_cq(ibv_cq* queue, int room, ibv_wc* out) {
  const int found = original_of(queue->context).poll_cq(queue, room, out);
  if (found <= 0) return found;
  const MutexLock locked(book().lock);
  for (int i = 0; i < found; ++i) {
    book().completed(queue, out[i].qp_num, out[i].wr_id, out[i].status == IBV_WC_SUCCESS,
                     out[i].opcode);
  }
  return found;
}

void read_one(ibv_cq_ex* queue) {
  const std::uint32_t qp_num = ibv_wc_read_qp_num(queue);
  const bool ok = queue->status == IBV_WC_SUCCESS;
  const unsigned opcode = ok ? ibv_wc_read_opcode(queue) : 0;
  const MutexLock locked(book().lock);
  book().completed(ibv_cq_ex_to_cq(queue), qp_num, queue->wr_id, ok, opcode);
}

const Queue& queue_of(ibv_cq_ex* queue) {
  const MutexLock locked(book().lock);
  return *book().queues.at(ibv_cq_ex_to_cq(queue));
}

int start_poll(ibv_cq_ex* queue, ibv_poll_cq_attr* attributes) {
  const int answer = queue_of(queue).start_poll(queue, attributes);
  if (answer == 0) read_one(queue);
  return answer;
}

int next_poll(ibv_cq_ex* queue) {
  const int answer = queue_of(queue).next_poll(queue);
  if (answer == 0) read_one(queue);
  return answer;
}

}  // namespace

// A context that already has our functions is in the book. A new context at the address of a closed
// one has its own functions and replaces it.
void wrap_context(Book& in, ibv_context* context) {
  if (context->ops.poll_cq == poll_cq) return;
  in.originals[context] = context->ops;
  context->ops.poll_cq = poll_cq;
  context->ops.post_send = post_send;
  context->ops.post_recv = post_recv;
  context->ops.post_srq_recv = post_srq_recv;
  context->ops.bind_mw = bind_mw;
}

void wrap_pair(Pair& pair, ibv_qp_ex* raw) {
  pair.original = *raw;
  const auto replace = [](auto& member, auto with) {
    if (member != nullptr) member = with;
  };
  replace(raw->wr_start, start);
  replace(raw->wr_complete, complete);
  replace(raw->wr_abort, drop);
  replace(raw->wr_bind_mw, bind);
  replace(raw->wr_local_inv, invalidate);
  replace(raw->wr_set_sge, set_piece);
  replace(raw->wr_set_sge_list, set_pieces);
  wrap<&ibv_qp_ex::wr_send, kSend>(*raw, &ibv_qp_ex::wr_send);
  wrap<&ibv_qp_ex::wr_send_imm, kSend>(*raw, &ibv_qp_ex::wr_send_imm);
  wrap<&ibv_qp_ex::wr_send_inv, kSend>(*raw, &ibv_qp_ex::wr_send_inv);
  wrap<&ibv_qp_ex::wr_send_tso, kSend>(*raw, &ibv_qp_ex::wr_send_tso);
  wrap<&ibv_qp_ex::wr_rdma_write, kWrite>(*raw, &ibv_qp_ex::wr_rdma_write);
  wrap<&ibv_qp_ex::wr_rdma_write_imm, kWrite>(*raw, &ibv_qp_ex::wr_rdma_write_imm);
  wrap<&ibv_qp_ex::wr_rdma_read, kRead>(*raw, &ibv_qp_ex::wr_rdma_read);
  wrap<&ibv_qp_ex::wr_atomic_cmp_swp, kAtomic>(*raw, &ibv_qp_ex::wr_atomic_cmp_swp);
  wrap<&ibv_qp_ex::wr_atomic_fetch_add, kAtomic>(*raw, &ibv_qp_ex::wr_atomic_fetch_add);
}

void wrap_queue(Queue& queue, ibv_cq_ex* extended) {
  queue.start_poll = std::exchange(extended->start_poll, start_poll);
  queue.next_poll = std::exchange(extended->next_poll, next_poll);
}

}  // namespace rkv::rdma::checked
