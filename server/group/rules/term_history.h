// LogPosition and TermHistory: the place of an entry in a group's log, and the terms that a log
// consists of.
//
// An entry is identified by the term of the primary that wrote it and by its version. Two logs that
// hold the same position are the same up to there: a backup takes entries only behind its own last
// one. So to compare two logs, the last version of each term is enough (Raft's log matching, with
// terms in place of indexes).
//
// Invariants:
//  HISTORY-1  Terms rise, and so do versions: each term's entries are behind those of the term
//      before.
//  HISTORY-2  contains(p) is true exactly in two cases. p is the position before the first entry;
//      or p's version is behind the last entry of the earlier terms, and not behind the last of p's
//      own term.
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
  // Adds entries of the term of `last`, up to it. REQUIRES: it is behind last(), in the same term
  // or a later one.
  void extend(const LogPosition& last);
  // Drops the positions behind `position`. REQUIRES: contains(position).
  void cut(const LogPosition& position);

  LogPosition last() const { return terms_.empty() ? LogPosition{} : terms_.back(); }
  bool contains(const LogPosition& position) const;
  // Returns the last position that both have.
  LogPosition common_with(const TermHistory& other) const;
  const std::vector<LogPosition>& terms() const { return terms_; }  // the last position of each

 private:
  std::vector<LogPosition> terms_;
};

}  // namespace rkv::server
