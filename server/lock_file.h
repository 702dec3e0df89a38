// The lock of a data directory: one server at a time, and none before its predecessor is gone.
//
// `<directory>/LOCK` carries an open-file-description lock for as long as the process lives, and
// says who holds it: pid, start time, boot of the machine. A server that was killed may go on
// answering one-sided READs for some milliseconds after its lock is free, because the kernel takes
// its descriptors down one after the other; so the next one waits until that process is gone. For
// the same reason the lock is the first descriptor that the server opens, is closed on exec, and
// the server never forks: a child would keep memory and queue pairs alive.
//
//   std::string sentence;
//   auto lock = LockFile::acquire("/var/lib/kvserver", &sentence);
//   if (!lock) { /* tell the sentence */ }
//
// Thread safety: none needed; acquired once, released by the end of the process or the destructor.
#pragma once

#include <string>

#include "rkv/result.h"

namespace rkv::server {

class LockFile {
 public:
  // `directory` exists. Blocks until the predecessor has gone, at most `wait_ms`; says so in the
  // log. kConflict: another server holds it; kBusy: the predecessor is still there; kPermission,
  // kIo. On failure `*sentence` says who and what to do.
  static Result<LockFile> acquire(const std::string& directory, std::string* sentence,
                                  int wait_ms = 30'000);
  // For one who reads alone: no server can begin meanwhile, others may read as well. Changes
  // nothing, and holds nothing where no server has ever been. Does not wait. kConflict: a server
  // holds it.
  static Result<LockFile> share(const std::string& directory, std::string* sentence);
  LockFile(LockFile&& other) noexcept;
  LockFile& operator=(LockFile&&) = delete;
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;
  ~LockFile();  // releases; the file stays

 private:
  explicit LockFile(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace rkv::server
