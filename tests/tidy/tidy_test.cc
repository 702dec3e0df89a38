// Style that a machine can see, as a test: include direction, where foreign headers may appear,
// line and function lengths, left-over marks, dead files, Markdown links, a README in every
// directory. Runs from the repository's root.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace rkv {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxLine = 100;
constexpr std::size_t kMaxFunctionLines = 70;
const std::vector<std::string> folders = {"common", "rdma",  "server", "client",
                                          "bench",  "tests", "docker"};

struct File {
  std::string path;
  std::vector<std::string> lines;
  std::string folder() const { return path.substr(0, path.find('/')); }
  bool is_cpp() const { return path.ends_with(".h") || path.ends_with(".cc"); }
};

std::vector<File> read_tree() {
  std::vector<File> files;
  std::vector<fs::path> paths = {"README.md", "CONTRIBUTING.md", "CMakeLists.txt", "run"};
  for (const std::string& folder : folders) {
    if (!fs::exists(folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file()) paths.push_back(entry.path());
    }
  }
  for (const fs::path& path : paths) {
    File file{.path = path.string(), .lines = {}};
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);)
      file.lines.push_back(line);
    files.push_back(std::move(file));
  }
  return files;
}

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
    {"rdma/core/checked", "rdma/core/memory", "rdma/core/device", "rdma/core/queue",
     "rdma/core/connect", "rdma/extras", "rdma/transport/", "rdma/transport/verbs",
     "rdma/transport/reopening", "rdma/", "rdma/diagnosis"},
    {"server/memory", "server/index", "server/persistence/wal", "server/persistence",
     "server/store", "server/admission", "server/background", "server/request", "server/program",
     "server/monitor", "server/network", "server/"},
    {"client/get", "client/link", "client/engine", "client/cluster", "client/api", "client/cli"}};

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
      {"<xxhash.h>", {"common/hash.cc"}}};
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
    EXPECT_TRUE(file.lines.front().starts_with("//")) << file.path << ": begin with what it is for";
    EXPECT_TRUE(std::find(file.lines.begin(), file.lines.end(), "#pragma once") != file.lines.end())
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
}

}  // namespace
}  // namespace rkv
