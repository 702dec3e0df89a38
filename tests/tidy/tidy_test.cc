// Style that a machine can see, as a test: include direction, where foreign headers may appear,
// line and function lengths, left-over marks, dead files, Markdown links, a README in every
// directory, phrases that a reader must read twice, tags of invariants, names of std without their
// header. Runs from the repository's root.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/tidy/tree.h"

namespace rkv {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxLine = 100;
constexpr std::size_t kMaxFunctionLines = 70;
class Tidy : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    ASSERT_TRUE(fs::exists("CMakePresets.json")) << "run from the repository's root";
    files = new std::vector<File>(read_tree());
  }
  static std::vector<File> cpp_files() {
    std::vector<File> found;
    std::copy_if(files->begin(), files->end(), std::back_inserter(found),
                 [](const File& file) { return file.is_cpp(); });
    return found;
  }
  static std::vector<File>* files;
};
std::vector<File>* Tidy::files = nullptr;

// Which folders the files of a folder may include.
const std::map<std::string, std::set<std::string>> may_include = {
    {"common", {"common"}},
    {"rdma", {"common", "rdma"}},
    {"server", {"common", "rdma", "server"}},
    {"client", {"common", "rdma", "client"}},
    {"bench", {"common", "rdma", "server", "client", "bench"}},
    {"tests", {"common", "rdma", "server", "client", "bench", "tests"}}};

TEST_F(Tidy, IncludesPointDown) {
  const std::regex include(R"re(^#include "([a-z]+)/.*")re");
  for (const File& file : cpp_files()) {
    for (const std::string& line : file.lines) {
      std::smatch match;
      if (!std::regex_search(line, match, include) || match[1] == "rkv") continue;
      EXPECT_TRUE(may_include.at(file.folder()).contains(match[1])) << file.path << ": " << line;
    }
  }
}

// The rooms of each layer, lowest first. A file includes its own room and lower ones.
const std::vector<std::vector<std::string>> rooms = {
    {"rdma/core/linkage", "rdma/core/", "rdma/core/checked", "rdma/core/memory", "rdma/core/device",
     "rdma/core/queue", "rdma/core/connect", "rdma/extras", "rdma/transport/",
     "rdma/transport/verbs", "rdma/transport/shm", "rdma/transport/tcp", "rdma/transport/reopening",
     "rdma/", "rdma/diagnosis"},
    {"server/memory",
     "server/index",
     "server/log",
     "server/store",
     "server/persistence/wal",
     "server/persistence",
     "server/group/configuration",
     "server/group/rules",
     "server/group/lane",
     "server/group/connection",
     "server/group/copy",
     "server/group/replica",
     "server/clients/admission",
     "server/background",
     "server/request",
     "server/program",
     "server/offline",
     "server/clients/network",
     "server/monitor",
     "server/"},
    {"client/get", "client/link", "client/engine", "client/async", "client/cluster", "client/api",
     "client/c", "client/python", "client/cli"}};

