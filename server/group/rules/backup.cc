#include "server/group/rules/backup.h"

#include <algorithm>

namespace rkv::server {

namespace {

bool is_behind(const EntryBlock& block, const LogPosition& previous, std::uint32_t term) {
  return block.bytes != nullptr && block.previous == previous &&
         block.last.version > previous.version && block.last.term >= previous.term &&
         block.last.term <= term && block.last.term != 0;
}

}  // namespace

Hello Backup::hello() {
  number_ = 0;
  has_news_ = false;
  // Entries at or below the mark are never cut (BACKUP-2). The mark 0 is in no term: all may be
  // cut.
  LogPosition start = log_.start();
  for (const LogPosition& last : log_.history().terms()) {
    if (last.version < marks_.replicated || marks_.replicated == 0) continue;
    start = std::max(start, {.term = last.term, .version = marks_.replicated});
    break;
  }
  return {.replica = replica_,
          .group = group_,
          .term = term_,
          .start = start,
          .history = log_.history()};
}

bool Backup::follows(const Entries& entries) {
  if (entries.term < term_ || entries.number <= number_) return false;
  if (entries.block && !is_behind(*entries.block, entries.previous, entries.term)) return false;
  if (entries.previous == log_.last()) return true;
  if (number_ != 0 || entries.previous.version < marks_.replicated) return false;
  if (!log_.can_cut(entries.previous)) return false;
  log_.cut(entries.previous);
  return true;
}

bool Backup::receive(const Entries& entries, Nanos now) {
  if (!follows(entries)) return false;
  obey(entries.term);
  number_ = entries.number;
  if (entries.block) log_.append(entries.block->last, entries.block->bytes);
  const std::uint64_t most = log_.last().version;
  const auto raise = [most](std::uint64_t& mark, std::uint64_t to) {
    mark = std::max(mark, std::min(to, most));
  };
  raise(marks_.replicated, entries.marks.replicated);
  raise(marks_.wal, std::min(entries.marks.wal, marks_.replicated));
  raise(marks_.sync, std::min(entries.marks.sync, marks_.replicated));
  time_.raise(entries.unix_ms, now);
  time_of_term_.raise(entries.unix_ms, now);
  heard_at_ = now;
  has_news_ = true;
  return true;
}

bool Backup::receive(const HandOver& hand_over) {
  if (hand_over.term != term_ || number_ == 0) return false;
  told_ = hand_over.term;
  return true;
}

std::optional<Answer> Backup::answer(Nanos now) {
  if (!has_news_ || number_ == 0) return std::nullopt;
  has_news_ = false;
  return say(now);
}

Answer Backup::say(Nanos now) {
  answered_at_ = now;
  return {
      .number = number_, .last = log_.last(), .wal = wal_, .sync = sync_, .may_lead = may_lead_};
}

std::optional<Answer> Backup::receives(Nanos now) {
  // Without a message of this connection, its other end may not be the primary.
  if (number_ == 0) return std::nullopt;
  heard_at_ = now;
  if (now - answered_at_ < times_.heartbeat) return std::nullopt;
  return say(now);
}

void Backup::on_disk(std::uint64_t wal, std::uint64_t sync) {
  has_news_ = has_news_ || wal > wal_ || sync > sync_;
  wal_ = std::max(wal_, wal);
  sync_ = std::max(sync_, sync);
}

}  // namespace rkv::server
