// Packs: what a writer makes a reader reads, and nothing else is read (PACK-1, PACK-2).
#include "common/pack.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/random.h"

namespace rkv {
namespace {

std::vector<std::byte> written(const std::vector<Request>& operations) {
  std::vector<std::byte> out(std::size_t{64} << 10);
  PackWriter writer(out);
  for (const Request& operation : operations) {
    EXPECT_TRUE(writer.has_room(operation));
    writer.add(operation);
  }
  out.resize(writer.finish().size());
  return out;
}

std::vector<Request> three_operations() {
  return {{.opcode = Opcode::kPut,
           .condition = Condition::kIfVersion,
           .expected = {77},
           .ttl_ms = 5,
           .until = true,
           .key = as_bytes("first"),
           .value = as_bytes("a value")},
          {.opcode = Opcode::kGet, .key = as_bytes("second")},
          {.opcode = Opcode::kRemove, .key = as_bytes("third")}};
}

bool same(const Request& a, const Request& b) {
  return a.opcode == b.opcode && a.condition == b.condition && a.expected.bits == b.expected.bits &&
         a.ttl_ms == b.ttl_ms && a.until == b.until && as_text(a.key) == as_text(b.key) &&
         as_text(a.value) == as_text(b.value);
}

TEST(Pack, IsReadAsItWasWritten) {
  const auto operations = three_operations();
  const auto bytes = written(operations);
  PackReader reader(bytes);
  ASSERT_TRUE(reader.check());
  EXPECT_EQ(reader.count(), operations.size());
  for (const Request& operation : operations) {
    const auto read = reader.next();
    ASSERT_TRUE(read);
    EXPECT_TRUE(same(*read, operation));
  }
  EXPECT_FALSE(reader.next());
}

TEST(Pack, TakesAsManyAsItHasRoomFor) {
  const Request put{.opcode = Opcode::kPut, .key = as_bytes("k"), .value = as_bytes("v")};
  std::vector<std::byte> out(kPackHeaderBytes + 2 * PackWriter::bytes_of(put));
  PackWriter writer(out);
  writer.add(put);
  writer.add(put);
  EXPECT_FALSE(writer.has_room(put));
  EXPECT_EQ(writer.finish().size(), out.size());
  std::vector<std::byte> large(std::size_t{64} << 10);
  PackWriter most(large);
  while (most.has_room(put))
    most.add(put);
  EXPECT_EQ(most.count(), kMaxPacked);
}

// A part of a pack, a byte more, another count, another length: the pack is refused as a whole.
TEST(Pack, IsRefusedWhenItsLengthsLie) {
  const auto bytes = written(three_operations());
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_FALSE(PackReader(Bytes(bytes).first(length)).check()) << length;
  auto longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(PackReader(longer).check());
  for (const unsigned count : {0U, 2U, 4U, 33U, 65535U}) {
    auto other = bytes;
    store_le(other.data(), static_cast<std::uint16_t>(count));
    EXPECT_FALSE(PackReader(other).check()) << count;
  }
  for (const std::uint32_t length : {0U, 6U, 8U, 0x7FFFFFFFU, 0xFFFFFFFFU}) {
    auto other = bytes;
    store_le(other.data() + kPackHeaderBytes + 4, length);  // of the first value
    EXPECT_FALSE(PackReader(other).check()) << length;
  }
  for (const unsigned flag : {16U, 32U, 64U, 128U}) {
    auto other = bytes;
    other[kPackHeaderBytes + 1] |= static_cast<std::byte>(flag);
    EXPECT_FALSE(PackReader(other).check()) << flag;
  }
}

// Whatever the bytes are, an accepted pack is what a writer makes of its operations.
TEST(Pack, AnythingAcceptedIsWhatAWriterMakes) {
  constexpr int kTries = 200'000;
  Random random(7);
  const auto whole = written(three_operations());
  int accepted = 0;
  for (int i = 0; i < kTries; ++i) {
    auto bytes = whole;
    for (std::uint64_t change = 0; change <= random.below(3); ++change)
      bytes[random.below(bytes.size())] = static_cast<std::byte>(random.below(256));
    PackReader reader(bytes);
    if (!reader.check()) continue;
    ++accepted;
    std::vector<Request> operations;
    bool canonical = true;
    while (const auto operation = reader.next()) {
      canonical = canonical && is_packable(operation->opcode) && check_operation(*operation);
      operations.push_back(*operation);
    }
    if (canonical) {
      EXPECT_EQ(written(operations), bytes);
    }
  }
  EXPECT_GT(accepted, kTries / 20);
}

// ---- results

std::vector<Response> three_results() {
  return {{.opcode = Opcode::kPut, .flags = Response::kInNeighbour, .version = {7}, .slot = {9}},
          {.opcode = Opcode::kGet,
           .version = {8},
           .slot = {10},
           .expiry_ms = 1234,
           .value = as_bytes("a value")},
          {.opcode = Opcode::kRemove,
           .code = static_cast<std::uint8_t>(Code::kBusy),
           .retry_after_ms = 2,
           .value = as_bytes("a sentence")}};
}

std::vector<std::byte> written(const std::vector<Response>& results) {
  std::vector<std::byte> out(4096);
  ResultWriter writer(out);
  for (const Response& result : results)
    writer.add(result, 0);
  out.resize(writer.finish().size());
  return out;
}

TEST(PackResults, AreReadAsTheyWereWritten) {
  const auto results = three_results();
  const auto bytes = written(results);
  ResultReader reader(bytes);
  for (const Response& result : results) {
    const auto read = reader.next(result.opcode);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->code, result.code);
    EXPECT_EQ(read->flags, result.flags);
    EXPECT_EQ(read->version.bits, result.version.bits);
    EXPECT_EQ(read->slot.bits, result.slot.bits);
    EXPECT_EQ(read->expiry_ms, result.expiry_ms);
    EXPECT_EQ(read->retry_after_ms, result.retry_after_ms);
    EXPECT_EQ(as_text(read->value), as_text(result.value));
  }
  EXPECT_TRUE(reader.at_end());
  EXPECT_FALSE(reader.next(Opcode::kPut));
}

TEST(PackResults, AreRefusedWhenTheyLie) {
  const auto bytes = written(three_results());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    ResultReader reader(Bytes(bytes).first(length));
    const bool whole = reader.next(Opcode::kPut) && reader.next(Opcode::kGet) &&
                       reader.next(Opcode::kRemove) && reader.at_end();
    EXPECT_FALSE(whole) << length;
  }
  const auto changed = [&](std::size_t at, unsigned to) {
    auto other = bytes;
    other[at] = static_cast<std::byte>(to);
    return ResultReader(other).next(Opcode::kPut).has_value();
  };
  EXPECT_TRUE(changed(8, 1));                            // another version
  EXPECT_FALSE(changed(2, 1));                           // reserved
  EXPECT_FALSE(changed(1, 64));                          // alone, and done
  EXPECT_FALSE(changed(1, 16));                          // in doubt, and done
  EXPECT_FALSE(changed(1, 8));                           // a put that is to be READ
  EXPECT_FALSE(changed(7, 0xFF));                        // a value longer than the answer
  EXPECT_FALSE(ResultReader(bytes).next(Opcode::kAdd));  // lacks the number
}