// The place of a path among the rooms of its layer, -1 for none. A room that ends in '/' is the
// folder without its subfolders.
int height_of(const std::string& path, const std::vector<std::string>& layer) {
  const std::string folder = fs::path(path).parent_path().string();
  for (std::size_t i = 0; i < layer.size(); ++i) {
    const std::string& room = layer[i];
    if (room.ends_with('/') ? folder + "/" == room
                            : folder == room || folder.starts_with(room + "/")) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

// Folders that users of the libraries include or copy, outside the order of rooms.
constexpr std::array<std::string_view, 4> kWithoutRooms = {"rdma/include/", "rdma/examples/",
                                                           "client/include/", "client/examples/"};

// Returns the folders of layered sources that have no place in `rooms`: nothing would check what
// they include, or who includes them.
std::set<std::string> folders_without_room(const std::vector<File>& files) {
  std::set<std::string> found;
  for (const File& file : files) {
    const std::string folder = file.folder();
    if (!file.is_cpp() || (folder != "rdma" && folder != "server" && folder != "client")) continue;
    const auto holds = [&](std::string_view start) { return file.path.starts_with(start); };
    const auto has_room = [&](const auto& layer) { return height_of(file.path, layer) >= 0; };
    if (std::ranges::any_of(kWithoutRooms, holds) || std::ranges::any_of(rooms, has_room)) continue;
    found.insert(fs::path(file.path).parent_path().string());
  }
  return found;
}

TEST_F(Tidy, EveryFolderHasARoom) {
  for (const std::string& folder : folders_without_room(*files))
    ADD_FAILURE() << folder << ": give it a place in `rooms`";
}

TEST_F(Tidy, RoomsIncludeLowerRooms) {
  const std::regex include(R"re(^#include "((?:rdma|server|client)/[^"]+)")re");
  for (const File& file : cpp_files()) {
    for (const std::vector<std::string>& layer : rooms) {
      const int from = height_of(file.path, layer);
      if (from < 0) continue;
      for (const std::string& line : file.lines) {
        std::smatch match;
        if (!std::regex_search(line, match, include)) continue;
        EXPECT_LE(height_of(match[1], layer), from) << file.path << ": " << line;
      }
    }
  }
}

// The store is written against the seam, not against verbs. What explains a machine to people
// looks below it, through facts that name no verbs.
TEST_F(Tidy, ServerAndClientIncludeOnlyTheSeamOfRdma) {
  for (const File& file : cpp_files()) {
    if (file.folder() != "server" && file.folder() != "client") continue;
    for (const std::string& line : file.lines) {
      if (line.starts_with("#include \"rdma/") || line.starts_with("#include \"rkv/rdma/")) {
        const bool doctor = file.path.starts_with("client/cli/doctor");
        EXPECT_TRUE(line == "#include \"rdma/transport/transport.h\"" ||
                    line == "#include \"rdma/transport/spin_window.h\"" ||
                    line == "#include \"rdma/choose.h\"" ||
                    (doctor && line == "#include \"rdma/diagnosis/diagnosis.h\""))
            << file.path << ": " << line;
      }
    }
  }
}

TEST_F(Tidy, ForeignHeadersStayWhereTheyBelong) {
  struct Rule {
    const char* header;
    std::vector<std::string> allowed;
  };
  const std::vector<Rule> rules = {
      {"<infiniband/", {"rdma/", "tests/rdma/", "bench/verbs/"}},
      {"<rdma/", {"rdma/", "tests/rdma/"}},
      {"<rocksdb/",
       {"server/persistence/", "tests/server/persistence/", "tests/system/dump_test.cc", "bench/"}},
      {"<cxxopts.hpp>", {"server/program/options.cc", "client/cli/", "bench/"}},
      {"<xxhash.h>", {"common/hash.cc"}},
      {"<asio",
       {"server/group/replica/", "server/group/connection/", "server/group/lane/",
        "server/group/copy/", "tests/server/group/", "client/examples/asio_loop.cc",
        "rdma/examples/asio_loop.cc"}},
      {"<openssl/",
       {"common/auth/digest.cc", "server/group/connection/",
        "tests/server/clients/admission/equal_work_test.cc", "tests/server/group/connection/"}}};
  for (const File& file : cpp_files()) {
    for (const std::string& line : file.lines) {
      for (const Rule& rule : rules) {
        if (!line.starts_with(std::string("#include ") + rule.header)) continue;
        EXPECT_TRUE(std::any_of(rule.allowed.begin(), rule.allowed.end(),
                                [&](const auto& place) { return file.path.starts_with(place); }))
            << file.path << ": " << line;
      }
    }
  }
}

TEST_F(Tidy, HeadersAreGuardedAndExplained) {
  for (const File& file : cpp_files()) {
    if (!file.path.ends_with(".h")) continue;
    ASSERT_FALSE(file.lines.empty()) << file.path;
    const bool is_of_c = file.path == "client/include/rkv/c.h";
    EXPECT_TRUE(file.lines.front().starts_with(is_of_c ? "/* " : "//"))
        << file.path << ": begin with what it is for";
    const char* const guard = is_of_c ? "#ifndef RKV_C_H" : "#pragma once";
    EXPECT_TRUE(std::find(file.lines.begin(), file.lines.end(), guard) != file.lines.end())
        << file.path;
  }
}

TEST_F(Tidy, LinesAreShort) {
  for (const File& file : cpp_files()) {
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      EXPECT_LE(file.lines[i].size(), kMaxLine) << file.path << ":" << i + 1;
    }
  }
}

// A function's body, as clang-format lays it out: from a line ending in "{" that is indented by at
// most two and holds ")", to the closing brace at the same indentation.
TEST_F(Tidy, FunctionsAreShort) {
  for (const File& file : cpp_files()) {
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      const std::string& line = file.lines[i];
      const std::size_t indent = line.find_first_not_of(' ');  // npos when empty
      if (indent > 2 || !line.ends_with("{") || line.starts_with("namespace") ||
          line.starts_with("//") || line.find(')') == std::string::npos) {
        continue;
      }
      const std::string closing = std::string(indent, ' ') + "}";
      for (std::size_t j = i + 1; j < file.lines.size(); ++j) {
        if (!file.lines[j].starts_with(closing)) continue;
        EXPECT_LE(j - i, kMaxFunctionLines) << file.path << ":" << i + 1;
        break;
      }
    }
  }
}

TEST_F(Tidy, NoLeftOverMarks) {
  const std::string marks[] = {std::string("FIX") + "ME",
                               std::string("XX") + "X:", std::string("TO") + "DO:"};
  for (const File& file : *files) {
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      for (const std::string& mark : marks) {
        EXPECT_EQ(file.lines[i].find(mark), std::string::npos) << file.path << ":" << i + 1;
      }
    }
  }
}

TEST_F(Tidy, EverySourceIsBuilt) {
  std::string listings;
  for (const File& file : *files) {
    if (!file.path.ends_with("CMakeLists.txt") && !file.path.ends_with(".cmake")) continue;
    for (const std::string& line : file.lines)
      listings += line + "\n";
  }
  for (const File& file : cpp_files()) {
    if (!file.path.ends_with(".cc")) continue;
    EXPECT_NE(listings.find(fs::path(file.path).filename().string()), std::string::npos)
        << file.path << " is in no CMakeLists.txt";
  }
}

TEST_F(Tidy, EveryHeaderIsIncluded) {
  std::string includes;
  for (const File& file : cpp_files()) {
    for (const std::string& line : file.lines) {
      if (line.starts_with("#include")) includes += line + "\n";
    }
  }
  for (const File& file : cpp_files()) {
    if (!file.path.ends_with(".h")) continue;
    EXPECT_NE(includes.find(fs::path(file.path).filename().string() + "\""), std::string::npos)
        << file.path << " is included nowhere";
  }
}

TEST_F(Tidy, RelativeLinksInMarkdownLeadSomewhere) {
  const std::regex link(R"(\]\(([^)#]+)(#[^)]*)?\))");
  for (const File& file : *files) {
    if (!file.path.ends_with(".md")) continue;
    for (const std::string& line : file.lines) {
      for (std::sregex_iterator it(line.begin(), line.end(), link), end; it != end; ++it) {
        const std::string target = (*it)[1];
        if (target.find("://") != std::string::npos) continue;
        EXPECT_TRUE(fs::exists(fs::path(file.path).parent_path() / target))
            << file.path << ": " << target;
      }
    }
  }
}

TEST_F(Tidy, EveryDirectoryHasAReadme) {
  std::set<std::string> directories;
  for (const File& file : *files) {
    const std::string directory = fs::path(file.path).parent_path().string();
    // Public headers are described by the README of their layer.
    if (!directory.empty() && directory.find("/include") == std::string::npos) {
      directories.insert(directory);
    }
  }
  for (const std::string& directory : directories) {
    // Below tests/, folders mirror the sources; tests/README.md describes them.
    if (directory.starts_with("tests/") && !fs::exists(directory + "/README.md")) continue;
    EXPECT_TRUE(fs::exists(directory + "/README.md")) << directory;
  }
}

// Phrases that read twice in comments, strings and pages, and what to write instead.
struct Phrase {
  std::string_view words;
  std::string_view instead;
};
constexpr std::array<Phrase, 13> kPhrases = {
    {{"anew", "again"},
     {"in vain", "without success; or name the result"},
     {"for ever", "without end; or name the bound"},
     {"whoever", "the caller, thread or client that"},
     {"whom", "name the caller, thread or client"},
     {"has gone", "has disconnected, ended or been removed"},
     {"as a rule", "usually"},
     {"told by", "reported by"},
     {"is no", "is not a"},
     {"makes no sense", "is invalid"},
     {"what it takes", "what it needs"},
     {"is of no use", "cannot be combined with; or needs"},
     {"is let in", "is accepted"}}};

// "there is no", "is no longer" and "is no more" are plain English.
bool is_plain_no(std::string_view before, std::string_view after) {
  return before.ends_with("there ") || after.starts_with(" longer") || after.starts_with(" more");
}

// Returns the phrase of the table that begins within the first `length` characters of a text in
// small letters.
std::optional<Phrase> phrase_in(std::string_view text, std::size_t length) {
  const auto letter = [&](std::size_t i) {
    return i < text.size() && (std::isalnum(static_cast<unsigned char>(text[i])) || text[i] == '_');
  };
  for (const Phrase& phrase : kPhrases) {
    for (std::size_t at = text.find(phrase.words); at < length;
         at = text.find(phrase.words, at + 1)) {
      const std::size_t end = at + phrase.words.size();
      if (letter(end) || (at != 0 && letter(at - 1))) continue;
      if (phrase.words == "is no" && is_plain_no(text.substr(0, at), text.substr(end))) continue;
      return phrase;
    }
  }
  return std::nullopt;
}

// Returns line `i` in small letters, followed by the next line without the marks of a comment or
// string: a phrase may be broken between the two.
std::string line_and_next(const std::vector<std::string>& lines, std::size_t i) {
  std::string text = lines[i];
  if (text.ends_with(" \"")) text.resize(text.size() - 2);
  if (i + 1 < lines.size()) {
    const std::size_t begin = lines[i + 1].find_first_not_of(" /#*\">");
    if (begin != std::string::npos) text += " " + lines[i + 1].substr(begin);
  }
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

TEST_F(Tidy, SentencesAreReadOnce) {
  const auto is_checked = [](const std::string& path) {
    static constexpr std::array<std::string_view, 11> kEnds = {
        ".h", ".cc", ".md", ".py", ".sh", ".html", ".in", "run", ".pml", ".yml", "CMakeLists.txt"};
    return path != "tests/tidy/tidy_test.cc" &&
           std::ranges::any_of(kEnds, [&](std::string_view end) { return path.ends_with(end); });
  };
  for (const File& file : *files) {
    if (!is_checked(file.path)) continue;
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      const auto found = phrase_in(line_and_next(file.lines, i), file.lines[i].size());
      EXPECT_FALSE(found) << file.path << ":" << i + 1 << ": \"" << found->words << "\": write \""
                          << found->instead << "\"";
    }
  }
}

// ---- tags of invariants, such as WIRE-1

bool is_upper(char c) {
  return c >= 'A' && c <= 'Z';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_word(char c) {
  return is_upper(c) || is_digit(c) || (c >= 'a' && c <= 'z') || c == '_';
}

// Returns the words of a line that are `least` to `most` capital letters, `between`, and one or two
// digits.
std::vector<std::string> marked_words(std::string_view line, std::size_t least, std::size_t most,
                                      std::string_view between) {
  std::vector<std::string> found;
  for (std::size_t begin = 0; begin < line.size(); ++begin) {
    if (begin != 0 && (is_word(line[begin - 1]) || line[begin - 1] == '-')) continue;
    std::size_t at = begin;
    while (at < line.size() && is_upper(line[at]))
      ++at;
    if (at - begin < least || at - begin > most || !line.substr(at).starts_with(between)) continue;
    at += between.size();
    const std::size_t number = at;
    while (at < line.size() && is_digit(line[at]))
      ++at;
    const bool ends = at == line.size() || (!is_word(line[at]) && line[at] != '-');
    if (at - number < 1 || at - number > 2 || !ends) continue;
    found.emplace_back(line.substr(begin, at - begin));
  }
  return found;
}

// Words of other fields that look like tags.
const std::set<std::string> no_tags = {"UTF-8", "EUI-64"};
const std::set<std::string> no_old_tags = {"L2", "V2", "LZ4", "A17"};

std::vector<std::string> tags_in(std::string_view line) {
  std::vector<std::string> tags = marked_words(line, 2, 12, "-");
  std::erase_if(tags, [](const std::string& tag) { return no_tags.contains(tag); });
  return tags;
}

// A letter or two and a number have meant several things at once.
std::vector<std::string> old_tags_in(std::string_view line) {
  std::vector<std::string> tags = marked_words(line, 1, 2, "");
  std::erase_if(tags, [](const std::string& tag) { return no_old_tags.contains(tag); });
  return tags;
}

// Returns the tag and the number behind it.
std::pair<std::string, int> parts_of(const std::string& tag) {
  const std::size_t dash = tag.find('-');
  return {tag.substr(0, dash), std::stoi(tag.substr(dash + 1))};
}

std::string_view comment_of(std::string_view line) {
  const std::size_t begin = line.find("//");
  return begin == std::string_view::npos ? std::string_view() : line.substr(begin);
}

// Returns the tag that a line defines: in a comment it comes first, with two spaces behind it; in a
// page it is bold. Tests only use tags, unless they are headers.
std::optional<std::string> defined_in(const std::string& path, std::string_view line) {
  if (path.starts_with("tests/") && path.ends_with(".cc")) return std::nullopt;
  for (const std::string& tag : tags_in(line)) {
    const std::size_t at = line.find(tag);
    if (path.ends_with(".md")) {
      if (line.substr(0, at).ends_with("**") && line.substr(at + tag.size()).starts_with("**"))
        return tag;
      continue;
    }
    std::string_view before = line.substr(0, at);
    before = before.substr(0, before.find_last_not_of(' ') + 1);
    const bool first = before.ends_with("//") || before.ends_with("Invariants:");
    if (first && line.substr(at + tag.size()).starts_with("  ")) return tag;
  }
  return std::nullopt;
}

// Returns what is wrong with the tags of these files; empty: nothing.
std::vector<std::string> wrong_tags(const std::vector<File>& files) {
  std::vector<std::string> wrong;
  std::map<std::string, std::string> defined;
  std::map<std::string, std::string> used;
  std::vector<std::pair<std::string, std::string>> ranges;  // where; the end of one from the first
  for (const File& file : files) {
    const bool page = file.path.ends_with(".md") || file.path.ends_with(".pml");
    if (!(file.is_cpp() || page) || file.path == "tests/tidy/tidy_test.cc") continue;
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      const std::string& line = file.lines[i];
      const std::string where = file.path + ":" + std::to_string(i + 1);
      for (const std::string& tag : old_tags_in(page ? line : comment_of(line)))
        wrong.push_back(where + ": " + tag + " is no longer a tag: write a word and a number");
      for (const std::string& tag : tags_in(line)) {
        used.emplace(tag, where);
        const std::string range = parts_of(tag).first + "-1 to " + tag;
        const std::size_t at = page ? line.find(range) : std::string::npos;
        if (at == std::string::npos || is_digit((line + " ")[at + range.size()])) continue;
        ranges.emplace_back(where, tag);
      }
      const auto tag = defined_in(file.path, line);
      if (!tag) continue;
      const auto [before, is_new] = defined.emplace(*tag, where);
      if (!is_new) wrong.push_back(where + ": " + *tag + " is defined in " + before->second);
    }
  }
  for (const auto& [tag, where] : used)
    if (!defined.contains(tag)) wrong.push_back(where + ": " + tag + " is defined nowhere");
  std::map<std::string, int> last;
  for (const auto& [tag, where] : defined) {
    const auto [name, number] = parts_of(tag);
    last[name] = std::max(last[name], number);
  }
  for (const auto& [where, range] : ranges) {
    const auto [name, number] = parts_of(range);
    if (last[name] != number)
      wrong.push_back(where + ": the last is " + name + "-" + std::to_string(last[name]));
  }
  return wrong;
}

TEST_F(Tidy, TagsOfInvariantsAreDefinedOnce) {
  for (const std::string& wrong : wrong_tags(*files))
    ADD_FAILURE() << wrong;
}

TEST(TidyCanary, WrongTagsAreSeen) {
  const auto count = [](const std::vector<std::string>& lines) {
    return wrong_tags({{.path = "common/a.h", .lines = lines},
                       {.path = "tests/a_test.cc", .lines = {"//  PAGE-1  is tested here."}},
                       {.path = "server/PAGE.md", .lines = {"- **PAGE-1** Text (PAGE-1)."}}})
        .size();
  };
  EXPECT_EQ(count({}), 0U);
  EXPECT_EQ(count({"//  HEAD-1  A text.", "f();  // (HEAD-1, PAGE-1)", "x = K3 + -O1;"}), 0U);
  EXPECT_EQ(count({"//  PAGE-1  A text."}), 1U) << "defined twice";
  EXPECT_EQ(count({"// As HEAD-2 says."}), 1U) << "defined nowhere";
  const auto page = [](const std::string& line) {
    return wrong_tags({{.path = "common/a.h",
                        .lines = {"//  HEAD-1  One.", "//  HEAD-2  Two.", "//  HEAD-3  Three."}},
                       {.path = "server/PAGE.md", .lines = {line}}})
        .size();
  };
  EXPECT_EQ(page("HEAD-1 to HEAD-3"), 0U);
  EXPECT_EQ(page("HEAD-1 to HEAD-2"), 1U) << "one more was added";
  EXPECT_EQ(count({"f();  // (K3)"}), 1U) << "an old tag";
  EXPECT_EQ(count({"// CC2: text, of UTF-8, as L2 of -O2."}), 1U) << "an old tag";
}

// ---- headers of the standard library

// The names of std that a header declares, separated by spaces. Other headers bring them along in
// one version of a library, and not in the next.
struct NamesOf {
  std::string_view header;
  std::string_view names;
};
constexpr std::array<NamesOf, 43> kNamesOf = {
    {{"algorithm", "min max minmax sort find find_if copy fill clamp any_of all_of none_of ranges"},
     {"array", "array to_array"},
     {"atomic", "atomic atomic_ref atomic_flag atomic_thread_fence atomic_signal_fence"},
     {"barrier", "barrier"},
     {"bit", "bit_cast endian countr_zero countl_zero popcount bit_ceil bit_width byteswap"},
     {"charconv", "from_chars to_chars"},
     {"chrono", "chrono"},
     {"compare", "strong_ordering weak_ordering partial_ordering"},
     {"concepts", "same_as convertible_to integral invocable derived_from"},
     {"condition_variable", "condition_variable condition_variable_any"},
     {"coroutine", "coroutine_handle suspend_always suspend_never"},
     {"cstddef", "byte max_align_t"},
     {"cstdint",
      "int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t intptr_t "
      "uintptr_t intmax_t uintmax_t"},
     {"cstdio", "printf fprintf fputs snprintf fflush FILE fopen fclose puts perror"},
     {"cstdlib", "abort exit getenv strtol strtoul strtoull malloc free"},
     {"cstring", "memcpy memcmp memset memmove strlen strerror strcmp strchr"},
     {"deque", "deque"},
     {"expected", "expected unexpected"},
     {"fstream", "ifstream ofstream fstream"},
     {"functional", "function move_only_function invoke less greater"},
     {"future", "future promise async"},
     {"iterator", "back_inserter istreambuf_iterator"},
     {"limits", "numeric_limits"},
     {"map", "map multimap"},
     {"memory", "unique_ptr shared_ptr weak_ptr make_unique make_shared addressof"},
     {"mutex", "mutex lock_guard unique_lock scoped_lock call_once once_flag"},
     {"numeric", "accumulate iota"},
     {"optional", "optional nullopt"},
     {"queue", "queue priority_queue"},
     {"random", "mt19937 mt19937_64 uniform_int_distribution random_device"},
     {"set", "set multiset"},
     {"source_location", "source_location"},
     {"span", "span as_bytes as_writable_bytes"},
     {"stop_token", "stop_token stop_source stop_callback"},
     {"string", "string to_string getline"},
     {"string_view", "string_view"},
     {"thread", "thread jthread this_thread"},
     {"tuple", "tuple tie make_tuple"},
     {"type_traits",
      "is_same_v is_trivially_copyable_v enable_if_t remove_cvref_t decay_t "
      "conditional_t is_enum_v underlying_type_t invoke_result_t"},
     {"unordered_map", "unordered_map"},
     {"utility", "move forward exchange pair swap in_place"},
     {"variant", "variant visit monostate holds_alternative get_if"},
     {"vector", "vector"}}};

// Returns which header each of those names is from.
std::map<std::string, std::string, std::less<>> header_of_names() {
  std::map<std::string, std::string, std::less<>> header_of;
  for (const NamesOf& of : kNamesOf) {
    std::istringstream names{std::string(of.names)};
    for (std::string name; names >> name;)
      header_of.emplace(name, of.header);
  }
  return header_of;
}

// Returns the names that stand behind `std::` in a line, outside of its comment.
std::vector<std::string_view> std_names_in(std::string_view line) {
  constexpr std::string_view kStd = "std::";
  line = line.substr(0, line.find("//"));
  std::vector<std::string_view> names;
  for (std::size_t at = line.find(kStd); at != std::string_view::npos; at = line.find(kStd, at)) {
    const bool begins = at == 0 || !(is_word(line[at - 1]) || line[at - 1] == ':');
    at += kStd.size();
    std::size_t end = at;
    while (end < line.size() && is_word(line[end]))
      ++end;
    if (begins) names.push_back(line.substr(at, end - at));
  }
  return names;
}

// Which headers a file includes, itself and by way of files of the project.
class Includes {
 public:
  explicit Includes(const std::vector<File>& files) {
    for (const File& file : files) {
      for (const std::string& line : file.lines) {
        if (!line.starts_with("#include ")) continue;
        const std::size_t end = line.find_first_of(">\"", 10);
        if (end != std::string::npos) of_[file.path].insert(line.substr(10, end - 10));
      }
      if (file.is_cpp()) of_.try_emplace(file.path);
    }
  }

  std::set<std::string> direct(const std::string& path) const { return of_.at(path); }

  std::set<std::string> by_way_of_the_project(const std::string& path) const {
    std::set<std::string> seen = {path};
    std::set<std::string> foreign;
    for (std::vector<std::string> left = {path}; !left.empty();) {
      const std::string at = left.back();
      left.pop_back();
      for (const std::string& name : of_.at(at)) {
        const std::optional<std::string> found = place_of(name, at);
        if (!found)
          foreign.insert(name);
        else if (seen.insert(*found).second)
          left.push_back(*found);
      }
    }
    return foreign;
  }

 private:
  std::optional<std::string> place_of(const std::string& name, const std::string& from) const {
    for (const std::string& folder :
         {std::string(), std::string("common/include/"), std::string("client/include/"),
          std::string("rdma/include/"), std::string("rdma/extras/include/"),
          fs::path(from).parent_path().string() + "/"})
      if (of_.contains(folder + name)) return folder + name;
    return std::nullopt;
  }

  std::map<std::string, std::set<std::string>> of_;
};

// Returns the names of std in headers and in sources of the product whose header is not included.
// An installed header includes it itself; others may leave it to headers of the project.
std::vector<std::string> std_names_without_header(const std::vector<File>& files) {
  const auto header_of = header_of_names();
  const Includes includes(files);
  std::vector<std::string> wrong;
  for (const File& file : files) {
    if (!file.is_cpp() || (file.folder() == "tests" && file.path.ends_with(".cc"))) continue;
    const bool installed = file.path.find("/include/rkv/") != std::string::npos;
    const std::set<std::string> included =
        installed ? includes.direct(file.path) : includes.by_way_of_the_project(file.path);
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      for (const std::string_view name : std_names_in(file.lines[i])) {
        const auto header = header_of.find(name);
        if (header == header_of.end() || included.contains(header->second)) continue;
        wrong.push_back(file.path + ":" + std::to_string(i + 1) + ": std::" + std::string(name) +
                        " needs <" + header->second + ">");
      }
    }
  }
  return wrong;
}

