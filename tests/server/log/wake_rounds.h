// Appends one entry after the other, each after the applier has consumed the one before: a wake-up
// that is lost makes a round as long as the applier's sleep.
#pragma once

#include <atomic>
#include <thread>

#include "server/log/commit_log.h"

namespace rkv::server::test {

inline void run_wake_rounds(CommitLog& log, int rounds) {
  std::atomic<int> consumed{0};
  const std::jthread applier([&] {
    CommitLog::Entry entry;
    while (consumed.load() < rounds) {
      log.wait_for_entries(60'000);
      while (log.consume(&entry)) {
        log.advance();
        consumed.fetch_add(1);
      }
    }
  });
  for (int i = 0; i < rounds; ++i) {
    const auto ticket = log.begin(*log.try_reserve(1, 1));
    log.finish(ticket, CommitLog::Kind::kRemove, {.key = as_bytes("k")});
    while (consumed.load() <= i)
      std::this_thread::yield();
  }
}

}  // namespace rkv::server::test
