// FakeStore: a group's configuration in memory, which falls silent, refuses changes and loses
// answers on demand.
//
// Thread safety: any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>

#include "common/mutex.h"
#include "server/group/configuration/configuration_store.h"

namespace rkv::server::test {

class FakeStore final : public ConfigurationStore {
 public:
  Result<Stored> read(const Deadline&) override {
    const MutexLock lock(mutex_);
    if (is_silent_) return fail(Code::kUnreachable, "silent");
    return stored_;
  }
  Result<std::int64_t> replace(std::int64_t revision, const GroupConfiguration& next,
                               const Deadline&) override {
    const MutexLock lock(mutex_);
    ++replaced_;
    if (is_silent_) return fail(Code::kUnreachable, "silent");
    if (std::exchange(hides_next_, false)) return unknown();
    if (refuses_) return fail(Code::kRejected, "no space");
    if (revision != stored_.revision) return fail(Code::kConflict, "another revision");
    stored_ = {.configuration = next, .revision = revision + 1};
    changed_.notify_all();
    if (std::exchange(loses_next_, false)) return unknown();
    return stored_.revision;
  }
  Status try_storing(const Deadline&) override {
    const MutexLock lock(mutex_);
    if (is_silent_) return fail(Code::kUnreachable, "silent");
    if (refuses_) return fail(Code::kRejected, "no space");
    return {};
  }
  Result<Stored> wait_for_other(std::int64_t revision, const Deadline&) override {
    const MutexLock lock(mutex_);
    if (stored_.revision == revision) changed_.wait_for(mutex_, std::chrono::milliseconds(50));
    if (is_silent_) return fail(Code::kTimeout, "silent, or nothing new");
    if (stored_.revision == revision) return fail(Code::kTimeout, "nothing new");
    return stored_;
  }
  void lose_next_answer() {
    const MutexLock lock(mutex_);
    loses_next_ = true;
  }
  // It is not stored, and that is not known.
  void hide_next_outcome() {
    const MutexLock lock(mutex_);
    hides_next_ = true;
  }
  void set_silent(bool silent) {
    const MutexLock lock(mutex_);
    is_silent_ = silent;
  }
  // It answers reads, and stores nothing.
  void set_refusing(bool refuses) {
    const MutexLock lock(mutex_);
    refuses_ = refuses;
  }
  void lose_its_data() {
    const MutexLock lock(mutex_);
    stored_ = {};
    changed_.notify_all();
  }
  void restore(Stored stored) {
    const MutexLock lock(mutex_);
    stored_ = std::move(stored);
    changed_.notify_all();
  }
  int replaced() {
    const MutexLock lock(mutex_);
    return replaced_;
  }

 private:
  static std::unexpected<Error> unknown() {
    return std::unexpected(Error{.code = Code::kTimeout,
                                 .write = WriteOutcome::kMayHaveHappened,
                                 .text = "the answer is lost"});
  }

  Mutex mutex_;
  ConditionVariable changed_;
  Stored stored_ RKV_GUARDED_BY(mutex_);
  bool loses_next_ RKV_GUARDED_BY(mutex_) = false;
  bool hides_next_ RKV_GUARDED_BY(mutex_) = false;
  bool is_silent_ RKV_GUARDED_BY(mutex_) = false;
  bool refuses_ RKV_GUARDED_BY(mutex_) = false;
  int replaced_ RKV_GUARDED_BY(mutex_) = 0;
};

}  // namespace rkv::server::test
