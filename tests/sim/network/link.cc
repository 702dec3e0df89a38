#include "tests/sim/network/link.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "common/hash.h"
#include "tests/sim/network/queue.h"
#include "tests/sim/network/region.h"

namespace rkv::rdma::sim {

namespace {

using Kind = Operation::Kind;
using Status = Completion::Status;

// Delay before a message to a peer without a receive buffer is sent again. The number of retries is
// not limited.
constexpr Nanos kNotReadyNanos = 640'000;

bool is_read(const Operation& operation) {
  return operation.kind != Kind::kSend;  // atomics count as READs
}

// Simulated remote memory is in this process, so the remote address is a local one.
std::byte* memory_at(std::uint64_t address) {
  return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace

Link::Link(Fabric& fabric, const EndOptions& active, const EndOptions& passive) : fabric_(fabric) {
  for (int side = 0; side < 2; ++side) {
    const EndOptions& options = side == 0 ? active : passive;
    End& end = ends_[side];
    end.host = options.host;
    end.queue = options.queue;
    end.limits = options.limits;
    end.grant = options.grant;
  }
}

// Retries the operations that waited for this end to open. Reports kDisconnected if this end has
// ended already.
void Link::open(int side, SimConnection* handle) {
  End& end = ends_[side];
  end.handle = handle;
  if (end.reported) push_disconnected(side);
  Scheduler& scheduler = fabric_.scheduler();
  scheduler.at(scheduler.now(), [this, side] { retry_held(1 - side); });
}

Link::Pending* Link::find(int side, std::uint64_t number) {
  End& end = ends_[side];
  const std::uint64_t index = number - end.first;
  return number < end.first || index >= end.pending.size() ? nullptr : &end.pending[index];
}

// ------------------------------------------------------------------------------ posting

// An operation on memory that is not registered is a bug of the caller.
void Link::check_local(const End& end, const Operation& operation) const {
  if (operation.inline_data) {
    RKV_CHECK(operation.kind == Kind::kSend && operation.local.size() <= end.limits.inline_bytes,
              "inline data beyond the limit");
    return;
  }
  const SimRegion* const region = end.host->find_local(operation.local_key);
  RKV_CHECK(
      region != nullptr && region->holds(reinterpret_cast<std::uint64_t>(operation.local.data()),
                                         operation.local.size()),
      "an operation names local memory that is not registered");
}

Result<std::size_t> Link::post(int side, std::span<const Operation> batch) {
  End& end = ends_[side];
  if (!end.alive) return fail(Code::kDisconnected, "the connection has ended");
  Scheduler& scheduler = fabric_.scheduler();
  std::size_t taken = 0;
  for (const Operation& operation : batch) {
    if (end.pending.size() + end.in_queue >= end.limits.sends_in_flight) {
      ++fabric_.counts().full_send_queues;
      break;
    }
    check_local(end, operation);
    Pending pending{.operation = operation, .inline_bytes = {}, .pieces = {}};
    if (operation.inline_data) {
      pending.inline_bytes.assign(operation.local.begin(), operation.local.end());
    }
    // The content of a READ's buffer is undefined before the completion.
    if (operation.kind == Kind::kRead && !operation.local.empty()) {
      std::memset(operation.local.data(), 0xA5, operation.local.size());
    }
    if (scheduler.chance(fabric_.faults().cut_in)) {
      pending.cut = scheduler.chance(2) ? Cut::kBefore : Cut::kAfter;
    }
    end.pending.push_back(std::move(pending));
    ++taken;
  }
  issue(side);
  return taken;
}

void Link::issue(int side) {
  End& end = ends_[side];
  Scheduler& scheduler = fabric_.scheduler();
  while (end.issued < end.pending.size()) {
    Pending& pending = end.pending[end.issued];
    const bool read = is_read(pending.operation);
    if (read && end.reads_issued >= end.limits.reads_in_flight) return;
    end.reads_issued += read ? 1 : 0;
    const Nanos when = std::max(end.arrive_not_before, scheduler.now() + fabric_.latency());
    end.arrive_not_before = when;  // SIMLINK-1
    const std::uint64_t number = end.first + end.issued++;
    scheduler.at(when, [this, packed = number * 2 + side] {
      arrive(static_cast<int>(packed & 1U), packed >> 1);
    });
  }
}

void Link::arrive(int side, std::uint64_t number) {
  if (severed_ || !ends_[1 - side].alive) return;
  End& end = ends_[side];
  std::deque<std::uint64_t>& held = end.held;
  if (find(side, number) == nullptr) {
    const auto stray = end.stray.find(number);
    const End& peer = ends_[1 - side];
    if (stray == end.stray.end() || !held.empty() || peer.handle == nullptr) return;
    const bool fits = stray->second.size() <= peer.queue->receive_bytes();
    if (fits && peer.queue->has_receive_buffer()) deliver(side, stray->second);
    return;
  }
  const bool wait = !held.empty() || ends_[1 - side].handle == nullptr;
  if (wait || !carry_out(side, number)) held.push_back(number);
}

// Retries operations that arrived at the peer and wait behind a message without a buffer.
void Link::retry_held(int side) {
  std::deque<std::uint64_t>& held = ends_[side].held;
  while (!held.empty()) {
    const std::uint64_t number = held.front();
    const bool void_now = severed_ || find(side, number) == nullptr || !ends_[1 - side].alive;
    if (!void_now && !carry_out(side, number)) return;
    held.pop_front();
  }
}

// ------------------------------------------------------------------------------ at the peer

// Returns false if there is no buffer for a message; the caller tries again later.
bool Link::carry_out(int side, std::uint64_t number) {
  Pending& pending = *find(side, number);
  fabric_.scheduler().trace(2, (number << 8) | static_cast<std::uint64_t>(pending.operation.kind));
  if (pending.cut == Cut::kBefore) {
    sever();
    return true;
  }
  switch (pending.operation.kind) {
    case Kind::kSend: {
      if (!carry_out_send(side, pending)) return false;
      pending.arrived = true;
      if (pending.status == Status::kOk) {
        executed(side, number);
      } else {
        answer(side, number, pending.status);
      }
      return true;
    }
    case Kind::kRead:
      carry_out_read(side, number, pending);
      return true;
    case Kind::kCompareSwap:
    case Kind::kFetchAdd:
      carry_out_atomic(side, number, pending);
      return true;
  }
  return true;
}

bool Link::carry_out_send(int side, Pending& pending) {
  End& peer = ends_[1 - side];
  const Operation& operation = pending.operation;
  const Bytes message = operation.inline_data ? Bytes(pending.inline_bytes) : operation.local;
  if (message.size() > peer.queue->receive_bytes()) {
    pending.status = Status::kFailed;
    return true;
  }
  if (!peer.queue->has_receive_buffer()) {
    ++fabric_.counts().waits_for_receives;
    Scheduler& scheduler = fabric_.scheduler();
    scheduler.at(scheduler.now() + kNotReadyNanos, [this, side] { retry_held(side); });
    return false;
  }
  deliver(side, message);
  return true;
}

void Link::deliver(int side, Bytes message) {
  End& peer = ends_[1 - side];
  ++fabric_.counts().messages;
  fabric_.scheduler().trace(3, xxh3(message, 0));
  peer.queue->deliver({.completion = {.connection = peer.handle}, .link = this, .side = 1 - side},
                      message);
}

bool Link::permitted(int side, const Pending& pending, Access least) const {
  const End& peer = ends_[1 - side];
  const Operation& operation = pending.operation;
  const SimRegion* const region = peer.host->find(operation.remote_key);
  return region != nullptr && region->access() >= least && peer.grant >= least &&
         region->holds(operation.remote_address, operation.local.size());
}

void Link::carry_out_read(int side, std::uint64_t number, Pending& pending) {
  const Faults& faults = fabric_.faults();
  Scheduler& scheduler = fabric_.scheduler();
  const std::size_t length = pending.operation.local.size();
  if (!permitted(side, pending, Access::kRemoteRead) || scheduler.chance(faults.refuse_in)) {
    return answer(side, number, Status::kRemoteAccess);
  }
  if (length == 0) return executed(side, number);
  // Cut at random bytes: the sorted borders delimit the pieces.
  std::size_t count = 1 + scheduler.random().below(faults.pieces);
  std::array<std::size_t, 16> borders{};
  count = std::min({count, borders.size(), length});
  for (std::size_t i = 1; i < count; ++i)
    borders[i] = scheduler.random().below(length);
  std::sort(borders.begin() + 1, borders.begin() + static_cast<std::ptrdiff_t>(count));
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t end = i + 1 < count ? borders[i + 1] : length;
    pending.pieces.push_back({borders[i], end - borders[i]});
  }
  pending.pieces_left = count;
  ++fabric_.counts().reads;
  if (count > 1) ++fabric_.counts().reads_in_pieces;
  const Nanos spread =
      scheduler.chance(faults.retransmit_in) ? faults.retransmit : faults.piece_spread;
  for (std::size_t i = 0; i < count; ++i) {
    scheduler.at(scheduler.now() + scheduler.up_to(spread),
                 [this, packed = (number << 8) | (i << 1) | static_cast<unsigned>(side)] {
                   touch(static_cast<int>(packed & 1U), packed >> 8, (packed >> 1) & 0x7FU);
                 });
  }
}

void Link::touch(int side, std::uint64_t number, std::size_t piece) {
  Pending* const pending = find(side, number);
  if (pending == nullptr || severed_ || !ends_[1 - side].alive || pending->landed) return;
  if (!permitted(side, *pending, Access::kRemoteRead)) {
    return answer(side, number, Status::kRemoteAccess);  // the region was removed meanwhile
  }
  const auto [offset, length] = pending->pieces[piece];
  const Operation& operation = pending->operation;
  if (length != 0) {
    std::memcpy(operation.local.data() + offset, memory_at(operation.remote_address + offset),
                length);
  }
  fabric_.scheduler().trace(4, xxh3(operation.local.subspan(offset, length), number));
  if (--pending->pieces_left == 0) executed(side, number);
}

void Link::carry_out_atomic(int side, std::uint64_t number, Pending& pending) {
  const Operation& operation = pending.operation;
  if (!permitted(side, pending, Access::kRemoteReadAtomic) || operation.remote_address % 8 != 0) {
    return answer(side, number, Status::kRemoteAccess);
  }
  auto* const word = reinterpret_cast<std::uint64_t*>(memory_at(operation.remote_address));
  const std::uint64_t old = load_word(word);
  if (operation.kind == Kind::kFetchAdd) {
    store_word(word, old + operation.compare_or_add);
  } else if (old == operation.compare_or_add) {
    store_word(word, operation.swap);
  }
  store_le(operation.local.data(), old);
  fabric_.scheduler().trace(5, old);
  executed(side, number);
}

void Link::executed(int side, std::uint64_t number) {
  if (find(side, number)->cut == Cut::kAfter) return sever();
  answer(side, number, Status::kOk);
}

// ------------------------------------------------------------------------------ answers

void Link::answer(int side, std::uint64_t number, Status status) {
  find(side, number)->status = status;
  Scheduler& scheduler = fabric_.scheduler();
  scheduler.at(scheduler.now() + fabric_.latency(), [this, packed = number * 2 + side] {
    returned(static_cast<int>(packed & 1U), packed >> 1);
  });
}

void Link::returned(int side, std::uint64_t number) {
  Pending* const pending = find(side, number);
  if (pending == nullptr || severed_ || pending->landed) return;
  pending->landed = true;
  const Operation& operation = pending->operation;
  if (is_read(operation)) --ends_[side].reads_issued;
  if (operation.kind == Kind::kRead && pending->status == Status::kOk && fabric_.tampering()) {
    fabric_.tampering()(operation.local, operation.remote_address);
  }
  complete_in_order(side);
  if (!ends_[side].reported) issue(side);
}

void Link::complete_in_order(int side) {
  End& end = ends_[side];
  while (!end.pending.empty() && end.pending.front().landed) {
    const Pending pending = std::move(end.pending.front());
    end.pending.pop_front();
    ++end.first;
    --end.issued;
    complete(side, pending, pending.status);
    if (pending.status == Status::kOk) continue;
    die(side, Status::kFlushed);
    die_later(1 - side, fabric_.latency(), Status::kFlushed);
    return;
  }
}

void Link::complete(int side, const Pending& pending, Status status) {
  End& end = ends_[side];
  ++end.in_queue;
  fabric_.scheduler().trace(6, static_cast<std::uint64_t>(status));
  end.queue->push({.completion = {.kind = completion_kind(pending.operation.kind),
                                  .status = status,
                                  .connection = end.handle,
                                  .context = pending.operation.context},
                   .link = this,
                   .side = side,
                   .silent = !pending.operation.signaled && status == Status::kOk});
}

// ------------------------------------------------------------------------------ the end

// The adapter has flushed these messages, but the network may still deliver them. The first few of
// them arrive, unless the peer has already detected the end.
void Link::let_stray(int side) {
  End& end = ends_[side];
  for (std::size_t i = 0; i < end.issued && !severed_; ++i) {
    const Pending& pending = end.pending[i];
    if (pending.operation.kind != Kind::kSend || pending.arrived) continue;
    if (pending.cut != Cut::kNone || fabric_.scheduler().chance(3)) return;
    const Bytes message =
        pending.operation.inline_data ? Bytes(pending.inline_bytes) : pending.operation.local;
    end.stray[end.first + i].assign(message.begin(), message.end());
  }
}

void Link::die(int side, Status first_status) {
  End& end = ends_[side];
  end.alive = false;
  if (std::exchange(end.reported, true)) return;
  if (end.handle == nullptr) return;
  let_stray(side);
  Status status = first_status;
  for (const Pending& pending : end.pending)
    complete(side, pending, std::exchange(status, Status::kFlushed));
  end.first += end.pending.size();
  end.pending.clear();
  end.issued = end.reads_issued = 0;
  push_disconnected(side);
}

void Link::push_disconnected(int side) {
  End& end = ends_[side];
  end.queue->push(
      {.completion = {.kind = Completion::Kind::kDisconnected, .connection = end.handle},
       .link = this,
       .side = side});
}

void Link::die_later(int side, Nanos in, Status first_status) {
  Scheduler& scheduler = fabric_.scheduler();
  scheduler.at(scheduler.now() + in, [this, side, first_status] { die(side, first_status); });
}

void Link::abort(int side) {
  End& end = ends_[side];
  if (!std::exchange(end.alive, false)) return;
  // Posted operations continue until the adapter has processed the abort.
  die_later(side, fabric_.notice(), Status::kFlushed);
  if (!severed_) die_later(1 - side, fabric_.notice() + fabric_.latency(), Status::kFlushed);
}

void Link::close(int side) {
  End& end = ends_[side];
  if (!end.reported && !severed_) die_later(1 - side, fabric_.notice(), Status::kFlushed);
  if (!end.reported) let_stray(side);
  end.alive = false;
  end.reported = true;
  end.handle = nullptr;
  end.first += end.pending.size();
  end.pending.clear();
  end.held.clear();
  if (end.queue == nullptr) return;
  end.queue->forget(*this, side);
  end.queue->unreserve(limits(side).sends_in_flight + 1);
  end.queue = nullptr;
}

void Link::sever() {
  if (std::exchange(severed_, true)) return;
  ++fabric_.counts().cuts;
  fabric_.scheduler().trace(7, fabric_.counts().cuts);
  for (int side = 0; side < 2; ++side)
    die_later(side, fabric_.notice(), Status::kFailed);
}

// ------------------------------------------------------------------------------ connection

SimConnection::SimConnection(std::shared_ptr<Fabric> fabric, Link& link, int side, std::string peer,
                             std::vector<std::byte> private_data)
    : fabric_(std::move(fabric)),
      link_(link),
      side_(side),
      peer_(std::move(peer)),
      private_data_(std::move(private_data)) {
  link_.open(side_, this);
}

Result<std::size_t> SimConnection::post(std::span<const Operation> batch) {
  fabric_->scheduler().may_yield();
  return link_.post(side_, batch);
}

}  // namespace rkv::rdma::sim
