// One client thread that writes keys of its own at all levels of durability, most of them `sync`;
// a ledger judges what is left.
//
// Thread safety: a writer belongs to its thread; all share Shared and the ledger.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/random.h"
#include "tests/history/lateness.h"
#include "tests/history/worker.h"
#include "tests/system/crash_ledger.h"

namespace rkv::history {

class DurableWriter {
 public:
  static constexpr std::size_t kKeysEach = 4;

  DurableWriter(Shared& shared, std::size_t number, testing_support::CrashLedger& ledger);

  void run();
  std::size_t synced() const { return synced_; }
  const Lateness& lateness() const { return lateness_; }

  // Reads the keys of `writers` writers.
  static std::vector<testing_support::CrashLedger::Shown> look(const Shared& shared, Client& client,
                                                               std::size_t writers);

 private:
  void write(Client& client);

  Shared& shared_;
  const std::size_t number_;
  testing_support::CrashLedger& ledger_;
  Random random_;
  std::size_t synced_ = 0;  // writes acknowledged as `sync`
  Lateness lateness_;
};

}  // namespace rkv::history
