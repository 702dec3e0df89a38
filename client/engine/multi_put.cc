#include "client/engine/multi_put.h"

#include <algorithm>
#include <cstring>

namespace rkv::client {

void MultiPut::begin() {
  engine_.multi_puts.batch.clear();
  engine_.multi_puts.batched.clear();
  engine_.requester.reset_busy_wait();
  std::ranges::fill(engine_.multi_puts.slots, Slot{});
  engine_.connector.check_link();
}

void MultiPut::run() {
  begin();
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
  engine_.session.link.close();  // closed before buffers that the server READs are reused (K1)
  fail_sent(Code::kDisconnected, "the connection was lost before the answer came");
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
    if (slot.state == State::kSent) continue;
    if (slot.state == State::kFree && (again_ != 0 || !take_next_item(slot))) continue;
    // This slot may lack memory for its large value while another slot already has its memory.
    if (!begin(slot) && !engine_.session.link.requests().has_credit()) return;
  }
}

// Gives the slot the next valid item; invalid items are finished with their error.
bool MultiPut::take_next_item(Slot& slot) {
  while (next_item_ < items_.size()) {
    slot.index = next_item_++;
    const KeyValue& item = items_[slot.index];
    Status valid = check_key(as_bytes(item.key));
    if (valid) valid = check_value(as_bytes(item.value));
    if (valid && item.expires_at_ms > kMaxTtlMs) {
      valid = fail(Code::kInvalidArgument, "expires_at_ms is at most 2^42");
    }
    if (valid && !is_large(item.value.size()) &&
        kRequestHeaderBytes + item.key.size() + item.value.size() >
            engine_.session.link.accept().max_message_bytes) {
      valid = fail(Code::kTooLarge, "the request is longer than the server's limit");
    }
    if (valid) {
      slot.state = State::kAgain;
      ++again_;
      return true;
    }
    finish(slot, std::unexpected(valid.error()));
  }
  return false;
}

// Copies a large value to where the server will READ it. False: the memory is in use until finish()
// of another slot returns some; or it cannot be registered, and the slot is finished with the
// error.
bool MultiPut::stage(Slot& slot) {
  if (slot.value != nullptr) return true;  // staged before, then refused with "later"
  const Bytes value = as_bytes(items_[slot.index].value);
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

bool MultiPut::begin(Slot& slot) {
  const KeyValue& item = items_[slot.index];
  Request put{.opcode = Opcode::kPut, .key = as_bytes(item.key)};
  put.value = as_bytes(item.value);
  put.durability = durability_;
  put.until = item.expires_at_ms != 0;
  put.ttl_ms = item.expires_at_ms;
  LargeSource source;
  if (is_large(item.value.size())) {
    if (!engine_.session.link.requests().has_credit() || !stage(slot)) return false;
    source = {.value = slot.value->bytes().first(item.value.size()),
              .remote_key = slot.value->region->remote_key()};
    source.describe(put.key, engine_.session.map.epoch());
    put.opcode = Opcode::kPutLarge;
    put.value = source.encoded;
  }
  put.begin_by_us = engine_.session.link.begin_by_us(deadline_);
  const auto tag = static_cast<std::uint64_t>(&slot - engine_.multi_puts.slots.data());
  const auto operation = engine_.session.link.requests().begin(put, tag);
  if (!operation) return false;
  engine_.multi_puts.batch.push_back(*operation);
  engine_.multi_puts.batched.push_back(&slot);
  slot.state = State::kSent;
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
    slots.back()->state = State::kAgain;
    ++again_;
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
  if (response.code == 0) {
    engine_.requester.note_write(response, durability_);
    engine_.session.learn_place(as_bytes(items_[slot.index].key), response);
    engine_.requester.reset_busy_wait();
    return finish(slot, response.version.bits);
  }
  const Error error = engine_.requester.refused(response);
  const bool again = error.code == Code::kBusy ||
                     (error.code == Code::kTimeout && !deadline_.passed());  // as ask_until_taken()
  if (!again) return finish(slot, std::unexpected(error));
  if (error.code == Code::kBusy) {
    send_at_ = engine_.session.clock.now() + engine_.requester.busy_wait(response);
  }
  slot.state = State::kAgain;
  ++again_;
}

Nanos MultiPut::sleep_until() const {
  return send_at_ != 0 ? std::min(send_at_, deadline_.at()) : deadline_.at();
}

void MultiPut::finish(Slot& slot, const Result<std::uint64_t>& version) {
  visit_(target_, slot.index, version);
  engine_.session.large.give_back(slot.value);
  slot.value = nullptr;
  slot.state = State::kFree;
  ++finished_;
}

void MultiPut::fail_sent(Code code, const char* text) {
  for (Slot& slot : engine_.multi_puts.slots) {
    if (slot.state != State::kSent) continue;
    finish(slot, std::unexpected(
                     Error{.code = code, .write = WriteOutcome::kMayHaveHappened, .text = text}));
  }
}

void MultiPut::fail_rest(const Error& error) {
  for (Slot& slot : engine_.multi_puts.slots) {
    if (slot.state == State::kAgain) finish(slot, std::unexpected(error));
  }
  for (; next_item_ < items_.size(); ++next_item_, ++finished_) {
    visit_(target_, next_item_, std::unexpected(error));
  }
}

}  // namespace rkv::client
