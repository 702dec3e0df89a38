#include "client/engine/write_pipeline.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

namespace rkv::client {

namespace {
constexpr std::uint64_t kWrongTtl = kMaxTtlMs + 1;  // check() refuses it
}  // namespace

Request ItemsFeed::request(std::uint64_t token) const {
  const KeyValue& item = items_[token];
  Request put{.opcode = Opcode::kPut, .durability = durability_, .key = as_bytes(item.key)};
  put.value = as_bytes(item.value);
  put.until = item.expires_at_ms != 0;
  put.ttl_ms = put.until ? item.expires_at_ms : static_cast<std::uint64_t>(item.ttl.count());
  if (put.until && item.ttl.count() != 0) put.ttl_ms = kWrongTtl;
  return put;
}

// ------------------------------------------------------------------------------------- rounds

void WritePipeline::begin() {
  engine_.requester.reset_busy_wait();
  engine_.connector.check_link();
}

void WritePipeline::run() {
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
    start();
    const bool idle = poll() == 0;
    if (over() || !engine_.session.link.alive()) continue;
    if (!idle && round % kRoundsPerLook != 0) continue;
    if (deadline_.passed()) return time_out();
    if (idle) engine_.session.link.wait(Deadline(engine_.session.clock, sleep_until()));
  }
}

bool WritePipeline::advance() {
  const bool posted = start();
  return poll() != 0 || posted || !engine_.session.link.alive();
}

void WritePipeline::lost() {
  engine_.session.link.close();  // closed before buffers that the server READs are reused (LINK-1)
  on_lost();
}

void WritePipeline::on_lost() {
  for (Slot& slot : buffers_->slots) {
    if (slot.state == State::kSent || slot.state == State::kAsked) {
      put_back(slot, State::kLost);
    } else if (slot.state == State::kAgain && slot.count > 1) {
      unpack(slot);
    }
  }
}

void WritePipeline::put_back(Slot& slot, State state) {
  slot.state = state;
  ++again_;
}

// Takes apart a pack that was not sent: the next server may take other packs.
void WritePipeline::unpack(Slot& slot) {
  for (const WriteOfRequest& item : std::span(slot.items).first(slot.count))
    send_again(item.token, false);
  --again_;
  free(slot);
}

void WritePipeline::send_again(std::uint64_t token, bool alone) {
  if (token == kGivenUp) {
    --unfinished_;
  } else {
    buffers_->again.push_back({.token = token, .alone = alone});
  }
}

void WritePipeline::time_out() {
  engine_.session.link.close();
  fail_sent(Code::kTimeout, "the server did not answer in time");
  fail_rest({.code = Code::kTimeout, .text = "the deadline passed before this was sent"});
}

// ------------------------------------------------------------------------------------ sending

// Encodes requests into the batch while there are credits.
void WritePipeline::fill() {
  if (send_at_ != 0) {
    if (engine_.session.clock.now() < send_at_) return;
    send_at_ = 0;
  }
  for (Slot& slot : buffers_->slots) {
    if (!engine_.session.link.requests().has_credit()) return;
    if (slot.state == State::kSent || slot.state == State::kAsked) continue;
    if (slot.state == State::kFree && (again_ != 0 || !take_items(slot))) {
      if (again_ == 0) return;  // there is nothing left to send
      continue;
    }
    begin(slot);  // may lack memory for a large value; a later slot may have its own
  }
}

Status WritePipeline::check(const Request& request) const {
  RKV_RETURN_IF_ERROR(check_key(request.key));
  RKV_RETURN_IF_ERROR(check_value(request.value));
  RKV_RETURN_IF_ERROR(check_durability(request.durability));
  if (request.ttl_ms > kMaxTtlMs) {
    return fail(Code::kInvalidArgument,
                "a put has at most one of ttl and expires_at_ms; each is at most 2^42 ms");
  }
  const bool is_put = request.opcode == Opcode::kPut;
  if (!(is_put && is_large(request.value.size())) &&
      kRequestHeaderBytes + request.key.size() + request.value.size() >
          engine_.session.link.accept().max_message_bytes) {
    return fail(Code::kTooLarge, "the request is longer than the server's limit");
  }
  return {};
}

