// RequestHandler: turns the bytes of a request into an answer. It decodes the request, calls the
// store and chooses the error texts. It uses no network, so it can be tested with bytes alone.
//
// Thread safety: one per worker.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/pack.h"
#include "common/wire.h"
#include "server/admission/revocations.h"
#include "server/background/backups.h"
#include "server/background/counter_flusher.h"
#include "server/background/scans.h"
#include "server/persistence/commit_log.h"
#include "server/persistence/logged_outcomes.h"
#include "server/persistence/replication_rounds.h"
#include "server/request/group_task.h"
#include "server/request/outcomes.h"
#include "server/store/store.h"

namespace rkv::server {

class RequestHandler {
 public:
  // What the worker does with an answer.
  struct Reply {};  // send `response`
  // Send `response` as soon as the mark of `level` has reached `through`.
  struct AwaitMark {
    // kMemory: the replicated mark. The others are the group's, too.
    Durability level = Durability::kSync;
    std::uint64_t through = 0;
    std::uint32_t writes = 1;  // how many await it
  };
  // Send backed_up() as soon as `backup` is done.
  struct AwaitBackup {
    std::shared_ptr<const Backup> backup;
  };
  // Do what after_sweep() returns as soon as this sweep is over.
  struct AwaitSweep {
    std::uint64_t number = 0;
  };
  // Send scanned() as soon as `page` is done.
  struct AwaitPage {
    std::shared_ptr<const ScanTask> page;
  };
  // Call handle() again as soon as the record of `key` is in memory.
  struct AwaitLoad {
    Bytes key;  // lies in the message
  };
  // READ the request from `source`, then handle() that request.
  struct ReadRequest {
    MessageSource source;
  };
  // READ `large.value` from `source`, then finish() or cancel() it.
  struct FetchValue {
    ValueSource source;
    LargePut large;
  };
  // Answer with found(): what has become of this write of another session.
  struct FindOutcome {
    WriteId write;
    std::uint64_t sequence = 0;  // of the request that asks
    // Of a write that was sent to another server of the group: replicated before it was sent.
    Version since{};
  };
  // Shut this user out (Revocations). The handler does not know which user asks.
  struct RevokeUser {
    std::string_view name;  // lies in the message
  };
  // Change the server's group, about the replica of this name.
  struct ChangeGroup {
    Opcode opcode = Opcode::kMovePrimary;
    std::string_view name;  // lies in the message
  };
  // Send changed() as soon as `task` is done.
  struct AwaitGroup {
    std::shared_ptr<const GroupTask> task;
  };
  // Send revoked() as soon as `revocation` is done.
  struct AwaitRevocation {
    std::shared_ptr<const Revocation> revocation;
  };
  // Send `response` as soon as this round of the replicator is over.
  struct AwaitRound {
    std::uint64_t number = 0;
  };
  struct Disconnect {};  // the message is not even a header: no answer is possible
  // What an answer that is held back awaits.
  using Awaited = std::variant<AwaitMark, AwaitBackup, AwaitSweep, AwaitPage, AwaitRevocation,
                               AwaitRound, AwaitGroup>;
  using Next = std::variant<Reply, Awaited, AwaitLoad, ReadRequest, FetchValue, FindOutcome,
                            RevokeUser, ChangeGroup, Disconnect>;
  // What has become of an operation of a pack that a pack may have and that was begun.
  struct Outcome {
    Opcode opcode;
    std::uint8_t code;
  };
  struct Answer {
    Response response = {};  // spans are valid until the next handle()
    Next next = {};
    std::span<const Outcome> packed = {};  // of a pack; valid until the next handle()
    bool malformed = false;
  };

