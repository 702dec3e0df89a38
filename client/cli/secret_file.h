// The secret of a user, from a file.
//
// Thread safety: free functions. They block on the disk.
#pragma once

#include <string>

namespace rkv::cli {

// Reads the file of --secret-file into `secret`: one line of 64 hexadecimal digits, in a file for
// its owner alone. Returns what is wrong, or an empty text.
std::string read_secret_file(const std::string& path, std::string& secret);

}  // namespace rkv::cli
