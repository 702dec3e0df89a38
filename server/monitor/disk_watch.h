// DiskWatch: logs once that the disk hangs, and once that it answers again. The applier cannot do
// so: it waits for the disk.
//
// Thread safety: none.
#pragma once

#include "server/monitor/facts.h"

namespace rkv::server {

class DiskWatch {
 public:
  // Call it regularly.
  void look(const LogFacts& log);

 private:
  bool hangs_ = false;
};

}  // namespace rkv::server
