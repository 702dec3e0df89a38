// Documents: a file, a test or a function that a Markdown page names exists, and there is not too
// much to read.
#include <fnmatch.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/tidy/tree.h"

namespace rkv {
namespace {

// Returns the texts of a line that are in backquotes, such as `server/server.cc` and `Offences.*`.
std::vector<std::string> quoted_in(const std::string& line) {
  static const std::regex quoted("`([^` ]+)`");
  std::vector<std::string> found;
  for (std::sregex_iterator it(line.begin(), line.end(), quoted), end; it != end; ++it)
    found.push_back((*it)[1]);
  return found;
}

bool is_name_of_file(const std::string& text) {
  static const std::regex name(R"([\w./-]*[a-z_*][\w-]*\.(cc|h|py|md|sh|pml|html|in|cmake|\*))");
  return std::regex_match(text, name);
}
bool is_name_of_tests(const std::string& text) {
  static const std::regex name(R"([A-Z]\w+\.\*)");
  return std::regex_match(text, name);
}

// Calls see(place, line) for each line of the Markdown pages that is outside of fenced code.
template <class See>
void for_each_line(const std::vector<File>& files, See see) {
  for (const File& file : files) {
    if (!file.path.ends_with(".md")) continue;
    bool is_code = false;
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      if (file.lines[i].starts_with("```")) {
        is_code = !is_code;
      } else if (!is_code) {
        see(file.path + ":" + std::to_string(i + 1), file.lines[i]);
      }
    }
  }
}

// Names that a page gives to a reader's own files, or to what a build makes.
const std::set<std::string> kNotHere = {"NAME_fuzz.cc", "build/hardware/report.md"};

std::vector<std::string> missing_names(const std::vector<File>& files) {
  static const std::regex suite(
      R"(^(?:TYPED_TEST_P|TYPED_TEST|TEST_P|TEST_F|TEST|RC_GTEST_PROP)\(\s*(\w+),)");
  std::set<std::string> suites;
  std::vector<std::string> paths;
  for (const File& file : files) {
    paths.push_back("/" + file.path);
    if (!file.path.ends_with(".cc") && !file.path.ends_with(".h")) continue;
    for (const std::string& line : file.lines) {
      std::smatch match;
      if (line.find("TEST") != std::string::npos && std::regex_search(line, match, suite))
        suites.insert(match[1]);
    }
  }
  const auto is_there = [&](const std::string& name) {
    const std::size_t up = name.starts_with(".") ? name.find_first_not_of("./") : 0;
    const std::string pattern = "*/" + name.substr(up);
    return std::ranges::any_of(paths, [&](const std::string& path) {
      return fnmatch(pattern.c_str(), path.c_str(), 0) == 0;
    });
  };
  std::vector<std::string> missing;
  for_each_line(files, [&](const std::string& place, const std::string& line) {
    for (const std::string& name : quoted_in(line)) {
      const bool is_wrong =
          is_name_of_tests(name)
              ? !suites.contains(name.substr(0, name.find('.')))
              : is_name_of_file(name) && !kNotHere.contains(name) && !is_there(name);
      if (is_wrong) missing.push_back(place + ": " + name);
    }
  });
  return missing;
}

bool is_of_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// Adds the names that a parenthesis follows.
void add_called(const std::string& line, std::set<std::string>& names) {
  for (std::size_t at = line.find('('); at != std::string::npos; at = line.find('(', at + 1)) {
    std::size_t begin = at;
    while (begin > 0 && is_of_name(line[begin - 1]))
      --begin;
    if (begin < at) names.insert(line.substr(begin, at - begin));
  }
}

// Functions of the kernel's drivers, and one in a formula.
const std::set<std::string> kForeign = {"XXH3_64", "efa_qp_validate_attr", "get_atomic_caps",
                                        "irdma_query_device"};

std::vector<std::string> missing_functions(const std::vector<File>& files) {
  static const std::regex function(R"((?:[\w:.>-]*[:.>])?(\w+)\(.*\))");
  std::set<std::string> names = kForeign;
  for (const File& file : files) {
    if (file.path.ends_with(".md")) continue;
    for (const std::string& line : file.lines)
      add_called(line, names);
  }
  std::vector<std::string> missing;
  for_each_line(files, [&](const std::string& place, const std::string& line) {
    for (const std::string& quoted : quoted_in(line)) {
      std::smatch match;
      if (std::regex_match(quoted, match, function) && !names.contains(match[1]))
        missing.push_back(place + ": " + quoted);
    }
  });
  return missing;
}

// Words outside of code and tables.
std::size_t words_of_prose(const std::vector<File>& files) {
  std::size_t count = 0;
  for_each_line(files, [&](const std::string&, const std::string& line) {
    if (line.starts_with("|") || line.starts_with("    ")) return;
    std::istringstream words(line);
    for (std::string word; words >> word;)
      count += std::ranges::any_of(word, is_of_name) ? 1 : 0;
  });
  return count;
}

TEST(Documents, NameFunctionsThatExist) {
  for (const std::string& name : missing_functions(read_tree()))
    ADD_FAILURE() << name << " is not there";
}

// Tables are looked up, and other tests compare most of them with the code. Prose is read.
TEST(Documents, HaveNoMoreProseThanPeopleRead) {
  EXPECT_LE(words_of_prose(read_tree()), 55'000U) << "shorten a page before you add to one";
}

TEST(DocumentsCanary, FunctionsThatAreGoneAndProseAreSeen) {
  const auto files = [](const std::string& line) {
    return std::vector<File>{
        {.path = "server/store.cc", .lines = {"Status Store::put(Bytes key) {"}},
        {.path = "server/README.md", .lines = {line}}};
  };
  EXPECT_TRUE(missing_functions(files("`put()`, `Store::put(key)`, `store.put()`, `put`")).empty());
  EXPECT_EQ(missing_functions(files("`take()` and `Store::take()`")).size(), 2U);
  EXPECT_EQ(words_of_prose(files("Three words: here, - and `two` more.")), 6U);
  EXPECT_EQ(words_of_prose(files("| a | table |")), 0U);
}

TEST(Documents, NameFilesAndTestsThatExist) {
  ASSERT_TRUE(std::filesystem::exists("CMakePresets.json")) << "run from the repository's root";
  for (const std::string& name : missing_names(read_tree()))
    ADD_FAILURE() << name << " is not there";
}

TEST(DocumentsCanary, NamesThatAreGoneAreSeen) {
  const auto count = [](const std::string& line) {
    return missing_names({{.path = "server/store/store.cc", .lines = {}},
                          {.path = "tests/a_test.cc", .lines = {"TEST(Store, Works) {"}},
                          {.path = "server/README.md", .lines = {line}}})
        .size();
  };
  EXPECT_EQ(
      count("`store.cc`, `store/store.*`, `server/store/store.cc`, `../server/store/store.cc`"),
      0U);
  EXPECT_EQ(count("`Store.*`, `1.5`, `192.0.2.1`, `--flag`, `a.b`, `std::x`"), 0U);
  EXPECT_EQ(count("`stores.cc`"), 1U);
  EXPECT_EQ(count("`store.h`, `index/store.cc`"), 2U);
  EXPECT_EQ(count("`Stores.*`"), 1U);
}

}  // namespace
}  // namespace rkv
