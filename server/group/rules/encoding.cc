#include "server/group/rules/encoding.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "common/check.h"
#include "common/hash.h"

namespace rkv::server {

namespace {

constexpr std::uint32_t kMagic = 0x4756'4B52U;  // "RKVG"
constexpr std::size_t kChecksumOffset = 16;
constexpr std::size_t kHelloBytes = 48;
constexpr std::size_t kTermBytes = 12;
constexpr std::size_t kEntriesBytes = 96;
constexpr std::size_t kEntriesZeros = 8;
constexpr std::size_t kAnswerBytes = 48;
constexpr std::size_t kHandOverBytes = 8;
constexpr std::size_t kLaneOfferBytes = 20;
constexpr std::size_t kLaneEndBytes = 8;
constexpr std::size_t kMaxNameBytes = 64;
constexpr std::size_t kMaxAddressBytes = 300;

constexpr std::size_t kCopyRequestBytes = 24;
constexpr std::size_t kCopyBeginBytes = 16;
constexpr std::size_t kCopyFileBytes = 8;
constexpr std::size_t kCopyEndBytes = 24;

enum Kind : std::uint16_t {
  kHello = 1,
  kEntries = 2,
  kAnswer = 3,
  kCopyRequest = 4,
  kCopyWait = 5,
  kCopyBegin = 6,
  kCopyFile = 7,
  kCopyPiece = 8,
  kCopyEnd = 9,
  kCopyNeeded = 10,
  kHandOver = 11,
  kLaneOffer = 12,
  kLaneSwitch = 13,
  kLaneEnd = 14,
  kNoLane = 15,
};

class Writer {
 public:
  Writer(Kind kind, std::size_t body) : bytes_(kReplicationHeadBytes + body) {
    number(kMagic);
    number(kReplicationVersion);
    number(static_cast<std::uint16_t>(kind));
    number(static_cast<std::uint32_t>(bytes_.size()));
    at_ = kReplicationHeadBytes;
  }
  template <class T>
  void number(T value) {
    store_le(bytes_.data() + at_, value);
    at_ += sizeof value;
  }
  void position(const LogPosition& position) {
    number(position.term);
    number(position.version);
  }
  void bytes(const void* from, std::size_t length) {
    if (length != 0) std::memcpy(bytes_.data() + at_, from, length);
    at_ += length;
  }
  void zeros(std::size_t length) { at_ += length; }
  std::vector<std::byte> finish() {
    RKV_CHECK(at_ == bytes_.size(), "a message as long as its head says");
    store_le(bytes_.data() + kChecksumOffset, xxh3(bytes_, 0));
    return std::move(bytes_);
  }

 private:
  std::vector<std::byte> bytes_;
  std::size_t at_ = 0;
};

// Reads fields one after the other. A read behind the end gives zero and makes is_good() false.
class Reader {
 public:
  explicit Reader(Bytes rest) : rest_(rest) {}
  template <class T>
  T number() {
    const Bytes from = take(sizeof(T));
    return from.empty() ? T{} : load_le<T>(from.data());
  }
  LogPosition position() {
    const auto term = number<std::uint32_t>();
    return {.term = term, .version = number<std::uint64_t>()};
  }
  void zeros(std::size_t length) {
    const Bytes all = take(length);
    good_ = good_ && std::ranges::all_of(all, [](std::byte each) { return each == std::byte{}; });
  }
  std::string text(std::size_t length) {
    const Bytes from = take(length);
    return {reinterpret_cast<const char*>(from.data()), from.size()};
  }
  Bytes rest() { return take(rest_.size()); }
  bool is_good() const { return good_; }
  bool is_over() const { return good_ && rest_.empty(); }

