// Files of records, text encodings and the shell's words.
#include "client/cli/records.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>

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
            "FILE:2: this is not a field of a stanza (Name: value)");
  EXPECT_EQ(problem(" continued\nPackage: a\n", deb822),
            "FILE:1: this is not a field of a stanza (Name: value)");
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

// The reader skips a byte order mark and lines of white space, and takes a brace for JSON.
TEST(Tsv, KeysThatLookLikeSomethingElseAreReadAgain) {
  for (const std::string_view key : {"\xEF\xBB\xBF", "\xEF\xBB\xBFk", "  ", "{a"}) {
    const RecordSet set =
        parsed(to_tsv({.key = key, .value = "", .number = {}, .expires_at_ms = 0}, false));
    ASSERT_EQ(set.records.size(), 1U) << key;
    EXPECT_EQ(set.records[0].key, key);
  }
}

TEST(Tsv, Hex) {
  const RecordOptions hex{.format = Format::kTsv, .hex = true, .on_bad = {}};
  const RecordSet set = parsed("6b\t00fF\n", hex);
  EXPECT_EQ(set.records[0].key, "k");
  EXPECT_EQ(set.records[0].value, std::string_view("\0\xff", 2));
  EXPECT_EQ(problem("6b\t0\n", hex), "FILE:1:4: key or value is not hexadecimal");
}

TEST(Tsv, BadLinesNameThemselves) {
  const RecordOptions tsv{.format = Format::kTsv, .hex = false, .on_bad = {}};
  EXPECT_EQ(problem("a\tb\nnothing\n", tsv), "FILE:2:8: there is no TAB after the key");
  EXPECT_EQ(problem("a\tb\\q\n", tsv), "FILE:1:4: unknown escape: write \\t \\n \\r \\\\ or \\xNN");
  EXPECT_EQ(problem("\tb\n", tsv), "FILE:1:1: the key is empty");
  EXPECT_EQ(problem(std::string(1025, 'k') + "\tb\n", tsv),
            "FILE:1:1: the key has 1025 bytes, more than 1024");
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
  EXPECT_EQ(problem(good + "{\"key\":"), "FILE:2:8: this is not a JSON object");
  EXPECT_EQ(problem(good + "{\"key\":\"a\"}"), "FILE:2:1: \"value\" (or _base64, _hex) is missing");
  EXPECT_EQ(problem(good + "{\"key\":\"a\",\"value\":7}"), "FILE:2:1: \"value\" is not a string");
  EXPECT_EQ(problem(good + "{\"key\":\"a\",\"value_base64\":\"?\"}"),
            "FILE:2:1: \"value_base64\" is not valid base64");
  EXPECT_EQ(problem(good + "{\"key_hex\":\"a\",\"value\":\"b\"}"),
            "FILE:2:1: \"key_hex\" is not valid hexadecimal");
}

TEST(Jsonl, FieldsThatWouldBeLostAreRefused) {
  EXPECT_EQ(problem(R"({"key":"a","value":"b","expires_at":7})"),
            R"(FILE:1:1: unknown field "expires_at")");
  EXPECT_EQ(problem(R"({"key":"a","value":"b","value":"c"})"),
            R"(FILE:1:1: "value" is given twice)");
  EXPECT_EQ(problem(R"({"key":"a","value":"b","key_hex":"61"})"),
            R"(FILE:1:1: "key" is given twice)");
  EXPECT_EQ(problem(R"({"key":"a","value":"b",")" + std::string(1000, 'x') + R"(":1})").size(),
            std::string("FILE:1:1: unknown field \"...\"").size() + 100);
}

TEST(Jsonl, ANumberThatIsTooLargeHasAPlaceAndCanBeSkipped) {
  const std::string line = R"({"key":"a","value":"b","expires_at_ms":1e400})";
  EXPECT_EQ(problem(line), "FILE:1:40: the number is too large");
  int bad = 0;
  const auto set = parse_records(
      line + "\n{\"key\":\"a\",\"value\":\"b\"}\n", "FILE",
      {.format = Format::kJsonl, .hex = false, .on_bad = [&](const std::string&) { ++bad; }});
  ASSERT_TRUE(set);
  EXPECT_EQ(set->records.size(), 1U);
  EXPECT_EQ(bad, 1);
}