// The results that follow keep their room, whatever an earlier one would like to say.
TEST(PackResults, LeaveRoomForThoseThatFollow) {
  std::vector<std::byte> out(3 * kPackedResultBytes + 4);
  ResultWriter writer(out);
  const std::string text(100, 'x');
  writer.add({.opcode = Opcode::kPut,
              .code = static_cast<std::uint8_t>(Code::kConflict),
              .value = as_bytes(text)},
             2 * kPackedResultBytes);
  writer.add({.opcode = Opcode::kGet, .version = {8}, .slot = {10}, .value = as_bytes(text)},
             kPackedResultBytes);
  writer.add({.opcode = Opcode::kPut, .version = {9}, .slot = {10}}, 0);
  ResultReader reader(writer.finish());
  const auto refused = reader.next(Opcode::kPut);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, static_cast<std::uint8_t>(Code::kConflict));
  EXPECT_TRUE(refused->value.empty());
  const auto too_long = reader.next(Opcode::kGet);
  ASSERT_TRUE(too_long);
  EXPECT_EQ(too_long->flags, Response::kAlone);
  const auto done = reader.next(Opcode::kPut);
  ASSERT_TRUE(done);
  EXPECT_EQ(done->code, 0);
  EXPECT_EQ(done->version.bits, 9U);
  EXPECT_TRUE(reader.at_end());
}

TEST(PackResults, TheRoomForAnAnswerFollowsFromThePack) {
  const auto message_of = [](const std::vector<Request>& operations) {
    const auto pack = written(operations);
    std::vector<std::byte> message(kRequestHeaderBytes + pack.size());
    encode(Request{.opcode = Opcode::kPack, .value = pack}, message);
    return message;
  };
  const Request put{.opcode = Opcode::kPut, .key = as_bytes("k")};
  const std::array<std::byte, kCounterBytes> one{};
  const Request add{.opcode = Opcode::kAdd, .key = as_bytes("k"), .value = one};
  EXPECT_EQ(pack_reply_bytes(message_of({put, put, add})), 3 * kPackedResultBytes + kCounterBytes);
  EXPECT_EQ(pack_reply_bytes(message_of({put, {.opcode = Opcode::kGet, .key = as_bytes("k")}})),
            kMaxInlineBytes);
  EXPECT_EQ(pack_reply_bytes({}), 0U);
}

}  // namespace
}  // namespace rkv