 private:
  Bytes take(std::size_t length) {
    good_ = good_ && length <= rest_.size();
    if (!good_) return {};
    const Bytes taken = rest_.first(length);
    rest_ = rest_.subspan(length);
    return taken;
  }
  Bytes rest_;
  bool good_ = true;
};

std::unexpected<Error> wrong() {
  return fail(Code::kCorrupt, "that is not a message of a replica, or it is damaged");
}

// Whether the position is that of an entry, or the one before the first entry.
bool is_position(const LogPosition& position) {
  return (position.version == 0) == (position.term == 0);
}

std::uint64_t checksum_of(Bytes message) {
  Xxh3Stream stream(0);
  stream.update(message.first(kChecksumOffset));
  const std::uint64_t zero = 0;
  stream.update(std::as_bytes(std::span(&zero, 1)));
  stream.update(message.subspan(kReplicationHeadBytes));
  return stream.digest();
}

// Whether these may be the lengths of a replica's name and address.
bool are_lengths(std::size_t name, std::size_t address) {
  return name != 0 && name <= kMaxNameBytes && address != 0 && address <= kMaxAddressBytes;
}

Result<ReplicationMessage> decode_hello(Reader reader) {
  Hello hello;
  hello.group = reader.number<std::uint64_t>();
  hello.replica.epoch = reader.number<std::uint64_t>();
  hello.term = reader.number<std::uint32_t>();
  hello.start = reader.position();
  const auto terms = reader.number<std::uint32_t>();
  const auto name = reader.number<std::uint16_t>();
  const auto address = reader.number<std::uint16_t>();
  reader.zeros(8);
  if (!are_lengths(name, address)) return wrong();
  hello.replica.name = reader.text(name);
  hello.replica.address = reader.text(address);
  if (hello.replica.epoch == 0 || hello.group == 0 || !is_position(hello.start)) return wrong();
  for (std::uint32_t i = 0; i < terms && reader.is_good(); ++i) {
    const LogPosition last = reader.position();
    if (last.term <= hello.history.last().term || last.version <= hello.history.last().version)
      return wrong();
    hello.history.extend(last);
  }
  if (!reader.is_over()) return wrong();
  return hello;
}

Result<ReplicationMessage> decode_entries(Reader reader) {
  Entries entries;
  entries.number = reader.number<std::uint64_t>();
  entries.term = reader.number<std::uint32_t>();
  entries.previous = reader.position();
  LogPosition last{.term = reader.number<std::uint32_t>()};
  reader.zeros(4);
  last.version = reader.number<std::uint64_t>();
  entries.marks.replicated = reader.number<std::uint64_t>();
  entries.marks.wal = reader.number<std::uint64_t>();
  entries.marks.sync = reader.number<std::uint64_t>();
  entries.unix_ms = reader.number<std::uint64_t>();
  entries.wanted.wal = reader.number<std::uint64_t>();
  entries.wanted.sync = reader.number<std::uint64_t>();
  reader.zeros(kEntriesZeros);
  const Bytes bytes = reader.rest();
  if (!reader.is_over() || entries.number == 0 || entries.term == 0) return wrong();
  if (!is_position(entries.previous) || !is_position(last)) return wrong();
  if ((last == LogPosition{}) != bytes.empty() || bytes.size() > kMaxBlockBytes) return wrong();
  if (!bytes.empty()) {
    entries.block = {
        .previous = entries.previous,
        .last = last,
        .bytes = std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end())};
  }
  return entries;
}

Result<ReplicationMessage> decode_answer(Reader reader) {
  Answer answer;
  answer.number = reader.number<std::uint64_t>();
  answer.last.term = reader.number<std::uint32_t>();
  reader.zeros(4);
  answer.last.version = reader.number<std::uint64_t>();
  answer.wal = reader.number<std::uint64_t>();
  answer.sync = reader.number<std::uint64_t>();
  const auto may_lead = reader.number<std::uint32_t>();
  reader.zeros(4);
  answer.may_lead = may_lead != 0;
  if (!reader.is_over() || !is_position(answer.last) || answer.number == 0 || may_lead > 1)
    return wrong();
  return answer;
}

Result<ReplicationMessage> decode_hand_over(Reader reader) {
  const HandOver hand_over{.term = reader.number<std::uint32_t>()};
  reader.zeros(4);
  if (!reader.is_over() || hand_over.term == 0) return wrong();
  return hand_over;
}

Result<ReplicationMessage> decode_lane_offer(Reader reader) {
  LaneOffer offer;
  for (std::byte& each : offer.token)
    each = std::byte{reader.number<std::uint8_t>()};
  offer.verbs_port = reader.number<std::uint16_t>();
  offer.shm_port = reader.number<std::uint16_t>();
  if (!reader.is_over() || (offer.verbs_port == 0 && offer.shm_port == 0)) return wrong();
  return offer;
}

Result<ReplicationMessage> decode_lane_end(Reader reader) {
  const LaneEnd end{.messages = reader.number<std::uint64_t>()};
  if (!reader.is_over()) return wrong();
  return end;
}

Result<ReplicationMessage> decode_copy_request(Reader reader) {
  CopyRequest request;
  request.group = reader.number<std::uint64_t>();
  request.replica.epoch = reader.number<std::uint64_t>();
  request.term = reader.number<std::uint32_t>();
  const auto name = reader.number<std::uint16_t>();
  const auto address = reader.number<std::uint16_t>();
  if (!are_lengths(name, address)) return wrong();
  request.replica.name = reader.text(name);
  request.replica.address = reader.text(address);
  if (!reader.is_over() || request.group == 0 || request.replica.epoch == 0) return wrong();
  return request;
}

Result<ReplicationMessage> decode_copy_begin(Reader reader) {
  CopyBegin begin;
  begin.files = reader.number<std::uint64_t>();
  begin.bytes = reader.number<std::uint64_t>();
  if (!reader.is_over()) return wrong();
  return begin;
}

Result<ReplicationMessage> decode_copy_file(Reader reader) {
  CopyFile file;
  file.bytes = reader.number<std::uint64_t>();
  const Bytes name = reader.rest();
  if (!reader.is_over() || name.empty() || name.size() > kMaxFileNameBytes) return wrong();
  file.name = as_text(name);
  return file;
}

Result<ReplicationMessage> decode_copy_piece(Reader reader) {
  const Bytes bytes = reader.rest();
  if (bytes.empty() || bytes.size() > kMaxPieceBytes) return wrong();
  return CopyPiece{.bytes = {bytes.begin(), bytes.end()}};
}

Result<ReplicationMessage> decode_copy_end(Reader reader) {
  CopyEnd end;
  end.files = reader.number<std::uint64_t>();
  end.bytes = reader.number<std::uint64_t>();
  end.digest = reader.number<std::uint64_t>();
  if (!reader.is_over()) return wrong();
  return end;
}

}  // namespace