  // `stats` makes the JSON of a stats request. `durability` applies to writes that do not specify
  // one. `network` is the number of the cells that the clients can reach (Store::add_cells).
  // `lacks_copies`: true while the group has too few replicas for writes; nullptr: never.
  // `max_packed`: operations in a pack. `backups`, `scans`: nullptr if not supported.
  // `counter_flusher`: nullptr if no counter is ever one-sided. `rounds`: nullptr if the log is not
  // replicated. References must outlive the handler.
  RequestHandler(Store& store, const CommitLog& log, std::uint32_t boot, Durability durability,
                 std::function<std::string()> stats, std::uint32_t network = kNoNetwork,
                 Backups* backups = nullptr, CounterFlusher* counter_flusher = nullptr,
                 Scans* scans = nullptr, std::uint16_t max_packed = kMaxPacked,
                 ReplicationRounds* rounds = nullptr,
                 const std::atomic<bool>* lacks_copies = nullptr);
  static constexpr std::uint32_t kNoNetwork = ~std::uint32_t{0};

  // Sets the time of the turn. Answers carry it, so it must not be later than the time at which
  // they are sent. Requests' begin_by times are resolved with it.
  void set_time(Nanos now) { now_ = now; }

  // Executes one request of a client that has `role`. `message` comes from a peer and may hold any
  // bytes. `look` is the result of a load for this request. Allocates only for stats, backups and
  // pages of scans. `whose`: the session and its user, for a replicated log.
  Answer handle(Bytes message, Role role, DiskLookup look = {}, const WriteTag& whose = {});
  // The answer to a request that is not executed, for example because its load failed.
  static Response not_executed(Bytes message, const Error& error);

  // Publishes a value that was fetched. `digest` is the digest of the bytes that arrived; `message`
  // is the request of the fetch. `whose`: as for handle().
  Answer finish(Bytes message, LargePut large, std::uint64_t digest, const WriteTag& whose = {});
  // Gives back the block of a value that could not be fetched.
  void cancel(LargePut large) { store_.large_records().cancel(std::move(large)); }
  std::uint64_t epoch() const { return store_.large_records().epoch(); }
  // Number of keys that clients have reported as found by READ. Any thread.
  std::uint64_t reported_reads() const { return reported_reads_.load(std::memory_order_relaxed); }

  // What is kept of the answer to an applied write, the last that handle() or finish() has given:
  // the value of the outcome (of a pack without writes: nothing), and the mark that it awaits.
  Bytes outcome_of(const Answer& answer) const {
    return answer.response.opcode == Opcode::kPack ? packed_outcome_ : answer.response.value;
  }
  static Outcomes::Mark mark_of(const Answer& answer) {
    const auto* const awaited = std::get_if<Awaited>(&answer.next);
    if (awaited == nullptr) return {};
    const auto& mark = std::get<AwaitMark>(*awaited);  // a write awaits nothing else
    return {.level = mark.level, .through = mark.through};
  }
  // The answer to a client that asks. `outcomes`: of the session asked for; nullptr: not known. The
  // value of the answer lies in them.
  Answer found(const FindOutcome& asked, const Outcomes* outcomes) const;
  // The answer to a client whose write was sent to an earlier primary of the group. Its value is
  // valid until the next handle(). REQUIRES: `rounds` was given.
  Answer found_in_log(const FindOutcome& asked, const LoggedOutcomes::Found& in_log);

  // Whether an answer that awaits this round may be sent.
  bool is_over(const AwaitRound& round) const { return rounds_->is_done(round.number); }
  // Whether an answer that awaits this mark may be sent.
  bool is_reached(Durability level, std::uint64_t through) const {
    return through <= mark_at(level);
  }
  // The answer to a flush, or to a write that waited for its mark, if the disk has failed first.
  // The write was executed: readers may have seen it.
  Response disk_failed(const Response& awaited) const;
  // What to do next for a flush or a backup whose sweep is over. `awaited` is the response that
  // came with AwaitSweep, `value` is its value.
  Answer after_sweep(const Response& awaited, Bytes value, const Status& swept);
  // The answer to a backup request. REQUIRES: `backup` is done.
  static Response backed_up(const Response& awaited, const Backup& backup);
  // The answer to a change of the group. REQUIRES: `task` is done.
  static Response changed(const Response& awaited, const GroupTask& task);
  // The answer to a scan. Its value lies in `page`. REQUIRES: `page` is done.
  Response scanned(const Response& awaited, const ScanTask& page) const;
  // Adds the marks and the time, which every answer carries.
  Response marked(const Response& response) const;