TEST_F(Tidy, NamesOfStdComeFromTheirHeaders) {
  for (const std::string& wrong : std_names_without_header(*files))
    ADD_FAILURE() << wrong;
}

TEST(TidyCanary, NamesWithoutHeaderAreSeen) {
  const File installed = {.path = "rdma/include/rkv/rdma/a.h",
                          .lines = {"#include <span>", "std::span<int> s();"}};
  const auto wrong = [&](const std::string& path, const std::vector<std::string>& lines) {
    return std_names_without_header({{.path = path, .lines = lines}, installed});
  };
  const std::string by_way = "#include \"rkv/rdma/a.h\"";
  EXPECT_TRUE(wrong("common/a.h", {"#include <cstdint>", "std::uint8_t a;"}).empty());
  EXPECT_TRUE(wrong("common/a.cc", {by_way, "std::span<char> a; // std::string"}).empty());
  EXPECT_TRUE(wrong("common/a.cc", {"my::std::span a; std::size_t b; xstd::span c;"}).empty());
  EXPECT_EQ(wrong("rdma/include/rkv/rdma/b.h", {by_way, "std::span<char> a;"}).size(), 1U);
  EXPECT_EQ(wrong("common/a.cc", {"#include <string>", "std::string a; std::uint8_t b;"}),
            (std::vector<std::string>{"common/a.cc:2: std::uint8_t needs <cstdint>"}));
}