std::vector<std::byte> encode(const Hello& hello) {
  const auto& [name, address, epoch] = hello.replica;
  RKV_CHECK(are_lengths(name.size(), address.size()),
            "a replica's name and address within their limits");
  const std::size_t most =
      (kMaxHelloBytes - kReplicationHeadBytes - kHelloBytes - name.size() - address.size()) /
      kTermBytes;
  const auto& all = hello.history.terms();
  const std::size_t count = std::min(all.size(), most);
  Writer writer(kHello, kHelloBytes + name.size() + address.size() + (count * kTermBytes));
  writer.number(hello.group);
  writer.number(epoch);
  writer.number(hello.term);
  writer.position(hello.start);
  writer.number(static_cast<std::uint32_t>(count));
  writer.number(static_cast<std::uint16_t>(name.size()));
  writer.number(static_cast<std::uint16_t>(address.size()));
  writer.zeros(8);
  writer.bytes(name.data(), name.size());
  writer.bytes(address.data(), address.size());
  for (std::size_t i = all.size() - count; i < all.size(); ++i)
    writer.position(all[i]);
  return writer.finish();
}

std::vector<std::byte> encode(const Entries& entries) {
  const std::size_t length = entries.block ? entries.block->bytes->size() : 0;
  RKV_CHECK(length <= kMaxBlockBytes && (length != 0) == entries.block.has_value(),
            "a block has bytes, within its limit");
  const LogPosition last = entries.block ? entries.block->last : LogPosition{};
  Writer writer(kEntries, kEntriesBytes + length);
  writer.number(entries.number);
  writer.number(entries.term);
  writer.position(entries.previous);
  writer.number(last.term);
  writer.zeros(4);
  writer.number(last.version);
  writer.number(entries.marks.replicated);
  writer.number(entries.marks.wal);
  writer.number(entries.marks.sync);
  writer.number(entries.unix_ms);
  writer.number(entries.wanted.wal);
  writer.number(entries.wanted.sync);
  writer.zeros(kEntriesZeros);
  if (entries.block) writer.bytes(entries.block->bytes->data(), length);
  return writer.finish();
}

