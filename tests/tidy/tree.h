// The files of the repository, as tests of their text see them. The current folder is its root.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace rkv {

struct File {
  std::string path;
  std::vector<std::string> lines;
  std::string folder() const { return path.substr(0, path.find('/')); }
  bool is_cpp() const { return path.ends_with(".h") || path.ends_with(".cc"); }
};

inline std::vector<File> read_tree() {
  namespace fs = std::filesystem;
  std::vector<File> files;
  std::vector<fs::path> paths = {"README.md", "CONTRIBUTING.md", "CMakeLists.txt", "run"};
  for (const char* const folder :
       {"common", "rdma", "server", "client", "bench", "tests", "docker"}) {
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

}  // namespace rkv
