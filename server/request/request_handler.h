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

#include "common/check.h"
#include "common/pack.h"
#include "common/wire.h"
#include "server/background/backups.h"
#include "server/background/counter_flusher.h"
#include "server/background/scans.h"
#include "server/log/commit_log.h"
#include "server/log/logged_outcomes.h"
#include "server/log/replication_rounds.h"
#include "server/request/awaited.h"
#include "server/request/outcomes.h"
#include "server/store/store.h"

namespace rkv::server {

class RequestHandler {
 public:
  // The worker's next step with an answer: one of these types.
  struct Reply {};  // send `response`
  // Send `response` as soon as the mark of `level` has reached `through`.
  struct AwaitMark {
    // kMemory: the replicated mark. The others are the group's, too.
    Durability level = Durability::kSync;
    std::uint64_t through = 0;
    std::uint32_t writes = 1;  // how many writes await it
  };
  // Do what after_sweep() returns as soon as this sweep is over.
  struct AwaitSweep {
    std::uint64_t number = 0;
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
  // Answer with found(): the outcome of this write of another session.
  struct FindOutcome {
    WriteId write;
    std::uint64_t sequence = 0;  // of the asking request
    // For a write that was sent to another server of the group: a version that was replicated
    // before the write was sent.
    Version since{};
  };
  // Begin an administrator's request (AdminRequests). The handler does not know which user asks.
  struct AdminRequest {
    std::string_view name;  // lies in the message; the opcode is the response's
  };
  struct Disconnect {};  // the message is not even a header: no answer is possible
  // std::unique_ptr<Awaited>: send its answer() as soon as it is done.
  using Next = std::variant<Reply, AwaitMark, AwaitSweep, std::unique_ptr<Awaited>, AwaitLoad,
                            ReadRequest, FetchValue, FindOutcome, AdminRequest, Disconnect>;
  // The outcome of a begun operation of a pack, of a kind that packs may have.
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

  static constexpr std::uint32_t kNoNetwork = ~std::uint32_t{0};
  // References must outlive the handler.
  struct Parts {
    Store& store;
    const CommitLog& log;
    std::uint32_t boot;
    Durability durability;               // of writes that do not specify one
    std::function<std::string()> stats;  // makes the JSON of a stats request
    std::uint32_t network = kNoNetwork;  // of the cells that clients can reach (CounterCells)
    Backups* backups = nullptr;          // nullptr: not supported
    CounterFlusher* counter_flusher = nullptr;  // nullptr: no counter is ever one-sided
    Scans* scans = nullptr;                     // nullptr: not supported
    std::uint16_t max_packed = kMaxPacked;      // operations in a pack
    ReplicationRounds* rounds = nullptr;        // nullptr: the log is not replicated
    // True while the group has too few replicas for writes. nullptr: that never happens.
    const std::atomic<bool>* lacks_copies = nullptr;
  };
  explicit RequestHandler(Parts parts);

  // Sets the time of the turn. Answers carry it, so it must not be later than the time at which
  // they are sent. Requests' begin_by times are resolved with it.
  void set_time(Nanos now) { now_ = now; }

  // Executes one request of a client that has `role`. `message` comes from a peer and may hold any
  // bytes. `look` is the result of a load for this request. Allocates only for stats, backups,
  // pages of scans, and pings in a group. `whose`: the session and its user, for a replicated log.
  Answer handle(Bytes message, Role role, DiskLookup look = {}, const WriteTag& whose = {});
  // The answer to a request that is not executed, for example because its load failed.
  static Response not_executed(Bytes message, const Error& error);

  // Publishes a value that was fetched. `digest` is the digest of the bytes that arrived; `message`
  // is the request of the fetch. `whose`: as for handle().
  Answer finish(Bytes message, LargePut large, std::uint64_t digest, const WriteTag& whose = {});
  // Whether finish() would fail now because the queue to the disk is full, but may succeed later.
  // If there is space, reserves it.
  bool awaits_disk(Bytes message, LargePut& large) const;
  // Number of large values refused so far because other arriving values took all the room that such
  // values may have.
  std::uint64_t large_values_refused() const { return parts_.store.large_records().refused(); }
  // Gives back the block of a value that could not be fetched.
  void cancel(LargePut large) { parts_.store.large_records().cancel(std::move(large)); }
  std::uint64_t epoch() const { return parts_.store.large_records().epoch(); }
  // Number of keys that clients have reported as found by READ. Any thread.
  std::uint64_t reported_reads() const { return reported_reads_.load(std::memory_order_relaxed); }