TEST(Files, FromAnotherSystemAreTheSame) {
  for (const std::string text : {"\xEF\xBB\xBF"
                                 "k\tv\r\n",
                                 "k\tv\n", "\xEF\xBB\xBF{\"key\":\"k\",\"value\":\"v\"}\r\n"}) {
    const RecordSet set = parsed(text);
    ASSERT_EQ(set.records.size(), 1U) << text;
    EXPECT_EQ(set.records[0].key, "k");
    EXPECT_EQ(set.records[0].value, "v");
  }
}

// ----------------------------------------------------------------------------- dumps: both ways

TEST(Dumps, CountersAndTimes) {
  const Record counter{.key = "c", .value = {}, .number = -7};
  const Record expiring{.key = "e", .value = "v", .number = {}, .expires_at_ms = 1'700'000'000'000};
  EXPECT_EQ(to_tsv(counter, false), "c\t-7\t\\@counter\n");
  EXPECT_EQ(to_tsv(counter, true), "63\t-7\t\\@counter\n");
  EXPECT_EQ(to_tsv(expiring, false), "e\tv\t\\@expires=1700000000000\n");
  EXPECT_EQ(to_jsonl(counter, false), "{\"key\":\"c\",\"counter\":-7}\n");
  EXPECT_EQ(to_jsonl(expiring, false),
            "{\"key\":\"e\",\"value\":\"v\",\"expires_at_ms\":1700000000000}\n");
  for (const auto write : {to_tsv, to_jsonl}) {
    for (const bool hex : {false, true}) {
      const RecordSet set = parsed(write(counter, hex) + write(expiring, hex),
                                   {.format = Format::kAuto, .hex = hex, .on_bad = {}});
      ASSERT_EQ(set.records.size(), 2U);
      EXPECT_EQ(set.records[0].number, -7);
      EXPECT_FALSE(set.records[1].number);
      EXPECT_EQ(set.records[1].value, "v");
      EXPECT_EQ(set.records[1].expires_at_ms, 1'700'000'000'000U);
    }
  }
}

TEST(Dumps, BadAttributesAreTold) {
  const std::string wants =
      "FILE:1:5: unknown attribute: write \\@counter, or \\@expires= and Unix milliseconds from 1 "
      "to "
      "4398046511104";
  for (const char* bad :
       {"", "x", ",", "counter,", "counter,x", "counter,expires=5", "expires=", "expires=0",
        "expires=1,", "expires=x", "expires=-1", "expires=99999999999999", "expires=1 "})
    EXPECT_EQ(problem(std::string("a\t1\t\\@") + bad + "\n"), wants) << bad;
  for (const char* bad : {"", "x", "1.5", "9223372036854775808", " 1", "+1"})
    EXPECT_EQ(problem(std::string("a\t") + bad + "\t\\@counter\n"),
              "FILE:1:3: a counter must be a whole number of 64 bits")
        << bad;
  for (const char* twice : {"\t\\@counter\t\\@counter", "\t\\@expires=5\t\\@expires=5"})
    EXPECT_EQ(problem(std::string("a\t1") + twice), wants) << twice;
  for (const char* both :
       {"\"value\":\"b\"", "\"value\":7", "\"value_hex\":\"61\"", "\"value_base64\":\"\""}) {
    EXPECT_EQ(problem(std::string("{\"key\":\"a\",\"counter\":1,") + both + "}"),
              "FILE:1:1: a record must have \"value\" or \"counter\", not both");
  }
  for (const char* bad :
       {"\"counter\":1.5", "\"counter\":\"1\"", "\"counter\":9223372036854775808",
        "\"value\":\"\",\"expires_at_ms\":-1", "\"value\":\"\",\"expires_at_ms\":99999999999999"}) {
    EXPECT_NE(problem(std::string("{\"key\":\"a\",") + bad + "}").find("whole number"),
              std::string::npos)
        << bad;
  }
  EXPECT_EQ(parsed("a\tb\tc\n").records[0].value, "b\tc") << "as ever";
}

