// Files of records, text encodings and the shell's words.
#include "client/cli/records.h"

#include <gtest/gtest.h>

#include "client/cli/shell.h"
#include "client/cli/text.h"
#include "common/random.h"
#include "rkv/limits.h"

namespace rkv::cli {
namespace {

RecordSet parsed(std::string text, const RecordOptions& options = {}) {
  auto set = parse_records(std::move(text), "FILE", options);
  EXPECT_TRUE(set) << set.error().sentence;
  return set ? std::move(*set) : RecordSet();
}
std::string problem(std::string text, const RecordOptions& options = {}) {
  const auto set = parse_records(std::move(text), "FILE", options);
  return set ? "" : set.error().sentence;
}

// -------------------------------------------------------------------------------------- deb822

TEST(Deb822, StanzasByPackage) {
  const RecordSet set = parsed(
      "Package: a\nVersion: 1\nDescription: x\n more\n .\n\n\n"
      "Version: 2\npackage:  b  \n\n");
  ASSERT_EQ(set.records.size(), 2U);
  EXPECT_EQ(set.records[0].key, "a");
  EXPECT_EQ(set.records[0].value, "Package: a\nVersion: 1\nDescription: x\n more\n .");
  EXPECT_EQ(set.records[1].key, "b");
  EXPECT_EQ(set.records[1].value, "Version: 2\npackage:  b  ");
  EXPECT_EQ(set.bytes, 2 + set.records[0].value.size() + set.records[1].value.size());
}

TEST(Deb822, LastStanzaOfANameWins) {
  const RecordSet set = parsed("Package: a\nN: 1\n\nPackage: b\n\nPackage: a\nN: 22\n");
  ASSERT_EQ(set.records.size(), 2U);
  EXPECT_EQ(set.records[0].value, "Package: a\nN: 22");
  EXPECT_EQ(set.replaced, 1U);
  EXPECT_EQ(set.bytes, 2 + set.records[0].value.size() + set.records[1].value.size());
}

TEST(Deb822, NoLineEndAtTheEndAndCarriageReturns) {
  EXPECT_EQ(parsed("Package: a").records[0].value, "Package: a");
  const RecordSet set = parsed("Package: a\r\nN: 1\r\n\r\nPackage: b\r\n");
  ASSERT_EQ(set.records.size(), 2U);
  EXPECT_EQ(set.records[0].key, "a");
}

TEST(Deb822, BadStanzasNameTheirLine) {
  const RecordOptions deb822{.format = Format::kDeb822, .hex = false, .on_bad = {}};
  EXPECT_EQ(problem("Package: a\n\nVersion: 2\n", deb822),
            "FILE:3: the stanza has no Package field");
  EXPECT_EQ(problem("Package: a\nno field\n", deb822),
            "FILE:2: this is no field of a stanza (Name: value)");
  EXPECT_EQ(problem(" continued\nPackage: a\n", deb822),
            "FILE:1: this is no field of a stanza (Name: value)");
  EXPECT_EQ(problem("Package:\n", deb822), "FILE:1: the key is empty");
  EXPECT_EQ(problem("Package: a\nX: " + std::string(kMaxValueBytes, 'v'), deb822),
            "FILE:1: the value has 16777230 bytes, more than 16777216 (16 MiB)");
}

TEST(Deb822, BadStanzasCanBeLeftOut) {
  std::vector<std::string> told;
  const RecordSet set =
      parsed("Package: a\n\nVersion: 2\n\nPackage: c\n",
             {.format = Format::kAuto, .hex = false, .on_bad = [&](const std::string& sentence) {
                told.push_back(sentence);
              }});
  EXPECT_EQ(set.records.size(), 2U);
  EXPECT_EQ(set.bad, 1U);
  EXPECT_EQ(told, std::vector<std::string>{"FILE:3: the stanza has no Package field"});
}

// ----------------------------------------------------------------------------------------- tsv

TEST(Tsv, KeysAndValues) {
  const RecordSet set = parsed("a\tb\n\nc\td\te\nempty\t\nx\\ty\t\\x00\\n\n");
  ASSERT_EQ(set.records.size(), 4U);
  EXPECT_EQ(set.records[1].key, "c");
  EXPECT_EQ(set.records[1].value, "d\te");
  EXPECT_EQ(set.records[2].value, "");
  EXPECT_EQ(set.records[3].key, "x\ty");
  EXPECT_EQ(set.records[3].value, std::string_view("\0\n", 2));
}

TEST(Tsv, Hex) {
  const RecordOptions hex{.format = Format::kTsv, .hex = true, .on_bad = {}};
  const RecordSet set = parsed("6b\t00fF\n", hex);
  EXPECT_EQ(set.records[0].key, "k");
  EXPECT_EQ(set.records[0].value, std::string_view("\0\xff", 2));
  EXPECT_EQ(problem("6b\t0\n", hex), "FILE:1: key or value is not hexadecimal");
}

TEST(Tsv, BadLinesNameThemselves) {
  const RecordOptions tsv{.format = Format::kTsv, .hex = false, .on_bad = {}};
  EXPECT_EQ(problem("a\tb\nnothing\n", tsv), "FILE:2: there is no TAB after the key");
  EXPECT_EQ(problem("a\t\\q\n", tsv), "FILE:1: unknown escape: write \\t \\n \\r \\\\ or \\xNN");
  EXPECT_EQ(problem("\tb\n", tsv), "FILE:1: the key is empty");
  EXPECT_EQ(problem(std::string(1025, 'k') + "\tb\n", tsv),
            "FILE:1: the key has 1025 bytes, more than 1024");
}

// --------------------------------------------------------------------------------------- jsonl

TEST(Jsonl, FieldsInEveryForm) {
  const RecordSet set = parsed(
      "{\"key\":\"k\\u00e9\",\"value\":\"v\"}\n"
      "{\"key_base64\":\"AP8=\",\"value_hex\":\"0aFf\",\"version\":7}\n");
  ASSERT_EQ(set.records.size(), 2U);
  EXPECT_EQ(set.records[0].key, "k\xc3\xa9");
  EXPECT_EQ(set.records[1].key, std::string_view("\0\xff", 2));
  EXPECT_EQ(set.records[1].value, "\n\xff");
}

TEST(Jsonl, BadLinesNameThemselves) {
  const std::string good = "{\"key\":\"a\",\"value\":\"b\"}\n";
  EXPECT_EQ(problem(good + "{\"key\":"), "FILE:2: this is no JSON object");
  const std::string wants =
      "FILE:2: \"key\" and \"value\" must be there, each a string (or _base64, _hex)";
  EXPECT_EQ(problem(good + "{\"key\":\"a\"}"), wants);
  EXPECT_EQ(problem(good + "{\"key\":\"a\",\"value\":7}"), wants);
  EXPECT_EQ(problem(good + "{\"key\":\"a\",\"value_base64\":\"?\"}"), wants);
}

TEST(Format, IsToldByTheFirstLine) {
  EXPECT_EQ(parsed("").records.size(), 0U);
  EXPECT_EQ(parsed("\n\n").records.size(), 0U);
  EXPECT_EQ(problem("just words\n"),
            "FILE: cannot tell the format: say --format deb822, tsv or jsonl");
}

TEST(Keys, OneALine) {
  const auto keys = parse_keys("a\n\nb\\tc\r\n", "FILE", false);
  ASSERT_TRUE(keys);
  EXPECT_EQ(*keys, (std::vector<std::string>{"a", "b\tc"}));
  EXPECT_EQ(parse_keys("a\n\\q\n", "FILE", false).error().sentence,
            "FILE:2: unknown escape in the key");
  EXPECT_FALSE(parse_keys("6\n", "FILE", true));
}

// ---------------------------------------------------------------------------------------- text

TEST(Text, RoundTripsOfRandomBytes) {
  Random random(7);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes(random.below(40), '\0');
    for (char& c : bytes)
      c = static_cast<char>(random.below(4) == 0 ? random.below(128) : random.below(256));
    ASSERT_EQ(from_hex(to_hex(bytes)), bytes);
    ASSERT_EQ(from_base64(to_base64(bytes)), bytes);
    const std::string escaped = escape_tsv(bytes);
    ASSERT_EQ(unescape_tsv(escaped), bytes);
    ASSERT_EQ(escaped.find_first_of("\t\n\r"), std::string::npos);
    ASSERT_TRUE(is_utf8(escaped));
  }
}

TEST(Text, Utf8IsStrict) {
  EXPECT_TRUE(is_utf8("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"));
  for (const char* bad : {"\x80", "\xc0\x80", "\xc3", "\xe0\x80\x80", "\xed\xa0\x80",
                          "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"}) {
    EXPECT_FALSE(is_utf8(bad));
  }
}

TEST(Text, WrongEncodingsAreRefused) {
  for (const char* bad : {"A", "AA=", "A===", "AB==", "AA=A", "\n\n\n\n"})
    EXPECT_FALSE(from_base64(bad)) << bad;
  EXPECT_FALSE(from_hex("0"));
  EXPECT_FALSE(from_hex("0g"));
  for (const char* bad : {"\\", "\\x", "\\x1", "\\xg0", "\\q"})
    EXPECT_FALSE(unescape_tsv(bad)) << bad;
}

// --------------------------------------------------------------------------------------- words

TEST(Words, QuotesEscapesAndComments) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(*split_words("  put a\tb \n"), (Words{"put", "a", "b"}));
  EXPECT_EQ(*split_words(R"(put "a b" 'c "d"' x"y z"w)"),
            (Words{"put", "a b", "c \"d\"", "xy zw"}));
  EXPECT_EQ(*split_words(R"("\t\\\"\x41")"), (Words{"\t\\\"A"}));
  EXPECT_EQ(*split_words("put '' \"\""), (Words{"put", "", ""}));
  EXPECT_EQ(*split_words("get a # the rest"), (Words{"get", "a"}));
  EXPECT_EQ(*split_words("get a#b"), (Words{"get", "a#b"}));
  EXPECT_TRUE(split_words("")->empty());
  EXPECT_EQ(split_words("get 'a").error(), "a quote is not closed");
  EXPECT_EQ(split_words(R"(get "a\")").error(), "a quote is not closed");
  EXPECT_EQ(split_words(R"(get "\q")").error(), "unknown escape inside \"...\"");
  EXPECT_EQ(split_words(R"(get "\x00")").error(), "a zero byte can be written with --hex only");
}

}  // namespace
}  // namespace rkv::cli
