#include "server/request/worker_counters.h"

#include "rkv/result.h"

namespace rkv::server {

namespace {

struct Named {
  Code code;
  std::string_view name;
};

// Names in the order of their indices, starting with 1.
constexpr std::array<Named, kStatuses - 2> kNames = {{{Code::kNotFound, "not_found"},
                                                      {Code::kInvalidArgument, "invalid_argument"},
                                                      {Code::kTooLarge, "too_large"},
                                                      {Code::kConflict, "conflict"},
                                                      {Code::kWrongType, "wrong_type"},
                                                      {Code::kOutOfRange, "out_of_range"},
                                                      {Code::kValueChanged, "value_changed"},
                                                      {Code::kOutOfMemory, "out_of_memory"},
                                                      {Code::kBusy, "busy"},
                                                      {Code::kDisconnected, "disconnected"},
                                                      {Code::kStale, "stale"},
                                                      {Code::kTimeout, "timeout"},
                                                      {Code::kUnreachable, "unreachable"},
                                                      {Code::kVersionMismatch, "version_mismatch"},
                                                      {Code::kPermission, "permission"},
                                                      {Code::kNoDevice, "no_device"},
                                                      {Code::kUnsupported, "unsupported"},
                                                      {Code::kIo, "io"},
                                                      {Code::kCorrupt, "corrupt"},
                                                      {Code::kRejected, "rejected"},
                                                      {Code::kInternal, "internal"},
                                                      {Code::kUnauthenticated, "unauthenticated"}}};
constexpr std::size_t kOtherStatus = kStatuses - 1;

constexpr std::array<std::uint8_t, 256> make_indices() {
  std::array<std::uint8_t, 256> indices{};
  indices.fill(kOtherStatus);
  indices[0] = 0;
  for (std::size_t i = 0; i < kNames.size(); ++i)
    indices[static_cast<std::uint8_t>(kNames[i].code)] = static_cast<std::uint8_t>(i + 1);
  return indices;
}
constexpr std::array<std::uint8_t, 256> kIndices = make_indices();

struct Drop {
  std::string_view name;
  const char* sentence;
};
constexpr std::array<Drop, kDropReasons> kDrops = {
    {{"credits", "it has sent more requests than its credits allow"},
     {"malformed", "its message is not a request"},
     {"long_request", "it has announced a long request that is not there"},
     {"unreadable", "it has named memory that the server may not READ"},
     {"overdue",
      "its memory answers READs slowly or not at all, or it takes no replies, and others wait"},
     {"replies", "it does not take its replies, and others wait for the buffer"},
     {"silent", "all places are taken, and another client gets its place"},
     {"revoked", "its user was revoked or changed"}}};

}  // namespace

std::size_t status_index(std::uint8_t code) {
  return kIndices[code];
}

std::string_view status_name(std::size_t index) {
  if (index == 0) return "ok";
  return index < kOtherStatus ? kNames[index - 1].name : "other";
}

std::string_view name_of(DropReason reason) {
  return kDrops[static_cast<std::size_t>(reason)].name;
}

const char* sentence_of(DropReason reason) {
  return kDrops[static_cast<std::size_t>(reason)].sentence;
}

std::string_view name_of(rdma::Completion::Kind kind) {
  switch (kind) {
    case rdma::Completion::Kind::kSend:
      return "send";
    case rdma::Completion::Kind::kReceive:
      return "receive";
    case rdma::Completion::Kind::kRead:
      return "read";
    default:
      return "other";
  }
}

std::string_view name_of(rdma::Completion::Status status) {
  switch (status) {
    case rdma::Completion::Status::kOk:
      return "ok";
    case rdma::Completion::Status::kRemoteAccess:
      return "remote_access";
    case rdma::Completion::Status::kFlushed:
      return "flushed";
    case rdma::Completion::Status::kFailed:
      return "failed";
  }
  return "other";
}

std::uint64_t WorkerCounters::all_drops() const {
  std::uint64_t sum = 0;
  for (const auto& count : drops_)
    sum += count.load(std::memory_order_relaxed);
  return sum;
}

std::uint64_t WorkerCounters::refused() const {
  std::uint64_t sum = 0;
  const std::size_t missing = status_index(static_cast<std::uint8_t>(Code::kNotFound));
  for (const auto& statuses : answers_) {
    for (std::size_t status = 1; status < kStatuses; ++status)
      sum += status == missing ? 0 : statuses[status].load(std::memory_order_relaxed);
  }
  return sum;
}

std::uint64_t WorkerCounters::get(Counter counter) const {
  const auto found_or_not = [this](Opcode opcode) {
    return done(opcode) + answers(opcode, status_index(static_cast<std::uint8_t>(Code::kNotFound)));
  };
  switch (counter) {
    case kPuts:
      return done(Opcode::kPut) + done(Opcode::kPutLarge);
    case kTouches:
      return done(Opcode::kTouch);
    case kCounts:
      return done(Opcode::kAdd) + done(Opcode::kSwap) + done(Opcode::kOpenCounter);
    case kRemoves:
      return done(Opcode::kRemove);
    case kGets:
      return found_or_not(Opcode::kGet);
    case kPings:
      return done(Opcode::kPing);
    case kFlushes:
      return done(Opcode::kFlush);
    case kBackups:
      return done(Opcode::kBackup);
    case kScanPages:
      return done(Opcode::kScan);
    case kOutcomesAsked:
      return found_or_not(Opcode::kOutcome) + get(kOutcomesUnknown);
    case kOutcomesApplied:
      return done(Opcode::kOutcome);
    case kOutcomesUnknown:
      return answers(Opcode::kOutcome, status_index(static_cast<std::uint8_t>(Code::kStale)));
    case kRefused:
      return refused();
    case kDropped:
      return all_drops();
    default:
      return values_[counter].load(std::memory_order_relaxed);
  }
}

}  // namespace rkv::server