// Returns the next valid write. Invalid ones end with their error.
std::optional<WriteAgain> WritePipeline::next_item() {
  if (held_) {
    const WriteAgain item = *std::exchange(held_, std::nullopt);
    if (item.token != kGivenUp) return item;
    --unfinished_;
  }
  auto& again = buffers_->again;
  while (!again.empty()) {
    const WriteAgain item = again.back();
    again.pop_back();
    if (item.token != kGivenUp) return item;
    --unfinished_;
  }
  while (!feed_->empty()) {
    const std::uint64_t token = feed_->take();
    ++unfinished_;
    const Status valid = check(feed_->request(token));
    if (valid) return WriteAgain{.token = token};
    end(token, valid.error());
  }
  return std::nullopt;
}

// Returns half of the number of writes, so that the server begins while further writes are encoded.
// Fewer than 8 would save little. If each answer costs a wake-up, packs are as large as possible.
std::size_t WritePipeline::most_in_pack() const {
  constexpr std::size_t kLeast = 8;
  const std::size_t half = (feed_->burst() + 1) / 2;
  const std::size_t wanted =
      engine_.session.link.waits_asleep() ? kMaxPacked : std::max(half, kLeast);
  return std::min<std::size_t>({wanted, kMaxPacked, engine_.session.link.accept().max_packed});
}

// Gives the slot the writes of one request. All writes of a pack have one durability. Returns false
// if there are none.
bool WritePipeline::take_items(Slot& slot) {
  const std::size_t most = most_in_pack();
  const std::size_t room = std::min<std::size_t>(
      buffers_->pack.size(), engine_.session.link.accept().max_sent_bytes - kRequestHeaderBytes);
  std::size_t bytes = kPackHeaderBytes;
  Durability durability{};
  slot.count = 0;
  while (const auto item = next_item()) {
    const Request request = feed_->request(item->token);
    bytes += PackWriter::bytes_of(request);
    const bool alone = item->alone || bytes > room;
    if (slot.count != 0 && (alone || request.durability != durability)) {
      held_ = item;
      break;
    }
    durability = request.durability;
    slot.items[slot.count++] = {.token = item->token, .opcode = request.opcode};
    if (alone || slot.count >= most) break;
  }
  if (slot.count == 0) return false;
  slot.state = State::kAgain;
  ++again_;
  return true;
}

bool WritePipeline::begin(Slot& slot) {
  if (slot.state == State::kLost) return begin_question(slot);
  if (drop_given_up(slot)) return false;
  return slot.count == 1 ? begin_single(slot) : begin_pack(slot);
}

// Takes a slot apart if it is to be sent and has writes that nobody awaits. Returns true if it did.
bool WritePipeline::drop_given_up(Slot& slot) {
  const auto items = std::span(slot.items).first(slot.count);
  if (std::ranges::find(items, kGivenUp, &WriteOfRequest::token) == items.end()) return false;
  unpack(slot);
  return true;
}

bool WritePipeline::awaits_given_up() const {
  return std::ranges::any_of(buffers_->slots, [](const Slot& slot) {
    const auto items = std::span(slot.items).first(slot.count);
    return (slot.state == State::kSent || slot.state == State::kAsked) &&
           std::ranges::find(items, kGivenUp, &WriteOfRequest::token) != items.end();
  });
}

bool WritePipeline::begin_question(Slot& slot) {
  OutcomeFinder& outcomes = engine_.requester.outcomes();
  if (!outcomes.may_be_known(slot.sent)) {  // ASK-2
    --again_;
    finish(slot, outcomes.not_known());
    return false;
  }
  std::array<std::byte, kWriteIdBytes> value;
  if (!batch(slot, outcomes.question(slot.sent, value))) return false;
  slot.state = State::kAsked;
  return true;
}

bool WritePipeline::begin_pack(Slot& slot) {
  PackWriter pack(buffers_->pack);
  Request request{.opcode = Opcode::kPack};
  Nanos first = std::numeric_limits<Nanos>::max();
  for (const WriteOfRequest& item : std::span(slot.items).first(slot.count)) {
    const Request write = feed_->request(item.token);
    request.durability = write.durability;
    first = std::min(first, feed_->deadline(item.token));
    pack.add(write);
  }
  request.value = pack.finish();
  return send(slot, request, first);
}

