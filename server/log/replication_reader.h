// ReplicationReader: reads the entries of a replicated commit log for the group's other replicas,
// before the applier gets them.
//
//   ReplicationReader reader(log);
//   while (reader.next(&entry)) send(entry);
//   // ... when all in-sync replicas have everything up to `sequence` in memory:
//   log.set_replicated_mark(sequence);  // CLOG-7: at most reader.position()
//
// The memory that an entry's spans point into does not change until the replicated mark has passed
// the entry (CLOG-6).
//
// Thread safety: one thread, and one reader of a log. position(), interrupt(): any thread. The mark
// may be set by another thread, which gets what was read from this one.
#pragma once

#include <cstdint>

#include "server/log/commit_log.h"

namespace rkv::server {

class ReplicationReader {
 public:
  // REQUIRES: log.is_replicated(). The log must outlive the reader.
  explicit ReplicationReader(CommitLog& log);
  ReplicationReader(const ReplicationReader&) = delete;
  ReplicationReader& operator=(const ReplicationReader&) = delete;

  // Returns the next finished entry in commit order, each once; false: none is ready.
  bool next(CommitLog::Entry* entry);
  // Upper bound of the entries that next() has returned. It can be compared with all marks.
  std::uint64_t position() const;
  // Sleeps until next() may return an entry, interrupt() is called, or `ms` have passed.
  void wait_for_entries(int ms);
  // Ends the current or next wait_for_entries().
  void interrupt();

 private:
  CommitLog& log_;
};

}  // namespace rkv::server
