// Batches: several operations of a thread in flight. A batch is drawn together; its GETs are
// pipelined, then its PUTs, and then its scans run one after the other. The next batch is drawn
// when all have ended.
//
// Latencies: those of a GET or an update count from the beginning of the batch, those of a PUT from
// the beginning of the PUTs, each until its answer. The operations of a batch have no order, and
// updates are plain. Under -target a batch holds the operations that are due, at most --in-flight:
// an operation that is due alone does not wait for others.
#include <algorithm>

#include "bench/kvbench/record.h"
#include "bench/kvbench/worker.h"

namespace rkv::kvbench {

namespace {

bool writes(const Slot& slot) {
  return slot.operation == Operation::kUpdate || slot.operation == Operation::kInsert ||
         slot.operation == Operation::kReadModifyWrite;
}

bool reads(const Slot& slot) {
  const bool changes_part = slot.operation == Operation::kUpdate && slot.draft.field.has_value();
  return slot.operation == Operation::kRead || slot.operation == Operation::kReadModifyWrite ||
         changes_part;
}

}  // namespace

void Worker::run_batches(Nanos began) {
  std::uint64_t done = 0;
  while ((operations_ == 0 || done < operations_) && !stop_.requested()) {
    const std::size_t count = wait_until_due(began, done);
    if (stop_.requested()) return;
    for (std::size_t i = 0; i < count; ++i)
      slots_[i].due = tick_ == 0 ? 0 : due_at(began, done + i);
    done += batch(count);
    done_.store(done, std::memory_order_relaxed);
  }
}

// Returns how many operations are due now: at least one.
std::size_t Worker::wait_until_due(Nanos began, std::uint64_t done) {
  std::uint64_t most = slots_.size();
  if (operations_ != 0) most = std::min(most, operations_ - done);
  if (tick_ == 0) return most;
  sleep_until(due_at(began, done));
  const auto due = static_cast<std::uint64_t>((clock_.now() - began) / tick_) + 1;
  return due > done ? std::min(due - done, most) : 1;
}

// Returns how many operations of the batch were attempted. Not attempted are the rest of a load
// that must end, and draws and scans that a stop precedes.
std::uint64_t Worker::batch(std::size_t count) {
  getting_.clear();
  putting_.clear();
  std::size_t drawn = 0;
  for (; drawn < count && draw(slots_[drawn]); ++drawn) {
    Slot& slot = slots_[drawn];
    if (reads(slot)) getting_.push_back(&slot);
    if (writes(slot)) putting_.push_back(&slot);
  }
  count = drawn;
  const Nanos begin = clock_.now();
  get_batch(begin);
  return count - put_batch(begin) - scan_batch(count);
}

bool Worker::draw(Slot& slot) {
  const bool load = options_.phase == Phase::kLoad;
  Draft& draft = slot.draft;
  slot.operation = load ? Operation::kInsert : chooser_.operation();
  slot.answer = {};
  draft.field.reset();
  if (slot.operation != Operation::kInsert) {
    if (!choose_key(draft)) return false;
    if (writes(slot)) make_written_fields(draft);
    return true;
  }
  slot.inserted = load ? workload_.next_loaded() : workload_.inserted().next();
  settings_.keys.write(slot.inserted, draft.key);
  make_fields(draft, 0, settings_.field_count);
  return true;
}

// -------------------------------------------------------------------------------------- GETs

void Worker::get_batch(Nanos begin) {
  if (getting_.empty()) return;
  keys_.clear();
  for (const Slot* slot : getting_)
    keys_.push_back(slot->draft.key);
  store_->read_many(keys_, [&](std::size_t i, const Answer& answer, std::string_view value) {
    Slot& slot = *getting_[i];
    slot.got = clock_.now();
    slot.answer = answer;
    slot.value.assign(value);
  });
  for (Slot* slot : getting_)
    after_get(*slot, begin);
}

// Records a GET's own latency unless the GET is a part of an update.
void Worker::after_get(Slot& slot, Nanos begin) {
  read_fields_.clear();
  if (slot.answer.ok() && !decode_record(slot.value, read_fields_)) {
    read_fields_.clear();
    slot.answer = {
        .outcome = Outcome::kUnexpectedState,
        .error = {.code = Code::kWrongType, .text = "the value is not a kvbench record"}};
  }
  if (slot.operation != Operation::kUpdate) {
    measurements_.operation(
        Kind::kRead, slot.answer.outcome,
        {.due = slot.due != 0 ? slot.due : begin, .begin = begin, .end = slot.got});
    look_after_server(slot.answer);
    if (settings_.data_integrity) verify(slot.draft.key, read_fields_);
  }
  if (slot.answer.ok() && slot.draft.field) change_field(slot);
}

void Worker::change_field(Slot& slot) {
  if (replace_field(slot.value, *slot.draft.field, slot.draft.fields.front(), read_fields_,
                    spare_)) {
    return;
  }
  slot.answer = {.outcome = Outcome::kUnexpectedState,
                 .error = {.code = Code::kWrongType, .text = "the record does not have the field"}};
}

// -------------------------------------------------------------------------------------- PUTs

// Returns how many insertions of a load failed permanently.
std::uint64_t Worker::put_batch(Nanos begin) {
  skip_unread(begin);
  if (putting_.empty()) return 0;
  items_.clear();
  for (Slot* slot : putting_) {
    if (!slot->draft.field) encode_record(slot->draft.fields, slot->value);
    items_.push_back({.key = slot->draft.key, .value = slot->value});
  }
  const Nanos put_begin = clock_.now();
  store_->put_many(items_, [&](std::size_t i, const Answer& answer) {
    putting_[i]->put = clock_.now();
    putting_[i]->answer = answer;
  });
  std::uint64_t lost = 0;
  for (Slot* slot : putting_)
    lost += after_put(*slot, begin, put_begin) ? 0 : 1;
  return lost;
}

// A record that could not be read is not written: a failed update, or half of a read-modify-write.
void Worker::skip_unread(Nanos begin) {
  std::erase_if(putting_, [&](const Slot* slot) {
    if (slot->answer.ok()) return false;
    const Times times{
        .due = slot->due != 0 ? slot->due : begin, .begin = begin, .end = clock_.now()};
    if (slot->operation == Operation::kReadModifyWrite) {
      measurements_.latency(Kind::kReadModifyWrite, times, true);
    } else {
      measurements_.operation(Kind::kUpdate, slot->answer.outcome, times);
    }
    look_after_server(slot->answer);
    return true;
  });
}

// Returns false if an insertion failed and the load must end.
bool Worker::after_put(Slot& slot, Nanos begin, Nanos put_begin) {
  const auto from = [&](Nanos start) {
    return Times{.due = slot.due != 0 ? slot.due : start, .begin = start, .end = slot.put};
  };
  if (slot.operation == Operation::kReadModifyWrite) {
    measurements_.latency(Kind::kReadModifyWrite, from(begin), !slot.answer.ok());
  }
  const bool has_read = slot.operation == Operation::kUpdate && slot.draft.field.has_value();
  const Kind kind = slot.operation == Operation::kInsert ? Kind::kInsert : Kind::kUpdate;
  measurements_.operation(kind, slot.answer.outcome, from(has_read ? begin : put_begin));
  look_after_server(slot.answer);
  if (slot.operation != Operation::kInsert) return true;
  if (options_.phase == Phase::kLoad)
    return slot.answer.ok() || insert_again(slot.draft, slot.answer);
  workload_.inserted().acknowledge(slot.inserted);
  return true;
}

// ------------------------------------------------------------------------------------- scans

// Returns how many scans were not run.
std::uint64_t Worker::scan_batch(std::size_t count) {
  std::uint64_t left = 0;
  for (const Slot& slot : std::span(slots_).first(count)) {
    if (slot.operation != Operation::kScan) continue;
    if (stop_.requested()) {
      ++left;
      continue;
    }
    due_ = slot.due;
    draft_.key = slot.draft.key;
    scan();
  }
  return left;
}

}  // namespace rkv::kvbench
