#include "server/log/replication_reader.h"

#include "common/check.h"

namespace rkv::server {

ReplicationReader::ReplicationReader(CommitLog& log) : log_(log) {
  RKV_CHECK(log.is_replicated(), "the log of a server without a group has no replicator");
}

bool ReplicationReader::next(CommitLog::Entry* entry) {
  return log_.read_next(entry);
}

std::uint64_t ReplicationReader::position() const {
  return log_.read_through();
}

void ReplicationReader::wait_for_entries(int ms) {
  log_.wait_for_unread(ms);
}

void ReplicationReader::interrupt() {
  log_.interrupt_reader();
}

}  // namespace rkv::server
