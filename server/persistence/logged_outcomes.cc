#include "server/persistence/logged_outcomes.h"

#include <algorithm>

namespace rkv::server {

void LoggedOutcomes::note(const CommitLog::Entry& entry) {
  if (!entry.tag) return;
  const WriteTag& tag = *entry.tag;
  Writer& writer = writer_of(tag.writer);
  writer.last = entry.record.version;
  Lane& lane = writer.lanes[lane_of(tag.sequence)];
  // A client that uses a sequence again, against the rule, makes the lane no longer.
  const bool goes_on = lane.sequence == tag.sequence && !lane.operations.empty() &&
                       tag.index > lane.operations.back().index;
  if (!goes_on) lane.operations.clear();
  lane.sequence = tag.sequence;
  lane.count = tag.count;
  const bool counts = tag.opcode == Opcode::kAdd || tag.opcode == Opcode::kSwap;
  lane.operations.push_back(
      {.version = entry.record.version,
       .number = counts ? load_le<std::int64_t>(entry.record.value.data()) : 0,
       .opcode = tag.opcode,
       .index = tag.index});
}

// Moves the writer to the end. A new one takes the place of who has written nothing for longest.
LoggedOutcomes::Writer& LoggedOutcomes::writer_of(std::uint64_t number) {
  if (const auto known = by_number_.find(number); known != by_number_.end()) {
    writers_.splice(writers_.end(), writers_, known->second);
    return writers_.back();
  }
  if (writers_.size() < most_writers_) {
    writers_.emplace_back();
  } else {
    Writer& dropped = writers_.front();
    floor_ = std::max(floor_, dropped.last);  // OLOG-2
    by_number_.erase(dropped.number);
    for (Lane& lane : dropped.lanes) {
      lane.sequence = 0;
      lane.operations.clear();
    }
    writers_.splice(writers_.end(), writers_, writers_.begin());
  }
  writers_.back().number = number;
  by_number_.emplace(number, std::prev(writers_.end()));
  return writers_.back();
}

LoggedOutcomes::Found LoggedOutcomes::find(std::uint64_t writer, std::uint64_t sequence,
                                           Version since) const {
  std::uint64_t newest = 0;  // of its lane
  if (const auto known = by_number_.find(writer); known != by_number_.end()) {
    const Lane& lane = known->second->lanes[lane_of(sequence)];
    if (lane.sequence == sequence)
      return {.fate = Fate::kApplied, .count = lane.count, .operations = lane.operations};
    newest = lane.sequence;
  }
  const bool would_be_here = newest < sequence && since >= floor_;
  return {.fate = would_be_here ? Fate::kNotApplied : Fate::kNotKnown};
}

}  // namespace rkv::server
