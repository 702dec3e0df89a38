#include "server/log/logged_outcomes.h"

#include <algorithm>

namespace rkv::server {

void LoggedOutcomes::note(const CommitLog::Entry& entry) {
  if (!entry.tag) return;
  const WriteTag& tag = *entry.tag;
  Session& session = session_of(tag);
  session.last = entry.record.version;
  const std::uint64_t number = lane_of(tag.sequence);
  if (number >= kKeptLanes) return;  // of a client that does not use lanes
  Lane& lane = session.lanes[number];
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

// Moves the session to the end. A new one takes the place of the one that has written nothing for
// longest.
LoggedOutcomes::Session& LoggedOutcomes::session_of(const WriteTag& tag) {
  if (const auto known = by_number_.find(tag.session); known != by_number_.end()) {
    sessions_.splice(sessions_.end(), sessions_, known->second);
    return sessions_.back();
  }
  if (sessions_.size() < most_sessions_) {
    sessions_.emplace_back();
  } else {
    Session& dropped = sessions_.front();
    floor_ = std::max(floor_, dropped.last);  // OLOG-2
    by_number_.erase(dropped.number);
    for (Lane& lane : dropped.lanes) {
      lane.sequence = 0;
      lane.operations.clear();
    }
    sessions_.splice(sessions_.end(), sessions_, sessions_.begin());
  }
  Session& session = sessions_.back();
  session.number = tag.session;
  session.user = tag.user;
  by_number_.emplace(tag.session, std::prev(sessions_.end()));
  return session;
}

LoggedOutcomes::Found LoggedOutcomes::find(std::uint64_t session, std::uint64_t user,
                                           std::uint64_t sequence, Version since) const {
  const std::uint64_t number = lane_of(sequence);
  if (number >= kKeptLanes) return {};
  std::uint64_t newest = 0;  // of its lane
  if (const auto known = by_number_.find(session); known != by_number_.end()) {
    if (known->second->user != user) return {};  // OLOG-4
    const Lane& lane = known->second->lanes[number];
    if (lane.sequence == sequence)
      return {.fate = Fate::kApplied, .count = lane.count, .operations = lane.operations};
    newest = lane.sequence;
  }
  const bool would_be_here = newest < sequence && since >= floor_;
  return {.fate = would_be_here ? Fate::kNotApplied : Fate::kNotKnown};
}

}  // namespace rkv::server