// The checks above would see a violation: each pattern is tried on a line that offends.
TEST(TidyCanary, PatternsMatchOffenders) {
  EXPECT_FALSE(may_include.at("client").contains("server"));
  EXPECT_FALSE(may_include.at("common").contains("rdma"));
  std::smatch match;
  const std::string line = "#include \"server/store/store.h\"";
  EXPECT_TRUE(std::regex_search(line, match, std::regex(R"re(^#include "([a-z]+)/.*")re")));
  EXPECT_EQ(match[1], "server");
  EXPECT_GT(height_of("server/store/store.h", rooms[1]),
            height_of("server/index/index.h", rooms[1]));
  EXPECT_GT(height_of("server/server.h", rooms[1]),
            height_of("server/persistence/wal/log_chain.h", rooms[1]));
  EXPECT_EQ(height_of("server/install/x.h", rooms[1]), -1);
  const std::vector<File> some = {{.path = "rdma/transport/new/queue.cc", .lines = {}},
                                  {.path = "server/new/part.h", .lines = {}},
                                  {.path = "server/new/README.md", .lines = {}},
                                  {.path = "server/store/store.h", .lines = {}},
                                  {.path = "client/include/rkv/client.h", .lines = {}},
                                  {.path = "common/wire.h", .lines = {}}};
  EXPECT_EQ(folders_without_room(some),
            (std::set<std::string>{"rdma/transport/new", "server/new"}));
}

TEST(TidyCanary, PhrasesAreSeen) {
  const auto offends = [](const std::vector<std::string>& lines) {
    return phrase_in(line_and_next(lines, 0), lines[0].size()).has_value();
  };
  for (const Phrase& phrase : kPhrases)
    EXPECT_TRUE(offends({"// Then it " + std::string(phrase.words) + " key."})) << phrase.words;
  EXPECT_TRUE(offends({"  // The client has", "  // gone."}));
  EXPECT_TRUE(offends({"    \"the mark makes \"", "    \"no sense\""}));
  EXPECT_TRUE(offends({"This is no key."}));
  EXPECT_FALSE(offends({"There is no key, the slot is no longer free, the rest is no more."}));
  EXPECT_FALSE(offends({"// A key.", "// The client has gone."})) << "reported for its own line";
  EXPECT_FALSE(offends({"int renewed = told_by();"}));
}

}  // namespace
}  // namespace rkv
