// Entries as the bytes of a block: what goes in comes out, and nothing else is accepted.
#include "server/group/replica/entry_block.h"

#include <gtest/gtest.h>

#include "common/random.h"
#include "rkv/limits.h"

namespace rkv::server {
namespace {

CommitLog::Entry put(std::uint64_t version, std::string_view key, std::string_view value) {
  return {.kind = CommitLog::Kind::kPut,
          .record = {.version = {version},
                     .expiry_ms = 77,
                     .counter = true,
                     .key = as_bytes(key),
                     .value = as_bytes(value)}};
}
CommitLog::Entry removal(std::uint64_t version, std::string_view key) {
  return {.kind = CommitLog::Kind::kRemove, .record = {.version = {version}, .key = as_bytes(key)}};
}
CommitLog::Entry tagged(CommitLog::Entry entry, WriteTag tag = {.session = 5, .sequence = 16}) {
  entry.tag = tag;
  return entry;
}
EntryBlock block_of(const std::vector<CommitLog::Entry>& entries, std::uint64_t previous = 1) {
  std::vector<std::byte> bytes;
  for (const CommitLog::Entry& entry : entries)
    append_entry(bytes, entry);
  return {.previous = {.term = 1, .version = previous},
          .last = {.term = 1, .version = entries.back().record.version.bits},
          .bytes = std::make_shared<const std::vector<std::byte>>(std::move(bytes))};
}

TEST(EntryBlock, ComesOutAsItWentIn) {
  const EntryBlock block = block_of({put(10, "key", "value"), removal(12, "k"), put(13, "e", "")});
  EXPECT_TRUE(is_valid_block(block));
  Bytes rest = *block.bytes;
  const auto first = first_entry(rest);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->kind, CommitLog::Kind::kPut);
  EXPECT_EQ(first->record.version.bits, 10U);
  EXPECT_EQ(first->record.expiry_ms, 77U);
  EXPECT_TRUE(first->record.counter);
  EXPECT_EQ(as_text(first->record.key), "key");
  EXPECT_EQ(as_text(first->record.value), "value");
  rest = rest.subspan(entry_bytes(*first));
  const auto second = first_entry(rest);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->kind, CommitLog::Kind::kRemove);
  EXPECT_EQ(as_text(second->record.key), "k");
  rest = rest.subspan(entry_bytes(*second));
  EXPECT_EQ(entry_bytes(*first_entry(rest)), rest.size());
}

TEST(EntryBlock, TagsComeOutAsTheyWentIn) {
  const WriteTag tag{.session = 7,
                     .sequence = 18,
                     .user = 0xFF'1234'5678,
                     .opcode = Opcode::kRemove,
                     .index = 3,
                     .count = 32};
  const EntryBlock block =
      block_of({tagged(put(10, "key", "value")), tagged(removal(12, "k"), tag), put(13, "e", "x")});
  EXPECT_TRUE(is_valid_block(block));
  Bytes rest = *block.bytes;
  const auto first = first_entry(rest);
  ASSERT_TRUE(first && first->tag);
  EXPECT_EQ(first->tag->session, 5U);
  EXPECT_EQ(first->tag->sequence, 16U);
  EXPECT_EQ(first->tag->opcode, Opcode::kPut);
  EXPECT_EQ(first->tag->count, 0U);
  EXPECT_EQ(as_text(first->record.key), "key");
  EXPECT_EQ(as_text(first->record.value), "value");
  rest = rest.subspan(entry_bytes(*first));
  const auto second = first_entry(rest);
  ASSERT_TRUE(second && second->tag);
  EXPECT_EQ(second->tag->opcode, Opcode::kRemove);
  EXPECT_EQ(second->tag->user, 0xFF'1234'5678U);
  EXPECT_EQ(second->tag->index, 3U);
  EXPECT_EQ(second->tag->count, 32U);
  EXPECT_EQ(as_text(second->record.key), "k");
  EXPECT_FALSE(first_entry(rest.subspan(entry_bytes(*second)))->tag);
}

