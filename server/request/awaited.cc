#include "server/request/awaited.h"

#include <array>
#include <utility>

#include "server/request/refusal.h"

namespace rkv::server {

namespace {

class AwaitedBackup final : public Awaited {
 public:
  explicit AwaitedBackup(std::shared_ptr<const BackupTask> backup) : backup_(std::move(backup)) {}
  bool done() const override { return backup_->done(); }
  Response answer(const Response& held) override {
    return backup_->failure() ? refusal(held.opcode, held.sequence, *backup_->failure()) : held;
  }
  bool delays_stop() const override { return false; }

 private:
  const std::shared_ptr<const BackupTask> backup_;
};

class AwaitedPage final : public Awaited {
 public:
  AwaitedPage(std::shared_ptr<const ScanTask> page, std::uint32_t boot)
      : page_(std::move(page)), boot_(boot) {}
  bool done() const override { return page_->done(); }
  Response answer(const Response& held) override {
    if (page_->failure()) return refusal(held.opcode, held.sequence, *page_->failure());
    Response response = held;
    response.version = Version::of(boot_, page_->through());
    response.value = page_->bytes();
    return response;
  }
  bool delays_stop() const override { return true; }

 private:
  const std::shared_ptr<const ScanTask> page_;
  const std::uint32_t boot_;
};

class AwaitedRound final : public Awaited {
 public:
  explicit AwaitedRound(ReplicationRounds& rounds) : rounds_(rounds), number_(rounds.ask()) {}
  bool done() const override { return rounds_.is_done(number_); }
  Response answer(const Response& held) override { return held; }
  bool delays_stop() const override { return false; }

 private:
  const ReplicationRounds& rounds_;
  const std::uint64_t number_;
};

// The answer is the number of sessions that were ended.
class AwaitedRevocation final : public Awaited {
 public:
  explicit AwaitedRevocation(std::shared_ptr<const Revocation> revocation)
      : revocation_(std::move(revocation)) {}
  bool done() const override { return revocation_->done(); }
  Response answer(const Response& held) override {
    if (!revocation_->status()) {  // only this server has shut the user out, its group has not
      Response response = refusal(held.opcode, held.sequence, revocation_->status().error());
      response.flags = Response::kMayHaveHappened;
      return response;
    }
    store_le(sessions_.data(), revocation_->sessions());
    Response response = held;
    response.value = sessions_;
    return response;
  }
  bool delays_stop() const override { return !revocation_->in_group(); }

 private:
  const std::shared_ptr<const Revocation> revocation_;
  std::array<std::byte, kRevokeAnswerBytes> sessions_{};
};

class AwaitedGroup final : public Awaited {
 public:
  explicit AwaitedGroup(std::shared_ptr<const GroupTask> task) : task_(std::move(task)) {}
  bool done() const override { return task_->done(); }
  Response answer(const Response& held) override {
    return task_->status() ? held : refusal(held.opcode, held.sequence, task_->status().error());
  }
  bool delays_stop() const override { return false; }

 private:
  const std::shared_ptr<const GroupTask> task_;
};

}  // namespace

std::unique_ptr<Awaited> await_backup(std::shared_ptr<const BackupTask> backup) {
  return std::make_unique<AwaitedBackup>(std::move(backup));
}
std::unique_ptr<Awaited> await_page(std::shared_ptr<const ScanTask> page, std::uint32_t boot) {
  return std::make_unique<AwaitedPage>(std::move(page), boot);
}
std::unique_ptr<Awaited> await_round(ReplicationRounds& rounds) {
  return std::make_unique<AwaitedRound>(rounds);
}
std::unique_ptr<Awaited> await_revocation(std::shared_ptr<const Revocation> revocation) {
  return std::make_unique<AwaitedRevocation>(std::move(revocation));
}
std::unique_ptr<Awaited> await_group(std::shared_ptr<const GroupTask> task) {
  return std::make_unique<AwaitedGroup>(std::move(task));
}

}  // namespace rkv::server
