// Messages and the private data of connections (common/wire.h): nothing is accepted but what an
// encoder makes (WIRE-1), and what is accepted is within its limits. The first byte chooses a
// decoder.
#include "common/pack.h"
#include "common/scan.h"
#include "common/wire.h"
#include "tests/fuzz/fuzz.h"

namespace rkv::fuzz {
namespace {

constexpr std::size_t kPrivateDataMaxBytes = 196;  // what any transport carries

// Operations that say what they may say are packed again to the same bytes.
void pack(const Request& request, Bytes message) {
  PackReader reader(request.value);
  RKV_CHECK(reader.check() && reader.count() <= kMaxPacked, "a pack beyond the limits");
  std::vector<std::byte> again(request.value.size());
  PackWriter writer(again);
  std::size_t count = 0;
  bool plain = true;
  while (const auto operation = reader.next()) {
    ++count;
    plain = plain && is_packable(operation->opcode) && check_operation(*operation);
    if (plain) writer.add(*operation);
  }
  RKV_CHECK(count == reader.count(), "a pack with other operations than it counts");
  RKV_CHECK(!plain || same(writer.finish(), request.value), "a pack that no writer makes");
  RKV_CHECK(pack_reply_bytes(message) >= count * kPackedResultBytes, "an answer without room");
}

void request(Bytes bytes) {
  std::uint64_t sequence = 0;
  const auto decoded = decode_request(bytes, &sequence);
  if (!decoded) return;
  RKV_CHECK(decoded->sequence == sequence, "one message, two sequences");
  RKV_CHECK(decoded->key.size() <= kMaxKeyBytes && decoded->value.size() <= kMaxInlineBytes,
            "a request beyond the limits");
  std::vector<std::byte> again(bytes.size());
  RKV_CHECK(encode(*decoded, again) == bytes.size() && same(again, bytes),
            "a request that no encoder makes");
  if (decoded->opcode == Opcode::kPack) pack(*decoded, bytes);
}

// As the value of a request: a mutation of a whole message seldom has the value's length.
void request_of_pack(Bytes value) {
  const Request request_to_send{.opcode = Opcode::kPack, .sequence = 1, .value = value};
  if (value.size() > kMaxInlineBytes) return;
  std::vector<std::byte> message(kRequestHeaderBytes + value.size());
  (void)encode(request_to_send, message);
  request(message);
}

void response(Bytes bytes) {
  const auto decoded = decode_response(bytes);
  if (!decoded) return;
  std::vector<std::byte> again(bytes.size());
  RKV_CHECK(encode(*decoded, again) == bytes.size() && same(again, bytes),
            "a response that no encoder makes");
}

// Private data may be followed by zeros; so what is encoded again is a part of what came, but for
// the length that the preamble gives.
void expect_prefix(Bytes again, Bytes bytes) {
  RKV_CHECK(bytes.size() >= again.size() && same(again.first(6), bytes.first(6)) &&
                same(again.subspan(8), bytes.subspan(8, again.size() - 8)),
            "connection data that no encoder makes");
}

// The results of a pack, as the answer to operations of this opcode.
void results(Bytes bytes, Opcode opcode) {
  ResultReader reader(bytes);
  std::vector<std::byte> again(bytes.size());
  ResultWriter writer(again);
  while (!reader.at_end()) {
    const auto result = reader.next(opcode);
    if (!result) return;
    writer.add(*result, 0);
  }
  RKV_CHECK(same(writer.finish(), bytes), "results that no writer makes");
}

void connect_request(Bytes bytes) {
  const auto decoded = decode_connect_request(bytes);
  if (!decoded) return;
  std::array<std::byte, kConnectRequestBytes> again{};
  expect_prefix(Bytes(again).first(encode(*decoded, again)), bytes);
}

void connect_accept(Bytes bytes) {
  const auto decoded = decode_connect_accept(bytes);
  if (!decoded) return;
  RKV_CHECK(decoded->credits != 0 && decoded->root.length >= kRootPageBytes, "nothing to use");
  std::array<std::byte, kConnectAcceptMaxBytes> again{};
  const std::size_t length = encode(*decoded, again);
  const std::size_t said = load_le<std::uint16_t>(bytes.data() + 6);
  RKV_CHECK(said >= length || decoded->max_packed == 0, "packs that nobody has offered");
  expect_prefix(Bytes(again).first(std::min(length, said)), bytes);
}

void connect_reject(Bytes bytes) {
  bytes = bytes.first(std::min(bytes.size(), kConnectRejectMaxBytes));
  const auto decoded = decode_connect_reject(bytes);
  if (!decoded) return;
  std::array<std::byte, kConnectRejectMaxBytes> again{};
  expect_prefix(Bytes(again).first(encode(*decoded, again)), bytes);
}

void scan_query(Bytes bytes) {
  const auto decoded = decode_scan_query(bytes);
  if (!decoded) return;
  std::vector<std::byte> again(kMaxScanQueryBytes);
  RKV_CHECK(same(Bytes(again).first(encode(*decoded, again)), bytes),
            "a scan query that no encoder makes");
  const KeyRange range = range_of(*decoded);
  RKV_CHECK(range.lower.size() <= kMaxKeyBytes + 1, "a range beyond all keys");
}

void scan_page(Bytes bytes, bool reverse) {
  const auto page = decode_scan_page(bytes, reverse);
  if (!page) return;
  std::size_t total = kScanPageHeaderBytes + page->token.size();
  for (const ScanItem& item : page->items)
    total += kScanEntryBytes + item.key.size() + item.value.size();
  RKV_CHECK(total == bytes.size(), "a page with bytes that belong to nothing");
}

}  // namespace
}  // namespace rkv::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rkv::fuzz;
  Input input(data, size);
  const auto which = input.number<std::uint8_t>();
  const Exact exact(input.rest());
  const rkv::Bytes bytes = exact.bytes();
  if (which >= 232 && which < 240) {
    request_of_pack(bytes);
    return 0;
  }
  if (which >= 240) {
    results(bytes, static_cast<rkv::Opcode>(1 + which % 8));
    return 0;
  }
  switch (which % 8) {
    case 0:
      request(bytes);
      break;
    case 1:
      response(bytes);
      break;
    case 2:
      connect_request(bytes.first(std::min(bytes.size(), kPrivateDataMaxBytes)));
      break;
    case 3:
      connect_accept(bytes.first(std::min(bytes.size(), kPrivateDataMaxBytes)));
      break;
    case 4:
      connect_reject(bytes);
      break;
    case 5:
      scan_query(bytes);
      break;
    default:
      scan_page(bytes, which % 2 == 1);
      break;
  }
  return 0;
}