 private:
  Answer serve(const Request& request);
  Answer ping(const Request& request);
  // Whether it is a write, and the group has too few replicas that are in sync.
  bool lacks_copies_for(Opcode opcode) const {
    return lacks_copies_ != nullptr && traits_of(opcode).takes_durability &&
           opcode != Opcode::kPack && lacks_copies_->load(std::memory_order_relaxed);
  }
  // Whether the client's role allows the operation: one comparison.
  bool is_allowed(Opcode opcode) const { return traits_of(opcode).role <= role_; }
  // The refusal of an operation that is not allowed. Its text is valid until the next one.
  Error forbidden(Opcode opcode);
  // `longest`: of a value that is copied; kTooLarge if the value is longer.
  Answer get(const Request& request, std::size_t longest = kMaxInlineBytes);
  void touch(Bytes encoded);
  Answer put(const Request& request);
  Answer pack(const Request& request);
  Response serve_packed(const Request& operation, AwaitMark& all);
  Answer put_large(const Request& request);
  Answer read_request(const Request& request);
  static Answer find_outcome(const Request& request);
  Answer remove(const Request& request);
  Answer count(const Request& request);
  Answer open_counter(const Request& request);
  Nanos begin_by(const Request& request) const;
  const WriteTag* tag() const { return tag_.session != 0 ? &tag_ : nullptr; }
  PutOptions options_of(const Request& request) const;
  Answer flush(const Request& request);
  Answer stats(const Request& request);
  Answer backup(const Request& request);
  Answer sweep_first(const Request& request);
  Answer flush_swept(std::uint64_t sequence) const;
  Answer backup_swept(std::uint64_t sequence, Bytes name);
  Answer scan(const Request& request);
  Durability level_of(const Request& request) const;
  std::uint64_t mark_at(Durability level) const {
    if (level == Durability::kSync) return log_.group_sync_mark();
    return level == Durability::kWal ? log_.group_wal_mark() : log_.replicated_mark();
  }
  // Delays the answer to a write until the write has the requested durability.
  Answer when_safe(const Request& request, Answer answer) const;
  // Delays the answer until all that it shows is replicated. REQUIRES: the log is replicated.
  Answer when_replicated(const Request& request, Answer answer) const;

  Store& store_;
  const CommitLog& log_;
  const std::uint32_t boot_;
  const Durability durability_;
  const std::function<std::string()> make_stats_;
  const std::uint32_t network_;
  Backups* const backups_;
  CounterFlusher* const counter_flusher_;
  Scans* const scans_;
  const std::uint16_t max_packed_;
  ReplicationRounds* const rounds_;
  const std::atomic<bool>* const lacks_copies_;
  Nanos now_ = 0;
  Role role_ = Role::kRead;  // of the client whose request is being handled
  DiskLookup look_;          // of the request that is being handled
  WriteTag tag_;             // likewise, or of the operation in a pack; no session: no tag
  std::array<char, 128> forbidden_{};
  std::vector<std::byte> value_;  // a GET's value: kMaxInlineBytes
  std::string stats_text_;
  std::array<Request, kMaxPacked> packed_;  // operations of the pack that is being handled
  std::vector<std::byte> results_;          // of a pack: kMaxInlineBytes
  std::array<Outcome, kMaxPacked> outcomes_;
  Bytes packed_outcome_;                                      // of the last pack
  std::array<std::byte, kMostOutcomeBytes> without_reads_{};  // where it lies if it is not results_
  std::atomic<std::uint64_t> reported_reads_{0};              // written by the worker's thread only
};

}  // namespace rkv::server
