// A type of the product is defined in one place: two classes of one qualified name in one program
// are undefined behaviour that no linker reports.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/tidy/tree.h"

namespace rkv {
namespace {

// "NAMESPACE::NAME: PATH" of each type of namespace scope. Types of unnamed namespaces and those
// within others are left out. clang-format puts what is looked for at the begin of a line.
std::vector<std::string> types_of(const File& file) {
  static const std::regex opening(R"re(^(?:inline )?namespace ([\w:]*) ?\{)re");
  static const std::regex closing(R"re(^\}  // namespace)re");
  static const std::regex type(
      R"re(^(?:template .*)?(?:class|struct|union|enum class|enum) )re"
      R"re((?:alignas\(.*?\) |\[\[.*?\]\] |RKV_[A-Z_]+(?:\(.*?\))? )*)re"  // attributes
      R"re((\w+)(?: final)?(?: *:[^:].*)? *\{)re");
  std::vector<std::string> found;
  std::vector<std::string> around;
  std::smatch match;
  for (const std::string& line : file.lines) {
    if (line.empty() || std::string_view(" /#").contains(line.front())) continue;
    if (std::regex_search(line, match, opening)) {
      around.push_back(match[1]);
    } else if (std::regex_search(line, closing)) {
      if (!around.empty()) around.pop_back();
    } else if (std::regex_search(line, match, type)) {
      std::string name;
      for (const std::string& space : around)
        name += space + "::";
      const bool is_local = std::ranges::find(around, "") != around.end();
      if (!is_local) found.push_back(name + match[1].str());
    }
  }
  return found;
}

std::vector<std::string> defined_twice(const std::vector<File>& files) {
  std::map<std::string, std::string> first;
  std::vector<std::string> found;
  for (const File& file : files)
    for (const std::string& type : types_of(file)) {
      const auto [at, is_new] = first.emplace(type, file.path);
      if (!is_new) found.push_back(type + ": " + at->second + " and " + file.path);
    }
  return found;
}

TEST(Types, AreDefinedOnce) {
  ASSERT_TRUE(std::filesystem::exists("CMakePresets.json")) << "run from the repository's root";
  std::vector<File> product;
  std::size_t types = 0;
  for (File& file : read_tree()) {
    const bool is_ours = file.is_cpp() && file.folder() != "tests" && file.folder() != "bench" &&
                         file.path.find("/examples/") == std::string::npos;
    if (!is_ours) continue;
    types += types_of(file).size();
    product.push_back(std::move(file));
  }
  for (const std::string& twice : defined_twice(product))
    ADD_FAILURE() << twice;
  EXPECT_GT(types, 500U);
}

TEST(TypesCanary, AreSeen) {
  const File one{
      .path = "a.h",
      .lines = {"namespace rkv::server {", "class Backup {", "};", "}  // namespace rkv::server"}};
  const File other{
      .path = "b.h",
      .lines = {"namespace rkv {", "namespace server {", "struct Backup final : Base {", "};",
                "}  // namespace server", "namespace {", "struct Local {", "};", "}  // namespace",
                "}  // namespace rkv"}};
  EXPECT_EQ(types_of(other), std::vector<std::string>{"rkv::server::Backup"});
  EXPECT_EQ(defined_twice({one, other}),
            std::vector<std::string>{"rkv::server::Backup: a.h and b.h"});
  EXPECT_TRUE(defined_twice({one}).empty());
}

}  // namespace
}  // namespace rkv