// Any bytes, in lines of either form, of files of every kind of beginning.
RC_GTEST_PROP(Dumps, RoundTrip, (bool hex, bool json)) {
  const auto byte = rc::gen::oneOf(rc::gen::arbitrary<char>(),
                                   rc::gen::element('\t', '\n', '\r', '\\', ' ', '{', '@', ':', '"',
                                                    '\0', '\xFF', '\xC3', '\xA4'));
  const auto text = rc::gen::container<std::string>(byte);
  const auto map = *rc::gen::container<std::map<std::string, std::string>>(text, text);
  std::string file;
  std::map<std::string, std::uint64_t> expiries;
  for (const auto& [key, value] : map) {
    if (key.empty()) continue;
    expiries[key] = *rc::gen::element<std::uint64_t>(0, 1, std::uint64_t{1} << 42);
    const Record record{.key = key, .value = value, .number = {}, .expires_at_ms = expiries[key]};
    file += json ? to_jsonl(record, hex) : to_tsv(record, hex);
  }
  const auto set = parse_records(file, "FILE", {.format = Format::kAuto, .hex = hex, .on_bad = {}});
  RC_ASSERT(set.has_value());
  RC_ASSERT(set->records.size() == expiries.size());
  for (const Record& record : set->records) {
    RC_ASSERT(record.value == map.at(std::string(record.key)));
    RC_ASSERT(record.expires_at_ms == expiries.at(std::string(record.key)));
  }
}

// A file of many parts is what it is in one.
TEST(RecordFiles, ArePartsOfLines) {
  char path[] = "/tmp/rkv-records-XXXXXX";
  const int fd = mkstemp(path);
  ASSERT_GE(fd, 0);
  std::string text = "\n";
  for (int i = 0; i < 3000; ++i)
    text += "key" + std::to_string(i) + "\t" + std::string(4000, 'v') + "\n";
  text += "key7\tlast";  // no line end
  ASSERT_EQ(write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  close(fd);
  auto reader = RecordReader::open(path, {.format = Format::kAuto, .hex = false, .on_bad = {}});
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->bytes_total(), text.size());
  std::map<std::string, std::string> loaded;
  int parts = 0;
  for (;; ++parts) {
    const auto part = reader->next();
    ASSERT_TRUE(part) << part.error().sentence;
    if (part->records.empty()) break;
    for (const Record& record : part->records)
      loaded[std::string(record.key)] = record.value;
  }
  EXPECT_EQ(parts, 3);
  EXPECT_EQ(reader->bytes_read(), text.size());
  EXPECT_EQ(loaded.size(), 3000U);
  EXPECT_EQ(loaded["key7"], "last");

  std::FILE* const file = std::fopen(path, "a");
  std::fputs("\nno tab\n", file);
  std::fclose(file);
  reader = RecordReader::open(path, {.format = Format::kAuto, .hex = false, .on_bad = {}});
  OrFailure<RecordSet> part = reader->next();
  while (part && !part->records.empty())
    part = reader->next();
  ASSERT_FALSE(part);
  EXPECT_EQ(part.error().sentence, std::string(path) + ":3003:7: there is no TAB after the key");
  unlink(path);
  EXPECT_FALSE(RecordReader::open(path, {}));
}

TEST(Format, IsToldByTheFirstLine) {
  EXPECT_EQ(parsed("").records.size(), 0U);
  EXPECT_EQ(parsed("\n\n").records.size(), 0U);
  EXPECT_EQ(problem("just words\n"), "FILE: unknown format: give --format deb822, tsv or jsonl");
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
  EXPECT_EQ(split_words(R"(get "\x00")").error(), "a zero byte can only be written with --hex");
}

}  // namespace
}  // namespace rkv::cli
