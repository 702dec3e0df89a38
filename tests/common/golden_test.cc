// The worked examples of common/LAYOUT.md and common/WIRE.md, byte for byte: the pages are read
// and compared with what the code makes, so that neither can change alone.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "common/auth/proof.h"
#include "common/layout.h"
#include "common/pack.h"
#include "common/scan.h"
#include "common/wire.h"

namespace rkv {
namespace {

constexpr std::uint64_t kEpoch = 0x1122334455667788U;
constexpr std::uint32_t kGoldenBoot = 65'536;
constexpr std::uint64_t kHashSeed = 0x0102030405060708U;

// "0000  52 4b ..." lines, 16 bytes each.
std::string hex_dump(Bytes bytes) {
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i % 16 == 0) out += fmt::format("{}{:04x} ", i == 0 ? "" : "\n", i);
    out += fmt::format(" {:02x}", static_cast<unsigned>(bytes[i]));
  }
  return out + "\n";
}

// Blocks of a page fenced by ```example NAME ... ```.
std::map<std::string, std::string> examples_in(const std::string& page) {
  std::ifstream file(page);
  EXPECT_TRUE(file) << page << ": run from the repository's root";
  std::map<std::string, std::string> found;
  std::string line;
  std::string name;
  while (std::getline(file, line)) {
    if (line.starts_with("```example ")) {
      name = line.substr(11);
    } else if (line == "```") {
      name.clear();
    } else if (!name.empty()) {
      found[name] += line + "\n";
    }
  }
  return found;
}

class Golden : public testing::Test {
 protected:
  void expect(const std::string& name, Bytes bytes) {
    EXPECT_EQ(examples_[name], hex_dump(bytes)) << "example " << name << " should read:\n"
                                                << hex_dump(bytes);
  }
  std::map<std::string, std::string> examples_;
};

class LayoutPage : public Golden {
 protected:
  LayoutPage() { examples_ = examples_in("common/LAYOUT.md"); }
};
class WirePage : public Golden {
 protected:
  WirePage() { examples_ = examples_in("common/WIRE.md"); }
};

TEST_F(LayoutPage, Record) {
  std::vector<std::byte> bytes(64);
  encode_record(bytes,
                {.version = Version::of(kGoldenBoot, 42),
                 .key = as_bytes("apple"),
                 .value = as_bytes("a round fruit")},
                RecordState::kLive, kEpoch, Location::of(2, 3));
  expect("record", bytes);
}

