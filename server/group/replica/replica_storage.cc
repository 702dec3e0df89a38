#include "server/group/replica/replica_storage.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "common/bytes.h"
#include "server/persistence/history_note.h"

namespace rkv::server {

namespace {

constexpr std::string_view kGroupNote = "group";
constexpr std::string_view kConfigurationNote = "configuration";
constexpr std::size_t kConfigurationNoteBytes = 12;  // number 8 and term 4

std::unexpected<Error> damaged() {
  return fail(Code::kCorrupt, "what the database notes about its group is invalid");
}

bool is_empty(const StorageEngine& engine) {
  bool empty = true;
  (void)engine.read_from({}, [&](const RecordFields&) {
    empty = false;
    return false;
  });
  return empty;
}

// HISTORY-1, which extend() requires.
bool may_extend(const TermHistory& history, const LogPosition& last) {
  return last.term >= history.last().term && last.version > history.last().version;
}

std::vector<std::byte> encode(const TermHistory& history) {
  std::vector<std::byte> bytes(history.terms().size() * kHistoryTermBytes);
  std::byte* to = bytes.data();
  for (const LogPosition& last : history.terms()) {
    store_le(to, last.term);
    store_le(to + 4, last.version);
    to += kHistoryTermBytes;
  }
  return bytes;
}

Result<TermHistory> decode(Bytes bytes) {
  TermHistory history;
  if (bytes.size() % kHistoryTermBytes != 0) return damaged();
  for (; !bytes.empty(); bytes = bytes.subspan(kHistoryTermBytes)) {
    const LogPosition last{.term = load_le<std::uint32_t>(bytes.data()),
                           .version = load_le<std::uint64_t>(bytes.data() + 4)};
    if (!may_extend(history, last)) return damaged();
    history.extend(last);
  }
  return history;
}

}  // namespace

Result<ReplicaStorage::Kept> ReplicaStorage::kept_in(const StorageEngine& engine) {
  Kept kept;
  RKV_ASSIGN_OR_RETURN(const auto group, engine.note(kGroupNote));
  if (group && !group->empty()) {
    if (group->size() != 8) return damaged();
    kept.group = load_le<std::uint64_t>(as_bytes(*group).data());
    if (kept.group == 0) return damaged();
  }
  RKV_ASSIGN_OR_RETURN(const auto configuration, engine.note(kConfigurationNote));
  if (configuration && !configuration->empty()) {
    if (configuration->size() != kConfigurationNoteBytes) return damaged();
    kept.number = load_le<std::uint64_t>(as_bytes(*configuration).data());
    kept.term = load_le<std::uint32_t>(as_bytes(*configuration).data() + 8);
  }
  RKV_ASSIGN_OR_RETURN(const auto history, engine.note(kHistoryNote));
  if (history && !history->empty()) {
    RKV_ASSIGN_OR_RETURN(kept.history, decode(as_bytes(*history)));
  } else if (!is_empty(engine)) {
    const std::uint32_t boot = engine.boot() - 1;  // the highest boot that was claimed
    kept.history.extend({.term = boot, .version = Version::of(boot + 1, 0).bits - 1});
  }
  return kept;
}

// Empty notes count as missing. The history is discarded with the notes: for kept_in(), entries of
// a server outside of a group are one term.
Result<bool> ReplicaStorage::leave_group(StorageEngine& engine) {
  RKV_ASSIGN_OR_RETURN(const Kept kept, kept_in(engine));
  if (kept.group == 0) return false;
  if (kept.history.last().version >> 32U >= engine.boot()) {
    return fail(Code::kUnsupported,
                "its group has used more versions than it knows of: take the directory or a backup "
                "of a replica that was the primary");
  }
  RKV_RETURN_IF_ERROR(engine.write_note(kGroupNote, {}));
  RKV_RETURN_IF_ERROR(engine.write_note(kConfigurationNote, {}));
  RKV_RETURN_IF_ERROR(engine.write_note(kHistoryNote, {}));
  return true;
}

ReplicaStorage::ReplicaStorage(StorageEngine& engine, TermHistory history)
    : engine_(engine), history_(std::move(history)), through_(history_.last().version) {}

Status ReplicaStorage::note_configuration(StorageEngine& engine, std::uint64_t number,
                                          std::uint32_t term) {
  std::array<std::byte, kConfigurationNoteBytes> bytes{};
  store_le(bytes.data(), number);
  store_le(bytes.data() + 8, term);
  return engine.write_note(kConfigurationNote, bytes);
}

// Writes the history first: a copy of a group's database must have it, even if no batch was written
// since.
Status ReplicaStorage::join(std::uint64_t group) {
  if (!history_.terms().empty())
    RKV_RETURN_IF_ERROR(engine_.write_note(kHistoryNote, encode(history_)));
  std::array<std::byte, 8> bytes{};
  store_le(bytes.data(), group);
  return engine_.write_note(kGroupNote, bytes);
}

void ReplicaStorage::note_block(const LogPosition& end) {
  const MutexLock lock(mutex_);
  if (ends_.empty() || ends_.back() < end) ends_.push_back(end);
}

bool ReplicaStorage::may_end(Version newest) {
  const MutexLock lock(mutex_);
  return std::ranges::any_of(
      ends_, [newest](const LogPosition& end) { return end.version == newest.bits; });
}

void ReplicaStorage::set_through(Version newest) {
  through_ = std::max(through_, newest.bits);
}

Status ReplicaStorage::write_batch() {
  add_history();
  return engine_.write_batch();
}

// Adds the history even if it has not changed: a batch that is written again must have it, too.
void ReplicaStorage::add_history() {
  {
    const MutexLock lock(mutex_);
    for (; !ends_.empty() && ends_.front().version <= through_; ends_.pop_front()) {
      if (may_extend(history_, ends_.front())) history_.extend(ends_.front());
    }
  }
  if (!history_.terms().empty()) engine_.add_note(kHistoryNote, encode(history_));
}

}  // namespace rkv::server
