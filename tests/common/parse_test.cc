#include "common/parse.h"

#include <gtest/gtest.h>

namespace rkv {
namespace {

TEST(ParseSize, TakesBinaryUnits) {
  EXPECT_EQ(*parse_size("4096"), 4096U);
  EXPECT_EQ(*parse_size("64K"), 65536U);
  EXPECT_EQ(*parse_size("64kib"), 65536U);
  EXPECT_EQ(*parse_size("1GiB"), 1U << 30);
  EXPECT_EQ(*parse_size("2t"), std::uint64_t{2} << 40);
}

TEST(ParseSize, TakesDecimalUnits) {
  EXPECT_EQ(*parse_size("1kB"), 1000U);
  EXPECT_EQ(*parse_size("3MB"), 3'000'000U);
  EXPECT_EQ(*parse_size("1GB"), 1'000'000'000U);
  EXPECT_EQ(*parse_size("2tb"), 2'000'000'000'000U);
  EXPECT_EQ(*parse_size("18446744TB"), 18446744ULL * 1'000'000'000'000);
  EXPECT_FALSE(parse_size("18446745TB"));
}

TEST(ParseSize, RefusesWhatIsNoSize) {
  for (const char* bad : {"", "GiB", "-1", "1.5G", "1 G", "12x", "99999999999T", "0x10"}) {
    EXPECT_FALSE(parse_size(bad)) << bad;
  }
}

TEST(ParseDuration, RoundsUpToMilliseconds) {
  EXPECT_EQ(*parse_duration_ms("250ms"), 250U);
  EXPECT_EQ(*parse_duration_ms("5s"), 5000U);
  EXPECT_EQ(*parse_duration_ms("2m"), 120000U);
  EXPECT_EQ(*parse_duration_ms("2h"), 7'200'000U);
  EXPECT_EQ(*parse_duration_ms("366d"), 31'622'400'000U);
  EXPECT_EQ(*parse_duration_ms("1us"), 1U);
  EXPECT_EQ(*parse_duration_ms("0s"), 0U);
}

TEST(Printable, APeersNameMakesNoLinesOfItsOwn) {
  EXPECT_EQ(printable("a\nb\x1b[31m\r\t\x7f caf\xc3\xa9"),
            "a\\nb\\x1b[31m\\x0d\\x09\\x7f caf\xc3\xa9");
}

TEST(Shown, IsTheBeginningInPrintableCharacters) {
  EXPECT_EQ(shown(""), "");
  EXPECT_EQ(shown("a b\n\x1b\x7f"), "a b\\n\\x1b\\x7f");
  EXPECT_EQ(shown(std::string(100, 'x')), std::string(100, 'x'));
  EXPECT_EQ(shown(std::string(101, 'x')), std::string(100, 'x') + "...");
  EXPECT_EQ(shown(std::string(99, 'x') + "\u00e9y"), std::string(99, 'x') + "...");
  EXPECT_EQ(shown(std::string(98, 'x') + "\u00e9yy"), std::string(98, 'x') + "\u00e9...");
  EXPECT_EQ(shown(std::string(200, '\x80')), "...");
}

TEST(ParseNumber, TakesAllOfTheTextWithinTheLimits) {
  EXPECT_EQ(parse_number<std::uint64_t>("18446744073709551615"), UINT64_MAX);
  EXPECT_EQ(parse_number<std::int64_t>("-5"), -5);
  EXPECT_EQ(parse_number<unsigned>("7", 7, 9), 7U);
  EXPECT_EQ(parse_number<double>("0.25", 0, 1), 0.25);
  for (const char* bad : {"", " 1", "1 ", "+1", "1k", "0x1", "6", "10", "18446744073709551616"})
    EXPECT_EQ(parse_number<unsigned>(bad, 7, 9), std::nullopt) << bad;
  for (const char* bad : {"nan", "inf", "-inf", "1e999", "1.1"})
    EXPECT_EQ(parse_number<double>(bad, 0, 1), std::nullopt) << bad;
  EXPECT_EQ(parse_number<double>("inf"), std::nullopt);
}

TEST(ParseDuration, RefusesWhatIsNoDuration) {
  for (const char* bad : {"", "5", "s", "-5s", "5h30", "1w", "367d", "99999999999999999999s",
                          "999999999999s", "31622400001d"}) {
    EXPECT_FALSE(parse_duration_ms(bad)) << bad;
  }
}

}  // namespace
}  // namespace rkv