  // Return the parts of an applied write's answer that are kept: the outcome's value (for a pack
  // without writes: nothing), and the mark that it awaits. REQUIRES: it is the last answer of
  // handle() or finish().
  Bytes outcome_of(const Answer& answer) const {
    return answer.response.opcode == Opcode::kPack ? packed_outcome_ : answer.response.value;
  }
  static Outcomes::Mark mark_of(const Answer& answer) {
    const auto* const mark = std::get_if<AwaitMark>(&answer.next);
    RKV_CHECK(mark != nullptr || std::holds_alternative<Reply>(answer.next),
              "a write awaits a mark or nothing");
    if (mark == nullptr) return {};
    return {.level = mark->level, .through = mark->through};
  }
  // Returns the answer to a client that asks for an outcome. `outcomes`: those of the session asked
  // for; nullptr: not known. The answer's value lies in them.
  Answer found(const FindOutcome& asked, const Outcomes* outcomes) const;
  // Returns the answer to a client whose write was sent to an earlier primary of the group. The
  // answer's value is valid until the next handle(). REQUIRES: `rounds` was given.
  Answer found_in_log(const FindOutcome& asked, const LoggedOutcomes::Found& in_log);

  // Whether an answer that awaits this mark may be sent.
  bool is_reached(Durability level, std::uint64_t through) const {
    return through <= mark_at(level);
  }
  // Returns the answer to a flush, or to a write that waited for its mark, if the disk has failed
  // first. The write was executed: readers may have seen it.
  Response disk_failed(const Response& awaited) const;
  // Whether an answer whose mark is reached would acknowledge a write of which the group has too
  // few copies now: a replica was left out while the answer waited. Then short_of_copies() is the
  // answer.
  bool falls_short(const Response& awaited, std::span<const Outcome> packed) const;
  static Response short_of_copies(const Response& awaited);
  // Returns the next step of a flush or a backup whose sweep is over. `awaited` is the response
  // that came with AwaitSweep, `value` is its value.
  Answer after_sweep(const Response& awaited, Bytes value, const Status& swept);
  // Adds the marks and the time, which every answer carries.
  Response marked(const Response& response) const;

 private:
  Answer serve(const Request& request);
  Answer ping(const Request& request);
  // Whether the operation is a write, and the group has too few replicas in sync.
  bool lacks_copies_for(Opcode opcode) const {
    return parts_.lacks_copies != nullptr && traits_of(opcode).takes_durability &&
           opcode != Opcode::kPack && parts_.lacks_copies->load(std::memory_order_relaxed);
  }
  // Whether the client's role allows the operation: one comparison.
  bool is_allowed(Opcode opcode) const { return traits_of(opcode).role <= role_; }
  // Returns the refusal of an operation that is not allowed. Its text is valid until the next call.
  Error forbidden(Opcode opcode);
  // `longest`: the longest value that is copied; kTooLarge if the value is longer.
  Answer get(const Request& request, std::size_t longest = kMaxInlineBytes);
  void touch(Bytes encoded);
  Answer put(const Request& request);
  Answer touch(const Request& request, bool copies_large);
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
    if (level == Durability::kSync) return parts_.log.group_sync_mark();
    return level == Durability::kWal ? parts_.log.group_wal_mark() : parts_.log.replicated_mark();
  }
  // Delays the answer to a write until the write has the requested durability.
  Answer when_safe(const Request& request, Answer answer) const;
  // Delays the answer until all that it shows is replicated. REQUIRES: the log is replicated.
  Answer when_replicated(const Request& request, Answer answer) const;

  const Parts parts_;
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
  Bytes packed_outcome_;  // of the last pack; lies in results_ or in without_reads_
  std::array<std::byte, kMostOutcomeBytes> without_reads_{};
  std::atomic<std::uint64_t> reported_reads_{0};  // written by the worker's thread only
};

}  // namespace rkv::server
