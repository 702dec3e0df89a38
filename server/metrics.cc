#include "server/metrics.h"

#include "rkv/result.h"

namespace rkv::server {

namespace {

struct Named {
  Code code;
  std::string_view name;
};

// In the order of their indices, from 1 on.
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
                                                      {Code::kInternal, "internal"}}};
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

constexpr std::array<std::string_view, kOperations> kOperationNames = {
    "none", "get",  "put",       "remove",       "ping",   "flush", "stats",
    "add",  "swap", "put_large", "open_counter", "backup", "scan",  "long"};

}  // namespace

std::size_t status_index(std::uint8_t code) {
  return kIndices[code];
}

std::string_view status_name(std::size_t index) {
  if (index == 0) return "ok";
  return index < kOtherStatus ? kNames[index - 1].name : "other";
}

std::string_view operation_name(Opcode opcode) {
  return kOperationNames[static_cast<std::size_t>(opcode)];
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
    case kRefused:
      return refused();
    default:
      return values_[counter].load(std::memory_order_relaxed);
  }
}

}  // namespace rkv::server