std::vector<std::byte> encode(const Answer& answer) {
  Writer writer(kAnswer, kAnswerBytes);
  writer.number(answer.number);
  writer.number(answer.last.term);
  writer.zeros(4);
  writer.number(answer.last.version);
  writer.number(answer.wal);
  writer.number(answer.sync);
  writer.number<std::uint32_t>(answer.may_lead ? 1 : 0);
  writer.zeros(4);
  return writer.finish();
}

std::vector<std::byte> encode(const HandOver& hand_over) {
  Writer writer(kHandOver, kHandOverBytes);
  writer.number(hand_over.term);
  writer.zeros(4);
  return writer.finish();
}

std::vector<std::byte> encode(const LaneOffer& offer) {
  RKV_CHECK(offer.verbs_port != 0 || offer.shm_port != 0, "a lane is offered at a port");
  Writer writer(kLaneOffer, kLaneOfferBytes);
  writer.bytes(offer.token.data(), offer.token.size());
  writer.number(offer.verbs_port);
  writer.number(offer.shm_port);
  return writer.finish();
}

std::vector<std::byte> encode(const LaneSwitch&) {
  return Writer(kLaneSwitch, 0).finish();
}

std::vector<std::byte> encode(const LaneEnd& end) {
  Writer writer(kLaneEnd, kLaneEndBytes);
  writer.number(end.messages);
  return writer.finish();
}

std::vector<std::byte> encode(const NoLane&) {
  return Writer(kNoLane, 0).finish();
}

std::vector<std::byte> encode(const CopyRequest& request) {
  const auto& [name, address, epoch] = request.replica;
  RKV_CHECK(are_lengths(name.size(), address.size()),
            "a replica's name and address within their limits");
  Writer writer(kCopyRequest, kCopyRequestBytes + name.size() + address.size());
  writer.number(request.group);
  writer.number(epoch);
  writer.number(request.term);
  writer.number(static_cast<std::uint16_t>(name.size()));
  writer.number(static_cast<std::uint16_t>(address.size()));
  writer.bytes(name.data(), name.size());
  writer.bytes(address.data(), address.size());
  return writer.finish();
}

std::vector<std::byte> encode(const CopyNeeded&) {
  return Writer(kCopyNeeded, 0).finish();
}

std::vector<std::byte> encode(const CopyWait&) {
  return Writer(kCopyWait, 0).finish();
}

std::vector<std::byte> encode(const CopyBegin& begin) {
  Writer writer(kCopyBegin, kCopyBeginBytes);
  writer.number(begin.files);
  writer.number(begin.bytes);
  return writer.finish();
}

std::vector<std::byte> encode(const CopyFile& file) {
  RKV_CHECK(!file.name.empty() && file.name.size() <= kMaxFileNameBytes, "a file's name");
  Writer writer(kCopyFile, kCopyFileBytes + file.name.size());
  writer.number(file.bytes);
  writer.bytes(file.name.data(), file.name.size());
  return writer.finish();
}

std::vector<std::byte> encode(const CopyPiece& piece) {
  RKV_CHECK(!piece.bytes.empty() && piece.bytes.size() <= kMaxPieceBytes, "a piece of a file");
  Writer writer(kCopyPiece, piece.bytes.size());
  writer.bytes(piece.bytes.data(), piece.bytes.size());
  return writer.finish();
}

std::vector<std::byte> encode(const CopyEnd& end) {
  Writer writer(kCopyEnd, kCopyEndBytes);
  writer.number(end.files);
  writer.number(end.bytes);
  writer.number(end.digest);
  return writer.finish();
}

