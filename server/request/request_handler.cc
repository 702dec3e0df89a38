#include "server/request/request_handler.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include <utility>

#include "common/check.h"
#include "server/request/refusal.h"

namespace rkv::server {

namespace {

// The results of a pack of up to 8 writes always fit into a small buffer. The worker executes such
// a pack even if no large buffer is free, so no value may make the answer longer.
constexpr std::size_t kMostSmallResults = kMostSentenceBytes;

RequestHandler::Answer reply(const Response& response) {
  return {.response = response};
}

// The answer to an operation on a key that has failed.
RequestHandler::Answer failed(const Request& request, const StoreError& error) {
  RequestHandler::Answer answer = reply(refusal(request.opcode, request.sequence, error));
  if (error.on_disk) answer.next = RequestHandler::AwaitLoad{request.key};
  return answer;
}

// A client that uses the sequence 0 cannot ask for the outcome.
WriteTag tag_of(const WriteTag& whose, const Request& request) {
  return {.session = request.sequence != 0 ? whose.session : 0,
          .sequence = request.sequence,
          .user = whose.user,
          .opcode = request.opcode};
}

// Absent replicas may return soon, so clients try again.
constexpr Error kTooFewCopies{
    .code = Code::kBusy,
    .text = "too few replicas of the group are in sync for a write (--min-copies)"};

constexpr Error kFellShort{
    .code = Code::kIo,
    .text =
        "a replica of the group was lost meanwhile, and too few have the write (--min-copies): "
        "it may have happened"};

// The opcode of a refusal. An unknown opcode would make the answer unreadable.
Opcode answerable(Bytes message) {
  const auto opcode = static_cast<Opcode>(load_le<std::uint8_t>(message.data()));
  return is_known(opcode) ? opcode : Opcode::kPing;
}

}  // namespace

RequestHandler::RequestHandler(Parts parts)
    : parts_(std::move(parts)), value_(kMaxInlineBytes), results_(kMaxInlineBytes) {
  RKV_CHECK(parts_.durability != Durability::kDefault &&
                (parts_.durability == Durability::kMemory || !parts_.log.is_volatile()),
            "a server without a disk cannot answer by its marks");
}

// Allocates nothing: a client may send such requests without end.
Error RequestHandler::forbidden(Opcode opcode) {
  const auto end = fmt::format_to_n(
      forbidden_.data(), forbidden_.size() - 1,
      "{} needs the role {}, and this user has the role {}: connect as another user",
      to_string(opcode), to_string(traits_of(opcode).role), to_string(role_));
  *end.out = '\0';
  return {.code = Code::kPermission, .text = forbidden_.data()};
}

RequestHandler::Answer RequestHandler::handle(Bytes message, Role role, DiskLookup look,
                                              const WriteTag& whose) {
  std::uint64_t sequence = 0;
  const Result<Request> request = decode_request(message, &sequence);
  if (!request) {
    if (message.size() < kRequestHeaderBytes) return {.next = Disconnect{}, .malformed = true};
    Answer answer = reply(refusal(answerable(message), sequence, request.error()));
    answer.malformed = true;
    return answer;
  }
  role_ = role;
  if (!is_allowed(request->opcode)) [[unlikely]]
    return reply(refusal(request->opcode, sequence, forbidden(request->opcode)));
  if (request->durability > Durability::kMemory && parts_.log.is_volatile()) {
    return reply(refusal(request->opcode, sequence,
                         {.code = Code::kUnsupported,
                          .text = "the server keeps its data in memory only: start it with "
                                  "--data-dir, or write with durability memory"}));
  }
  if (lacks_copies_for(request->opcode)) [[unlikely]]
    return reply(refusal(request->opcode, sequence, kTooFewCopies));
  look_ = look;
  if (parts_.log.is_replicated()) [[unlikely]] {
    tag_ = tag_of(whose, *request);
    return when_replicated(*request, serve(*request));
  }
  return serve(*request);
}

RequestHandler::Answer RequestHandler::serve(const Request& request) {
  switch (request.opcode) {
    case Opcode::kGet:
      return get(request);
    case Opcode::kPut:
      return when_safe(request, put(request));
    case Opcode::kPutLarge:
      return put_large(request);
    case Opcode::kTouch:
      return when_safe(request, touch(request, true));
    case Opcode::kRemove:
      return when_safe(request, remove(request));
    case Opcode::kPing:
      return ping(request);
    case Opcode::kFlush:
      return flush(request);
    case Opcode::kStats:
      return stats(request);
    case Opcode::kAdd:
    case Opcode::kSwap:
      return count(request);
    case Opcode::kOpenCounter:
      return open_counter(request);
    case Opcode::kBackup:
      return backup(request);
    case Opcode::kScan:
      return scan(request);
    case Opcode::kLong:
      return read_request(request);
    case Opcode::kPack:
      return pack(request);
    case Opcode::kOutcome:
      return find_outcome(request);
    case Opcode::kRevoke:
    case Opcode::kMovePrimary:
    case Opcode::kRemoveReplica:
    case Opcode::kSetLogLevel:
      return {.response = {.opcode = request.opcode, .sequence = request.sequence},
              .next = AdminRequest{as_text(request.value)}};
  }
  return {.next = Disconnect{}, .malformed = true};  // unreachable: the decoder checks opcodes
}

// In a group the answer proves that this server was the primary after the request had arrived. From
// the answer a client also learns the server's clock.
RequestHandler::Answer RequestHandler::ping(const Request& request) {
  Answer answer = reply({.opcode = Opcode::kPing, .sequence = request.sequence});
  if (parts_.rounds != nullptr) answer.next = await_round(*parts_.rounds);
  return answer;
}

Response RequestHandler::not_executed(Bytes message, const Error& error) {
  return refusal(answerable(message), load_le<std::uint64_t>(message.data() + 8), error);
}

Durability RequestHandler::level_of(const Request& request) const {
  return request.durability == Durability::kDefault ? parts_.durability : request.durability;
}

RequestHandler::Answer RequestHandler::when_safe(const Request& request, Answer answer) const {
  const Durability level = level_of(request);
  if (level == Durability::kMemory || answer.response.code != 0) return answer;
  answer.next =
      AwaitMark{.level = level, .through = answer.response.version.sequence_since(parts_.boot)};
  return answer;
}

namespace {
// Whether the answer says something about a key. A refusal that asks the client to try later does
// not, and neither do the operations without a key. Flushes, scans and backups wait for marks of
// their own, which never pass the replicated mark.
bool shows_data(const Request& request, const Response& response) {
  const bool looks = traits_of(request.opcode).takes_key || request.opcode == Opcode::kPack;
  return looks && retry_after_ms(static_cast<Code>(response.code)) == 0;
}
}  // namespace

// A fail-over may take back the data that an answer shows until it is replicated. That holds for
// misses and refusals as well: a write that is not replicated yet may have removed the key or
// caused the conflict. The mark is awaited up to last_begun(), read after the operation has looked.
// That is enough: a write has its sequence before it publishes what the operation sees. Two kinds
// of answer depend on a single write and wait for its sequence only: the answer to a write, and the
// value that a GET found. Everything before that write is then replicated, too.
RequestHandler::Answer RequestHandler::when_replicated(const Request& request,
                                                       Answer answer) const {
  if (!std::holds_alternative<Reply>(answer.next) || !shows_data(request, answer.response))
    return answer;
  const OpcodeTraits traits = traits_of(request.opcode);
  const Version shown = answer.response.version;
  const bool shows_one = answer.response.code == 0 && shown != Version{} &&
                         (traits.acknowledges || request.opcode == Opcode::kGet);
  std::uint64_t through = parts_.log.last_begun();
  // Records of earlier boots were replicated before clients were admitted.
  if (shows_one) through = shown.is_since(parts_.boot) ? shown.sequence_since(parts_.boot) : 0;
  if (!is_reached(Durability::kMemory, through)) {
    answer.next = AwaitMark{.level = Durability::kMemory, .through = through};
  } else if (falls_short(answer.response, answer.packed)) {
    return reply(short_of_copies(answer.response));
  }
  return answer;
}

bool RequestHandler::falls_short(const Response& awaited, std::span<const Outcome> packed) const {
  if (parts_.lacks_copies == nullptr || !parts_.lacks_copies->load(std::memory_order_relaxed))
      [[likely]]
    return false;
  const auto is_made = [](Opcode opcode, std::uint8_t code) {
    const bool is_write = traits_of(opcode).takes_durability && opcode != Opcode::kPack;
    return code == 0 && (is_write || opcode == Opcode::kOutcome);
  };
  return is_made(awaited.opcode, awaited.code) ||
         std::ranges::any_of(packed,
                             [&](const Outcome& one) { return is_made(one.opcode, one.code); });
}

Response RequestHandler::short_of_copies(const Response& awaited) {
  Error error = kFellShort;
  if (awaited.opcode == Opcode::kOutcome) error.code = Code::kStale;  // it is not known
  Response response = refusal(awaited.opcode, awaited.sequence, error);
  if (awaited.opcode != Opcode::kOutcome) response.flags = Response::kMayHaveHappened;
  return response;
}

Response RequestHandler::marked(const Response& response) const {
  Response all = response;
  if (!parts_.log.is_volatile()) {  // without a disk the marks remain zero
    // Read first: it never passes the other. Clients learn from both what a fail-over keeps.
    all.sync_mark = Version::of(parts_.boot, parts_.log.group_sync_mark());
    all.wal_mark = Version::of(parts_.boot, parts_.log.group_wal_mark());
  }
  all.server_us = static_cast<std::uint64_t>(now_ / kNanosPerUs);
  return all;
}

// Extends the request's 48-bit time to the instant nearest to now. Half of the 48-bit range is four
// years.
Nanos RequestHandler::begin_by(const Request& request) const {
  if (request.begin_by_us == 0) return kAnyTime;
  constexpr int kUnused = 64 - std::bit_width(kBeginByModulus - 1);
  const auto now_us = now_ / kNanosPerUs;
  const std::uint64_t ahead = request.begin_by_us - static_cast<std::uint64_t>(now_us);
  // The shifts extend the sign.
  const Nanos ahead_us = static_cast<Nanos>(ahead << kUnused) >> kUnused;
  return (now_us + ahead_us) * kNanosPerUs;
}

namespace {
std::uint8_t counter_flags(bool counter, bool in_cell) {
  return static_cast<std::uint8_t>((counter ? Response::kCounter : 0U) |
                                   (in_cell ? Response::kInCell : 0U));
}
}  // namespace

// The hashes come from a peer. A wrong one can only keep some record in memory.
void RequestHandler::touch(Bytes encoded) {
  std::array<std::uint64_t, kMaxUsedHashes> hashes;
  const std::size_t count = encoded.size() / sizeof(std::uint64_t);
  for (std::size_t i = 0; i < count; ++i)
    hashes[i] = load_le<std::uint64_t>(encoded.data() + i * sizeof(std::uint64_t));
  parts_.store.evictor().touch(std::span(hashes).first(count));
  reported_reads_.store(reported_reads() + count, std::memory_order_relaxed);
}

RequestHandler::Answer RequestHandler::get(const Request& request, std::size_t longest) {
  const auto found = parts_.store.get(request.key, MutableBytes(value_).first(longest), look_);
  const bool will_load = !found && found.error().on_disk;  // then it is handled again
  if (!request.value.empty() && !will_load) touch(request.value);
  if (!found) return failed(request, found.error());
  if (found->large) {
    return reply({.opcode = Opcode::kGet,
                  .flags = Response::kByRead,
                  .sequence = request.sequence,
                  .version = found->version,
                  .slot = found->slot,
                  .expiry_ms = found->expiry_ms});
  }
  return reply({.opcode = Opcode::kGet,
                .flags = counter_flags(found->counter, found->in_cell),
                .sequence = request.sequence,
                .version = found->in_cell ? Version{} : found->version,
                .slot = found->slot,
                .expiry_ms = found->expiry_ms,
                .value = Bytes(value_).first(found->value_length)});
}

namespace {

Response stored_response(const Request& request, const PutResult& stored) {
  return {.opcode = request.opcode,
          .flags = stored.in_neighbour ? Response::kInNeighbour : std::uint8_t{0},
          .sequence = request.sequence,
          .version = stored.version,
          .slot = stored.slot};
}

}  // namespace

PutOptions RequestHandler::options_of(const Request& request) const {
  return {.condition = request.condition,
          .expected = request.expected,
          .ttl_ms = request.ttl_ms,
          .until = request.until,
          .look = look_,
          .begin_by = begin_by(request),
          .tag = tag()};
}

RequestHandler::Answer RequestHandler::put(const Request& request) {
  const auto stored = parts_.store.put(request.key, request.value, options_of(request));
  return stored ? reply(stored_response(request, *stored)) : failed(request, stored.error());
}

RequestHandler::Answer RequestHandler::touch(const Request& request, bool copies_large) {
  const auto touched = parts_.store.touch(request.key, options_of(request), value_, copies_large);
  return touched ? reply(stored_response(request, *touched)) : failed(request, touched.error());
}

// Executes an operation like one outside of a pack, or gives it the result refused_alone().
// Afterwards `all` also awaits the mark that this operation awaits.
Response RequestHandler::serve_packed(const Request& operation, AwaitMark& all) {
  if (!is_packable(operation.opcode)) {
    return refusal(operation.opcode, 0,
                   {.code = Code::kInvalidArgument,
                    .text = "a pack must have gets, puts, touches, removes, adds and swaps only"});
  }
  if (!is_allowed(operation.opcode)) [[unlikely]]
    return refusal(operation.opcode, 0, forbidden(operation.opcode));
  if (const Status valid = check_operation(operation); !valid) {
    return refusal(operation.opcode, 0, valid.error());
  }
  if (operation.opcode == Opcode::kGet && !operation.value.empty()) {
    // Looking such operations up takes longer than a whole pack may.
    return refusal(
        operation.opcode, 0,
        {.code = Code::kInvalidArgument, .text = "a get in a pack must have a key only"});
  }
  if (lacks_copies_for(operation.opcode)) [[unlikely]]
    return refusal(operation.opcode, 0, kTooFewCopies);
  const Durability level = level_of(operation);
  if (operation.opcode == Opcode::kGet) {
    // In a durable pack a value would be held until the mark.
    if (all.level != Durability::kMemory) return ResultWriter::refused_alone(operation.opcode);
    const Answer answer = get(operation, kLongestPackedValue);
    const auto code = static_cast<Code>(answer.response.code);
    const bool is_alone = std::holds_alternative<AwaitLoad>(answer.next) || code == Code::kTooLarge;
    return is_alone ? ResultWriter::refused_alone(operation.opcode) : answer.response;
  }
  if (operation.opcode == Opcode::kPut && level == Durability::kMemory) {  // the shortest way
    const auto stored = parts_.store.put(operation.key, operation.value, options_of(operation));
    if (stored) return stored_response(operation, *stored);
    if (stored.error().on_disk) return ResultWriter::refused_alone(operation.opcode);
    return refusal(operation.opcode, operation.sequence, stored.error());
  }
  const bool is_touch = operation.opcode == Opcode::kTouch;
  const Answer answer = is_touch ? when_safe(operation, touch(operation, false)) : serve(operation);
  // Copies of large values are not made in a row: other clients are served between them.
  const bool is_long = is_touch && static_cast<Code>(answer.response.code) == Code::kTooLarge;
  if (std::holds_alternative<AwaitLoad>(answer.next) || is_long) {
    return ResultWriter::refused_alone(operation.opcode);
  }
  if (const auto* const mark = std::get_if<AwaitMark>(&answer.next)) {
    all.through = std::max(all.through, mark->through);
    ++all.writes;
  }
  return answer.response;
}

// Does each step for all operations before the next step, so that memory of one key is fetched
// while other keys are handled. The operations are executed in their order.
RequestHandler::Answer RequestHandler::pack(const Request& request) {
  PackReader reader(request.value);  // the decoder has checked it (PACK-1)
  if (reader.count() > parts_.max_packed) {
    Answer refused = reply(refusal(
        Opcode::kPack, request.sequence,
        {.code = Code::kTooLarge, .text = "the pack has more operations than the server takes"}));
    refused.malformed = true;
    return refused;
  }
  std::size_t count = 0;
  std::size_t reserve = 0;
  std::size_t reads = 0;
  while (const auto operation = reader.next()) {
    Request& one = packed_[count++] = *operation;
    one.begin_by_us = request.begin_by_us;
    if (one.opcode != Opcode::kGet) one.durability = request.durability;
    reserve += least_result_bytes(one.opcode);
    reads += one.opcode == Opcode::kGet ? 1 : 0;
    parts_.store.prefetch(one.key);
  }
  AwaitMark all{.level = level_of(request), .writes = 0};
  std::size_t outcomes = 0;
  const bool is_small = reserve <= kMostSmallResults && reads == 0;
  ResultWriter results(
      MutableBytes(results_).first(is_small ? kMostSmallResults : kMaxInlineBytes));
  tag_.count = static_cast<std::uint8_t>(count);
  for (const Request& one : std::span(packed_).first(count)) {
    reserve -= least_result_bytes(one.opcode);
    tag_.opcode = one.opcode;
    tag_.index = static_cast<std::uint8_t>(&one - packed_.data());
    const Response result = serve_packed(one, all);
    results.add(result, reserve);
    if (is_packable(one.opcode) && (result.flags & Response::kAlone) == 0)
      outcomes_[outcomes++] = {.opcode = one.opcode, .code = result.code};
  }
  Answer answer =
      reply({.opcode = Opcode::kPack, .sequence = request.sequence, .value = results.finish()});
  if (all.writes != 0) {
    // The pack's refusals may be due to later writes of other clients; see when_replicated().
    if (parts_.log.is_replicated()) [[unlikely]]
      all.through = parts_.log.last_begun();
    answer.next = all;
  }
  packed_outcome_ = answer.response.value;
  if (reads == count) {
    packed_outcome_ = {};
  } else if (reads != 0 || packed_outcome_.size() > kMostOutcomeBytes) {
    packed_outcome_ =
        outcome_of_pack(std::span(packed_).first(count), packed_outcome_, without_reads_);
  }
  answer.packed = std::span(outcomes_).first(outcomes);
  return answer;
}

RequestHandler::Answer RequestHandler::put_large(const Request& request) {
  const auto source = decode_value_source(request.value);
  if (!source) return reply(refusal(request.opcode, request.sequence, source.error()));
  auto large = parts_.store.large_records().begin(request.key, source->length, options_of(request));
  if (!large) return failed(request, large.error());
  return {.next = FetchValue{.source = *source, .large = std::move(*large)}};
}

RequestHandler::Answer RequestHandler::read_request(const Request& request) {
  const auto source = decode_message_source(request.value);
  if (!source) return reply(refusal(request.opcode, request.sequence, source.error()));
  return {.response = {.sequence = request.sequence}, .next = ReadRequest{*source}};
}

RequestHandler::Answer RequestHandler::find_outcome(const Request& request) {
  const auto write = decode_write_id(request.value);
  if (!write) return reply(refusal(request.opcode, request.sequence, write.error()));
  return {.next = FindOutcome{
              .write = *write, .sequence = request.sequence, .since = request.expected}};
}

RequestHandler::Answer RequestHandler::found(const FindOutcome& asked,
                                             const Outcomes* outcomes) const {
  const std::uint64_t sequence = asked.write.sequence;
  const Outcomes::Fate fate =
      outcomes == nullptr ? Outcomes::Fate::kNotKnown : outcomes->fate_of(sequence);
  if (fate != Outcomes::Fate::kApplied) {
    const bool known = fate == Outcomes::Fate::kNotApplied;
    return reply(refusal(Opcode::kOutcome, asked.sequence,
                         {.code = known ? Code::kNotFound : Code::kStale,
                          .text = "the server does not know that session any more"}));
  }
  const KeptOutcome& kept = outcomes->applied(sequence);
  Answer answer = reply({.opcode = Opcode::kOutcome,
                         .flags = kept.flags,
                         .sequence = asked.sequence,
                         .version = kept.version,
                         .slot = kept.slot,
                         .value = outcomes->value_of(sequence)});
  if (kept.level != Durability::kMemory || kept.through != 0) {  // ONCE-4
    answer.next = AwaitMark{.level = kept.level, .through = kept.through, .writes = 0};
  }
  return answer;
}

// An applied write was replicated, and on the disks of all replicas in sync, before this server
// admitted clients. The round proves that no later primary applied the write. It began after the
// client asked, hence after the write was sent, and all replicas in sync have obeyed this primary
// since.
RequestHandler::Answer RequestHandler::found_in_log(const FindOutcome& asked,
                                                    const LoggedOutcomes::Found& in_log) {
  // A client that knows a version of this term sent the write to this server or to a later primary.
  const LoggedOutcomes::Found found =
      asked.since.is_since(parts_.boot) ? LoggedOutcomes::Found{} : in_log;
  if (found.fate != LoggedOutcomes::Fate::kApplied) {
    const bool known = found.fate == LoggedOutcomes::Fate::kNotApplied;
    Answer answer = reply(refusal(
        Opcode::kOutcome, asked.sequence,
        {.code = known ? Code::kNotFound : Code::kStale,
         .text =
             "the server does not know what the group's earlier primary did for that session"}));
    if (known) answer.next = await_round(*parts_.rounds);
    return answer;
  }
  const auto result_of = [&](const LoggedOutcomes::Operation& one) {
    const bool counts = one.opcode == Opcode::kAdd || one.opcode == Opcode::kSwap;
    if (counts) store_le(value_.data(), one.number);
    return Response{.opcode = one.opcode,
                    .flags = one.opcode == Opcode::kSwap ? Response::kSwapped : std::uint8_t{0},
                    .version = one.version,
                    .value = Bytes(value_).first(counts ? kCounterBytes : 0)};
  };
  if (found.count == 0) {
    Response single = result_of(found.operations.front());
    single.opcode = Opcode::kOutcome;
    single.sequence = asked.sequence;
    return reply(single);
  }
  // The client may send an operation that is not in the log again, outside of a pack.
  ResultWriter results(results_);
  for (std::uint8_t index = 0; index < found.count; ++index) {
    const auto one = std::ranges::find(found.operations, index, &LoggedOutcomes::Operation::index);
    const bool applied = one != found.operations.end();
    results.add(applied ? result_of(*one) : ResultWriter::refused_alone(Opcode::kPut), 0);
  }
  return reply({.opcode = Opcode::kOutcome, .sequence = asked.sequence, .value = results.finish()});
}

bool RequestHandler::awaits_disk(Bytes message, LargePut& large) const {
  const Status reserved = parts_.store.large_records().reserve(large);
  if (reserved || reserved.error().code != Code::kBusy) return false;
  std::uint64_t sequence = 0;
  const auto request = decode_request(message, &sequence);
  return request && now_ <= begin_by(*request);
}

RequestHandler::Answer RequestHandler::finish(Bytes message, LargePut large, std::uint64_t digest,
                                              const WriteTag& whose) {
  std::uint64_t sequence = 0;
  const auto request = decode_request(message, &sequence);
  const auto source = request ? decode_value_source(request->value)
                              : Result<ValueSource>(std::unexpected(request.error()));
  if (!source || source->digest != digest) {
    parts_.store.large_records().cancel(std::move(large));
    return reply(refusal(Opcode::kPutLarge, sequence,
                         {.code = Code::kValueChanged,
                          .text = "the value's memory was written while it was being sent: leave "
                                  "it alone until the put has returned"}));
  }
  tag_ = tag_of(parts_.log.is_replicated() ? whose : WriteTag{}, *request);
  const auto stored = parts_.store.large_records().finish(std::move(large), request->key, digest,
                                                          options_of(*request));
  Answer answer = stored ? when_safe(*request, reply(stored_response(*request, *stored)))
                         : reply(refusal(request->opcode, sequence, stored.error()));
  if (parts_.log.is_replicated()) [[unlikely]]
    return when_replicated(*request, std::move(answer));
  return answer;
}

RequestHandler::Answer RequestHandler::remove(const Request& request) {
  const auto removed = parts_.store.remove(
      request.key,
      request.condition == Condition::kIfVersion ? std::optional(request.expected) : std::nullopt,
      look_, begin_by(request), tag());
  if (!removed) return failed(request, removed.error());
  return reply({.opcode = Opcode::kRemove, .sequence = request.sequence, .version = *removed});
}

RequestHandler::Answer RequestHandler::count(const Request& request) {
  const bool swap = request.opcode == Opcode::kSwap;
  const auto number = load_le<std::int64_t>(request.value.data());
  const auto counted =
      swap ? parts_.store.counters().swap(
                 request.key, number, load_le<std::int64_t>(request.value.data() + kCounterBytes),
                 look_, begin_by(request), tag())
           : parts_.store.counters().add(request.key, number, look_, begin_by(request), tag());
  if (!counted) return failed(request, counted.error());
  store_le(value_.data(), counted->number);
  const unsigned flags = (counted->put.in_neighbour ? Response::kInNeighbour : 0U) |
                         (swap && counted->done ? Response::kSwapped : 0U) |
                         (counted->in_cell ? Response::kInCell : 0U);
  Answer answer = reply({.opcode = request.opcode,
                         .flags = static_cast<std::uint8_t>(flags),
                         .sequence = request.sequence,
                         .version = counted->put.version,
                         .slot = counted->put.slot,
                         .value = Bytes(value_).first(kCounterBytes)});
  if (counted->done) answer = when_safe(request, std::move(answer));  // else nothing was written
  if (counted->in_cell) answer.response.version = {};
  return answer;
}

RequestHandler::Answer RequestHandler::open_counter(const Request& request) {
  const bool create = load_le<std::uint8_t>(request.value.data()) != 0;
  const auto opened =
      parts_.store.counters().open(request.key, create, parts_.network, look_, begin_by(request));
  if (!opened) return failed(request, opened.error());
  store_le(value_.data(), opened->cell ? std::uint64_t{*opened->cell} : kNoCell);
  return reply({.opcode = request.opcode,
                .sequence = request.sequence,
                .version = opened->version,
                .value = Bytes(value_).first(kCellAnswerBytes)});
}

RequestHandler::Answer RequestHandler::flush(const Request& request) {
  if (parts_.log.is_volatile()) {
    return reply(
        refusal(Opcode::kFlush, request.sequence,
                {.code = Code::kUnsupported,
                 .text = "the server keeps its data in memory only: start it with --data-dir"}));
  }
  return sweep_first(request);
}

// Counts in cells must reach the log first. The CounterFlusher does this on its own thread: it
// costs a round trip per counter, and this worker's other clients would wait for it.
RequestHandler::Answer RequestHandler::sweep_first(const Request& request) {
  const Response awaited{.opcode = request.opcode, .sequence = request.sequence};
  if (parts_.counter_flusher == nullptr || !parts_.store.counter_cells().in_use()) {
    return after_sweep(awaited, request.value, Status{});
  }
  Answer answer{.response = awaited, .next = AwaitSweep{parts_.counter_flusher->ask()}};
  answer.response.value = request.value;
  return answer;
}

RequestHandler::Answer RequestHandler::after_sweep(const Response& awaited, Bytes value,
                                                   const Status& swept) {
  if (!swept) {
    const Refused what = awaited.opcode == Opcode::kBackup ? Refused::kBackup : Refused::kFlush;
    return reply(refusal(awaited.opcode, awaited.sequence,
                         parts_.log.failed() ? parts_.log.refusal(what) : swept.error()));
  }
  return awaited.opcode == Opcode::kFlush ? flush_swept(awaited.sequence)
                                          : backup_swept(awaited.sequence, value);
}

RequestHandler::Answer RequestHandler::flush_swept(std::uint64_t sequence) const {
  // Every acknowledged write is at or below this sequence.
  const std::uint64_t through = parts_.log.last_begun();
  const Response flushed{
      .opcode = Opcode::kFlush, .sequence = sequence, .version = Version::of(parts_.boot, through)};
  if (parts_.log.failed()) return reply(disk_failed(flushed));
  Answer answer = reply(flushed);
  if (!is_reached(Durability::kSync, through)) {
    answer.next = AwaitMark{.level = Durability::kSync, .through = through};
  }
  return answer;
}

Response RequestHandler::disk_failed(const Response& awaited) const {
  const bool flush = awaited.opcode == Opcode::kFlush;
  Response response = refusal(
      awaited.opcode, awaited.sequence,
      flush ? parts_.log.refusal(Refused::kFlush)
            : refusal_of(Refused::kMadeWrite, parts_.log.disk_state()));  // never "try again"
  if (!flush) response.flags = Response::kMayHaveHappened;
  return response;
}

RequestHandler::Answer RequestHandler::backup(const Request& request) {
  if (parts_.backups == nullptr) {
    return reply(
        refusal(Opcode::kBackup, request.sequence,
                {.code = Code::kUnsupported,
                 .text = parts_.log.is_volatile()
                             ? "the server keeps its data in memory only: start it with "
                               "--data-dir and --backup-dir"
                             : "the server makes no backups: start it with --backup-dir"}));
  }
  return sweep_first(request);
}

RequestHandler::Answer RequestHandler::backup_swept(std::uint64_t sequence, Bytes name) {
  const std::uint64_t through = parts_.log.last_begun();
  auto asked = parts_.backups->ask(as_text(name), through);
  if (!asked) return reply(refusal(Opcode::kBackup, sequence, asked.error()));
  return {.response = {.opcode = Opcode::kBackup,
                       .sequence = sequence,
                       .version = Version::of(parts_.boot, through)},
          .next = await_backup(std::move(*asked))};
}

// The scan shows every write that has a sequence now, which includes all acknowledged writes.
RequestHandler::Answer RequestHandler::scan(const Request& request) {
  const auto refused = [&](const Error& error) {
    return reply(refusal(Opcode::kScan, request.sequence, error));
  };
  if (parts_.scans == nullptr) {
    return refused({.code = Code::kUnsupported,
                    .text = "the server keeps its data in memory only, where keys have no order: "
                            "start it with --data-dir to scan"});
  }
  auto asked = parts_.scans->ask(request.value, parts_.log.last_begun());
  if (!asked) return refused(asked.error());
  return {.response = {.opcode = Opcode::kScan, .sequence = request.sequence},
          .next = await_page(std::move(*asked), parts_.boot)};
}

RequestHandler::Answer RequestHandler::stats(const Request& request) {
  stats_text_ = parts_.stats();
  return reply(
      {.opcode = Opcode::kStats,
       .sequence = request.sequence,
       .value = as_bytes(stats_text_).first(std::min(stats_text_.size(), kMaxInlineBytes))});
}

}  // namespace rkv::server
