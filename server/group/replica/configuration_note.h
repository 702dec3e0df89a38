// ConfigurationNote: notes on the disk, in a thread of its own, which configuration of its group a
// replica has known. So a disk that hangs does not keep the replica from following the group.
//
//   ConfigurationNote note([&](std::uint64_t number, std::uint32_t term) { ... });
//   note.start();
//   note.write(configuration.number, configuration.term);   // again and again: the newest counts
//   note.stop();
//
// Thread safety: any thread; start and stop: the owner.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>

#include "common/mutex.h"
#include "rkv/result.h"

namespace rkv::server {

class ConfigurationNote {
 public:
  // Writes and syncs. Blocks as long as the disk does.
  using Write = std::function<Status(std::uint64_t number, std::uint32_t term)>;
  explicit ConfigurationNote(Write write) : write_(std::move(write)) {}
  ~ConfigurationNote() { stop(); }
  ConfigurationNote(const ConfigurationNote&) = delete;
  ConfigurationNote& operator=(const ConfigurationNote&) = delete;

  void start();
  // Blocks until the given configuration is written, or its write has failed.
  void stop();
  // Writes soon, and again a little later if that fails. Does not block.
  void write(std::uint64_t number, std::uint32_t term);

 private:
  void run();

  const Write write_;
  Mutex mutex_;
  ConditionVariable changed_;
  std::uint64_t number_ RKV_GUARDED_BY(mutex_) = 0;  // the newest
  std::uint32_t term_ RKV_GUARDED_BY(mutex_) = 0;
  bool stopping_ RKV_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace rkv::server