Result<std::size_t> replication_message_bytes(Bytes head) {
  if (head.size() < kReplicationHeadBytes || load_le<std::uint32_t>(head.data()) != kMagic)
    return wrong();
  if (load_le<std::uint16_t>(head.data() + 4) != kReplicationVersion)
    return fail(Code::kVersionMismatch,
                "the other replica speaks another version: install the same rkv on all replicas");
  const std::size_t length = load_le<std::uint32_t>(head.data() + 8);
  const auto longest = [&]() -> std::size_t {
    switch (load_le<std::uint16_t>(head.data() + 6)) {
      case kHello:
        return kMaxHelloBytes;
      case kEntries:
        return kReplicationHeadBytes + kEntriesBytes + kMaxBlockBytes;
      case kAnswer:
        return kReplicationHeadBytes + kAnswerBytes;
      case kCopyRequest:
        return kReplicationHeadBytes + kCopyRequestBytes + kMaxNameBytes + kMaxAddressBytes;
      case kHandOver:
        return kReplicationHeadBytes + kHandOverBytes;
      case kLaneOffer:
        return kReplicationHeadBytes + kLaneOfferBytes;
      case kLaneEnd:
        return kReplicationHeadBytes + kLaneEndBytes;
      case kLaneSwitch:
      case kNoLane:
      case kCopyNeeded:
      case kCopyWait:
        return kReplicationHeadBytes;
      case kCopyBegin:
        return kReplicationHeadBytes + kCopyBeginBytes;
      case kCopyFile:
        return kReplicationHeadBytes + kCopyFileBytes + kMaxFileNameBytes;
      case kCopyPiece:
        return kReplicationHeadBytes + kMaxPieceBytes;
      case kCopyEnd:
        return kReplicationHeadBytes + kCopyEndBytes;
      default:
        return 0;
    }
  }();
  if (length < kReplicationHeadBytes || length > longest ||
      load_le<std::uint32_t>(head.data() + 12) != 0)
    return wrong();
  return length;
}

Result<ReplicationMessage> decode_replication(Bytes message) {
  RKV_ASSIGN_OR_RETURN(const std::size_t length, replication_message_bytes(message));
  if (message.size() != length ||
      load_le<std::uint64_t>(message.data() + kChecksumOffset) != checksum_of(message))
    return wrong();
  const Reader reader(message.subspan(kReplicationHeadBytes));
  switch (load_le<std::uint16_t>(message.data() + 6)) {
    case kHello:
      return decode_hello(reader);
    case kEntries:
      return decode_entries(reader);
    case kHandOver:
      return decode_hand_over(reader);
    case kLaneOffer:
      return decode_lane_offer(reader);
    case kLaneSwitch:
      return LaneSwitch{};  // it consists of a head only
    case kLaneEnd:
      return decode_lane_end(reader);
    case kNoLane:
      return NoLane{};  // likewise
    case kCopyRequest:
      return decode_copy_request(reader);
    case kCopyNeeded:
      return CopyNeeded{};  // likewise
    case kCopyWait:
      return CopyWait{};  // likewise
    case kCopyBegin:
      return decode_copy_begin(reader);
    case kCopyFile:
      return decode_copy_file(reader);
    case kCopyPiece:
      return decode_copy_piece(reader);
    case kCopyEnd:
      return decode_copy_end(reader);
    default:
      return decode_answer(reader);
  }
}

bool is_lane_switch(Bytes message) {
  return message.size() == kReplicationHeadBytes &&
         load_le<std::uint16_t>(message.data() + 6) == kLaneSwitch &&
         decode_replication(message).has_value();
}

std::optional<LaneEnd> lane_end_of(Bytes message) {
  if (message.size() != kReplicationHeadBytes + kLaneEndBytes ||
      load_le<std::uint16_t>(message.data() + 6) != kLaneEnd)
    return std::nullopt;
  const auto decoded = decode_replication(message);
  if (!decoded) return std::nullopt;
  return std::get<LaneEnd>(*decoded);
}

}  // namespace rkv::server
