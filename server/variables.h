// The environment variables of the options: their names, and those that look like one and are none.
//
// Thread safety: free functions.
#pragma once

#include <string>
#include <vector>

namespace rkv::server {

// "data-dir": "KVSERVER_DATA_DIR".
std::string environment_name(const std::string& option);
// A sentence about each variable of the environment, as environ(7) has it, that begins as those of
// the options do and is none of them, with the one that was probably meant.
std::vector<std::string> unknown_variables(const char* const* environment);

}  // namespace rkv::server
