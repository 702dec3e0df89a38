#include "tests/sim/etcd.h"

#include <algorithm>
#include <utility>

namespace rkv::sim {

struct Etcd::Call {
  std::size_t host;
  rdma::sim::WaitPoint answered{};
  std::optional<Result<Stored>> answer{};
};

namespace {

std::unexpected<Error> no_space() {
  return std::unexpected(Error{
      .code = Code::kRejected, .write = WriteOutcome::kNotApplied, .text = "etcd has no space"});
}

}  // namespace

// A message can arrive after its process has ended, and its connection with it: what happens then
// refers to the Etcd alone.
class EtcdConnection final : public server::ConfigurationStore {
 public:
  EtcdConnection(Etcd& etcd, std::size_t host) : etcd_(etcd), host_(host) {}

  Result<Stored> read(const Deadline& deadline) override {
    return etcd_.ask(host_, deadline, WriteOutcome::kNotApplied,
                     [&etcd = etcd_](const auto& call) { etcd.answer(call, etcd.show()); });
  }
  Result<std::int64_t> replace(std::int64_t revision, const server::GroupConfiguration& next,
                               const Deadline& deadline) override {
    const auto stored = etcd_.ask(host_, deadline, WriteOutcome::kMayHaveHappened,
                                  [&etcd = etcd_, revision, next](const auto& call) {
                                    etcd.answer(call, etcd.compare_and_store(revision, next));
                                  });
    if (!stored) return std::unexpected(stored.error());
    return stored->revision;
  }
  Status try_storing(const Deadline& deadline) override {
    const auto tried =
        etcd_.ask(host_, deadline, WriteOutcome::kNotApplied, [&etcd = etcd_](const auto& call) {
          etcd.answer(call, etcd.faults_.refuses ? Result<Stored>(no_space()) : Stored{});
        });
    return tried ? Status{} : Status(std::unexpected(tried.error()));
  }
  Result<Stored> wait_for_other(std::int64_t revision, const Deadline& deadline) override {
    return etcd_.ask(host_, deadline, WriteOutcome::kNotApplied,
                     [&etcd = etcd_, revision](const auto& call) {
                       if (etcd.stored_.revision != revision)
                         etcd.answer(call, etcd.stored_);
                       else
                         etcd.watches_.push_back(call);
                     });
  }

 private:
  Etcd& etcd_;
  std::size_t host_;
};

std::unique_ptr<server::ConfigurationStore> Etcd::connect(std::size_t host) {
  return std::make_unique<EtcdConnection>(*this, host);
}

void Etcd::set_reachable(std::size_t host, bool reachable) {
  if (reachable)
    cut_.erase(host);
  else
    cut_.insert(host);
}

void Etcd::lose_data() {
  ++life_;
  before_ = stored_ = {};
  for (const auto& watcher : std::exchange(watches_, {}))
    answer(watcher, stored_);
}

void Etcd::put_back(const server::GroupConfiguration& configuration) {
  before_ = stored_;
  stored_ = {.configuration = configuration, .revision = ++highest_};
  for (const auto& watcher : std::exchange(watches_, {}))
    answer(watcher, stored_);
}

Result<Etcd::Stored> Etcd::ask(std::size_t host, const Deadline& deadline, WriteOutcome unknown,
                               const std::function<void(const std::shared_ptr<Call>&)>& at_etcd) {
  if (deadline.passed()) return fail(Code::kTimeout, "the deadline passed");
  if (cut_.contains(host) && scheduler_.chance(2)) {
    scheduler_.sleep(std::min(scheduler_.up_to(faults_.way), deadline.at() - scheduler_.now()));
    return fail(Code::kUnreachable, "no etcd answers");
  }
  const auto call = std::make_shared<Call>(Call{.host = host});
  send(host, [call, at_etcd] { at_etcd(call); });
  while (!call->answer && !deadline.passed())
    scheduler_.park(call->answered, deadline.at());
  if (call->answer) return *call->answer;
  if (unknown == WriteOutcome::kMayHaveHappened && scheduler_.chance(faults_.denies_in))
    unknown = WriteOutcome::kNotApplied;
  return std::unexpected(
      Error{.code = Code::kTimeout, .write = unknown, .text = "etcd did not answer in time"});
}

void Etcd::send(std::size_t host, std::function<void()> arrive) {
  if (cut_.contains(host) || scheduler_.chance(faults_.lost_in)) return;
  const Nanos way = scheduler_.chance(faults_.long_in) ? faults_.long_way : faults_.way;
  scheduler_.at(scheduler_.now() + scheduler_.up_to(way),
                [this, host, life = life_, arrive = std::move(arrive)] {
                  if (!cut_.contains(host) && life == life_) arrive();
                });
}

void Etcd::answer(const std::shared_ptr<Call>& call, Result<Stored> result) {
  send(call->host, [call, result = std::move(result), &scheduler = scheduler_] {
    call->answer = result;
    scheduler.notify(call->answered);
  });
}

Result<Etcd::Stored> Etcd::show() {
  return scheduler_.chance(faults_.stale_in) ? before_ : stored_;
}

Result<Etcd::Stored> Etcd::compare_and_store(std::int64_t revision,
                                             const server::GroupConfiguration& next) {
  if (faults_.refuses) return no_space();
  if (revision != stored_.revision && !faults_.compares_nothing)
    return fail(Code::kConflict, "the configuration was changed meanwhile");
  before_ = std::exchange(stored_, Stored{.configuration = next, .revision = stored_.revision});
  // Other keys of the same etcd raise its revision too.
  stored_.revision += 1 + scheduler_.up_to(2);
  highest_ = std::max(highest_, stored_.revision);
  scheduler_.trace(0xe7cd, static_cast<std::uint64_t>(stored_.revision));
  for (const auto& watcher : std::exchange(watches_, {}))
    answer(watcher, stored_);
  return stored_;
}

}  // namespace rkv::sim
