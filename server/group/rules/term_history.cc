#include "server/group/rules/term_history.h"

#include <algorithm>

#include "common/check.h"

namespace rkv::server {

void TermHistory::extend(const LogPosition& last) {
  RKV_CHECK(last.version > this->last().version && last.term >= this->last().term,
            "a log grows at its end");
  if (!terms_.empty() && terms_.back().term == last.term)
    terms_.back() = last;
  else
    terms_.push_back(last);
}

void TermHistory::cut(const LogPosition& position) {
  RKV_CHECK(contains(position), "a log is cut at a position that it has");
  std::erase_if(terms_, [&](const LogPosition& last) { return last.term > position.term; });
  if (!terms_.empty()) terms_.back() = position;
}

bool TermHistory::contains(const LogPosition& position) const {
  if (position == LogPosition{}) return true;
  const auto at = std::ranges::lower_bound(terms_, position.term, {}, &LogPosition::term);
  if (at == terms_.end() || at->term != position.term || at->version < position.version)
    return false;
  return at == terms_.begin() || std::prev(at)->version < position.version;
}

LogPosition TermHistory::common_with(const TermHistory& other) const {
  for (auto mine = terms_.rbegin(); mine != terms_.rend(); ++mine) {
    const auto theirs = std::ranges::lower_bound(other.terms_, mine->term, {}, &LogPosition::term);
    if (theirs != other.terms_.end() && theirs->term == mine->term)
      return {.term = mine->term, .version = std::min(mine->version, theirs->version)};
  }
  return {};
}

}  // namespace rkv::server
