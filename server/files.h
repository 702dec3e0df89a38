// Files, as backups and their restoring need them. Calls block on the disk and answer an errno, 0
// when done.
//
// Thread safety: free functions.
#pragma once

#include <string>

namespace rkv::server {

// The names in a directory survive the end of the machine.
int sync_directory(const std::string& path);
// A new file with the other's bytes, synced. What it has made by then is left when it fails.
int copy_file_synced(const std::string& from, const std::string& to);

}  // namespace rkv::server
