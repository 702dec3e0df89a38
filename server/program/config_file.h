// Reads a TOML file of settings into text values, in the form that flags take.
#pragma once

#include <map>
#include <string>

namespace rkv::server {

struct ConfigFile {
  std::map<std::string, std::string> values;
  std::string error;          // a sentence that names the file; empty on success
  bool could_be_read = true;  // false: reading failed, so the content is not the cause
};

// Accepts only plain keys with text, numbers or booleans; a table or a list is an error.
ConfigFile read_config_file(const std::string& path);

}  // namespace rkv::server