TEST_F(LayoutPage, LargeRecord) {
  const std::vector<std::byte> value(200'000, std::byte{'v'});
  std::vector<std::byte> bytes(kMaxLargeHeadBytes);
  bytes.resize(encode_large_head(bytes,
                                 {.version = Version::of(kGoldenBoot, 42),
                                  .key = as_bytes("apple"),
                                  .value = value,
                                  .digest = value_digest(as_bytes("apple"), value, kEpoch)},
                                 RecordState::kLive, kEpoch, Location::of(2, 3)));
  expect("large-record-head", bytes);
}

// A counter in cell 3 of the window 0: the record has the number of before.
TEST_F(LayoutPage, CellRecord) {
  std::array<std::byte, kCellCounterBytes> value;
  store_le(value.data(), std::int64_t{7});
  store_le(value.data() + 8, std::uint64_t{3});
  std::vector<std::byte> bytes(64);
  encode_record(bytes,
                {.version = Version::of(kGoldenBoot, 43),
                 .counter = true,
                 .in_cell = true,
                 .key = as_bytes("hits"),
                 .value = value},
                RecordState::kLive, kEpoch, Location::of(2, 5));
  expect("cell-record", bytes);
}

// The way of a reader from the key to its record; each step is an example of its own.
class LayoutChain : public LayoutPage {
 protected:
  template <class T>
  void expect_line(const std::string& name, T line, std::size_t offset) {
    seal_line(line, kEpoch, offset);
    expect(name, std::as_bytes(std::span(&line, 1)));
  }

  const KeyHash hash_{as_bytes("apple"), kHashSeed};
  const DirectoryLine directory_{.generation = 1,
                                 .address = 0x7F0000030000,
                                 .remote_key = 0x1A2B,
                                 .global_depth = 1,
                                 .groups_per_segment = 64,
                                 .hash_seed = kHashSeed};
  const DirectoryEntry entry_{.extent = 1, .segment = 2, .depth = 1};
  const ExtentEntry index_{.address = 0x7F0000080000,
                           .remote_key = 0x2B3C,
                           .units = 0x4000,
                           .id = 1,
                           .kind = ExtentEntry::kIndex};
  const ExtentEntry data_{.address = 0x7F0000100000,
                          .remote_key = 0x3C4D,
                          .units = 0x8000,
                          .id = 2,
                          .kind = ExtentEntry::kData};
  const GroupPlace place_{.extent = entry_.extent,
                          .number = (entry_.segment * directory_.groups_per_segment) +
                                    hash_.group_index(directory_.groups_per_segment)};
  const Location record_ = Location::of(2, 3);
};

TEST_F(LayoutChain, RootLines) {
  expect_line("identity", IdentityLine{.extent_count = 3, .epoch = kEpoch}, kIdentityOffset);
  expect_line("directory-line", directory_, kDirectoryLineOffset);
  expect_line("group-line",
              GroupLine{.tick = 5'000'000'000, .replicated = Version::of(kGoldenBoot, 48)},
              kGroupLineOffset);
  expect_line("index-extent", index_, kExtentTableOffset + (index_.id * kExtentEntryBytes));
  expect_line("extent", data_, kExtentTableOffset + (data_.id * kExtentEntryBytes));
}

TEST_F(LayoutChain, EntryGroupAndSlot) {
  EXPECT_EQ(examples_["hash"], fmt::format("{:016x}\n", hash_.bits()));
  std::vector<std::byte> word(8);
  store_le(word.data(), entry_.encode(kEpoch));
  expect("directory", word);
  Group group;
  group.header =
      GroupHeader{.change = 1, .depth = entry_.depth, .prefix = hash_.prefix() >> 26 << 26}
          .encode();
  ASSERT_TRUE(GroupHeader::decode(group.header).covers(hash_));
  group.slots[0] = Slot::of(hash_.fingerprint(), 2, record_).bits;
  group.checksum = group_checksum(group, kEpoch, place_);
  expect("group", std::as_bytes(std::span(&group, 1)).first(32));
}

TEST_F(LayoutChain, Addresses) {
  const std::uint32_t entry = hash_.directory_index(directory_.global_depth);
  EXPECT_EQ(examples_["chain"],
            fmt::format("directory entry {} of {}        at {:#x}\n"
                        "group {} of segment {}          at {:#x}, number {} of extent {}\n"
                        "record, unit {} of extent {}    at {:#x}, 2 units\n",
                        entry, 1U << directory_.global_depth, directory_.address + (entry * 8),
                        hash_.group_index(directory_.groups_per_segment), entry_.segment,
                        index_.address + place_.offset(), place_.number, place_.extent,
                        record_.unit(), record_.extent(), data_.address + record_.offset()));
}

TEST_F(WirePage, PutRequest) {
  std::vector<std::byte> bytes(kRequestHeaderBytes + 18);
  encode(Request{.opcode = Opcode::kPut,
                 .sequence = 7,
                 .begin_by_us = 5'000'000,
                 .durability = Durability::kSync,
                 .key = as_bytes("apple"),
                 .value = as_bytes("a round fruit")},
         bytes);
  expect("put-request", bytes);
}

TEST_F(WirePage, PutLargeRequest) {
  const std::vector<std::byte> value(200'000, std::byte{'v'});
  std::vector<std::byte> source(kValueSourceBytes);
  encode(ValueSource{.address = 0x7F0000200000,
                     .remote_key = 0x5E6F,
                     .length = 200'000,
                     .digest = value_digest(as_bytes("apple"), value, kEpoch)},
         source);
  std::vector<std::byte> bytes(kRequestHeaderBytes + 5 + kValueSourceBytes);
  encode(Request{.opcode = Opcode::kPutLarge,
                 .sequence = 8,
                 .begin_by_us = 5'000'000,
                 .key = as_bytes("apple"),
                 .value = source},
         bytes);
  expect("put-large-request", bytes);
}

TEST_F(WirePage, OpenCounterRequest) {
  const std::array<std::byte, 1> creates = {std::byte{1}};
  std::vector<std::byte> bytes(kRequestHeaderBytes + 5 + creates.size());
  encode(Request{.opcode = Opcode::kOpenCounter,
                 .sequence = 9,
                 .begin_by_us = 5'000'000,
                 .key = as_bytes("apple"),
                 .value = creates},
         bytes);
  expect("open-counter-request", bytes);
}

TEST_F(WirePage, OpenCounterResponse) {
  std::array<std::byte, kCellAnswerBytes> cell;
  store_le(cell.data(), std::uint64_t{3});
  std::vector<std::byte> bytes(kResponseHeaderBytes + cell.size());
  encode(Response{.opcode = Opcode::kOpenCounter,
                  .sequence = 9,
                  .version = Version::of(kGoldenBoot, 42),
                  .value = cell},
         bytes);
  expect("open-counter-response", bytes);
}

TEST_F(WirePage, BackupRequest) {
  std::vector<std::byte> bytes(kRequestHeaderBytes + 6);
  encode(Request{.opcode = Opcode::kBackup,
                 .sequence = 10,
                 .begin_by_us = 5'000'000,
                 .value = as_bytes("monday")},
         bytes);
  expect("backup-request", bytes);
}

TEST_F(WirePage, RevokeRequest) {
  std::vector<std::byte> bytes(kRequestHeaderBytes + 7);
  encode(Request{.opcode = Opcode::kRevoke,
                 .sequence = 10,
                 .begin_by_us = 5'000'000,
                 .value = as_bytes("billing")},
         bytes);
  expect("revoke-request", bytes);
}

TEST_F(WirePage, RevokeResponse) {
  std::vector<std::byte> sessions(kRevokeAnswerBytes);
  store_le(sessions.data(), std::uint64_t{2});
  std::vector<std::byte> bytes(kResponseHeaderBytes + sessions.size());
  encode(Response{.opcode = Opcode::kRevoke, .sequence = 10, .value = sessions}, bytes);
  expect("revoke-response", bytes);
}

namespace {
const ScanQuery kScanOfTwo = {.limit = 2, .prefix = as_bytes("a"), .start = as_bytes("apple")};
}  // namespace

TEST_F(WirePage, ScanRequest) {
  std::vector<std::byte> query(kMaxScanQueryBytes);
  query.resize(encode(kScanOfTwo, query));
  std::vector<std::byte> bytes(kRequestHeaderBytes + query.size());
  encode(Request{.opcode = Opcode::kScan, .sequence = 11, .begin_by_us = 5'000'000, .value = query},
         bytes);
  expect("scan-request", bytes);
}

TEST_F(WirePage, ScanResponse) {
  std::array<std::byte, kCounterBytes> three;
  store_le(three.data(), std::int64_t{3});
  ScanPageWriter writer(kScanOfTwo);
  EXPECT_TRUE(writer.add({.version = Version::of(kGoldenBoot, 42),
                          .key = as_bytes("apple"),
                          .value = as_bytes("a round fruit")}));
  EXPECT_TRUE(writer.add({.version = Version::of(kGoldenBoot, 50),
                          .counter = true,
                          .key = as_bytes("apples"),
                          .value = three}));
  const std::vector<std::byte> page = std::move(writer).finish(true);
  std::vector<std::byte> bytes(kResponseHeaderBytes + page.size());
  encode(Response{.opcode = Opcode::kScan,
                  .sequence = 11,
                  .version = Version::of(kGoldenBoot, 58),
                  .wal_mark = Version::of(kGoldenBoot, 58),
                  .sync_mark = Version::of(kGoldenBoot, 48),
                  .value = page},
         bytes);
  expect("scan-response", bytes);
}

TEST_F(WirePage, GetResponseByRead) {
  std::vector<std::byte> bytes(kResponseHeaderBytes);
  encode(Response{.opcode = Opcode::kGet,
                  .flags = Response::kByRead,
                  .sequence = 9,
                  .version = Version::of(kGoldenBoot, 42),
                  .slot = Slot::of(KeyHash(as_bytes("apple"), kHashSeed).fingerprint(), 6252,
                                   Location::of(2, 3))},
         bytes);
  expect("get-response-by-read", bytes);
}

TEST_F(WirePage, PutResponse) {
  std::vector<std::byte> bytes(kResponseHeaderBytes);
  encode(Response{.opcode = Opcode::kPut,
                  .sequence = 7,
                  .version = Version::of(kGoldenBoot, 42),
                  .slot = Slot::of(KeyHash(as_bytes("apple"), kHashSeed).fingerprint(), 2,
                                   Location::of(2, 3)),
                  .wal_mark = Version::of(kGoldenBoot, 48),
                  .sync_mark = Version::of(kGoldenBoot, 48),
                  .server_us = 2'000'000},
         bytes);
  expect("put-response", bytes);
}

TEST_F(WirePage, LongRequest) {
  std::vector<std::byte> source(kMessageSourceBytes);
  encode(MessageSource{.address = 0x7F0000200000, .remote_key = 0x5E6F, .length = 20'045}, source);
  std::vector<std::byte> bytes(kRequestHeaderBytes + kMessageSourceBytes);
  encode(Request{.opcode = Opcode::kLong, .sequence = 9, .value = source}, bytes);
  expect("long-request", bytes);
}

TEST_F(WirePage, Pack) {
  std::vector<std::byte> pack(256);
  PackWriter writer(pack);
  writer.add(
      {.opcode = Opcode::kPut, .key = as_bytes("apple"), .value = as_bytes("a round fruit")});
  writer.add({.opcode = Opcode::kRemove, .key = as_bytes("pear")});
  const Bytes packed = writer.finish();
  std::vector<std::byte> bytes(kRequestHeaderBytes + packed.size());
  encode(
      Request{.opcode = Opcode::kPack, .sequence = 10, .begin_by_us = 5'000'000, .value = packed},
      bytes);
  expect("pack-request", bytes);

  std::vector<std::byte> results(256);
  ResultWriter out(results);
  out.add({.opcode = Opcode::kPut,
           .version = Version::of(kGoldenBoot, 42),
           .slot = Slot::of(KeyHash(as_bytes("apple"), kHashSeed).fingerprint(), 2,
                            Location::of(2, 3))},
          kPackedResultBytes);
  out.add({.opcode = Opcode::kRemove, .code = static_cast<std::uint8_t>(Code::kNotFound)}, 0);
  bytes.assign(kResponseHeaderBytes + out.finish().size(), {});
  encode(Response{.opcode = Opcode::kPack,
                  .sequence = 10,
                  .wal_mark = Version::of(kGoldenBoot, 48),
                  .sync_mark = Version::of(kGoldenBoot, 48),
                  .server_us = 2'000'000,
                  .value = out.finish()},
         bytes);
  expect("pack-response", bytes);
}

TEST_F(WirePage, Outcome) {
  std::vector<std::byte> write(kWriteIdBytes);
  encode(WriteId{.session = 9, .sequence = 2 * kLanes}, write);
  std::vector<std::byte> bytes(kRequestHeaderBytes + write.size());
  encode(Request{.opcode = Opcode::kOutcome, .sequence = kLanes, .value = write}, bytes);
  expect("outcome-request", bytes);

  std::vector<std::byte> number(kCounterBytes);
  store_le(number.data(), std::int64_t{7});
  bytes.assign(kResponseHeaderBytes + number.size(), {});
  encode(Response{.opcode = Opcode::kOutcome,
                  .sequence = kLanes,
                  .version = Version::of(kGoldenBoot, 42),
                  .slot = Slot::of(KeyHash(as_bytes("apple"), kHashSeed).fingerprint(), 2,
                                   Location::of(2, 3)),
                  .wal_mark = Version::of(kGoldenBoot, 48),
                  .sync_mark = Version::of(kGoldenBoot, 48),
                  .server_us = 2'000'000,
                  .value = number},
         bytes);
  expect("outcome-response", bytes);
}

TEST_F(WirePage, ConnectionData) {
  std::vector<std::byte> bytes(kConnectRequestBytes);
  encode(ConnectRequest{.credits_wanted = 4, .client_nonce = 0xABCD, .name = "example"}, bytes);
  expect("connect-request", bytes);
  bytes.assign(kConnectAcceptBytes, {});
  encode(ConnectAccept{.epoch = kEpoch,
                       .session = 9,
                       .credits = 4,
                       .max_message_bytes = kMaxMessageBytes,
                       .max_sent_bytes = 8192,
                       .root = {.address = 0x7F0000000000, .remote_key = 0x99, .length = 0x21000},
                       .server_us = 1'000'000,
                       .max_packed = kMaxPacked},
         bytes);
  expect("connect-accept", bytes);
  bytes.assign(kConnectRejectMaxBytes, {});
  bytes.resize(encode(ConnectReject{.code = Code::kBusy, .text = "full"}, bytes));
  expect("connect-reject", bytes);
  bytes.assign(kConnectRejectMaxBytes, {});
  bytes.resize(encode(
      ConnectReject{.code = Code::kNotPrimary, .text = "a backup of", .primary = "10.0.0.2:7471"},
      bytes));
  expect("connect-reject-primary", bytes);
}

// A connection of the user `billing`, whose secret is 11...11, from its first request to the
// accept.
class WirePageUsers : public WirePage {
 protected:
  const ClientKeys keys_ = ClientKeys::of(*Secret::parse(std::string(64, '1')));
  const Challenge challenge_ = {.stamp = 1'000'000,
                                .cookie = {std::byte{0xC0}, std::byte{0x01}, std::byte{0xE5}}};
  const Claim claim_ = {.stamp = challenge_.stamp,
                        .cookie = challenge_.cookie,
                        .user = number_of_user("billing"),
                        .nonce = 0xABCD,
                        .session_to_resume = 0,
                        .credits_wanted = 4,
                        .server = "192.0.2.1:7471"};
};

TEST_F(WirePageUsers, Requests) {
  ConnectRequest request{.credits_wanted = 4, .client_nonce = 0xABCD, .user = claim_.user};
  std::vector<std::byte> bytes(kConnectRequestBytes);
  encode(request, bytes);
  expect("connect-user", bytes);
  bytes.assign(kConnectRejectMaxBytes, {});
  bytes.resize(encode(
      ConnectReject{.code = Code::kUnauthenticated, .text = "prove it", .challenge = challenge_},
      bytes));
  expect("connect-challenge", bytes);
  request.stamp = challenge_.stamp;
  request.proof = make_proof(keys_, claim_);
  bytes.assign(kConnectRequestBytes, {});
  encode(request, bytes);
  expect("connect-proof", bytes);
}

TEST_F(WirePageUsers, Accept) {
  ConnectAccept accept{.epoch = kEpoch,
                       .session = 9,
                       .credits = 4,
                       .max_message_bytes = kMaxMessageBytes,
                       .max_sent_bytes = 8192,
                       .root = {.address = 0x7F0000000000, .remote_key = 0x99, .length = 0x21000},
                       .server_us = 1'000'000,
                       .max_packed = kMaxPacked,
                       .answer = Proof{}};
  std::vector<std::byte> bytes(kConnectAcceptMaxBytes);
  encode(accept, bytes);
  accept.answer = make_answer(keys_.stored, claim_, Bytes(bytes).first(kConnectAnswerOffset));
  encode(accept, bytes);
  expect("connect-answer", bytes);
}

}  // namespace
}  // namespace rkv
