// Environment variables of the options: their names, and variables that resemble them.
//
// Thread safety: free functions.
#pragma once

#include <string>
#include <vector>

namespace rkv::server {

// "data-dir": "KVSERVER_DATA_DIR".
std::string environment_name(const std::string& option);
// Returns a sentence about each variable of `environment` (as in environ(7)) that has the options'
// prefix but is not an option's variable. It names the variable that was probably meant.
std::vector<std::string> unknown_variables(const char* const* environment);

}  // namespace rkv::server
