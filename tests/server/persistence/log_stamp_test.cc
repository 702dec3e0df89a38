// Stamps: STAMP-1 and STAMP-2 of log_stamp.h.
#include "server/persistence/wal/log_stamp.h"

#include <gtest/gtest.h>

#include "server/persistence/wal/log_reader.h"
#include "tests/server/persistence/support.h"
#include "tests/support/files.h"

namespace rkv::server {
namespace {

using rkv::testing::flipped;

constexpr std::uint64_t kMark = 0x1234'5678'9ABC'DEF0;

std::optional<LogFilePosition> found_in(const std::string& log, std::uint64_t mark = kMark) {
  StampFinder finder(mark);
  for (std::size_t at = 0; at < log.size(); at += LogReader::kBlockBytes)
    finder.add(as_bytes(std::string_view(log).substr(at, LogReader::kBlockBytes)));
  return finder.highest();
}

// As a log divides it: a header of 7 bytes at the beginning of each block.
std::string in_blocks(std::string_view text) {
  constexpr std::size_t kRoom = LogReader::kBlockBytes - LogReader::kHeaderBytes;
  std::string log;
  for (std::size_t at = 0; at < text.size(); at += kRoom)
    log.append(LogReader::kHeaderBytes, 'h').append(text.substr(at, kRoom));
  return log;
}

TEST(LogStamp, IsFoundWhereverItIs) {
  const LogFilePosition synced{.log = 7, .bytes = 1000};
  const std::string stamp = stamp_of(synced, kMark);
  const std::size_t room = LogReader::kBlockBytes - LogReader::kHeaderBytes;
  for (std::size_t before = room - stamp.size() - 2; before < room + 2; ++before) {
    const std::string text = std::string(before, 'x') + stamp;
    EXPECT_EQ(found_in(in_blocks(text)), synced) << before;
    EXPECT_EQ(found_in(in_blocks(text + "more")), synced) << before;
  }
}

TEST(LogStamp, TheHighestCounts) {
  std::string text;
  for (const LogFilePosition& synced : {LogFilePosition{6, 5000}, {7, 20}, {7, 10}, {6, 9000}})
    text += "between" + stamp_of(synced, kMark);
  EXPECT_EQ(found_in(in_blocks(text)), (LogFilePosition{7, 20}));
  EXPECT_EQ(found_in(in_blocks(stamp_of({}, kMark))), LogFilePosition{});
}

TEST(LogStamp, IsNoneWithADamagedByteOrAnotherMark) {
  const std::string stamp = stamp_of({.log = 7, .bytes = 1000}, kMark);
  for (std::size_t at = 0; at < stamp.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit)
      EXPECT_FALSE(found_in(in_blocks(flipped(stamp, at, 1 << bit)))) << at;
  }
  EXPECT_FALSE(found_in(in_blocks(stamp.substr(0, stamp.size() - 1))));
  EXPECT_FALSE(found_in(in_blocks(stamp), kMark + 1));
  EXPECT_FALSE(found_in(""));
  EXPECT_FALSE(found_in("short"));
  // Its mark twice; only the second begins a stamp.
  EXPECT_TRUE(found_in(in_blocks(stamp.substr(0, 8) + stamp)));
}

}  // namespace
}  // namespace rkv::server
