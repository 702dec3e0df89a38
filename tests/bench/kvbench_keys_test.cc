// Key names, field bytes and records, against values of YCSB's own.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <set>
#include <string>
#include <vector>

#include "bench/kvbench/keys.h"
#include "bench/kvbench/record.h"

namespace rkv::kvbench {
namespace {

TEST(YcsbHash, IsThatOfYcsb) {
  EXPECT_EQ(ycsb_hash(0), 6284781860667377211);
  EXPECT_EQ(ycsb_hash(1), 8517097267634966620);
  EXPECT_EQ(ycsb_hash(2), 1820151046732198393);
  EXPECT_EQ(ycsb_hash(10), 2408371864701034737);
  EXPECT_EQ(ycsb_hash(999), 2071219101098386137);
  EXPECT_EQ(ycsb_hash(1000), 5952875239596136740);
}

TEST(KeyNames, AreHashedUnlessOrdered) {
  EXPECT_EQ(KeyNames{}.name(0), "user6284781860667377211");
  EXPECT_EQ(KeyNames{}.name(999), "user2071219101098386137");
  EXPECT_EQ((KeyNames{.ordered = true}.name(42)), "user42");
}

TEST(KeyNames, ArePaddedToALeastNumberOfDigits) {
  EXPECT_EQ((KeyNames{.ordered = true, .zero_padding = 8}.name(42)), "user00000042");
  EXPECT_EQ((KeyNames{.ordered = true, .zero_padding = 2}.name(4242)), "user4242");
  EXPECT_EQ((KeyNames{.ordered = true, .zero_padding = 0}.name(0)), "user0");
  EXPECT_EQ((KeyNames{.zero_padding = 24}.name(0)), "user000006284781860667377211");
}

// Worked out by Java: ("user1:field0:" + hashes).hashCode(), as buildDeterministicValue appends it.
TEST(DeterministicBytes, AppendTheHashOfWhatIsThere) {
  std::string bytes;
  deterministic_bytes("user1", "field0", 5, bytes);
  EXPECT_EQ(bytes, "user1");
  deterministic_bytes("user1", "field0", 13, bytes);
  EXPECT_EQ(bytes, "user1:field0:");
  deterministic_bytes("user1", "field0", 40, bytes);
  EXPECT_EQ(bytes.size(), 40U);
  // Each number is the Java hash of all before it, its colon included.
  std::size_t begin = 12;
  while (begin + 1 < bytes.size()) {
    std::uint32_t hash = 0;
    for (std::size_t i = 0; i <= begin; ++i)
      hash = 31 * hash + static_cast<unsigned char>(bytes[i]);
    const std::string digits = std::to_string(static_cast<std::int32_t>(hash));
    EXPECT_EQ(bytes.substr(begin + 1, digits.size()), digits.substr(0, bytes.size() - begin - 1));
    begin += 1 + digits.size();
  }
}

// ---------------------------------------------------------------------------------- records

std::vector<std::string_view> views(const std::vector<std::string>& fields) {
  return {fields.begin(), fields.end()};
}

TEST(Record, OfTenFieldsOfAHundredBytesTakes1012) {
  std::string value;
  encode_record(views(std::vector<std::string>(10, std::string(100, 'x'))), value);
  EXPECT_EQ(value.size(), 1012U);
  EXPECT_EQ(value.substr(0, 3), std::string("\x01\x0a\x64"));
  EXPECT_EQ(most_record_bytes(10, 100), 1012U);
}

RC_GTEST_PROP(Record, IsReadAsItWasWritten, (const std::vector<std::string>& fields)) {
  std::string value;
  encode_record(views(fields), value);
  std::vector<std::string_view> read;
  RC_ASSERT(decode_record(value, read));
  RC_ASSERT(read == views(fields));
}

RC_GTEST_PROP(Record, OneFieldIsReplacedAndNoOther, (std::vector<std::string> fields)) {
  RC_PRE(!fields.empty());
  const auto which = *rc::gen::inRange<std::size_t>(0, fields.size());
  const auto bytes = *rc::gen::arbitrary<std::string>();
  std::string value;
  encode_record(views(fields), value);
  std::vector<std::string_view> read;
  std::string spare;
  RC_ASSERT(replace_field(value, which, bytes, read, spare));
  fields[which] = bytes;
  RC_ASSERT(decode_record(value, read));
  RC_ASSERT(read == views(fields));
}

TEST(Record, LongLengthsTakeSeveralBytes) {
  const std::vector<std::string> fields = {std::string(127, 'a'), std::string(128, 'b'),
                                           std::string(100'000, 'c'), ""};
  std::string value;
  encode_record(views(fields), value);
  EXPECT_EQ(value.size(), 2 + 1 + 2 + 3 + 1 + 127 + 128 + 100'000U);
  std::vector<std::string_view> read;
  ASSERT_TRUE(decode_record(value, read));
  EXPECT_EQ(read, views(fields));
}

// A value from a server may be any bytes that another program has put there.
TEST(Record, ForeignValuesAreRefused) {
  std::string value;
  encode_record(views({"one", "two"}), value);
  std::vector<std::string_view> read;
  ASSERT_TRUE(decode_record(value, read));
  for (std::size_t length = 0; length < value.size(); ++length)
    EXPECT_FALSE(decode_record(std::string_view(value).substr(0, length), read)) << length;
  EXPECT_FALSE(decode_record(value + "x", read)) << "bytes that belong to no field";
  EXPECT_FALSE(decode_record("\x02" + value.substr(1), read)) << "another format";
  EXPECT_FALSE(decode_record(std::string("\x01\xff\xff\xff\xff\x0f", 6), read)) << "endless fields";
  EXPECT_FALSE(decode_record(std::string("\x01\x01\xff\xff\xff\xff\xff\x01", 8), read))
      << "a length of six bytes";
  std::string spare;
  EXPECT_FALSE(replace_field(value, 2, "x", read, spare)) << "a field that is not there";
}

RC_GTEST_PROP(Record, AnyBytesAreAnsweredWithoutReadingPastThem, (const std::string& bytes)) {
  const std::string value = "\x01" + bytes;
  std::vector<std::string_view> read;
  if (!decode_record(value, read)) return;
  std::size_t held = 0;
  for (const std::string_view field : read)
    held += field.size();
  RC_ASSERT(held <= bytes.size());
}

TEST(RandomBytes, AreAsManyAsAskedForAndPrintable) {
  Random random(7);
  std::string bytes = "before";
  append_random_bytes(random, 1000, bytes);
  ASSERT_EQ(bytes.size(), 1006U);
  EXPECT_TRUE(bytes.starts_with("before"));
  for (const char c : bytes)
    EXPECT_TRUE(c >= ' ' && c <= '\x7f') << static_cast<int>(c);
  append_random_bytes(random, 0, bytes);
  EXPECT_EQ(bytes.size(), 1006U);
}

TEST(RandomBytes, HaveTheAlphabetsOfYcsb) {
  constexpr unsigned kMasks[] = {31, 63, 95};
  Random random(8);
  std::string bytes;
  append_random_bytes(random, 30'000, bytes);
  std::array<std::set<unsigned>, 3> seen;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    seen[i % 3].insert(static_cast<unsigned>(bytes[i]) - ' ');
  for (std::size_t which = 0; which < 3; ++which) {
    for (unsigned bits = 0; bits < 128; ++bits)
      EXPECT_EQ(seen[which].contains(bits), (bits & ~kMasks[which]) == 0) << which << ' ' << bits;
  }
}

}  // namespace
}  // namespace rkv::kvbench
