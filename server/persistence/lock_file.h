// The lock of a data directory: at most one server at a time, and none before the previous server's
// process has ended.
//
// `<directory>/LOCK` carries an open-file-description lock for as long as the process lives. The
// file holds the pid, the start time and the machine's boot ID of the lock's holder, and, once that
// is certain, which file it is: then no process that has used the directory before lives anywhere.
// A killed
// server may still answer one-sided READs for some milliseconds after its lock is free, because the
// kernel closes its descriptors one after the other. The next server therefore waits until that
// process has ended. For the same reason the lock is the first descriptor that the server opens, it
// is closed on exec, and the server never forks: a child would keep memory and queue pairs alive.
//
//   std::string sentence;
//   auto lock = LockFile::acquire("/var/lib/kvserver", &sentence);
//   if (!lock) { /* tell the sentence */ }
//
// Thread safety: none needed; acquired once, released by the destructor or at the end of the
// process.
#pragma once

#include <string>

#include "rkv/result.h"

namespace rkv::server {

class LockFile {
 public:
  // Locks `directory`, which must exist. Blocks until the previous server's process has ended, for
  // at most `wait_ms`, and logs that it waits. kConflict: another server holds the lock. kBusy: the
  // previous process has not ended. kPermission, kIo. On failure `*sentence` names the holder and
  // what to do.
  static Result<LockFile> acquire(const std::string& directory, std::string* sentence,
                                  int wait_ms = 30'000);
  // For readers: no server can start while the lock is shared, other readers can. Changes nothing.
  // Holds no lock if no server has ever used the directory. Does not block. kConflict: a server
  // holds it.
  static Result<LockFile> share(const std::string& directory, std::string* sentence);
  // Whether all processes that have used the directory before have ended for certain. The lock says
  // so of those of this machine since it was booted. A directory that was copied, or was used by
  // another machine, may have a process that lives on there.
  bool others_have_ended() const { return others_have_ended_; }
  // From now on they have, or do no harm. A failure is found out by the next start, which waits.
  void settle();
  LockFile(LockFile&& other) noexcept;
  LockFile& operator=(LockFile&&) = delete;
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;
  ~LockFile();  // releases the lock; the file stays

 private:
  explicit LockFile(int fd) : fd_(fd) {}
  int fd_;
  bool others_have_ended_ = false;
};

}  // namespace rkv::server
