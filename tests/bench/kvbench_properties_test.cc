// Property files: Java's format, and mistakes reported with line and column.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

#include "bench/kvbench/properties.h"

namespace rkv::kvbench {
namespace {

Properties read(const std::string& text) {
  Properties properties;
  const auto done = properties.read_text(text, "file");
  EXPECT_TRUE(done) << done.error();
  return properties;
}

std::string mistake(const std::string& text) {
  const auto done = Properties().read_text(text, "file");
  return done ? "none" : done.error();
}

struct Line {
  const char* text;
  const char* key;
  const char* value;
};
class OneLine : public testing::TestWithParam<Line> {};
TEST_P(OneLine, IsReadAsJavaReadsIt) {
  const Properties properties = read(GetParam().text);
  ASSERT_EQ(properties.all().size(), 1U);
  EXPECT_EQ(properties.all().begin()->first, GetParam().key);
  EXPECT_EQ(properties.all().begin()->second.value, GetParam().value);
}
INSTANTIATE_TEST_SUITE_P(
    Format, OneLine,
    testing::Values(Line{"a=b", "a", "b"},
                    Line{"\xEF\xBB\xBF"
                         "a=b",
                         "a", "b"},
                    Line{"a = b", "a", "b"}, Line{"a:b", "a", "b"}, Line{"a b", "a", "b"},
                    Line{"a\tb", "a", "b"}, Line{"  a =\f b", "a", "b"}, Line{"a", "a", ""},
                    Line{"a=", "a", ""}, Line{"a==b", "a", "=b"}, Line{"a= b c ", "a", "b c "},
                    Line{"a\\=b=c", "a=b", "c"}, Line{"a\\ b c", "a b", "c"},
                    Line{"a=\\tb\\n", "a", "\tb\n"}, Line{"a=\\u0041\\u00e9", "a", "A\xc3\xa9"},
                    Line{"a=\\ud83d\\ude00", "a", "\xf0\x9f\x98\x80"},
                    Line{"a=\\q\\\\", "a", "q\\"}, Line{"a=b\\\n   c", "a", "bc"},
                    Line{"a=b\\\r\n  c", "a", "bc"}, Line{"a\\\n  b=c", "ab", "c"},
                    Line{"a =\\\n  c", "a", "c"}, Line{"a=b\\", "a", "b"},
                    Line{"# no\n! no\n\n \t\na=b # yes", "a", "b # yes"},
                    Line{"a=1\na=2", "a", "2"}, Line{"a=b\r", "a", "b"}, Line{"=b", "", "b"},
                    Line{"a=\xc3\xa9", "a", "\xc3\xa9"}));

TEST(Properties, NoLineNoProperty) {
  EXPECT_TRUE(read("").all().empty());
  EXPECT_TRUE(read("\n\n# only words\n!").all().empty());
}

TEST(Properties, MistakesAreReportedWithLineAndColumn) {
  EXPECT_EQ(mistake("a=b\nc=\\u12"),
            "file:2:3: \\u needs four hexadecimal digits; write \\\\ for a backslash");
  EXPECT_EQ(mistake("a=\\uZZZZ"),
            "file:1:3: \\u needs four hexadecimal digits; write \\\\ for a backslash");
  EXPECT_EQ(mistake("a=\\ud83d!"), "file:1:3: an unpaired surrogate");
  EXPECT_EQ(mistake("a=b\\\n  \\u0\n"),
            "file:2:3: \\u needs four hexadecimal digits; write \\\\ for a backslash");
  EXPECT_EQ(mistake(std::string("a=b\n\n  k\0y=1", 12)),
            "file:3:4: a control character (byte 0x00): this is not a property file");
  EXPECT_EQ(mistake("\x7f"
                    "ELF"),
            "file:1:1: a control character (byte 0x7f): this is not a property file");
}

TEST(Properties, WrongValuesAreToldWithTheirPlace) {
  const Properties properties = read("records = 12x\npart=1.5\n  on=yes\nempty=\nminus=-1\n");
  EXPECT_EQ(properties.number("records", 0, 1, 9).error(),
            "file:1:11: records needs a whole number from 1 to 9, not '12x'");
  EXPECT_EQ(properties.number("minus", 0, 0, 9).error(),
            "file:5:7: minus needs a whole number from 0 to 9, not '-1'");
  EXPECT_EQ(properties.number("empty", 0, 0, 9).error(),
            "file:4:7: empty needs a whole number from 0 to 9, not ''");
  EXPECT_EQ(properties.real("part", 0, 0, 1).error(),
            "file:2:6: part needs a number from 0 to 1, not '1.5'");
  EXPECT_EQ(properties.boolean("on", false).error(), "file:3:6: on needs true or false, not 'yes'");
  EXPECT_EQ(properties.number("absent", 7, 0, 9), 7U);
}

TEST(Properties, NumbersMayHaveSpacesAround) {
  const Properties properties = read("count=12 \nyes=TRUE\n");
  EXPECT_EQ(properties.number("count", 0, 0, 99), 12U);
  EXPECT_EQ(properties.boolean("yes", false), true);
}

TEST(Properties, OddNumbersAreNone) {
  for (const char* text : {"a=nan", "a=inf", "a=1e999", "a=0x1", "a=1,5", "a=--1", "a=+"})
    EXPECT_FALSE(read(text).real("a", 0, -1e9, 1e9)) << text;
}

TEST(Properties, AFileThatIsNotThereIsNamed) {
  const auto done = Properties().read_file("/nowhere/workload");
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error(), "/nowhere/workload: No such file or directory");
  EXPECT_EQ(Properties().read_file("/").error(), "/: Is a directory");
  EXPECT_EQ(Properties().read_file("/dev/zero").error(),
            "/dev/zero: larger than 1 MiB: this is not a property file");
}

RC_GTEST_PROP(Properties, AnyTextIsReadOrRefused, (const std::string& text)) {
  Properties properties;
  const auto done = properties.read_text(text, "file");
  // RC_ASSERT takes an expression apart and evaluates both sides of an `||`.
  const bool read_or_refused = done.has_value() || done.error().starts_with("file:");
  RC_ASSERT(read_or_refused);
}

}  // namespace
}  // namespace rkv::kvbench
