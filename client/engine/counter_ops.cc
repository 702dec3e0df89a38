// Counters changed by requests, and counters whose numbers are in cells, changed by atomics (one
// round trip, as for a READ).
//
// A word is added to or swapped only at the address of the counter's cell. The address comes from
// the accept of this connection and an answer of this epoch. The returned old value decides the
// outcome: without the seal the change was applied, with the seal nothing was
// (server/store/cells.h). No other proof is needed.
#include "client/engine/counter_ops.h"

#include <algorithm>

namespace rkv::client {

namespace {

constexpr Nanos kAskAgain = 1000 * kNanosPerMs;  // pause before asking for a cell again
constexpr std::size_t kWordBytes = sizeof(std::uint64_t);

bool fits_addition(std::int64_t summand) {
  return summand >= -kMaxCellSummand && summand <= kMaxCellSummand;
}
bool fits_cell(std::int64_t number) {
  return number > -kCellEndNumber && number < kCellEndNumber;
}

// A change that must be on disk when the call returns goes through the server. Other changes use
// atomics: opening the counter asks for them, so the server's default durability does not apply.
bool goes_by_atomic(Durability durability) {
  return durability == Durability::kDefault || durability == Durability::kMemory;
}

Error lost(const Status& ended, bool may_have_happened) {
  Error error = ended.error();
  error.write = may_have_happened ? WriteOutcome::kMayHaveHappened : WriteOutcome::kNotApplied;
  return error;
}

// The decoder has checked the length.
std::int64_t number_in(const Response& response) {
  return load_le<std::int64_t>(response.value.data());
}

}  // namespace

CounterOps::CounterOps(Session& session, Connector& connector, Requester& requester, Getter& getter)
    : session_(session),
      connector_(connector),
      requester_(requester),
      getter_(getter),
      packed_adds_(session, connector, requester) {
  atomics_.reserve(kAtomicsAtOnce);
  collected_.reserve(kAtomicsAtOnce);
}

// ------------------------------------------------------------------------------- by requests

Result<Counter> CounterOps::add(Bytes key, std::int64_t summand, const Deadline& deadline,
                                Durability durability) {
  std::array<std::byte, kCounterBytes> bytes;
  store_le(bytes.data(), summand);
  const auto reply = requester_.write(
      {.opcode = Opcode::kAdd, .durability = durability, .key = key, .value = bytes}, deadline);
  if (!reply) return std::unexpected(reply.error());
  return session_.counter_in(reply->response());
}

Result<CounterSwap> CounterOps::swap(Bytes key, std::int64_t expected, std::int64_t desired,
                                     const Deadline& deadline, Durability durability) {
  std::array<std::byte, 2 * kCounterBytes> numbers;
  store_le(numbers.data(), expected);
  store_le(numbers.data() + kCounterBytes, desired);
  const auto reply = requester_.write(
      {.opcode = Opcode::kSwap, .durability = durability, .key = key, .value = numbers}, deadline);
  if (!reply) return std::unexpected(reply.error());
  const Response& response = reply->response();
  return CounterSwap{.done = (response.flags & Response::kSwapped) != 0,
                     .number = number_in(response),
                     .version = response.version.bits};
}

// ------------------------------------------------------------------------------------ cells

bool CounterOps::is_bound(const OneSidedCounter& counter) const {
  if (!session_.usable() || counter.epoch_ != session_.map.epoch()) return false;
  // A connection over another network has other cells, or no cells.
  const RemoteWindow& cells = session_.link.accept().counters;
  if (counter.is_one_sided()) return counter.word_ - cells.address < cells.length;
  return cells.length == 0 || session_.clock.now() < counter.ask_again_at_;
}

// Creating the counter is a write. It is not sent again if it may have happened (CTR-1), because
// another client may have removed the counter since. A lookup is not a write. If the lookup finds
// the counter, it is open. If not, it is unknown whether the counter was ever created.
Result<Reply> CounterOps::ask_for_cell(Bytes key, bool create, const Deadline& deadline) {
  const auto ask = [&](bool creates) {
    const std::byte flag{creates ? std::uint8_t{1} : std::uint8_t{0}};
    Request open{.opcode = Opcode::kOpenCounter};
    open.key = key;
    open.value = {&flag, 1};
    return creates ? requester_.ask_once(open, deadline) : requester_.ask(open, deadline);
  };
  auto reply = ask(create);
  if (reply || !create) return reply;
  const Error lost = reply.error();
  if (lost.code != Code::kDisconnected || lost.write == WriteOutcome::kNotApplied) return reply;
  auto found = ask(false);
  if (found) return found;
  Error error = found.error().code == Code::kNotFound ? lost : found.error();
  error.write = WriteOutcome::kMayHaveHappened;
  return std::unexpected(error);
}

Result<Version> CounterOps::bind(OneSidedCounter& counter, bool create, const Deadline& deadline) {
  Version version{};
  connector_
      .check_link();  // if the end of the connection is noticed now, no addition is lost with it
  while (!is_bound(counter)) {
    if (!session_.usable()) {
      RKV_RETURN_IF_ERROR(connector_.ensure_connected(deadline));
      continue;
    }
    if (deadline.passed())
      return fail(Code::kTimeout, "the server did not locate the counter in time");
    const auto reply = ask_for_cell(as_bytes(counter.key_), create, deadline);
    if (!reply) return std::unexpected(reply.error());
    const RemoteWindow& cells = session_.link.accept().counters;
    const auto cell = load_le<std::uint64_t>(reply->response().value.data());
    const bool no_cell = cell == kNoCell || cells.length == 0;
    if (!no_cell && cell >= cells.length / kWordBytes) {
      return fail(Code::kCorrupt, "the server named a counter cell that does not exist");
    }
    counter.word_ = no_cell ? 0 : cells.address + cell * kWordBytes;
    counter.epoch_ = session_.map.epoch();
    counter.ask_again_at_ = session_.clock.now() + kAskAgain;
    version = reply->response().version;
  }
  return version;
}

rdma::Operation CounterOps::atomic_on(const OneSidedCounter& counter, std::size_t index) const {
  return {.kind = rdma::Operation::Kind::kFetchAdd,
          .local_key = session_.arena.local_key(),
          .local = session_.arena.staging().subspan(index * kWordBytes, kWordBytes),
          .remote_address = counter.word_,
          .remote_key = session_.link.accept().counters.remote_key};
}

std::uint64_t CounterOps::told(std::size_t index) const {
  return load_le<std::uint64_t>(session_.arena.staging().data() + index * kWordBytes);
}

template <class Shape>
Result<std::optional<std::uint64_t>> CounterOps::run_atomic(OneSidedCounter& counter, bool create,
                                                            bool changes, const Deadline& deadline,
                                                            Shape shape) {
  for (;;) {
    RKV_RETURN_IF_ERROR(bind(counter, create, deadline));
    if (!counter.is_one_sided()) return std::nullopt;
    rdma::Operation operation = atomic_on(counter, 0);
    shape(operation);
    const Link::Atomics done = session_.link.run_atomics({&operation, 1}, deadline);
    session_.stats.atomics += done.posted;
    if (!done.ended) {
      const bool left = done.posted != 0;
      if (done.ended.error().code == Code::kDisconnected && (!left || !changes)) continue;  // CTR-1
      return std::unexpected(lost(done.ended, left && changes));
    }
    connector_.progressed();
    const std::uint64_t word = told(0);
    if (cell_number(word)) return word;
    unbind(counter);
  }
}

Result<OneSidedCounter> CounterOps::open(std::string_view key, bool create,
                                         const Deadline& deadline) {
  RKV_RETURN_IF_ERROR(check_key(as_bytes(key)));
  OneSidedCounter counter{std::string(key)};
  RKV_ASSIGN_OR_RETURN(const Version version, bind(counter, create, deadline));
  // The counter may have been created, which is an acknowledged write. If it existed before, the
  // caller may rely on it as well.
  if (create) requester_.note_write(version);
  return counter;
}

Result<Counter> CounterOps::add(OneSidedCounter& counter, std::int64_t summand,
                                const Deadline& deadline, Durability durability) {
  const Bytes key = as_bytes(counter.key_);
  if (!goes_by_atomic(durability) || !fits_addition(summand)) {
    return add(key, summand, deadline, durability);
  }
  RKV_ASSIGN_OR_RETURN(const auto old,
                       run_atomic(counter, true, true, deadline, [&](rdma::Operation& operation) {
                         operation.compare_or_add = static_cast<std::uint64_t>(summand);
                       }));
  if (!old) return add(key, summand, deadline, durability);
  session_.acknowledged.change_of_cell(session_.map.epoch());
  return Counter{.number = *cell_number(*old) + summand};
}

Result<CounterSwap> CounterOps::swap(OneSidedCounter& counter, std::int64_t expected,
                                     std::int64_t desired, const Deadline& deadline,
                                     Durability durability) {
  const Bytes key = as_bytes(counter.key_);
  if (!goes_by_atomic(durability) || !fits_cell(expected) || !fits_cell(desired)) {
    return swap(key, expected, desired, deadline, durability);
  }
  RKV_ASSIGN_OR_RETURN(const auto old,
                       run_atomic(counter, false, true, deadline, [&](rdma::Operation& operation) {
                         operation.kind = rdma::Operation::Kind::kCompareSwap;
                         operation.compare_or_add = cell_word(expected);
                         operation.swap = cell_word(desired);
                       }));
  if (!old) return swap(key, expected, desired, deadline, durability);
  const std::int64_t number = *cell_number(*old);
  if (number == expected) session_.acknowledged.change_of_cell(session_.map.epoch());
  return CounterSwap{.done = number == expected, .number = number == expected ? desired : number};
}

// Adds 0: a word from a READ might be torn, the result of an atomic is not.
Result<Counter> CounterOps::number(OneSidedCounter& counter, const Deadline& deadline) {
  RKV_ASSIGN_OR_RETURN(const auto old,
                       run_atomic(counter, false, false, deadline, [](rdma::Operation&) {}));
  if (!old) return getter_.get_number(as_bytes(counter.key_), deadline);
  return Counter{.number = *cell_number(*old)};
}

// ------------------------------------------------------------------------------ many at a time

void CounterOps::multi_add(std::span<const CounterAddition> additions, const Deadline& deadline,
                           std::span<Result<Counter>> results) {
  while (!additions.empty()) {
    const std::size_t count = std::min(additions.size(), kAtomicsAtOnce);
    add_some({.additions = additions.first(count),
              .results = results.first(count),
              .deadline = deadline});
    additions = additions.subspan(count);
    results = results.subspan(count);
  }
}

// All counters are bound first and checked once more, since binding one may reconnect to another
// epoch.
void CounterOps::add_some(const PackedAdds::Call& call) {
  Settled settled;
  bind_all(call, settled);
  add_in_cells(call, settled);
  add_rest(call, settled);
}

void CounterOps::bind_all(const PackedAdds::Call& call, Settled& settled) {
  connector_.check_link();
  for (std::size_t i = 0; i < call.additions.size(); ++i) {
    OneSidedCounter& counter = *call.additions[i].counter;
    if (is_bound(counter)) continue;
    const auto bound = bind(counter, true, call.deadline);
    if (bound) continue;
    // If the counter may have been created, the request is not sent again. For other errors, add()
    // finds the error.
    settled[i] = bound.error().write == WriteOutcome::kMayHaveHappened;
    if (settled[i]) call.results[i] = std::unexpected(bound.error());
    return;
  }
}

void CounterOps::add_in_cells(const PackedAdds::Call& call, Settled& settled) {
  atomics_.clear();
  for (std::size_t i = 0; i < call.additions.size(); ++i) {
    const CounterAddition& one = call.additions[i];
    if (settled[i] || goes_by_request(one) || !is_bound(*one.counter)) continue;
    atomics_.push_back(atomic_on(*one.counter, i));
    atomics_.back().compare_or_add = static_cast<std::uint64_t>(one.summand);
    atomics_.back().context = i;
  }
  const Link::Atomics done = session_.link.run_atomics(atomics_, call.deadline);
  session_.stats.atomics += done.posted;
  for (std::size_t place = 0; place < done.posted; ++place) {
    const std::size_t index = atomics_[place].context;
    const CounterAddition& one = call.additions[index];
    const auto number = place < done.landed ? cell_number(told(index)) : std::nullopt;
    if (number) {
      session_.acknowledged.change_of_cell(session_.map.epoch());
      call.results[index] = Counter{.number = *number + one.summand};
    } else if (place < done.landed) {
      unbind(*one.counter);  // sealed
      continue;
    } else {
      call.results[index] = std::unexpected(lost(done.ended, true));
    }
    settled.set(index);
  }
}

bool CounterOps::goes_by_request(const CounterAddition& addition) const {
  if (!fits_addition(addition.summand)) return true;
  return is_bound(*addition.counter) && !addition.counter->is_one_sided();
}

// Additions by requests are collected for packs. An addition that add() has to bind first is not
// delayed behind later ones.
void CounterOps::add_rest(const PackedAdds::Call& call, const Settled& settled) {
  for (std::size_t i = 0; i < call.additions.size(); ++i) {
    const CounterAddition& one = call.additions[i];
    if (settled[i]) continue;
    if (goes_by_request(one)) {
      collected_.push_back(i);
      continue;
    }
    add_collected(call);
    call.results[i] = add(*one.counter, one.summand, call.deadline, Durability::kDefault);
  }
  add_collected(call);
}

void CounterOps::add_collected(const PackedAdds::Call& call) {
  for (PackedAdds::Indices left = collected_; !left.empty();) {
    const PackedAdds::Sent sent = packed_adds_.send(call, left);
    for (const std::size_t index : sent.alone) {
      const CounterAddition& one = call.additions[index];
      call.results[index] = add(*one.counter, one.summand, call.deadline, Durability::kDefault);
    }
    left = left.subspan(sent.taken);
  }
  collected_.clear();
}

}  // namespace rkv::client
