#include "client/engine/multi_put.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

namespace rkv::client {

void MultiPut::begin() {
  engine_.multi_puts.batch.clear();
  engine_.multi_puts.batched.clear();
  engine_.requester.reset_busy_wait();
  for (Slot& slot : engine_.multi_puts.slots) {
    slot.state = State::kFree;
    slot.value = nullptr;
  }
  engine_.multi_puts.again.clear();
  engine_.connector.check_link();
}

void MultiPut::run() {
  begin();
  if (engine_.session.usable()) (void)engine_.connector.believe(deadline_);
  // The deadline holds even while there is progress, but need not be checked every round.
  constexpr unsigned kRoundsPerLook = 64;
  for (unsigned round = 1; !over(); ++round) {
    if (!engine_.session.usable()) {
      lost();
      if (over()) return;
      if (const Status usable = engine_.connector.ensure_connected(deadline_); !usable) {
        return fail_rest(usable.error());
      }
    }
    fill();
    post();
    const bool idle = poll() == 0;
    if (over() || !engine_.session.link.alive()) continue;
    if (!idle && round % kRoundsPerLook != 0) continue;
    if (deadline_.passed()) return time_out();
    if (idle) engine_.session.link.wait(Deadline(engine_.session.clock, sleep_until()));
  }
}

bool MultiPut::advance() {
  fill();
  const bool posted = post();
  return poll() != 0 || posted || !engine_.session.link.alive();
}

void MultiPut::lost() {
  engine_.session.link.close();  // closed before buffers that the server READs are reused (LINK-1)
  for (Slot& slot : engine_.multi_puts.slots) {
    if (slot.state == State::kSent || slot.state == State::kAsked) {
      put_back(slot, State::kLost);
    } else if (slot.state == State::kAgain && slot.count > 1) {
      unpack(slot);
    }
  }
}

void MultiPut::put_back(Slot& slot, State state) {
  slot.state = state;
  ++again_;
}

// Takes a pack apart that was not sent. The next server may take other packs.
void MultiPut::unpack(Slot& slot) {
  for (const std::size_t index : std::span(slot.items).first(slot.count))
    engine_.multi_puts.again.push_back({.index = index});
  --again_;
  free(slot);
}

void MultiPut::time_out() {
  engine_.session.link.close();
  fail_sent(Code::kTimeout, "the server did not answer in time");
  fail_rest({.code = Code::kTimeout, .text = "the deadline passed before this was sent"});
}

// Encodes requests into the batch while there are credits.
void MultiPut::fill() {
  if (send_at_ != 0) {
    if (engine_.session.clock.now() < send_at_) return;
    send_at_ = 0;
  }
  for (Slot& slot : engine_.multi_puts.slots) {
    if (!engine_.session.link.requests().has_credit()) return;
    if (slot.state == State::kSent || slot.state == State::kAsked) continue;
    if (slot.state == State::kFree && (again_ != 0 || !take_items(slot))) {
      if (again_ == 0) return;  // nothing is left to be sent
      continue;
    }
    begin(slot);  // may lack memory for its large value, while another slot has its memory
  }
}

Status MultiPut::check(const KeyValue& item) const {
  RKV_RETURN_IF_ERROR(check_key(as_bytes(item.key)));
  RKV_RETURN_IF_ERROR(check_value(as_bytes(item.value)));
  if (item.expires_at_ms > kMaxTtlMs) {
    return fail(Code::kInvalidArgument, "expires_at_ms is at most 2^42");
  }
  if (!is_large(item.value.size()) && kRequestHeaderBytes + item.key.size() + item.value.size() >
                                          engine_.session.link.accept().max_message_bytes) {
    return fail(Code::kTooLarge, "the request is longer than the server's limit");
  }
  return {};
}

// Returns the next valid item. Invalid items are finished with their error.
std::optional<PutAgain> MultiPut::next_item() {
  if (held_) return std::exchange(held_, std::nullopt);
  auto& again = engine_.multi_puts.again;
  if (!again.empty()) {
    const PutAgain item = again.back();
    again.pop_back();
    return item;
  }
  while (next_item_ < items_.size()) {
    const std::size_t index = next_item_++;
    const Status valid = check(items_[index]);
    if (valid) return PutAgain{.index = index};
    report(index, std::unexpected(valid.error()));
  }
  return std::nullopt;
}

// Half of all items, so that the server begins while more is encoded. Fewer than 8 would save
// little. If each answer costs a wake-up, packs are as large as they may be.
std::size_t MultiPut::most_in_pack() const {
  constexpr std::size_t kLeast = 8;
  const std::size_t half = (items_.size() + 1) / 2;
  const std::size_t wanted =
      engine_.session.link.waits_asleep() ? kMaxPacked : std::max(half, kLeast);
  return std::min<std::size_t>({wanted, kMaxPacked, engine_.session.link.accept().max_packed});
}

// Gives the slot items for one request. Returns false if there are none.
bool MultiPut::take_items(Slot& slot) {
  const std::size_t most = most_in_pack();
  const std::size_t room =
      std::min<std::size_t>(engine_.multi_puts.pack.size(),
                            engine_.session.link.accept().max_sent_bytes - kRequestHeaderBytes);
  std::size_t bytes = kPackHeaderBytes;
  slot.count = 0;
  while (const auto item = next_item()) {
    bytes += PackWriter::bytes_of(request_for(items_[item->index]));
    const bool alone = item->alone || bytes > room;
    if (slot.count != 0 && alone) {
      held_ = item;
      break;
    }
    slot.items[slot.count++] = item->index;
    if (alone || slot.count >= most) break;
  }
  if (slot.count == 0) return false;
  slot.state = State::kAgain;
  ++again_;
  return true;
}

// Copies a large value to where the server will READ it. False: the memory is in use until finish()
// of another slot returns some; or it cannot be registered, and the slot is finished with the
// error.
bool MultiPut::stage(Slot& slot) {
  if (slot.value != nullptr) return true;  // staged before, then refused with "later"
  const Bytes value = as_bytes(items_[slot.items.front()].value);
  const auto taken = engine_.session.large.take(value.size());
  if (!taken) {
    if (taken.error().code != Code::kBusy) {
      --again_;
      finish(slot, std::unexpected(taken.error()));
    }
    return false;
  }
  slot.value = *taken;
  std::memcpy(slot.value->bytes().data(), value.data(), value.size());
  return true;
}

Request MultiPut::request_for(const KeyValue& item) const {
  Request put{.opcode = Opcode::kPut, .key = as_bytes(item.key)};
  put.value = as_bytes(item.value);
  put.until = item.expires_at_ms != 0;
  put.ttl_ms = item.expires_at_ms;
  return put;
}

bool MultiPut::begin(Slot& slot) {
  if (slot.state == State::kLost) return begin_question(slot);
  return slot.count == 1 ? begin_single(slot) : begin_pack(slot);
}

bool MultiPut::begin_question(Slot& slot) {
  OutcomeFinder& outcomes = engine_.requester.outcomes();
  if (!outcomes.may_be_known(slot.sent)) {  // ASK-2
    --again_;
    finish(slot, std::unexpected(outcomes.not_known()));
    return false;
  }
  std::array<std::byte, kWriteIdBytes> value;
  if (!batch(slot, outcomes.question(slot.sent, value))) return false;
  slot.state = State::kAsked;
  return true;
}

bool MultiPut::begin_pack(Slot& slot) {
  PackWriter pack(engine_.multi_puts.pack);
  for (const std::size_t index : std::span(slot.items).first(slot.count))
    pack.add(request_for(items_[index]));
  Request request{.opcode = Opcode::kPack};
  request.value = pack.finish();
  return send(slot, request);
}

bool MultiPut::begin_single(Slot& slot) {
  const KeyValue& item = items_[slot.items.front()];
  Request put = request_for(item);
  LargeSource source;
  if (is_large(item.value.size())) {
    if (!stage(slot)) return false;
    source = {.value = slot.value->bytes().first(item.value.size()),
              .remote_key = slot.value->region->remote_key()};
    source.describe(put.key, engine_.session.map.epoch());
    put.opcode = Opcode::kPutLarge;
    put.value = source.encoded;
  }
  return send(slot, put);
}

// Encodes the request into the batch. Returns false if it cannot be sent now.
bool MultiPut::send(Slot& slot, Request request) {
  request.durability = durability_;
  request.begin_by_us = engine_.session.link.begin_by_us(deadline_);
  if (!batch(slot, request)) return false;
  slot.sent = engine_.requester.outcomes().last_sent();
  slot.state = State::kSent;
  return true;
}

bool MultiPut::batch(Slot& slot, const Request& request) {
  const auto tag = static_cast<std::uint64_t>(&slot - engine_.multi_puts.slots.data());
  const auto operation = engine_.session.link.requests().begin(request, tag);
  if (!operation) return false;
  engine_.multi_puts.batch.push_back(*operation);
  engine_.multi_puts.batched.push_back(&slot);
  --again_;
  return true;
}

// Posts the batch; undoes begin() for requests that were not taken. Returns true if any were taken.
bool MultiPut::post() {
  auto& batch = engine_.multi_puts.batch;
  auto& slots = engine_.multi_puts.batched;
  if (batch.empty()) return false;
  const auto posted = engine_.session.link.post(batch);
  const std::size_t taken = posted ? *posted : 0;
  engine_.session.stats.two_sided_requests += taken;
  while (batch.size() > taken) {
    engine_.session.link.requests().cancel(batch.back());
    put_back(*slots.back(), slots.back()->state == State::kAsked ? State::kLost : State::kAgain);
    batch.pop_back();
    slots.pop_back();
  }
  batch.clear();
  slots.clear();
  return taken != 0;
}

// Returns how many answers came.
std::size_t MultiPut::poll() {
  if (!engine_.session.link.alive()) return 0;
  const auto events = engine_.session.link.poll();
  for (const Event& event : events) {
    on_reply(event);  // only requests are in flight
    engine_.session.link.release(event.buffer);
  }
  if (!events.empty()) engine_.connector.progressed();
  return events.size();
}

void MultiPut::on_reply(const Event& event) {
  Slot& slot = engine_.multi_puts.slots[event.context];
  const Response& response = event.response;
  engine_.session.learn_marks(response);
  if (slot.state == State::kAsked) return on_outcome(slot, response);
  on_answer(slot, response);
}

void MultiPut::on_outcome(Slot& slot, const Response& response) {
  OutcomeFinder& outcomes = engine_.requester.outcomes();
  switch (outcomes.fate_in(response)) {
    case OutcomeFinder::Fate::kLater:
      wait_busy(response);
      return put_back(slot, State::kLost);
    case OutcomeFinder::Fate::kNotApplied:
      put_back(slot, State::kAgain);
      if (slot.count > 1) unpack(slot);
      return;
    case OutcomeFinder::Fate::kNotKnown:
      return finish(slot, std::unexpected(outcomes.not_known()));
    case OutcomeFinder::Fate::kAnswered:
      break;
  }
  const Opcode opcode = slot.count > 1 ? Opcode::kPack : Opcode::kPut;
  const auto answer = answer_of_write(response, opcode);
  if (!answer) return break_off(slot, answer.error().text);
  on_answer(slot, *answer);
}

// The answer of the slot is not as the server must make it. A question is not asked twice.
void MultiPut::break_off(Slot& slot, const char* why) {
  engine_.session.link.break_off(why);
  if (slot.state != State::kAsked) return;
  finish(slot, std::unexpected(engine_.requester.outcomes().not_known()));
}

void MultiPut::on_answer(Slot& slot, const Response& response) {
  if (slot.count > 1 && response.code == 0) return on_pack(slot, response);
  if (response.code == 0) {
    on_result(slot.items.front(), response);
    return free(slot);
  }
  const Error error = engine_.requester.refused(response);
  if (!Requester::is_put_off(error, deadline_)) return finish(slot, std::unexpected(error));
  if (error.code == Code::kBusy) wait_busy(response);
  put_back(slot, State::kAgain);
}

// Nothing of an answer counts before all of it was read. An answer that is not as the server must
// make it ends the connection, and the server is asked about the slot's PUTs.
void MultiPut::on_pack(Slot& slot, const Response& response) {
  ResultReader checked(response.value);
  for (std::size_t i = 0; i < slot.count; ++i) {
    if (const auto result = checked.next(Opcode::kPut); !result) {
      return break_off(slot, result.error().text);
    }
  }
  if (!checked.at_end()) return break_off(slot, "its answer has more results than the pack");
  ResultReader reader(response.value);
  std::optional<Response> busy;
  for (const std::size_t index : std::span(slot.items).first(slot.count)) {
    const Response result = *reader.next(Opcode::kPut);
    if (on_result(index, result)) continue;
    const bool alone = (result.flags & Response::kAlone) != 0;
    if (!alone && static_cast<Code>(result.code) == Code::kBusy) busy = result;
    engine_.multi_puts.again.push_back({.index = index, .alone = alone});
  }
  if (busy) wait_busy(*busy);
  free(slot);
}

// Returns false if the item is to be sent again.
bool MultiPut::on_result(std::size_t index, const Response& response) {
  if (response.code == 0) {
    engine_.requester.note_write(response, durability_);
    engine_.session.learn_place(as_bytes(items_[index].key), response);
    engine_.requester.reset_busy_wait();
    report(index, response.version.bits);
    return true;
  }
  if ((response.flags & Response::kAlone) != 0) return false;
  const Error error = engine_.requester.refused(response);
  if (Requester::is_put_off(error, deadline_)) return false;
  report(index, std::unexpected(error));
  return true;
}

// Sends nothing until a busy server has had some time.
void MultiPut::wait_busy(const Response& response) {
  send_at_ = engine_.session.clock.now() + engine_.requester.busy_wait(response);
}

Nanos MultiPut::sleep_until() const {
  return send_at_ != 0 ? std::min(send_at_, deadline_.at()) : deadline_.at();
}

void MultiPut::report(std::size_t index, const Result<std::uint64_t>& version) {
  visit_(target_, index, version);
  ++finished_;
}

void MultiPut::free(Slot& slot) {
  engine_.session.large.give_back(slot.value);
  slot.value = nullptr;
  slot.state = State::kFree;
}

void MultiPut::finish(Slot& slot, const Result<std::uint64_t>& version) {
  for (const std::size_t index : std::span(slot.items).first(slot.count))
    report(index, version);
  free(slot);
}

void MultiPut::fail_sent(Code code, const char* text) {
  for (Slot& slot : engine_.multi_puts.slots) {
    if (slot.state == State::kFree || slot.state == State::kAgain) continue;
    if (slot.state == State::kLost) --again_;
    finish(slot, std::unexpected(
                     Error{.code = code, .write = WriteOutcome::kMayHaveHappened, .text = text}));
  }
}

void MultiPut::fail_rest(const Error& error) {
  for (Slot& slot : engine_.multi_puts.slots) {
    if (slot.state != State::kLost) continue;
    --again_;
    finish(slot, std::unexpected(engine_.requester.outcomes().not_known()));
  }
  for (Slot& slot : engine_.multi_puts.slots) {
    if (slot.state != State::kAgain) continue;
    --again_;
    finish(slot, std::unexpected(error));
  }
  for (; !engine_.multi_puts.again.empty(); engine_.multi_puts.again.pop_back())
    report(engine_.multi_puts.again.back().index, std::unexpected(error));
  if (held_) report(std::exchange(held_, std::nullopt)->index, std::unexpected(error));
  while (next_item_ < items_.size())
    report(next_item_++, std::unexpected(error));
}

}  // namespace rkv::client
