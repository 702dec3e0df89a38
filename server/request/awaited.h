// Awaited: work of another thread that an answer waits for. Each kind is a class in awaited.cc.
// Marks of the log and sweeps of counters are not among these: RequestHandler::AwaitMark, which
// does not allocate, and RequestHandler::AwaitSweep.
//
// Thread safety: the worker's thread. Each object belongs to one request.
#pragma once

#include <cstdint>
#include <memory>

#include "common/wire.h"
#include "server/background/backups.h"
#include "server/background/scans.h"
#include "server/clients/admission/revocations.h"
#include "server/log/replication_rounds.h"
#include "server/request/group_task.h"

namespace rkv::server {

class Awaited {
 public:
  Awaited() = default;
  virtual ~Awaited() = default;
  Awaited(const Awaited&) = delete;
  Awaited& operator=(const Awaited&) = delete;

  // Whether the work is done. The other thread wakes the worker after it has made this true
  // (SERVE-5).
  virtual bool done() const = 0;
  // Returns the answer; may be called again. `held`: the response that came with this object, whose
  // value is empty or static. The answer's value is valid while this object exists. REQUIRES:
  // done().
  virtual Response answer(const Response& held) = 0;
  // Whether an orderly stop of the worker waits for the work. False for a backup and for work of
  // the group: nothing bounds their time.
  virtual bool delays_stop() const = 0;
};

std::unique_ptr<Awaited> await_backup(std::shared_ptr<const BackupTask> backup);
// `boot`: the boot in the versions that this server assigns.
std::unique_ptr<Awaited> await_page(std::shared_ptr<const ScanTask> page, std::uint32_t boot);
// Asks for the round. REQUIRES: `rounds` outlives the object.
std::unique_ptr<Awaited> await_round(ReplicationRounds& rounds);
std::unique_ptr<Awaited> await_revocation(std::shared_ptr<const Revocation> revocation);
std::unique_ptr<Awaited> await_group(std::shared_ptr<const GroupTask> task);

}  // namespace rkv::server