bool WritePipeline::begin_single(Slot& slot) {
  const std::uint64_t token = slot.items.front().token;
  Request write = feed_->request(token);
  LargeSource source;
  if (write.opcode == Opcode::kPut && is_large(write.value.size())) {
    if (!stage(slot, write)) return false;
    source = {.value = slot.value->bytes().first(write.value.size()),
              .remote_key = slot.value->region->remote_key()};
    source.describe(write.key, engine_.session.map.epoch());
    write.opcode = Opcode::kPutLarge;
    write.value = source.encoded;
  }
  return send(slot, write, feed_->deadline(token));
}

// Copies a large value to memory from which the server will READ it. Returns false in two cases:
// the memory is in use until finish() of another slot returns some; or it cannot be registered, and
// the slot was finished with the error.
bool WritePipeline::stage(Slot& slot, const Request& put) {
  if (slot.value != nullptr) return true;  // staged before, then refused with "later"
  const auto taken = engine_.session.large.take(put.value.size());
  if (!taken) {
    if (taken.error().code != Code::kBusy) {
      --again_;
      finish(slot, taken.error());
    }
    return false;
  }
  slot.value = *taken;
  std::memcpy(slot.value->bytes().data(), put.value.data(), put.value.size());
  return true;
}

// Encodes the request into the batch. Returns false if it cannot be sent now.
bool WritePipeline::send(Slot& slot, Request request, Nanos deadline) {
  request.begin_by_us = engine_.session.link.begin_by_us(Deadline(engine_.session.clock, deadline));
  if (!batch(slot, request)) return false;
  slot.sent = engine_.requester.outcomes().last_sent();
  slot.state = State::kSent;
  return true;
}

bool WritePipeline::batch(Slot& slot, const Request& request) {
  const auto operation = engine_.session.link.requests().begin(request, kTag | slot.number);
  if (!operation) return false;
  buffers_->batch.push_back(*operation);
  buffers_->batched.push_back(&slot);
  --again_;
  return true;
}

// Posts the batch; undoes begin() for requests that were not taken. Returns true if any were taken.
bool WritePipeline::post() {
  auto& batch = buffers_->batch;
  auto& slots = buffers_->batched;
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

// ------------------------------------------------------------------------------------ answers

// Returns how many answers came.
std::size_t WritePipeline::poll() {
  if (!engine_.session.link.alive()) return 0;
  const auto events = engine_.session.link.poll();
  for (const Event& event : events)
    on_event(event);  // only requests are in flight
  if (!events.empty()) engine_.connector.progressed();
  return events.size();
}

void WritePipeline::on_event(const Event& event) {
  Slot& slot = buffers_->slots[event.context & ~kTag];
  const Response& response = event.response;
  engine_.session.learn_marks(response);
  if (slot.state == State::kAsked) {
    on_outcome(slot, response);
  } else {
    on_answer(slot, response);
  }
  engine_.session.link.release(event.buffer);
}

void WritePipeline::on_outcome(Slot& slot, const Response& response) {
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
      return finish(slot, outcomes.not_known());
    case OutcomeFinder::Fate::kAnswered:
      break;
  }
  const Opcode opcode = slot.count > 1 ? Opcode::kPack : slot.items.front().opcode;
  const auto answer = answer_of_write(response, opcode);
  if (!answer) return break_off(slot, answer.error().text);
  on_answer(slot, *answer);
}

// Ends the connection, because the slot's answer breaks the protocol. A question is not asked
// twice.
void WritePipeline::break_off(Slot& slot, const char* why) {
  engine_.session.link.break_off(why);
  if (slot.state != State::kAsked) return;
  finish(slot, engine_.requester.outcomes().not_known());
}

void WritePipeline::on_answer(Slot& slot, const Response& response) {
  if (slot.count > 1 && response.code == 0) return on_pack(slot, response);
  if (response.code == 0) {
    on_result(slot.items.front(), response);
    return free(slot);
  }
  const Error error = engine_.requester.refused(response);
  if (!is_put_off(error, slot)) return finish(slot, error);
  if (error.code == Code::kBusy) wait_busy(response);
  put_back(slot, State::kAgain);
}