// A later primary answers by the tag, so it must fit the entry.
TEST(EntryBlock, TagsThatDoNotFitTheirEntryAreRefused) {
  const auto is_valid = [](const CommitLog::Entry& entry, const WriteTag& tag) {
    return is_valid_block(block_of({tagged(entry, tag)}));
  };
  const CommitLog::Entry counter = put(10, "k", "8 bytes.");
  EXPECT_TRUE(is_valid(counter, {.session = 1, .sequence = 1, .opcode = Opcode::kAdd}));
  EXPECT_TRUE(is_valid(counter, {.session = 1, .sequence = 1, .opcode = Opcode::kSwap}));
  EXPECT_TRUE(is_valid(counter, {.session = 1, .sequence = 1, .opcode = Opcode::kTouch}));
  EXPECT_TRUE(is_valid(counter, {.session = 1, .sequence = 1, .opcode = Opcode::kPutLarge}));
  EXPECT_FALSE(
      is_valid(put(10, "k", "short"), {.session = 1, .sequence = 1, .opcode = Opcode::kAdd}));
  EXPECT_FALSE(is_valid(removal(10, "k"), {.session = 1, .sequence = 1, .opcode = Opcode::kAdd}));
  EXPECT_FALSE(is_valid(removal(10, "k"), {.session = 1, .sequence = 1, .opcode = Opcode::kPut}));
  EXPECT_FALSE(is_valid(counter, {.session = 1, .sequence = 1, .opcode = Opcode::kRemove}));
  EXPECT_FALSE(is_valid(counter, {.session = 1, .sequence = 1, .opcode = Opcode::kGet}));
  EXPECT_FALSE(is_valid(counter, {.session = 0, .sequence = 1}));
  EXPECT_FALSE(is_valid(counter, {.session = 1, .sequence = 0}));
  EXPECT_FALSE(is_valid(counter, {.session = 1, .sequence = 1, .index = 1}));
  EXPECT_FALSE(is_valid(counter, {.session = 1, .sequence = 1, .index = 2, .count = 2}));
  EXPECT_FALSE(is_valid(counter, {.session = 1, .sequence = 1, .count = 33}));
}

TEST(EntryBlock, VersionsRiseFromThePreviousToTheLast) {
  EXPECT_FALSE(is_valid_block(block_of({put(10, "a", ""), put(10, "b", "")})));
  EXPECT_FALSE(is_valid_block(block_of({put(10, "a", ""), put(9, "b", "")})));
  EXPECT_FALSE(is_valid_block(block_of({put(10, "a", "")}, 10)));
  EntryBlock block = block_of({put(10, "a", ""), put(11, "b", "")});
  block.last.version = 12;
  EXPECT_FALSE(is_valid_block(block));
  block.bytes = std::make_shared<const std::vector<std::byte>>();
  EXPECT_FALSE(is_valid_block(block)) << "no entry";
}

TEST(EntryBlock, WhatIsCutOffIsRefused) {
  const EntryBlock block = block_of({put(10, "key", "value"), tagged(put(12, "k", ""))});
  for (std::size_t bytes = 0; bytes < block.bytes->size(); ++bytes) {
    EntryBlock cut = block;
    cut.bytes = std::make_shared<const std::vector<std::byte>>(block.bytes->begin(),
                                                               block.bytes->begin() + bytes);
    EXPECT_FALSE(is_valid_block(cut)) << bytes;
  }
}

// ENTRY-1: whatever is accepted is what append_entry() makes.
TEST(EntryBlock, DamagedBytesAreRefusedOrAreAnotherEntry) {
  Random random(7);
  const EntryBlock block =
      block_of({put(10, "key", "value"), removal(12, "k"), tagged(put(13, "t", "value"))});
  for (int round = 0; round < 20'000; ++round) {
    auto bytes = *block.bytes;
    for (std::uint64_t changes = 1 + random.below(3); changes != 0; --changes)
      bytes[random.below(bytes.size())] = std::byte{static_cast<std::uint8_t>(random())};
    std::vector<std::byte> again;
    Bytes rest = bytes;
    while (const auto entry = first_entry(rest)) {
      append_entry(again, *entry);
      rest = rest.subspan(entry_bytes(*entry));
    }
    ASSERT_TRUE(std::equal(again.begin(), again.end(), bytes.begin()));
  }
}

TEST(EntryBlock, LimitsHold) {
  const std::string longest(kMaxKeyBytes, 'k');
  EXPECT_TRUE(is_valid_block(block_of({put(10, longest, "v")})));
  EXPECT_FALSE(is_valid_block(block_of({put(10, longest + "k", "v")})));
  EXPECT_FALSE(is_valid_block(block_of({put(10, "", "v")})));
}

}  // namespace
}  // namespace rkv::server
