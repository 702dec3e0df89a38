// LogPosition and TermHistory: where an entry is in a group's log, and which terms a log consists
// of.
//
// An entry is known by the term of the primary that wrote it and by its version. Two logs that hold
// the same position are the same up to there: a backup takes entries only behind its own last one.
// So the last version of each term says all that must be compared about two logs (Raft's log
// matching, with terms in place of indexes).
//
// Invariants:
//  HISTORY-1  Terms rise, and so do versions: each term's entries are behind those of the term
//      before.
//  HISTORY-2  contains(p) is true exactly for positions at or before the last one whose term has an
//      entry at or behind p's version.
//
// Thread safety: values.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

namespace rkv::server {

struct LogPosition {
  std::uint32_t term = 0;
  std::uint64_t version = 0;  // 0: before the first entry
  friend constexpr auto operator<=>(const LogPosition&, const LogPosition&) = default;
};

class TermHistory {
 public:
  // Entries of the term of `last`, up to it. REQUIRES: it is behind last(), in the same term or a
  // later one.
  void extend(const LogPosition& last);
  // Drops what is behind `position`. REQUIRES: contains(position).
  void cut(const LogPosition& position);

  LogPosition last() const { return terms_.empty() ? LogPosition{} : terms_.back(); }
  bool contains(const LogPosition& position) const;
  // The last position that both have.
  LogPosition common_with(const TermHistory& other) const;
  const std::vector<LogPosition>& terms() const { return terms_; }  // the last position of each

 private:
  std::vector<LogPosition> terms_;
};

}  // namespace rkv::server