// No part of an answer counts before all of it was read. An answer that breaks the protocol ends
// the connection, and the server is asked about the slot's writes.
void WritePipeline::on_pack(Slot& slot, const Response& response) {
  const auto items = std::span(slot.items).first(slot.count);
  ResultReader checked(response.value);
  for (const WriteOfRequest& item : items) {
    if (const auto result = checked.next(item.opcode); !result) {
      return break_off(slot, result.error().text);
    }
  }
  if (!checked.at_end()) return break_off(slot, "its answer has more results than the pack");
  ResultReader reader(response.value);
  std::optional<Response> busy;
  for (const WriteOfRequest& item : items) {
    const Response result = *reader.next(item.opcode);
    if (on_result(item, result)) continue;
    const bool alone = (result.flags & Response::kAlone) != 0;
    if (!alone && static_cast<Code>(result.code) == Code::kBusy) busy = result;
    send_again(item.token, alone);
  }
  if (busy) wait_busy(*busy);
  free(slot);
}

// Returns false if the write must be sent again.
bool WritePipeline::on_result(const WriteOfRequest& item, const Response& response) {
  const bool awaited = item.token != kGivenUp;
  if (response.code == 0) {
    if (awaited) {
      const Request request = feed_->request(item.token);
      engine_.requester.note_write(response, request.durability);
      engine_.session.learn_place(request.key, response);
    } else {
      engine_.requester.note_write(response, Durability::kDefault);
    }
    engine_.requester.reset_busy_wait();
    --unfinished_;
    if (awaited) feed_->done(item.token, response);
    return true;
  }
  if ((response.flags & Response::kAlone) != 0) return false;
  const Error error = engine_.requester.refused(response);
  if (is_put_off(error, item)) return false;
  end(item.token, error);
  return true;
}

bool WritePipeline::is_put_off(const Error& error, const WriteOfRequest& item) const {
  if (item.token == kGivenUp) return false;
  return Requester::is_put_off(error, Deadline(engine_.session.clock, feed_->deadline(item.token)));
}

// Whether the request is put off, for its writes that have time left.
bool WritePipeline::is_put_off(const Error& error, const Slot& slot) const {
  return std::ranges::any_of(std::span(slot.items).first(slot.count),
                             [&](const WriteOfRequest& item) { return is_put_off(error, item); });
}

// Sends nothing until a busy server has had some time.
void WritePipeline::wait_busy(const Response& response) {
  send_at_ = engine_.session.clock.now() + engine_.requester.busy_wait(response);
}

Nanos WritePipeline::sleep_until() const {
  return send_at_ != 0 ? std::min(send_at_, deadline_.at()) : deadline_.at();
}

// ------------------------------------------------------------------------------------- the end

void WritePipeline::end(std::uint64_t token, const Error& error) {
  --unfinished_;
  if (token != kGivenUp) feed_->failed(token, error);
}

void WritePipeline::free(Slot& slot) {
  engine_.session.large.give_back(slot.value);
  slot.value = nullptr;
  slot.state = State::kFree;
}

void WritePipeline::finish(Slot& slot, const Error& error) {
  for (const WriteOfRequest& item : std::span(slot.items).first(slot.count))
    end(item.token, error);
  free(slot);
}

void WritePipeline::fail_sent(Code code, const char* text) {
  for (Slot& slot : buffers_->slots) {
    if (slot.state == State::kFree || slot.state == State::kAgain) continue;
    if (slot.state == State::kLost) --again_;
    finish(slot, {.code = code, .write = WriteOutcome::kMayHaveHappened, .text = text});
  }
}

void WritePipeline::fail_rest(const Error& error) {
  for (Slot& slot : buffers_->slots) {
    if (slot.state != State::kLost) continue;
    --again_;
    finish(slot, engine_.requester.outcomes().not_known());
  }
  for (Slot& slot : buffers_->slots) {
    if (slot.state != State::kAgain) continue;
    --again_;
    finish(slot, error);
  }
  auto& again = buffers_->again;
  for (; !again.empty(); again.pop_back())
    end(again.back().token, error);
  if (held_) end(std::exchange(held_, std::nullopt)->token, error);
  while (!feed_->empty()) {
    ++unfinished_;
    end(feed_->take(), error);
  }
}

}  // namespace rkv::client
