// A TOML file of settings, as text: the same values that flags take.
#pragma once

#include <map>
#include <string>

namespace rkv::server {

struct ConfigFile {
  std::map<std::string, std::string> values;
  std::string error;          // a sentence that names the file; empty when all is well
  bool could_be_read = true;  // false: the error is the file's, and not of what is in it
};

// Only plain keys with text, numbers or booleans; a table or a list is an error.
ConfigFile read_config_file(const std::string& path);

}  // namespace rkv::server
